// What the steps of the chapter take and give, in plain C++: arrays on the device, and the launches that
// a step consists of.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../../../common/attention/shape.h"

// Arrays on the device. With S = scale Q Kᵀ, P = softmax(S) and O = P V, dQ is the gradient of the sum
// of dO ∘ O in Q, and so on.
struct GradientPointers {
  const half *Q, *K, *V, *O, *dO;  // [batch, heads, tokens, head_dim], from multiples of 16 bytes
  const float* log_sum_exp;        // [batch, heads, tokens]: ln of the sum of exp(S) of each row
  half *dQ, *dK, *dV;              // as Q
  float* workspace;                // as many numbers as the step says, from a multiple of 16 bytes
};

namespace gradients {

using Pointers = GradientPointers;

// One launch of a step. Throws std::invalid_argument naming shape and limit for what it cannot do,
// std::runtime_error where CUDA refuses.
struct Launch {
  std::string name;
  void (*function)(const Pointers& pointers, const AttentionShape& shape, cudaStream_t stream);
};

// Launches in their order; what one leaves in the workspace the next ones read.
struct Step {
  std::string name;
  bool tensor_cores = false;
  bool same_bits = false;  // twice the same result, whatever order blocks come in
  int64_t (*workspace_of)(const AttentionShape& shape) = nullptr;  // numbers in fp32
  std::vector<Launch> launches;
};

// All launches of a step.
inline void run(const Step& step, const Pointers& pointers, const AttentionShape& shape,
                cudaStream_t stream) {
  for (const Launch& launch : step.launches) launch.function(pointers, shape, stream);
}

}  // namespace gradients
