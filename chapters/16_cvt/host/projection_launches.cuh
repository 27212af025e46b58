// The launches of the convolutional projection's steps, one by one, and the scratch that they hand over.
#pragma once

#include "../conv_projection/1_naive.cuh"
#include "../conv_projection/2_fused.cuh"
#include "../conv_projection/3_naive_backward.cuh"
#include "../conv_projection/4_fused_backward.cuh"
#include "../kernels/conv_projection.h"

namespace conv_projection {

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
inline double outputs(const Shape& shape, int which) {
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
      {"gather dx",
       [=](cudaStream_t stream) { backward_gather_dx(a, slopes, taps, shape, stream); },
       sizeof(T) * (2 * maps + 2 * outputs(shape, kQuery)), 36 * maps},
      {"sum dw", [=](cudaStream_t stream) { backward_sum_dw(a, taps, shape, stream); },
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
        {"sum dw" + of, [=](cudaStream_t s) { naive_gradient_w_sum(a, taps, i, shape, s); },
         double(naive_slabs(shape, i).slabs) * 9 * shape.channels * sizeof(float), 0});
  }
  return launches;
}

}  // namespace conv_projection
