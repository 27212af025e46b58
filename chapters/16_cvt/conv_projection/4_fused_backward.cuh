// Step 4, fused, back: the gradients of all three projections in four launches. With
// n = (map - mean) / deviation, N positions and dy the gradient of what BatchNorm gave:
//
//   dshift = Σ dy                 dscale = Σ dy n
//   dmap   = factor · (dy - dshift / N - n · dscale / N)
//   dw[t]  = Σ dmap x             x at the position that tap t of the convolution sees
//   dx     = Σ dmap w[t]          over the outputs and taps that see a position
//
// dmap needs sums over all positions before its first number is known, so dy and map are read
// twice, and dmap is never stored. x is read once and dx written once:
//
//   sums         dy and map of q, k, v → Σ dy and Σ dy (map - mean) of slabs of rows
//   finish sums  → dscale, dshift, and dmap as factor · dy + slope · (map - mean) + constant
//   gather dx    dy, map, x → dx, and dw's 27 sums of each tile
//   sum dw       → dw
#pragma once

#include "parts/gradients.cuh"
#include "parts/ring.cuh"

namespace conv_projection {

// ---- Sums ---------------------------------------------------------------------------------------

constexpr int kSumThreads = 256, kSlabPasses = 8, kSumWarps = 32;

// A block has a slab of one sample's rows of q, k or v, and up to 32 pieces of each row.
struct Slabs {
  int tiles, lanes;  // a row has tiles · lanes pieces, or a few less
  int rows, q, kv;   // rows of a slab; slabs of a sample's q, and of its k or v
  __host__ __device__ int of_sample() const { return q + 2 * kv; }
};
inline Slabs slabs_of(const Shape& shape, int width) {
  Slabs slabs{};
  const int pieces = (shape.channels + width - 1) / width;
  slabs.tiles = (pieces + 31) / 32;
  slabs.lanes = (pieces + slabs.tiles - 1) / slabs.tiles;
  slabs.rows = kSumThreads / slabs.lanes * kSlabPasses;
  slabs.q = int(blocks_of(shape.height * shape.width, slabs.rows));
  slabs.kv = int(blocks_of(shape.out_height() * shape.out_width(), slabs.rows));
  return slabs;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kSumThreads)
    sums_kernel(const __grid_constant__ Three<const T*> maps,
                const __grid_constant__ Three<const T*> dmaps,
                const __grid_constant__ Three<const float*> means,
                float2* partials,  // [batch, slabs, channels]: Σ dy and Σ dy (map - mean)
                const __grid_constant__ Shape shape, const __grid_constant__ Slabs slabs) {
  using Wide = Piece<T, kWidth>;
  __shared__ float2 of_rows[kSumThreads * kWidth];
  const int sample = blockIdx.x / slabs.of_sample(), slab = blockIdx.x % slabs.of_sample();
  const int which = slab < slabs.q ? kQuery : slab < slabs.q + slabs.kv ? kKey : kValue;
  const int in_map = slab - (which == kQuery ? 0 : which == kKey ? slabs.q : slabs.q + slabs.kv);
  const int positions_all = positions(shape.height, shape.width, which);
  const int tokens = which == kQuery ? shape.queries() : shape.keys();
  const int lane = threadIdx.x % slabs.lanes, row = threadIdx.x / slabs.lanes;
  const int rows = kSumThreads / slabs.lanes;  // rows per pass
  const int channel = (blockIdx.y * slabs.lanes + lane) * kWidth;
  const bool mine = row < rows && channel < shape.channels;

  float sums[kWidth] = {}, products[kWidth] = {};
  if (mine) {
    float mean[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) mean[e] = means.of[which][channel + e];
    const int64_t base = (int64_t(sample) * tokens + shape.class_tokens) * shape.channels + channel;
    const int end = min((in_map + 1) * slabs.rows, positions_all);
#pragma unroll 4
    for (int r = in_map * slabs.rows + row; r < end; r += rows) {
      const int64_t at = base + int64_t(r) * shape.channels;
      const Wide map = *reinterpret_cast<const Wide*>(maps.of[which] + at);
      const Wide dy = *reinterpret_cast<const Wide*>(dmaps.of[which] + at);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float grad = widened(dy.element[e]);
        sums[e] += grad;
        products[e] += grad * (widened(map.element[e]) - mean[e]);
      }
    }
  }

