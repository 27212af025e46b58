// CPU oracle of attention's gradients: double precision, straight from the formulas. Tested against
// arrays that PyTorch computed (data/golden) and against central differences.
#pragma once

#include "../../../common/attention/shape.h"

namespace reference {

// What comes out. Any may be null but dQ, dK and dV.
struct AttentionGradients {
  double *dQ, *dK, *dV;     // [batch, heads, tokens, head_dim]
  double *O, *log_sum_exp;  // as Q; [batch, heads, tokens]
  double *P, *dS;           // [batch, heads, tokens, tokens]
  // How far dQ, dK and dV of a step with fp16 products and fp32 sums may be off, each element, before
  // it is rounded to fp16. See bounds() in problem.h.
  double *dQ_error, *dK_error, *dV_error;
};

// Q, K, V, dO: [batch, heads, tokens, head_dim]; fp16 values are exact in float.
void attention_gradients(const float* Q, const float* K, const float* V, const float* dO,
                         const AttentionShape& shape, const AttentionGradients& result);

}  // namespace reference
