// Step 1, atomics: a lane a channel, as the operator's gradient is usually written. Samples of many
// queries meet in one pixel, so that each share is added there by an atomic addition.
#pragma once

#include "parts/gradients.cuh"

namespace deformable_gradients {

constexpr int kAtomicsThreads = 256;

template <int kChannels>
__global__ void __launch_bounds__(kAtomicsThreads)
    atomics_kernel(const half* value,      // [batch, pixels, heads, channels]
                   const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                   const half* weights,    // [batch, queries, heads, levels, points]
                   const half* grad_out,   // [batch, queries, heads, channels]
                   float* grad_value,      // as value, 0 to begin with
                   float* grad_locations,  // as locations
                   float* grad_weights,    // as weights
                   const __grid_constant__ Problem problem) {
  // A row of the output has a warp or half of one; with 64 channels a lane has two.
  constexpr int kLanes = kChannels < 32 ? kChannels : 32, kEach = kChannels / kLanes;
  const int64_t rows = int64_t(problem.batch) * problem.queries * problem.heads;
  const int64_t wanted = (int64_t(blockIdx.x) * kAtomicsThreads + threadIdx.x) / kLanes;
  const bool exists = wanted < rows;  // the others stay for the sums over lanes
  const int64_t row = exists ? wanted : rows - 1;
  const int lane = threadIdx.x % kLanes, head = int(row % problem.heads);
  const int64_t image = row / problem.heads / problem.queries;

  float grad[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    grad[e] = __half2float(grad_out[row * kChannels + lane + e * kLanes]);

  int64_t sample = row * problem.levels * problem.points;
  for (int l = 0; l < problem.levels; ++l) {
    const Level level = problem.level[l];
    for (int p = 0; p < problem.points; ++p, ++sample) {
      const Place place = place_of(reinterpret_cast<const half2*>(locations)[sample], level);
      const float weight = __half2float(weights[sample]);

      // Each corner: its share of the gradient to its pixel, its pixel's product to the sums.
      SampleSums sums;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner) {
        if (!exists || !place.inside(corner, level)) continue;
        const int pixel =
            level.start + (place.row + corner / 2) * level.width + place.column + corner % 2;
        const int64_t at =
            ((image * problem.pixels + pixel) * problem.heads + head) * kChannels + lane;
        float dot = 0.0f;
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          dot += grad[e] * __half2float(value[at + e * kLanes]);
          atomicAdd(grad_value + at + e * kLanes, weight * place.share(corner) * grad[e]);
        }
        sums.add(place, corner, dot);
      }

      // Over all channels.
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2) {
        sums.weight += __shfl_xor_sync(0xffffffffu, sums.weight, distance);
        sums.x += __shfl_xor_sync(0xffffffffu, sums.x, distance);
        sums.y += __shfl_xor_sync(0xffffffffu, sums.y, distance);
      }
      if (!exists || lane != 0) continue;
      grad_weights[sample] = sums.weight;
      grad_locations[2 * sample] = weight * float(level.width) * sums.x;
      grad_locations[2 * sample + 1] = weight * float(level.height) * sums.y;
    }
  }
}

// The gradients of Σ grad_out · out with respect to value, locations and weights, in fp32. A location
// that is NaN or infinite gets 0; all else is finite. Every array starts at a multiple of 16 bytes.
// Throws std::invalid_argument naming what is wrong and the limit when it cannot,
// std::runtime_error when CUDA refuses.
inline void atomics(const half* value, const half* locations, const half* weights,
                    const half* grad_out, float* grad_value, float* grad_locations,
                    float* grad_weights, const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(
      shape, {value, locations, weights, grad_out, grad_value, grad_locations, grad_weights});
  clear_gradient(grad_value, shape, stream);
  with_channels(shape, [&]<int kChannels>() {
    constexpr int kRows = kAtomicsThreads / (kChannels < 32 ? kChannels : 32);
    atomics_kernel<kChannels>
        <<<blocks_for(shape.rows(), kRows, shape), kAtomicsThreads, 0, stream>>>(
            value, locations, weights, grad_out, grad_value, grad_locations, grad_weights,
            problem_of(shape));
  });
}

}  // namespace deformable_gradients
