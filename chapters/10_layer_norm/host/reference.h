// CPU oracles of LayerNorm, forward and backward: double precision, straight from the formulas.
// Tested against arrays that PyTorch computed (data/golden), and against central differences.
#pragma once

#include "../shape.h"

namespace reference {

// y = scale · (x - mean) / sqrt(variance + epsilon) + bias; arrays as layer_norm::Shape has them.
void layer_norm(const double* x, const double* scale, const double* bias,
                const ::layer_norm::Shape& shape, double* y);

// The gradients of Σ dy · y: dx [rows, columns], dscale and dbias [columns].
void layer_norm_backward(const double* dy, const double* x, const double* scale,
                         const ::layer_norm::Shape& shape, double* dx, double* dscale,
                         double* dbias);

// Mean, and 1 / sqrt(variance + epsilon), of each row; either may be null.
void row_moments(const double* x, const ::layer_norm::Shape& shape, double* mean, double* factor);

}  // namespace reference
