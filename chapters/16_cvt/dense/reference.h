// The formulas of linear layers, LayerNorm, attention, embedding, loss and optimizer in double, one
// loop each, on the CPU: what kernels are compared with. Arrays are those of operations.h.
#pragma once

#include <vector>

#include "../shapes.h"

namespace cvt::reference {

using Array = std::vector<double>;

double gelu(double v);
double gelu_derivative(double v);

// x [rows, in], w [out, in], bias [out] or empty → [rows, out].
Array linear(const Array& x, const Array& w, const Array& bias, int rows, int in, int out);
struct LinearGradients {
  Array x, w, bias;
};
LinearGradients linear_gradients(const Array& x, const Array& w, const Array& dy, int rows, int in,
                                 int out);

Array embed(const Array& x, const Array& w, const Array& bias, const EmbedShape& shape);
LinearGradients embed_gradients(const Array& x, const Array& w, const Array& dy,
                                const EmbedShape& shape);

struct LayerNorm {
  Array y, mean, inverse_deviation;
};
LayerNorm layer_norm(const Array& x, const Array& scale, const Array& shift, int rows,
                     int channels);
struct LayerNormGradients {
  Array x, scale, shift;
};
LayerNormGradients layer_norm_gradients(const Array& x, const Array& scale, const Array& dy,
                                        int rows, int channels);

struct Attention {
  Array o, log_sum_exp;
};
Attention attention(const Array& q, const Array& k, const Array& v, const CrossShape& shape);
struct AttentionGradients {
  Array q, k, v;
  double largest_terms[3];  // in dq, dk and dv: the largest sum of a number's absolute terms
};
AttentionGradients attention_gradients(const Array& q, const Array& k, const Array& v,
                                       const Array& d_o, const CrossShape& shape);

struct CrossEntropy {
  double loss;
  Array dlogits;
};
CrossEntropy cross_entropy(const Array& logits, const std::vector<int>& labels, int classes,
                           double smoothing);

// All three are brought forward.
void adamw(Array& parameters, const Array& gradients, Array& m, Array& v, int step,
           const AdamW& options);

}  // namespace cvt::reference
