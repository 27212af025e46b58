// Step 2's kernels: convolution + instance norm + ReLU in one launch, or in two where the output
// does not fit on the chip.
#pragma once

#include <cooperative_groups.h>

#include "convolve.cuh"
#include "elements.cuh"
#include "moments.cuh"

namespace fused_conv_norm {

// ---- Moments of planes that lie in many blocks --------------------------------------------------

// Tiles go to blocks in a row, first_tile(b) and so on to block b; those of a block that belong to
// the same channels are a run, and leave one set of moments. Along the tiles each run is in another
// block or of other channels than the one before: block + channels' number is its place.
__device__ inline int first_tile(int block, int blocks, int tiles) {
  return int(int64_t(tiles) * block / blocks);
}
__device__ inline int block_of(int tile, int blocks, int tiles) {
  return int((int64_t(tile + 1) * blocks - 1) / tiles);
}
inline int64_t runs_of(int blocks, const Problem& problem) {
  return int64_t(blocks) + int64_t(problem.batch) * problem.groups;
}

// Takes a tile's values into the moments of its run, and writes those when the run ends with it.
template <class T>
__device__ void add_to_run(const float (&value)[T::kOwn][T::kRows], int tile, bool begins,
                           bool ends,
                           Moments* of_run,  // [tile channels] (shared)
                           float4* moments,  // [runs, tile channels]: count, mean, deviation
                           const Problem& problem) {
  const Thread<T> me;
  const Place place = place_of(tile, problem, T::kRows, T::kColumns);
  const int rows = rows_of(place, problem).outputs - place.row,
            columns = columns_of(place, problem).outputs - place.column;
  const float count = float(max(min(T::kRows, rows), 0) * max(min(T::kColumns, columns), 0));
  const int run = blockIdx.x + tile / problem.plane_tiles;
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    // A channel's pixels are all in neighbouring lanes of one warp.
    Moments all = moments_of<T::kColumns>(value[i], count,
                                          [&](int j) { return j < rows && me.column < columns; });
    const int channel = me.channel(i);
    if (me.column != 0) continue;
    if (!begins) all = merged(of_run[channel], all);
    of_run[channel] = all;
    if (ends && place.group * T::kTileChannels + channel < problem.out_channels)
      moments[int64_t(run) * T::kTileChannels + channel] = {all.count, all.mean, all.deviation, 0};
  }
}

// What normalizes a channel: y = (conv - mean) · factor + beta.
struct Norm {
  float mean, factor, beta;
};

// The norms of a tile's channels from the moments of all runs of its planes, merged in an order
// that does not depend on which block does it: the same bits everywhere. All threads of a block
// call it; blocks: that computed the tiles.
template <class T>
__device__ void merge_moments(const float4* moments, const float* gamma, const float* beta,
                              const Place& place, int blocks, const Problem& problem,
                              Moments* of_slices,  // [kSlices, tile channels] (shared)
                              Norm* norms) {       // [tile channels] (shared)
  constexpr int kSlices = T::kThreads / T::kTileChannels;
  const int channel = threadIdx.x % T::kTileChannels, slice = threadIdx.x / T::kTileChannels;
  const int planes = place.image * problem.groups + place.group;
  const int output = place.group * T::kTileChannels + channel;
  const int first = block_of(planes * problem.plane_tiles, blocks, problem.tiles),
            last = block_of((planes + 1) * problem.plane_tiles - 1, blocks, problem.tiles);
  Running running;
#pragma unroll 4
  for (int block = first + slice; block <= last; block += kSlices) {
    if (output >= problem.out_channels) break;
    // Other blocks wrote them in this launch: not through the read-only path.
    const float4 run = __ldcg(moments + int64_t(block + planes) * T::kTileChannels + channel);
    running.add(Moments{run.x, run.y, run.z});
  }
  of_slices[threadIdx.x] = running.moments();
  __syncthreads();
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

// Floats of shared memory for the moments of a run.
template <class T>
constexpr int kMomentFloats = 3 * T::kTileChannels;

// ---- One launch ---------------------------------------------------------------------------------

template <int kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, Tile<kName>::kBlocks)
    fused_kernel(const Element<kName>* x,         // [batch, in_channels, height, width]
                 const Element<kName>* weight,    // [out_channels, in_channels, kernel, kernel],
                                                  // or as its tiles want it
                 const float* gamma,              // [out_channels]
                 const float* beta,               // [out_channels]
                 const Element<kName>* residual,  // as y, or null
                 Element<kName>* y,               // [batch, out_channels, out_height, out_width]
                 float4* moments,                 // [runs, tile channels]
                 int working_floats, const __grid_constant__ Problem problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  float* const working = reinterpret_cast<float*>(memory);
  Moments* const of_run = reinterpret_cast<Moments*>(working + working_floats);
  float* const parked = working + working_floats + kMomentFloats<T>;
  constexpr int kOwnValues = T::kOwn * T::kRows;

  // This block's tiles follow one another. Each but the last is parked in shared memory:
  // [tiles of a block - 1, own values, threads].
  const int first = first_tile(blockIdx.x, gridDim.x, problem.tiles);
  const int last = first_tile(blockIdx.x + 1, gridDim.x, problem.tiles) - 1;
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
    const bool begins = tile == first || tile % problem.plane_tiles == 0;
    const bool ends = tile == last || (tile + 1) % problem.plane_tiles == 0;
    add_to_run<T>(value, tile, begins, ends, of_run, moments, problem);
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
      merge_moments<T>(moments, gamma, beta, place, gridDim.x, problem, of_slices, norms);
    }
    Norm own[T::kOwn];  // read once, not again behind each store
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i)
      own[i] = place.group * T::kTileChannels + me.channel(i) < problem.out_channels
                   ? norms[me.channel(i)]
                   : Norm{};
    for_each_output<T>(place, problem, [&](int i, int j, int, int64_t index) {
      const float add = residual ? float(residual[index]) : 0.0f;
      y[index] = normalized(value[i][j], own[i], add, problem.relu);
    });
  }
}

