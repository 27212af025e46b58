// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include "parts/pointers.h"

namespace gradients {

// In the order of the lesson.
const std::vector<Step>& steps();

// O [batch, heads, tokens, head_dim] and log_sum_exp [batch, heads, tokens]; see forward.cuh.
void forward_pass(const half* Q, const half* K, const half* V, half* O, float* log_sum_exp,
                  const AttentionShape& shape, cudaStream_t stream);

}  // namespace gradients
