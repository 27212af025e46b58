// The mistakes that chapter 7's tests plant in its steps, one at a time, and what must find each. A
// "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kSimpleBugs = {
    {"the half pixel is forgotten",
     "__low2float(location), float(level.width), -0.5f);\n"
     "      const float y",
     "__low2float(location), float(level.width), 0.0f);\n"
     "      const float y",
     "element"},
    {"weights beyond the border", "right > left ? tent(x - float(right)) : 0.0f",
     "tent(x - float(right))", "element"},
    {"the sum is kept in fp16", "float sum = 0.0f;", "half sum = 0.0f;", "element"},
    {"the output is rounded towards zero", "__float2half(sum)", "__float2half_rz(sum)", "element"},
    {"rows past the end are written", "if (index >= rows * channels) return;", "", "error"},
};

const std::vector<Mutant> kVectorizedBugs = {
    {"the lower pixel is the upper one", "level.height > 1 ? level.width : 0, load", "0, load",
     "element"},
    {"lanes take the other column's weights", "G::column() * G::kPieces + owner", "owner",
     "element"},
    {"the columns are not added", "__shfl_xor_sync(0xffffffffu, given, G::kPieces);", "0.0f;",
     "element"},
    {"sums are kept in fp16", "sums[2 * c] += wide.x;",
     "sums[2 * c] = __half2float(__float2half(sums[2 * c] + wide.x));", "element"},
    {"the output is rounded towards zero", "__floats2half2_rn(mine[0], mine[1])",
     "__halves2half2(__float2half_rz(mine[0]), __float2half_rz(mine[1]))", "element"},
    {"only one four is taken", "first + owner < fours; ++owner", "first + owner < 1; ++owner",
     "element"},
    {"a lane prepares its neighbour's samples", "const int own = first + G::piece();",
     "const int own = first + (G::piece() ^ 1);", "element"},
    {"rows past the end are written", "const int row = min(wanted_row, rows - 1);",
     "const int row = wanted_row;", "error"},
};

const std::vector<Mutant> kPersistentBugs = {
    {"the nearest pixel instead of the one before", "floorf(x)", "rintf(x)", "element"},
    {"a single column counts twice", "exists ? tent(x - left - float(column)) : 0.0f",
     "tent(x - left - float(column))", "element"},
    {"a single line counts twice", "level.height > 1 ? tent(y - top - 1.0f) : 0.0f",
     "tent(y - top - 1.0f)", "element"},
    {"the second image's levels are not staged", "stage_levels<kChannels>(value, plane, problem",
     "if (plane % 2 == 0) stage_levels<kChannels>(value, plane, problem", "element"},
    {"staged levels overlap", "staged[staging.first_pixel[l] * kPieces + i]", "staged[i]",
     "element"},
    {"a chunk is left out", "chunk = atomicInc(fetched, last_question);",
     "chunk = 2 * atomicInc(fetched, last_question);", "not finite"},
    {"no barrier before the next image is staged", "    __syncthreads();\n    stage_levels",
     "    stage_levels", "check"},
    {"no barrier behind the staging", "kPersistentThreads, staged);\n    __syncthreads();",
     "kPersistentThreads, staged);", "check"},
    {"the last query of a share is left out", "(blockIdx.x + 1) / gridDim.x);",
     "(blockIdx.x + 1) / gridDim.x) - 1;", "not finite"},
};

const std::vector<Mutant> kBulkBugs = {
    {"levels are read before they are here",
     "while (!ptx::mbarrier_try_wait_parity(arrived, parity))", "while (false)", "check"},
    {"each plane is waited for as if it were the first", "parity ^= 1;", "", "check"},
    {"the wait is for the phase before", "uint32_t parity = 0;", "uint32_t parity = 1;", "check"},
    {"several heads' channels are copied as one piece", "problem.heads == 1 ? pixels : 1", "pixels",
     "element"},
};
// With these some wait for ever, which is found out without checks, and sooner.
const std::vector<Mutant> kBulkHangs = {
    {"the next plane is asked for while some still wait for this one",
     "__syncthreads();\n    if (threadIdx.x < 32 && staging",
     "if (plane * problem.queries <= begin) __syncthreads();\n"
     "    if (threadIdx.x < 32 && staging",
     "error"},
};

const std::vector<Mutant> kClusterBugs = {
    {"pixels are looked for in the wrong block", "const int owner = run & ((1 << shift) - 1);",
     "const int owner = (run + 1) & ((1 << shift) - 1);", "element"},
    {"each block takes the whole cluster's queries",
     "const int shift = __ffs(blocks) - 1, warp = "
     "rank * kPersistentThreads / 32 + threadIdx.x / 32;",
     "const int shift = __ffs(blocks) - 1, warp = threadIdx.x / 32;", "not finite"},
    {"no barrier behind the staging", "cluster.sync();  // all shares are here", "", "check"},
    {"a barrier of the block where the cluster must meet",
     "cluster.sync();  // all shares are here", "__syncthreads();", "check"},
    {"no barrier before the next image is staged", "cluster.sync();  // nobody reads", "//",
     "check"},
    {"nobody waits for others before the block ends",
     "cluster.barrier_arrive();\n  take_rest<kChannels>(arrays, fetched, problem, work);\n"
     "  cluster.barrier_wait();",
     "take_rest<kChannels>(arrays, fetched, problem, work);", "check"},
};

}  // namespace planted
