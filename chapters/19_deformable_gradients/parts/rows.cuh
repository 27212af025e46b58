// What steps 2 to 4 share: a group of lanes takes a row of the output, four channels a lane: 8 bytes of
// value in fp16, 16 bytes of its gradient in fp32. Where the shares go, a step's own file says.
#pragma once

#include "gradients.cuh"

namespace deformable_gradients {

template <int kChannels>
struct Lanes {
  static constexpr int kOfRow = kChannels / 4, kRowsPerWarp = 32 / kOfRow;
  __device__ static int lane() { return threadIdx.x % kOfRow; }
  __device__ static int row() { return threadIdx.x % 32 / kOfRow; }  // among the warp's rows
};

// The arrays as a kernel has them; shapes as in 1_atomics.cuh.
struct Arrays {
  const half *value, *locations, *weights, *grad_out;
  float *grad_value, *grad_locations, *grad_weights;
};

__device__ inline float4 widened(uint2 four) {
  const float2 low = __half22float2(*reinterpret_cast<const half2*>(&four.x));
  const float2 high = __half22float2(*reinterpret_cast<const half2*>(&four.y));
  return {low.x, low.y, high.x, high.y};
}
__device__ inline float4 operator*(float factor, float4 v) {
  return {factor * v.x, factor * v.y, factor * v.z, factor * v.w};
}
__device__ inline float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ inline float dot(float4 a, float4 b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// The lane's whose number differs in that bit.
__device__ inline float4 from_lane(float4 v, int bit) {
  constexpr unsigned kAll = 0xffffffffu;
  return {__shfl_xor_sync(kAll, v.x, bit), __shfl_xor_sync(kAll, v.y, bit),
          __shfl_xor_sync(kAll, v.z, bit), __shfl_xor_sync(kAll, v.w, bit)};
}

// Adds to four floats in global memory: from sm_90 on one instruction, and each of the four additions
// is atomic for itself (PTX, "red").
__device__ inline void add_four(float* address, float4 v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w));
#else
  atomicAdd(address, v.x);
  atomicAdd(address + 1, v.y);
  atomicAdd(address + 2, v.z);
  atomicAdd(address + 3, v.w);
#endif
}

// Lane i of the kLanes of a row gets the sum of v[i % 4] over all of them: two lanes exchange what
// belongs to the other, so that four sums over eight lanes take 4 shuffles and not 12.
template <int kLanes>
__device__ float sum_by_lane(const float (&v)[4]) {
  constexpr unsigned kAll = 0xffffffffu;
  const bool upper = threadIdx.x & 2, odd = threadIdx.x & 1;
  const float first = (upper ? v[2] : v[0]) + __shfl_xor_sync(kAll, upper ? v[0] : v[2], 2);
  const float second = (upper ? v[3] : v[1]) + __shfl_xor_sync(kAll, upper ? v[1] : v[3], 2);
  float sum = (odd ? second : first) + __shfl_xor_sync(kAll, odd ? first : second, 1);
#pragma unroll
  for (int distance = 4; distance < kLanes; distance *= 2)
    sum += __shfl_xor_sync(kAll, sum, distance);
  return sum;
}

// The gradients of one row's locations and weights. scatter(level's number, pixel of the image,
// share) gets what this lane's four channels of a pixel are to grow by. All lanes of a warp take
// part; those of a row that does not exist compute another one's and neither scatter nor store.
template <int kChannels, class Scatter>
__device__ void take_row(const Arrays& arrays, const Problem& problem, int64_t row, bool exists,
                         const Scatter& scatter) {
  constexpr int kLanes = Lanes<kChannels>::kOfRow;
  const int lane = Lanes<kChannels>::lane(), head = int(row % problem.heads);
  const int64_t image = row / problem.heads / problem.queries;
  const int stride = problem.heads * kLanes;  // from a pixel to the next
  const uint2* image_value = reinterpret_cast<const uint2*>(arrays.value) +
                             image * problem.pixels * stride + head * kLanes + lane;
  const float4 grad = widened(reinterpret_cast<const uint2*>(arrays.grad_out)[row * kLanes + lane]);

  int64_t first = row * problem.levels * problem.points;
  for (int l = 0; l < problem.levels; ++l) {
    const Level level = problem.level[l];
    for (int p = 0; p < problem.points; p += 4, first += 4) {
      // Samples come in fours. A lane prepares one and tells the others.
      const int64_t own = first + lane % 4;
      const Place place = place_of(reinterpret_cast<const half2*>(arrays.locations)[own], level);
      const float weight = __half2float(arrays.weights[own]);
      const int upper_left = level.start + place.row * level.width + place.column;
      int corners_inside = 0;
#pragma unroll
      for (int corner = 0; corner < 4; ++corner)
        corners_inside |= int(exists && place.inside(corner, level)) << corner;

      SampleSums sums[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const auto told = [&](auto mine) { return __shfl_sync(0xffffffffu, mine, j, kLanes); };
        const int pixel = told(upper_left), inside = told(corners_inside);
        const Place there{0, 0, told(place.right), told(place.down)};
        const float4 weighted = told(weight) * grad;
        // All loads first.
        uint2 values[4];
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          const int at = pixel + corner / 2 * level.width + corner % 2;
          values[corner] = inside >> corner & 1 ? image_value[int64_t(at) * stride] : uint2{};
        }
#pragma unroll
        for (int corner = 0; corner < 4; ++corner) {
          const int at = pixel + corner / 2 * level.width + corner % 2;
          if (inside >> corner & 1) scatter(l, at, there.share(corner) * weighted);
          sums[j].add(there, corner, dot(widened(values[corner]), grad));
        }
      }

      const auto total = [&](float SampleSums::*which) {
        return sum_by_lane<kLanes>(
            {sums[0].*which, sums[1].*which, sums[2].*which, sums[3].*which});
      };
      const float of_weight = total(&SampleSums::weight), of_x = total(&SampleSums::x),
                  of_y = total(&SampleSums::y);
      if (!exists || lane >= 4) continue;
      arrays.grad_weights[own] = of_weight;
      reinterpret_cast<float2*>(arrays.grad_locations)[own] = {weight * float(level.width) * of_x,
                                                               weight * float(level.height) * of_y};
    }
  }
}

}  // namespace deformable_gradients
