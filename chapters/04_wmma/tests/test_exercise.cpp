// Exercise 4 and its second task: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 4: points") {
  const std::string solution = source("chapters/04_wmma/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // 12 problems: tokens 1, 2, 15, 16, 17, 33, 64, 65, 100 (scores moved by 150), 127, 128, 197.
  check_points(
      "exercise4", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 10, 5, 10, 5, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0, 0}},
       // One key has all the weight, whatever its score.
       {"starter", source("chapters/04_wmma/exercise/exercise.cuh"), {2, 20, 0, 0, 0, 0, 0, 0}},
       // Without biases only the one key of one token is right.
       {"the chapter's kernel",
        copied_kernel("chapters/04_wmma/kernel.cuh") +
            "namespace exercise {\n"
            "inline void attention(const half* Q, const half* K, const half* V, const float*, "
            "half* "
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
        planted(solution, "&tiles.k[d][j], kKeyTile + kPad", "&tiles.k[d][j], kKeyTile"),
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

TEST_CASE("exercise 4: the files show this chapter's kernel, not chapter 6's") {
  const std::string kernel =
      source("chapters/04_wmma/kernel.cuh") + source("chapters/04_wmma/parts/rows.cuh");
  for (const char* file : {"exercise.cuh", "solution.cuh", "solution2.cuh"}) {
    CAPTURE(file);
    const std::string text = source(std::string("chapters/04_wmma/exercise/") + file);
    for (const char* line : {"half k[kHeadDim][kKeyTile + kPad];  // transposed",
                             "for (int e = 0; e < 8; ++e) tile[d + e][key] = elements[e];"}) {
      CHECK(contains(kernel, line));
      CHECK(contains(text, line));
    }
    CHECK_FALSE(contains(text, "col_major"));
    CHECK_FALSE(contains(text, "hardly ever grows"));
  }
}

TEST_CASE("exercise 4 from an empty function: points") {
  const std::string solution = source("chapters/04_wmma/exercise/solution2.cuh");
  const std::string task = source("chapters/04_wmma/exercise/task2.cuh");
  CHECK_FALSE(contains(task, "__global__"));
  CHECK_FALSE(contains(solution, "col_major"));  // which is chapter 6's
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // One head of Q at a time: 16 rows of a product for 5 queries.
  const auto one_head = [&](const std::string& kv_head) {
    std::string text = planted(solution, "half* O, int rows, int keys,",
                               "half* O, int rows, int group, int kv_heads, int keys,");
    text = planted(text, "  K += matrix * keys",
                   "  const int64_t kv = " + kv_head + ";\n  K += kv * keys");
    text = planted(text, "V += matrix * keys", "V += kv * keys");
    text = planted(text, "shape.heads / kv_heads * shape.tokens", "shape.tokens");
    text = planted(text, "shape.batch * kv_heads * row_blocks", "shape.matrices() * row_blocks");
    return planted(text, "O, rows, keys, shape",
                   "O, rows, shape.heads / kv_heads, kv_heads, keys, shape");
  };
  // No tensor cores: a block a row, a thread an element, an online softmax key by key.
  const std::string by_hand = planted(
      planted(
          task, "// O = softmax(Q",
          "__global__ void row_kernel(const half* Q, const half* K, const half* V, half* O,\n"
          "                           int rows, int keys, float scale) {\n"
          "  const int64_t row = blockIdx.x, first = row / rows * keys * 64;\n"
          "  const int d = threadIdx.x;\n"
          "  float row_max = -INFINITY, row_sum = 0, output = 0;\n"
          "  for (int key = 0; key < keys; ++key) {\n"
          "    float score = 0;\n"
          "    for (int i = 0; i < 64; ++i)\n"
          "      score += __half2float(Q[row * 64 + i]) *\n"
          "               __half2float(K[first + key * 64 + i]);\n"
          "    const float old = row_max;\n"
          "    row_max = fmaxf(row_max, score * scale);\n"
          "    const float factor = expf(old - row_max), weight = expf(score * scale - row_max);\n"
          "    row_sum = row_sum * factor + weight;\n"
          "    output = output * factor + weight * __half2float(V[first + key * 64 + d]);\n"
          "  }\n"
          "  O[row * 64 + d] = __float2half(output / row_sum);\n"
          "}\n"
          "// O = softmax(Q"),
      "  (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)kv_heads, (void)keys, "
      "(void)stream;",
      "  row_kernel<<<unsigned(shape.rows()), 64, 0, stream>>>(\n"
      "      Q, K, V, O, shape.heads / kv_heads * shape.tokens, keys, shape.scale);");
  // 12 problems, rows of a head of K and V (keys): 1 (1), 2 (2), 5 (15), 40 (33; one head a group),
  // 16 (17), 21 (20), 48 (64), 6 (65), 33 (100; scores moved by 150), 66 (127), 36 (81; by -150),
  // 12 (197).
  check_points(
      "exercise4", "task2.cuh",
      {{"solution", solution, {30, 20, 10, 10, 10, 10, 5, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0, 0}},
       {"empty", task, none, "never written"},
       // One query and one key, and nothing else: it knows of no other number of keys.
       {"the chapter's kernel",
        copied_kernel("chapters/04_wmma/kernel.cuh") +
            "namespace exercise {\n"
            "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
            "    const AttentionShape& shape, int, int, cudaStream_t stream) {\n"
            "  wmma_attention::attention(Q, K, V, O, shape, stream);\n"
            "}\n"
            "}  // namespace exercise\n",
        {2, 0, 0, 0, 0, 0, 0, 0}},
       {"no tensor cores", by_hand, {30, 20, 0, 0, 0, 0, 5, 5}},
       // Right, with twice the rows of nothing, and K and V once for each head of Q.
       {"one head at a time",
        one_head("matrix / group"),
        {30, 20, 10, 0, 10, 0, 5, 5},
        "what can stand in the other rows"},
       // Right where there is one head of K and V and one image, or one group of one.
       {"the heads of a group are not neighbours",
        one_head("matrix / group / kv_heads * kv_heads + "
                 "matrix % kv_heads"),
        {17, 20, 0, 0, 0, 0, 0, 0}},
       {"NaN: the maximum begins at the wrong end",
        planted(solution, "float row_max = -INFINITY", "float row_max = INFINITY"), none},
       {"the maximum begins at 0",
        planted(solution, "float row_max = -INFINITY", "float row_max = 0.0f"),
        {27, 20, 0, 0, 0, 0, 0, 0}},
       // Keys past the last one are zeros with a score of 0.
       {"tail: keys past the last one count",
        planted(solution, "exists ? tiles.s[row][column(i)] * scale_log2 : -INFINITY",
                "tiles.s[row][column(i)] * scale_log2 + (exists ? 0 : 0)"),
        {5, 20, 0, 0, 0, 0, 0, 0}},
       // Nothing but luck lets the lanes of a warp run side by side.
       {"barrier: scores are read before all lanes have stored theirs",
        planted(solution, "    __syncwarp();  // the scores are there\n", ""),
        {30, 0, 10, 10, 10, 10, 5, 5}},
       {"multiples of 16: no block for the rest of the rows",
        planted(solution, "  const int row_blocks = (rows + kTile - 1) / kTile;\n  attention",
                "  const int row_blocks = rows / kTile;\n  attention"),
        {5, 0, 0, 0, 0, 0, 0, 0}},
       {"uncoalesced: neighbouring lanes load neighbouring rows",
        planted(solution, "const int row = i / kPieces, d = i % kPieces * 8;",
                "const int row = i % kRows, d = i / kRows * 8;"),
        {30, 20, 10, 10, 10, 10, 0, 5}}});
  const auto included =
      check_points("exercise4", "task2.cuh", {{"include", "#include \"solution2.cuh\"\n", {}}});
  CHECK(contains(included[0], "is not for an exercise"));
}
