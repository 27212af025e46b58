// The net's components in their simplest form, one kernel each: numbers in fp16, sums in fp32. A
// chapter's step takes the place of each (components.h).
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "shape.h"

namespace vision_transformer::simple {

using vision_transformer::EmbedShape;
using vision_transformer::HeadsShape;
using vision_transformer::LinearShape;
using vision_transformer::NormShape;

// ---- What launches share ------------------------------------------------------------------------

// Throws std::runtime_error with CUDA's reason when it has refused a launch.
inline void require_launched(const char* component) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string(component) + ": " + cudaGetErrorString(error));
}

// Throws std::invalid_argument unless each array starts at a multiple of 16 bytes.
inline void require_aligned(const char* component, std::initializer_list<const half*> arrays) {
  for (const half* array : arrays)
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0)
      throw std::invalid_argument(std::string(component) +
                                  ": all arrays must start at a multiple of 16 bytes");
}

// ---- Products -----------------------------------------------------------------------------------

constexpr int kTile = 64;      // rows and columns of y that a block computes
constexpr int kDepth = 16;     // terms of each sum that it adds up at a time
constexpr int kPad = 4;        // floats behind each row of a tile
constexpr int kThreads = 256;  // 4 x 4 elements of y each

// Four neighbouring numbers; the address is a multiple of 8 bytes.
__device__ inline float4 load_half4(const half* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  const float2 low = __half22float2(reinterpret_cast<const half2&>(bits.x)),
               high = __half22float2(reinterpret_cast<const half2&>(bits.y));
  return make_float4(low.x, low.y, high.x, high.y);
}

// sum[i][j] = Σ left(row + i, k) right(column + j, k) over k < depth: the thread's 4 x 4 elements
// of the block's 64 x 64. load_left(row, k) and load_right(column, k) give four numbers from k on,
// zero beyond the last row. depth is a multiple of 4.
template <class LoadLeft, class LoadRight>
__device__ void tile_product(const LoadLeft& load_left, const LoadRight& load_right, int depth,
                             float (&sum)[4][4]) {
  // Transposed: one thread's four rows, or columns, are neighbours.
  __shared__ __align__(16) float left_tile[kDepth][kTile + kPad];
  __shared__ __align__(16) float right_tile[kDepth][kTile + kPad];
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  const int loaded_row = threadIdx.x / 4, loaded_k = threadIdx.x % 4 * 4;
  for (int first_k = 0; first_k < depth; first_k += kDepth) {
    // Load: each thread four numbers of either side, zero beyond the sums' end.
    const int k = first_k + loaded_k;
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float4 l = k < depth ? load_left(loaded_row, k) : zero;
    const float4 r = k < depth ? load_right(loaded_row, k) : zero;
    left_tile[loaded_k + 0][loaded_row] = l.x, right_tile[loaded_k + 0][loaded_row] = r.x;
    left_tile[loaded_k + 1][loaded_row] = l.y, right_tile[loaded_k + 1][loaded_row] = r.y;
    left_tile[loaded_k + 2][loaded_row] = l.z, right_tile[loaded_k + 2][loaded_row] = r.z;
    left_tile[loaded_k + 3][loaded_row] = l.w, right_tile[loaded_k + 3][loaded_row] = r.w;
    __syncthreads();

    // Compute: 16 multiply-adds for each two loads of 16 bytes.
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const float4 a = reinterpret_cast<const float4&>(left_tile[i][row]);
      const float4 b = reinterpret_cast<const float4&>(right_tile[i][column]);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
      for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 4; ++x) sum[y][x] = fmaf(as[y], bs[x], sum[y][x]);
    }
    __syncthreads();
  }
}

__device__ inline float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

