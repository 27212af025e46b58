// STARTER
//| // Exercise 9, from an empty function: photos to patches. Steps 2 to 5 of the chapter let the *host* sort
//| // pixels by patches, after it has turned bytes into standardized fp16 numbers. Both belong on the device:
//| // then a photo crosses the link as bytes, half as many, and the host has nothing left to compute.
//| //
//| //   patches = (photos / 255 - mean) / deviation
//| //
//| // A photo has its three colours side by side, pixel by pixel; a patch has them one after the other.
//| //
//| // Nothing is given but the function. Kernel, grid and launch are yours. Then
//| // `make exercise9 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
//| // 50 for
//| //
//| //    5  one launch
//| //   10  stores: the patches, once, and nothing else
//| //   10  photos: loaded once
//| //   10  loads of photos: as few requests as 8 bytes a lane allow
//| //   15  stores: the lanes of a warp side by side, no sector written in two pieces
// SOLUTION
// Exercise 9, photos to patches: a solution. The exercise itself is in exercise.cuh.
//
// A warp takes a patch, a lane 8 pixels of one of its rows: 24 bytes, three loads of 8. Of each colour it
// then has 8 values, 16 bytes, and the lanes of a warp store 512 bytes side by side.
// END
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// SOLUTION
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
// END

// patches = (photos / 255 - mean) / deviation, sorted by patches.
//   photos    [batch, height, width, 3], bytes
//   colors    [6]: the mean of each colour, then the deviation of each
//   patches   [batch, patches, 3, 16, 16] fp16; patches of an image are numbered row by row. All arrays
//             are on the device and start at multiples of 16 bytes
//   shape     batch; height and width in pixels, multiples of 16
//   stream    for all that is launched
inline void photos_to_patches(const unsigned char* photos, const float* colors, half* patches,
                              const patch_embedding::Shape& shape, cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)photos, (void)colors, (void)patches, (void)shape, (void)stream;
  // SOLUTION
  const int all = shape.batch * shape.patches(), of_block = kThreads / 32;
  patches_kernel<<<(all + of_block - 1) / of_block, kThreads, 0, stream>>>(
      photos, colors, patches, shape.height, shape.width, all);
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Begin with one thread for each value of `patches`. Which image, patch, colour, row and column is
//| //    value number i? Where does its byte lie?
//| // 2. 8 pixels are 24 bytes, and begin at a multiple of 8 bytes, since a row of 16 pixels has 48. What can a
//| //    lane do with three loads of 8 bytes?
//| // 3. From these 24 bytes come 8 values of each colour: 16 bytes, one store a colour. A row of a patch is
//| //    two such pieces, a patch has 16 rows: which lanes have which?
//| // 4. A warp has 32 lanes, and a colour of a patch 32 pieces of 16 bytes, which lie side by side.
// END
