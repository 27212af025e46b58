// Exercise 3: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 3: points") {
  const std::string solution = source("chapters/03_coalescing/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // 12 problems: tokens 1, 2, 15, 16, 17, 33, 64, 65, 100 (scores moved by 150), 127, 128, 197.
  const std::vector<std::string> reports = check_points(
      "exercise3", "exercise.cuh",
      {{"solution", solution, {30, 20, 20, 5, 10, 5, 5, 5}},
       {"starter", source("chapters/03_coalescing/exercise/exercise.cuh"), none},
       // It refuses head_dim 80.
       {"the chapter's kernel",
        copied_kernel("chapters/03_coalescing/2_coalescing.cuh") +
            "namespace exercise {\n"
            "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
            "    const AttentionShape& shape, cudaStream_t stream) {\n"
            "  coalescing::attention(Q, K, V, O, shape, stream);\n"
            "}\n"
            "}  // namespace exercise\n",
        none},
       // The last 16 columns of O keep the NaN that was there.
       {"NaN: columns 64 to 79 are not written",
        planted(solution, "if (lane + 32 * c < kHeadDim)", "if (lane + 32 * c < 64)"),
        {0, 0, 0, 0, 0, 0, 0, 0}},
       // Right for the 7 problems of one tile, and for 128, which has none that is not full.
       {"tail: tiles that are not full are left out, but the first",
        planted(solution, "first_key < tokens; first_key",
                "first_key == 0 || first_key + kKeyTile <= tokens; first_key"),
        {20, 20, 0, 0, 0, 0, 0, 0}},
       // A warp goes on to the next tile while others are at this one: right while there is one.
       {"barrier: none before the next tiles overwrite these",
        planted(solution, "    __syncthreads();  // before the next tiles overwrite these\n", ""),
        {17, 0, 0, 0, 0, 0, 0, 0}},
       // 8 times as many loads of 2 bytes, 32 sectors each where 2 would do; and in the tile lanes
       // write to rows that are 44 words apart, 8 different banks for 32 rows.
       {"uncoalesced: a thread loads a row, element by element",
        planted(
            solution,
            "for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {\n"
            "    const int row = i / kPieces, d = i % kPieces * 8;\n"
            "    *reinterpret_cast<uint4*>(&tile[row][d]) =\n"
            "        row < valid ? *reinterpret_cast<const uint4*>(rows_global + row * kHeadDim "
            "+ d) : uint4{};\n",
            "for (int i = threadIdx.x; i < kRows * kHeadDim; i += kThreads) {\n"
            "    const int row = i % kRows, d = i / kRows;\n"
            "    tile[row][d] = row < valid ? rows_global[row * kHeadDim + d] : "
            "__float2half(0.0f);\n"),
        {30, 20, 0, 5, 0, 5, 5, 0}},
       // Rows of the last, incomplete 16 are not written: right for 16, 64 and 128; with fewer than
       // 16 there is no block at all and the launch fails.
       {"multiples of 16: no block for the rest of the rows",
        planted(solution, "const int row_blocks = (shape.tokens + kQueryRows - 1) / kQueryRows;",
                "const int row_blocks = shape.tokens / kQueryRows;"),
        {7, 0, 0, 0, 0, 0, 0, 0}},
       // Right, since what is read of the padding and of the next row is not stored.
       {"padding: columns that do not exist are read",
        planted(solution, "        if (d >= kHeadDim) continue;\n", ""),
        {30, 0, 20, 5, 10, 5, 5, 5}}});
  // The cause comes first, barriers after it.
  CHECK(reports.back().find("\"cause\": \"the two lines of the finding name different arrays, "
                            "'v_tile' and 's_tile'") != std::string::npos);
}
