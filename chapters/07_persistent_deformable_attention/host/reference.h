// CPU oracle of multi-scale deformable attention: double precision, straight from the formula.
// Tested against arrays that PyTorch computed (data/golden).
#pragma once

#include "../shape.h"

namespace reference {

// All arrays as DeformableShape has them (fp16 values are exact in float). A location that is NaN or
// infinite contributes nothing, like one outside.
void deformable_attention(const float* value, const float* locations, const float* weights,
                          const DeformableShape& shape, double* out);

// Rows first_row, first_row + 1, ... (count of them) of out alone, [count, channels].
void deformable_attention_rows(const float* value, const float* locations, const float* weights,
                               const DeformableShape& shape, int64_t first_row, int64_t count,
                               double* out);

// The gradient of Σ grad_out · out with respect to the weights. grad_out is [batch, queries, heads,
// channels], grad_weights as the weights are. out is linear in them: the dot product of grad_out
// with each sample.
void deformable_weight_gradient(const float* value, const float* locations, const float* grad_out,
                                const DeformableShape& shape, double* grad_weights);

}  // namespace reference
