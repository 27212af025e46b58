// BatchNorm without a pass of its own: factor and offset of a channel, taken into the weights of
// the linear layer behind the projection.
#pragma once

#include "moments.cuh"

namespace conv_projection {

static __global__ void running_kernel(const __grid_constant__ Statistics to, int channels) {
  const int channel = blockIdx.x * blockDim.x + threadIdx.x, which = blockIdx.y;
  if (channel >= channels) return;
  const float mean = to.running_mean.of[which][channel];
  const float inverse = rsqrtf(to.running_variance.of[which][channel] + kEpsilon);
  const float factor = to.scale.of[which][channel] * inverse;
  to.saved.mean[which][channel] = mean;
  to.saved.inverse_deviation[which][channel] = inverse;
  to.saved.factor[which][channel] = factor;
  to.saved.offset[which][channel] = to.shift.of[which][channel] - mean * factor;
}

// A warp has a row of the weights; the lanes' sums meet in the same order every time.
static __global__ void fold_kernel(const float* w,       // [out, in]
                                   const float* bias,    // [out], or null: 0
                                   const float* factor,  // [in]
                                   const float* offset,  // [in]
                                   float* folded_w, float* folded_bias, int in, int out) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= out) return;
  float sum = 0;
  for (int i = lane; i < in; i += 32) {
    const float weight = w[int64_t(row) * in + i];
    folded_w[int64_t(row) * in + i] = weight * factor[i];
    sum += weight * offset[i];
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) folded_bias[row] = (bias ? bias[row] : 0.0f) + sum;
}

}  // namespace conv_projection