  // The rows of a pass meet, always in the same order.
  const int line = slabs.lanes * kWidth;
#pragma unroll
  for (int e = 0; e < kWidth; ++e)
    if (row < rows) of_rows[row * line + e * slabs.lanes + lane] = {sums[e], products[e]};
  __syncthreads();
  for (int i = threadIdx.x; i < line; i += kSumThreads) {
    float2 total{};
    for (int r = 0; r < rows; ++r) {
      total.x += of_rows[r * line + i].x;
      total.y += of_rows[r * line + i].y;
    }
    const int to = (blockIdx.y * slabs.lanes + i % slabs.lanes) * kWidth + i / slabs.lanes;
    if (to < shape.channels) partials[int64_t(blockIdx.x) * shape.channels + to] = total;
  }
}

template <class T>
bool backward_takes_pieces(const BackwardArrays<T>& a, const Shape& shape) {
  return takes_pieces<T>(shape, {a.x, a.maps.of[0], a.maps.of[1], a.maps.of[2], a.dmaps.of[0],
                                 a.dmaps.of[1], a.dmaps.of[2]});
}
template <class T>
Slabs slabs_for(const BackwardArrays<T>& a, const Shape& shape) {
  return slabs_of(shape, backward_takes_pieces(a, shape) ? kOfPiece<T> : 1);
}

// partials: [batch · slabs of a sample, channels].
template <class T>
void backward_sums(const BackwardArrays<T>& a, float2* partials, const Shape& shape,
                   cudaStream_t stream) {
  const Slabs slabs = slabs_for(a, shape);
  const dim3 grid(unsigned(shape.batch) * slabs.of_sample(), slabs.tiles);
  const Three<const float*> means{a.saved.mean[0], a.saved.mean[1], a.saved.mean[2]};
  if (backward_takes_pieces(a, shape))
    sums_kernel<T, kOfPiece<T>>
        <<<grid, kSumThreads, 0, stream>>>(a.maps, a.dmaps, means, partials, shape, slabs);
  else
    sums_kernel<T, 1>
        <<<grid, kSumThreads, 0, stream>>>(a.maps, a.dmaps, means, partials, shape, slabs);
  require_launched(cudaGetLastError(), shape);
}

// dmap = factor · dy + slope · (map - mean) + constant
struct Slope {
  float factor, mean, slope, constant;
};

static __global__ void __launch_bounds__(32 * kSumWarps)
    finish_sums_kernel(const float2* partials,  // [batch, slabs, channels]
                       const __grid_constant__ Saved saved,
                       const __grid_constant__ Three<float*> dscale,
                       const __grid_constant__ Three<float*> dshift,
                       Slope* slopes,  // [3, channels]
                       bool constant, const __grid_constant__ Shape shape,
                       const __grid_constant__ Slabs slabs) {
  __shared__ float of_warps[kSumWarps][32];
  const int which = blockIdx.y, warp = threadIdx.x / 32, channels = shape.channels;
  const int channel = blockIdx.x * 32 + threadIdx.x % 32;
  const int count = which == kQuery ? slabs.q : slabs.kv;
  const int first = which == kQuery ? 0 : which == kKey ? slabs.q : slabs.q + slabs.kv;
  float2 sums{};
  if (channel < channels)
    for (int sample = warp; sample < shape.batch; sample += kSumWarps) {
      const float2* const mine =
          partials + (int64_t(sample) * slabs.of_sample() + first) * channels + channel;
#pragma unroll 8
      for (int i = 0; i < count; ++i) {
        sums.x += mine[int64_t(i) * channels].x;
        sums.y += mine[int64_t(i) * channels].y;
      }
    }
  sums.x = sum_of_warps(sums.x, of_warps);
  sums.y = sum_of_warps(sums.y, of_warps);
  if (warp > 0 || channel >= channels) return;
  const float inverse = saved.inverse_deviation[which][channel];
  const float factor = saved.factor[which][channel];
  // Constant statistics do not depend on the maps, as those of infinitely many positions do not.
  const float positions_all =
      constant ? INFINITY : float(shape.batch) * float(positions(shape.height, shape.width, which));
  dshift.of[which][channel] = sums.x;
  dscale.of[which][channel] = sums.y * inverse;
  slopes[which * channels + channel] = {factor, saved.mean[which][channel],
                                        -factor * inverse * inverse * (sums.y / positions_all),
                                        -factor * (sums.x / positions_all)};
}

