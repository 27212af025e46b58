// The mistakes that chapter 9's tests plant in its kernels, one at a time, and what must find each. A
// "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kRowBugs = {
    {"a lane's product is left out", "distance = kSide / 2;", "distance = kSide / 4;", "element"},
    {"the sum starts anew with each row", "*sum += product;", "*sum = product;", "element"},
    {"every lane adds", "if (i == 0) *sum += product;", "*sum += product;", "check"},
};

const std::vector<Mutant> kDotBugs = {
    {"half of each piece", "for (int i = 0; i < 8; ++i) sum", "for (int i = 0; i < 4; ++i) sum",
     "element"},
    {"the sum is kept in fp16", "  float sum = 0;\n", "  half sum = 0;\n", "element"},
    {"no barrier before the warps' sums are added", "  __syncthreads();\n  if (threadIdx.x == 0)",
     "  if (threadIdx.x == 0)", "check"},
    {"the third warp is forgotten", "of_warp[0] + of_warp[1] + of_warp[2]",
     "of_warp[0] + of_warp[1]", "element"},
    {"the token is rounded towards zero", "*token = __float2half(", "*token = __float2half_rz(",
     "element"},
};

const std::vector<Mutant> kProductBugs = {
    {"rows of another colour", "int64_t(k / 8) * shape.height", "int64_t(k / 9) * shape.height",
     "element"},
    {"both rows of a piece are the first", "(line + quarter / 2)", "line", "element"},
    {"the last piece is not multiplied", "k < kPatchValues / kDepth; ++k",
     "k < kPatchValues / kDepth - 1; ++k", "element"},
    {"the position is the patch's before", "position[int64_t(1 + p) * shape.channels + c]",
     "position[int64_t(p) * shape.channels + c]", "element"},
    {"the class token has the image's row",
     "int64_t((first_patch + row) / patches) * (1 + patches)",
     "int64_t((first_patch + row) / patches) * patches", "not finite"},
    {"no barrier before the tile is multiplied",
     "filters.store(memory.in.filters);\n    __syncthreads();", "filters.store(memory.in.filters);",
     "check"},
    {"no barrier before the tile is overwritten",
     "    __syncthreads();\n  }\n\n  for (int i = 0; i < 2; ++i)\n    for (int j = 0; j < 2; ++j)\n"
     "      wmma::store",
     "  }\n\n  for (int i = 0; i < 2; ++i)\n    for (int j = 0; j < 2; ++j)\n      wmma::store",
     "check"},
    {"no barrier behind the sums", "wmma::mem_row_major);\n  __syncthreads();",
     "wmma::mem_row_major);", "check"},
    {"channels past the end are written", "row >= patches_here || c >= shape.channels",
     "row >= patches_here", "error"},
};

}  // namespace planted
