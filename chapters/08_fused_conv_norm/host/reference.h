// CPU oracles of convolution, instance norm and their fusion: double precision, straight from the
// formulas. Tested against arrays that PyTorch computed (data/golden).
#pragma once

#include "../shape.h"

namespace reference {

// conv [batch, out_channels, out_height, out_width]; the other arrays as ConvNormShape has them.
// bias may be null: zeros.
void convolution(const float* x, const float* weight, const float* bias, const ConvNormShape& shape,
                 double* conv);

// y = gamma · (x - mean) / sqrt(variance + eps) + beta, for each of the batch x channels planes of
// `plane` pixels; x and y may be the same array. gamma, beta: [channels].
void instance_norm(const double* x, const float* gamma, const float* beta, int64_t batch,
                   int64_t channels, int64_t plane, double eps, double* y);

// y as ConvNormShape has it. bias and residual may be null: zeros.
void conv_norm(const float* x, const float* weight, const float* bias, const float* gamma,
               const float* beta, const float* residual, const ConvNormShape& shape, double* y);

}  // namespace reference
