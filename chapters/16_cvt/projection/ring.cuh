// Rows of a map on their way through shared memory, [rows, columns, kGroup channels], zeros where the
// map has nothing: that is the convolution's padding.
#pragma once

#include "../../../common/tile.cuh"
#include "elements.cuh"

namespace conv_projection {

// A rectangle of a map: what a block copies of one array for one of its steps.
struct Window {
  int row, rows, column, columns;  // where it begins in the map, and how much
  int top, bottom, left, right;    // what there is of it: rows [top, bottom), columns [left, right)
  int width;                       // the map's columns
};

// Brings a window of `map` (one sample's first token behind its class tokens) to shared memory, by all
// threads of the block: asynchronously in pieces of 16 bytes, or element by element.
template <bool kPieces, class T>
__device__ void copy_window(T* to_shared, const T* map, const Window& window, int channel,
                            int channels) {
  constexpr int kWidth = kPieces ? kOfPiece<T> : 1, kOfPixel = kGroup / kWidth;
  const int count = window.rows * window.columns * kOfPixel;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const int piece = i % kOfPixel, pixel = i / kOfPixel;
    const int in_row = pixel / window.columns;
    const int row = window.row + in_row, column = window.column + pixel - in_row * window.columns;
    const bool there = row >= window.top && row < window.bottom && column >= window.left &&
                       column < window.right && channel + piece * kWidth < channels;
    const int at = there ? (row * window.width + column) * channels + channel + piece * kWidth : 0;
    if constexpr (kPieces)
      tile::copy_async(tile::shared_address(to_shared + i * kWidth), map + at, there);
    else
      to_shared[i] = there ? map[at] : T(0.0f);
  }
}

// How much shared memory a block takes: at most 48 KiB unless it is asked for.
template <class Kernel>
void require_shared_memory(Kernel* kernel, size_t bytes, const Shape& shape) {
  if (bytes > 48 * 1024)
    require_launched(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
        shape);
}

}  // namespace conv_projection
