// Control flow of a function: where lanes that part must meet again.
#pragma once
#include <vector>

#include "program.h"

namespace vgpu {

// Takes code whose branch targets are indices into it and puts a `join` instruction in front of
// each immediate post-dominator of a branch and behind each call; sets Instr::reconverge, pc and
// the remapped targets (also those in `tables`, the targets of brx.idx).
std::vector<Instr> insert_joins(std::vector<Instr> code,
                                std::vector<std::vector<std::uint32_t>>& tables);

}  // namespace vgpu
