// What bulk copies to global memory share with the rest: reductions, and the end of a thread.
#pragma once
#include "instruction_set.h"
#include "warp.h"

namespace vgpu {

// Combines `bytes` at `to` in global memory with those at `from`, each element atomically.
using BulkReduction = void (*)(std::byte* to, const std::byte* from, std::uint32_t bytes);
// Null where the ISA has no such operation on the type.
BulkReduction bulk_reduction(Type type, const Mods& mods);

// What lanes that end have asked for and not waited for.
void finish_bulk(Warp& warp, std::uint32_t lanes);

}  // namespace vgpu
