// What the steps of this chapter share and none of them changes. A step's own file shows its idea.
#pragma once

#include <cuda_runtime.h>

#include "../shape.h"

namespace first_kernel {

using Shape = ::PhotoShape;

constexpr int kRadius = Shape::kRadius;

// How bright a pixel is, 0 to 255. Eyes are most sensitive to green.
__device__ inline unsigned char brightness(int red, int green, int blue) {
  return (299 * red + 587 * green + 114 * blue + 500) / 1000;
}

// So many blocks that each of `count` things has its own thread, or its own lane or row of a block.
inline unsigned blocks_for(int64_t count, int a_block) {
  return unsigned((count + a_block - 1) / a_block);
}

// Throws std::invalid_argument naming what is wrong.
template <class... Arrays>
void require_arguments(const Shape& shape, const Arrays*... arrays) {
  require_shape(shape);
  if ((... || (arrays == nullptr)))
    throw std::invalid_argument("photo of shape " + describe(shape) + ": no array may be null");
}
// Throws std::runtime_error when CUDA refused a call.
inline void require_done(cudaError_t error, const Shape& shape) {
  if (error != cudaSuccess)
    throw std::runtime_error("photo of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

}  // namespace first_kernel
