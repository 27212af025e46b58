// What the launches of all attention steps share: checks before the launch, the grid's size, the
// error after it. A step's own launch function says which kernel, grid and shared memory it takes.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "shape.h"

// Attention in one launch. Q, K, V, O: [batch, heads, tokens, head_dim]; scale_log2: log2_scale().
using AttentionKernel = void (*)(const half* Q, const half* K, const half* V, half* O, int tokens,
                                 float scale_log2);

// Throws std::invalid_argument unless each array starts at a multiple of 16 bytes. `names` is what
// the message calls the arrays: "Q, K and V".
inline void require_alignment(std::initializer_list<const half*> arrays, const char* names) {
  for (const half* array : arrays)
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0)
      throw std::invalid_argument("attention: " + std::string(names) +
                                  " must start at a multiple of 16 bytes");
}

// The instance of a kernel for head_dim, which require_attention_shape() has checked.
inline AttentionKernel kernel_for(int head_dim, AttentionKernel of_32, AttentionKernel of_64,
                                  AttentionKernel of_128) {
  return head_dim == 32 ? of_32 : head_dim == 64 ? of_64 : of_128;
}

// f(constant), where constant is head_dim as a std::integral_constant: f chooses a template's instance by
// it. require_attention_shape() has checked head_dim.
template <class F>
auto with_head_dim(int head_dim, const F& f) {
  if (head_dim == 32) return f(std::integral_constant<int, 32>{});
  if (head_dim == 64) return f(std::integral_constant<int, 64>{});
  return f(std::integral_constant<int, 128>{});
}

// Lets a kernel have so many bytes of shared memory per block. More than 48 KiB is only given on request.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, int bytes) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// A number of blocks as a one-dimensional grid. Throws std::invalid_argument beyond the limit of
// grid.x; `step` is what the message begins with.
inline unsigned grid_of(int64_t blocks, const AttentionShape& shape,
                        const char* step = "attention") {
  if (blocks > INT32_MAX)
    throw std::invalid_argument(std::string(step) + " of shape " + describe(shape) + ": " +
                                std::to_string(blocks) + " blocks, a grid has at most 2147483647");
  return unsigned(blocks);
}

// Blocks for all rows, query_rows of one (batch, head) in each. Throws as grid_of() does.
inline unsigned blocks_for(const AttentionShape& shape, int query_rows) {
  const int64_t row_blocks = (int64_t(shape.tokens) + query_rows - 1) / query_rows;
  return grid_of(shape.matrices() * row_blocks, shape);
}

// The scale for scores in units of log2: exp(x) = 2^(x log2(e)).
inline float log2_scale(const AttentionShape& shape) { return shape.scale * 1.44269504f; }

// Throws std::runtime_error with CUDA's reason when it has refused a launch.
inline void require_launched(cudaError_t error, const AttentionShape& shape,
                             const char* step = "attention") {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(step) + " of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

// The most shared memory that the current device gives a block on request, in bytes.
inline int shared_limit() {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

// The number of warps a block, 2, 4 or 8, that gives the busiest SM the least work; the most where
// several do. A block's work is 1 for each warp, with its warp_rows query rows, and 1 for the
// loads of K and V. More warps share each load, but a few large blocks leave SMs idle.
inline int warps_for(const AttentionShape& shape, int warp_rows) {
  int device = 0, sms = 1, best = 8;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  int64_t least = INT64_MAX;
  for (const int warps : {8, 4, 2}) {
    const int rows = warp_rows * warps;
    const int64_t blocks = shape.matrices() * ((int64_t(shape.tokens) + rows - 1) / rows);
    const int64_t blocks_of_sm = (blocks + sms - 1) / sms;
    if (blocks_of_sm * (warps + 1) >= least) continue;
    least = blocks_of_sm * (warps + 1);
    best = warps;
  }
  return best;
}

// f(constant), where constant is warps_for() as a std::integral_constant.
template <class F>
void with_warps(const AttentionShape& shape, int warp_rows, const F& f) {
  const int warps = warps_for(shape, warp_rows);
  if (warps == 2) return f(std::integral_constant<int, 2>{});
  if (warps == 4) return f(std::integral_constant<int, 4>{});
  return f(std::integral_constant<int, 8>{});
}
