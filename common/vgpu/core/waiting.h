// Which registers decide whether a loop ends. If they repeat, the loop waits for ever; a loop that
// counts its iterations and gives up after some has a counter among them.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "../ptx/program.h"

namespace vgpu {

// The loop around an instruction: all that can run before it is left. Empty when there is none.
struct Loop {
  // Deciding registers, as bytes [begin, end) of a frame's registers: branches, guards, addresses and
  // written values of the loop depend on them. A number that is only counted up for use after the
  // loop is not among them. Nor is one that comes from a clock; `reads_clock` then is true.
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
  // Are lanes that do not take the jump back at `pc` still in a loop? They are if its loop has another
  // jump back behind `pc`, or lies inside another loop.
  bool goes_on_behind(const Function& function, std::uint32_t pc);

 private:
  using Place = std::pair<const Function*, std::uint32_t>;
  std::map<Place, Loop> known_;
  std::map<Place, bool> goes_on_;
};

}  // namespace vgpu
