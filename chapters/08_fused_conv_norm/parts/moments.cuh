// Mean and standard deviation of numbers that come in pieces, without losing them in rounding: sums
// of squares would drown small deviations in a large mean, and overflow from 1.8e19 on.
#pragma once

#include <cuda_runtime.h>

namespace fused_conv_norm {

// The mean of `count` numbers, and the root of their mean squared distance from it.
struct Moments {
  float count = 0, mean = 0, deviation = 0;
};

// A power of two that keeps the squares of numbers up to `largest` finite.
__device__ inline float square_scale(float largest) { return largest > 0x1p+60f ? 0x1p-70f : 1.0f; }

// The moments of both together (Chan, Golub and LeVeque 1983).
__device__ inline Moments merged(const Moments& a, const Moments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const float count = a.count + b.count, share = b.count / count;
  const float distance = b.mean - a.mean;
  const float scale = square_scale(fmaxf(fmaxf(a.deviation, b.deviation), fabsf(distance)));
  const float of_a = a.deviation * scale, of_b = b.deviation * scale, between = distance * scale;
  const float variance =
      of_a * of_a + share * (of_b * of_b - of_a * of_a) + share * (1 - share) * between * between;
  return {count, fmaf(distance, share, a.mean), sqrtf(fmaxf(variance, 0.0f)) / scale};
}

// Mean and deviation of numbers that come one after the other, a few at a time: Welford's method
// (1962). The sum of squares is kept twice: as it is, and scaled down for numbers so large that
// their squares overflow.
struct Running {
  float count = 0, mean = 0, squares = 0, squares_of_huge = 0;  // squared distances from the mean

  template <int kCount>
  __device__ void add(const float (&value)[kCount]) {
    float of_values = value[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) of_values += (value[i] - value[0]) / kCount;
#pragma unroll
    for (int i = 0; i < kCount; ++i) add_squares(value[i] - of_values, 1);
    const float before = count;
    count += kCount;
    const float share = kCount / count, distance = of_values - mean;
    mean = fmaf(distance, share, mean);
    add_squares(distance, before * share);
  }
  __device__ void add(const Moments& other) {
    if (other.count == 0) return;
    const float before = count;
    count += other.count;
    const float share = other.count / count, distance = other.mean - mean;
    mean = fmaf(distance, share, mean);
    add_squares(other.deviation, other.count);
    add_squares(distance, before * share);
  }
  __device__ void add_squares(float distance, float times) {
    const float small = distance * 0x1p-70f;
    squares = fmaf(distance * distance, times, squares);
    squares_of_huge = fmaf(small * small, times, squares_of_huge);
  }
  __device__ Moments moments() const {
    if (count == 0) return {};
    const bool huge = !(squares < 0x1p+120f);
    return {count, mean, huge ? sqrtf(squares_of_huge / count) * 0x1p+70f : sqrtf(squares / count)};
  }
};

// Sums over kLanes neighbouring lanes, all of a warp in step.
template <int kLanes>
__device__ inline float sum_of_lanes(float value) {
#pragma unroll
  for (int d = kLanes / 2; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffffu, value, d);
  return value;
}

// The moments of the numbers that kLanes lanes have in registers, kCount each. valid(j): whether
// this lane's number j counts; count: how many do, of all lanes. A first pass finds the mean, a
// second one the squares of distances from it. The sum of these distances would be 0 were the mean
// exact: what it is instead corrects the mean.
template <int kLanes, int kCount, class Valid>
__device__ Moments moments_of(const float (&value)[kCount], float count, const Valid& valid) {
  const float each = count > 0 ? 1 / count : 0;
  float mean = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) mean += valid(j) ? value[j] * each : 0;
  mean = sum_of_lanes<kLanes>(mean);

  float largest = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) largest = fmaxf(largest, valid(j) ? fabsf(value[j] - mean) : 0);
  const bool huge = __any_sync(0xffffffffu, square_scale(largest) != 1);
  const float scale = huge ? 0x1p-70f : 1.0f;
  float distances = 0, squares = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float distance = valid(j) ? (value[j] - mean) * scale : 0;
    distances += distance;
    squares = fmaf(distance, distance, squares);
  }
  distances = sum_of_lanes<kLanes>(distances) * each;
  squares = sum_of_lanes<kLanes>(squares) * each;
  return {count, mean + distances / scale,
          sqrtf(fmaxf(squares - distances * distances, 0.0f)) / scale};
}

constexpr int kNormThreads = 512;  // per block, which works on a plane
constexpr int kNormWarps = kNormThreads / 32;

// The moments of a whole block from those of its threads; the same for all threads.
__device__ inline Moments moments_of_block(Moments mine, Moments* shared /* [kNormWarps + 1] */) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    // Lower lanes stand first, so that both lanes of a pair get the same bits.
    const Moments other{__shfl_xor_sync(0xffffffffu, mine.count, d),
                        __shfl_xor_sync(0xffffffffu, mine.mean, d),
                        __shfl_xor_sync(0xffffffffu, mine.deviation, d)};
    mine = threadIdx.x & d ? merged(other, mine) : merged(mine, other);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    Moments all = shared[0];
    for (int warp = 1; warp < kNormWarps; ++warp) all = merged(all, shared[warp]);
    shared[kNormWarps] = all;
  }
  __syncthreads();
  return shared[kNormWarps];
}

// gamma / sqrt(variance + eps), from the deviation.
__device__ inline float norm_factor(float gamma, float deviation, float eps) {
  const bool huge = deviation > 0x1p+60f;  // eps is nothing beside it
  return huge ? gamma / deviation : gamma / sqrtf(fmaf(deviation, deviation, eps));
}

}  // namespace fused_conv_norm
