// Exercise 4: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "grader_testing.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 4: points") {
  const std::string solution = source("chapters/04_wmma/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // 12 problems: tokens 1, 2, 15, 16, 17, 33, 64, 65, 100 (scores moved by 150), 127, 128, 197.
  check_points(
      "exercise4", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 10, 5, 10, 5, 5}},
       // One key has all the weight, whatever its score.
       {"starter", source("chapters/04_wmma/exercise.cuh"), {2, 20, 0, 0, 0, 0, 0, 0}},
       // Without biases only the one key of one token is right.
       {"the chapter's kernel",
        source("chapters/04_wmma/kernel.cuh") +
        "namespace exercise {\n"
        "inline void attention(const half* Q, const half* K, const half* V, const float*, half* "
        "O,\n"
        "    const AttentionShape& shape, cudaStream_t stream) {\n"
        "  wmma_attention::attention(Q, K, V, O, shape, stream);\n"
        "}\n"
        "}  // namespace exercise\n",
        {2, 20, 0, 0, 0, 0, 0, 0}},
       // A first maximum of +infinity makes all weights 0 and O 0/0.
       {"NaN: the maximum begins at the wrong end",
        planted(solution, "float row_max = -INFINITY", "float row_max = INFINITY"), none},
       // Right for the 7 problems of one tile, and for 128, which has none that is not full.
       {"tail: tiles that are not full are left out, but the first",
        planted(solution, "first_key < tokens; first_key",
                "first_key == 0 || first_key + kKeyTile <= tokens; first_key"),
        {20, 20, 0, 0, 0, 0, 0, 0}},
       // Rows of K's tile are read as if they had no padding: half a row that nobody wrote.
       {"K is read with the wrong stride",
        planted(solution, "&tiles.k[j][d], kHeadDim + kPad", "&tiles.k[j][d], kHeadDim"),
        {2, 0, 0, 0, 0, 0, 0, 0},
        "first mend what the checks find, see below"},
       // The lanes of a warp run side by side here, but nothing says that they do.
       {"barrier: scores are read before all lanes have stored theirs",
        planted(solution, "    __syncwarp();  // the scores are there\n", ""),
        {30, 0, 15, 10, 5, 10, 5, 5}},
       // Lanes load 16 bytes of 32 rows: 32 sectors, of which half is used.
       {"uncoalesced: neighbouring lanes load neighbouring rows",
        planted(solution, "const int row = i / kPieces, d = i % kPieces * 8;",
                "const int row = i % kRows, d = i / kRows * 8;"),
        {30, 20, 15, 10, 5, 0, 5, 5}},
       // Rows of the last, incomplete 16 are not written: right for 16, 64 and 128; with fewer than
       // 16 there is no block at all and the launch fails.
       {"multiples of 16: no block for the rest of the rows",
        planted(solution, "const int row_blocks = (shape.tokens + kTile - 1) / kTile;",
                "const int row_blocks = shape.tokens / kTile;"),
        {7, 0, 0, 0, 0, 0, 0, 0}}});
}
