// Tried and not kept: persistent() with all queries dealt out in advance. No block fetches more
// work, so none waits for the few queries at the end; and none helps another that is late.
#pragma once

#include "../4_persistent.cuh"

namespace persistent_deformable_attention {

template <int kChannels>
void launch_even_shares(const half* value, const half* locations, const half* weights, half* out,
                        const DeformableShape& shape, cudaStream_t stream) {
  const Staging staging = plan_staging(shape, shared_memory().of_block);
  const auto kernel = persistent_kernel<kChannels>;
  const unsigned blocks = persistent_blocks<kChannels>(kernel, shape, staging.bytes);
  kernel<<<blocks, kPersistentThreads, staging.bytes, stream>>>(
      value, locations, weights, out, nullptr, problem_of(shape), staging, work_of(shape, true));
  require_launched(cudaGetLastError(), shape);
}

// As persistent(), with the same bits.
inline void even_shares(const half* value, const half* locations, const half* weights, half* out,
                        const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  const auto launch = shape.channels == 16   ? launch_even_shares<16>
                      : shape.channels == 32 ? launch_even_shares<32>
                                             : launch_even_shares<64>;
  launch(value, locations, weights, out, shape, stream);
}

}  // namespace persistent_deformable_attention
