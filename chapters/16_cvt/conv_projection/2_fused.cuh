// Step 2, fused: the three convolutions in one launch that reads x once, and BatchNorm's moments with them. Rows
// of x pass through shared memory. A thread walks down columns with sums of outputs that are not
// yet whole: row r of x is the last one of output row r - 1, the middle one of row r and the first
// one of row r + 1.
#pragma once

#include "parts/moments.cuh"
#include "parts/ring.cuh"

namespace conv_projection {

constexpr int kForwardThreads = 256, kForwardStages = 4;

// One convolution's nine weights of a channel.
struct Taps {
  float w[3][3] = {};
  __device__ void load(const float* weights) {  // [3, 3]
#pragma unroll
    for (int t = 0; t < 9; ++t) w[t / 3][t % 3] = weights[t];
  }
  // What row `row` of the weights adds for these three neighbours in a row of x.
  __device__ float of_row(int row, const float* values, float sum) const {
#pragma unroll
    for (int t = 0; t < 3; ++t) sum += w[row][t] * values[t];
    return sum;
  }
};

// The threads of a channel meet in shared memory, [3, parts, lanes]: the tile's moments of q, k and
// v from those of each thread's columns.
template <int kColumns>
__device__ void join_parts(float2* of_parts, const Shifted& q_moments, const Shifted& k_moments,
                           const Shifted& v_moments, int my_columns,
                           float2* partials,  // [tiles, 3, channels], {mean, M2}
                           const Tile& tile, const Tiling& tiling, int channels) {
  const int in_group = threadIdx.x % tiling.lanes, part = threadIdx.x / tiling.lanes;
  const int rows = tile.bottom - tile.top;
  const int parts = (tile.right - tile.left + kColumns - 1) / kColumns;
  if (part < parts) {
    const int place = part * tiling.lanes + in_group, all = parts * tiling.lanes;
    of_parts[place] = q_moments.moments(positions(rows, my_columns, kQuery));
    of_parts[all + place] = k_moments.moments(positions(rows, my_columns, kKey));
    of_parts[2 * all + place] = v_moments.moments(positions(rows, my_columns, kValue));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 3 * tiling.lanes; i += blockDim.x) {
    const int which = i / tiling.lanes, lane = i - which * tiling.lanes;
    if (tile.channel + lane >= channels) continue;
    const float2* const mine = of_parts + which * parts * tiling.lanes + lane;
    const auto count_of = [&](int p) {
      return float(positions(rows, min(tile.right - tile.left - p * kColumns, kColumns), which));
    };
    const float near = mine[0].x;
    float sum = 0, m2 = 0;
    for (int p = 0; p < parts; ++p) sum += count_of(p) * (mine[p * tiling.lanes].x - near);
    const float mean = near + sum / float(positions(rows, tile.right - tile.left, which));
    for (int p = 0; p < parts; ++p) {
      const float distance = mine[p * tiling.lanes].x - mean;
      m2 += mine[p * tiling.lanes].y + count_of(p) * distance * distance;
    }
    partials[(int64_t(tile.number) * 3 + which) * channels + tile.channel + lane] = {mean, m2};
  }
}

// The class token, which no convolution sees.
template <class T>
__device__ void copy_class_token(const T* x, const Three<T*>& maps, int sample, int channel,
                                 const Shape& shape) {
  const T token = x[int64_t(sample) * shape.queries() * shape.channels + channel];
#pragma unroll
  for (int i = 0; i < 3; ++i)
    maps.of[i][int64_t(sample) * (i == kQuery ? shape.queries() : shape.keys()) * shape.channels +
               channel] = token;
}

// kColumns columns a thread, 2 or 4.
template <class T, int kColumns, bool kPieces>
__global__ void __launch_bounds__(kForwardThreads, 3)
    fused_kernel(const T* x,  // [batch, queries, channels]
                 const __grid_constant__ Three<const float*> weights,
                 const __grid_constant__ Three<T*> maps,
                 float2* partials,  // [tiles, 3, channels], {mean, M2}
                 const __grid_constant__ Shape shape, const __grid_constant__ Tiling tiling) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const ring = reinterpret_cast<T*>(shared_bytes);
  const Tile tile = tile_of(blockIdx.x, tiling, shape);
  const int channels = shape.channels, in_group = threadIdx.x % tiling.lanes;
  const int channel = tile.channel + in_group, part = threadIdx.x / tiling.lanes;
  const int column = tile.left + part * kColumns;  // my first
  const int my_columns = channel < channels ? min(max(tile.right - column, 0), kColumns) : 0;

