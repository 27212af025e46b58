// Control flow of a function: where lanes that part must meet again.
#pragma once
#include <vector>

#include "program.h"

namespace vgpu {

// Takes code whose branch targets are indices into it and puts a `join` instruction in front of
// each immediate post-dominator of a branch and behind each call; sets Instr::reconverge, pc and
// the remapped targets (also those in `tables`, the targets of brx.idx). `calls`: of the function.
std::vector<Instr> insert_joins(std::vector<Instr> code,
                                std::vector<std::vector<std::uint32_t>>& tables,
                                const std::vector<CallSite>& calls);

// Immediate post-dominators of the blocks of a graph. next[b]: blocks that follow b; to_exit[b]: it may
// leave the graph. Node next.size() stands for the exit; a block from which no way leads there gets
// kNoJoin.
std::vector<std::uint32_t> post_dominators(const std::vector<std::vector<std::uint32_t>>& next,
                                           const std::vector<bool>& to_exit);

}  // namespace vgpu
