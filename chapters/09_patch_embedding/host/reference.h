// CPU oracle of patch embedding: double precision, straight from the formula. Tested against arrays that
// PyTorch computed (data/golden).
#pragma once

#include "../shape.h"

namespace reference {

// The tokens of a part, [images, 1 + patches, channels] of it. Inputs as Shape has them (fp16 values are
// exact in float).
void patch_embedding(const float* image, const float* weight, const float* bias,
                     const float* class_token, const float* position,
                     const patches_of_photos::Shape& shape, const patches_of_photos::Part& part,
                     double* tokens);

}  // namespace reference
