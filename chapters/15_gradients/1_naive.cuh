// Step 1, naive: the formula, one product a launch and one thread a result. The two matrices of
// tokens x tokens, P and dS, go to memory and come back for each product.
//
//   weights      P  = exp(scale Q Kᵀ - log_sum_exp)      the forward pass once more
//   dV           dV = Pᵀ dO
//   dP           dP = dO Vᵀ
//   dS           dS = P ∘ (dP - D)                       D = sum of P ∘ dP over the row
//   dQ, dK       dQ = scale dS K,  dK = scale dSᵀ Q
//
// All grids are one-dimensional: grid.y and grid.z end at 65535.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../../common/attention/launch.cuh"
#include "parts/pointers.h"

namespace gradients {

constexpr int kNaiveThreads = 256;

// Results of [batch, heads, tokens, columns], a thread each: where it is.
struct Place {
  int64_t row, matrix;  // (batch, head, token) and (batch, head)
  int token, column;
};
__device__ inline Place place_of(int64_t index, int tokens, int columns) {
  const int64_t row = index / columns, matrix = row / tokens;
  return {row, matrix, int(row - matrix * tokens), int(index - row * columns)};
}

__device__ inline float dot_product(const half* left, const half* right, int head_dim) {
  float sum = 0.0f;
  for (int d = 0; d < head_dim; ++d) sum += __half2float(left[d]) * __half2float(right[d]);
  return sum;
}

__global__ void weights_kernel(const half* Q,             // [batch, heads, tokens, head_dim]
                               const half* K,             // the same
                               const float* log_sum_exp,  // [batch, heads, tokens]
                               float* P,                  // [batch, heads, tokens, tokens]
                               int64_t count, int tokens, int head_dim, float scale) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const Place at = place_of(index, tokens, tokens);
  const float score =
      dot_product(Q + at.row * head_dim, K + (at.matrix * tokens + at.column) * head_dim, head_dim);
  P[index] = expf(score * scale - log_sum_exp[at.row]);
}

__global__ void dP_kernel(const half* dO,  // [batch, heads, tokens, head_dim]
                          const half* V,   // the same
                          float* dP,       // [batch, heads, tokens, tokens]
                          int64_t count, int tokens, int head_dim) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const Place at = place_of(index, tokens, tokens);
  dP[index] = dot_product(dO + at.row * head_dim, V + (at.matrix * tokens + at.column) * head_dim,
                          head_dim);
}

// A warp a row; dS takes the place of dP.
__global__ void dS_kernel(const float* P,  // [batch, heads, tokens, tokens]
                          float* dP,       // the same, then dS
                          int64_t rows, int tokens) {
  const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* const p_row = P + row * tokens;
  float* const d_row = dP + row * tokens;
  float mean = 0.0f;  // D, the mean of dP with the row's weights
#pragma unroll 1
  for (int key = lane; key < tokens; key += 32) mean += p_row[key] * d_row[key];
  for (int distance = 16; distance > 0; distance /= 2)
    mean += __shfl_xor_sync(0xffffffffu, mean, distance);
#pragma unroll 1
  for (int key = lane; key < tokens; key += 32) d_row[key] = p_row[key] * (d_row[key] - mean);
}

// A row of the result for each key: result = scale matrixᵀ rows, for dV and dK.
__global__ void sums_over_queries_kernel(const float* matrix,  // [batch, heads, tokens, tokens]
                                         const half* rows,     // [batch, heads, tokens, head_dim]
                                         half* result,         // the same
                                         int64_t count, int tokens, int head_dim, float scale) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const Place at = place_of(index, tokens, head_dim);
  const float* const column = matrix + at.matrix * tokens * tokens + at.token;
  const half* const values = rows + at.matrix * tokens * head_dim + at.column;
  float sum = 0.0f;
  for (int64_t query = 0; query < tokens; ++query)
    sum += column[query * tokens] * __half2float(values[query * head_dim]);
  result[index] = __float2half(sum * scale);
}

// A row of the result for each query: result = scale matrix rows, for dQ.
__global__ void sums_over_keys_kernel(const float* matrix, const half* rows, half* result,
                                      int64_t count, int tokens, int head_dim, float scale) {
  const int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const Place at = place_of(index, tokens, head_dim);
  const float* const weights = matrix + at.row * tokens;
  const half* const values = rows + at.matrix * tokens * head_dim + at.column;
  float sum = 0.0f;
  for (int64_t key = 0; key < tokens; ++key)
    sum += weights[key] * __half2float(values[key * head_dim]);
  result[index] = __float2half(sum * scale);
}

// ---- Launches -----------------------------------------------------------------------------------

// P and then dP, which becomes dS.
inline int64_t naive_workspace(const AttentionShape& shape) { return 2 * shape.scores(); }

inline unsigned naive_blocks(int64_t threads, const AttentionShape& shape) {
  require_attention_shape(shape);
  return grid_of((threads + kNaiveThreads - 1) / kNaiveThreads, shape, "naive gradients");
}

inline void naive_weights(const GradientPointers& p, const AttentionShape& shape,
                          cudaStream_t stream) {
  weights_kernel<<<naive_blocks(shape.scores(), shape), kNaiveThreads, 0, stream>>>(
      p.Q, p.K, p.log_sum_exp, p.workspace, shape.scores(), shape.tokens, shape.head_dim,
      shape.scale);
  require_launched(cudaGetLastError(), shape, "naive gradients");
}

inline void naive_dV(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  sums_over_queries_kernel<<<naive_blocks(shape.elements(), shape), kNaiveThreads, 0, stream>>>(
      p.workspace, p.dO, p.dV, shape.elements(), shape.tokens, shape.head_dim, 1.0f);
  require_launched(cudaGetLastError(), shape, "naive gradients");
}

inline void naive_dP(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  dP_kernel<<<naive_blocks(shape.scores(), shape), kNaiveThreads, 0, stream>>>(
      p.dO, p.V, p.workspace + shape.scores(), shape.scores(), shape.tokens, shape.head_dim);
  require_launched(cudaGetLastError(), shape, "naive gradients");
}

inline void naive_dS(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  dS_kernel<<<naive_blocks(32 * shape.rows(), shape), kNaiveThreads, 0, stream>>>(
      p.workspace, p.workspace + shape.scores(), shape.rows(), shape.tokens);
  require_launched(cudaGetLastError(), shape, "naive gradients");
}

inline void naive_dQ(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  sums_over_keys_kernel<<<naive_blocks(shape.elements(), shape), kNaiveThreads, 0, stream>>>(
      p.workspace + shape.scores(), p.K, p.dQ, shape.elements(), shape.tokens, shape.head_dim,
      shape.scale);
  require_launched(cudaGetLastError(), shape, "naive gradients");
}

inline void naive_dK(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  sums_over_queries_kernel<<<naive_blocks(shape.elements(), shape), kNaiveThreads, 0, stream>>>(
      p.workspace + shape.scores(), p.Q, p.dK, shape.elements(), shape.tokens, shape.head_dim,
      shape.scale);
  require_launched(cudaGetLastError(), shape, "naive gradients");
}

}  // namespace gradients
