// Registers that a function may read before it has assigned to them: a variable of the source that
// was declared and not initialized.
#pragma once
#include <vector>

#include "program.h"

namespace vgpu {

struct Unassigned {
  Slot slot;
  std::uint8_t bits = 0;     // bits per lane, as stored: 1 (a predicate), 16, 32, 64 or 128
  std::uint32_t reader = 0;  // index of the first instruction that reads it
};

// The registers that are live at the function's beginning. Whether a lane really comes to a read
// without an assignment on its way only an execution tells. None of a function that jumps to its
// own first instruction: its beginning cannot be told from a turn of that loop.
std::vector<Unassigned> read_before_assigned(const Function& function);

}  // namespace vgpu
