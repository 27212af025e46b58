// What the launches of all steps share: checks before and after, the device's limits, and the
// function behind a product.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "shape.h"

namespace mlp {

using Shape = ProductShape;

// GELU, v/2 (1 + erf(v / sqrt(2))). erf is within 1.5e-7 of the exact one: for z >= 0 it is 1 -
// p(t) t exp(-z^2) with t = 1 / (1 + 0.3275911 z) (Abramowitz and Stegun, 7.1.26). So
// GELU(v) = max(v, 0) - |v|/2 p(t) t exp(-v^2 / 2): thirteen instructions, two of them special
// functions.
__device__ inline float gelu(float v) {
  const float size = fabsf(v);
  float t, bell;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.3275911f * 0.70710678f, size, 1.0f)));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(bell) : "f"(v * v * (-0.5f * 1.44269504f)));
  float p = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
  p = fmaf(t, p, 0.5f * 1.421413741f);
  p = fmaf(t, p, 0.5f * -0.284496736f);
  p = fmaf(t, p, 0.5f * 0.254829592f);
  return fmaf(-size * t, p * bell, fmaxf(v, 0.0f));
}

// Throws std::invalid_argument for a shape that no step takes and for arrays that are null.
inline void require_product(const Shape& shape, const void* x, const void* weight, const void* y) {
  require_shape(shape);
  if (!x || !weight || !y) refuse_shape(shape, "x, weight and y must not be null");
}

// Throws std::runtime_error with CUDA's reason when it has refused a launch.
inline void require_launched(const Shape& shape, cudaError_t error = cudaGetLastError()) {
  if (error != cudaSuccess)
    throw std::runtime_error("product of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

inline int divide_up(int64_t a, int64_t b) { return int((a + b - 1) / b); }

// A property of the current device.
inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, attribute, device);
  return value;
}

// The most shared memory that the current device gives a block on request, in bytes.
inline int shared_limit() { return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }

}  // namespace mlp
