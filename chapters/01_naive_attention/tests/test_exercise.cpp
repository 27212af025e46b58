// Exercise 1: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 1: points") {
  const std::string solution = source("chapters/01_naive_attention/exercise/solution.cuh");
  // Of the 12 problems (queries, keys) 2 have as many queries as keys, 1 has one key and 3 have a
  // multiple of 16 keys; in 2 the scores are moved by 150 and -150. 30 points are for all 12.
  check_points(
      "exercise1", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 10, 10, 5, 5, 5}},
       {"starter",
        source("chapters/01_naive_attention/exercise/exercise.cuh"),
        {0, 0, 0, 0, 0, 0, 0, 0}},
       // Right for (1, 1) and (16, 16); elsewhere rows of the wrong length, beyond the arrays'
       // ends.
       {"the chapter's kernels",
        copied_kernel("chapters/01_naive_attention/kernel.cuh") +
            "namespace exercise {\n"
            "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
            "    const AttentionShape& shape, int, cudaStream_t stream) {\n"
            "  naive_attention::attention(Q, K, V, O, shape, stream);\n"
            "}\n"
            "}  // namespace exercise\n",
        {5, 0, 0, 0, 0, 0, 0, 0}},
       // exp(150) is infinite, and the sum of exp(-150) zero: NaN in 2 of 12 problems.
       {"NaN: the maximum is not subtracted",
        planted(solution, "expf(row_scores[key] - row_max)", "expf(row_scores[key])"),
        {25, 20, 0, 0, 0, 0, 0, 0},
        "all scores are far below 0"},
       {"the search for the maximum begins at 0",
        planted(solution, "row_max = -INFINITY", "row_max = 0.0f"),
        {27, 20, 0, 0, 0, 0, 0, 0}},
       // 32 bytes are moved for each score: 8 times as many as needed.
       {"serial: lane 0 does all keys",
        planted(solution, "for (int key = lane; key < keys; key += 32)",
                "for (int key = 0; lane == 0 && key < keys; ++key)"),
        {30, 20, 0, 0, 10, 5, 5, 5}},
       // 8 times in one of three passes.
       {"all lanes look for the maximum of the whole row",
        planted(solution, "for (int key = lane; key < keys; key += 32) row_max",
                "for (int key = 0; key < keys; ++key) row_max"),
        {30, 20, 0, 10, 10, 5, 5, 5}},
       // Weights are a row apart, elements of O too; the softmax is as it should be.
       {"lanes along queries in the values kernel",
        planted(solution,
                "const int d = int(index % head_dim);\n"
                "  const int64_t query_row = index / head_dim;  // (batch, head, query)\n"
                "  const int64_t matrix = query_row / queries;\n",
                "const int d = int(index / queries % head_dim);\n"
                "  const int64_t matrix = index / queries / head_dim;\n"
                "  const int64_t query_row = matrix * queries + index % queries;\n"),
        {30, 20, 15, 10, 0, 5, 5, 0}},
       {"tail: the last key is dropped",
        planted(solution, "for (int key = 0; key < keys; ++key)",
                "for (int key = 0; key < keys - 1 || key == 0; ++key)"),
        {2, 20, 0, 0, 0, 0, 0, 0}},
       {"barrier: sums through shared memory without one",
        planted(solution,
                "for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, "
                "step);\n  return x;",
                "__shared__ float parts[kThreads];\n"
                "  parts[threadIdx.x] = x;\n"
                "  x = 0.0f;\n"
                "  for (int i = 0; i < 32; ++i) x += parts[threadIdx.x / 32 * 32 + i];\n"
                "  return x;"),
        {30, 0, 15, 10, 10, 5, 5, 5}},
       // Each lane takes 3 neighbouring scores: 12 bytes apart, 12 sectors where 4 are needed.
       {"uncoalesced: each lane has a piece of the row",
        planted(solution, "for (int key = lane; key < keys; key += 32)",
                "for (int key = lane * ((keys + 31) / 32);\n"
                "       key < min(keys, (lane + 1) * ((keys + 31) / 32)); ++key)"),
        {30, 20, 0, 0, 10, 5, 5, 5}},
       {"multiples of 16: the rest of the keys is left out",
        planted(solution, "for (int key = 0; key < keys; ++key)",
                "for (int key = 0; key < keys / 16 * 16; ++key)"),
        {7, 20, 0, 0, 0, 0, 0, 0}}});
}
