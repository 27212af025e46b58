// Step 3, naive, back: the gradients as a framework computes them, in fifteen launches. For q, k and v
// separately BatchNorm's two sums, a pass that stores the gradient of the raw map, the convolution's
// gradient of x, which is added to what the others gave, and its weights' gradient in two launches.
// Each of the three reads dy and map twice, stores dmap once and reads it twice; x is read three
// times, dx stored three times and read twice.
#pragma once

#include "1_naive.cuh"
#include "parts/gradients.cuh"

namespace conv_projection {

// A block has a slab and 32 channels, a lane a channel; the warps share the positions.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    gradient_sums_kernel(const T* map, const T* dy, const float* mean,
                         float2* partials,  // [slabs, channels]: Σ dy and Σ dy (map - mean)
                         const __grid_constant__ Shape shape,
                         const __grid_constant__ NaiveSlabs slabs) {
  __shared__ float of_warps[kNaiveWarps][32];
  const int channel = blockIdx.y * 32 + threadIdx.x % 32;
  const bool there = channel < shape.channels;
  const int rows = there ? slabs.rows_of(blockIdx.x) : 0, first = blockIdx.x * slabs.rows;
  const float middle = there ? mean[channel] : 0.0f;
  float2 sums{};
  for (int r = threadIdx.x / 32; r < rows; r += kNaiveWarps) {
    const int64_t at = place_of(first + r, slabs, shape) + channel;
    const float grad = widened(dy[at]);
    sums.x += grad;
    sums.y += grad * (widened(map[at]) - middle);
  }
  sums.x = sum_of_warps(sums.x, of_warps);
  sums.y = sum_of_warps(sums.y, of_warps);
  if (threadIdx.x / 32 == 0 && there)
    partials[int64_t(blockIdx.x) * shape.channels + channel] = sums;
}

// A block begins with the sums of its channels from all slabs; those of the first slab leave dscale
// and dshift.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    gradient_maps_kernel(const T* map, const T* dy, const float2* partials,
                         const __grid_constant__ Saved saved, int which, float* dscale,
                         float* dshift, T* dmap, bool constant, const __grid_constant__ Shape shape,
                         const __grid_constant__ NaiveSlabs slabs) {
  __shared__ float of_warps[kNaiveWarps][32];
  const int channel = blockIdx.y * 32 + threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool there = channel < shape.channels;
  float2 sums{};
  for (int i = warp; there && i < slabs.slabs; i += kNaiveWarps) {
    const float2 part = partials[int64_t(i) * shape.channels + channel];
    sums.x += part.x;
    sums.y += part.y;
  }
  sums.x = sum_of_warps(sums.x, of_warps);
  sums.y = sum_of_warps(sums.y, of_warps);
  if (!there) return;
  const float inverse = saved.inverse_deviation[which][channel];
  const float count = constant ? INFINITY : float(slabs.count);
  const float mean = saved.mean[which][channel], factor = saved.factor[which][channel];
  if (blockIdx.x == 0 && warp == 0) {
    dshift[channel] = sums.x;
    dscale[channel] = sums.y * inverse;
  }
  const float slope = -inverse * inverse * (sums.y / count), shift = -(sums.x / count);
  const int rows = slabs.rows_of(blockIdx.x), first = blockIdx.x * slabs.rows;
  for (int r = warp; r < rows; r += kNaiveWarps) {
    const int64_t at = place_of(first + r, slabs, shape) + channel;
    dmap[at] = rounded<T>(factor * (widened(dy[at]) + (slope * (widened(map[at]) - mean) + shift)));
  }
}

