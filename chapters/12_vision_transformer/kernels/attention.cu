// The steps of chapters 1 to 6 as choices of --attention (components.h).
#include "../../01_naive_attention/kernel.cuh"
#include "../../02_tiling/kernel.cuh"
#include "../../03_coalescing/1_coalesced_loads.cuh"
#include "../../03_coalescing/2_coalescing.cuh"
#include "../../04_wmma/kernel.cuh"
#include "../../05_multi_warp/kernel.cuh"
#include "../../06_coalesced_k/kernel.cuh"
#include "../components.h"

namespace vision_transformer {

const std::vector<Choice<AttentionFunction>>& attention_choices() {
  static const std::vector<Choice<AttentionFunction>> kChoices = {
      {"naive", naive_attention::attention, 1},
      {"tiling", tiling::attention, 2},
      {"coalesced_loads", coalesced_loads::attention, 3},
      {"coalescing", coalescing::attention, 3},
      {"wmma", wmma_attention::attention, 4},
      {"multi_warp", multi_warp::attention, 5},
      {"coalesced_k", coalesced_k::attention, 6}};
  return kChoices;
}

std::vector<AttentionPart> attention_parts(const Choice<AttentionFunction>& attention) {
  if (attention.chapter != 1) return {};
  using Half = const half*;
  return {
      {"scores",
       [](Half Q, Half K, Half, float* scores, half*, const AttentionShape& shape,
          cudaStream_t stream) { naive_attention::launch_scores(Q, K, scores, shape, stream); }},
      {"softmax",
       [](Half, Half, Half, float* scores, half*, const AttentionShape& shape,
          cudaStream_t stream) { naive_attention::launch_softmax(scores, shape, stream); }},
      {"values",
       [](Half, Half, Half V, float* scores, half* O, const AttentionShape& shape,
          cudaStream_t stream) { naive_attention::launch_values(scores, V, O, shape, stream); }}};
}

double attention_scratch(const Choice<AttentionFunction>& attention, const AttentionShape& shape) {
  return attention.chapter == 1 ? double(sizeof(float)) * double(shape.scores()) : 0;
}

}  // namespace vision_transformer
