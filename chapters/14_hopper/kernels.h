// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include <string>
#include <vector>

#include "../../common/attention/program.h"

namespace hopper {

// In the order of the lesson, behind the last one of chapter 13; then the variants.
std::vector<lab::AttentionStep> steps();

// What was tried and not kept: the diffs in variants/, compiled in kernels_variants.cu.
using Attention = void(const half* Q, const half* K, const half* V, half* O,
                       const AttentionShape& shape, cudaStream_t stream);
namespace variants {
extern Attention *const no_turns, *const polynomials, *const every_maximum, *const head_by_head,
                                                                                *const one_block;
}  // namespace variants

// Why this device or build cannot run the steps, empty where it can: lacks() of parts/maps.cuh.
std::string why_not();

// ---- For tests ----------------------------------------------------------------------------------

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
