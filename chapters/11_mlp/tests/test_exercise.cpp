// Exercise 11: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 11: points") {
  const std::string folder = "chapters/11_mlp/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  check_points(
      "exercise11", "exercise.cuh",
      {{"solution", solution, {30, 20, 5, 15, 10, 5, 10, 5}},
       {"starter", source(folder + "exercise.cuh"), none},
       // x comes again for the second product, to where it is: which copy is last nobody knows.
       {"x is copied twice",
        planted(solution, "copy_slice(up, first_column,",
                "copy_slice(x, first_row, m, slice * kSlice, k, to.x);\n"
                "      copy_slice(up, first_column,"),
        {30, 0, 5, 0, 10, 5, 10, 5}},
       // Rows of 128 bytes begin in the same bank.
       {"tiles without a swizzle",
        planted(solution, "tile::Swizzled>", "tile::Plain>"),
        {30, 20, 5, 15, 10, 5, 10, 0}},
       {"the gate is the other product",
        planted(solution, "gelu(gates[i][j].value[v]) * ups[i][j].value[v]",
                "gates[i][j].value[v] * gelu(ups[i][j].value[v])"),
        none}});
}
