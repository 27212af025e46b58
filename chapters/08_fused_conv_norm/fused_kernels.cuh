// Step 2's kernels: convolution + instance norm + ReLU in one launch, or in two where the output
// does not fit on the chip.
#pragma once

#include <cooperative_groups.h>

#include "convolve.cuh"
#include "moments.cuh"

namespace fused_conv_norm {

// ---- Moments of planes that lie in many blocks --------------------------------------------------

// Outputs of a channel in that tile of a plane.
template <class T>
__device__ float outputs_of(int tile, const Problem& problem) {
  const Place place = place_of(tile, problem, T::kRows, T::kColumns);
  const int rows = min(T::kRows, rows_of(place, problem).outputs - place.row);
  const int columns = min(T::kColumns, columns_of(place, problem).outputs - place.column);
  return float(max(rows, 0) * max(columns, 0));
}

// Mean and deviation of each channel of a tile, for whoever needs all of its plane.
template <class T>
__device__ void write_moments(const float (&value)[T::kOwn][T::kRows], int tile,
                              float2* partials,  // [tiles, tile channels]
                              const Problem& problem) {
  const Thread<T> me;
  const Place place = place_of(tile, problem, T::kRows, T::kColumns);
  const int rows = rows_of(place, problem).outputs - place.row;
  const bool column_inside = place.column + me.column < columns_of(place, problem).outputs;
  const float count = outputs_of<T>(tile, problem);
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    // A channel's pixels are all in neighbouring lanes of one warp.
    const Moments moments =
        moments_of<T::kColumns>(value[i], count, [&](int j) { return j < rows && column_inside; });
    if (me.column == 0)
      partials[int64_t(tile) * T::kTileChannels + me.channel(i)] = {moments.mean,
                                                                    moments.deviation};
  }
}

// What normalizes a channel: y = (conv - mean) · factor + beta.
struct Norm {
  float mean, factor, beta;
};

// The norms of a tile's channels from the moments of all tiles of its planes, merged in an order
// that does not depend on which block does it: the same bits everywhere. All threads of a block
// call it.
template <class T>
__device__ void merge_moments(const float2* partials, const float* gamma, const float* beta,
                              const Place& place, const Problem& problem,
                              Moments* of_slices,  // [kSlices, tile channels] (shared)
                              Norm* norms) {       // [tile channels] (shared)
  constexpr int kSlices = T::kThreads / T::kTileChannels;
  const int channel = threadIdx.x % T::kTileChannels, slice = threadIdx.x / T::kTileChannels;
  const int first = (place.image * problem.groups + place.group) * problem.plane_tiles;
  Running running;
#pragma unroll 4
  for (int t = slice; t < problem.plane_tiles; t += kSlices) {
    // Other blocks wrote them in this launch: not through the read-only path.
    const float2 partial = __ldcg(partials + int64_t(first + t) * T::kTileChannels + channel);
    running.add(Moments{outputs_of<T>(t, problem), partial.x, partial.y});
  }
  of_slices[threadIdx.x] = running.moments();
  __syncthreads();
  const int output = place.group * T::kTileChannels + channel;
  if (slice == 0 && output < problem.out_channels) {
    Moments all = of_slices[channel];
    for (int s = 1; s < kSlices; ++s) all = merged(all, of_slices[s * T::kTileChannels + channel]);
    norms[channel] = {all.mean, norm_factor(gamma[output], all.deviation, problem.eps),
                      beta[output]};
  }
  __syncthreads();
}

__device__ inline float normalized(float value, const Norm& norm, float residual, bool relu) {
  const float y = fmaf(value - norm.mean, norm.factor, norm.beta) + residual;
  return relu && y < 0 ? 0.0f : y;  // NaN stays NaN
}

// ---- One launch ---------------------------------------------------------------------------------

