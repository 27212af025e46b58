// Step 1, naive, as a framework does it: for q, k and v separately a depthwise convolution, the moments of what it
// stored, and a pass that normalizes it into another array. Nine launches; x is read three times,
// each map stored, read twice, and stored once more.
#pragma once

#include "parts/moments.cuh"

namespace conv_projection {

constexpr int kNaiveThreads = 256, kNaiveWarps = kNaiveThreads / 32;

// A thread an output position and channel of q, k or v.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    convolve_kernel(const T* x,      // [batch, queries, channels]
                    const float* w,  // [channels, 3, 3]
                    T* map, int which, const __grid_constant__ Shape shape) {
  const int of_sample = positions(shape.height, shape.width, which);
  const int i = blockIdx.x * kNaiveThreads + threadIdx.x;
  if (i >= shape.batch * of_sample * shape.channels) return;
  const int channel = i % shape.channels, position = i / shape.channels % of_sample,
            sample = i / shape.channels / of_sample;
  const T* const from = x + int64_t(sample) * shape.queries() * shape.channels + channel;
  const int stride = which == kQuery ? 1 : 2;
  const int columns = which == kQuery ? shape.width : shape.out_width();
  const int row = position / columns * stride, column = position % columns * stride;
  float sum = 0;
#pragma unroll
  for (int t = 0; t < 9; ++t) {
    const int r = row + t / 3 - 1, c = column + t % 3 - 1;
    if (r >= 0 && r < shape.height && c >= 0 && c < shape.width)
      sum += w[channel * 9 + t] *
             widened(from[int64_t(shape.class_tokens + r * shape.width + c) * shape.channels]);
  }
  const int64_t token = int64_t(sample) * (shape.class_tokens + of_sample) + shape.class_tokens;
  map[(token + position) * shape.channels + channel] = rounded<T>(sum);
}

// Positions of all samples in a row, dealt out in slabs.
struct NaiveSlabs {
  int of_sample, count, rows, slabs;
  __host__ __device__ int rows_of(int slab) const { return min(rows, count - slab * rows); }
};
inline NaiveSlabs naive_slabs(const Shape& shape, int which) {
  NaiveSlabs s{};
  s.of_sample = positions(shape.height, shape.width, which);
  s.count = shape.batch * s.of_sample;
  s.rows = std::max(32, int(blocks_of(s.count, 96)));
  s.slabs = int(blocks_of(s.count, s.rows));
  return s;
}
// Where a position's channels begin in a map.
__device__ inline int64_t place_of(int position, const NaiveSlabs& slabs, const Shape& shape) {
  const int sample = position / slabs.of_sample, token = position - sample * slabs.of_sample;
  return (int64_t(sample) * (shape.class_tokens + slabs.of_sample) + shape.class_tokens + token) *
         shape.channels;
}

// A block has a slab and 32 channels, a lane a channel; the warps share the positions.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    moments_kernel(const T* map, float2* partials,  // [slabs, channels], {mean, M2}
                   const __grid_constant__ Shape shape, const __grid_constant__ NaiveSlabs slabs) {
  __shared__ float of_warps[kNaiveWarps][32];
  const int channel = blockIdx.y * 32 + threadIdx.x % 32, rows = slabs.rows_of(blockIdx.x);
  const int mine = channel < shape.channels ? rows : 0, first = blockIdx.x * slabs.rows;
  Shifted moments;
  if (mine > 0) moments.shift = widened(map[place_of(first, slabs, shape) + channel]);
  for (int r = threadIdx.x / 32; r < mine; r += kNaiveWarps)
    moments.add(widened(map[place_of(first + r, slabs, shape) + channel]));
  const float sum = sum_of_warps(moments.sum, of_warps);
  const float squares = sum_of_warps(moments.squares, of_warps);
  if (threadIdx.x / 32 > 0 || channel >= shape.channels) return;
  moments.sum = sum, moments.squares = squares;
  partials[int64_t(blockIdx.x) * shape.channels + channel] = moments.moments(rows);
}

