// The mistakes that tests plant in linear layers, LayerNorm, attention and loss of chapter 16, one
// at a time, and what must find each. A "check" is the virtual GPU's.
#pragma once

#include "../../../common/testing/testing.h"

namespace planted {

using lab::testing::Mutant;

const std::vector<Mutant> kLinearBugs = {
    {"a slice is not waited for", "    stages.wait();\n    copy(",
     "    __syncthreads();\n    copy(", "check"},
    {"copies go into the slice that is read", "copy(slice + stages.kAhead, stages.write)",
     "copy(slice + stages.kAhead, stages.read)", "check"},
    {"of an operand across the sum neighbours take the place of t and t + 4",
     "8 * step + 4 * h + t", "8 * step + 2 * t + h", "element"},
    {"an operand along the sum has its rows in memory's order",
     "return int(row / 32 * 32 + 4 * row_of_product(row % 8) + row % 32 / 8);", "return int(row);",
     "element"},
    {"GELU's derivative of the gradient", "four.y * linear_layers::gelu_derivative(v.y)",
     "four.y * linear_layers::gelu_derivative(four.y)", "element"},
    {"what is before GELU is not kept", "store(before_gelu + at, column, four);", "", "not finite"},
    {"a share is added twice",
     "for (int s = 0; s < shares; ++s) sum += from.products[int64_t(s) * count",
     "for (int s = -1; s < shares; ++s) sum += from.products[int64_t(max(s, 0)) * count",
     "element"},
    {"the last slice is left out", "min(begin + size.slices_of_share, size.slices)",
     "min(begin + size.slices_of_share, size.slices - 1)", "element"},
    {"a row too many is stored", "if (here < size.rows)\n        finish.store(prepared",
     "if (here <= size.rows)\n        finish.store(prepared", "guard"},
    {"dbias of every second number of the sum",
     "        sum += __shfl_xor_sync(0xffffffffu, sum, 2);\n", "", "element"},
    {"offset without the sum of dy", "to.offset[column] * bias_sum(row)", "to.offset[column]",
     "element"},
};

const std::vector<Mutant> kForwardBugs = {
    {"the last keys are left out", "first < shape.keys; first += Tiles::kKeys",
     "first + Tiles::kKeys <= shape.keys; first += Tiles::kKeys", "element"},
    {"keys past the end have a score of 0", "there ? score * scale_log2 : -INFINITY",
     "score * scale_log2", "element"},
    {"o is not rescaled", "sums.value[2 * h] *= rescale, sums.value[2 * h + 1] *= rescale;", ";",
     "element"},
    {"keys are not waited for", "    stages.wait();\n", "    __syncthreads();\n", "check"},
    {"a row of v is another one's", "right.at(8 * b + 2 * t + 1, 8 * d + kN * g)",
     "right.at(8 * b + t + 4, 8 * d + kN * g)", "element"},
    {"log-sum-exp in powers of 2", "row_max[h] / kLog2E", "row_max[h]", "element"},
};

// In keys_kernel, queries_kernel and dots_kernel.
const std::vector<Mutant> kBackwardBugs = {
    {"dq without scale", "store_rows<kHeadDim>(dq_sums, {shape.scale, shape.scale}",
     "store_rows<kHeadDim>(dq_sums, {1.0f, 1.0f}", "element"},
    {"dk without scale", "store_rows<kHeadDim>(dk_sums, {shape.scale, shape.scale}",
     "store_rows<kHeadDim>(dk_sums, {1.0f, 1.0f}", "element"},
    {"D is forgotten", "p * (dp[b].value[i] - dot)", "p * dp[b].value[i]", "element"},
    {"D of o and o", "reinterpret_cast<const float4*>(d_o)[piece]",
     "reinterpret_cast<const float4*>(o)[piece]", "element"},
    {"the last queries are left out", "first < shape.queries; first += Tiles::kWalked",
     "first + Tiles::kWalked <= shape.queries; first += Tiles::kWalked", "element"},
    {"the last keys are left out", "first < shape.keys; first += Tiles::kWalked",
     "first + Tiles::kWalked <= shape.keys; first += Tiles::kWalked", "element"},
    {"keys past the end keep their weight", "there ? of_row[i / 2].log2_sum : INFINITY",
     "of_row[i / 2].log2_sum", "not finite"},
    {"dv from dS", "multiply_across<kHeadDim>(dv_sums, s, stage.walked[1])",
     "multiply_across<kHeadDim>(dv_sums, dp, stage.walked[1])", "element"},
    {"queries are copied into the stage that is read",
     "copy_queries(first + Tiles::kWalked, stages.write)",
     "copy_queries(first + Tiles::kWalked, stages.read)", "check"},
};

const std::vector<Mutant> kNormBugs = {
    {"dx without the mean of g", "(grad[p].element[e] - mean_g - ", "(grad[p].element[e] - ",
     "element"},
    {"dshift of the block's first warps", "for (int w = 0; w < kNormWarps; ++w) total",
     "for (int w = 0; w < kNormWarps / 2; ++w) total", "element"},
    {"dscale of g in place of dy",
     "          dscale[p].element[e] += g * n, dshift[p].element[e] += g;\n"
     "          g *= scales[p].element[e];\n",
     "          g *= scales[p].element[e];\n"
     "          dscale[p].element[e] += g * n, dshift[p].element[e] += g;\n",
     "element"},
    {"dshift overwrites dscale before it is added",
     "  for (int which = 0; which < 2; ++which) {\n    __syncthreads();\n",
     "  for (int which = 0; which < 2; ++which) {\n", "check"},
};

const std::vector<Mutant> kEmbedBugs = {
    {"windows begin a column late", "first_column + in_grid % grid_width * step};",
     "first_column + 1 + in_grid % grid_width * step};", "element"},
    {"taps run down columns first", "place.row + tap / tap_columns * sign",
     "place.row + tap % tap_columns * sign", "element"},
    {"every sample is the first one", "return {map + int64_t(sample) * height",
     "return {map + int64_t(sample) * 0 * height", "element"},
    {"padding is the map's first pixels",
     "tile::copy_async(to_shared, from ? from : map, from != nullptr)",
     "tile::copy_async(to_shared, from ? from : map, true)", "element"},
    {"weights stay in their own order",
     "packed[element] = w[(element / in / taps * in + channel) * taps + tap];",
     "packed[element] = w[element];", "element"},
    {"dx takes taps side by side, not every second one",
     "first_column + tap % tap_columns * stride;\n    return packed",
     "first_column + tap % tap_columns;\n    return packed", "element"},
    {"dx of every second row goes into neighbouring rows",
     "first_row + in_grid / grid_width * stride;\n    const int c",
     "first_row + in_grid / grid_width;\n    const int c", "not finite"},
};

const std::vector<Mutant> kCrossEntropyBugs = {
    {"logits count by their size, not by their distance",
     "exponentials += expf(from[i] - largest);", "exponentials += expf(from[i]);", "element"},
    {"the largest of the first 32 logits",
     "for (int i = lane; i < classes; i += 32) {\n    const float logit",
     "for (int i = lane; i < min(classes, 32); i += 32) {\n    const float logit", "not finite"},
    {"smoothing takes nothing from the label", "(i == label ? 1.0f - smoothing : 0.0f)",
     "(i == label ? 1.0f : 0.0f)", "element"},
    {"smoothing counts in the gradient alone",
     "smoothing > 0.0f ? smoothing * (log_sum - mean_distance) : 0.0f", "0.0f", "element"},
    {"the gradient of the sum, not of the mean", "/ sum - target) / float(batch);",
     "/ sum - target);", "element"},
    {"lanes far away do not add up",
     "for (int distance = 16; distance > 0; distance /= 2)\n    own +=",
     "for (int distance = 8; distance > 0; distance /= 2)\n    own +=", "not finite"},
    {"the mean of the first 32 rows",
     "for (int i = threadIdx.x; i < count; i += 32) sum += values[i];",
     "if (threadIdx.x < count) sum += values[threadIdx.x];", "element"},
    {"all rows have the first one's label", "const int label = labels[row];",
     "const int label = labels[0];", "element"},
};

const std::vector<Mutant> kLossBugs = {
    {"decay goes into the moments", "p *= keep;", "g += (1.0f - keep) * p;", "element"},
    {"v's bias is not corrected", "sqrtf(v) / root_correction", "sqrtf(v)", "element"},
    {"m forgets by beta2", "m += (g - m) * (1.0f - beta1);", "m += (g - m) * (1.0f - beta2);",
     "element"},
};

}  // namespace planted