template <int kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, 512 / Tile<kName>::kThreads)
    fused_kernel(const float* x,         // [batch, in_channels, height, width]
                 const float* weight,    // [out_channels, in_channels, kernel, kernel]
                 const float* gamma,     // [out_channels]
                 const float* beta,      // [out_channels]
                 const float* residual,  // as y, or null
                 float* y,               // [batch, out_channels, out_height, out_width]
                 float2* partials,       // [tiles, tile channels]
                 int working_floats, const __grid_constant__ Problem problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  float* const working = reinterpret_cast<float*>(memory);
  float* const parked = working + working_floats;  // [tiles of a block - 1, own values, threads]
  constexpr int kOwnValues = T::kOwn * T::kRows;

  // This block's tiles follow one another. Each but the last is parked in shared memory.
  const int first = int(int64_t(problem.tiles) * blockIdx.x / gridDim.x);
  const int last = int(int64_t(problem.tiles) * (blockIdx.x + 1) / gridDim.x) - 1;
  float value[T::kOwn][T::kRows];
#pragma unroll 1
  for (int tile = first; tile <= last; ++tile) {
    if (tile > first) {
#pragma unroll
      for (int e = 0; e < kOwnValues; ++e)
        parked[((tile - 1 - first) * kOwnValues + e) * T::kThreads + threadIdx.x] =
            value[e / T::kRows][e % T::kRows];
    }
    const Place place = place_of(tile, problem, T::kRows, T::kColumns);
    convolve<T, kStride>(x, weight, place, problem, working, value);
    write_moments<T>(value, tile, partials, problem);
  }

  // The only barrier of the grid: from here on all moments are there.
  cooperative_groups::this_grid().sync();

  // Normalize what was kept, the tile in the registers first.
  Norm* const norms = reinterpret_cast<Norm*>(working);
  Moments* const of_slices = reinterpret_cast<Moments*>(norms + T::kTileChannels);
  const Thread<T> me;
  int plane_group = -1;  // whose norms are there
#pragma unroll 1
  for (int tile = last; tile >= first; --tile) {
    if (tile < last) {
#pragma unroll
      for (int e = 0; e < kOwnValues; ++e)
        value[e / T::kRows][e % T::kRows] =
            parked[((tile - first) * kOwnValues + e) * T::kThreads + threadIdx.x];
    }
    const Place place = place_of(tile, problem, T::kRows, T::kColumns);
    if (tile / problem.plane_tiles != plane_group) {
      plane_group = tile / problem.plane_tiles;
      __syncthreads();
      merge_moments<T>(partials, gamma, beta, place, problem, of_slices, norms);
    }
    for_each_output<T>(place, problem, [&](int i, int j, int, int64_t index) {
      y[index] = normalized(value[i][j], norms[me.channel(i)], residual ? residual[index] : 0.0f,
                            problem.relu);
    });
  }
}

// ---- Two passes ---------------------------------------------------------------------------------

// The values of the convolution to y, and the moments of its tiles: a block for each tile.
template <int kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, 512 / Tile<kName>::kThreads)
    first_pass_kernel(const float* x, const float* weight, float* y, float2* partials,
                      const __grid_constant__ Problem problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  const Place place = place_of(blockIdx.x, problem, T::kRows, T::kColumns);
  float value[T::kOwn][T::kRows];
  convolve<T, kStride>(x, weight, place, problem, reinterpret_cast<float*>(memory), value);
  write_moments<T>(value, blockIdx.x, partials, problem);
  for_each_output<T>(place, problem,
                     [&](int i, int j, int, int64_t index) { y[index] = value[i][j]; });
}

constexpr int kPassPixels = kNormThreads * 16;  // of a block of the second pass

// Normalizes y where it is. kPixels: of a load, 1 or 4.
template <int kName, int kPixels>
__global__ void __launch_bounds__(kNormThreads)
    second_pass_kernel(const float2* partials, const float* gamma, const float* beta,
                       const float* residual, float* y, const __grid_constant__ Problem problem) {
  using T = Tile<kName>;
  __shared__ Moments shared[kNormWarps + 1];
  const int plane_pixels = problem.out_height * problem.out_width;
  const int pieces = (plane_pixels - 1) / kPassPixels + 1;
  const int plane = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int channel = plane % problem.out_channels, image = plane / problem.out_channels;

  // Merge the moments of the plane's tiles.
  const int first = (image * problem.groups + channel / T::kTileChannels) * problem.plane_tiles;
  Running mine;
  for (int t = threadIdx.x; t < problem.plane_tiles; t += kNormThreads) {
    const float2 partial =
        partials[int64_t(first + t) * T::kTileChannels + channel % T::kTileChannels];
    mine.add(Moments{outputs_of<T>(t, problem), partial.x, partial.y});
  }
  const Moments all = moments_of_block(mine.moments(), shared);
  const Norm norm{all.mean, norm_factor(gamma[channel], all.deviation, problem.eps), beta[channel]};

  // Read, normalize, write.
  const int64_t start = int64_t(plane) * plane_pixels;
  const int end = min((piece + 1) * kPassPixels, plane_pixels);
  for (int i = piece * kPassPixels + threadIdx.x * kPixels; i < end; i += kNormThreads * kPixels) {
    float value[kPixels], add[kPixels] = {};
    if constexpr (kPixels == 4) {
      *reinterpret_cast<float4*>(value) = *reinterpret_cast<const float4*>(y + start + i);
      if (residual)
        *reinterpret_cast<float4*>(add) = *reinterpret_cast<const float4*>(residual + start + i);
    } else {
      value[0] = y[start + i];
      if (residual) add[0] = residual[start + i];
    }
#pragma unroll
    for (int c = 0; c < kPixels; ++c) value[c] = normalized(value[c], norm, add[c], problem.relu);
    if constexpr (kPixels == 4)
      *reinterpret_cast<float4*>(y + start + i) = *reinterpret_cast<const float4*>(value);
    else
      y[start + i] = value[0];
  }
}

}  // namespace fused_conv_norm
