// The mistakes that the tests plant in the steps, one at a time, and what must find each. A "check" is
// the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kGradientAtomicsBugs = {
    {"a pixel's share without the weight", "weight * place.share(corner) * grad[e]",
     "place.share(corner) * grad[e]", "element"},
    {"a plain addition", "atomicAdd(grad_value + at + e * kLanes, ",
     "grad_value[at + e * kLanes] += (", "check"},
    {"the slope towards the left on borders", "left = floorf(x)", "left = ceilf(x) - 1.0f",
     "element"},
    {"a slope for a pixel's move", "weight * float(level.width) * sums.x", "weight * sums.x",
     "element"},
    {"width for height", "weight * float(level.height) * sums.y",
     "weight * float(level.width) * sums.y", "element"},
    {"a NaN lies in pixel 0", "int(fminf(fmaxf(left, -2.0f), float(level.width)))", "int(left)",
     "element"},
    {"rows past the end are added", "if (!exists || !place.inside(corner, level)) continue;",
     "if (!place.inside(corner, level)) continue;", "element"},
};

const std::vector<Mutant> kGradientPackedBugs = {
    {"lanes keep what they should give", "__shfl_xor_sync(kAll, upper ? v[0] : v[2], 2)",
     "__shfl_xor_sync(kAll, upper ? v[2] : v[0], 2)", "element"},
    {"the next lane's sample", "__shfl_sync(0xffffffffu, mine, j, kLanes)",
     "__shfl_sync(0xffffffffu, mine, j ^ 1, kLanes)", "element"},
    {"rows past the end are added", "int(exists && place.inside(corner, level))",
     "int(place.inside(corner, level))", "element"},
    {"shares are the other corner's", "scatter(l, at, there.share(corner) * weighted)",
     "scatter(l, at, there.share(3 - corner) * weighted)", "element"},
    {"the weights' gradient has the weight in it", "arrays.grad_weights[own] = of_weight;",
     "arrays.grad_weights[own] = weight * of_weight;", "element"},
};

const std::vector<Mutant> kGradientPrivatizedBugs = {
    {"no barrier behind the zeros", "private_sums[i] = 0.0f;\n  __syncthreads();",
     "private_sums[i] = 0.0f;", "check"},
    {"no barrier before the sums are handed on", "  __syncthreads();\n\n  // What the block has",
     "\n  // What the block has", "check"},
    {"the last pixel of a level is not handed on", "i < pixels * L::kOfRow;",
     "i < (pixels - 1) * L::kOfRow;", "element"},
    {"sums begin with what was there", "private_sums[i] = 0.0f;", "", "check"},
};

const std::vector<Mutant> kGradientSortedBugs = {
    {"corners are mirrored", "sums[corner] + place.share(corner)",
     "sums[corner] + place.share(3 - corner)", "element"},
    {"empty cells are added", "if (sorting.first[cell] == sorting.first[cell + 1]) continue;", "",
     "not finite"},
    {"a cell's last sample is left out", "i < last; i += L::kRowsPerWarp",
     "i < last - 1; i += L::kRowsPerWarp", "element"},
    {"samples outside are in some cell", "inside ? cell : unsigned(cells.all)", "cell", "element"},
    {"a cell begins behind its samples", "sorting.sorted_cell[middle] < cell",
     "sorting.sorted_cell[middle] <= cell", "element"},
    {"only one group's sum", "distance = L::kOfRow; distance < 32", "distance = 32; distance < 32",
     "element"},
    {"levels are one pixel narrower for cells", "(place.row + 1) * (level.width + 1)",
     "(place.row + 1) * level.width", "element"},
};

}  // namespace planted
