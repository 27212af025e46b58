// LayerNorm of tokens in fp32. Forward keeps each row's mean and 1 / deviation, so that backward
// reads x and dy once: dx of a row, and from the same registers the warp's part of dscale and
// dshift, which blocks hand over and chapter 10's second stage adds in a fixed order.
//
// Chapter 10's own steps take 64 columns or more, and compute the moments a second time.
#pragma once

#include "../../../10_layer_norm/7_backward.cuh"
#include "../linear_layers/product.cuh"

namespace token_norm {

using namespace cvt;
using namespace linear_layers;

constexpr int kNormThreads = 256, kNormWarps = kNormThreads / 32;
constexpr float kNormEpsilon = 1e-5f;
constexpr int kMostNormChannels = 1024;

// kWidth numbers an access, kPieces of these a lane.
template <int kWidth, int kPieces>
__global__ void __launch_bounds__(kNormThreads)
    norm_forward_kernel(const float* x, const float* scale, const float* shift, float* y,
                        float* mean, float* inverse_deviation, int rows, int channels) {
  using Piece = layer_norm::Piece<float, kWidth>;
  const int lane = threadIdx.x % 32, pieces = channels / kWidth;
  const int row = blockIdx.x * kNormWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const Piece* const from = reinterpret_cast<const Piece*>(x + int64_t(row) * channels);
  Piece* const to = reinterpret_cast<Piece*>(y + int64_t(row) * channels);

  Piece kept[kPieces] = {};
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (lane + 32 * p < pieces) kept[p] = from[lane + 32 * p];
    for (const float value : kept[p].element) sum += value;
  }
  const float middle = layer_norm::sum_of_warp(sum) / float(channels);
  float squares = 0.0f;
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (lane + 32 * p < pieces)
      for (const float value : kept[p].element) squares += (value - middle) * (value - middle);
  const float factor = rsqrtf(layer_norm::sum_of_warp(squares) / float(channels) + kNormEpsilon);
  if (lane == 0) mean[row] = middle, inverse_deviation[row] = factor;
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (const int at = lane + 32 * p; at < pieces) {
      const Piece scales = reinterpret_cast<const Piece*>(scale)[at];
      const Piece shifts = reinterpret_cast<const Piece*>(shift)[at];
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        kept[p].element[e] =
            (kept[p].element[e] - middle) * factor * scales.element[e] + shifts.element[e];
      to[at] = kept[p];
    }
}

// A block's warps take its rows in turn.
template <int kWidth, int kPieces>
__global__ void __launch_bounds__(kNormThreads)
    norm_backward_kernel(const float* x, const float* scale, const float* mean,
                         const float* inverse_deviation, const float* dy, const float* added,
                         float* dx, float* partials /* [blocks, 2, channels] */, int rows,
                         int channels, int rows_of_block) {
  using Piece = layer_norm::Piece<float, kWidth>;
  extern __shared__ float of_warps[];  // [warps, channels]
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pieces = channels / kWidth;
  const int first = blockIdx.x * rows_of_block, last = min(first + rows_of_block, rows);
  const auto pieces_of = [&](const float* array, int row) {
    return reinterpret_cast<const Piece*>(array + int64_t(row) * channels);
  };

  Piece scales[kPieces] = {}, dscale[kPieces] = {}, dshift[kPieces] = {};
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (lane + 32 * p < pieces) scales[p] = pieces_of(scale, 0)[lane + 32 * p];
  for (int row = first + warp; row < last; row += kNormWarps) {
    // g = dy scale, and n = (x - mean) / deviation in place of x.
    const float middle = mean[row], factor = inverse_deviation[row];
    Piece normal[kPieces] = {}, grad[kPieces] = {};
    float sum = 0.0f, sum_with_normal = 0.0f;
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (const int at = lane + 32 * p; at < pieces) {
        normal[p] = pieces_of(x, row)[at], grad[p] = pieces_of(dy, row)[at];
#pragma unroll
        for (int e = 0; e < kWidth; ++e) {
          float &n = normal[p].element[e], &g = grad[p].element[e];
          n = (n - middle) * factor;
          dscale[p].element[e] += g * n, dshift[p].element[e] += g;
          g *= scales[p].element[e];
          sum += g, sum_with_normal += g * n;
        }
      }
    const float mean_g = layer_norm::sum_of_warp(sum) / float(channels);
    const float mean_gn = layer_norm::sum_of_warp(sum_with_normal) / float(channels);
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (const int at = lane + 32 * p; at < pieces) {
        Piece result = {};
        if (added) result = pieces_of(added, row)[at];
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          result.element[e] +=
              factor * (grad[p].element[e] - mean_g - normal[p].element[e] * mean_gn);
        reinterpret_cast<Piece*>(dx + int64_t(row) * channels)[at] = result;
      }
  }

  // The block's sums: dscale, then dshift.
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
      if (const int at = lane + 32 * p; at < pieces)
        reinterpret_cast<Piece*>(of_warps + warp * channels)[at] = which ? dshift[p] : dscale[p];
    __syncthreads();
    for (int column = threadIdx.x; column < channels; column += kNormThreads) {
      float total = 0.0f;
      for (int w = 0; w < kNormWarps; ++w) total += of_warps[w * channels + column];
      partials[(int64_t(blockIdx.x) * 2 + which) * channels + column] = total;
    }
  }
}

// ---- Launch -------------------------------------------------------------------------------------

inline std::string require_norm(int rows, int channels,
                                std::initializer_list<const float*> arrays) {
  const std::string what = "layer norm of " + std::to_string(rows) + " rows of " +
                           std::to_string(channels) + " channels";
  require_that(rows >= 1, what, "rows must be at least 1");
  require_that(channels >= 1 && channels <= kMostNormChannels, what,
               "channels must be 1 to " + std::to_string(kMostNormChannels));
  for (const float* array : arrays) require_that(array != nullptr, what, "an array is null");
  return what;
}
// Calls run<kWidth, kPieces>() with what that many channels need.
template <class Run>
void with_norm_pieces(int channels, std::initializer_list<const float*> arrays, const Run& run) {
  bool whole = true;
  for (const float* array : arrays) whole = whole && whole_pieces(channels, array);
  if (whole)
    layer_norm::with_count<1, 2, 3, 4, 8>(
        divide_up(channels, 128), [&]<int kPieces>() { run.template operator()<4, kPieces>(); });
  else
    layer_norm::with_count<1, 4, 12, 32>(
        divide_up(channels, 32), [&]<int kPieces>() { run.template operator()<1, kPieces>(); });
}

}  // namespace token_norm
