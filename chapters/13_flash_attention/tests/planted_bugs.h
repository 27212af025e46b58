// The mistakes that chapter 13's tests plant in its steps, one at a time, and what must find each.
// A "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kLoadsInFlightBugs = {
    {"the maximum is not scaled", "const float scaled_max = new_max * scale;",
     "const float scaled_max = new_max;", "element"},
    {"the sum of the weights is not rescaled", "row_sum *= factor;", "", "element"},
    {"K and V change places", "{&tiles.k, &tiles.v}", "{&tiles.v, &tiles.k}", "element"},
    {"the next tile is loaded before all are done with this one",
     "    __syncthreads();\n    k_global +=", "    __syncwarp();\n    k_global +=", "check"},
};

const std::vector<Mutant> kRegistersBugs = {
    {"O is not rescaled", "o.value[i] *= factor[i / 2]", "o.value[i] *= 1.0f", "element"},
    {"both rows of a lane have the first one's factor", "factor[i / 2]", "factor[0]", "element"},
    {"O is rescaled only where all maxima grow", "__any_sync", "__all_sync", "element"},
    {"the maximum of two lanes, not of four",
     "      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, 2));\n", "",
     "not finite"},
    {"the weights' halves change places",
     "half_pair(first, 0), half_pair(first, 2), half_pair(second, 0)",
     "half_pair(first, 0), half_pair(second, 0), half_pair(first, 2)", "element"},
    {"V is not transposed", "tile::ldmatrix_transposed(r, v", "tile::ldmatrix(r, v", "element"},
    {"K is read from the wrong key on", "tile::load_right(k_frag, k, key + 8 * j, 2 * d)",
     "tile::load_right(k_frag, k, key + 8 * (j ^ 2), 2 * d)", "element"},
    {"keys past the end take part", "column(lane, i) >= keys", "column(lane, i) > keys", "element"},
    {"O goes out before the warp's other lanes have written it",
     "half_pair(o_frag[d], i);\n  __syncwarp();", "half_pair(o_frag[d], i);", "check"},
    {"a row too many is written", "if (row < rows)", "if (row <= rows)", "guard"},
};

const std::vector<Mutant> kPipelineBugs = {
    {"the next tile goes into the stage that is read", "copy_tile(stages.write)",
     "copy_tile(stages.read)", "check"},
    {"nobody waits for the copies", "if (kWhole) stages.wait();", "if (kWhole) __syncthreads();",
     "check"},
    {"each warp waits for its own copies only", "if (kWhole) stages.wait();",
     "if (kWhole) tile::wait_for_copies<0>();", "check"},
    {"the stages do not change", "    stages.next();\n", "", "element"},
    {"the second block of rows has the first one's queries", "warp_row + 16 * r, scale_log2",
     "warp_row, scale_log2", "element"},
};

const std::vector<Mutant> kRaggedBugs = {
    {"the last 8 keys are left out", "key < keys; key += 8)", "key + 8 <= keys; key += 8)",
     "not finite"},
    {"all groups of 8 keys are the first", "multiply_scores(s_frag, q_frag, k, key)",
     "multiply_scores(s_frag, q_frag, k, 0)", "element"},
    {"a group's keys are counted from the tile's first", "<int, 1>{}, key, keys - key)",
     "<int, 1>{}, key, keys)", "element"},
    {"8 keys: both depths read the same piece", "2 * d + lane / 8)", "2 * d + lane / 16)",
     "element"},
    {"a block of rows too few", "(tokens - first_row + 15) / 16", "(tokens - first_row) / 16",
     "not finite"},
    {"the next tile is copied before all have left its stage",
     "    stages.next();\n    stages.wait();",
     "    stages.next();\n    tile::wait_for_copies<0>();", "check"},
    // An error stays in the device: it comes last.
    {"a row past the end is copied", "const bool there = first + i < valid;",
     "const bool there = first + i <= valid;", "error"},
};

}  // namespace planted
