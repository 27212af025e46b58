// Exercise 0: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 0: points") {
  const std::string solution = source("chapters/00_a_first_kernel/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0};
  const std::string own = "atomicAdd(&own[grey[i]], 1u)",
                    all = "atomicAdd(&counts[threadIdx.x], float(own[threadIdx.x]))";
  check_points(
      "exercise0", "exercise.cuh",
      {{"solution", solution, {30, 20, 10, 10, 20, 10}},
       {"starter", source("chapters/00_a_first_kernel/exercise/exercise.cuh"), none,
        "never written"},
       // Right, but every pixel is an addition in memory that all blocks share.
       {"no shared memory",
        planted(planted(solution, own, "atomicAdd(&counts[grey[i]], 1.0f)"), all + ";", ""),
        {30, 20, 10, 10, 0, 10},
        "shared memory"},
       // As few pixels a block as threads: 256 blocks of 256 counts.
       {"a pixel a thread", planted(solution, "8 * kThreads", "kThreads"), {30, 20, 10, 10, 0, 10}},
       {"one block",
        planted(solution, "8 * kThreads", "(1 << 24)"),
        {30, 20, 10, 10, 20, 0},
        "one SM"},
       // Each thread takes 8 bytes beside each other: the warp's lanes are 8 apart.
       {"a thread's own 8 bytes",
        planted(solution, "i = first + threadIdx.x; i < end; i += kThreads",
                "i = first + 8 * threadIdx.x; i < min(first + 8 * int(threadIdx.x) + 8, end); ++i"),
        {30, 20, 10, 0, 20, 10},
        "Neighbours share a sector"},
       {"every pixel twice, and half of it counted",
        planted(planted(solution, own,
                        "atomicAdd(&own[grey[i]], 1u), atomicAdd(&own[*(volatile "
                        "const unsigned char*)(grey + i)], 1u)"),
                "float(own[threadIdx.x])", "float(own[threadIdx.x] / 2)"),
        {30, 20, 0, 0, 20, 10}},
       {"counts are not set to 0",
        planted(solution, "cudaMemsetAsync(counts, 0, kBins * sizeof(float), stream);", ""), none,
        "NaN"},
       // Lanes with the same brightness overwrite each other: right is a single pixel, or 7 that differ.
       {"no atomic in shared memory", planted(solution, own, "++own[grey[i]]"), {5, 0, 0, 0, 0, 0}},
       // Warps that come later set to 0 what others have counted: right is a photo of one pixel.
       {"nobody waits for the zeros",
        planted(solution, "own[threadIdx.x] = 0;\n  __syncthreads();", "own[threadIdx.x] = 0;"),
        {2, 0, 0, 0, 0, 0}},
       // The first warps add counts that are not complete; right are photos that one warp counts.
       {"nobody waits for the counts",
        planted(solution, "1u);\n  __syncthreads();", "1u);"),
        {5, 0, 0, 0, 0, 0}},
       // Right where pixels fill whole blocks of 256: 16 x 16 and 64 x 96.
       {"blocks are rounded down",
        planted(planted(solution, "8 * kThreads", "kThreads"), "(pixels + kPixels - 1) / kPixels",
                "pixels / kPixels"),
        {5, 0, 0, 0, 0, 0}},
       // Right where pixels fill whole blocks: 64 x 96 are three times 2048.
       {"threads past the end count, too",
        planted(solution, "min(first + kPixels, pixels)", "first + kPixels"),
        {2, 0, 0, 0, 0, 0}}});
}
