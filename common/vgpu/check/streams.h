// Races between streams: two operations (kernels, copies, fills, allocations in stream order) touch
// the same bytes of device memory, at least one writes, and nothing orders them. The runtime says
// what happens before each operation (a Clock); here is what was touched, and the comparison.
//
// Operations run one after the other, so a missing wait changes no result here; on a GPU it does.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../core/memory.h"
#include "../core/observer.h"
#include "clock.h"
#include "host_guard.h"
#include "touches.h"

namespace vgpu {

class StreamCheck {
 public:
  explicit StreamCheck(std::vector<std::string>& findings) : findings_(findings) {}

  Timeline new_timeline() { return next_timeline_++; }
  OperationNumber last() const { return number_; }  // the newest operation

  // An operation begins: everything in `before` is over. `what`: "scale", "cudaMemcpyAsync";
  // `where`: "in stream 3". `host`: what every later operation will come after.
  void begin(Timeline timeline, const Clock& before, const Clock& host, std::string what,
             std::string where);
  bool active() const { return active_; }
  // Bytes that the operation touches. Nothing happens while none is active.
  void touch(const std::shared_ptr<Allocation>& allocation, std::uint64_t offset,
             std::uint64_t bytes, Touch touch);
  // For a launch: fill them through make_touch_observer, then call take().
  Touches& touches() { return touches_; }
  Dependence& dependence() { return dependence_; }
  // The operation is a programmatic dependent launch: until it waits for the kernel in front only what is in
  // `early` is over, then what is in `late`.
  void begin_early(const Clock& early, const Clock& late) {
    early_ = early;
    before_ = late;
    dependence_.programmatic = true;
  }
  // What is over once the operation is.
  Clock over() const;
  // What the next finding's operation has waited for in vain, to be added to it; "" is nothing.
  void add_hint(std::string hint) { hint_ = std::move(hint); }
  void take(std::shared_ptr<const Module> module);
  // `before` with the operation itself.
  Clock end();

  // The host's own accesses to pinned and managed memory are looked at, too; null: they are not.
  HostGuard* host_guard = nullptr;
  // The operation prints. Is the last one that did over for the host? If not, its name, else "".
  void prints() { prints_ = true; }
  std::string prints_unheard(const Clock& host) const;

  // The allocation is gone; its address may come back as something else.
  void forget(std::uint32_t allocation) { histories_.erase(allocation); }

 private:
  struct Site {
    const Function* function;
    std::uint32_t pc;
    Touch touch;
    std::uint64_t low, high;
  };
  struct Operation {
    Timeline timeline = 0;
    std::string what, where;
    std::shared_ptr<const Module> module;                        // keeps the functions of the sites
    std::unordered_map<std::uint32_t, std::vector<Site>> sites;  // by allocation id
  };
  // What was last done to some bytes: a write, and reads and atomics after it, none of which
  // happens before another of its kind.
  struct State {
    OperationNumber write = 0;
    std::vector<OperationNumber> reads, atomics;
    bool operator==(const State&) const = default;
  };
  using StateId = std::uint32_t;  // 0: nothing
  struct Run {
    std::uint16_t end;  // within its page, at most kTouchPageBytes
    StateId state;
  };
  struct Page {
    StateId state = 0;      // the whole page's, when there are no runs
    std::vector<Run> runs;  // sorted; the last ends with the page
  };
  struct History {
    OperationNumber last = 0;
    std::vector<Page> pages;
  };
  struct StateHash {
    std::size_t operator()(const State& s) const {
      std::size_t h = s.write;
      for (const auto n : s.reads) h = h * 1000003 + n;
      for (const auto n : s.atomics) h = h * 1000033 + n + 7;
      return h;
    }
  };
  // Which of the touches, one bit each: kRead ...
  using Touched = unsigned;

  History& history(const Allocation& allocation);
  StateId after(StateId state, Touched touched, std::uint64_t offset);
  StateId intern(State state);
  bool over(OperationNumber before) const;
  void take(Touches& touches);
  void take_host_visible(const TouchedAllocation& touched);
  void compare(OperationNumber before, Touch was, Touch is, std::uint64_t offset);
  std::string place_of(const Operation& operation, Touch touch, std::uint64_t offset) const;
  void clean();

  std::vector<std::string>& findings_;
  std::unordered_set<std::string> told_;
  Timeline next_timeline_ = 1;
  OperationNumber number_ = 0;
  std::unordered_map<OperationNumber, Operation> operations_;

  std::unordered_map<std::uint32_t, History> histories_;  // by allocation id
  std::vector<State> states_ = std::vector<State>(1);
  std::unordered_map<State, StateId, StateHash> ids_;
  std::size_t clean_at_ = 4096;  // so many states: unused ones are dropped

  // The operation that is active.
  bool active_ = false;
  Clock before_, host_, early_;
  bool early_part_ = false;  // what is compared was touched before the wait
  std::string hint_;
  Operation* current_ = nullptr;
  const Allocation* allocation_ = nullptr;
  Touches touches_;
  std::vector<HostTouch> host_touches_;
  bool tells_host_ =
      false;  // it has written to the host's memory in a way that others may wait for
  bool prints_ = false;
  struct {
    Timeline timeline = 0;
    OperationNumber number = 0;
    std::string name;
  } last_print_;
  Dependence dependence_;
  struct Memo {
    StateId from = ~0u, to = 0;
  };
  std::array<Memo, 8> memo_;  // the last states seen, for each combination of touches
  std::unordered_map<std::uint64_t, StateId> next_;
};

}  // namespace vgpu