  // Step j has rows 2j - 1 and 2j of x, with a column more on either side.
  const int pixels = tiling.columns + 2, first = tile.top / 2, last = (tile.bottom + 1) / 2;
  const T* const sample =
      x + (int64_t(tile.sample) * shape.queries() + shape.class_tokens) * channels;
  const auto copy_step = [&](int j, int stage) {
    const Window window{
        2 * j - 1,  tile.left - 1, pixels, 0, shape.height, 0, min(tile.right + 1, shape.width),
        shape.width};
    if (j <= last)
      copy_window<kPieces, 2>(ring + stage * 2 * pixels * kGroup, sample, window, tile.channel,
                              channels);
    tile::end_copies();
  };
  using Stages = tile::Stages<kForwardStages>;
  for (int s = 0; s < Stages::kAhead; ++s) copy_step(first + s, s);

  __shared__ GroupWeights group;
  group.load(weights, tile.channel, channels);
  __syncthreads();
  Taps q, k, v;
  q.load(group.of[kQuery] + in_group * 9);
  k.load(group.of[kKey] + in_group * 9);
  v.load(group.of[kValue] + in_group * 9);

  T* q_at = maps.of[kQuery] +
            (int64_t(tile.sample) * shape.queries() + shape.class_tokens + tile.top * shape.width +
             column) *
                channels +
            channel;
  const int64_t kv_at = (int64_t(tile.sample) * shape.keys() + shape.class_tokens +
                         first * shape.out_width() + column / 2) *
                            channels +
                        channel;
  T *k_at = maps.of[kKey] + kv_at, *v_at = maps.of[kValue] + kv_at;
  Shifted q_moments, k_moments, v_moments;
  float above[kColumns] = {}, here[kColumns] = {}, whole[2][kColumns];
  float k_sum[kColumns / 2] = {}, v_sum[kColumns / 2] = {}, k_whole[kColumns / 2],
                         v_whole[kColumns / 2];
  Stages stages;
  for (int j = first; j <= last; ++j, stages.next()) {
    Stages::wait();
    copy_step(j + Stages::kAhead, stages.write);
    const T* from = ring + (stages.read * 2 * pixels + part * kColumns) * kGroup + in_group;
#pragma unroll
    for (int row = 0; row < 2; ++row, from += pixels * kGroup) {
      float values[kColumns + 2];
#pragma unroll
      for (int i = 0; i < kColumns + 2; ++i)
        values[i] = my_columns > 0 ? widened(from[i * kGroup]) : 0.0f;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        whole[row][c] = q.of_row(2, values + c, above[c]);
        above[c] = q.of_row(1, values + c, here[c]);
        here[c] = q.of_row(0, values + c, 0.0f);
        if (c % 2 != 0) continue;
        // k and v: row 2j - 1 ends their row j - 1 and begins row j, whose middle row 2j is.
        k_whole[c / 2] = row == 0 ? k.of_row(2, values + c, k_sum[c / 2]) : k_whole[c / 2];
        v_whole[c / 2] = row == 0 ? v.of_row(2, values + c, v_sum[c / 2]) : v_whole[c / 2];
        k_sum[c / 2] =
            row == 0 ? k.of_row(0, values + c, 0.0f) : k.of_row(1, values + c, k_sum[c / 2]);
        v_sum[c / 2] =
            row == 0 ? v.of_row(0, values + c, 0.0f) : v.of_row(1, values + c, v_sum[c / 2]);
      }
    }

