// Rows of a map on their way through shared memory, [rows, columns, kGroup channels], zeros where
// the map has nothing: that is the convolution's padding.
#pragma once

#include "../../../../common/tile/tile.cuh"
#include "elements.cuh"

namespace conv_projection {

// A rectangle of a map: what a block copies of one array for one of its steps, kRows rows of it.
struct Window {
  int row, column, columns;      // where it begins in the map
  int top, bottom, left, right;  // what there is of it: rows [top, bottom), columns [left, right)
  int width;                     // the map's columns
};

// Brings a window of `map` (one sample's first token behind its class tokens) to shared memory, by
// all threads of the block: asynchronously in pieces of 16 bytes, or element by element.
template <bool kPieces, int kRows, class T>
__device__ void copy_window(T* to_shared, const T* map, const Window& window, int channel,
                            int channels) {
  constexpr int kWidth = kPieces ? kOfPiece<T> : 1, kOfPixel = kGroup / kWidth;
  const int piece = threadIdx.x % kOfPixel, my_channel = channel + piece * kWidth;
  for (int c = threadIdx.x / kOfPixel; c < window.columns; c += blockDim.x / kOfPixel) {
    const int column = window.column + c;
    const bool column_there =
        column >= window.left && column < window.right && my_channel < channels;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = window.row + r;
      const bool there = column_there && row >= window.top && row < window.bottom;
      const int at = there ? (row * window.width + column) * channels + my_channel : 0;
      T* const to = to_shared + (r * window.columns + c) * kGroup + piece * kWidth;
      if constexpr (kPieces)
        tile::copy_async(tile::shared_address(to), map + at, there);
      else
        *to = there ? map[at] : T(0.0f);
    }
  }
}

// One convolution's weights of a group of channels, which are read nine numbers apart.
struct GroupWeights {
  float of[3][kGroup * 9];
  // By all threads of the block, which meet before they read.
  __device__ void load(const Three<const float*>& weights,  // [channels, 3, 3] each
                       int channel, int channels) {
    const int count = min(kGroup, channels - channel) * 9;
#pragma unroll
    for (int which = 0; which < 3; ++which)
      for (int i = threadIdx.x; i < kGroup * 9; i += blockDim.x)
        of[which][i] = i < count ? weights.of[which][channel * 9 + i] : 0.0f;
  }
};

// How much shared memory a block takes: at most 48 KiB unless it is asked for.
template <class Kernel>
void require_shared_memory(Kernel* kernel, size_t bytes, const Shape& shape) {
  if (bytes > 48 * 1024)
    require_launched(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
        shape);
}

}  // namespace conv_projection
