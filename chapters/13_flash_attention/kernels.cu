#include "kernels.h"

#include "../06_coalesced_k/kernel.cuh"
#include "1_loads_in_flight.cuh"
#include "2_registers.cuh"
#include "3_pipeline.cuh"
#include "4_ragged.cuh"

namespace flash_attention {

std::vector<lab::AttentionStep> steps() {
  return {
      {.name = "coalesced K", .attention = coalesced_k::attention, .tensor_cores = true},
      {.name = "loads in flight", .attention = loads_in_flight::attention, .tensor_cores = true},
      {.name = "registers", .attention = registers, .tensor_cores = true},
      {.name = "pipeline", .attention = pipeline, .tensor_cores = true},
      {.name = "ragged", .attention = ragged, .tensor_cores = true},
      {.name = "small tiles", .attention = small_tiles, .tensor_cores = true, .variant = true}};
}

void loads_in_flight_by_4_warps(const half* Q, const half* K, const half* V, half* O,
                                const AttentionShape& shape, cudaStream_t stream) {
  loads_in_flight::attention_with<4>(Q, K, V, O, shape, stream);
}

}  // namespace flash_attention
