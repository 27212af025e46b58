// Exercise 7: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 7: points") {
  const std::string folder = "chapters/07_persistent_deformable_attention/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0, 0};
  // 10 problems, images x queries x heads: 1x1x1, 1x5x1, 1x33x1 (a level one pixel wide), 3x7x1,
  // 1x9x3, 2x61x2 (a level of one pixel), 1x300x1, 3x131x1, 1x40x1 (large levels), 2x389x1.
  check_points(
      "exercise7", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 15, 5, 5, 5, 5}},
       {"starter", source(folder + "exercise.cuh"), none},
       // Staged, but not read from there: twice the bytes and requests.
       {"all levels from global memory",
        planted(solution, "if (level.staged >= 0) {", "if (false) {"),
        {30, 20, 0, 0, 5, 5, 5, 5}},
       // 313 blocks of 128 queries stage 313 times.
       {"a fixed number of queries a block",
        planted(solution, "std::min<int64_t>(sm_count, rounds)", "rounds"),
        {30, 20, 0, 0, 0, 5, 5, 5}},
       // The same bytes with half more requests in the large level.
       {"two loads of 8 bytes in place of one of 16",
        planted(solution, "upper = plane_value[int64_t(level.start + pixel) * stride + piece];",
                "const volatile uint2* at = reinterpret_cast<const volatile uint2*>(\n"
                "    plane_value + int64_t(level.start + pixel) * stride + piece);\n"
                "upper = {at[0].x, at[0].y, at[1].x, at[1].y};"),
        {30, 20, 15, 0, 5, 5, 5, 5}},
       // Warps read what others have not copied yet; one problem comes out right all the same.
       {"no barrier behind the staging",
        planted(solution, "__syncthreads();  // they are here", ""),
        {3, 0, 0, 0, 0, 0, 0, 0},
        "is a barrier missing?"},
       // Right in the 5 problems with one image and head, of which no block sees a second one.
       {"no barrier in front of the staging",
        planted(solution, "__syncthreads();  // nobody reads those of the plane before any longer",
                ""),
        {15, 0, 0, 0, 0, 0, 0, 0}},
       {"the sum of one column", planted(solution, "distance = kLanes / 2;", "distance = 2;"),
        none},
       // Wrong with 3 and with 2 heads.
       {"every head is the first one",
        planted(solution, "plane % problem.heads;", "0;"),
        {24, 20, 0, 0, 0, 0, 0, 0}},
       // Wrong where a level is one pixel wide.
       {"a single column counts twice",
        planted(solution, "level.width > 1 ? tent(x - left - 1.0f) : 0.0f",
                "tent(x - left - 1.0f)"),
        {24, 20, 0, 0, 0, 0, 0, 0}},
       // Wrong where blocks do not divide queries: 393 on 4 blocks, 778 on 7.
       {"the last queries are left out",
        planted(solution, "all * (blockIdx.x + 1) / gridDim.x",
                "all / gridDim.x * (blockIdx.x + 1)"),
        {24, 20, 0, 0, 0, 0, 0, 0},
        "has each query a block that takes it, those too that are left over"}});
}
