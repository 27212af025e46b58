// Exercise 1: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "grader_testing.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 1: points") {
  const std::string solution = source("chapters/01_naive_attention/solution.cuh");
  // Of the 12 problems (queries, keys) 2 have as many queries as keys, 1 has one key and 3 have a
  // multiple of 16 keys; in 1 the scores are moved by 150. 30 points are for all 12.
  check_points(
      "exercise1", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 10, 10, 5, 5, 5}},
       {"starter", source("chapters/01_naive_attention/exercise.cuh"), {0, 0, 0, 0, 0, 0, 0, 0}},
       // Right for (1, 1) and (16, 16); elsewhere rows of the wrong length, beyond the arrays' ends.
       {"the chapter's kernels",
        "#include \"kernel.cuh\"\n"
        "namespace exercise {\n"
        "inline void attention(const half* Q, const half* K, const half* V, half* O,\n"
        "    const AttentionShape& shape, int, cudaStream_t stream) {\n"
        "  naive_attention::attention(Q, K, V, O, shape, stream);\n"
        "}\n"
        "}  // namespace exercise\n",
        {5, 0, 0, 0, 0, 0, 0, 0}},
       // exp(150) is infinite: NaN in 1 of 12 problems.
       {"NaN: the maximum is not subtracted",
        planted(solution, "expf(row_scores[key] - row_max)", "expf(row_scores[key])"),
        {27, 20, 0, 0, 0, 0, 0, 0}},
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