// A block begins with the mean and variance of its channels from all slabs; those of the first slab
// leave them for others.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    normalize_kernel(const T* map, const float2* partials, T* normalized,
                     const __grid_constant__ Statistics to, int which,
                     const __grid_constant__ Shape shape,
                     const __grid_constant__ NaiveSlabs slabs) {
  __shared__ float of_warps[kNaiveWarps][32];
  const int channel = blockIdx.y * 32 + threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool there = channel < shape.channels;
  const int parts = there ? slabs.slabs : 0;
  const float near = there ? partials[channel].x : 0.0f, count = float(slabs.count);
  float sum = 0, m2 = 0;
  for (int i = warp; i < parts; i += kNaiveWarps)
    sum += float(slabs.rows_of(i)) * (partials[int64_t(i) * shape.channels + channel].x - near);
  const float mean = near + sum_of_warps(sum, of_warps) / count;
  for (int i = warp; i < parts; i += kNaiveWarps) {
    const float2 part = partials[int64_t(i) * shape.channels + channel];
    m2 += part.y + float(slabs.rows_of(i)) * (part.x - mean) * (part.x - mean);
  }
  m2 = sum_of_warps(m2, of_warps);
  if (!there) return;
  if (blockIdx.x == 0 && warp == 0) finish_channel(to, which, channel, mean, m2, count);
  const float factor = to.scale.of[which][channel] * rsqrtf(m2 / count + kEpsilon);
  const float shift = to.shift.of[which][channel];
  const int rows = slabs.rows_of(blockIdx.x), first = blockIdx.x * slabs.rows;
  for (int r = warp; r < rows; r += kNaiveWarps) {
    const int64_t at = place_of(first + r, slabs, shape) + channel;
    normalized[at] = rounded<T>((widened(map[at]) - mean) * factor + shift);
  }
}

template <class T>
void naive_convolution(const T* x, const float* w, T* map, int which, const Shape& shape,
                       cudaStream_t stream) {
  require_pointers(shape, {x, w, map});
  const int64_t outputs =
      int64_t(shape.batch) * positions(shape.height, shape.width, which) * shape.channels;
  convolve_kernel<<<blocks_of(outputs, kNaiveThreads), kNaiveThreads, 0, stream>>>(x, w, map, which,
                                                                                   shape);
  require_launched(cudaGetLastError(), shape);
}
// Class tokens, which no convolution sees: a copy from sample to sample.
template <class T>
void naive_class_tokens(const T* x, T* map, int which, const Shape& shape, cudaStream_t stream) {
  const size_t token = shape.channels * sizeof(T);
  require_launched(
      cudaMemcpy2DAsync(map, (which == kQuery ? shape.queries() : shape.keys()) * token, x,
                        shape.queries() * token, token, shape.batch, cudaMemcpyDeviceToDevice,
                        stream),
      shape);
}
template <class T>
void naive_moments(const T* map, float2* partials, int which, const Shape& shape,
                   cudaStream_t stream) {
  const NaiveSlabs slabs = naive_slabs(shape, which);
  const dim3 grid(slabs.slabs, blocks_of(shape.channels, 32));
  moments_kernel<<<grid, kNaiveThreads, 0, stream>>>(map, partials, shape, slabs);
  require_launched(cudaGetLastError(), shape);
}
template <class T>
void naive_normalize(const T* map, const float2* partials, T* normalized, const Statistics& to,
                     int which, const Shape& shape, cudaStream_t stream) {
  require_statistics(to, shape);
  const NaiveSlabs slabs = naive_slabs(shape, which);
  const dim3 grid(slabs.slabs, blocks_of(shape.channels, 32));
  normalize_kernel<<<grid, kNaiveThreads, 0, stream>>>(map, partials, normalized, to, which, shape,
                                                       slabs);
  require_launched(cudaGetLastError(), shape);
}

// Partials of one map at a time, and what is normalized, which nobody wants here but a framework
// stores.
inline size_t naive_partials(const Shape& shape) {
  return size_t(naive_slabs(shape, kQuery).slabs) * shape.channels;
}
inline size_t naive_normalized(const Shape& shape) {
  return size_t(shape.batch) * shape.queries() * shape.channels;
}

}  // namespace conv_projection
