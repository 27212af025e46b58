// CPU oracle of attention: double precision, straight from the formula, no tiling. Slow on purpose
// where speed would need a trick. Tested against arrays that PyTorch computed (data/golden).
#pragma once

#include "shape.h"

namespace reference {

// Attention of one (batch, head). Q, K, V: [tokens, head_dim] (fp16 values are exact in float).
// scores = scale Q Kᵀ and weights = softmax(scores): [tokens, tokens]; O = weights V:
// [tokens, head_dim]. Any of the three results may be null. Non-finite inputs give NaN.
void attention_head(const float* Q, const float* K, const float* V, int tokens, int head_dim,
                    double scale, double* scores, double* weights, double* O);

// O = softmax(Q Kᵀ scale) V for all of shape; all arrays [batch, heads, tokens, head_dim].
void attention(const float* Q, const float* K, const float* V, const AttentionShape& shape,
               double* O);

}  // namespace reference
