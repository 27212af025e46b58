// Chapter 13: attention at FlashAttention-2's level, in four steps behind the kernel of chapter 6.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../06_coalesced_k/kernel.cuh"
#include "kernel.cuh"
#include "loads_in_flight.cuh"
#include "pipeline.cuh"
#include "registers.cuh"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"13_flash_attention",
       "Chapter 13: attention with scores and weights in registers.",
       scratch_bytes,
       lab::run_ladder,
       {{.name = "coalesced K", .attention = coalesced_k::attention, .tensor_cores = true},
        {.name = "loads in flight", .attention = loads_in_flight::attention, .tensor_cores = true},
        {.name = "registers", .attention = flash_attention::registers, .tensor_cores = true},
        {.name = "pipeline", .attention = flash_attention::pipeline, .tensor_cores = true},
        {.name = "ragged", .attention = flash_attention::ragged, .tensor_cores = true},
        {.name = "small tiles",
         .attention = flash_attention::ragged_of<2>,
         .tensor_cores = true,
         .variant = true}}});
}
