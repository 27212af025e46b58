// Exercise 9, from an empty function: photos to patches. Steps 2 to 5 of the chapter let the *host* sort
// pixels by patches, after it has turned bytes into standardized fp16 numbers. Both belong on the device:
// then a photo crosses the link as bytes, half as many, and the host has nothing left to compute.
//
//   patches = (photos / 255 - mean) / deviation
//
// A photo has its three colours side by side, pixel by pixel; a patch has them one after the other.
//
// Nothing is given but the function. Kernel, grid and launch are yours. Then
// `make exercise9 && ./run` grades it: 30 points for right results, 20 for no finding of any check, and
// 50 for
//
//    5  one launch
//   10  stores: the patches, once, and nothing else
//   10  photos: loaded once
//   10  loads of photos: as few requests as 8 bytes a lane allow
//   15  stores: the lanes of a warp side by side, no sector written in two pieces
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../shape.h"

namespace exercise {

// patches = (photos / 255 - mean) / deviation, sorted by patches.
//   photos    [batch, height, width, 3], bytes
//   colors    [6]: the mean of each colour, then the deviation of each
//   patches   [batch, patches, 3, 16, 16] fp16; patches of an image are numbered row by row. All arrays
//             are on the device and start at multiples of 16 bytes
//   shape     batch; height and width in pixels, multiples of 16
//   stream    for all that is launched
inline void photos_to_patches(const unsigned char* photos, const float* colors, half* patches,
                              const patch_embedding::Shape& shape, cudaStream_t stream) {
  // HOLE: all of it. Kernels go above this function, their launches here.
  (void)photos, (void)colors, (void)patches, (void)shape, (void)stream;
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. Begin with one thread for each value of `patches`. Which image, patch, colour, row and column is
//    value number i? Where does its byte lie?
// 2. 8 pixels are 24 bytes, and begin at a multiple of 8 bytes, since a row of 16 pixels has 48. What can a
//    lane do with three loads of 8 bytes?
// 3. From these 24 bytes come 8 values of each colour: 16 bytes, one store a colour. A row of a patch is
//    two such pieces, a patch has 16 rows: which lanes have which?
// 4. A warp has 32 lanes, and a colour of a patch 32 pieces of 16 bytes, which lie side by side.
