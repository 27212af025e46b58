// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../2_coalescing.cuh"

TEST_CASE("chapter 3, coalescing: one problem") {
  lab::testing::check_right(coalescing::attention, lab::testing::random_case(1, 2, 83, 64));
}
