// The mistakes that chapter 14's tests plant in its steps, one at a time, and what must find each.
// A "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kTensorMapsBugs = {
    {"phases: every round waits for the first one's", "parity ^= stage == 0;", "", "error"},
    {"the producer does not wait for an empty stage",
     "    tiles.empty[ring.stage].wait(ring.parity ^ 1);  // nobody waits in the first round\n", "",
     "error"},
    {"the producer waits for the wrong phase of an empty stage",
     "tiles.empty[ring.stage].wait(ring.parity ^ 1)", "tiles.empty[ring.stage].wait(ring.parity)",
     "error"},
    {"a stage is given back before all lanes have read it",
     "    __syncwarp();\n    if (lane == 0) tiles.empty", "    if (lane == 0) tiles.empty",
     "check"},
    {"Q is read before it has come", "  tiles.q_full.wait(0);\n", "", "check"},
    {"the next head's K is multiplied", "tile::copy_tile(k, maps.k, key, matrix, full)",
     "tile::copy_tile(k, maps.k, key, matrix + 1, full)", "element"},
    {"V comes from one key further on", "tile::copy_tile(v, maps.v, key, matrix, full)",
     "tile::copy_tile(v, maps.v, key + 1, matrix, full)", "element"},
    {"the stages do not change in the loop", "keys -= kKeyTile, ring.next())", "keys -= kKeyTile)",
     "error"},
    {"a barrier expects the bytes of K alone", "full.arrive_expecting(sizeof(k) + sizeof(v))",
     "full.arrive_expecting(sizeof(k))", "check"},
    {"a barrier expects a byte row too many", "full.arrive_expecting(sizeof(k) + sizeof(v))",
     "full.arrive_expecting(sizeof(k) + sizeof(v) + 16)", "error"},
};

const std::vector<Mutant> kWgmmaBugs = {
    {"no fence between Q's new sign and its products", "  tile::fence_async();\n", "", "check"},
    {"the other warps' rows of Q have no sign yet", "  tile::meet<kGroupThreads>(barrier);\n", "",
     "check"},
    {"scores are read before they are there", "    tile::wait_for_products<0>();\n\n    // Softmax",
     "\n    // Softmax", "check"},
    {"a stage is given back before V is read",
     "    tile::wait_for_products<0>();\n    // The stage is the producer's again, when all warps "
     "have waited for their products.\n    if (lane == 0) tiles.empty[ring.stage].arrive();",
     "    if (lane == 0) tiles.empty[ring.stage].arrive();\n"
     "    tile::wait_for_products<0>();",
     "check"},
    {"no fence between the weights and their product",
     "    tile::warpgroup_fence();\n    ask_for_values", "    ask_for_values", "check"},
    {"V's descriptor has another swizzle than its map", "tile::operand(v, 16 * j, 0)",
     "tile::operand(v, 16 * j, 0) ^ uint64_t(3) << 62", "element"},
    {"K's descriptor stays at the first columns", "tile::operand(k, 0, d)",
     "tile::operand(k, 0, 0)", "element"},
    {"O is not rescaled", "      flash::scale_rows(o_frag, factor);\n    tile::LeftFragment",
     "      ;\n    tile::LeftFragment", "element"},
    {"keys past the end take part", "    if (keys < kKeys) flash::leave_out(s, keys);\n", "",
     "element"},
    {"only one warp of a warpgroup gives a stage back",
     "    if (lane == 0) tiles.empty[ring.stage].arrive();",
     "    if (lane == 0 && warp % 4 == 0) tiles.empty[ring.stage].arrive();", "error"},
};

const std::vector<Mutant> kSpecializedBugs = {
    {"the weights are written while their product reads them",
     "      tile::wait_for_products<0>();\n      // The stage", "      // The stage", "check"},
    {"nobody has the first turn", "group == 1) tile::arrive_at", "false) tile::arrive_at", "error"},
    {"more registers are taken than the block has", "tile::take_registers<Tiles::kManyRegisters>()",
     "tile::take_registers<Tiles::kManyRegisters + 24>()", "error"},
    {"the producer keeps its registers", "    tile::give_registers_back<Tiles::kFewRegisters>();\n",
     "", "error"},
};

