#include "kernels.h"

#include "1_naive.cuh"
#include "2_recompute.cuh"
#include "3_tensor_cores.cuh"
#include "4_deterministic.cuh"
#include "parts/forward.cuh"

namespace gradients {

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {.name = "naive",
       .tensor_cores = false,
       .same_bits = true,
       .workspace_of = naive_workspace,
       .launches = {{"P", naive_weights},
                    {"dV", naive_dV},
                    {"dP", naive_dP},
                    {"dS", naive_dS},
                    {"dQ", naive_dQ},
                    {"dK", naive_dK}}},
      {.name = "recompute",
       .tensor_cores = false,
       .same_bits = false,
       .workspace_of = sums_workspace,
       .launches = {{"D", dots_and_zeros}, {"columns", recompute}, {"dQ in fp16", finish}}},
      {.name = "tensor cores",
       .tensor_cores = true,
       .same_bits = false,
       .workspace_of = sums_workspace,
       .launches = {{"D", dots_and_zeros}, {"columns", tensor_cores}, {"dQ in fp16", finish}}},
      {.name = "deterministic",
       .tensor_cores = true,
       .same_bits = true,
       .workspace_of = dots_workspace,
       .launches = {{"D", only_dots}, {"columns", columns_alone}, {"rows", rows}}}};
  return all;
}

void forward_pass(const half* Q, const half* K, const half* V, half* O, float* log_sum_exp,
                  const AttentionShape& shape, cudaStream_t stream) {
  forward(Q, K, V, O, log_sum_exp, shape, stream);
}

}  // namespace gradients
