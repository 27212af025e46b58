// The exponential function of this chapter's softmax.
#pragma once

namespace flash_attention {

// 2^x with an error of 2 units in the last place; 0 for x = -inf. One instruction: exp2f() adds two,
// for results below 2^-126, which are 0 here (PTX ISA, "ex2").
__device__ inline float power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace flash_attention
