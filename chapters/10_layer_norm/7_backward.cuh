// The way back. With g = dy · scale, n = (x - mean) · factor and factor = 1 / sqrt(variance + epsilon):
//
//   dx     = factor · (g - mean of g - n · mean of g n)     means over the row: a warp has all of it
//   dscale = Σ over rows of dy · n                           sums over columns: no block has all rows
//   dbias  = Σ over rows of dy
//
// The sums over rows come in two stages, or by atomic additions.
#pragma once

#include "parts/elements.cuh"

namespace layer_norm {

// ---- dx -----------------------------------------------------------------------------------------

// A warp a row; x and dy are read once and kept. kWidth elements an access, kPieces of them a lane.
// With 0 pieces nothing is kept: a row that is too long for registers is read again for each sum.
template <class T, int kWidth, int kPieces>
__global__ void __launch_bounds__(kThreads) dx_kernel(const T* dy,       // [rows, columns]
                                                      const T* x,        // [rows, columns]
                                                      const T* scale,    // [columns]
                                                      T* dx,             // [rows, columns]
                                                      Moments* moments,  // [rows]
                                                      const Shape shape) {
  using Wide = Piece<T, kWidth>;
  const int columns = shape.columns, pieces = columns / kWidth, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= shape.rows) return;
  const Wide* x_row = reinterpret_cast<const Wide*>(x + row * columns);
  const Wide* dy_row = reinterpret_cast<const Wide*>(dy + row * columns);
  const Wide* scales = reinterpret_cast<const Wide*>(scale);

  constexpr bool kKeeps = kPieces > 0;
  const int count = kKeeps ? kPieces : (pieces + 31) / 32;
  Wide kept_x[kKeeps ? kPieces : 1], kept_dy[kKeeps ? kPieces : 1];
  const auto here = [&](int p) { return lane + p * 32 < pieces; };
  if constexpr (kKeeps)
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      kept_x[p] = here(p) ? x_row[lane + p * 32] : Wide{};
      kept_dy[p] = here(p) ? dy_row[lane + p * 32] : Wide{};
    }
  const auto piece = [&](const auto& kept, const Wide* row_pieces, int p) {
    if constexpr (kKeeps)
      return kept[p];
    else
      return row_pieces[lane + p * 32];
  };
  // Calls use(p, piece of x) for each piece p of the lane.
  const auto for_each_piece = [&](const auto& use) {
#pragma unroll
    for (int p = 0; p < count; ++p)
      if (here(p)) use(p, piece(kept_x, x_row, p));
  };

  // The forward step's mean and variance once more: cheaper than to store n.
  float sum = 0.0f;
  for_each_piece([&](int, const Wide& values) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum += widened(values.element[e]);
  });
  const float mean = sum_of_warp(sum) / float(columns);
  float squares = 0.0f;
  for_each_piece([&](int, const Wide& values) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float distance = widened(values.element[e]) - mean;
      squares += distance * distance;
    }
  });
  const float factor = rsqrtf(sum_of_warp(squares) / float(columns) + shape.epsilon);
  if (lane == 0) moments[row] = {mean, factor};

  // Mean of g, and of g n.
  float sum_g = 0.0f, sum_gn = 0.0f;
  for_each_piece([&](int p, const Wide& values) {
    const Wide grads = piece(kept_dy, dy_row, p), scale_here = scales[lane + p * 32];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float g = widened(grads.element[e]) * widened(scale_here.element[e]);
      sum_g += g;
      sum_gn += g * ((widened(values.element[e]) - mean) * factor);
    }
  });
  const float mean_g = sum_of_warp(sum_g) / float(columns);
  const float mean_gn = sum_of_warp(sum_gn) / float(columns);

  // Write.
  for_each_piece([&](int p, const Wide& values) {
    const Wide grads = piece(kept_dy, dy_row, p), scale_here = scales[lane + p * 32];
    Wide result;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      const float g = widened(grads.element[e]) * widened(scale_here.element[e]);
      const float n = (widened(values.element[e]) - mean) * factor;
      result.element[e] = rounded<T>(factor * (g - mean_g - n * mean_gn));
    }
    reinterpret_cast<Wide*>(dx + row * columns)[lane + p * 32] = result;
  });
}

