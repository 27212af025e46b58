// The convolutional projection: in fp32 as operations.h declares it, and in both storages as the
// program's steps.
#include "conv_projection.h"

#include "../conv_projection/1_naive.cuh"
#include "../conv_projection/2_fused.cuh"
#include "../conv_projection/3_naive_backward.cuh"
#include "../conv_projection/4_fused_backward.cuh"
#include "../conv_projection/parts/fold.cuh"
#include "../host/projection_launches.cuh"
#include "../operations/operations.h"

namespace cvt {

namespace steps = ::conv_projection;

void projection_forward(const float* x, const ProjectionWeights& weights, float* const maps[3],
                        const BatchNormSaved& saved, float* const running_mean[3],
                        float* const running_variance[3], const ProjectionShape& shape,
                        cudaStream_t stream) {
  steps::fused_forward(x, weights, maps, saved, running_mean, running_variance, shape, stream);
}

void projection_backward(const float* x, const float* const maps[3],
                         const ProjectionWeights& weights, const BatchNormSaved& saved,
                         const float* const dmaps[3], float* dx,
                         const ProjectionGradients& gradients, const ProjectionShape& shape,
                         cudaStream_t stream) {
  steps::fused_backward(x, maps, weights, saved, dmaps, dx, gradients, shape, stream);
}

void batch_norm_from_running(const ProjectionWeights& weights, const float* const running_mean[3],
                             const float* const running_variance[3], const BatchNormSaved& saved,
                             int channels, cudaStream_t stream) {
  const steps::Shape shape = ProjectionShape{1, 1, 1, channels};
  // (Statistics has them as what a forward pass brings forward; here they are only read.)
  float* mean[3];
  float* variance[3];
  for (int i = 0; i < 3; ++i) {
    steps::require_pointers(shape, {running_mean[i], running_variance[i]});
    mean[i] = const_cast<float*>(running_mean[i]);
    variance[i] = const_cast<float*>(running_variance[i]);
  }
  steps::Statistics to = steps::statistics_of(weights, saved, nullptr, nullptr);
  steps::require_statistics(to, shape);
  to = steps::statistics_of(weights, saved, mean, variance);
  steps::running_kernel<<<dim3(steps::blocks_of(channels, 128), 3), 128, 0, stream>>>(to, channels);
  steps::require_launched(cudaGetLastError(), shape);
}

void fold_batch_norm(const float* w, const float* bias, const float* factor, const float* offset,
                     float* folded_w, float* folded_bias, int in, int out, cudaStream_t stream) {
  const std::string layer = "folding BatchNorm into a layer of [out " + std::to_string(out) +
                            ", in " + std::to_string(in) + "]: ";
  if (in < 1 || out < 1) throw std::invalid_argument(layer + "both must be at least 1");
  if (!w || !factor || !offset || !folded_w || !folded_bias)
    throw std::invalid_argument(layer + "no array but bias may be null");
  steps::fold_kernel<<<steps::blocks_of(out, 8), 256, 0, stream>>>(w, bias, factor, offset,
                                                                   folded_w, folded_bias, in, out);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(layer + cudaGetErrorString(error));
}

}  // namespace cvt

namespace conv_projection {
namespace {

template <class T>
const std::vector<Step<ForwardArguments<T>>> kForward = {
    {"naive", naive_scratch<T>, naive_launches<T>}, {"fused", fused_scratch<T>, fused_launches<T>}};
template <class T>
const std::vector<Step<BackwardArguments<T>>> kBackward = {
    {"naive, back", naive_back_scratch<T>, naive_back_launches<T>},
    {"fused, back", backward_scratch<T>, backward_launches<T>}};

}  // namespace

template <>
const std::vector<Step<ForwardArguments<half>>>& forward_steps() {
  return kForward<half>;
}
template <>
const std::vector<Step<ForwardArguments<float>>>& forward_steps() {
  return kForward<float>;
}
template <>
const std::vector<Step<BackwardArguments<half>>>& backward_steps() {
  return kBackward<half>;
}
template <>
const std::vector<Step<BackwardArguments<float>>>& backward_steps() {
  return kBackward<float>;
}

}  // namespace conv_projection
