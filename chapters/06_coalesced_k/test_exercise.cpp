// Exercise 6: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "grader_testing.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 6: points") {
  const std::string solution = source("chapters/06_coalesced_k/solution.cuh");
  const std::string next =
      "    if (first_key + kKeyTile < keys) load_tiles(first_key + kKeyTile, stage ^ 1);\n";
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // 12 problems, queries (keys): 1 (1), 17 (2), 64 (15), 65 (16), 2 (33), 33 (64), 16 (65),
  // 100 (128), 80 (100; scores moved by 150), 31 (127), 15 (192), 197 (250).
  check_points(
      "exercise6", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 5, 15, 5, 5, 5}},
       {"starter", source("chapters/06_coalesced_k/exercise.cuh"), none},
       // Right where there is one query and one key; elsewhere keys that are none, and too few.
       {"the chapter's kernel",
        source("chapters/06_coalesced_k/kernel.cuh") +
        "namespace exercise {\n"
        "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
        "    const AttentionShape& shape, int, cudaStream_t stream) {\n"
        "  coalesced_k::attention(Q, K, V, O, shape, stream);\n"
        "}\n"
        "}  // namespace exercise\n",
        {2, 0, 0, 0, 0, 0, 0, 0}},
       // A first maximum of +infinity makes all weights 0 and O 0/0.
       {"NaN: the maximum begins at the wrong end",
        planted(solution, "float row_max = -INFINITY", "float row_max = INFINITY"), none},
       // Right with one tile (the first 6 problems) and with tiles that are all full (128, 192).
       {"tail: tiles that are not full are left out, but the first",
        planted(solution, "first_key < keys;", "first_key == 0 || first_key + kKeyTile <= keys;"),
        {20, 20, 0, 0, 0, 0, 0, 0}},
       // A warp reads what others have not copied yet: right for 1 and 2 keys, which the first
       // copies.
       {"barrier: a warp waits for its own copies only",
        planted(solution, "    __syncthreads();  // the tiles are there\n", ""),
        {5, 0, 0, 0, 0, 0, 0, 0}},
       // Lanes copy 16 bytes of 32 rows: 32 sectors, of which half is used; and 8 lanes at a time
       // write to 8 rows that are 36 words apart, which are still 32 different banks.
       {"uncoalesced: neighbouring lanes copy neighbouring rows",
        planted(solution, "const int row = i / kPieces, d = i % kPieces * 8;",
                "const int row = i % kRows, d = i / kRows * 8;"),
        {30, 20, 15, 5, 15, 0, 5, 5}},
       // A second barrier of the block in each turn, and nothing on its way while it computes.
       {"one stage: the next tiles begin when all are done with these",
        planted(
            planted(solution, next, ""), "p_frag, v_frag, o_frag[d / kTile]);\n      }\n    }\n",
            "p_frag, v_frag, o_frag[d / kTile]);\n      }\n    }\n    __syncthreads();\n" + next),
        {30, 20, 15, 5, 0, 5, 5, 5}},
       // Slower warps may still read the stage, from the third tile on; here the order of the warps
       // makes it come out right.
       {"barrier: the next tiles begin before all are done with the stage",
        planted(planted(solution, next, ""), "    __syncthreads();  // the tiles are there\n",
                next + "    __syncthreads();  // the tiles are there\n"),
        {30, 0, 15, 5, 15, 5, 5, 5},
        "a copy begins only behind the barrier"},
       // Right for 16, 64, 128 and 192 keys.
       {"multiples of 16: the rest of the keys is left out",
        planted(solution, "shape.tokens, keys, shape.scale",
                "shape.tokens, keys / 16 * 16, shape.scale"),
        {10, 20, 0, 0, 0, 0, 0, 0}}});
}