// One block: 64 x 64 elements of y.
__global__ void __launch_bounds__(kThreads) linear_kernel(const half* x,         // [m, k]
                                                          const half* weight,    // [n, k]
                                                          const half* bias,      // [n], or null
                                                          const half* residual,  // [m, n], or null
                                                          half* y,               // [m, n]
                                                          LinearShape shape) {
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const auto load_x = [&](int row, int k) {
    row += first_row;
    return row < shape.m ? load_half4(x + int64_t(row) * shape.k + k) : zero;
  };
  const auto load_weight = [&](int column, int k) {
    column += first_column;
    return column < shape.n ? load_half4(weight + int64_t(column) * shape.k + k) : zero;
  };
  float sum[4][4] = {};
  tile_product(load_x, load_weight, shape.k, sum);

  // Write: bias, GELU and residual while the sums are in registers.
  for (int i = 0; i < 4; ++i) {
    const int row = first_row + threadIdx.x / 16 * 4 + i;
    const int column = first_column + threadIdx.x % 16 * 4;
    if (row >= shape.m) break;
    const int64_t at = int64_t(row) * shape.n;
    for (int j = column; j < column + 4 && j < shape.n; ++j) {
      float value = sum[i][j - column];
      if (bias) value += __half2float(bias[j]);
      if (shape.gelu) value = gelu(value);
      if (residual) value += __half2float(residual[at + j]);
      y[at + j] = __float2half(value);
    }
  }
}

// y = act(x weightᵀ + bias) + residual. bias and residual may be null. Throws
// std::invalid_argument naming what is wrong and the limit when it cannot.
inline void linear(const half* x, const half* weight, const half* bias, const half* residual,
                   half* y, const LinearShape& shape, cudaStream_t stream) {
  if (shape.m < 1 || shape.n < 1 || shape.k < 8 || shape.k % 8 != 0)
    throw std::invalid_argument("linear: m " + std::to_string(shape.m) + ", n " +
                                std::to_string(shape.n) + ", k " + std::to_string(shape.k) +
                                ": all must be at least 1, k a multiple of 8");
  require_aligned("linear", {x, weight, bias, residual, y});
  const dim3 grid((shape.n + kTile - 1) / kTile, (shape.m + kTile - 1) / kTile);
  if (grid.y > 65535)
    throw std::invalid_argument("linear: m " + std::to_string(shape.m) +
                                ": at most 4194240 rows, a grid's second number ends at 65535");
  linear_kernel<<<grid, kThreads, 0, stream>>>(x, weight, bias, residual, y, shape);
  require_launched("linear");
}

// One block: 64 patches of one image and 64 channels. The first block of an image also writes its
// class token.
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const half* image,        // [batch, 3, size, size]
                 const half* weight,       // [width, 3, patch, patch]
                 const half* bias,         // [width]
                 const half* class_token,  // [width]
                 const half* position,     // [tokens, width]
                 half* tokens,             // [batch, tokens, width]
                 EmbedShape shape) {
  const int first_patch = blockIdx.y * kTile, first_channel = blockIdx.x * kTile;
  const int grid = shape.size / shape.patch, patches = grid * grid;
  const int square = shape.patch * shape.patch, depth = 3 * square;
  const int64_t plane = int64_t(shape.size) * shape.size;
  const half* const own_image = image + blockIdx.z * 3 * plane;
  half* const own_tokens = tokens + int64_t(blockIdx.z) * (patches + 1) * shape.width;
  const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  // Value k of a patch: colour, row and column in the patch. Four neighbours are in one row.
  const auto load_patch = [&](int patch, int k) {
    patch += first_patch;
    if (patch >= patches) return zero;
    const int row = patch / grid * shape.patch + k % square / shape.patch;
    const int column = patch % grid * shape.patch + k % shape.patch;
    return load_half4(own_image + k / square * plane + int64_t(row) * shape.size + column);
  };
  const auto load_weight = [&](int channel, int k) {
    channel += first_channel;
    return channel < shape.width ? load_half4(weight + int64_t(channel) * depth + k) : zero;
  };
  float sum[4][4] = {};
  tile_product(load_patch, load_weight, depth, sum);

  for (int i = 0; i < 4; ++i) {
    const int patch = first_patch + threadIdx.x / 16 * 4 + i;
    const int channel = first_channel + threadIdx.x % 16 * 4;
    if (patch >= patches) break;
    const int64_t at = int64_t(patch + 1) * shape.width;
    for (int c = channel; c < channel + 4 && c < shape.width; ++c)
      own_tokens[at + c] = __float2half(sum[i][c - channel] + __half2float(bias[c]) +
                                        __half2float(position[at + c]));
  }
  const int channel = first_channel + threadIdx.x;
  if (blockIdx.y == 0 && threadIdx.x < kTile && channel < shape.width)
    own_tokens[channel] =
        __float2half(__half2float(class_token[channel]) + __half2float(position[channel]));
}