    // Rows 2j - 2 and 2j - 1 of q, and row j - 1 of k and v, are whole now. The first are another
    // tile's.
    if (j == first) continue;
    if (j == first + 1) {
      q_moments.shift = whole[0][0];
      k_moments.shift = k_whole[0];
      v_moments.shift = v_whole[0];
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      if (c >= my_columns) break;
#pragma unroll
      for (int row = 0; row < 2; ++row)
        if (2 * j - 2 + row < tile.bottom) {
          q_at[(row * shape.width + c) * channels] = rounded<T>(whole[row][c]);
          q_moments.add(whole[row][c]);
        }
      if (c % 2 != 0) continue;
      k_at[c / 2 * channels] = rounded<T>(k_whole[c / 2]);
      v_at[c / 2 * channels] = rounded<T>(v_whole[c / 2]);
      k_moments.add(k_whole[c / 2]);
      v_moments.add(v_whole[c / 2]);
    }
    q_at += 2 * shape.width * channels;
    k_at += shape.out_width() * channels;
    v_at += shape.out_width() * channels;
  }

  // The ring's memory is free for the threads' moments.
  tile::wait_for_copies<0>();
  __syncthreads();
  join_parts<kColumns>(reinterpret_cast<float2*>(shared_bytes), q_moments, k_moments, v_moments,
                       my_columns, partials, tile, tiling, channels);

  if (shape.class_tokens > 0 && tile.top + tile.left == 0 && part == 0 && channel < channels)
    copy_class_token(x, maps, tile.sample, channel, shape);
}

// The first launch: raw maps, and the moments of each tile. partials: [batch · tiles of a sample,
// 3, channels]. Throws std::invalid_argument, std::runtime_error as projection_forward().
template <class T>
void fused_convolutions(const T* x, const Weights& weights, T* const maps[3], float2* partials,
                        const Shape& shape, cudaStream_t stream) {
  require_pointers(
      shape, {x, weights.w[0], weights.w[1], weights.w[2], maps[0], maps[1], maps[2], partials});
  const Tiling tiling = forward_tiling(shape);
  const auto launch = [&]<int kColumns, bool kPieces>() {
    const int parts = (tiling.columns + kColumns - 1) / kColumns;
    const int threads = (parts * tiling.lanes + 31) / 32 * 32;
    const size_t ring = kForwardStages * 2 * size_t(tiling.columns + 2) * kGroup * sizeof(T);
    const size_t bytes = std::max(ring, 3 * size_t(parts) * tiling.lanes * sizeof(float2));
    auto* const kernel = &fused_kernel<T, kColumns, kPieces>;
    require_shared_memory(kernel, bytes, shape);
    const unsigned blocks = unsigned(shape.batch) * tiling.of_sample() * tiling.groups;
    kernel<<<blocks, threads, bytes, stream>>>(
        x, Three<const float*>{weights.w[0], weights.w[1], weights.w[2]},
        Three<T*>{maps[0], maps[1], maps[2]}, partials, shape, tiling);
    require_launched(cudaGetLastError(), shape);
  };
  const bool pieces = takes_pieces<T>(shape, {x}), four = takes_four_columns(shape);
  if (four && pieces) launch.template operator()<4, true>();
  if (four && !pieces) launch.template operator()<4, false>();
  if (!four && pieces) launch.template operator()<2, true>();
  if (!four && !pieces) launch.template operator()<2, false>();
}

inline int64_t forward_partials(const Shape& shape) {
  return int64_t(shape.batch) * forward_tiling(shape).of_sample() * 3 * shape.channels;
}

// cvt::projection_forward() for either storage.
template <class T>
void fused_forward(const T* x, const Weights& weights, T* const maps[3], const Saved& saved,
                   float* const running_mean[3], float* const running_variance[3],
                   const Shape& shape, cudaStream_t stream) {
  const Statistics to = statistics_of(weights, saved, running_mean, running_variance);
  require_statistics(to, shape);
  const Scratch<float2> partials(size_t(forward_partials(shape)), shape, stream);
  fused_convolutions(x, weights, maps, partials.data(), shape, stream);
  finish_moments(partials.data(), to, shape, forward_tiling(shape), stream);
}

}  // namespace conv_projection
