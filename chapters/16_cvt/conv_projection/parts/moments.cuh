// Mean and variance of a channel from those of its tiles. A tile's sum of squares is that of
// distances from the tile's own mean (M2), so a large mean takes no digits from it. The parts meet
// as in Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances" (1979):
//
//   distance = mean_of_part - near           near: some part's mean, so that distances are small
//   mean     = near + Σ count · distance / N
//   M2       = Σ (M2_of_part + count · distance²) - (Σ count · distance)² / N
#pragma once

#include "elements.cuh"

namespace conv_projection {

// Sums of distances from `shift`, a number that is as large as the others.
struct Shifted {
  float shift = 0, sum = 0, squares = 0;
  __device__ void add(float value) {
    const float distance = value - shift;
    sum += distance;
    squares += distance * distance;
  }
  // {mean, M2} of so many numbers.
  __device__ float2 moments(int count) const {
    if (count == 0) return {0, 0};
    const float mean = sum / float(count);
    return {shift + mean, squares - sum * mean};
  }
};

// How many positions of q, or of k and v, a tile of these rows and columns has.
__host__ __device__ inline int positions(int rows, int columns, int which) {
  return which == kQuery ? rows * columns : (rows + 1) / 2 * ((columns + 1) / 2);
}

// What is left of BatchNorm's forward pass when the moments are known.
struct Statistics {
  Three<const float*> scale, shift;  // [channels] each
  Saved saved;
  Three<float*> running_mean, running_variance;  // null: not wanted
};
inline Statistics statistics_of(const Weights& weights, const Saved& saved,
                                float* const running_mean[3], float* const running_variance[3]) {
  Statistics to{};
  to.saved = saved;
  for (int i = 0; i < 3; ++i) {
    to.scale.of[i] = weights.scale[i];
    to.shift.of[i] = weights.shift[i];
    to.running_mean.of[i] = running_mean ? running_mean[i] : nullptr;
    to.running_variance.of[i] = running_variance ? running_variance[i] : nullptr;
  }
  return to;
}

// Throws std::invalid_argument where an array of BatchNorm is null, or where an unbiased variance
// is asked of one position.
inline void require_statistics(const Statistics& to, const Shape& shape) {
  for (int i = 0; i < 3; ++i) {
    require_pointers(
        shape, {to.scale.of[i], to.shift.of[i], to.saved.mean[i], to.saved.inverse_deviation[i],
                to.saved.factor[i], to.saved.offset[i]});
    if (to.running_variance.of[i] && shape.batch * positions(shape.height, shape.width, i) < 2)
      throw std::invalid_argument("convolutional projection of shape " + describe(shape) +
                                  ": a running variance needs at least 2 positions");
  }
}

__device__ inline void finish_channel(const Statistics& to, int which, int channel, float mean,
                                      float m2, float count) {
  const float variance = m2 / count;
  const float inverse = rsqrtf(variance + kEpsilon), factor = to.scale.of[which][channel] * inverse;
  to.saved.mean[which][channel] = mean;
  to.saved.inverse_deviation[which][channel] = inverse;
  to.saved.factor[which][channel] = factor;
  to.saved.offset[which][channel] = to.shift.of[which][channel] - mean * factor;
  // Running statistics: the variance is the unbiased one.
  if (float* const running = to.running_mean.of[which])
    running[channel] += kMomentum * (mean - running[channel]);
  if (float* const running = to.running_variance.of[which])
    running[channel] += kMomentum * (m2 / (count - 1) - running[channel]);
}

// The sum over a block's warps of each lane's number, in all of them, in the same order every time.
template <int kWarps>
__device__ float sum_of_warps(float own, float (&of_warps)[kWarps][32]) {
  const int lane = threadIdx.x % 32;
  __syncthreads();  // the last sum is read
  of_warps[threadIdx.x / 32][lane] = own;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += of_warps[w][lane];
  return sum;
}

// A block has 32 channels of q, k or v (blockIdx.y), a lane one, and the warps share the tiles.
constexpr int kFinishWarps = 16;
static __global__ void __launch_bounds__(32 * kFinishWarps)
    finish_moments_kernel(const float2* partials,  // [tiles, 3, channels], {mean, M2}
                          const __grid_constant__ Statistics to,
                          const __grid_constant__ Shape shape,
                          const __grid_constant__ Tiling tiling) {
  __shared__ float of_warps[kFinishWarps][32];
  const int which = blockIdx.y, warp = threadIdx.x / 32, channels = shape.channels;
  const int channel = blockIdx.x * 32 + threadIdx.x % 32;
  const int tiles = channel < channels ? shape.batch * tiling.of_sample() : 0;
  const bool alike = shape.height % tiling.rows == 0 && shape.width % tiling.columns == 0;
  const auto count_of = [&](int tile) {
    if (alike) return float(positions(tiling.rows, tiling.columns, which));
    const int left = tile % tiling.strips * tiling.columns;
    const int top = tile / tiling.strips % tiling.bands * tiling.rows;
    return float(positions(min(tiling.rows, shape.height - top),
                           min(tiling.columns, shape.width - left), which));
  };

  // Distances are from the first tile's mean, which is as large as the others': count, sum and
  // squares of all tiles in one pass.
  const float2* const mine = partials + which * channels + channel;
  const float near = tiles > 0 ? mine[0].x : 0.0f;
  float sum = 0, m2 = 0;
#pragma unroll 8
  for (int tile = warp; tile < tiles; tile += kFinishWarps) {
    const float2 part = mine[int64_t(tile) * 3 * channels];
    const float distance = part.x - near, weighted = count_of(tile) * distance;
    sum += weighted;
    m2 += part.y + weighted * distance;
  }
  const float count = float(shape.batch) * float(positions(shape.height, shape.width, which));
  sum = sum_of_warps(sum, of_warps);
  m2 = sum_of_warps(m2, of_warps) - sum * (sum / count);
  const float mean = near + sum / count;
  if (warp == 0 && channel < channels) finish_channel(to, which, channel, mean, m2, count);
}

inline void finish_moments(const float2* partials, const Statistics& to, const Shape& shape,
                           const Tiling& tiling, cudaStream_t stream) {
  const dim3 grid(blocks_of(shape.channels, 32), 3);
  finish_moments_kernel<<<grid, 32 * kFinishWarps, 0, stream>>>(partials, to, shape, tiling);
  require_launched(cudaGetLastError(), shape);
}

}  // namespace conv_projection
