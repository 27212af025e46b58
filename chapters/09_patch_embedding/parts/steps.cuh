// What all steps are given, and how their host code says that CUDA refused.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "../shape.h"

namespace patch_embedding {

using namespace patches_of_photos;

// In the host's memory, as Shape has them. Copies are asynchronous only from and to pinned memory.
struct Inputs {
  const half *image = nullptr, *weight = nullptr, *bias = nullptr;
  const half *class_token = nullptr, *position = nullptr;
};

inline void require_success(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error("patch embedding: " + std::string(what) + ": " +
                             cudaGetErrorString(error));
}

inline void copy_to_device(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                  "copy to the device");
}
inline void copy_to_host(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
                  "copy to the host");
}

// What is added to the filter's answer on a patch.
inline float offset_of(const Inputs& in, const Shape& shape, int patch, int channel) {
  return __half2float(in.bias[channel]) +
         __half2float(in.position[int64_t(1 + patch) * shape.channels + channel]);
}

// The place of a token in all tokens.
inline int64_t token_at(const Shape& shape, int image, int row, int channel) {
  return (int64_t(image) * shape.rows() + row) * shape.channels + channel;
}

// The rows that no patch has part in are the host's in all steps but the last.
inline void write_class_rows(const Inputs& in, half* tokens, const Shape& shape, const Part& part) {
  for (int image = 0; image < part.images; ++image)
    for (int c = 0; c < part.channels; ++c)
      tokens[token_at(shape, image, 0, c)] =
          __float2half(__half2float(in.class_token[c]) + __half2float(in.position[c]));
}

// Calls visit(image, patch, channel) for each output of a part.
template <class Visit>
void for_each_output(const Part& part, const Visit& visit) {
  for (int image = 0; image < part.images; ++image)
    for (int patch = 0; patch < part.patches; ++patch)
      for (int channel = 0; channel < part.channels; ++channel) visit(image, patch, channel);
}

}  // namespace patch_embedding
