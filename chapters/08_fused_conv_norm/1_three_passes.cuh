// Step 1, three passes, as a framework does it: a convolution with bias, instance norm, ReLU, each
// a kernel that reads what the one before it wrote.
#pragma once

#include "parts/convolve.cuh"
#include "parts/instance_norm.cuh"

namespace fused_conv_norm {

// conv = convolution + bias, a block for each tile.
template <TileName kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, Tile<kName>::kBlocks)
    convolution_kernel(const float* x,       // [batch, in_channels, height, width]
                       const float* weight,  // [out_channels, in_channels, kernel, kernel]
                       const float* bias,    // [out_channels], or null
                       float* conv,          // [batch, out_channels, out_height, out_width]
                       const __grid_constant__ typename Tile<kName>::Plan problem) {
  using T = Tile<kName>;
  extern __shared__ float4 memory[];
  const Place place = place_of(blockIdx.x, problem, T::kRows, T::kColumns);
  float value[T::kOwn][T::kRows];
  convolve<T, kStride>(x, weight, place, problem, reinterpret_cast<float*>(memory), value);
  for_each_output<T>(place, problem, [&](int i, int j, int channel, int64_t index) {
    conv[index] = value[i][j] + (bias ? bias[channel] : 0.0f);
  });
}

constexpr int kReluThreads = 256;

// y = relu(y + residual). residual may be null: none is added; relu false: negative y stay.
static __global__ void __launch_bounds__(kReluThreads)
    relu_kernel(float* y, const float* residual, bool relu, int elements) {
  const int i = blockIdx.x * kReluThreads + threadIdx.x;
  if (i >= elements) return;
  const float sum = residual ? y[i] + residual[i] : y[i];
  y[i] = relu && sum < 0 ? 0.0f : sum;  // NaN stays NaN
}

// conv = convolution of x, plus bias where it is not null. As three_passes() in all else.
template <class Tiles = Fp32Tiles>
void convolution(const float* x, const float* weight, const float* bias, float* conv,
                 const ConvNormShape& shape, cudaStream_t stream) {
  with_best_tile<Tiles>(x, weight, shape, [&]<TileName kName, int kStride>(const auto& plan) {
    using T = Tile<kName>;
    launch(convolution_kernel<kName, kStride>, plan.tiles, T::kThreads, T::bytes(plan), shape,
           stream, x, weight, bias, conv, plan);
  });
}

inline NormShape norm_shape(const ConvNormShape& shape) {
  return {shape.batch, shape.out_channels, int(shape.plane()), shape.eps};
}

inline void relu(float* y, const float* residual, const ConvNormShape& shape, cudaStream_t stream) {
  const int elements = int(shape.y_elements());
  launch(relu_kernel, (elements - 1) / kReluThreads + 1, kReluThreads, 0, shape, stream, y,
         residual, shape.relu, elements);
}

// y = relu(gamma · (conv - mean) / sqrt(variance + eps) + beta + residual) as ConvNormShape
// describes it, in fp32. bias and residual may be null; y overlaps none of the others. Arrays that
// begin at multiples of 16 bytes are copied faster. Throws std::invalid_argument naming shape and
// limit when it cannot, std::runtime_error when CUDA refuses.
inline void three_passes(const float* x, const float* weight, const float* bias, const float* gamma,
                         const float* beta, const float* residual, float* y,
                         const ConvNormShape& shape, cudaStream_t stream) {
  require_arguments(x, weight, gamma, beta, y, shape);
  Workspace conv(shape.y_elements(), shape, stream);
  convolution(x, weight, bias, conv.data(), shape, stream);
  vectorized_norm(conv.data(), gamma, beta, y, norm_shape(shape), stream);
  relu(y, residual, shape, stream);
}

}  // namespace fused_conv_norm
