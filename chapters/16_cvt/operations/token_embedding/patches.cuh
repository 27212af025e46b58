// The embedding's patches in memory: kernels and launches of patches.h.
#pragma once

#include "embed.cuh"
#include "patches.h"

namespace token_embedding {

constexpr int kPatchThreads = 256;

// A thread a number of the patches: [positions, taps, in_channels].
static __global__ void patches_kernel(const Gathered from, float* patches, int64_t count,
                                      int depth) {
  const int64_t at = int64_t(blockIdx.x) * kPatchThreads + threadIdx.x;
  if (at >= count) return;
  const float* const number = from.number(from.row(int(at / depth)), int(at % depth));
  patches[at] = number ? *number : 0.0f;
}
// A thread a number of dx adds those of the patches in which it lies.
static __global__ void unfold_kernel(const float* patches, float* dx, int64_t count,
                                     const EmbedShape s, int out_height, int out_width) {
  const int64_t at = int64_t(blockIdx.x) * kPatchThreads + threadIdx.x;
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

inline void gather_patches(const float* x, float* patches, const EmbedShape& s,
                           cudaStream_t stream) {
  const int depth = s.kernel * s.kernel * s.in_channels;
  const int64_t count = int64_t(positions_of(s)) * depth;
  patches_kernel<<<divide_up(count, kPatchThreads), kPatchThreads, 0, stream>>>(
      token_embedding::patches(x, s), patches, count, depth);
  require_cuda("patches");
}

void patches_forward(const float* x, const float* w, const float* bias, float* y,
                     const EmbedShape& s, cudaStream_t stream) {
  const int depth = s.kernel * s.kernel * s.in_channels, positions = positions_of(s);
  const Scratch<float> patches(int64_t(positions) * depth, "patches", stream);
  const Scratch<float> packed(int64_t(s.out_channels) * depth, "packed weights", stream);
  pack_weights(w, packed.data(), s, "packed weights", stream);
  gather_patches(x, patches.data(), s, stream);
  cvt::linear_forward(patches.data(), packed.data(), bias, y, Rows::all(positions), depth,
                      s.out_channels, {}, stream);
}

void patches_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                      float* dbias, const EmbedShape& s, cudaStream_t stream) {
  const int taps = s.kernel * s.kernel, depth = taps * s.in_channels, positions = positions_of(s);
  const Scratch<float> patches(int64_t(positions) * depth, "patches", stream);
  const Scratch<float> packed(int64_t(s.out_channels) * depth, "packed weights", stream);
  gather_patches(x, patches.data(), s, stream);
  const Rows rows = Rows::all(positions);
  cvt::linear_backward_w(dy, patches.data(), packed.data(), dbias, rows, depth, s.out_channels,
                         nullptr, nullptr, false, stream);
  // Back to [out, in, taps]: what packs weights, with taps and channels in each other's place.
  pack_weights_kernel<<<divide_up(int64_t(s.out_channels) * depth, kPatchThreads), kPatchThreads, 0,
                        stream>>>(packed.data(), dw, int64_t(s.out_channels) * depth, taps,
                                  s.in_channels);
  if (!dx) return;
  pack_weights(w, packed.data(), s, "packed weights", stream);
  cvt::linear_backward_x(dy, packed.data(), patches.data(), rows, depth, s.out_channels, {},
                         stream);
  const int64_t count = int64_t(s.batch) * s.height * s.width * s.in_channels;
  unfold_kernel<<<divide_up(count, kPatchThreads), kPatchThreads, 0, stream>>>(
      patches.data(), dx, count, s, s.out_height(), s.out_width());
  require_cuda("gradients of patches");
}

}  // namespace token_embedding
