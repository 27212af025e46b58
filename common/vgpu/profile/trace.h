// Who touches what: every memory access of one block, in order, as JSON (VGPU_TRACE, --trace).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/observer.h"

namespace vgpu {

// KERNEL:BLOCK[@LAUNCH][:FILE]
struct TraceSpec {
  std::string kernel;  // a part of the kernel's name as reports show it
  bool linear = true;  // how the block was named: block[0], or x,y,z
  std::array<std::uint64_t, 3> block{};
  std::uint64_t launch = 1;  // the how manieth launch of such a kernel
  std::string file = "trace.json";
};

// Nothing when the text is not understood; `error` then says what would be.
std::optional<TraceSpec> parse_trace(std::string_view text, std::string& error);

inline constexpr std::size_t kTracedAccesses = 10'000;  // written out; the rest is only counted

// Which launch is to be traced, over the launches of a program.
class Tracer {
 public:
  // Null: trace nothing any longer.
  void set(std::optional<TraceSpec> spec);
  // An observer when this launch is the one, else null.
  std::unique_ptr<Observer> watch(const Launch& launch);
  // Lines for people: what was written and why nothing was. Empties them.
  std::vector<std::string> take_notes();
  // At the end of the program: why there is no trace, or "".
  std::string missing() const;
  // Whether there was a trace that could not be written, or a block of it that is not there.
  bool failed() const { return failed_; }

 private:
  friend class BlockTrace;
  std::optional<TraceSpec> spec_;
  std::uint64_t seen_ = 0;  // launches of such a kernel
  bool done_ = false, failed_ = false;
  std::vector<std::string> kernels_;  // other names that were launched
  std::vector<std::string> notes_;
};

}  // namespace vgpu
