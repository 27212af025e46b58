// Exercise 2 and its bug: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "grader_testing.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 2: points") {
  const std::string solution = source("chapters/02_tiling/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  // 12 problems: tokens 1, 2, 15, 16, 17, 33, 64, 65, 100 (scores moved by 150), 127, 128, 197.
  check_points(
      "exercise2", "exercise.cuh",
      {{"solution", solution, {30, 20, 20, 10, 5, 10, 5}},
       {"starter", source("chapters/02_tiling/exercise.cuh"), none},
       // Without a mask only the one key of one token is right.
       {"the chapter's kernel",
        source("chapters/02_tiling/kernel.cuh") +
        "namespace exercise {\n"
        "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
        "    const AttentionShape& shape, cudaStream_t stream) {\n"
        "  tiling::attention(Q, K, V, O, shape, stream);\n"
        "}\n"
        "}  // namespace exercise\n",
        {2, 20, 0, 0, 0, 0, 0}},
       // A first maximum of +infinity makes all weights 0 and O 0/0.
       {"NaN: the maximum begins at the wrong end",
        planted(solution, "float row_max = -INFINITY", "float row_max = INFINITY"), none,
        "begin at -INFINITY"},
       // Wrong where a maximum grows from tile to tile.
       {"the sum is not rescaled",
        planted(solution, "    row_sum *= factor;\n", ""),
        {20, 20, 0, 0, 0, 0, 0},
        "row_sum as well as O, rescaled"},
       // Only the 7 problems of one tile are right.
       {"tail: tiles that are not full are left out, but the first",
        planted(solution, "first_key < last_key;",
                "first_key == 0 || first_key + kKeyTile <= last_key;"),
        {17, 20, 0, 0, 0, 0, 0}},
       // A warp goes on to the next tile while others are at this one: right while there is one.
       {"barrier: none before the next tiles overwrite these",
        planted(solution, "    __syncthreads();  // before the next tiles overwrite these\n", ""),
        {17, 0, 0, 0, 0, 0, 0}},
       // Neighbouring lanes load different keys: 32 sectors where 2 are needed.
       {"uncoalesced: a thread loads a row",
        planted(solution, "const int key = i / kHeadDim, d = i % kHeadDim;",
                "const int key = i % kKeyTile, d = i / kKeyTile;"),
        {30, 20, 20, 10, 5, 0, 5}},
       // Rows of the last, incomplete 16 are not written: right for 16, 64 and 128. With fewer than
       // 16 tokens there is no block at all and the launch fails: not everything could be checked.
       {"multiples of 16: no block for the rest of the rows",
        planted(solution, "const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;",
                "const int row_blocks = shape.tokens / kQueryRows;"),
        {7, 0, 0, 0, 0, 0, 0},
        "None, when a number was rounded down?"}});
}

TEST_CASE("exercise 2: the bug, mended and not") {
  const std::string bug = source("chapters/02_tiling/bug.cuh");
  const std::vector<std::string> reports = check_points(
      "exercise2", "bug.cuh",
      {{"as it is", bug, {0, 0, 0, 0, 0}, "is a barrier missing?"},
       {"mended",
        planted(bug, "  // The last warp puts", "  __syncthreads();\n  // The last warp puts"),
        {30, 20, 30, 10, 10}},
       // 10 times more barriers than are needed.
       {"barriers everywhere",
        planted(
            planted(bug, "  // The last warp puts", "  __syncthreads();\n  // The last warp puts"),
            "  float row_max = -INFINITY, row_sum",
            "  for (int i = 0; i < 9; ++i) __syncthreads();\n"
            "  float row_max = -INFINITY, row_sum"),
        {30, 20, 0, 10, 10}}});
  CHECK(reports[0].find("holes") == std::string::npos);
}
