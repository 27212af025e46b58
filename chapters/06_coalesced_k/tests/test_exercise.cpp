// Exercise 6 and its second task: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 6: points") {
  const std::string solution = source("chapters/06_coalesced_k/exercise/solution.cuh");
  const std::string next =
      "    if (first_key + kKeyTile < keys) load_tiles(first_key + kKeyTile, stage ^ 1);\n";
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // 12 problems, queries (keys): 1 (1), 17 (2), 64 (15), 65 (16), 2 (33), 33 (64), 16 (65),
  // 100 (128), 80 (100; scores moved by 150), 31 (127), 15 (192), 197 (250).
  check_points(
      "exercise6", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 5, 15, 5, 5, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0, 0}},
       {"starter", source("chapters/06_coalesced_k/exercise/exercise.cuh"), none},
       // Right where there is one query and one key; elsewhere keys that are none, and too few.
       {"the chapter's kernel",
        copied_kernel("chapters/06_coalesced_k/kernel.cuh") +
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

TEST_CASE("exercise 6 from an empty function: points") {
  const std::string solution = source("chapters/06_coalesced_k/exercise/solution2.cuh");
  const std::string task = source("chapters/06_coalesced_k/exercise/task2.cuh");
  CHECK_FALSE(contains(task, "__global__"));
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  const std::string kernel = copied_kernel("chapters/06_coalesced_k/kernel.cuh");
  const std::string signature =
      "inline void attention(const half* qkv, half* O, const AttentionShape& shape,\n"
      "                      cudaStream_t stream) {\n";
  // To the chapter's four arrays, its kernel, and back.
  const std::string sorted =
      kernel +
      "namespace exercise {\n"
      "__global__ void sort_kernel(const half* from, half* to, int tokens, int heads, int parts) "
      "{\n"
      "  const int64_t row = blockIdx.x;  // row of `to`: [part, image, head, token]\n"
      "  const int64_t images = gridDim.x / (int64_t(tokens) * heads * parts);\n"
      "  const int64_t token = row % tokens, head = row / tokens % heads;\n"
      "  const int64_t image = row / tokens / heads % images, part = row / tokens / heads / "
      "images;\n"
      "  to[row * 64 + threadIdx.x] = from[\n"
      "      (((image * tokens + token) * parts + part) * heads + head) * 64 + threadIdx.x];\n"
      "}\n"
      "__global__ void back_kernel(const half* from, half* to, int tokens, int heads) {\n"
      "  const int64_t row = blockIdx.x, token = row % tokens, head = row / tokens % heads;\n"
      "  const int64_t image = row / tokens / heads;\n"
      "  to[((image * tokens + token) * heads + head) * 64 + threadIdx.x] =\n"
      "      from[row * 64 + threadIdx.x];\n"
      "}\n" +
      signature +
      "  half* own = nullptr;\n"
      "  const int64_t part = shape.elements();\n"
      "  const unsigned rows = unsigned(shape.rows());\n"
      "  cudaMallocAsync(&own, 4 * part * sizeof(half), stream);\n"
      "  sort_kernel<<<3 * rows, 64, 0, stream>>>(qkv, own, shape.tokens, shape.heads, 3);\n"
      "  coalesced_k::attention(own, own + part, own + 2 * part, own + 3 * part, shape, stream);\n"
      "  back_kernel<<<rows, 64, 0, stream>>>(own + 3 * part, O, shape.tokens, shape.heads);\n"
      "  cudaFreeAsync(own, stream);\n"
      "}\n"
      "}  // namespace exercise\n";
  // 12 problems, images x tokens x heads: 1x1x1, 1x1x2, 1x2x2, 3x15x1, 1x17x3, 2x33x2, 1x64x1,
  // 1x65x5, 1x100x1 (scores moved by 150), 1x81x1 (by -150), 1x127x2, 2x197x3.
  check_points(
      "exercise6", "task2.cuh",
      {{"solution", solution, {30, 20, 15, 10, 5, 10, 5, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0, 0}},
       {"empty", task, none, "never written"},
       // Right for one token, where the parts are as the chapter has them.
       {"the chapter's kernel",
        kernel + "namespace exercise {\n" + signature +
            "  coalesced_k::attention(qkv, qkv + shape.elements(), qkv + 2 * shape.elements(), O,\n"
            "                         shape, stream);\n"
            "}\n"
            "}  // namespace exercise\n",
        {5, 20, 0, 0, 0, 0, 0, 0}},
       // Coalesced, every time: but there and back.
       {"sorted before and after", sorted, {30, 20, 0, 10, 0, 10, 5, 0}, "read qkv as it lies"},
       // Right where there is one head.
       {"the heads before the three parts",
        planted(solution, "head * kHeadDim;\n  const half *K = Q + o_stride, *V = K + o_stride",
                "head * 3 * kHeadDim;\n  const half *K = Q + kHeadDim, *V = K + kHeadDim"),
        {12, 20, 0, 0, 0, 0, 0, 0}},
       {"O head by head, as the chapter has it",
        planted(planted(solution, "O += image * tokens * o_stride + head * kHeadDim;",
                        "O += (image * heads + head) * tokens * kHeadDim;"),
                "O + (first_row + o_row) * o_stride + d", "O + (first_row + o_row) * kHeadDim + d"),
        {15, 20, 0, 0, 0, 0, 0, 0}},
       // Lanes load 16 bytes of 32 rows: half of each sector is for nobody. Each 8 lanes write to 8
       // rows, in different banks as before.
       {"uncoalesced: neighbouring lanes load neighbouring rows",
        planted(solution, "const int row = i / kPieces, d = i % kPieces * 8;",
                "const int row = i % kRows, d = i / kRows * 8;"),
        {30, 20, 15, 0, 5, 10, 5, 5}},
       {"4 bytes a lane",
        planted(planted(planted(solution,
                                "constexpr int kPieces = kHeadDim / 8;  // pieces of 16 bytes",
                                "constexpr int kPieces = kHeadDim / 2;  // pieces of 4 bytes"),
                        "d = i % kPieces * 8;", "d = i % kPieces * 2;"),
                "uint4", "unsigned"),
        {30, 20, 15, 10, 0, 10, 5, 5}},
       // Rows of 32 words begin in the same bank.
       {"no padding",
        planted(solution, "constexpr int kPad = 8;", "constexpr int kPad = 0;"),
        {30, 20, 15, 10, 5, 0, 5, 5}},
       {"tail: keys past the last token count",
        planted(solution, "first_key + column(i) < tokens ?", "first_key + column(i) < 1 << 30 ?"),
        {5, 20, 0, 0, 0, 0, 0, 0}},
       {"barrier: none before the next tiles overwrite these",
        planted(solution, "    __syncthreads();  // before the next tiles overwrite these\n", ""),
        {17, 0, 0, 0, 0, 0, 0, 0}},
       {"barrier: a warp reads what others have not loaded yet",
        planted(solution, "    __syncthreads();  // the tiles are there\n", ""),
        {7, 0, 0, 0, 0, 0, 0, 0}}});
  const auto included =
      check_points("exercise6", "task2.cuh", {{"include", "#include \"solution2.cuh\"\n", {}}});
  CHECK(contains(included[0], "is not for an exercise"));
}
