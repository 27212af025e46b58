// Step 2, unified: the host sorts the pixels by patches first. A patch is one piece of memory then, and
// one launch computes an output.
#pragma once

#include "parts/steps.cuh"

namespace patch_embedding {

// An image's pixels by patches, each [3, 16, 16] as a filter is: [batch, patches, 768]. Of the first
// `images` and `patches` alone, which leaves no gap: image i begins at i * patches * 768.
inline void sort_by_patches(const half* image, half* patches_out, const Shape& shape, int images,
                            int patches) {
  for (int i = 0; i < images; ++i)
    for (int p = 0; p < patches; ++p)
      for (int color = 0; color < kColors; ++color)
        for (int row = 0; row < kSide; ++row) {
          const int x = p % shape.patch_columns() * kSide, y = p / shape.patch_columns() * kSide;
          const half* const from =
              image + ((int64_t(i) * kColors + color) * shape.height + y + row) * shape.width + x;
          half* const to = patches_out +
                           ((int64_t(i) * patches + p) * kColors + color) * kSide * kSide +
                           row * kSide;
          for (int column = 0; column < kSide; ++column) to[column] = from[column];
        }
}

constexpr int kDotThreads = kPatchValues / 8;  // 8 values a thread, 16 bytes: 3 warps

// *token = patch · filter + offset.
static __global__ void __launch_bounds__(kDotThreads)
    dot_kernel(const half* patch, const half* filter, float offset, half* token) {
  __shared__ float of_warp[kDotThreads / 32];
  const uint4 p = reinterpret_cast<const uint4*>(patch)[threadIdx.x];
  const uint4 f = reinterpret_cast<const uint4*>(filter)[threadIdx.x];
  const half *pixels = reinterpret_cast<const half*>(&p),
             *weights = reinterpret_cast<const half*>(&f);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += __half2float(pixels[i]) * __half2float(weights[i]);
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_down_sync(0xffffffff, sum, distance);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) *token = __float2half(of_warp[0] + of_warp[1] + of_warp[2] + offset);
}

// What an output needs on the device: a patch, a filter, the token, which is rounded up to 16 bytes.
inline constexpr size_t kDotBytes = 2 * kPatchValues * sizeof(half) + 16;
struct DotMemory {
  half *patch, *filter, *token;
  explicit DotMemory(void* memory)
      : patch(static_cast<half*>(memory)),
        filter(patch + kPatchValues),
        token(filter + kPatchValues) {}
};

inline Traffic unified_traffic(const Part& part) {
  const int64_t outputs = part.outputs();
  return {outputs,           outputs,
          2 * outputs,       2 * outputs * kPatchValues * int64_t(sizeof(half)),
          outputs,           outputs * int64_t(sizeof(half)),
          int64_t(kDotBytes)};
}

// The tokens of a part, all in host memory. `patches`: room for the part's patches in the host's
// memory, 768 values each; `memory`: kDotBytes on the device. Throws as channel_launches().
inline void unified(const Inputs& in, half* tokens, const Shape& shape, const Part& part,
                    half* patches, void* memory) {
  require_shape(shape, part);
  const DotMemory device(memory);
  constexpr size_t kBytes = kPatchValues * sizeof(half);
  write_class_rows(in, tokens, shape, part);
  sort_by_patches(in.image, patches, shape, part.images, part.patches);
  for_each_output(part, [&](int image, int patch, int channel) {
    const int64_t number = int64_t(image) * part.patches + patch;
    copy_to_device(device.patch, patches + number * kPatchValues, kBytes, nullptr);
    copy_to_device(device.filter, in.weight + int64_t(channel) * kPatchValues, kBytes, nullptr);
    dot_kernel<<<1, kDotThreads>>>(device.patch, device.filter,
                                   offset_of(in, shape, patch, channel), device.token);
    copy_to_host(tokens + token_at(shape, image, 1 + patch, channel), device.token, sizeof(half),
                 nullptr);
    require_success(cudaDeviceSynchronize(), "an output");
  });
}

}  // namespace patch_embedding
