// The chapter's steps, compiled once for its program and its tests.
#include "kernels.h"

#include "../13_flash_attention/4_ragged.cuh"
#include "1_tensor_maps.cuh"
#include "2_wgmma.cuh"
#include "3_specialized.cuh"
#include "4_persistent.cuh"
#include "tests/internals.cuh"
#include "variants/multicast.cuh"

namespace hopper {

std::vector<lab::AttentionStep> steps() {
  return {
      {.name = "ragged", .attention = flash_attention::ragged, .tensor_cores = true},
      {.name = "tensor maps", .attention = tensor_maps, .tensor_cores = true},
      {.name = "wgmma", .attention = wgmma, .tensor_cores = true},
      {.name = "specialized", .attention = specialized, .tensor_cores = true},
      {.name = "persistent", .attention = persistent, .tensor_cores = true},
      {.name = "no turns", .attention = variants::no_turns, .tensor_cores = true, .variant = true},
      {.name = "polynomials",
       .attention = variants::polynomials,
       .tensor_cores = true,
       .variant = true},
      {.name = "multicast", .attention = multicast, .tensor_cores = true, .variant = true},
      {.name = "every maximum",
       .attention = variants::every_maximum,
       .tensor_cores = true,
       .variant = true},
      {.name = "head by head",
       .attention = variants::head_by_head,
       .tensor_cores = true,
       .variant = true},
      {.name = "one block",
       .attention = variants::one_block,
       .tensor_cores = true,
       .variant = true}};
}

}  // namespace hopper
