// What the launches of all steps share: checks before and after, the device's limits, and the
// function behind a product.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#include "../shape.h"

namespace mlp {

using Shape = ProductShape;

// GELU, v/2 (1 + erf(v / sqrt(2))) = v Phi(v), where Phi is the normal distribution's. With a = |v|
// it is max(v, 0) - a Phi(-a). The logarithm of Phi(-a) is nearly a parabola, so a polynomial gives
// it: Phi(-a) = 2^p(a). p's coefficients make the largest relative error of Phi on [0, 5] least,
// 2.8e-6; beyond 5 GELU differs from 0 or v by less than 1.5e-6. GELU is within 4.8e-7 of the exact
// one, and for -5 <= v < 0 within 4e-6 of itself. It takes ten instructions, one of them a special
// function.
__device__ inline float gelu(float v) {
  const float a = fabsf(v);
  float p = fmaf(a, -1.6016148e-6f, 5.7843194e-5f);
  p = fmaf(a, p, -9.0712099e-4f);
  p = fmaf(a, p, 8.4368717e-3f);
  p = fmaf(a, p, -5.3851929e-2f);
  p = fmaf(a, p, -4.5854059e-1f);
  p = fmaf(a, p, -1.1512316f);
  p = fmaf(a, p, -9.9999607e-1f);
  float tail;  // Phi(-a)
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(p));
  return fmaf(-a, tail, fmaxf(v, 0.0f));
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

// Why the current device cannot multiply such numbers, in words; empty where it can.
template <class Element>
std::string lacking() {
  if (std::is_same_v<Element, half>) return "";
  const int major = device_attribute(cudaDevAttrComputeCapabilityMajor);
  if (major >= 8) return "";
  return "products in tf32 need compute capability 8.0 or newer, this device has " +
         std::to_string(major) + "." +
         std::to_string(device_attribute(cudaDevAttrComputeCapabilityMinor));
}
// Throws std::runtime_error with that.
template <class Element>
void require_element() {
  if (const std::string why = lacking<Element>(); !why.empty()) throw std::runtime_error(why);
}

// The most shared memory that the current device gives a block on request, in bytes.
inline int shared_limit() { return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }

}  // namespace mlp
