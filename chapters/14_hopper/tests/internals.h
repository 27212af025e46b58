// What tests call besides the steps: launches of mutants, on a number of blocks that the test chooses, and of one
// function alone. kernels.cu and kernels_variants.cu compile it.
#pragma once

#include <string>

#include "../kernels.h"

namespace hopper {

// heads_together() of 4_persistent.cuh.
int heads_dealt_together(const AttentionShape& shape);

// polynomial_of_2(first + i step) of the variant polynomials, for i < count, by one block.
void powers_of_2(float* result, float first, float step, int count);

// Launches of a step's kernel with head_dim 64, or of a mutant of it: arrays and stream as a step's.
// persistent and multicast on so many blocks, whatever the device would take; null: the step's kernel.
// `together`: heads that are dealt together.
void launch_persistent_on(int blocks, int together, const void* mutant, const half* Q,
                          const half* K, const half* V, half* O, const AttentionShape& shape,
                          cudaStream_t stream);
void launch_multicast_on(int blocks, const void* mutant, const half* Q, const half* K,
                         const half* V, half* O, const AttentionShape& shape, cudaStream_t stream);
// tensor maps, wgmma or specialized.
void launch_mutant(const std::string& step, const void* mutant, const half* Q, const half* K,
                   const half* V, half* O, const AttentionShape& shape, cudaStream_t stream);

}  // namespace hopper
