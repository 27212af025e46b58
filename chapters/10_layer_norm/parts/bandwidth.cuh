// The measure of this chapter: how long a copy of the same bytes takes. LayerNorm reads x once and
// writes y once; nothing that does so is faster than this.
#pragma once

#include "elements.cuh"

namespace layer_norm {

// A thread for each 16 bytes; the last thread takes what is less.
static __global__ void __launch_bounds__(kThreads)
    copy_kernel(const char* from, char* to, int64_t bytes) {
  const int64_t at = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * 16;
  if (at + 16 <= bytes) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  } else {
    for (int64_t i = at; i < bytes; ++i) to[i] = from[i];
  }
}

// y = x; both start at a multiple of 16 bytes. Throws std::invalid_argument naming what is wrong,
// std::runtime_error when CUDA refuses.
template <class T>
void copy(const T* x, T* y, const Shape& shape, cudaStream_t stream) {
  require_arguments(shape, x, y);
  if (reinterpret_cast<uintptr_t>(x) % 16 || reinterpret_cast<uintptr_t>(y) % 16)
    throw std::invalid_argument("copy of shape " + describe(shape) +
                                ": arrays must start at a multiple of 16 bytes");
  const int64_t bytes = shape.elements() * int64_t(sizeof(T));
  copy_kernel<<<blocks_of(bytes, int64_t(kThreads) * 16), kThreads, 0, stream>>>(
      reinterpret_cast<const char*>(x), reinterpret_cast<char*>(y), bytes);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace layer_norm
