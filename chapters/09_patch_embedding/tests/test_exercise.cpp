// Exercise 9: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 9: points") {
  const std::string solution = source("chapters/09_patch_embedding/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  check_points(
      "exercise9", "exercise.cuh",
      {{"solution", solution, {30, 20, 5, 10, 10, 10, 15}},
       {"starter", source("chapters/09_patch_embedding/exercise/exercise.cuh"), none},
       // Right, but the lanes of a warp have 32 patches, and 16 bytes of each.
       {"lanes take patches",
        planted(
            planted(
                solution,
                "patch = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;",
                "t = blockIdx.x * kThreads + threadIdx.x, lane = t / 32 % 32,\n"
                "            patch = t / 1024 * 32 + t % 32;"),
            "(all + of_block - 1) / of_block", "(all + 31) / 32 * 32 / of_block"),
        {30, 20, 5, 10, 10, 10, 0}},
       {"the last eight bytes as two words",
        planted(solution, "{from[0], from[1], from[2]};",
                "{from[0], from[1],\n      {reinterpret_cast<const unsigned*>(from)[4],\n"
                "       reinterpret_cast<const volatile unsigned*>(from)[5]}};"),
        {30, 20, 5, 10, 10, 0, 15}},
       {"bytes are signed", planted(solution, "(byte % 4 * 8) & 255)", "(byte % 4 * 8) & 127)"),
        none},
       {"colours side by side, as in the photo",
        planted(solution, "(int64_t(patch) * 3 + color) * 256", "(int64_t(patch) + color) * 256"),
        {3, 0, 0, 0, 0, 0, 0}},
       {"the second photo begins at the first",
        planted(solution, "(int64_t(image) * height + y)", "(int64_t(0) * height + y)"),
        {16, 20, 0, 0, 0, 0, 0}}});
}
