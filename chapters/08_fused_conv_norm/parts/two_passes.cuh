// Two passes, for outputs that do not fit on the chip: the first stores the convolution and the moments of
// its tiles, the second normalizes.
#pragma once

#include "convolve.cuh"
#include "plane_moments.cuh"

namespace fused_conv_norm {

// How elements are loaded and stored, one or four side by side; in registers they are fp32. Four
// begin at a multiple of their size.
template <class Element>
struct Access;
template <>
struct Access<float> {
  static __device__ void load(const float* from, float (&value)[1]) { value[0] = *from; }
  static __device__ void store(const float (&value)[1], float* to) { *to = value[0]; }
  static __device__ void load(const float* from, float (&value)[4]) {
    *reinterpret_cast<float4*>(value) = *reinterpret_cast<const float4*>(from);
  }
  static __device__ void store(const float (&value)[4], float* to) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(value);
  }
};

// ---- The kernels --------------------------------------------------------------------------------

// The convolution's values in fp32, and the moments of its tiles: a block for each tile.
template <TileName kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, Tile<kName>::kBlocks)
    first_pass_kernel(const Element<kName>* x, const Element<kName>* weight,
                      float* conv,  // as y
                      float4* moments, const __grid_constant__ typename Tile<kName>::Plan problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  const Place place = place_of(blockIdx.x, problem, T::kRows, T::kColumns);
  float value[T::kOwn][T::kRows];
  convolve<T, kStride>(x, weight, place, problem, reinterpret_cast<float*>(memory), value);
  add_to_run<T>(value, blockIdx.x, true, true, reinterpret_cast<Moments*>(memory), moments,
                problem);
  for_each_output<T>(place, problem,
                     [&](int i, int j, int, int64_t index) { conv[index] = value[i][j]; });
}

constexpr int kPassPixels = kNormThreads * 16;  // pixels that a block of the second pass takes

// Normalizes; conv may be y. kPixels: how many pixels a load takes, 1 or 4.
template <TileName kName, int kPixels>
__global__ void __launch_bounds__(kNormThreads, 2)
    second_pass_kernel(const float4* moments, const float* gamma, const float* beta,
                       const Element<kName>* residual, const float* conv, Element<kName>* y,
                       const __grid_constant__ typename Tile<kName>::Plan problem) {
  using T = Tile<kName>;
  __shared__ Moments shared[kNormWarps + 1];
  const int plane_pixels = problem.out_height * problem.out_width;
  const int pieces = (plane_pixels - 1) / kPassPixels + 1;
  const int plane = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int channel = plane % problem.out_channels, image = plane / problem.out_channels;

  // Merge the moments of the plane's tiles: a block computed each, a run each.
  const int planes = image * problem.groups + channel / T::kTileChannels;
  const int64_t first = int64_t(planes) * problem.plane_tiles + planes;
  Running mine;
  for (int t = threadIdx.x; t < problem.plane_tiles; t += kNormThreads) {
    const float4 run = moments[(first + t) * T::kTileChannels + channel % T::kTileChannels];
    mine.add(Moments{run.x, run.y, run.z});
  }
  const Moments all = moments_of_block(mine.moments(), shared);
  const Norm norm{all.mean, norm_factor(gamma[channel], all.deviation, problem.eps), beta[channel]};

  // Read, normalize, write.
  const int64_t start = int64_t(plane) * plane_pixels;
  const int end = min((piece + 1) * kPassPixels, plane_pixels);
  for (int i = piece * kPassPixels + threadIdx.x * kPixels; i < end; i += kNormThreads * kPixels) {
    float value[kPixels], add[kPixels] = {};
    Access<float>::load(conv + start + i, value);
    if (residual) Access<Element<kName>>::load(residual + start + i, add);
#pragma unroll
    for (int c = 0; c < kPixels; ++c) value[c] = normalized(value[c], norm, add[c], problem.relu);
    Access<Element<kName>>::store(value, y + start + i);
  }
}

// ---- Launches -----------------------------------------------------------------------------------

// Floats of the moments between the two passes: a block computes each tile.
template <class Tiles = Fp32Tiles>
int64_t moments_floats(const ConvNormShape& shape) {
  int64_t floats = 0;
  with_best_tile<Tiles>(nullptr, nullptr, shape, [&]<TileName kName, int>(const auto& plan) {
    floats = moments_floats<Tile<kName>>(plan.tiles, plan);
  });
  return floats;
}

// The two passes, each alone; moments: moments_floats(); conv: fp32, as y, may be y itself.
template <class Tiles = Fp32Tiles>
void first_pass(const typename Tiles::Element* x, const typename Tiles::Element* weight,
                float* conv, float* moments, const ConvNormShape& shape, cudaStream_t stream) {
  with_best_tile<Tiles>(x, weight, shape, [&]<TileName kName, int kStride>(const auto& plan) {
    using T = Tile<kName>;
    launch(first_pass_kernel<kName, kStride>, plan.tiles, T::kThreads, T::bytes(plan), shape,
           stream, x, weight, conv, reinterpret_cast<float4*>(moments), plan);
  });
}
template <class Tiles = Fp32Tiles>
void second_pass(const float* moments, const float* gamma, const float* beta,
                 const typename Tiles::Element* residual, const float* conv,
                 typename Tiles::Element* y, const ConvNormShape& shape, cudaStream_t stream) {
  constexpr int kBytes = 4 * sizeof(*y);  // bytes that a thread loads or stores at once
  const bool wide = shape.plane() % 4 == 0 && is_aligned(conv, 16) && is_aligned(y, kBytes) &&
                    is_aligned(residual, kBytes);
  const int64_t blocks = shape.planes() * ((shape.plane() - 1) / kPassPixels + 1);
  with_best_tile<Tiles>(nullptr, nullptr, shape, [&]<TileName kName, int>(const auto& plan) {
    launch(wide ? second_pass_kernel<kName, 4> : second_pass_kernel<kName, 1>, blocks, kNormThreads,
           0, shape, stream, reinterpret_cast<const float4*>(moments), gamma, beta, residual, conv,
           y, plan);
  });
}

// Both passes; conv may be y itself, whose values are then in fp32.
template <class Tiles>
void both_passes(const typename Tiles::Element* x, const typename Tiles::Element* weight,
                 const float* gamma, const float* beta, const typename Tiles::Element* residual,
                 float* conv, typename Tiles::Element* y, const ConvNormShape& shape,
                 cudaStream_t stream) {
  Workspace moments(moments_floats<Tiles>(shape), shape, stream);
  first_pass<Tiles>(x, weight, conv, moments.data(), shape, stream);
  second_pass<Tiles>(moments.data(), gamma, beta, residual, conv, y, shape, stream);
}

// As three_passes(), with the same sums; bias is not even read: the mean takes it away again.
template <class Tiles = Fp32Tiles>
void two_passes(const float* x, const float* weight, const float*, const float* gamma,
                const float* beta, const float* residual, float* y, const ConvNormShape& shape,
                cudaStream_t stream) {
  require_arguments(x, weight, gamma, beta, y, shape);
  both_passes<Tiles>(x, weight, gamma, beta, residual, y, y, shape, stream);
}

}  // namespace fused_conv_norm
