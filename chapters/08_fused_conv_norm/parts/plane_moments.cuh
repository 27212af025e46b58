// Moments of planes whose tiles lie in many blocks: each block leaves those of its tiles, then all are merged.
#pragma once

#include "moments.cuh"
#include "tiles.cuh"

namespace fused_conv_norm {

// Tiles go to blocks in a row: block b computes tiles first_tile(b) to first_tile(b + 1) - 1. A run
// is the tiles of a block that belong to the same planes, those of one image and group of channels;
// it leaves one set of moments. From one run to the next the block's number grows by one, or the
// planes' number does: so their sum is the run's place among all.
__device__ inline int first_tile(int block, int blocks, int tiles) {
  return int(int64_t(tiles) * block / blocks);
}
__device__ inline int block_of(int tile, int blocks, int tiles) {
  return int((int64_t(tile + 1) * blocks - 1) / tiles);
}
inline int64_t runs_of(int blocks, const Problem& problem) {
  return int64_t(blocks) + int64_t(problem.batch) * problem.groups;
}
template <class T>
int64_t moments_floats(int blocks, const Problem& problem) {
  return runs_of(blocks, problem) * T::kTileChannels * 4;
}

// Merges the moments of a tile's values into those of its run. begins: the tile is the run's first,
// and nothing is there to merge with; ends: it is the last, and the run's moments are written.
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

// Finds the norms of a tile's channels: merges the moments of all runs of its planes, always in the
// same order, so that all blocks get the same bits. All threads of a block call it. blocks: how
// many computed the tiles.
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

}  // namespace fused_conv_norm
