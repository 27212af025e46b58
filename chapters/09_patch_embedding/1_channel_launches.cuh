// Step 1, channel launches: the loops of a CPU program with a kernel in the innermost one. Sixteen
// pixels a launch, their copies in front of it, a wait behind it.
#pragma once

#include "parts/steps.cuh"

namespace patch_embedding {

// *sum += pixels · weights, 16 of each, by 16 threads.
static __global__ void add_row_kernel(const half* pixels, const half* weights, float* sum) {
  const int i = threadIdx.x;
  float product = __half2float(pixels[i]) * __half2float(weights[i]);
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    product += __shfl_down_sync(0xffff, product, distance, kSide);
  if (i == 0) *sum += product;
}

// Device memory of the step: 16 pixels, 16 weights, the sum.
inline constexpr size_t kChannelLaunchesBytes = 2 * kSide * sizeof(half) + sizeof(float);

// Launches for each output: one a colour and row of the patch.
inline constexpr int kRowsOfPatch = kColors * kSide;

inline Traffic channel_launches_traffic(const Part& part) {
  const int64_t outputs = part.outputs(), rows = outputs * kRowsOfPatch;
  return {rows,
          rows + outputs,
          outputs + 2 * rows,
          outputs * int64_t(sizeof(float)) + 2 * rows * kSide * int64_t(sizeof(half)),
          outputs,
          outputs * int64_t(sizeof(float)),
          int64_t(kChannelLaunchesBytes)};
}

// The tokens of a part, all in host memory. `memory`: kChannelLaunchesBytes on the device, at a
// multiple of 16 bytes. Throws std::invalid_argument naming shape and limit, std::runtime_error when
// CUDA refuses.
inline void channel_launches(const Inputs& in, half* tokens, const Shape& shape, const Part& part,
                             void* memory) {
  require_shape(shape, part);
  half* const pixels = static_cast<half*>(memory);
  half* const weights = pixels + kSide;
  float* const device_sum = reinterpret_cast<float*>(weights + kSide);
  constexpr size_t kBytes = kSide * sizeof(half);
  write_class_rows(in, tokens, shape, part);
  for_each_output(part, [&](int image, int patch, int channel) {
    float sum = offset_of(in, shape, patch, channel);
    copy_to_device(device_sum, &sum, sizeof sum, nullptr);
    const int x = patch % shape.patch_columns() * kSide, y = patch / shape.patch_columns() * kSide;
    for (int color = 0; color < kColors; ++color)
      for (int row = 0; row < kSide; ++row) {
        const int64_t line = (int64_t(image) * kColors + color) * shape.height + y + row;
        const int64_t of_filter = (int64_t(channel) * kColors + color) * kSide + row;
        copy_to_device(pixels, in.image + line * shape.width + x, kBytes, nullptr);
        copy_to_device(weights, in.weight + of_filter * kSide, kBytes, nullptr);
        add_row_kernel<<<1, kSide>>>(pixels, weights, device_sum);
        require_success(cudaDeviceSynchronize(), "row of a patch");
      }
    copy_to_host(&sum, device_sum, sizeof sum, nullptr);
    require_success(cudaDeviceSynchronize(), "sum of a patch");
    tokens[token_at(shape, image, 1 + patch, channel)] = __float2half(sum);
  });
}

}  // namespace patch_embedding