// dx and each row's moments. As a row's pieces of 16 bytes, or element by element where that cannot
// be (takes_pieces()). dx may be dy or x. Throws std::invalid_argument naming the shape and the limit
// when it cannot, std::runtime_error when CUDA refuses.
template <class T>
void backward_dx(const T* dy, const T* x, const T* scale, T* dx, Moments* moments,
                 const Shape& shape, cudaStream_t stream) {
  require_arguments(shape, dy, x, scale, dx, moments);
  const auto launch = [&]<int kWidth, int kPieces>() {
    dx_kernel<T, kWidth, kPieces>
        <<<blocks_of(shape.rows, kWarps), kThreads, 0, stream>>>(dy, x, scale, dx, moments, shape);
  };
  const bool wide = takes_pieces<T>(shape, dy, x, scale, dx);
  const bool kept =
      wide ? with_count<1, 2, 3, 4, 8, 16>(
                 pieces_of_lane<T>(shape),
                 [&]<int kPieces>() { launch.template operator()<kWide<T>, kPieces>(); })
           : with_count<4, 24, 64>((shape.columns + 31) / 32, [&]<int kPieces>() {
               launch.template operator()<1, kPieces>();
             });
  if (!kept && wide) launch.template operator()<kWide<T>, 0>();
  if (!kept && !wide) launch.template operator()<1, 0>();
  require_launched(cudaGetLastError(), shape);
}

// ---- dscale and dbias ---------------------------------------------------------------------------

// Rows are dealt out in slabs, columns in tiles of 32 lanes' pieces: a block has one of each.
constexpr int kSlabRows = 64;
inline int slabs_of(const Shape& shape) { return (shape.rows + kSlabRows - 1) / kSlabRows; }

// Where the sums of a slab go: to a place of its own, [slabs, 2, columns], or added to the result.
enum class Sums { kStored, kAdded };

template <class T, int kWidth, Sums kSums>
__global__ void __launch_bounds__(kThreads)
    slab_kernel(const T* dy,             // [rows, columns]
                const T* x,              // [rows, columns]
                const Moments* moments,  // [rows]
                float* dscale,           // [columns], or of slab s at dscale + s · 2 · columns
                float* dbias,            // the same
                const Shape shape) {
  using Wide = Piece<T, kWidth>;
  // Written a lane's piece beside the next lane's, read a column beside the next: with lines of this
  // length both meet each bank once.
  constexpr int kLine = 32 + 32 / kWidth;
  __shared__ float of_warps[2][kWarps][kWidth][kLine];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = (blockIdx.y * 32 + lane) * kWidth, columns = shape.columns;
  const int first = blockIdx.x * kSlabRows, last = min(first + kSlabRows, shape.rows);

  // A warp takes every eighth row of the slab.
  float scale_sum[kWidth] = {}, bias_sum[kWidth] = {};
  if (column < columns)
#pragma unroll 4
    for (int row = first + warp; row < last; row += kWarps) {
      const int64_t at = int64_t(row) * columns + column;
      const Wide grads = *reinterpret_cast<const Wide*>(dy + at);
      const Wide values = *reinterpret_cast<const Wide*>(x + at);
      const Moments of_row = moments[row];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float grad = widened(grads.element[e]);
        scale_sum[e] += grad * ((widened(values.element[e]) - of_row.mean) * of_row.factor);
        bias_sum[e] += grad;
      }
    }

