// CPU oracle of the gradients of deformable attention: double precision, straight from the formula.
// Tested against arrays that PyTorch computed (data/golden) and against central differences.
#pragma once

#include <vector>

#include "../../07_persistent_deformable_attention/shape.h"

namespace reference {

struct DeformableGradients {
  std::vector<double> value, locations, weights;  // shapes as those of the arrays
  // The largest sum of absolute terms in each array. Rounding errors are shares of it; those of
  // `value` also grow with most_samples.
  double value_size = 0, locations_size = 0, weights_size = 0;
  int most_samples = 0;  // the most samples that add to one pixel
};

// The gradients of Σ grad_out · out, all arrays as DeformableShape has them (fp16 values are exact in
// float); grad_out is [batch, queries, heads, channels]. Where a location lies on a pixel's centre
// the slope is that towards the right or downwards. Outside of a level and for a location that is
// NaN or infinite it is 0.
DeformableGradients deformable_gradients(const float* value, const float* locations,
                                         const float* weights, const float* grad_out,
                                         const DeformableShape& shape);

}  // namespace reference
