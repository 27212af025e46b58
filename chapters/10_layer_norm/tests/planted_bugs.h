// The mistakes that chapter 10's tests plant in its steps, one at a time, and what must find each. A
// "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kBaseBugs = {
    {"no barrier before the tree", "sums[threadIdx.x] = own;\n  __syncthreads();",
     "sums[threadIdx.x] = own;", "check"},
    {"the next sum overwrites one that is read", "const float sum = sums[0];\n  __syncthreads();",
     "const float sum = sums[0];", "check"},
    {"the tree leaves out its last step", "half_of > 0; half_of /= 2", "half_of > 1; half_of /= 2",
     "element"},
    {"variance of the sample", "sum_by_tree(squares, sums) / float(columns)",
     "sum_by_tree(squares, sums) / float(columns - 1)", "element"},
    {"epsilon is forgotten", "variance + shape.epsilon", "variance", "not finite"},
};

const std::vector<Mutant> kWarpBugs = {
    {"lanes beyond the row count in the variance",
     "lane + k * 32 < columns ? kept[k] - mean : 0.0f", "kept[k] - mean", "element"},
    {"the sum misses half of the lanes", "distance = 16; distance > 0",
     "distance = 8; distance > 0", "element"},
    {"rows past the end are written", "if (row >= shape.rows) return;", "", "error"},
};

const std::vector<Mutant> kVectorBugs = {
    {"pieces beyond the row count in the variance",
     "lane + p * 32 < pieces ? widened(kept[p].element[e]) - mean : 0.0f",
     "widened(kept[p].element[e]) - mean", "element"},
    {"elements of a piece beside each other are swapped", "widened(scales.element[e])",
     "widened(scales.element[e ^ 1])", "element"},
    {"the mean is kept in fp16",
     "const float mean = sum_of_warp(sum) / float(columns);\n  float "
     "squares = 0.0f;\n#pragma unroll\n  for (int p",
     "const float mean = widened(rounded<T>(sum_of_warp(sum) / float(columns)));\n  float "
     "squares = 0.0f;\n#pragma unroll\n  for (int p",
     "element"},
    {"the last piece is left out", "if (i >= pieces) continue;", "if (i >= pieces - 1) continue;",
     "not finite"},
};

const std::vector<Mutant> kRowsBugs = {
    {"the second row has the first one's mean", "value - mean[r] : 0.0f", "value - mean[0] : 0.0f",
     "element"},
    {"a row that is not there is stored", "if (r < here) to[r * pieces + i]", "to[r * pieces + i]",
     "guard"},
    {"a row that is not there is loaded", "r < here && i < pieces ? from", "i < pieces ? from",
     "error"},
};

const std::vector<Mutant> kResidualBugs = {
    {"what is normalized is not what is stored", "total += widened(kept[p].element[e]);",
     "total += widened(added[p].element[e]);", "element"},
    {"the sum is not stored",
     "if (lane + p * 32 < pieces) reinterpret_cast<Wide*>(sum)[first + lane + p * 32] = kept[p];",
     "", "not finite"},
    {"the residual is subtracted", "widened(kept[p].element[e]) + widened(added[p].element[e])",
     "widened(kept[p].element[e]) - widened(added[p].element[e])", "element"},
};

const std::vector<Mutant> kBackwardBugs = {
    {"n times its mean is forgotten", "g - mean_g - n * mean_gn", "g - mean_g", "element"},
    {"the mean of g is forgotten", "g - mean_g - n * mean_gn", "g - n * mean_gn", "element"},
    {"dx without the factor", "rounded<T>(factor * (g", "rounded<T>((g", "element"},
    {"moments in the wrong order", "moments[row] = {mean, factor};",
     "moments[row] = {factor, mean};", "element"},
    {"a slab's last row is left out", "min(first + kSlabRows, shape.rows)",
     "min(first + kSlabRows - 1, shape.rows)", "element"},
    {"no barrier before warps meet",
     "of_warps[1][warp][e][lane] = bias_sum[e];\n  }\n"
     "  __syncthreads();",
     "of_warps[1][warp][e][lane] = bias_sum[e];\n  }\n", "check"},
    {"sums are stored where they should be added", "atomicAdd(place, total);", "*place = total;",
     "element"},
    {"the second stage takes every slab twice", "slab += kWarps)", "slab += kWarps / 2)",
     "element"},
};

}  // namespace planted
