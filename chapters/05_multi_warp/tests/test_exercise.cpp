// Exercise 5 and its bug: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 5: points") {
  const std::string solution = source("chapters/05_multi_warp/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  // 12 problems, tokens (real keys): 1 (1), 2 (2, 1), 15 (15, 7, 1), 16 (16, 3), 17 (16), 33 (20,
  // 33), 64 (64), 65 (65, 64), 100 (70, 100; scores moved by 150), 127 (1, 127, 65), 128 (128), 197
  // (33, 130).
  check_points(
      "exercise5", "exercise.cuh",
      {{"solution", solution, {30, 20, 25, 5, 5, 10, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0}},
       // All keys count: right for 1, 64 and 128. And nobody waits for the others, which gives
       // right results only as long as the warps run one after the other.
       {"starter", source("chapters/05_multi_warp/exercise/exercise.cuh"), {7, 0, 0, 0, 0, 0, 0}},
       // All keys count: right for 1, 64 and 128.
       {"the chapter's kernel",
        copied_kernel("chapters/05_multi_warp/kernel.cuh") +
            "namespace exercise {\n"
            "inline void attention(const half* Q, const half* K, const half* V, const int*, half* "
            "O,\n"
            "    const AttentionShape& shape, cudaStream_t stream) {\n"
            "  multi_warp::attention(Q, K, V, O, shape, stream);\n"
            "}\n"
            "}  // namespace exercise\n",
        {7, 20, 0, 0, 0, 0, 0}},
       // What stands behind the real keys is NaN, and 0 times NaN is NaN: right where all are real,
       // for 1, 64 and 128, and for 65 (65, 64), where the one that is not has a tile of its own.
       {"NaN: padding is loaded, with a weight of 0",
        planted(solution, "keys - first_key, thread", "tokens - first_key, thread"),
        {10, 20, 0, 0, 0, 0, 0}},
       // Right with one tile (the first 7 problems) and with tiles that are all full (128).
       {"tail: tiles that are not full are left out, but the first",
        planted(solution, "first_key < keys; first_key",
                "first_key == 0 || first_key + kKeyTile <= keys; first_key"),
        {20, 20, 0, 0, 0, 0, 0}},
       // A warp goes on to the next tile while others are at this one: right while there is one.
       {"barrier: none before the next tiles overwrite these",
        planted(solution, "    __syncthreads();  // before the next tiles overwrite these\n", ""),
        {17, 0, 0, 0, 0, 0, 0}},
       // Lanes load 16 bytes of 32 rows: 32 sectors, of which half is used.
       {"uncoalesced: neighbouring lanes load neighbouring rows",
        planted(solution, "const int row = i / kPieces, d = i % kPieces * 8;",
                "const int row = i % kRows, d = i / kRows * 8;"),
        {30, 20, 25, 5, 5, 0, 5}},
       // Right for 17 (16), 64 and 128.
       {"multiples of 16: the rest of the keys is left out",
        planted(solution, "const int keys = lengths[matrix_number / heads];",
                "const int keys = lengths[matrix_number / heads] / 16 * 16;"),
        {7, 20, 0, 0, 0, 0, 0}}});
}

TEST_CASE("exercise 5: the files show this chapter's kernel, not the next one's") {
  const std::string kernel =
      source("chapters/05_multi_warp/kernel.cuh") + source("chapters/04_wmma/parts/rows.cuh");
  for (const char* file : {"exercise.cuh", "solution.cuh", "bug.cuh"}) {
    CAPTURE(file);
    const std::string text = source(std::string("chapters/05_multi_warp/exercise/") + file);
    for (const char* line : {"half k[kHeadDim][kKeyTile + kPad];  // transposed",
                             "wmma::load_matrix_sync(k_frag, &block.k[d][j], kKeyTile + kPad);",
                             "for (int e = 0; e < 8; ++e) tile[d + e][key] = elements[e];"}) {
      CHECK(contains(kernel, line));
      CHECK(contains(text, line));
    }
    CHECK_FALSE(contains(text, "col_major"));
    CHECK_FALSE(contains(text, "hardly ever grows"));
  }
  // The head of the bug tells what is seen, not where to look.
  const std::string bug = source("chapters/05_multi_warp/exercise/bug.cuh");
  const std::string head = bug.substr(0, bug.find("#pragma once"));
  for (const char* word : {"word", "in common", "sum", "rescale", "all_sync", "maximum"})
    CHECK_FALSE(contains(head, word));
}

TEST_CASE("exercise 5: the bug, mended and not") {
  const std::string bug = source("chapters/05_multi_warp/exercise/bug.cuh");
  // Of the 6 problems only that of 64 tokens has nothing to rescale; but for a mistake that nobody
  // has found there are no points.
  check_points(
      "exercise5", "bug.cuh",
      {{"as it is", bug, {0, 0, 0, 0, 0}},
       {"mended", planted(bug, "__all_sync", "__any_sync"), {30, 20, 20, 20, 10}},
       {"always rescaled",
        planted(bug, "if (__all_sync(0xffffffffu, factor != 1.0f)) scale_rows", "scale_rows"),
        {30, 20, 20, 20, 10}}});
}
