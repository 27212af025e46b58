// Exercise 9, photos to patches: a solution. The exercise itself is in exercise.cuh.
//
// A warp takes a patch, a lane 8 pixels of one of its rows: 24 bytes, three loads of 8. Of each colour it
// then has 8 values, 16 bytes, and the lanes of a warp store 512 bytes side by side.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

constexpr int kThreads = 128, kRun = 8;  // pixels of a lane

__global__ void __launch_bounds__(kThreads)
    patches_kernel(const unsigned char* photos,  // [batch, height, width, 3]
                   const float* colors,          // mean of each colour, then deviation
                   half* patches,                // [batch, patches, 3, 16, 16]
                   int height, int width, int all_patches) {
  const int patch = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (patch >= all_patches) return;
  const int columns = width / 16, in_image = height / 16 * columns;
  const int image = patch / in_image, p = patch % in_image;
  const int y = p / columns * 16 + lane / 2, x = p % columns * 16 + lane % 2 * kRun;
  const uint2* const from =
      reinterpret_cast<const uint2*>(photos + ((int64_t(image) * height + y) * width + x) * 3);
  const uint2 loaded[3] = {from[0], from[1], from[2]};
  const unsigned word[6] = {loaded[0].x, loaded[0].y, loaded[1].x,
                            loaded[1].y, loaded[2].x, loaded[2].y};
#pragma unroll
  for (int color = 0; color < 3; ++color) {
    const float mean = colors[color], deviation = colors[3 + color];
    half values[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const int byte = 3 * i + color;
      const float value = float(word[byte / 4] >> (byte % 4 * 8) & 255) / 255.0f;
      values[i] = __float2half((value - mean) / deviation);
    }
    *reinterpret_cast<uint4*>(patches + (int64_t(patch) * 3 + color) * 256 + lane * kRun) =
        *reinterpret_cast<const uint4*>(values);
  }
}

// patches = (photos / 255 - mean) / deviation, sorted by patches.
//   photos    [batch, height, width, 3], bytes
//   colors    [6]: the mean of each colour, then the deviation of each
//   patches   [batch, patches, 3, 16, 16] fp16; patches of an image are numbered row by row. All arrays
//             are on the device and start at multiples of 16 bytes
//   shape     batch; height and width in pixels, multiples of 16
//   stream    for all that is launched
inline void photos_to_patches(const unsigned char* photos, const float* colors, half* patches,
                              const patch_embedding::Shape& shape, cudaStream_t stream) {
  const int all = shape.batch * shape.patches(), of_block = kThreads / 32;
  patches_kernel<<<(all + of_block - 1) / of_block, kThreads, 0, stream>>>(
      photos, colors, patches, shape.height, shape.width, all);
}

}  // namespace exercise
