// The formulas of the convolutional projection, linear layers, LayerNorm, attention, embedding, loss and
// optimizer in double, one loop each, on the CPU: what kernels are compared with. Arrays are those of
// operations.h. Tested against arrays that PyTorch computed (data/golden) and against central differences.
#pragma once

#include <array>
#include <vector>

#include "../operations/shapes.h"

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

// ---- The convolutional projection, with BatchNorm -----------------------------------------------

// As cvt::ProjectionShape.
struct ProjectionSizes {
  int batch, height, width, channels, class_tokens;
  // Rows and columns of a map, and a sample's tokens; which: 0 for q, 1 for k, 2 for v.
  int stride(int which) const { return which == 0 ? 1 : 2; }
  int rows(int which) const { return (height - 1) / stride(which) + 1; }
  int columns(int which) const { return (width - 1) / stride(which) + 1; }
  int tokens(int which) const { return class_tokens + rows(which) * columns(which); }
  int positions(int which) const { return batch * rows(which) * columns(which); }
};

struct ProjectionInputs {
  Array x;                            // [batch, tokens of q, channels]
  std::array<Array, 3> w;             // [channels, 3, 3]
  std::array<Array, 3> scale, shift;  // [channels]
};
struct ProjectionOutputs {
  std::array<Array, 3> maps;            // [batch, tokens, channels], before BatchNorm
  std::array<Array, 3> mean, variance;  // [channels], of the population
  std::array<Array, 3> factor, offset;  // [channels]: BatchNorm's output is map * factor + offset
};
constexpr double kBatchNormEpsilon = 1e-5;
ProjectionOutputs project(const ProjectionInputs& in, const ProjectionSizes& sizes);

struct ProjectionDerivatives {
  Array dx;
  std::array<Array, 3> dw, dscale, dshift;
  std::array<Array, 3> dmaps;  // gradients of the raw maps; class tokens' as they came
};
// dy: [batch, tokens, channels], gradients of map * factor + offset, class tokens' of what was
// copied.
ProjectionDerivatives project_back(const ProjectionInputs& in, const ProjectionOutputs& out,
                                   const std::array<Array, 3>& dy, const ProjectionSizes& sizes);

}  // namespace cvt::reference