// ---- Two passes ---------------------------------------------------------------------------------

// The convolution's values in fp32, and the moments of its tiles: a block for each tile.
template <int kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, Tile<kName>::kBlocks)
    first_pass_kernel(const Element<kName>* x, const Element<kName>* weight,
                      float* conv,  // as y
                      float4* moments, const __grid_constant__ Problem problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  const Place place = place_of(blockIdx.x, problem, T::kRows, T::kColumns);
  float value[T::kOwn][T::kRows];
  convolve<T, kStride>(x, weight, place, problem, reinterpret_cast<float*>(memory), value);
  add_to_run<T>(value, blockIdx.x, true, true, reinterpret_cast<Moments*>(memory), moments,
                problem);
  for_each_output<T>(place, problem,
                     [&](int i, int j, int, int64_t index) { conv[index] = value[i][j]; });
}

constexpr int kPassPixels = kNormThreads * 16;  // of a block of the second pass

// Normalizes; conv may be y. kPixels: of a load, 1 or 4.
template <int kName, int kPixels>
__global__ void __launch_bounds__(kNormThreads, 2)
    second_pass_kernel(const float4* moments, const float* gamma, const float* beta,
                       const Element<kName>* residual, const float* conv, Element<kName>* y,
                       const __grid_constant__ Problem problem) {
  using T = Tile<kName>;
  __shared__ Moments shared[kNormWarps + 1];
  const int plane_pixels = problem.out_height * problem.out_width;
  const int pieces = (plane_pixels - 1) / kPassPixels + 1;
  const int plane = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int channel = plane % problem.out_channels, image = plane / problem.out_channels;

  // Merge the moments of the plane's tiles: a block computed each, a run each.
  const int planes = image * problem.groups + channel / T::kTileChannels;
  const int64_t first = int64_t(planes) * problem.plane_tiles + planes;
  Running mine;
  for (int t = threadIdx.x; t < problem.plane_tiles; t += kNormThreads) {
    const float4 run = moments[(first + t) * T::kTileChannels + channel % T::kTileChannels];
    mine.add(Moments{run.x, run.y, run.z});
  }
  const Moments all = moments_of_block(mine.moments(), shared);
  const Norm norm{all.mean, norm_factor(gamma[channel], all.deviation, problem.eps), beta[channel]};

  // Read, normalize, write.
  const int64_t start = int64_t(plane) * plane_pixels;
  const int end = min((piece + 1) * kPassPixels, plane_pixels);
  for (int i = piece * kPassPixels + threadIdx.x * kPixels; i < end; i += kNormThreads * kPixels) {
    float value[kPixels], add[kPixels] = {};
    load(conv + start + i, value);
    if (residual) load(residual + start + i, add);
#pragma unroll
    for (int c = 0; c < kPixels; ++c) value[c] = normalized(value[c], norm, add[c], problem.relu);
    store(value, y + start + i);
  }
}

}  // namespace fused_conv_norm
