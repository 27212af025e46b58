// Instance norm alone, in four steps: y = gamma · (x - mean) / sqrt(variance + eps) + beta with
// mean and variance of each plane, one (image, channel).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../shape.h"
#include "moments.cuh"

namespace fused_conv_norm {

// ---- 1: one thread a plane ----------------------------------------------------------------------

static __global__ void __launch_bounds__(32)
    naive_norm_kernel(const float* x,      // [batch, channels, plane]
                      const float* gamma,  // [channels]
                      const float* beta,   // [channels]
                      float* y,            // [batch, channels, plane]
                      const NormShape shape) {
  const int plane = blockIdx.x * 32 + threadIdx.x;
  if (plane >= shape.batch * shape.channels) return;
  const int channel = plane % shape.channels;
  const float* from = x + int64_t(plane) * shape.plane;
  float* to = y + int64_t(plane) * shape.plane;

  // Three times over the plane. Lanes side by side are a whole plane apart.
  Moments moments;
  for (int i = 0; i < shape.plane; ++i) {  // Welford 1962
    moments.count += 1;
    moments.mean += (from[i] - moments.mean) / moments.count;
  }
  float variance = 0, largest = 0;
  for (int i = 0; i < shape.plane; ++i) largest = fmaxf(largest, fabsf(from[i] - moments.mean));
  const float scale = square_scale(largest);
  for (int i = 0; i < shape.plane; ++i) {
    const float distance = (from[i] - moments.mean) * scale;
    variance += (distance * distance - variance) / float(i + 1);
  }
  const float factor = norm_factor(gamma[channel], sqrtf(variance) / scale, shape.eps);
  for (int i = 0; i < shape.plane; ++i) to[i] = fmaf(from[i] - moments.mean, factor, beta[channel]);
}

// ---- 2 to 4: a block a plane --------------------------------------------------------------------
// A load brings a piece of kPixels pixels: 1 (warp-reduced) or 4 (vectorized). With kKept 0 the
// plane is read twice, for its moments and to be normalized. Otherwise each thread keeps its
// pieces, at most kKept, in registers, and the plane is read once.

template <int kPixels, int kKept>
__global__ void __launch_bounds__(kNormThreads)
    norm_kernel(const float* x, const float* gamma, const float* beta, float* y,
                const NormShape shape) {
  static_assert(kPixels == 1 || kPixels == 4);
  __shared__ Moments shared[kNormWarps + 1];
  const int channel = blockIdx.x % shape.channels;
  const float* from = x + int64_t(blockIdx.x) * shape.plane;
  float* to = y + int64_t(blockIdx.x) * shape.plane;
  const int pieces = shape.plane / kPixels;

  // Read: neighbouring lanes read neighbouring pieces.
  float kept[kKept > 0 ? kKept : 1][kPixels];
  Running mine;
  const auto read = [&](int i, float(&value)[kPixels]) {
    if constexpr (kPixels == 4)
      *reinterpret_cast<float4*>(value) = reinterpret_cast<const float4*>(from)[i];
    else
      value[0] = from[i];
  };
  if constexpr (kKept > 0) {
#pragma unroll
    for (int n = 0; n < kKept; ++n)
      if (int(threadIdx.x) + n * kNormThreads < pieces)
        read(threadIdx.x + n * kNormThreads, kept[n]);
#pragma unroll
    for (int n = 0; n < kKept; ++n)
      if (int(threadIdx.x) + n * kNormThreads < pieces) mine.add(kept[n]);
  } else {
    for (int i = threadIdx.x; i < pieces; i += kNormThreads) {
      float value[kPixels];
      read(i, value);
      mine.add(value);
    }
  }

  // Reduce: by shuffles in each warp, then over the warps.
  const Moments all = moments_of_block(mine.moments(), shared);
  const float factor = norm_factor(gamma[channel], all.deviation, shape.eps);
  const float shift = beta[channel];

  // Write, from memory or from what was kept.
  const auto write = [&](int i, const float(&value)[kPixels]) {
    float result[kPixels];
#pragma unroll
    for (int c = 0; c < kPixels; ++c) result[c] = fmaf(value[c] - all.mean, factor, shift);
    if constexpr (kPixels == 4)
      reinterpret_cast<float4*>(to)[i] = *reinterpret_cast<const float4*>(result);
    else
      to[i] = result[0];
  };
  if constexpr (kKept > 0) {
#pragma unroll
    for (int n = 0; n < kKept; ++n)
      if (int(threadIdx.x) + n * kNormThreads < pieces)
        write(threadIdx.x + n * kNormThreads, kept[n]);
  } else {
    for (int i = threadIdx.x; i < pieces; i += kNormThreads) {
      float value[kPixels];
      read(i, value);
      write(i, value);
    }
  }
}

// ---- Launches -----------------------------------------------------------------------------------

// Throws std::invalid_argument naming what is wrong.
inline void require_norm(const float* x, const float* y, const NormShape& shape) {
  const int64_t elements = int64_t(shape.batch) * shape.channels * shape.plane;
  if (shape.batch < 1 || shape.channels < 1 || shape.plane < 1 ||
      int64_t(shape.batch) * shape.channels > INT32_MAX / shape.plane)
    throw std::invalid_argument(
        "instance norm of [batch " + std::to_string(shape.batch) + ", channels " +
        std::to_string(shape.channels) + ", plane " + std::to_string(shape.plane) +
        "]: all must be at least 1, and x must have fewer than 2^31 elements" +
        (elements > 0 ? "; it has " + std::to_string(elements) : ""));
  if (!x || !y) throw std::invalid_argument("instance norm: x and y must not be null");
}
inline void require_norm_launched(cudaError_t error) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("instance norm: ") + cudaGetErrorString(error));
}
// Loads of 16 bytes need planes that begin at multiples of that.
inline bool planes_are_aligned(const float* x, const float* y, const NormShape& shape) {
  return shape.plane % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(y) % 16 == 0;
}

