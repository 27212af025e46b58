// Step 1, three passes, as a framework does it: a convolution with bias, instance norm, ReLU, each
// a kernel that reads what the one before it wrote.
#pragma once

#include "convolve.cuh"
#include "instance_norm.cuh"

namespace fused_conv_norm {

// conv = convolution + bias, a block for each tile.
template <int kName, int kStride>
__global__ void __launch_bounds__(Tile<kName>::kThreads, Tile<kName>::kBlocks)
    convolution_kernel(const float* x,       // [batch, in_channels, height, width]
                       const float* weight,  // [out_channels, in_channels, kernel, kernel]
                       const float* bias,    // [out_channels], or null
                       float* conv,          // [batch, out_channels, out_height, out_width]
                       const __grid_constant__ Problem problem) {
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

// y = relu(y + residual), or one of both.
__global__ void __launch_bounds__(kReluThreads)
    relu_kernel(float* y, const float* residual, bool relu, int elements) {
  const int i = blockIdx.x * kReluThreads + threadIdx.x;
  if (i >= elements) return;
  const float sum = residual ? y[i] + residual[i] : y[i];
  y[i] = relu && sum < 0 ? 0.0f : sum;  // NaN stays NaN
}

// Calls launch.operator()<kName, kStride>() for the kind of tile and the stride.
template <class Launch>
void with_tile(TileName name, int stride, const Launch& launch) {
  const auto with_stride = [&]<int kName>() {
    stride == 1 ? launch.template operator()<kName, 1>() : launch.template operator()<kName, 2>();
  };
  if (name == kLarge) with_stride.template operator()<kLarge>();
  if (name == kMedium) with_stride.template operator()<kMedium>();
  if (name == kNarrow) with_stride.template operator()<kNarrow>();
}

// conv = convolution of x, plus bias where it is not null. As three_passes() in all else.
inline void convolution(const float* x, const float* weight, const float* bias, float* conv,
                        const ConvNormShape& shape, cudaStream_t stream) {
  const DeviceLimits limits = device_limits();
  with_tile(choose_tile(shape, limits.sm_count), shape.stride, [&]<int kName, int kStride>() {
    const Problem problem = problem_of<kName>(shape, x, weight, limits);
    const int bytes = tile_bytes<kName>(problem);
    const auto kernel = convolution_kernel<kName, kStride>;
    require_done(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                 shape);
    kernel<<<problem.tiles, Tile<kName>::kThreads, bytes, stream>>>(x, weight, bias, conv, problem);
    require_done(cudaGetLastError(), shape);
  });
}

inline NormShape norm_shape(const ConvNormShape& shape) {
  return {shape.batch, shape.out_channels, int(shape.plane()), shape.eps};
}

inline void relu(float* y, const float* residual, const ConvNormShape& shape, cudaStream_t stream) {
  const int elements = int(shape.y_elements());
  relu_kernel<<<(elements - 1) / kReluThreads + 1, kReluThreads, 0, stream>>>(y, residual,
                                                                              shape.relu, elements);
  require_done(cudaGetLastError(), shape);
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
