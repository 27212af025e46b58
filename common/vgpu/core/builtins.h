// Functions that device code calls and no module holds: printf, assert, the device heap.
#pragma once
#include "../ptx/program.h"
#include "warp.h"

namespace vgpu {

// Executes a call of `site.builtin` for the lanes in `mask`; results go to the call area.
void call_builtin(Warp& warp, const Instr& instr, const CallSite& site, std::uint32_t mask);

}  // namespace vgpu
