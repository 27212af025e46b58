// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include <vector>

#include "../../common/attention/program.h"

namespace flash_attention {

// In the order of the lesson, behind the kernel of chapter 6; then the variant.
std::vector<lab::AttentionStep> steps();

// What was tried and not kept: variants/small_tiles.diff, compiled in kernels_variants.cu.
void small_tiles(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
                 cudaStream_t stream);

// loads_in_flight::attention() with 4 warps a block, on a device that would take more or fewer, too.
void loads_in_flight_by_4_warps(const half* Q, const half* K, const half* V, half* O,
                                const AttentionShape& shape, cudaStream_t stream);

}  // namespace flash_attention