// x and y may be the same array; gamma and beta have a number for each channel.
inline void naive_norm(const float* x, const float* gamma, const float* beta, float* y,
                       const NormShape& shape, cudaStream_t stream) {
  require_norm(x, y, shape);
  naive_norm_kernel<<<(shape.batch * shape.channels + 31) / 32, 32, 0, stream>>>(x, gamma, beta, y,
                                                                                 shape);
  require_norm_launched(cudaGetLastError());
}

template <int kPixels, int kKept>
void launch_norm(const float* x, const float* gamma, const float* beta, float* y,
                 const NormShape& shape, cudaStream_t stream) {
  norm_kernel<kPixels, kKept>
      <<<shape.batch * shape.channels, kNormThreads, 0, stream>>>(x, gamma, beta, y, shape);
  require_norm_launched(cudaGetLastError());
}

inline void warp_reduced_norm(const float* x, const float* gamma, const float* beta, float* y,
                              const NormShape& shape, cudaStream_t stream) {
  require_norm(x, y, shape);
  launch_norm<1, 0>(x, gamma, beta, y, shape, stream);
}

// As warp_reduced_norm() where planes do not begin at multiples of 16 bytes.
inline void vectorized_norm(const float* x, const float* gamma, const float* beta, float* y,
                            const NormShape& shape, cudaStream_t stream) {
  require_norm(x, y, shape);
  (planes_are_aligned(x, y, shape) ? launch_norm<4, 0> : launch_norm<1, 0>)(x, gamma, beta, y,
                                                                            shape, stream);
}

// The largest plane, in pixels, that one_read_norm() reads once.
inline int one_read_limit(bool aligned) { return kNormThreads * (aligned ? 4 * 12 : 32); }

// As vectorized_norm() where a plane is larger than one_read_limit().
inline void one_read_norm(const float* x, const float* gamma, const float* beta, float* y,
                          const NormShape& shape, cudaStream_t stream) {
  require_norm(x, y, shape);
  const bool aligned = planes_are_aligned(x, y, shape);
  const int pieces = (shape.plane / (aligned ? 4 : 1) + kNormThreads - 1) / kNormThreads;
  const auto launch = shape.plane > one_read_limit(aligned) ? vectorized_norm
                      : !aligned    ? pieces <= 8 ? launch_norm<1, 8> : launch_norm<1, 32>
                         : pieces <= 2 ? launch_norm<4, 2>
                      : pieces <= 8 ? launch_norm<4, 8>
                                    : launch_norm<4, 12>;
  launch(x, gamma, beta, y, shape, stream);
}

}  // namespace fused_conv_norm
