// Exercise 2, its second task and its bug: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 2: points") {
  const std::string solution = source("chapters/02_tiling/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  // 12 problems: tokens 1, 2, 15, 16, 17, 33, 64, 65, 100 (scores moved by 150), 127, 128, 197.
  check_points(
      "exercise2", "exercise.cuh",
      {{"solution", solution, {30, 20, 20, 10, 5, 10, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0}},
       {"starter", source("chapters/02_tiling/exercise/exercise.cuh"), none},
       // Without a mask only the one key of one token is right.
       {"the chapter's kernel",
        copied_kernel("chapters/02_tiling/kernel.cuh") +
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

TEST_CASE("exercise 2 from an empty function: points") {
  const std::string solution = source("chapters/02_tiling/exercise/solution2.cuh");
  const std::string task = source("chapters/02_tiling/exercise/task2.cuh");
  CHECK_FALSE(contains(task, "__global__"));
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  const auto without_tiles = [&] {  // a block a row, its threads load K and V from memory
    std::string text = task;
    text =
        planted(text, "// O = softmax(mask",
                "__global__ void row_kernel(const half* Q, const half* K, const half* V, half* O,\n"
                "                           int tokens, int window, float scale) {\n"
                "  const int64_t row = blockIdx.x, matrix = row / tokens * tokens;\n"
                "  const int query = row % tokens, d = threadIdx.x;\n"
                "  float row_max = -INFINITY, row_sum = 0, output = 0;\n"
                "  for (int key = max(0, query - window); key <= min(tokens - 1, query + window);\n"
                "       ++key) {\n"
                "    float score = 0;\n"
                "    for (int i = 0; i < 64; ++i)\n"
                "      score += __half2float(Q[row * 64 + i]) *\n"
                "               __half2float(K[(matrix + key) * 64 + i]);\n"
                "    const float old = row_max;\n"
                "    row_max = fmaxf(row_max, score * scale);\n"
                "    const float factor = expf(old - row_max);\n"
                "    const float weight = expf(score * scale - row_max);\n"
                "    row_sum = row_sum * factor + weight;\n"
                "    output = output * factor +\n"
                "             weight * __half2float(V[(matrix + key) * 64 + d]);\n"
                "  }\n"
                "  O[row * 64 + d] = __float2half(output / row_sum);\n"
                "}\n"
                "// O = softmax(mask");
    return planted(text,
                   "  (void)Q, (void)K, (void)V, (void)O, (void)shape, (void)window, (void)stream;",
                   "  row_kernel<<<unsigned(shape.rows()), 64, 0, stream>>>(\n"
                   "      Q, K, V, O, shape.tokens, window, shape.scale);");
  };
  // 12 problems, tokens (window): 1 (0), 2 (1), 15 (3), 17 (0), 33 (1000), 63 (5), 65 (64), 100
  // (20; scores moved by 150), 81 (33; by -150), 127 (9), 197 (70), 300 (3).
  check_points(
      "exercise2", "task2.cuh",
      {{"solution", solution, {30, 20, 20, 10, 5, 10, 5}},
       // Right in the 10 problems whose scale is 1 / sqrt(64).
       {"the scale is written down",
        planted(solution, "shape.scale", "0.125f"),
        {25, 20, 0, 0, 0, 0, 0}},
       {"empty", task, none, "never written"},
       // Right where the window takes in all: 1, 2, 33 and 65 tokens.
       {"the chapter's kernel",
        copied_kernel("chapters/02_tiling/kernel.cuh") +
            "namespace exercise {\n"
            "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
            "    const AttentionShape& shape, int, cudaStream_t stream) {\n"
            "  tiling::attention(Q, K, V, O, shape, stream);\n"
            "}\n"
            "}  // namespace exercise\n",
        {10, 20, 0, 0, 0, 0, 0},
        "as if there were no window"},
       // Each row loads all that it sees: K 16 times, and one element at a time.
       {"no tiles", without_tiles(), {30, 20, 0, 10, 0, 0, 0}},
       // The maximum of a row that sees nothing of the first tile stays -INFINITY.
       {"NaN: all tiles, from the first key on",
        planted(planted(solution, "max(0, first_row - window)", "0"),
                "min(tokens, first_row + kQueryRows + window)", "tokens"),
        {20, 20, 0, 0, 0, 0, 0}},
       // The same with a first maximum that is finite: right, but for nothing all keys are loaded.
       {"all tiles, which nobody sees",
        planted(planted(planted(solution, "max(0, first_row - window)", "0"),
                        "min(tokens, first_row + kQueryRows + window)", "tokens"),
                "float row_max = -INFINITY", "float row_max = -1e30f"),
        {30, 20, 0, 10, 5, 10, 5},
        "begin the loop over the tiles with the first key"},
       // With window 0 nobody is left: 0/0. Right for the window of 1000 alone.
       {"mask: one key too few on each side",
        planted(solution, "abs(key - query) <= window", "abs(key - query) < window"),
        {2, 20, 0, 0, 0, 0, 0}},
       {"mask: one side only",
        planted(solution, "abs(key - query) <= window", "query - key <= window"),
        {10, 20, 0, 0, 0, 0, 0},
        "all keys behind the window"},
       // Right with the windows of 0 and of 1000.
       {"mask: the first key of the window is left out",
        planted(solution, "abs(key - query) <= window",
                "query - key < max(window, 1) && key - query <= window"),
        {7, 20, 0, 0, 0, 0, 0},
        "the first key of the window is left out"},
       // Keys past the last token are zeros with a score of 0.
       {"tail: keys past the last token count",
        planted(solution, "key < tokens && abs", "abs"),
        {7, 20, 0, 0, 0, 0, 0}},
       // A warp goes on to the next tile while others are at this one.
       {"barrier: none before the next tiles overwrite these",
        planted(solution, "    __syncthreads();  // before the next tiles overwrite these\n", ""),
        {22, 0, 0, 0, 0, 0, 0}},
       {"Q again for each tile",
        planted(solution, "    // Load: what no row sees",
                "    for (int i = thread; i < kQueryRows * kHeadDim; i += kThreads)\n"
                "      if (first_row + i / kHeadDim < tokens)\n"
                "        q_tile[i / kHeadDim][i % kHeadDim] =\n"
                "            Q[matrix + int64_t(first_row) * kHeadDim + i];\n"
                "    // Load: what no row sees"),
        {30, 20, 20, 10, 0, 10, 5}},
       {"uncoalesced: a thread loads a row",
        planted(solution, "const int key = i / kHeadDim, d = i % kHeadDim;",
                "const int key = i % kKeyTile, d = i / kKeyTile;"),
        {30, 20, 20, 10, 5, 0, 5}}});
  const auto included =
      check_points("exercise2", "task2.cuh", {{"include", "#include \"solution2.cuh\"\n", {}}});
  CHECK(contains(included[0], "is not for an exercise"));
}

TEST_CASE("exercise 2: the bug, mended and not" * doctest::test_suite("toolkit")) {
  const std::string bug = source("chapters/02_tiling/exercise/bug.cuh");
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
  // The file and what the report says of its own accord leave finding it to the student.
  const std::string head = bug.substr(0, bug.find("#pragma once"));
  for (const char* word : {"barrier", "race", "__sync", "two lines"})
    CHECK(head.find(word) == std::string::npos);
}
