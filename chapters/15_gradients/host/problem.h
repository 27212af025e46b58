// Problems of attention's gradients, how near a result must be, and arrays on the device.
#pragma once

#include "../../../common/attention/inputs.h"
#include "../../../common/lab.cuh"
#include "../parts/pointers.h"

namespace lab {

// ---- Problems -----------------------------------------------------------------------------------

struct GradientProblem {
  AttentionProblem attention;
  std::vector<half> d_o;  // [batch, heads, tokens, head_dim]
};

// random_attention(), with normal numbers as dO.
GradientProblem random_gradients(const AttentionShape& shape, uint64_t seed);

// What arrives from the distance of O from the image's own tokens: half of the sum of (O - V)² has
// the gradient O - V in O. output: [batch, heads, tokens, head_dim], as the forward pass has it.
std::vector<half> distance_gradient(const AttentionProblem& problem,
                                    const std::vector<half>& output);

// The same of one token of the first image alone; all else is 0. [1, heads, tokens, head_dim]
std::vector<half> gradient_of_token(const GradientProblem& problem, int token);

// How large the gradient of each token's key is, over all heads: [tokens]. d_k: [1, heads, tokens,
// head_dim].
std::vector<double> size_of_keys(const std::vector<half>& d_k, const AttentionShape& shape);

// ---- Expected -----------------------------------------------------------------------------------

// What the steps must compute, in double precision; and how near.
//
// With u = 2^-11 for fp16, e = 2^-24 for fp32: a score is off by (head_dim + 8) e |q| |k| scale, and
// so is P of itself, with the log-sum-exp's rounding; P is rounded to fp16 in between (u). D is off by
// (u + (head_dim + 8) e) Σ|dO O|, since O comes in fp16. dS = P (dP - D) has the three errors, and is
// rounded to fp16, too (u). Sums over tokens add (tokens + 8) e of their summands. This gives each
// element of dQ, dK and dV a bound before it is rounded to fp16; the largest of them is the absolute
// tolerance. Over all elements roundings are up and down: half of the root of the sum of their squares
// is allowed for the relative L2 error.
struct GradientExpected {
  std::vector<double> O, log_sum_exp, dQ, dK, dV;
  Tolerance for_O, for_log_sum_exp, for_dQ, for_dK, for_dV;
};
GradientExpected expected_gradients(const GradientProblem& problem);
// The tolerances of arrays that somebody else computed.
void set_tolerances(const GradientProblem& problem, GradientExpected& expected);

// A difference of got and expected, the first that is too large; else the largest.
struct GradientComparison {
  Comparison comparison;
  const char* array = "";  // which it is of: "dK"
};
GradientComparison compare_gradients(const std::vector<half>& dQ, const std::vector<half>& dK,
                                     const std::vector<half>& dV, const GradientExpected& expected,
                                     const AttentionShape& shape);

// Least traffic, and the operations of five products.
Cost gradient_cost(const AttentionShape& shape, bool tensor_cores);

// O and log-sum-exp of the forward pass beside the expected ones: the first difference that is too large.
Comparison compare_forward(const std::vector<half>& output, const std::vector<float>& log_sum_exp,
                           const GradientExpected& expected, const AttentionShape& shape);

// ---- On the device ------------------------------------------------------------------------------

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
struct GradientArrays {
  DeviceArray<half> Q, K, V, O, dO, dQ, dK, dV;
  DeviceArray<float> log_sum_exp;

  gradients::Pointers pointers(DeviceArray<float>& workspace) {
    return {Q.data(),           K.data(),  V.data(),  O.data(),  dO.data(),
            log_sum_exp.data(), dQ.data(), dK.data(), dV.data(), workspace.data()};
  }
  void clear() {
    for (DeviceArray<half>* array : {&dQ, &dK, &dV}) array->fill_nan();
  }
};
// All but O, dO and log_sum_exp, which follow from the forward pass.
std::vector<GradientArrays> upload(const GradientProblem& problem, int copies);
double gradient_bytes(const AttentionShape& shape);  // of one copy

}  // namespace lab
