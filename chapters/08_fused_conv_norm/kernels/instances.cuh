// Which kernels of steps 1 to 4 fp32.cu, tensor.cu and half.cu compile, once for the program and its tests: that
// takes 40 s. Whoever includes a step's own header instead compiles that step's kernels.
#pragma once

#include "../1_three_passes.cuh"
#include "../2_fused.cuh"
#include "../3_tensor.cuh"
#include "../4_half.cuh"

namespace fused_conv_norm {

// The kernels on one kind of tile, for whoever asks what they were compiled to; second_pass by pixels
// that a thread loads at a time.
struct Kernels {
  const void *fused = nullptr, *first_pass = nullptr;
  const void *second_pass_by_1 = nullptr, *second_pass_by_4 = nullptr;
  const void* convolution = nullptr;  // only where tiles are in fp32
};
template <class Tiles>
Kernels kernels_of(TileName name, int stride) {
  Kernels kernels;
  Tiles::with(name, stride, [&]<TileName kName, int kStride>() {
    kernels.fused = (const void*)fused_kernel<kName, kStride>;
    kernels.first_pass = (const void*)first_pass_kernel<kName, kStride>;
    kernels.second_pass_by_1 = (const void*)second_pass_kernel<kName, 1>;
    kernels.second_pass_by_4 = (const void*)second_pass_kernel<kName, 4>;
    if constexpr (std::is_same_v<Tiles, Fp32Tiles>)
      kernels.convolution = (const void*)convolution_kernel<kName, kStride>;
  });
  return kernels;
}

// The functions through which all else reaches those kernels. `template` in front defines them,
// `extern template` says that they are defined elsewhere.
#define FUSED_CONV_NORM_LAUNCHES(declared, Tiles)                           \
  declared decltype(plan_of<Tiles>) plan_of<Tiles>;                         \
  declared decltype(fused_in_one_launch<Tiles>) fused_in_one_launch<Tiles>; \
  declared decltype(first_pass<Tiles>) first_pass<Tiles>;                   \
  declared decltype(second_pass<Tiles>) second_pass<Tiles>;                 \
  declared decltype(kernels_of<Tiles>) kernels_of<Tiles>

// The kernels of the three passes.
#define FUSED_CONV_NORM_FIRST_STEP(declared)                        \
  declared decltype(convolution<Fp32Tiles>) convolution<Fp32Tiles>; \
  declared decltype(launch_norm<1, 0>) launch_norm<1, 0>;           \
  declared decltype(launch_norm<1, 8>) launch_norm<1, 8>;           \
  declared decltype(launch_norm<1, 32>) launch_norm<1, 32>;         \
  declared decltype(launch_norm<4, 0>) launch_norm<4, 0>;           \
  declared decltype(launch_norm<4, 2>) launch_norm<4, 2>;           \
  declared decltype(launch_norm<4, 8>) launch_norm<4, 8>;           \
  declared decltype(launch_norm<4, 12>) launch_norm<4, 12>

FUSED_CONV_NORM_LAUNCHES(extern template, Fp32Tiles);
FUSED_CONV_NORM_FIRST_STEP(extern template);
FUSED_CONV_NORM_LAUNCHES(extern template, TensorTiles<kTf32>);
FUSED_CONV_NORM_LAUNCHES(extern template, TensorTiles<kFp16>);
extern template decltype(lacking<kTf32>) lacking<kTf32>;
extern template decltype(lacking<kFp16>) lacking<kFp16>;
FUSED_CONV_NORM_LAUNCHES(extern template, HalfTiles);

}  // namespace fused_conv_norm
