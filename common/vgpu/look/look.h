// A look inside a program's kernels, as one page for the browser (VGPU_LOOK, --look): what each launch
// costs by source line, by PTX and by machine instruction, who touches what in a block, what a block's
// warps do over time. Here the data are collected; page/ is the page that shows them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "../core/machine.h"
#include "../core/observer.h"
#include "../time/kernel_time.h"
#include "accesses.h"
#include "code.h"

namespace vgpu::look {

inline constexpr std::size_t kLaunches = 24;  // different ones that are shown
inline constexpr std::size_t kAccesses = 3000, kPieces = 40000,
                             kEvents = 2000;  // at most, in a launch
inline constexpr std::size_t kPageBytes = 5'000'000;

// What is known of a launch when it is over.
struct Launched {
  const LaunchRequest& request;
  const LaunchOutcome& outcome;
  const time::MachineCodeOrWhy* code = nullptr;   // null: nobody asked for a predicted time
  const time::SimulatedBlocks* blocks = nullptr;  // null: there is no predicted time
  std::uint64_t block = 0;                        // number in the grid of the first simulated one
};

// What is known when the program ends.
struct Ending {
  std::string timeline;               // as VGPU_TIMELINE writes it; "" when there is none
  std::vector<std::string> findings;  // from all launches
};

class Look {
 public:
  explicit Look(DeviceSpec device);
  ~Look();

  // An observer for a launch that is to be shown, null for one that is not: a kernel with the same grid,
  // block and shared memory was there before, or there are too many.
  std::unique_ptr<Observer> watch(const Launch& launch);
  // Each launch when it is over, one that failed as well.
  void add(const Launched& launched);

  // The object of the page, JSON; see README.md. At most so many bytes: what does not fit is thinned out.
  std::string data(const Ending& ending, std::size_t most_bytes) const;
  // The page, whole.
  std::string page(const Ending& ending) const;

 private:
  // What tells launches apart: kernel, grid, block, cluster, dynamic shared memory, cooperative.
  using Key = std::tuple<std::string, std::array<std::uint32_t, 10>, bool>;
  static Key key_of(const LaunchRequest& request);
  struct Shown;
  Shown* find(const Key& key);

  DeviceSpec device_;
  std::vector<std::unique_ptr<Shown>> shown_;
  Sources sources_;
  Key watched_;                              // the launch that is under way
  std::shared_ptr<BlockAccesses> accesses_;  // and what is seen of it
  std::uint64_t launches_ = 0, left_out_ = 0;
  bool machine_code_ = false;  // ptxas was there
};

// Text of a JSON object as it may stand in a script element of a page: nothing in it ends the element.
std::string for_script(const std::string& json);

// page.cpp: page/page.html with its styles and scripts.
std::string page_template();

}  // namespace vgpu::look
