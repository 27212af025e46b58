// The mistakes that the tests plant in the convolutional projection, one at a time, and what must
// find each. A "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kProjectionForwardBugs = {
    {"no barrier behind the copies", "Stages::wait();",
     "tile::wait_for_copies<kForwardStages - 2>();", "check"},
    {"threads do not meet before their moments are read",
     "}\n  __syncthreads();\n  for (int i = threadIdx.x; i < 3 * tiling.lanes;",
     "}\n  for (int i = threadIdx.x; i < 3 * tiling.lanes;", "check"},
    {"the halo begins a column late", "tile.left - 1, pixels", "tile.left, pixels", "element"},
    {"no padding to the left: the last row's end", "column >= window.left && column < window.right",
     "column < window.right", "element"},
    {"k and v at odd rows", "2 * j - 1,  tile.left - 1", "2 * j, tile.left - 1", "element"},
    {"v is with k's weights", "v.load(group.of[kValue] + in_group * 9);",
     "v.load(group.of[kKey] + in_group * 9);", "element"},
    {"the class token is the map's first pixel",
     "x + (int64_t(tile.sample) * shape.queries() + shape.class_tokens) * channels;",
     "x + int64_t(tile.sample) * shape.queries() * channels;", "element"},
    {"moments as E[x²] - E[x]²", "q_moments.shift = whole[0][0];", "", "element"},
    {"the unbiased variance normalizes", "const float variance = m2 / count;",
     "const float variance = m2 / (count - 1);", "element"},
    {"the population's variance runs on", "(m2 / (count - 1) - running[channel])",
     "(m2 / count - running[channel])", "element"},
    {"tiles weigh as the first one", "weighted = count_of(tile) * distance;",
     "weighted = count_of(0) * distance;", "element"},
    {"tiles' means have no spread", "m2 += part.y + weighted * distance;", "m2 += part.y;",
     "element"},
};

const std::vector<Mutant> kProjectionBackwardBugs = {
    {"no barrier behind the copies", "Stages::wait();",
     "tile::wait_for_copies<kBackwardStages<T> - 2>();", "check"},
    {"the weights' sums overwrite those that are still read",
     "  for (int which = 0; which < 3; ++which) {\n    __syncthreads();\n",
     "  for (int which = 0; which < 3; ++which) {\n", "check"},
    {"rows of a slab do not meet", "  __syncthreads();\n  for (int i = threadIdx.x; i < line;",
     "  for (int i = threadIdx.x; i < line;", "check"},
    {"padding has a gradient", "return there ? slope.factor * dy",
     "return true ? slope.factor * dy", "element"},
    {"the way back convolves with unturned weights", "dq[row + 2 - t / 3][c + 2 - t % 3]",
     "dq[row + t / 3][c + t % 3]", "element"},
    {"k and v are read at odd rows", "const int down = row + 1 - t / 3",
     "const int down = row - 1 + t / 3", "element"},
    {"no mean of dy", "-factor * (sums.x / positions_all)", "0.0f", "element"},
    {"no mean of dy n", "-factor * inverse * inverse * (sums.y / positions_all)", "0.0f",
     "element"},
    {"dscale of maps that are not normalized", "dscale.of[which][channel] = sums.y * inverse;",
     "dscale.of[which][channel] = sums.y;", "element"},
    {"a class token's gradient is q's alone",
     "widened(dmaps.of[kQuery][q_token]) + widened(dmaps.of[kKey][kv_token])",
     "widened(dmaps.of[kQuery][q_token])", "element"},
    {"the class token is in BatchNorm's sums",
     "(int64_t(sample) * tokens + shape.class_tokens) * shape.channels + channel;",
     "int64_t(sample) * tokens * shape.channels + channel;", "element"},
    {"the last tile has no weights' gradient", "tile < tiles; tile += kFinishWarps)\n      sum +=",
     "tile < tiles - 1; tile += kFinishWarps)\n      sum +=", "element"},
};

}  // namespace planted
