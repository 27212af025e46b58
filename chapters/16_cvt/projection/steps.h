// Steps of the convolutional projection, for its program and its tests; their kernels are compiled once, in
// kernels_projection.cu.
#pragma once

#include <string>
#include <vector>

#include <cuda_fp16.h>
#include "../operations.h"

namespace conv_projection {

// As cvt::projection_forward() and cvt::projection_backward(), for either storage.
template <class T>
struct Forward {
  std::string name;
  void (*function)(const T* x, const cvt::ProjectionWeights& weights, T* const maps[3],
                   const cvt::BatchNormSaved& saved, float* const running_mean[3],
                   float* const running_variance[3], const cvt::ProjectionShape& shape,
                   cudaStream_t stream);
};
template <class T>
struct Backward {
  std::string name;
  void (*function)(const T* x, const T* const maps[3], const cvt::ProjectionWeights& weights,
                   const cvt::BatchNormSaved& saved, const T* const dmaps[3], T* dx,
                   const cvt::ProjectionGradients& gradients, const cvt::ProjectionShape& shape,
                   cudaStream_t stream);
};
// In the order in which they are told.
template <class T>
const std::vector<Forward<T>>& forward_steps();
template <class T>
const std::vector<Backward<T>>& backward_steps();

}  // namespace conv_projection
