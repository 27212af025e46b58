// The line table of DWARF (.debug_line, versions 2 to 4): which line of its input ptxas made each
// instruction of.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vgpu::time {

struct LineRow {
  std::uint64_t address = 0;
  std::uint32_t line = 0;
  bool end = false;  // the first address behind the sequence
};
// Rows with rising addresses that begin where the program says, which a linker may have to say later.
struct LineSequence {
  std::uint64_t address_at = 0;  // offset in the section of its first address, 0: it has none
  std::vector<LineRow> rows;
};

// All sequences. Where the section is damaged `why` says how, and those before it are there.
std::vector<LineSequence> read_debug_line(std::span<const std::byte> section, std::string& why);

}  // namespace vgpu::time