// A thread a place of x's map and channel. Where `add`, to what is there.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    gradient_x_kernel(const T* dmap, const float* w,  // w: [channels, 3, 3]
                      T* dx, int which, bool add, const __grid_constant__ Shape shape) {
  const int of_sample = shape.height * shape.width;
  const int i = blockIdx.x * kNaiveThreads + threadIdx.x;
  if (i >= shape.batch * of_sample * shape.channels) return;
  const int channel = i % shape.channels, position = i / shape.channels % of_sample,
            sample = i / shape.channels / of_sample;
  const int stride = which == kQuery ? 1 : 2;
  const int rows = which == kQuery ? shape.height : shape.out_height();
  const int columns = which == kQuery ? shape.width : shape.out_width();
  const int64_t begin =
      (int64_t(sample) * (shape.class_tokens + rows * columns) + shape.class_tokens) *
          shape.channels +
      channel;
  const int row = position / shape.width, column = position % shape.width;
  float sum = 0;
#pragma unroll
  for (int t = 0; t < 9; ++t) {
    const int down = row + 1 - t / 3,
              right = column + 1 - t % 3;  // stride times the output's place
    if (down < 0 || right < 0 || down % stride != 0 || right % stride != 0) continue;
    if (down / stride >= rows || right / stride >= columns) continue;
    const int place = down / stride * columns + right / stride;
    sum += w[channel * 9 + t] * widened(dmap[begin + int64_t(place) * shape.channels]);
  }
  const int64_t token = int64_t(sample) * shape.queries() + shape.class_tokens + position;
  T& to = dx[token * shape.channels + channel];
  to = rounded<T>(add ? widened(to) + sum : sum);
}
// A class token gets dy's: a thread a sample's channel.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    gradient_token_kernel(const T* dy, T* dx, int which, bool add,
                          const __grid_constant__ Shape shape) {
  const int i = blockIdx.x * kNaiveThreads + threadIdx.x;
  if (i >= shape.batch * shape.channels) return;
  const int64_t sample = i / shape.channels, channel = i % shape.channels;
  const int tokens = which == kQuery ? shape.queries() : shape.keys();
  const float grad = widened(dy[sample * tokens * shape.channels + channel]);
  T& to = dx[sample * shape.queries() * shape.channels + channel];
  to = rounded<T>(add ? widened(to) + grad : grad);
}

// A block has a slab of outputs and 32 channels, a lane a channel; the warps share the outputs.
template <class T>
__global__ void __launch_bounds__(kNaiveThreads)
    gradient_w_kernel(const T* x, const T* dmap, float* partials,  // [slabs, 9, channels]
                      int which, const __grid_constant__ Shape shape,
                      const __grid_constant__ NaiveSlabs slabs) {
  __shared__ float of_warps[kNaiveWarps][32];
  const int channel = blockIdx.y * 32 + threadIdx.x % 32;
  const bool there = channel < shape.channels;
  const int rows = there ? slabs.rows_of(blockIdx.x) : 0, first = blockIdx.x * slabs.rows;
  const int stride = which == kQuery ? 1 : 2;
  const int columns = which == kQuery ? shape.width : shape.out_width();
  float sums[9] = {};
  for (int r = threadIdx.x / 32; r < rows; r += kNaiveWarps) {
    const int sample = (first + r) / slabs.of_sample, position = (first + r) % slabs.of_sample;
    const int row = position / columns * stride, column = position % columns * stride;
    const float grad = widened(dmap[place_of(first + r, slabs, shape) + channel]);
    const T* const from =
        x + (int64_t(sample) * shape.queries() + shape.class_tokens) * shape.channels + channel;
#pragma unroll
    for (int t = 0; t < 9; ++t) {
      const int at_row = row + t / 3 - 1, at_column = column + t % 3 - 1;
      if (at_row >= 0 && at_row < shape.height && at_column >= 0 && at_column < shape.width)
        sums[t] += grad * widened(from[int64_t(at_row * shape.width + at_column) * shape.channels]);
    }
  }
#pragma unroll
  for (int t = 0; t < 9; ++t) {
    const float sum = sum_of_warps(sums[t], of_warps);
    if (threadIdx.x / 32 == 0 && there)
      partials[(int64_t(blockIdx.x) * 9 + t) * shape.channels + channel] = sum;
  }
}

