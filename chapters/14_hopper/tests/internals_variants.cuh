// What tests call of the variants, compiled with them in kernels_variants.cu.
#pragma once

#include "14_hopper/polynomials.cuh"  // variants/polynomials.diff
#include "internals.h"

namespace hopper {
namespace {

__global__ void powers_of_2_kernel(float* result, float first, float step, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    result[i] = polynomials::polynomial_of_2(first + float(i) * step);
}

}  // namespace

void powers_of_2(float* result, float first, float step, int count) {
  powers_of_2_kernel<<<1, 1024>>>(result, first, step, count);
}

}  // namespace hopper
