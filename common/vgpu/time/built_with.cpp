// Which toolkit this library was built with: a file of its own, since the others are compiled once
// for all toolkits.
#include "assembler.h"

namespace vgpu::time {

const char* built_with() { return VGPU_BUILT_WITH; }

}  // namespace vgpu::time
