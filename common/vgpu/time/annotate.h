// PTX text of one kernel in which each instruction carries its number, for ptxas.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vgpu::time {

// Where a statement stands in the module's own text.
struct PtxPlace {
  std::uint32_t line = 0;     // from 1, as the virtual GPU counts
  std::uint16_t on_line = 0;  // statements before it on the same line
};

// `text` holds the kernel and what it needs of the module: functions, variables. Debug information is
// gone; `.loc 1 N 0` stands before every instruction, and places[N - 1] is where it came from.
struct Annotated {
  std::string text;
  std::vector<PtxPlace> places;
  bool several_files = false;  // the text was linked from several: others may hold what it calls
  std::string why;             // not empty: it could not be done
};
Annotated annotate(std::string_view ptx, std::string_view kernel);

}  // namespace vgpu::time