const std::vector<Mutant> kPersistentBugs = {
    {"Q of the item after next comes while O is written there",
     "    tiles.q_empty[q_ring.stage].wait(q_ring.parity ^ 1);\n", "", "error"},
    {"every second item reads Q before it has come",
     "tiles.q_full[q_ring.stage].wait(q_ring.parity)", "tiles.q_full[0].wait(q_ring.parity)",
     "check"},
    {"no fence between O and the Q that takes its place",
     "    tile::fence_async();\n    __syncwarp();\n", "    __syncwarp();\n", "check"},
    {"the ring begins anew with each item",
     "    tiles.q_empty[q_ring.stage].wait(q_ring.parity ^ 1);\n",
     "    tiles.q_empty[q_ring.stage].wait(q_ring.parity ^ 1);\n    ring = {};\n", "error"},
    {"the last head is nobody's", "return first < heads;", "return first + 1 < heads;",
     "not finite"},
    {"the last row blocks are nobody's", "if (++row_block == row_blocks)",
     "if (++row_block == max(1, row_blocks - 1))", "not finite"},
    {"of heads that are fewer than are dealt together one comes twice",
     "(here = min(together, heads - first))", "(here = together)", "error"},
    {"the producer goes another way through the row blocks than the consumers",
     "tile::copy_tile(q, maps.q, item.row(Tiles::kQueryRows), matrix,",
     "tile::copy_tile(q, maps.q, (item.row_blocks - 1 - item.row_block) * Tiles::kQueryRows, "
     "matrix,",
     "element"},
    {"warps wait at mbarriers that nobody has made yet", "  tile::meet<Tiles::kThreads>(kReady);\n",
     "", "check"},
    {"nobody says that the mbarriers are there",
     "    __syncwarp();\n    tile::arrive_at<Tiles::kThreads>(kReady);\n    if (lane == 0) produce",
     "    if (lane == 0) produce", "error"},
    {"a warpgroup without rows never gives its stages back",
     "        if (lane == 0) tiles.empty[ring.stage].arrive();\n      }\n", "      }\n", "error"},
    {"a warpgroup without rows gives a stage back before it has come",
     "        tiles.full[ring.stage].wait(ring.parity);\n        if (lane", "        if (lane",
     "error"},
    {"a maximum may grow until weights leave fp16's range", "kMostGrowth = 8;", "kMostGrowth = 24;",
     "not finite"},
    {"the sum of the weights keeps its old scale", "        row_sum[r] *= factor[r];\n", "",
     "element"},
    {"O keeps its old scale", "      flash::scale_rows(o_frag, factor);\n    }\n", "    }\n",
     "element"},
};

const std::vector<Mutant> kMulticastBugs = {
    {"a half goes to the block itself alone",
     "key + first, matrix, full, (1 << kSharing) - 1);\n      tile::multicast_rows<kPart>(v",
     "key + first, matrix, full, 1 << item.rank);\n      tile::multicast_rows<kPart>(v", "error"},
    {"both blocks ask for the same half of V",
     "tile::multicast_rows<kPart>(v, first, maps.v, key + first",
     "tile::multicast_rows<kPart>(v, first, maps.v, key", "element"},
    {"a stage is given back to the own producer alone",
     "if (lane < kSharing) tiles.empty[stage].arrive_in(lane);",
     "if (lane == 0) tiles.empty[stage].arrive();", "error"},
    {"a producer waits for the own block's warps alone", "init(4 * kGroups * kSharing)",
     "init(4 * kGroups)", "error"},
    {"copies come before the other block has initialized its barriers",
     "  tile::meet_cluster();\n  SharedItems", "  __syncthreads();\n  SharedItems", "check"},
    {"a block ends while the other still arrives at its barriers",
     "  // Nobody ends while the other block may still arrive at barriers here.\n"
     "  tile::meet_cluster();\n",
     "", "check"},
    {"a block without rows does not wait for its Q",
     "      tiles.q_full[q_ring.stage].wait(q_ring.parity);\n      if (lane == 0)",
     "      if (lane == 0)", "check"},
    {"both blocks compute the same rows", "(rank ^ matrix() % kSharing)", "matrix() % kSharing",
     "not finite"},
};

}  // namespace planted
