// What the steps of this chapter share and none of them changes: elements in fp16 and fp32, sums of a
// warp, and what a launch is checked for. A step's own file shows its idea.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../shape.h"

namespace layer_norm {

using Shape = ::LayerNormShape;
using Moments = ::LayerNormMoments;

constexpr int kThreads = 256;  // per block, in every step
constexpr int kWarps = kThreads / 32;

// ---- Elements -----------------------------------------------------------------------------------

__device__ inline float widened(half value) { return __half2float(value); }
__device__ inline float widened(float value) { return value; }
template <class T>
__device__ T rounded(float value);
template <>
__device__ inline half rounded<half>(float value) {
  return __float2half(value);
}
template <>
__device__ inline float rounded<float>(float value) {
  return value;
}

// What a lane loads or stores at a time: kWidth elements, which lie at a multiple of their size.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Piece {
  T element[kWidth];
};
// Elements in 16 bytes, the widest access there is.
template <class T>
constexpr int kWide = 16 / int(sizeof(T));

// ---- Sums ---------------------------------------------------------------------------------------

// The sum over a warp's lanes, in all of them; in the same order every time.
__device__ inline float sum_of_warp(float own) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    own += __shfl_xor_sync(0xffffffffu, own, distance);
  return own;
}

// ---- Launches -----------------------------------------------------------------------------------

// Throws std::invalid_argument naming what is wrong.
template <class... Arrays>
void require_arguments(const Shape& shape, const Arrays*... arrays) {
  require_shape(shape);
  if ((... || (arrays == nullptr)))
    throw std::invalid_argument("layer norm of shape " + describe(shape) +
                                ": no array may be null");
}
// Throws std::runtime_error when CUDA refused the launch.
inline void require_launched(cudaError_t error, const Shape& shape) {
  if (error != cudaSuccess)
    throw std::runtime_error("layer norm of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

// Whether all rows can be moved 16 bytes at a time: columns fill whole pieces, and each array starts
// at a multiple of 16 bytes.
template <class T, class... Arrays>
bool takes_pieces(const Shape& shape, const Arrays*... arrays) {
  return shape.columns % kWide<T> == 0 && (... && (reinterpret_cast<uintptr_t>(arrays) % 16 == 0));
}

// How many of its row's pieces of 16 bytes a lane has, where there are any.
template <class T>
int pieces_of_lane(const Shape& shape) {
  return (shape.columns / kWide<T> + 31) / 32;
}

inline unsigned blocks_of(int64_t count, int64_t a_block) {
  return unsigned((count + a_block - 1) / a_block);
}

// Calls run with the first of kCounts that is at least `needed`, as its template argument: how long
// an array in registers is must be known to the compiler. False where all are less.
template <int... kCounts, class Run>
bool with_count(int needed, const Run& run) {
  bool found = false;
  const auto try_one = [&]<int kCount>() {
    if (found || needed > kCount) return;
    found = true;
    run.template operator()<kCount>();
  };
  (try_one.template operator()<kCounts>(), ...);
  return found;
}

}  // namespace layer_norm