// tokens[b][0] = class_token + position[0], tokens[b][1 + p] = weight · (patch p) + bias +
// position[1 + p].
inline void embed(const half* image, const half* weight, const half* bias, const half* class_token,
                  const half* position, half* tokens, const EmbedShape& shape,
                  cudaStream_t stream) {
  if (shape.batch < 1 || shape.batch > 65535)
    throw std::invalid_argument("embed: batch " + std::to_string(shape.batch) +
                                ": must be from 1 to 65535");
  require_aligned("embed", {image, weight, bias, class_token, position, tokens});
  const int patches = shape.grid() * shape.grid();
  const dim3 grid((shape.width + kTile - 1) / kTile, (patches + kTile - 1) / kTile, shape.batch);
  embed_kernel<<<grid, kThreads, 0, stream>>>(image, weight, bias, class_token, position, tokens,
                                              shape);
  require_launched("embed");
}

// ---- LayerNorm ----------------------------------------------------------------------------------

constexpr int kNormThreads = 128;  // per block, which normalizes one row

// The sum over all threads of the block, in all of them.
__device__ inline float sum_of_block(float value) {
  __shared__ float sums[kNormThreads / 32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (const float part : sums) sum += part;
  __syncthreads();  // sums may be written again
  return sum;
}

// y = (x - mean) / sqrt(variance + epsilon) · scale + bias, with the population's variance. Three
// reads of the row: mean, variance around it, result. E[x²] - E[x]² would need one less and lose all
// digits where the mean is large.
__global__ void __launch_bounds__(kNormThreads)
    layer_norm_kernel(const half* x,                        // [rows, columns]
                      const half* scale, const half* bias,  // [columns]
                      half* y,                              // [rows, columns]
                      NormShape shape) {
  const half* const row = x + int64_t(blockIdx.x) * shape.columns;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < shape.columns; c += kNormThreads) sum += __half2float(row[c]);
  const float mean = sum_of_block(sum) / shape.columns;
  float squares = 0.0f;
  for (int c = threadIdx.x; c < shape.columns; c += kNormThreads) {
    const float deviation = __half2float(row[c]) - mean;
    squares = fmaf(deviation, deviation, squares);
  }
  const float factor = rsqrtf(sum_of_block(squares) / shape.columns + shape.epsilon);
  for (int c = threadIdx.x; c < shape.columns; c += kNormThreads)
    y[int64_t(blockIdx.x) * shape.columns + c] = __float2half(
        (__half2float(row[c]) - mean) * factor * __half2float(scale[c]) + __half2float(bias[c]));
}

inline void layer_norm(const half* x, const half* scale, const half* bias, half* y,
                       const NormShape& shape, cudaStream_t stream) {
  if (shape.rows < 1 || shape.columns < 1)
    throw std::invalid_argument("layer_norm: " + std::to_string(shape.rows) + " rows of " +
                                std::to_string(shape.columns) + ": both must be at least 1");
  layer_norm_kernel<<<shape.rows, kNormThreads, 0, stream>>>(x, scale, bias, y, shape);
  require_launched("layer_norm");
}

// ---- Where things lie ---------------------------------------------------------------------------

constexpr int kMoveThreads = 256;  // per block, each moves 16 bytes
constexpr int kPiece = 8;          // numbers in 16 bytes

// Piece `piece` of [batch, tokens, heads, head_dim] as a place in [batch, heads, tokens, head_dim].
__device__ inline int64_t place_by_heads(int64_t piece, const HeadsShape& shape) {
  const int pieces = shape.head_dim / kPiece;
  const int d = int(piece % pieces), head = int(piece / pieces % shape.heads);
  const int64_t row = piece / pieces / shape.heads;  // row of [batch, tokens]
  return (((row / shape.tokens) * shape.heads + head) * shape.tokens + row % shape.tokens) *
             shape.head_dim +
         d * kPiece;
}

