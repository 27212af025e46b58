// Runs behind the tests of single instructions: doctest orders test cases by file.
#include <doctest/doctest.h>

#include <cstdlib>

#include "forms_cases.h"

TEST_CASE("table: every row, and each choice of its modifiers, has a test") {
  if (!vgpu::rows::whole_run) {
    MESSAGE("not looked at: some test cases were left out");
    return;
  }
  const auto missing = vgpu::rows::untouched();
  // VGPU_LIST_MISSING=1: all of them (list_missing.sh).
  const bool all = std::getenv("VGPU_LIST_MISSING") != nullptr;
  std::string list;
  for (std::size_t i = 0; i < missing.size() && (all || i < 20); ++i) list += "\n  " + missing[i];
  INFO("no test has touched:" << list);
  CHECK(missing.size() == 0);
}
