// The mistakes that chapter 0's tests plant in its steps, one at a time, and what must find each. A
// "check" is the virtual GPU's, an "error" an access outside of an array.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

// Of both greys: their lines are the same but for one.
const std::vector<Mutant> kGreyBugs = {
    {"no guard at the right edge", "x >= width || y >= height", "y >= height", "error"},
    {"no guard at the lower edge", "x >= width || y >= height", "x >= width", "error"},
    {"red again in place of blue", "photo[2 * plane + pixel]", "photo[pixel]", "element"},
    {"rows as long as the photo is high", "pixel = y * width + x", "pixel = y * height + x",
     "element"},
    {"the last column is left out", "x >= width ||", "x >= width - 1 ||", "element"},
};
const std::vector<Mutant> kColumnsBugs = {
    {"lanes count columns and rows", "blockDim.y + threadIdx.y", "blockDim.y + threadIdx.x",
     "element"},
};

const std::vector<Mutant> kThreadsBugs = {
    {"no atomic", "atomicAdd(sum, unsigned(grey[i]));", "*sum += grey[i];", "check"},
    {"a pixel past the end", "if (i >= pixels)", "if (i > pixels)", "error"},
    {"the last pixel is left out", "if (i >= pixels)", "if (i >= pixels - 1)", "element"},
    {"pixels are counted", "unsigned(grey[i])", "1u", "element"},
};

const std::vector<Mutant> kBlocksBugs = {
    {"no barrier before the tree", "grey[i] : 0;\n  __syncthreads();", "grey[i] : 0;", "check"},
    {"no barrier in the tree", "sums[threadIdx.x + half];\n    __syncthreads();",
     "sums[threadIdx.x + half];", "check"},
    {"threads past the end leave, and their places stay as they were",
     "sums[threadIdx.x] = i < pixels ? grey[i] : 0;",
     "if (i >= pixels) return;\n  sums[threadIdx.x] = grey[i];", "check"},
    {"the tree leaves out its last step", "half > 0; half /= 2", "half > 1; half /= 2", "element"},
    {"every thread adds the block's sum", "if (threadIdx.x == 0) atomicAdd", "atomicAdd",
     "element"},
    {"blocks overwrite each other's sum", "atomicAdd(sum, sums[0])", "*sum = sums[0]", "check"},
};

const std::vector<Mutant> kBlurBugs = {
    {"the window goes on in the next row", "min(x + kRadius, width - 1)", "x + kRadius", "error"},
    {"the window starts above the photo", "max(y - kRadius, 0)", "y - kRadius", "error"},
    {"always divided by 81", "(right - left + 1) * (bottom - top + 1)", "81", "element"},
    {"rounded down", "(2 * sum + count)", "(2 * sum)", "element"},
    {"the lowest row is left out", "row <= bottom", "row < bottom", "element"},
};

const std::vector<Mutant> kTileBugs = {
    {"no barrier before the tile is read", "grey[y * width + x] : 0;\n    }\n  __syncthreads();",
     "grey[y * width + x] : 0;\n    }", "check"},
    {"beyond the edges the tile is white", "grey[y * width + x] : 0;", "grey[y * width + x] : 255;",
     "element"},
    {"beyond the edges it is loaded, too", "inside ? grey[y * width + x] : 0",
     "grey[y * width + x]", "error"},
    {"the tile's last row is not loaded", "row < kRows; row += kTileHeight",
     "row < kRows - 1; row += kTileHeight", "check"},
    {"a tile without its left rim", "blockIdx.x * kTileWidth - kRadius", "blockIdx.x * kTileWidth",
     "element"},
    {"always divided by 81", "columns * rows", "81", "element"},
};

}  // namespace planted
