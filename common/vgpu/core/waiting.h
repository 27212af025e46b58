// What decides whether a loop ends: for telling loops that wait for ever from those that count.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "../ptx/program.h"

namespace vgpu {

// The loop around an instruction: all that can run before it is left. Empty when there is none.
struct Loop {
  // Bytes [begin, end) of a frame's registers that hold a register which the loop's branches, guards,
  // addresses and whatever it writes depend on. What it only counts, for later, is not among them;
  // nor are numbers that come from a clock, of which `reads_clock` says that there are some.
  struct Range {
    std::uint32_t begin = 0, end = 0;
  };
  std::vector<Range> decides;
  bool calls = false;  // functions, which are not looked into: everything may matter
  bool reads_clock = false;
};

class Loops {
 public:
  const Loop& around(const Function& function, std::uint32_t pc);
  // Are those still in a loop with the jump at `pc` who do not jump there? A loop may have several
  // jumps back, and others around it.
  bool goes_on_behind(const Function& function, std::uint32_t pc);

 private:
  using Place = std::pair<const Function*, std::uint32_t>;
  std::map<Place, Loop> known_;
  std::map<Place, bool> goes_on_;
};

}  // namespace vgpu
