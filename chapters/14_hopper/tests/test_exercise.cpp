// Exercise 14: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 14: points") {
  const std::string folder = "chapters/14_hopper/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::string starter = source(folder + "exercise.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0};
  // Where a line of the solution stands.
  const std::string room = "wait_for(&ring.empty[stage], (round + 1) % 2);";
  const std::string arrived = "tile % (2 * kStages) >= kStages";
  const std::string released =
      "    __syncwarp();\n"
      "    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.empty[stage]);\n";
  const std::string asked_v =
      "ring.stages[stage].v, &values,\n                              corner, &ring.full[stage]);\n";
  check_points(
      "exercise14", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 10, 20, 5}},
       {"starter", starter, none, "everybody waits for what nobody does any more"},
       // Right in the first round of the ring.
       {"the mistake is still there",
        planted(solution, arrived, "tile % (2 * kStages) > kStages"),
        {15, 0, 0, 0, 0, 0},
        "right are the problems with up to 128 patches, wrong those with 129 and more"},
       {"the parity is never flipped", planted(solution, arrived, "0"), {15, 0, 0, 0, 0, 0}},
       {"the producer waits for its own copies instead of room",
        planted(solution, room, "if (round > 0) wait_for(&ring.full[stage], (round + 1) % 2);"),
        {15, 0, 0, 0, 0, 0},
        "a copy begins only behind the barrier after which nobody reads"},
       {"the producer waits for room in the first round, too",
        planted(solution, room, "wait_for(&ring.empty[stage], round % 2);"), none},
       {"too few bytes are announced",
        planted(solution, "sizeof(Stage));", "sizeof(Stage) / 2);"),
        {15, 0, 0, 0, 0, 0},
        "when tile 4 is taken to be there"},
       {"too many bytes are announced", planted(solution, "sizeof(Stage));", "2 * sizeof(Stage));"),
        none},
       {"nobody waits for room",
        planted(solution, room, ""),
        {15, 0, 0, 0, 0, 0},
        "somebody is a round ahead"},
       {"no ring, but a stage for each of 24 tiles, and the mistake is still there",
        planted(planted(solution, arrived, "tile % (2 * kStages) > kStages"), "kStages = 4",
                "kStages = 24"),
        {26, 0, 0, 0, 0, 0}},
       {"one stage", planted(solution, "kStages = 4", "kStages = 1"), {30, 20, 15, 10, 0, 5}},
       {"one tile after the other",
        planted(solution, asked_v, asked_v + "    wait_for(&ring.full[stage], round % 2);\n"),
        {30, 20, 15, 10, 0, 5}},
       {"released before it is read",
        planted(planted(solution, released, ""), "    const Stage& read",
                released + "    const Stage& read"),
        {30, 0, 15, 10, 20, 5}},
       {"four copies a tile",
        planted(planted(solution, "box[] = {kHeadDim, kTileKeys, 1}",
                        "box[] = {kHeadDim, kTileKeys / 2, 1}"),
                asked_v,
                asked_v + "    const int32_t lower[] = {0, corner[1] + kTileKeys / 2, matrix};\n"
                          "    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global,\n"
                          "                              ring.stages[stage].k[kTileKeys / 2],\n"
                          "                              &keys, lower, &ring.full[stage]);\n"
                          "    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global,\n"
                          "                              ring.stages[stage].v[kTileKeys / 2],\n"
                          "                              &values, lower, &ring.full[stage]);\n"),
        {30, 20, 0, 10, 20, 5}}});
}