static __global__ void __launch_bounds__(kNaiveThreads)
    gradient_w_sum_kernel(const float* partials, float* dw, int slabs, int channels) {
  __shared__ float of_warps[kNaiveWarps][32];
  const int channel = blockIdx.x * 32 + threadIdx.x % 32, warp = threadIdx.x / 32, t = blockIdx.y;
  float sum = 0;
  for (int i = warp; channel < channels && i < slabs; i += kNaiveWarps)
    sum += partials[(int64_t(i) * 9 + t) * channels + channel];
  sum = sum_of_warps(sum, of_warps);
  if (warp == 0 && channel < channels) dw[channel * 9 + t] = sum;
}

// ---- Launches, which = 0, 1, 2: q, k, v ---------------------------------------------------------

inline dim3 slab_grid(const Shape& shape, const NaiveSlabs& slabs) {
  return dim3(slabs.slabs, blocks_of(shape.channels, 32));
}

template <class T>
void naive_gradient_sums(const BackwardArrays<T>& a, float2* partials, int which,
                         const Shape& shape, cudaStream_t stream) {
  const NaiveSlabs slabs = naive_slabs(shape, which);
  gradient_sums_kernel<<<slab_grid(shape, slabs), kNaiveThreads, 0, stream>>>(
      a.maps.of[which], a.dmaps.of[which], a.saved.mean[which], partials, shape, slabs);
  require_launched(cudaGetLastError(), shape);
}
template <class T>
void naive_gradient_maps(const BackwardArrays<T>& a, const float2* partials, T* dmap, int which,
                         const Shape& shape, cudaStream_t stream) {
  const NaiveSlabs slabs = naive_slabs(shape, which);
  gradient_maps_kernel<<<slab_grid(shape, slabs), kNaiveThreads, 0, stream>>>(
      a.maps.of[which], a.dmaps.of[which], partials, a.saved, which, a.gradients.scale[which],
      a.gradients.shift[which], dmap, a.constant, shape, slabs);
  require_launched(cudaGetLastError(), shape);
}
template <class T>
void naive_gradient_x(const BackwardArrays<T>& a, const T* dmap, int which, const Shape& shape,
                      cudaStream_t stream) {
  const bool add = which != kQuery;
  if (shape.class_tokens > 0) {
    gradient_token_kernel<<<blocks_of(shape.batch * int64_t(shape.channels), kNaiveThreads),
                            kNaiveThreads, 0, stream>>>(a.dmaps.of[which], a.dx, which, add, shape);
    require_launched(cudaGetLastError(), shape);
  }
  const int64_t count = int64_t(shape.batch) * shape.height * shape.width * shape.channels;
  gradient_x_kernel<<<blocks_of(count, kNaiveThreads), kNaiveThreads, 0, stream>>>(
      dmap, a.weights.w[which], a.dx, which, add, shape);
  require_launched(cudaGetLastError(), shape);
}
template <class T>
void naive_gradient_w(const BackwardArrays<T>& a, const T* dmap, float* partials, int which,
                      const Shape& shape, cudaStream_t stream) {
  const NaiveSlabs slabs = naive_slabs(shape, which);
  gradient_w_kernel<<<slab_grid(shape, slabs), kNaiveThreads, 0, stream>>>(a.x, dmap, partials,
                                                                           which, shape, slabs);
  require_launched(cudaGetLastError(), shape);
}
template <class T>
void naive_gradient_w_sum(const BackwardArrays<T>& a, const float* partials, int which,
                          const Shape& shape, cudaStream_t stream) {
  const NaiveSlabs slabs = naive_slabs(shape, which);
  gradient_w_sum_kernel<<<dim3(blocks_of(shape.channels, 32), 9), kNaiveThreads, 0, stream>>>(
      partials, a.gradients.w[which], slabs.slabs, shape.channels);
  require_launched(cudaGetLastError(), shape);
}

inline size_t naive_tap_partials(const Shape& shape) {
  return size_t(std::max(naive_slabs(shape, kQuery).slabs, naive_slabs(shape, kKey).slabs)) * 9 *
         shape.channels;
}

}  // namespace conv_projection
