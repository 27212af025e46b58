// The variants that differ from their steps by a few lines, each in a namespace of its own. (Beside the steps
// their names would be ambiguous.)
#include "14_hopper/every_maximum.cuh"  // variants/every_maximum.diff
#include "14_hopper/head_by_head.cuh"   // variants/head_by_head.diff
#include "14_hopper/no_turns.cuh"       // variants/no_turns.diff
#include "14_hopper/one_block.cuh"      // variants/one_block.diff
#include "14_hopper/polynomials.cuh"    // variants/polynomials.diff
#include "kernels.h"
#include "tests/internals_variants.cuh"

namespace hopper {

Attention* const variants::no_turns = ::no_turns::specialized;
Attention* const variants::polynomials = ::polynomials::persistent;
Attention* const variants::every_maximum = ::every_maximum::persistent;
Attention* const variants::head_by_head = ::head_by_head::persistent;
Attention* const variants::one_block = ::one_block::wgmma;

}  // namespace hopper
