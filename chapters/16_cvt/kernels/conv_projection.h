// Steps of the convolutional projection, for the chapter's program and tests; their kernels are compiled
// once, in conv_projection.cu.
#pragma once

#include <cuda_fp16.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../operations/operations.h"

namespace conv_projection {

// One launch of a step. bytes: what it must at least move with DRAM.
struct Launch {
  std::string name;
  std::function<void(cudaStream_t stream)> run;
  double bytes, flops;
};

// Arrays of cvt::projection_forward() and cvt::projection_backward(), for either storage.
template <class T>
struct ForwardArguments {
  const T* x;
  cvt::ProjectionWeights weights;
  T* maps[3];
  cvt::BatchNormSaved saved;
  float *running_mean[3], *running_variance[3];
};
template <class T>
struct BackwardArguments {
  const T* x;
  const T *maps[3], *dmaps[3];
  cvt::ProjectionWeights weights;
  cvt::BatchNormSaved saved;
  T* dx;
  cvt::ProjectionGradients gradients;
  bool constant = false;  // statistics are not the batch's: mean and deviation have no gradient
};
// A step's launches, in their order, on those arrays and a scratch of scratch_bytes(shape) that
// begins at a multiple of 256 bytes. Throws as cvt::projection_forward().
template <class Arguments>
struct Step {
  std::string name;
  size_t (*scratch_bytes)(const cvt::ProjectionShape& shape);
  std::vector<Launch> (*launches)(const Arguments& arguments, void* scratch,
                                  const cvt::ProjectionShape& shape);

  void run(const Arguments& arguments, const cvt::ProjectionShape& shape,
           cudaStream_t stream) const {
    void* scratch = nullptr;
    if (const cudaError_t error = cudaMallocAsync(&scratch, scratch_bytes(shape), stream))
      throw std::runtime_error(std::string("scratch of a projection: ") +
                               cudaGetErrorString(error));
    for (const Launch& launch : launches(arguments, scratch, shape)) launch.run(stream);
    cudaFreeAsync(scratch, stream);
  }
};

// In the lesson's order: naive, fused; of the gradients "naive, back" and "fused, back".
template <class T>
const std::vector<Step<ForwardArguments<T>>>& forward_steps();
template <class T>
const std::vector<Step<BackwardArguments<T>>>& backward_steps();

}  // namespace conv_projection
