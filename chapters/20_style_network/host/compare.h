// What the results of chapter 20's layers are compared with.
#pragma once

#include "../../../common/lab.cuh"
#include "../../../common/lab/images.h"
#include "network.h"

namespace lab {

// Throws std::runtime_error unless the planes [3, height, width] are the photo, 0 to 1.
void require_planes(const std::vector<float>& planes, const Image& photo);

// y of each of the stage's layers with the reference's from the same x: y itself, behind `between` in a
// residual block. Of a large layer every n-th channel is compared, which stands for itself: each plane
// is normalized alone.
std::vector<Comparison> compare_stage(const std::vector<StyleLayer>& network,
                                      const StyleStage& stage, const std::vector<float>& x,
                                      const std::vector<float>& between,
                                      const std::vector<float>& y);

// The picture with what the planes of the network's last layer say: rounding is half a level.
Comparison compare_pixels(const std::vector<float>& planes, const ConvNormShape& shape,
                          const Image& picture);

}  // namespace lab
