// What the steps share and none of them changes: the arrays, where a sample lies, what a launch checks.
//
// With v the value of a sample, w its weight and g the gradient of a row of the output:
//
//   gradient of w         = Σ over channels of g · v
//   gradient of a pixel   = Σ over samples beside it of w · its share of the sample · g
//   gradient of x and y   = w · size of the level · Σ over channels of g · slope of v
//
// All three are sums in fp32.
#pragma once

#include "../../07_persistent_deformable_attention/parts/sampling.cuh"

namespace deformable_gradients {

using persistent_deformable_attention::blocks_for;
using persistent_deformable_attention::Level;
using persistent_deformable_attention::Problem;
using persistent_deformable_attention::problem_of;
using persistent_deformable_attention::require_launched;

// Between pixels (column, row) and (column + 1, row + 1) of a level, that far from the first.
struct Place {
  int column, row;    // -2, or the level's size, where both pixels are outside
  float right, down;  // 0 to 1

  // Whether pixel (column + right, row + down) is inside; corner 0 to 3 is 2 · down + right.
  __device__ bool inside(int corner, const Level& level) const {
    const int x = column + corner % 2, y = row + corner / 2;
    return x >= 0 && x < level.width && y >= 0 && y < level.height;
  }
  // What that corner has of the sample; the four shares add up to 1.
  __device__ float share(int corner) const {
    return (corner % 2 ? right : 1.0f - right) * (corner / 2 ? down : 1.0f - down);
  }
};

// On a pixel's centre a sample lies to the left of the next one: its slope is that towards the
// right, as torch's grid_sample has it. A location that is NaN or infinite is outside.
__device__ inline Place place_of(half2 location, const Level& level) {
  const float x = fmaf(__low2float(location), float(level.width), -0.5f);
  const float y = fmaf(__high2float(location), float(level.height), -0.5f);
  const float left = floorf(x), top = floorf(y);
  // fmaxf prefers a number to a NaN, and saturating makes 0 of it.
  return {int(fminf(fmaxf(left, -2.0f), float(level.width))),
          int(fminf(fmaxf(top, -2.0f), float(level.height))), __saturatef(x - left),
          __saturatef(y - top)};
}

// Sums over a sample's channels, before its weight and its level's size.
struct SampleSums {
  float weight = 0.0f, x = 0.0f, y = 0.0f;

  // A corner's pixel times the gradient of the output, added up over some of the channels.
  __device__ void add(const Place& place, int corner, float dot) {
    weight += place.share(corner) * dot;
    x += (corner % 2 ? dot : -dot) * (corner / 2 ? place.down : 1.0f - place.down);
    y += (corner / 2 ? dot : -dot) * (corner % 2 ? place.right : 1.0f - place.right);
  }
};

// Throws std::invalid_argument for a shape that no step takes, or addresses that wide loads refuse.
inline void require_arguments(const DeformableShape& shape,
                              std::initializer_list<const void*> arrays) {
  require_deformable_shape(shape);
  for (const void* array : arrays)
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0)
      throw std::invalid_argument(
          "gradients of deformable attention: every array must start at a multiple of 16 bytes");
}

// Sets the gradient of value to 0, where a step adds to it.
inline void clear_gradient(float* grad_value, const DeformableShape& shape, cudaStream_t stream) {
  require_launched(
      cudaMemsetAsync(grad_value, 0, size_t(shape.value_elements()) * sizeof(float), stream),
      shape);
}

// Launches by launch.operator()<kChannels>() with the shape's channels. Throws std::runtime_error when CUDA
// refuses.
template <class Launch>
void with_channels(const DeformableShape& shape, const Launch& launch) {
  shape.channels == 16   ? launch.template operator()<16>()
  : shape.channels == 32 ? launch.template operator()<32>()
                         : launch.template operator()<64>();
  require_launched(cudaGetLastError(), shape);
}

}  // namespace deformable_gradients
