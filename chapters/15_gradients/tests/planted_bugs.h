// The mistakes that chapter 15's tests plant in its steps, one at a time, and what must find each. A
// "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kNaiveBugs = {
    {"log-sum-exp of the key's row", "log_sum_exp[at.row]",
     "log_sum_exp[at.matrix * tokens + at.column]", "element"},
    {"dV from weights that do not add up to 1", "expf(score * scale - log_sum_exp[at.row])",
     "expf(score * scale)", "not finite"},
    {"dP is overwritten while D is computed", "mean += p_row[key] * d_row[key]",
     "mean += d_row[key] *= p_row[key]", "element"},
    {"D of half of the lanes", "distance = 16; distance > 0", "distance = 8; distance > 0",
     "element"},
    {"a sum over rows in place of columns", "column[query * tokens]", "column[query]", "element"},
};

const std::vector<Mutant> kDotsBugs = {
    {"D of O and O", "reinterpret_cast<const EightHalves*>(dO)[piece]",
     "reinterpret_cast<const EightHalves*>(O)[piece]", "element"},
    {"D without the last two lanes of a row", "distance = kLanes / 2; distance > 0",
     "distance = kLanes / 4; distance > 0", "element"},
    {"half of dQ's sums do not begin at 0",
     "      reinterpret_cast<float4*>(dQ_sums)[2 * piece + 1] = float4{};\n", "", "not finite"},
};

const std::vector<Mutant> kRecomputeBugs = {
    {"dK without scale", "dK_sum[i][d] * scale", "dK_sum[i][d]", "element"},
    {"D is forgotten", "p * (dP[i] - tiles.dots[own + i])", "p * dP[i]", "element"},
    {"dK and dV without the last queries", "first < tokens; first += kTile",
     "first + kTile < tokens; first += kTile", "element"},
    {"log-sum-exp of the first tile's rows", "log_sum_exp[row] * kLog2E",
     "log_sum_exp[matrix + threadIdx.x] * kLog2E", "element"},
    {"keys past the end keep their weight",
     "first_key + lane < tokens ? flash_attention::power_of_2(exponent) : 0.0f",
     "flash_attention::power_of_2(exponent)", "not finite"},
    {"blocks add without atomics", "atomicAdd(dQ_sums",
     "[](float* to, float x) { *to += x; }(dQ_sums", "check"},
    {"the next queries overwrite those in use", "    __syncthreads();\n    load_tile(Q",
     "    load_tile(Q", "check"},
};

const std::vector<Mutant> kTensorBugs = {
    {"dK without scale", "const float scales[2] = {scale, scale};",
     "const float scales[2] = {1, 1};", "element"},
    {"both queries of a lane have the first one's D", "(i % 2 ? means.y : means.x)", "means.x",
     "element"},
    {"weights that do not add up to 1", "-(i % 2 ? sums.y : sums.x)", "0.0f", "element"},
    {"keys past the end keep their weight", "there ? flash_attention::power_of_2(exponent) : 0.0f",
     "flash_attention::power_of_2(exponent)", "not finite"},
    {"dS is not transposed back", "key + lane / 16 * 8 + lane % 8, row / 8 + 2 * r + lane / 8 % 2",
     "key + lane / 8 % 2 * 8 + lane % 8, row / 8 + 2 * r + lane / 16", "element"},
    {"sums are stored where they should be added", "red.global.add.v2.f32", "st.global.v2.f32",
     "check"},
    {"dQ before all warps have written dS", "      __syncthreads();\n      add_queries",
     "      add_queries", "check"},
    {"the next queries go into the stage that is read", "copy_queries(stages.write",
     "copy_queries(stages.read", "check"},
    {"each warp waits for its own copies only", "    stages.wait();\n",
     "    tile::wait_for_copies<0>();\n", "check"},
    {"the last queries are left out", "first < tokens; first += kQueries",
     "first + kQueries < tokens; first += kQueries", "element"},
};

const std::vector<Mutant> kRowsBugs = {
    {"both rows of a lane have the first one's log-sum-exp", "scale_log2, -log2_sum[b][i / 2]",
     "scale_log2, -log2_sum[b][0]", "element"},
    {"dQ without scale", "const float scales[2] = {scale, scale};",
     "const float scales[2] = {1, 1};", "element"},
    {"keys past the end keep their weight", "there ? flash_attention::power_of_2(exponent) : 0.0f",
     "flash_attention::power_of_2(exponent)", "not finite"},
    {"the last keys are left out", "first < tokens; first += kKeys",
     "first + kKeys < tokens; first += kKeys", "element"},
    {"a row too many is written", "tokens - first_query - row);",
     "tokens - first_query - row + 1);", "guard"},
};

}  // namespace planted