template <class T>
void backward_finish(const BackwardArrays<T>& a, const float2* partials, Slope* slopes,
                     const Shape& shape, cudaStream_t stream) {
  const Gradients& g = a.gradients;
  const dim3 grid(blocks_of(shape.channels, 32), 3);
  finish_sums_kernel<<<grid, 32 * kSumWarps, 0, stream>>>(
      partials, a.saved, Three<float*>{g.scale[0], g.scale[1], g.scale[2]},
      Three<float*>{g.shift[0], g.shift[1], g.shift[2]}, slopes, a.constant, shape,
      slabs_for(a, shape));
  require_launched(cudaGetLastError(), shape);
}

// ---- Gather dx ----------------------------------------------------------------------------------

constexpr int kBackwardThreads = kMostColumns / kColumnsBack * kGroup;
template <class T>
constexpr int kBackwardStages = std::is_same_v<T, half> ? 3 : 2;  // 48 and 64 KB

// Where a stage of the ring has what: q and its gradient with a column more on either side, k's and
// v's with one more on the right, x as it is.
struct Places {
  int q_columns, kv_columns, x_columns;
  __host__ __device__ int q(int i) const { return i * 2 * q_columns * kGroup; }
  __host__ __device__ int kv(int i) const { return q(2) + i * kv_columns * kGroup; }
  __host__ __device__ int x() const { return kv(4); }
  __host__ __device__ int all() const { return x() + 2 * x_columns * kGroup; }
};
__host__ __device__ inline Places places_of(const Tiling& tiling) {
  return {tiling.columns + 2, tiling.columns / 2 + 1, tiling.columns};
}

__device__ inline float dmap_of(const Slope& slope, float dy, float map, bool there) {
  return there ? slope.factor * dy + (slope.slope * (map - slope.mean) + slope.constant) : 0.0f;
}

// What step j brings: rows 2j + 1 and 2j + 2 of q's gradient, row j + 1 of k's and v's, and rows 2j
// and 2j + 1 of x, whose neighbours are all there then.
struct BackWindows {
  Window q, kv, here;
};
__device__ __forceinline__ BackWindows back_windows(int j, const Tile& tile, const Places& places,
                                                    const Shape& shape, int out_height,
                                                    int out_width) {
  const int q_end = min(tile.right + 1, shape.width), kv_end = min(tile.right / 2 + 1, out_width);
  return {{2 * j + 1, tile.left - 1, places.q_columns, 0, shape.height, 0, q_end, shape.width},
          {j + 1, tile.left / 2, places.kv_columns, 0, out_height, 0, kv_end, out_width},
          {2 * j, tile.left, places.x_columns, tile.top, tile.bottom, tile.left, tile.right,
           shape.width}};
}

