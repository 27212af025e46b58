// Special registers (%tid.x ...) and addresses that only the launch knows.
#pragma once
#include <cstdint>
#include <string_view>

#include "../ptx/program.h"

namespace vgpu {

// Bytes of shared memory that the system keeps for itself, at the end of a block's.
inline constexpr std::uint32_t kReservedShared = 1024;

// Index for Instr::special, -1 when the name (without %) is not known.
int special_index(std::string_view name);
int special_bits(int index);
// Handler that writes the special register to d[0] of `bits`; null when it is not known.
Handler bind_special(Instr& instr, std::string_view name, int bits);
// Functions without code in a module that the machine itself provides (vprintf, malloc ...).
bool is_builtin(std::string_view name);

}  // namespace vgpu
