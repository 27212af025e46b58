// CPU oracle of multi-scale deformable attention: double precision, straight from the formula.
// Tested against arrays that PyTorch computed (data/golden).
#pragma once

#include "../shapes.h"

namespace reference {

// All arrays as DeformableShape has them (fp16 values are exact in float). A location that is NaN or
// infinite contributes nothing, like one outside.
void deformable_attention(const float* value, const float* locations, const float* weights,
                          const DeformableShape& shape, double* out);

// Rows first_row, first_row + 1, ... (count of them) of out alone, [count, channels].
void deformable_attention_rows(const float* value, const float* locations, const float* weights,
                               const DeformableShape& shape, int64_t first_row, int64_t count,
                               double* out);

}  // namespace reference