// The threads of a channel meet in shared memory, nine sums at a time, [9, parts, lanes]: dw's sums
// of the tile.
__device__ __forceinline__ void join_taps(float* of_parts, const float (&dw)[3][9],
                                          float* partials,  // [tiles, 27, channels]
                                          const Tile& tile, const Tiling& tiling, int channels,
                                          int in_group, int part) {
  const int parts = blockDim.x / tiling.lanes;
#pragma unroll
  for (int which = 0; which < 3; ++which) {
    __syncthreads();
    if (part < parts)
#pragma unroll
      for (int t = 0; t < 9; ++t)
        of_parts[(t * parts + part) * tiling.lanes + in_group] = dw[which][t];
    __syncthreads();
    for (int i = threadIdx.x; i < 9 * tiling.lanes; i += blockDim.x) {
      const int t = i / tiling.lanes, lane = i - t * tiling.lanes;
      float sum = 0;
      for (int p = 0; p < parts; ++p) sum += of_parts[(t * parts + p) * tiling.lanes + lane];
      if (tile.channel + lane < channels)
        partials[(int64_t(tile.number) * 27 + which * 9 + t) * channels + tile.channel + lane] =
            sum;
    }
  }
}

// The class token's gradient is the sum of its three copies'.
template <class T>
__device__ void add_class_token(const Three<const T*>& dmaps, T* dx, int sample, int channel,
                                const Shape& shape) {
  const int64_t q_token = int64_t(sample) * shape.queries() * shape.channels + channel;
  const int64_t kv_token = int64_t(sample) * shape.keys() * shape.channels + channel;
  dx[q_token] = rounded<T>(widened(dmaps.of[kQuery][q_token]) + widened(dmaps.of[kKey][kv_token]) +
                           widened(dmaps.of[kValue][kv_token]));
}

template <class T, bool kPieces>
__global__ void __launch_bounds__(kBackwardThreads, 2)
    gather_dx_kernel(const T* x,  // [batch, queries, channels]
                     const __grid_constant__ Three<const T*> maps,
                     const __grid_constant__ Three<const T*> dmaps,
                     const __grid_constant__ Three<const float*> weights,
                     const Slope* slopes,  // [3, channels]
                     T* dx,                // [batch, queries, channels]
                     float* partials,      // [tiles, 27, channels]: dw's sums, [3, 9] of a channel
                     const __grid_constant__ Shape shape, const __grid_constant__ Tiling tiling) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const ring = reinterpret_cast<T*>(shared_bytes);
  const Places places = places_of(tiling);
  const Tile tile = tile_of(blockIdx.x, tiling, shape);
  const int channels = shape.channels, in_group = threadIdx.x % tiling.lanes;
  const int channel = tile.channel + in_group, part = threadIdx.x / tiling.lanes;
  const int column = tile.left + part * kColumnsBack;
  const bool mine = channel < channels && column < tile.right;
  const int out_height = shape.out_height(), out_width = shape.out_width();
  // The first step has no x.
  const int first = tile.top / 2 - 1, last = (tile.bottom + 1) / 2;
  const int64_t q_base = (int64_t(tile.sample) * shape.queries() + shape.class_tokens) * channels;
  const int64_t kv_base = (int64_t(tile.sample) * shape.keys() + shape.class_tokens) * channels;
  const auto copy_step = [&](int j, int stage) {
    if (j < last) {
      T* const to = ring + stage * places.all();
      const BackWindows at = back_windows(j, tile, places, shape, out_height, out_width);
      const auto copy = [&]<int kRows>(int place, const T* map, const Window& window) {
        copy_window<kPieces, kRows>(to + place, map, window, tile.channel, channels);
      };
      copy.template operator()<2>(places.q(0), dmaps.of[kQuery] + q_base, at.q);
      copy.template operator()<2>(places.q(1), maps.of[kQuery] + q_base, at.q);
      copy.template operator()<1>(places.kv(0), dmaps.of[kKey] + kv_base, at.kv);
      copy.template operator()<1>(places.kv(1), maps.of[kKey] + kv_base, at.kv);
      copy.template operator()<1>(places.kv(2), dmaps.of[kValue] + kv_base, at.kv);
      copy.template operator()<1>(places.kv(3), maps.of[kValue] + kv_base, at.kv);
      copy.template operator()<2>(places.x(), x + q_base, at.here);
    }
    tile::end_copies();
  };
  using Stages = tile::Stages<kBackwardStages<T>>;
  for (int s = 0; s < Stages::kAhead; ++s) copy_step(first + s, s);

  __shared__ GroupWeights group;
  group.load(weights, tile.channel, channels);
  __syncthreads();
  float w[3][9] = {}, dw[3][9] = {};
  Slope slope[3] = {};
  if (mine)
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      slope[i] = slopes[i * channels + channel];
#pragma unroll
      for (int t = 0; t < 9; ++t) w[i][t] = group.of[i][in_group * 9 + t];
    }

  // dq: rows 2j - 1 to 2j + 2; dkv: rows j and j + 1.
  float dq[4][kColumnsBack + 2] = {}, dkv[2][2][kColumnsBack / 2 + 1] = {};
  T* dx_at = dx + q_base + (int64_t(tile.top) * shape.width + column) * channels + channel;
  Stages stages;
  for (int j = first; j < last; ++j, stages.next()) {
    Stages::wait();
    copy_step(j + Stages::kAhead, stages.write);
    if (!mine) continue;
    const T* const from = ring + stages.read * places.all() + in_group;
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int i = 0; i < kColumnsBack + 2; ++i) {
        const int at = (row * places.q_columns + part * kColumnsBack + i) * kGroup;
        const bool there = unsigned(2 * j + 1 + row) < unsigned(shape.height) &&
                           unsigned(column - 1 + i) < unsigned(shape.width);
        dq[row][i] = dq[row + 2][i];
        dq[row + 2][i] = dmap_of(slope[kQuery], widened(from[places.q(0) + at]),
                                 widened(from[places.q(1) + at]), there);
      }
