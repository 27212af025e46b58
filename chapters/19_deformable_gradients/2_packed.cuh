// Step 2, packed: four channels a lane. A share of a row is one request of 16 bytes a lane, and a
// sample's place is worked out once.
#pragma once

#include "parts/rows.cuh"

namespace deformable_gradients {

constexpr int kPackedThreads = 256;

// Arrays as in atomics_kernel; grad_value is 0 to begin with.
template <int kChannels>
__global__ void __launch_bounds__(kPackedThreads)
    packed_kernel(const Arrays arrays, const __grid_constant__ Problem problem) {
  using L = Lanes<kChannels>;
  const int64_t rows = int64_t(problem.batch) * problem.queries * problem.heads;
  const int64_t wanted = (int64_t(blockIdx.x) * kPackedThreads + threadIdx.x) / L::kOfRow;
  const int64_t row = min(wanted, rows - 1);
  const int head = int(row % problem.heads);
  const int64_t image = row / problem.heads / problem.queries;
  float* image_grad =
      arrays.grad_value + (image * problem.pixels * problem.heads + head) * kChannels;
  take_row<kChannels>(arrays, problem, row, wanted < rows, [&](int, int pixel, float4 share) {
    add_four(image_grad + int64_t(pixel) * problem.heads * kChannels + 4 * L::lane(), share);
  });
}

// As atomics(), also what it throws.
inline void packed(const half* value, const half* locations, const half* weights,
                   const half* grad_out, float* grad_value, float* grad_locations,
                   float* grad_weights, const DeformableShape& shape, cudaStream_t stream) {
  const Arrays arrays{value,      locations,      weights,     grad_out,
                      grad_value, grad_locations, grad_weights};
  require_arguments(
      shape, {value, locations, weights, grad_out, grad_value, grad_locations, grad_weights});
  clear_gradient(grad_value, shape, stream);
  with_channels(shape, [&]<int kChannels>() {
    constexpr int kRows = kPackedThreads / Lanes<kChannels>::kOfRow;
    packed_kernel<kChannels><<<blocks_for(shape.rows(), kRows, shape), kPackedThreads, 0, stream>>>(
        arrays, problem_of(shape));
  });
}

}  // namespace deformable_gradients
