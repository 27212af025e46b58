// Tests of the chapter's program. Those of the formulas are in test_golden.cpp and test_formulas.cpp.
#include <doctest/doctest.h>

#include "../../../common/testing/checks.h"

using namespace lab::testing;

TEST_CASE("machine code: no spills") { check_machine_code("chapters/16_cvt"); }

TEST_CASE("program: an operation that there is none is named, with those that there are") {
  TemporaryFolder folder;
  const ProgramResult result =
      run_program("chapter16", {"--component", "nothing"}, folder.folder());
  CHECK(result.exit_code == 2);
  CHECK(result.errors.find("--component 'nothing': must be") != std::string::npos);
  CHECK(result.errors.find("projection") != std::string::npos);
}
