// The simple steps' kernels.
#pragma once

#include <cmath>

#include "../embed/embed.cuh"
#include "../norm/layer_norm.cuh"
#include "steps.h"

namespace naive_steps {

using namespace cvt;
using namespace linear_layers;

constexpr int kThreads = 256;

// ---- Products -----------------------------------------------------------------------------------

// Numbers from one row to the next, from one number of the sum to the next, from sample to sample
// and from head to head.
struct Strides {
  int64_t row, sum, sample, head;
};
struct NaiveSize {
  int rows, columns, depth, heads;
};

// out[row, column] = factor Σ left[row, k] right[column, k] + bias[column]; of_out.sum is from
// column to column. A thread an output, blockIdx.y a sample's head.
static __global__ void product_kernel(const float* left, Strides of_left, const float* right,
                                      Strides of_right, float* out, Strides of_out,
                                      const float* bias, float factor, NaiveSize size) {
  const int64_t element = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const int row = int(element / size.columns), column = int(element % size.columns);
  if (row >= size.rows) return;
  const int sample = blockIdx.y / size.heads, head = blockIdx.y % size.heads;
  const auto begin = [&](const Strides& s, int64_t at) {
    return sample * s.sample + head * s.head + at * s.row;
  };
  const float* const a = left + begin(of_left, row);
  const float* const b = right + begin(of_right, column);
  float sum = 0.0f;
  for (int k = 0; k < size.depth; ++k) sum += a[k * of_left.sum] * b[k * of_right.sum];
  out[begin(of_out, row) + column * of_out.sum] = sum * factor + (bias ? bias[column] : 0.0f);
}
inline void product(const float* left, Strides of_left, const float* right, Strides of_right,
                    float* out, Strides of_out, const NaiveSize& size, cudaStream_t stream,
                    int samples = 1, const float* bias = nullptr, float factor = 1.0f) {
  const dim3 blocks(unsigned(divide_up(int64_t(size.rows) * size.columns, kThreads)),
                    unsigned(samples * size.heads));
  product_kernel<<<blocks, kThreads, 0, stream>>>(left, of_left, right, of_right, out, of_out, bias,
                                                  factor, size);
  require_cuda("a naive product");
}

// sums[column] = Σ over rows of a[row, column] (b[row, column] - mean[row]) inverse[row], b may be
// null.
static __global__ void column_sums_kernel(const float* a, const float* b, const float* mean,
                                          const float* inverse, float* sums, int rows,
                                          int columns) {
  const int column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) {
    const int64_t at = int64_t(row) * columns + column;
    sum += b ? a[at] * (b[at] - mean[row]) * inverse[row] : a[at];
  }
  sums[column] = sum;
}
inline void column_sums(const float* a, const float* b, const float* mean, const float* inverse,
                        float* sums, int rows, int columns, cudaStream_t stream) {
  column_sums_kernel<<<divide_up(columns, kThreads), kThreads, 0, stream>>>(a, b, mean, inverse,
                                                                            sums, rows, columns);
  require_cuda("naive sums of columns");
}

// ---- LayerNorm ----------------------------------------------------------------------------------

static __global__ void norm_kernel(const float* x, const float* scale, const float* shift, float* y,
                                   float* mean, float* inverse, int rows, int channels) {
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= rows) return;
  const float* const from = x + int64_t(row) * channels;
  float sum = 0.0f, squares = 0.0f;
  for (int c = 0; c < channels; ++c) sum += from[c];
  const float middle = sum / float(channels);
  for (int c = 0; c < channels; ++c) squares += (from[c] - middle) * (from[c] - middle);
  const float factor = rsqrtf(squares / float(channels) + token_norm::kNormEpsilon);
  mean[row] = middle, inverse[row] = factor;
  for (int c = 0; c < channels; ++c)
    y[int64_t(row) * channels + c] = (from[c] - middle) * factor * scale[c] + shift[c];
}
static __global__ void norm_back_kernel(const float* x, const float* scale, const float* mean,
                                        const float* inverse, const float* dy, float* dx, int rows,
                                        int channels) {
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= rows) return;
  const int64_t first = int64_t(row) * channels;
  float sum = 0.0f, with_normal = 0.0f;
  for (int c = 0; c < channels; ++c) {
    const float g = dy[first + c] * scale[c];
    sum += g, with_normal += g * (x[first + c] - mean[row]) * inverse[row];
  }
  for (int c = 0; c < channels; ++c) {
    const float normal = (x[first + c] - mean[row]) * inverse[row];
    dx[first + c] = inverse[row] * (dy[first + c] * scale[c] - sum / float(channels) -
                                    normal * with_normal / float(channels));
  }
}

// ---- Attention ----------------------------------------------------------------------------------

// A row of scores becomes weights; a thread a row.
static __global__ void softmax_kernel(float* scores, float* log_sum_exp, int64_t rows, int keys) {
  const int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  float* const of_row = scores + row * keys;
  float largest = -INFINITY, sum = 0.0f;
  for (int j = 0; j < keys; ++j) largest = fmaxf(largest, of_row[j]);
  for (int j = 0; j < keys; ++j) sum += of_row[j] = expf(of_row[j] - largest);
  for (int j = 0; j < keys; ++j) of_row[j] /= sum;
  log_sum_exp[row] = largest + logf(sum);
}
// Scores become weights by their row's log-sum-exp.
static __global__ void weights_kernel(float* scores, const float* log_sum_exp, int64_t count,
                                      int keys) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) scores[at] = expf(scores[at] - log_sum_exp[at / keys]);
}
// dP becomes dS; a thread a row.
static __global__ void score_gradients_kernel(const float* weights, float* dp, int64_t rows,
                                              int keys) {
  const int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  float mean = 0.0f;
  for (int j = 0; j < keys; ++j) mean += weights[row * keys + j] * dp[row * keys + j];
  for (int j = 0; j < keys; ++j)
    dp[row * keys + j] = weights[row * keys + j] * (dp[row * keys + j] - mean);
}

// ---- Embedding ----------------------------------------------------------------------------------

// A thread a number of the patches: [positions, taps, in_channels].
static __global__ void patches_kernel(const token_embedding::Gathered from, float* patches,
                                      int64_t count, int depth) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const float* const number = from.number(from.row(int(at / depth)), int(at % depth));
  patches[at] = number ? *number : 0.0f;
}
// A thread a number of dx adds those of the patches in which it lies.
static __global__ void unfold_kernel(const float* patches, float* dx, int64_t count,
                                     const EmbedShape s, int out_height, int out_width) {
  const int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const int channel = int(at % s.in_channels), column = int(at / s.in_channels % s.width),
            row = int(at / s.in_channels / s.width % s.height),
            sample = int(at / s.in_channels / s.width / s.height);
  const int depth = s.kernel * s.kernel * s.in_channels;
  float sum = 0.0f;
  for (int i = 0; i < s.kernel; ++i)
    for (int j = 0; j < s.kernel; ++j) {
      const int r = row + s.padding - i, c = column + s.padding - j;
      if (r < 0 || c < 0 || r % s.stride || c % s.stride) continue;
      if (r / s.stride >= out_height || c / s.stride >= out_width) continue;
      const int64_t position =
          (int64_t(sample) * out_height + r / s.stride) * out_width + c / s.stride;
      sum += patches[position * depth + (i * s.kernel + j) * s.in_channels + channel];
    }
  dx[at] = sum;
}

}  // namespace naive_steps
