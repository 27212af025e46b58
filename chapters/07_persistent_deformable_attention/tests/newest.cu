// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/testing/newest.h"
#include "../6_bulk.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;

TEST_CASE("chapter 7, bulk: one problem") {
  const DeformableShape shape{.queries = 37, .heads = 2, .levels = 2, .level = {{9, 11}, {5, 6}}};
  const RandomArray<half> value("value", shape.value_elements(), 1);
  const RandomArray<half> weights("weights", shape.samples(), 2, 0.1);
  // Some lie outside of the levels.
  const RandomArray<half> locations("locations", 2 * shape.samples(), 3, 0.6);
  auto out = unwritten<half>("out", shape.out_elements());
  persistent_deformable_attention::bulk(value, locations, weights, out.data(), shape, nullptr);
  std::vector<double> expected(shape.out_elements());
  reference::deformable_attention(value.wide.data(), locations.wide.data(), weights.wide.data(),
                                  shape, expected.data());
  check_written(out, expected, {.atol = 1e-3, .rtol = 2e-3, .relative_l2 = 1e-3});
}

}  // namespace
