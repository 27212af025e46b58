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

}  // namespace hopper