#pragma unroll
    for (int i = 0; i < kColumnsBack / 2 + 1; ++i) {
      const int at = (part * (kColumnsBack / 2) + i) * kGroup;
      const bool there = j + 1 < out_height && column / 2 + i < out_width;
#pragma unroll
      for (int kv = 0; kv < 2; ++kv) {
        dkv[0][kv][i] = dkv[1][kv][i];
        dkv[1][kv][i] = dmap_of(slope[1 + kv], widened(from[places.kv(2 * kv) + at]),
                                widened(from[places.kv(2 * kv + 1) + at]), there);
      }
    }
    if (j == first) continue;
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int c = 0; c < kColumnsBack; ++c) {
        const int place = (row * places.x_columns + part * kColumnsBack + c) * kGroup;
        const bool there = 2 * j + row < tile.bottom && column + c < tile.right;
        const float value = there ? widened(from[places.x() + place]) : 0.0f;
        float sum = 0;
        const auto tap = [&](int which, int t, float dmap) {
          sum += w[which][t] * dmap;
          dw[which][t] += value * dmap;
        };
#pragma unroll
        for (int t = 0; t < 9; ++t) tap(kQuery, t, dq[row + 2 - t / 3][c + 2 - t % 3]);
#pragma unroll
        // An even position is the middle of one output, an odd one lies between two.
        for (int t = 0; t < 9; ++t) {
          const int down = row + 1 - t / 3, right = c + 1 - t % 3;  // twice as far as the output
          if (down % 2 != 0 || right % 2 != 0) continue;
          tap(kKey, t, dkv[down / 2][0][right / 2]);
          tap(kValue, t, dkv[down / 2][1][right / 2]);
        }
        if (there) dx_at[(row * shape.width + c) * channels] = rounded<T>(sum);
      }
    dx_at += 2 * shape.width * channels;
  }

  tile::wait_for_copies<0>();  // the ring is free for the threads' sums
  join_taps(reinterpret_cast<float*>(shared_bytes), dw, partials, tile, tiling, channels, in_group,
            part);
  if (shape.class_tokens > 0 && tile.top + tile.left == 0 && part == 0 && channel < channels)
    add_class_token(dmaps, dx, tile.sample, channel, shape);
}