// The thread's piece of an array of that many elements; -1 where there is none left.
__device__ inline int64_t own_piece(int64_t elements) {
  const int64_t piece = int64_t(blockIdx.x) * kMoveThreads + threadIdx.x;
  return piece < elements / kPiece ? piece : -1;
}

__global__ void split_kernel(const half* qkv,            // [batch, tokens, 3, heads, head_dim]
                             half* q, half* k, half* v,  // [batch, heads, tokens, head_dim]
                             HeadsShape shape) {
  const int64_t piece =
      own_piece(int64_t(shape.batch) * shape.tokens * shape.heads * shape.head_dim);
  if (piece < 0) return;
  const int of_row = shape.heads * shape.head_dim / kPiece;
  const int64_t row = piece / of_row, to = place_by_heads(piece, shape);
  const uint4* const from = reinterpret_cast<const uint4*>(qkv) + row * 3 * of_row + piece % of_row;
  reinterpret_cast<uint4&>(q[to]) = from[0];
  reinterpret_cast<uint4&>(k[to]) = from[of_row];
  reinterpret_cast<uint4&>(v[to]) = from[2 * of_row];
}

__global__ void merge_kernel(const half* by_heads,  // [batch, heads, tokens, head_dim]
                             half* merged,          // [batch, tokens, heads, head_dim]
                             HeadsShape shape) {
  const int64_t piece =
      own_piece(int64_t(shape.batch) * shape.tokens * shape.heads * shape.head_dim);
  if (piece < 0) return;
  reinterpret_cast<uint4&>(merged[piece * kPiece]) =
      reinterpret_cast<const uint4&>(by_heads[place_by_heads(piece, shape)]);
}

__global__ void class_tokens_kernel(const half* x,  // [batch, tokens, width]
                                    half* y,        // [batch, width]
                                    int batch, int tokens, int width) {
  const int64_t piece = own_piece(int64_t(batch) * width);
  if (piece < 0) return;
  const int of_row = width / kPiece;
  reinterpret_cast<uint4*>(y)[piece] =
      reinterpret_cast<const uint4*>(x)[piece / of_row * tokens * of_row + piece % of_row];
}

inline unsigned move_blocks(int64_t elements) {
  return unsigned((elements / kPiece + kMoveThreads - 1) / kMoveThreads);
}

// Throws std::invalid_argument where rows are no whole pieces of 16 bytes.
inline void require_pieces(const char* component, int elements) {
  if (elements % kPiece != 0)
    throw std::invalid_argument(std::string(component) + ": " + std::to_string(elements) +
                                " numbers a row, a multiple of 8 is needed");
}

inline void split(const half* qkv, half* q, half* k, half* v, const HeadsShape& shape,
                  cudaStream_t stream) {
  require_pieces("split", shape.head_dim);
  require_aligned("split", {qkv, q, k, v});
  split_kernel<<<move_blocks(shape.elements()), kMoveThreads, 0, stream>>>(qkv, q, k, v, shape);
  require_launched("split");
}

inline void merge(const half* by_heads, half* merged, const HeadsShape& shape,
                  cudaStream_t stream) {
  require_pieces("merge", shape.head_dim);
  require_aligned("merge", {by_heads, merged});
  merge_kernel<<<move_blocks(shape.elements()), kMoveThreads, 0, stream>>>(by_heads, merged, shape);
  require_launched("merge");
}

// The first token of each image.
inline void class_tokens(const half* x, half* y, int batch, int tokens, int width,
                         cudaStream_t stream) {
  require_pieces("class_tokens", width);
  require_aligned("class_tokens", {x, y});
  class_tokens_kernel<<<move_blocks(int64_t(batch) * width), kMoveThreads, 0, stream>>>(
      x, y, batch, tokens, width);
  require_launched("class_tokens");
}

}  // namespace vision_transformer::simple
