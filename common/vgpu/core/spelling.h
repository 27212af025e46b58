// How the PTX text spells an instruction: what the decoder has no need to keep (cache hints, scopes).
#pragma once
#include <string_view>

#include "../ptx/program.h"

namespace vgpu {

// "ld.global.cg.u32". Of a line that holds several statements: the first that begins with the
// instruction's opcode. "" when the instruction has no line.
std::string_view dotted_name(const Function& function, const Instr& instr);

// Whether a dotted name has this part: has_modifier("ld.global.cg.u32", "cg").
bool has_modifier(std::string_view name, std::string_view modifier);

// Whether it goes past the L1: .cg, .cv, .wt, volatile, and ordered accesses beyond the block.
bool bypasses_l1(std::string_view name);

}  // namespace vgpu
