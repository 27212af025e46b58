#include <doctest/doctest.h>

#include <cstdio>

#include "bad_input.h"
#include "testing/testing.h"

// Stands last: doctest runs test cases in the order of their files' names.
TEST_CASE("bad input: the count") {
  constexpr int kLeast = 300, kWhole = 15;
  std::printf("note: %d cases of bad input\n", bad_input::cases());
  // Unless some were chosen (-tc), or there is no device to run on.
  if (bad_input::test_cases() >= kWhole) CHECK(bad_input::cases() >= kLeast);
}
