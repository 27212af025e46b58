// The convolutional projection's kernels, in fp32 as operations.h declares them, and in both storages as
// the program's steps.
#include "conv_projection/backward.cuh"
#include "conv_projection/fold.cuh"
#include "conv_projection/fused.cuh"
#include "conv_projection/naive.cuh"
#include "conv_projection/naive_backward.cuh"
#include "conv_projection/steps.h"
#include "operations/operations.h"

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

// ---- Steps, for the table -----------------------------------------------------------------------

namespace conv_projection {
namespace {

// Parts of a scratch, each at a multiple of 256 bytes.
struct Parts {
  char* next;
  template <class T>
  T* take(size_t count) {
    T* const part = reinterpret_cast<T*>(next);
    next += (count * sizeof(T) + 255) / 256 * 256;
    return part;
  }
};
double outputs(const Shape& shape, int which) {
  return double(shape.batch) * shape.channels * (which == kQuery ? shape.queries() : shape.keys());
}

template <class T>
size_t naive_scratch(const cvt::ProjectionShape& shape) {
  require_shape(shape);
  return naive_normalized(shape) * sizeof(T) + naive_partials(shape) * sizeof(float2) + 512;
}
template <class T>
std::vector<Launch> naive_launches(const ForwardArguments<T>& a, void* scratch,
                                   const cvt::ProjectionShape& cvt_shape) {
  const Shape shape = cvt_shape;
  Parts parts{static_cast<char*>(scratch)};
  T* const normalized = parts.take<T>(naive_normalized(shape));
  float2* const partials = parts.take<float2>(naive_partials(shape));
  const Statistics to = statistics_of(a.weights, a.saved, a.running_mean, a.running_variance);
  std::vector<Launch> launches;
  for (int i = 0; i < 3; ++i) {
    const std::string of = std::string(" ") + "qkv"[i];
    const double map = sizeof(T) * outputs(shape, i);
    launches.push_back({"convolution" + of,
                        [=](cudaStream_t stream) {
                          naive_convolution(a.x, a.weights.w[i], a.maps[i], i, shape, stream);
                        },
                        sizeof(T) * outputs(shape, kQuery) + map, 18 * outputs(shape, i)});
    launches.push_back(
        {"moments" + of,
         [=](cudaStream_t stream) { naive_moments(a.maps[i], partials, i, shape, stream); }, map,
         3 * outputs(shape, i)});
    launches.push_back({"normalize" + of,
                        [=](cudaStream_t stream) {
                          if (shape.class_tokens)
                            naive_class_tokens(a.x, a.maps[i], i, shape, stream);
                          naive_normalize(a.maps[i], partials, normalized, to, i, shape, stream);
                        },
                        2 * map, 3 * outputs(shape, i)});
  }
  return launches;
}

template <class T>
size_t fused_scratch(const cvt::ProjectionShape& shape) {
  require_shape(shape);
  return size_t(forward_partials(shape)) * sizeof(float2);
}
template <class T>
std::vector<Launch> fused_launches(const ForwardArguments<T>& a, void* scratch,
                                   const cvt::ProjectionShape& cvt_shape) {
  const Shape shape = cvt_shape;
  float2* const partials = static_cast<float2*>(scratch);
  const Statistics to = statistics_of(a.weights, a.saved, a.running_mean, a.running_variance);
  require_statistics(to, shape);
  const double numbers = 2 * outputs(shape, kQuery) + outputs(shape, kKey) + outputs(shape, kValue);
  return {{"convolutions",
           [=](cudaStream_t stream) {
             fused_convolutions(a.x, a.weights, a.maps, partials, shape, stream);
           },
           sizeof(T) * numbers, 18 * (numbers - outputs(shape, kQuery))},
          {"finish",
           [=](cudaStream_t stream) {
             finish_moments(partials, to, shape, forward_tiling(shape), stream);
           },
           double(fused_scratch<T>(cvt_shape)), 0}};
}

// Sums of slabs, slopes, sums of tiles. (Slabs are most where nothing is moved in pieces.)
template <class T>
size_t backward_scratch(const cvt::ProjectionShape& shape) {
  require_shape(shape);
  const size_t slabs = std::max(slabs_of(shape, 1).of_sample(), slabs_of(shape, 8).of_sample());
  return size_t(shape.batch) * slabs * shape.channels * sizeof(float2) +
         3 * size_t(shape.channels) * sizeof(Slope) + tap_partials(shape) * sizeof(float) + 1024;
}
template <class T>
std::vector<Launch> backward_launches(const BackwardArguments<T>& b, void* scratch,
                                      const cvt::ProjectionShape& cvt_shape) {
  const Shape shape = cvt_shape;
  const BackwardArrays<T> a = backward_arrays(b.x, b.maps, b.weights, b.saved, b.dmaps, b.dx,
                                              b.gradients, shape, b.constant);
  Parts parts{static_cast<char*>(scratch)};
  float2* const sums = parts.take<float2>(slab_partials(a, shape));
  Slope* const slopes = parts.take<Slope>(3 * size_t(shape.channels));
  float* const taps = parts.take<float>(tap_partials(shape));
  const double maps = outputs(shape, kQuery) + outputs(shape, kKey) + outputs(shape, kValue);
  return {
      {"sums", [=](cudaStream_t stream) { backward_sums(a, sums, shape, stream); },
       sizeof(T) * 2 * maps, 4 * maps},
      {"finish sums", [=](cudaStream_t stream) { backward_finish(a, sums, slopes, shape, stream); },
       double(slab_partials(a, shape) * sizeof(float2)), 0},
      {"spread", [=](cudaStream_t stream) { backward_spread(a, slopes, taps, shape, stream); },
       sizeof(T) * (2 * maps + 2 * outputs(shape, kQuery)), 36 * maps},
      {"gather", [=](cudaStream_t stream) { backward_gather(a, taps, shape, stream); },
       double(tap_partials(shape) * sizeof(float)), 0}};
}

template <class T>
size_t naive_back_scratch(const cvt::ProjectionShape& shape) {
  require_shape(shape);
  return naive_normalized(shape) * sizeof(T) + naive_partials(shape) * sizeof(float2) +
         naive_tap_partials(shape) * sizeof(float) + 768;
}
template <class T>
std::vector<Launch> naive_back_launches(const BackwardArguments<T>& b, void* scratch,
                                        const cvt::ProjectionShape& cvt_shape) {
  const Shape shape = cvt_shape;
  const BackwardArrays<T> a = backward_arrays(b.x, b.maps, b.weights, b.saved, b.dmaps, b.dx,
                                              b.gradients, shape, b.constant);
  Parts parts{static_cast<char*>(scratch)};
  T* const dmap = parts.take<T>(naive_normalized(shape));  // one of the three maps at a time
  float2* const sums = parts.take<float2>(naive_partials(shape));
  float* const taps = parts.take<float>(naive_tap_partials(shape));
  const double x = sizeof(T) * outputs(shape, kQuery);
  std::vector<Launch> launches;
  for (int i = 0; i < 3; ++i) {
    const std::string of = std::string(" ") + "qkv"[i];
    const double numbers = outputs(shape, i), map = sizeof(T) * numbers;
    launches.push_back({"sums" + of,
                        [=](cudaStream_t s) { naive_gradient_sums(a, sums, i, shape, s); }, 2 * map,
                        4 * numbers});
    launches.push_back({"dmap" + of,
                        [=](cudaStream_t s) { naive_gradient_maps(a, sums, dmap, i, shape, s); },
                        3 * map, 4 * numbers});
    launches.push_back(
        {"dx" + of,
         [=](cudaStream_t s) { naive_gradient_x(a, static_cast<const T*>(dmap), i, shape, s); },
         map + (i == kQuery ? 1 : 2) * x, 18 * numbers});
    launches.push_back({"dw" + of,
                        [=](cudaStream_t s) {
                          naive_gradient_w(a, static_cast<const T*>(dmap), taps, i, shape, s);
                        },
                        map + x, 18 * numbers});
    launches.push_back(
        {"gather" + of, [=](cudaStream_t s) { naive_gradient_w_sum(a, taps, i, shape, s); },
         double(naive_slabs(shape, i).slabs) * 9 * shape.channels * sizeof(float), 0});
  }
  return launches;
}

template <class T>
const std::vector<Step<ForwardArguments<T>>> kForward = {
    {"naive", naive_scratch<T>, naive_launches<T>}, {"fused", fused_scratch<T>, fused_launches<T>}};
template <class T>
const std::vector<Step<BackwardArguments<T>>> kBackward = {
    {"naive, back", naive_back_scratch<T>, naive_back_launches<T>},
    {"backward", backward_scratch<T>, backward_launches<T>}};

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
