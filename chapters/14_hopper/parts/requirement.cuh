// What a device must have for this chapter's steps, and what they ask before a launch.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/shape.h"
#include "../../../common/tile/tensor_map.cuh"

namespace hopper {

// What this build was made for: 1 in code for sm_90a, 0 in other code.
static __global__ void built_for_sm90a(int* answer) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  *answer = 1;
#else
  *answer = 0;
#endif
}

// What the current device or this build lacks to run this chapter's steps, as "needs compute capability 9.0 ...";
// "" when nothing is missing.
inline std::string missing_requirement() {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (major != 9 || minor != 0)
    return "needs compute capability 9.0, that of H100, H200 and GH200: this device has " +
           std::to_string(major) + "." + std::to_string(minor) +
           ", and code for sm_90a runs on no other";
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, built_for_sm90a) != cudaSuccess) {
    cudaGetLastError();
    return "needs a build for sm_90a, this one has no code for the device (make ARCH=sm_90)";
  }
  if (!encode_tiled()) return "needs a driver that makes tensor maps (cuTensorMapEncodeTiled)";
  return "";
}

// What each step asks before its launch. Throws std::invalid_argument naming the shape and the limit,
// std::runtime_error with missing_requirement() where there is one.
inline void require_arguments(const half* Q, const half* K, const half* V, const half* O,
                              const AttentionShape& shape, const char* step) {
  require_attention_shape(shape);
  require_alignment({Q, K, V, O}, "Q, K, V and O");
  grid_of(shape.matrices(), shape);
  if (const std::string missing = missing_requirement(); !missing.empty())
    throw std::runtime_error("attention, step " + std::string(step) + ": " + missing);
}

}  // namespace hopper
