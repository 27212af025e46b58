// Cross entropy, AdamW and the class token's moves. operations.h says shapes.
#pragma once

#include <cmath>

#include "../linear_layers/product.cuh"

namespace losses {

using namespace cvt;
using namespace linear_layers;

constexpr int kLossThreads = 256, kLossWarps = kLossThreads / 32;

// The same bits in all lanes, in the same order every time.
__device__ inline float warp_sum(float own) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    own += __shfl_xor_sync(0xffffffffu, own, distance);
  return own;
}
// A NaN among them stays one.
__device__ inline float warp_max(float own) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, own, distance);
    own = other > own || isnan(other) ? other : own;
  }
  return own;
}

// ---- Cross entropy ------------------------------------------------------------------------------

// A warp a row. With p = softmax(logits) and targets q = smoothing / classes, and 1 - smoothing
// more at the label: loss = -Σ q log p, dlogits = (p - q) / batch. Logits count by their distance
// to the largest one.
static __global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(const float* logits, const int* labels, float* row_loss /* [batch] */,
                         float* dlogits, int batch, int classes, float smoothing) {
  const int row = blockIdx.x * kLossWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= batch) return;
  const float* const from = logits + int64_t(row) * classes;
  const int label = labels[row];

  float largest = -INFINITY;
  for (int i = lane; i < classes; i += 32) {
    const float logit = from[i];
    largest = logit > largest || isnan(logit) ? logit : largest;
  }
  largest = warp_max(largest);
  float exponentials = 0.0f, distances = 0.0f;
  for (int i = lane; i < classes; i += 32) {
    exponentials += expf(from[i] - largest);
    distances += from[i] - largest;
  }
  const float sum = warp_sum(exponentials), log_sum = logf(sum);
  const float mean_distance = warp_sum(distances) / float(classes);
  const float share = smoothing / float(classes);
  for (int i = lane; i < classes; i += 32) {
    const float target = share + (i == label ? 1.0f - smoothing : 0.0f);
    dlogits[int64_t(row) * classes + i] = (expf(from[i] - largest) / sum - target) / float(batch);
  }
  // log p = distance - log_sum.
  if (lane == 0) {
    const float smoothed = smoothing > 0.0f ? smoothing * (log_sum - mean_distance) : 0.0f;
    row_loss[row] = (1.0f - smoothing) * (log_sum - (from[label] - largest)) + smoothed;
  }
}
// One warp.
static __global__ void __launch_bounds__(32)
    mean_kernel(const float* values, float* mean, int count) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < count; i += 32) sum += values[i];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) *mean = sum / float(count);
}

// ---- AdamW --------------------------------------------------------------------------------------

// As torch.optim.AdamW: decay shrinks the parameter itself and never enters m and v; then
// p -= step_size m / (sqrt(v) / root_correction + eps).
struct AdamWStep {
  float keep;  // 1 - rate decay
  float beta1, beta2;
  float step_size;        // rate / (1 - beta1^step)
  float root_correction;  // sqrt(1 - beta2^step)
  float eps;

  __device__ void take(float& p, float g, float& m, float& v) const {
    p *= keep;
    m += (g - m) * (1.0f - beta1);
    v = v * beta2 + (1.0f - beta2) * g * g;
    p -= step_size * (m / (sqrtf(v) / root_correction + eps));
  }
};
template <int kWidth>
__global__ void __launch_bounds__(kLossThreads)
    adamw_kernel(float* parameters, const float* gradients, float* m, float* v, int64_t pieces,
                 const AdamWStep step) {
  struct alignas(4 * kWidth) Piece {
    float number[kWidth];
  };
  const int64_t at = int64_t(blockIdx.x) * kLossThreads + threadIdx.x;
  if (at >= pieces) return;
  const auto piece_of = [&](float* array) { return reinterpret_cast<Piece*>(array) + at; };
  const Piece g = reinterpret_cast<const Piece*>(gradients)[at];
  Piece p = *piece_of(parameters), mean = *piece_of(m), square = *piece_of(v);
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    step.take(p.number[i], g.number[i], mean.number[i], square.number[i]);
  *piece_of(parameters) = p, *piece_of(m) = mean, *piece_of(v) = square;
}

// ---- The class token ----------------------------------------------------------------------------

// kBack: from y to x; else from x and token to y. A thread a number of y.
template <bool kBack>
__global__ void __launch_bounds__(kLossThreads)
    move_tokens_kernel(float* x, const float* token, float* y, int64_t count, int tokens,
                       int channels) {
  const int64_t at = int64_t(blockIdx.x) * kLossThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t of_sample = int64_t(tokens + 1) * channels, sample = at / of_sample;
  const int64_t in_x = at - (sample + 1) * channels;  // one token fewer for each sample so far
  const bool is_token = at % of_sample < channels;
  if (kBack) {
    if (!is_token) x[in_x] = y[at];
  } else {
    y[at] = is_token ? token[at % of_sample] : x[in_x];
  }
}
static __global__ void __launch_bounds__(kLossThreads)
    token_sums_kernel(const float* dy, float* dtoken, int batch, int64_t of_sample, int channels) {
  const int channel = blockIdx.x * kLossThreads + threadIdx.x;
  if (channel >= channels) return;
  float sum = 0.0f;
  for (int sample = 0; sample < batch; ++sample) sum += dy[sample * of_sample + channel];
  dtoken[channel] = sum;
}
inline std::string require_tokens(int batch, int tokens, int channels, bool arrays) {
  const std::string what = "class token in front of [" + std::to_string(batch) + ", " +
                           std::to_string(tokens) + ", " + std::to_string(channels) + "]";
  require_that(batch >= 1 && tokens >= 1 && channels >= 1, what, "all three must be at least 1");
  require_that(arrays, what, "an array is null");
  return what;
}

}  // namespace losses