#pragma unroll
  // The block's warps meet in shared memory, always in the same order.
  for (int e = 0; e < kWidth; ++e) {
    of_warps[0][warp][e][lane] = scale_sum[e];
    of_warps[1][warp][e][lane] = bias_sum[e];
  }
  __syncthreads();
  const int64_t slab = kSums == Sums::kStored ? int64_t(blockIdx.x) * 2 * columns : 0;
  constexpr int kTile = 32 * kWidth;
  for (int i = threadIdx.x; i < 2 * kTile; i += kThreads) {
    const int in_tile = i % kTile, mine = blockIdx.y * kTile + in_tile;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w)
      total += of_warps[i / kTile][w][in_tile % kWidth][in_tile / kWidth];
    if (mine >= columns) continue;
    float* const place = (i < kTile ? dscale : dbias) + slab + mine;
    if constexpr (kSums == Sums::kStored)
      *place = total;
    else
      atomicAdd(place, total);
  }
}

// The second stage: 32 columns a block, whose warps take every eighth slab.
static __global__ void __launch_bounds__(kThreads)
    finish_kernel(const float* partials,  // [slabs, 2, columns]
                  float* dscale,          // [columns]
                  float* dbias,           // [columns]
                  int slabs, int columns) {
  __shared__ float of_warps[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int i = blockIdx.x * 32 + lane;  // sum to finish: 0 ... 2 · columns - 1
  float sum = 0.0f;
  if (i < 2 * columns)
    for (int slab = warp; slab < slabs; slab += kWarps)
      sum += partials[int64_t(slab) * 2 * columns + i];
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || i >= 2 * columns) return;
  float total = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += of_warps[w][lane];
  (i < columns ? dscale : dbias - columns)[i] = total;
}

template <class T, Sums kSums>
void launch_slabs(const T* dy, const T* x, const Moments* moments, float* dscale, float* dbias,
                  const Shape& shape, cudaStream_t stream) {
  const auto launch = [&]<int kWidth>() {
    const dim3 grid(slabs_of(shape), blocks_of(shape.columns, 32 * kWidth));
    slab_kernel<T, kWidth, kSums>
        <<<grid, kThreads, 0, stream>>>(dy, x, moments, dscale, dbias, shape);
  };
  if (takes_pieces<T>(shape, dy, x))
    launch.template operator()<kWide<T>>();
  else
    launch.template operator()<1>();
  require_launched(cudaGetLastError(), shape);
}

// Floats that the two stages hand over: [slabs, 2, columns].
inline int64_t partial_count(const Shape& shape) {
  return int64_t(slabs_of(shape)) * 2 * shape.columns;
}

// The first stage: each slab's sums, from the moments of backward_dx(). Throws std::invalid_argument
// naming the shape and the limit when it cannot, std::runtime_error when CUDA refuses.
template <class T>
void slab_sums(const T* dy, const T* x, const Moments* moments, float* partials, const Shape& shape,
               cudaStream_t stream) {
  require_arguments(shape, dy, x, moments, partials);
  launch_slabs<T, Sums::kStored>(dy, x, moments, partials, partials + shape.columns, shape, stream);
}
// The second stage: dscale and dbias, [columns] in fp32, the same bits every time. Throws as
// slab_sums().
inline void column_sums(const float* partials, float* dscale, float* dbias, const Shape& shape,
                        cudaStream_t stream) {
  require_arguments(shape, partials, dscale, dbias);
  finish_kernel<<<blocks_of(2 * shape.columns, 32), kThreads, 0, stream>>>(
      partials, dscale, dbias, slabs_of(shape), shape.columns);
  require_launched(cudaGetLastError(), shape);
}

// The same by atomic additions to dscale and dbias, which are set to 0 first. Blocks add in the order
// in which they end: sums are rounded otherwise each time. Throws as slab_sums().
template <class T>
void backward_atomics(const T* dy, const T* x, const Moments* moments, float* dscale, float* dbias,
                      const Shape& shape, cudaStream_t stream) {
  require_arguments(shape, dy, x, moments, dscale, dbias);
  const size_t bytes = size_t(shape.columns) * sizeof(float);
  require_launched(cudaMemsetAsync(dscale, 0, bytes, stream), shape);
  require_launched(cudaMemsetAsync(dbias, 0, bytes, stream), shape);
  launch_slabs<T, Sums::kAdded>(dy, x, moments, dscale, dbias, shape, stream);
}

}  // namespace layer_norm
