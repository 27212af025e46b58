// Step 1, simple: one thread for each element of the output, as the operator is usually written.
#pragma once

#include "parts/sampling.cuh"

namespace persistent_deformable_attention {

constexpr int kSimpleThreads = 256;

__global__ void __launch_bounds__(kSimpleThreads)
    simple_kernel(const half* value,      // [batch, pixels, heads, channels]
                  const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                  const half* weights,    // [batch, queries, heads, levels, points]
                  half* out,              // [batch, queries, heads, channels]
                  const __grid_constant__ Problem problem, int channels) {
  // Neighbouring lanes have neighbouring channels of one (image, query, head).
  const int64_t rows = int64_t(problem.batch) * problem.queries * problem.heads;
  const int64_t index = int64_t(blockIdx.x) * kSimpleThreads + threadIdx.x;
  if (index >= rows * channels) return;
  const int channel = int(index % channels);
  const int64_t row = index / channels;
  const int head = int(row % problem.heads);
  const int64_t image = row / problem.heads / problem.queries;

  // Where this channel of the image's pixel 0 is, and how far it is to that of the next pixel.
  const int stride = problem.heads * channels;
  const half* image_value = value + image * problem.pixels * stride + head * channels + channel;

  float sum = 0.0f;
  int64_t sample = row * problem.levels * problem.points;
  for (int l = 0; l < problem.levels; ++l) {
    const Level level = problem.level[l];
    const half* level_value = image_value + int64_t(level.start) * stride;
    for (int p = 0; p < problem.points; ++p, ++sample) {
      // Every channel works all this out again.
      const half2 location = reinterpret_cast<const half2*>(locations)[sample];
      const float x = fmaf(__low2float(location), float(level.width), -0.5f);
      const float y = fmaf(__high2float(location), float(level.height), -0.5f);
      const int left = int(first_pixel(x, level.width)), top = int(first_pixel(y, level.height));
      const int right = min(left + 1, level.width - 1), bottom = min(top + 1, level.height - 1);
      const float share_left = tent(x - float(left)), share_top = tent(y - float(top));
      const float share_right = right > left ? tent(x - float(right)) : 0.0f;
      const float share_bottom = bottom > top ? tent(y - float(bottom)) : 0.0f;

      // Four loads of 2 bytes; a pixel outside has no share.
      const auto pixel = [&](int row, int column) {
        return __half2float(level_value[(row * level.width + column) * stride]);
      };
      const float upper = share_left * pixel(top, left) + share_right * pixel(top, right);
      const float lower = share_left * pixel(bottom, left) + share_right * pixel(bottom, right);
      sum += __half2float(weights[sample]) * (share_top * upper + share_bottom * lower);
    }
  }
  out[index] = __float2half(sum);
}

// out = multi-scale deformable attention as DeformableShape describes it, sums in fp32. Locations
// that are NaN or infinite contribute nothing; values and weights are finite. Arrays start at a
// multiple of 16 bytes. Throws std::invalid_argument naming what is wrong and the limit when it
// cannot, std::runtime_error when CUDA refuses.
inline void simple(const half* value, const half* locations, const half* weights, half* out,
                   const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  const unsigned blocks = blocks_for(shape.out_elements(), kSimpleThreads, shape);
  simple_kernel<<<blocks, kSimpleThreads, 0, stream>>>(value, locations, weights, out,
                                                       problem_of(shape), shape.channels);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace persistent_deformable_attention