template <class T>
void backward_gather_dx(const BackwardArrays<T>& a, const Slope* slopes, float* partials,
                        const Shape& shape, cudaStream_t stream) {
  const Tiling tiling = backward_tiling(shape);
  const Three<const float*> weights{a.weights.w[0], a.weights.w[1], a.weights.w[2]};
  const int parts = (tiling.columns + kColumnsBack - 1) / kColumnsBack;
  const int threads = (parts * tiling.lanes + 31) / 32 * 32;
  const size_t ring = size_t(kBackwardStages<T>) * places_of(tiling).all() * sizeof(T);
  const size_t bytes = std::max(ring, 9 * size_t(threads) * sizeof(float));
  const auto launch = [&]<bool kPieces>() {
    auto* const kernel = &gather_dx_kernel<T, kPieces>;
    require_shared_memory(kernel, bytes, shape);
    const unsigned blocks = unsigned(shape.batch) * tiling.of_sample() * tiling.groups;
    kernel<<<blocks, threads, bytes, stream>>>(a.x, a.maps, a.dmaps, weights, slopes, a.dx,
                                               partials, shape, tiling);
    require_launched(cudaGetLastError(), shape);
  };
  if (backward_takes_pieces(a, shape))
    launch.template operator()<true>();
  else
    launch.template operator()<false>();
}

// ---- Sum dw -------------------------------------------------------------------------------------

static __global__ void __launch_bounds__(32 * kFinishWarps)
    sum_dw_kernel(const float* partials,  // [tiles, 27, channels]
                  const __grid_constant__ Three<float*> dw, int tiles, int channels) {
  __shared__ float of_warps[kFinishWarps][32];
  const int channel = blockIdx.x * 32 + threadIdx.x % 32, warp = threadIdx.x / 32;
  const int which = blockIdx.y / 9, t = blockIdx.y % 9;
  float sum = 0;
  if (channel < channels)
#pragma unroll 8
    for (int tile = warp; tile < tiles; tile += kFinishWarps)
      sum += partials[(int64_t(tile) * 27 + blockIdx.y) * channels + channel];
  sum = sum_of_warps(sum, of_warps);
  if (warp == 0 && channel < channels) dw.of[which][channel * 9 + t] = sum;
}

template <class T>
void backward_sum_dw(const BackwardArrays<T>& a, const float* partials, const Shape& shape,
                     cudaStream_t stream) {
  const Gradients& g = a.gradients;
  const dim3 grid(blocks_of(shape.channels, 32), 27);
  sum_dw_kernel<<<grid, 32 * kFinishWarps, 0, stream>>>(
      partials, Three<float*>{g.w[0], g.w[1], g.w[2]},
      shape.batch * backward_tiling(shape).of_sample(), shape.channels);
  require_launched(cudaGetLastError(), shape);
}

// ---- The step -----------------------------------------------------------------------------------

// Numbers of the scratch that the launches hand over.
template <class T>
size_t slab_partials(const BackwardArrays<T>& a, const Shape& shape) {
  return size_t(shape.batch) * slabs_for(a, shape).of_sample() * shape.channels;
}
inline size_t tap_partials(const Shape& shape) {
  return size_t(shape.batch) * backward_tiling(shape).of_sample() * 27 * shape.channels;
}

// cvt::projection_backward() for either storage.
template <class T>
void fused_backward(const T* x, const T* const maps[3], const Weights& weights, const Saved& saved,
                    const T* const dmaps[3], T* dx, const Gradients& gradients, const Shape& shape,
                    cudaStream_t stream) {
  const auto a = backward_arrays(x, maps, weights, saved, dmaps, dx, gradients, shape);
  const Scratch<float2> sums(slab_partials(a, shape), shape, stream);
  const Scratch<Slope> slopes(3 * size_t(shape.channels), shape, stream);
  const Scratch<float> taps(tap_partials(shape), shape, stream);
  backward_sums(a, sums.data(), shape, stream);
  backward_finish(a, sums.data(), slopes.data(), shape, stream);
  backward_gather_dx(a, slopes.data(), taps.data(), shape, stream);
  backward_sum_dw(a, taps.data(), shape, stream);
}

}  // namespace conv_projection
