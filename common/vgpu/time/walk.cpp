#include "walk.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <unordered_map>

#include "../ptx/cfg.h"
#include "telling.h"

namespace vgpu::time {
namespace {

// Calls that return go to helpers and have no guard: ptxas jumps over them. A call with a guard is a
// jump out of a loop (up to sm_89).
bool jumps(const MachineInstr& instr) {
  return instr.kind == Kind::branch ||
         (instr.kind == Kind::call && instr.guard != 7 && instr.target >= 0);
}
bool ends_block(const MachineInstr& instr) {
  return jumps(instr) || instr.kind == Kind::exit || instr.kind == Kind::ret;
}
// BRA.DIV, BRA.CONV: asks whether lanes have parted, and not what PTX asks.
bool asks_for_lanes(const MachineInstr& instr) {
  return instr.kind == Kind::branch && (instr.if_together || instr.if_parted);
}

}  // namespace

Walker::Walker(const MachineCode& code, const Layout& layout) : code_(code), layout_(layout) {
  if (code.code.empty()) {
    why_ = "there is no machine code";
    return;
  }
  find_basics();
  if (!why_.empty()) return;
  find_lines();
  find_slots();
  find_stops();
  find_meets();
  find_atomics();
  find_loops();
  decide_branches();
}

void Walker::find_basics() {
  const auto& code = code_.code;
  std::vector<bool> leads(code.size() + 1);
  leads[0] = true;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (jumps(code[i]) && code[i].target >= 0)
      leads[static_cast<std::size_t>(code[i].target)] = true;
    if (ends_block(code[i])) leads[i + 1] = true;
  }
  basic_of_.resize(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (leads[i]) {
      basics_.emplace_back();
      basics_.back().first = static_cast<std::uint32_t>(i);
    }
    basics_.back().last = static_cast<std::uint32_t>(i);
    basic_of_[i] = static_cast<std::uint32_t>(basics_.size() - 1);
  }
  for (std::size_t b = 0; b < basics_.size(); ++b) {
    Basic& basic = basics_[b];
    const MachineInstr& last = code[basic.last];
    const bool guarded =
        last.guard != 7 || last.guard_not || last.uniform_guard || last.more_conditions;
    const std::uint32_t after = b + 1 < basics_.size() ? static_cast<std::uint32_t>(b + 1) : kNone;
    if (jumps(last)) {
      if (last.target >= 0) basic.next[1] = basic_of_[static_cast<std::size_t>(last.target)];
      if (guarded) basic.next[0] = after;
      if (last.target < 0 && last.ptx_line) basic.next[0] = after;  // indirect, see decide_branches
    } else if ((last.kind == Kind::exit || last.kind == Kind::ret)) {
      if (guarded) basic.next[0] = after;
    } else {
      basic.next[0] = after;
    }
    basic.ends = (last.kind == Kind::exit || last.kind == Kind::ret) && guarded;
    basic.conditional = basic.ends || (jumps(last) && basic.next[0] != kNone &&
                                       basic.next[1] != kNone && basic.next[0] != basic.next[1]);
    if (!basic.conditional && basic.next[0] == kNone) {
      basic.next[0] = basic.next[1];
      basic.next[1] = kNone;
    }
  }
}

void Walker::find_stops() {
  for (Basic& basic : basics_) {
    const MachineInstr& last = code_.code[basic.last];
    if (last.kind == Kind::branch && last.target < 0)
      basic.stop = "it jumps through a table (a switch with many cases)";
    for (std::uint32_t i = basic.first; i <= basic.last; ++i) {
      const Layout::Line* line = layout_.at(code_.code[i].ptx_line);
      if (code_.code[i].kind == Kind::call && line && line->calls)
        basic.stop = "it calls a function that ptxas has not inlined";
    }
  }
}

void Walker::find_lines() {
  for (Basic& basic : basics_) {
    std::map<std::uint32_t, std::uint32_t> all, exact;
    for (std::uint32_t i = basic.first; i <= basic.last; ++i) {
      const MachineInstr& instr = code_.code[i];
      const Layout::Line* line = layout_.at(instr.ptx_line);
      if (!line || line->role == Layout::Role::none) continue;
      const Telling t = telling(line->name);
      if (instr.guard == 7 && t != kNothing && is_of(instr.kind, t) &&
          amount(instr, t) == amount(line->name))
        ++exact[line->ordinal];
      else if (line->role == Layout::Role::plain && i != basic.last)
        all[line->ordinal] = 1;
    }
    const auto& telling = exact.empty() ? all : exact;
    basic.lines.assign(telling.begin(), telling.end());
  }
}

// ptxas asks for a phase once, and where that fails again and again in a loop behind the kernel's end.
// The first instruction of the two has no line of its own: it stands on that of what comes before it, a
// copy perhaps, and belongs to the next wait. It takes the wait's events, and the loop then none.
void Walker::find_slots() {
  using enum MemoryEvent::Mbarrier;
  slot_of_.assign(code_.code.size(), kNone);
  std::vector<bool> asked(layout_.events);
  std::vector<std::uint32_t> again;
  for (std::uint32_t i = 0; i < code_.code.size(); ++i) {
    const MachineInstr& instr = code_.code[i];
    const Layout::Line* line = takes_event(instr.kind) ? layout_.at(instr.ptx_line) : nullptr;
    if (!line) continue;
    const bool asks = instr.kind == Kind::mbarrier && instr.opcode == 0x5a7;  // SYNCS.PHASECHK
    if (asks) {
      const Layout::Line* const end = layout_.lines.data() + layout_.lines.size();
      line = std::find_if(line, end, [](const Layout::Line& l) { return l.mbarrier == wait; });
      if (line == end) continue;
    }
    if (line->role < Layout::Role::memory) continue;
    slot_of_[i] = line->slot;
    if (asks && basics_[basic_of_[i]].next[1] == basic_of_[i])
      again.push_back(i);
    else if (asks)
      asked[line->slot] = true;
  }
  for (const std::uint32_t i : again)
    if (asked[slot_of_[i]]) slot_of_[i] = kNone;
}

// What ptxas has made of atomic operations: one lane, which has a guard, goes for all after they have
// voted or summed; and loops that load, compute and swap until nobody came between, which leave one
// lane of an address at a time.
void Walker::find_atomics() {
  joins_.resize(layout_.events);
  for (const MachineInstr& instr : code_.code) {
    const Layout::Line* line = layout_.at(instr.ptx_line);
    if (!line || !line->atomic || line->role != Layout::Role::memory) continue;
    const std::string& name = code_.names[instr.name];
    const bool atomic = instr.kind == Kind::global_atomic || instr.kind == Kind::shared_atomic;
    if (name.starts_with("VOTE") || name.starts_with("REDUX") ||
        (atomic && instr.guard != 7 && !line->guarded))
      joins_[line->slot] = true;
  }
  for (std::uint32_t b = 0; b < basics_.size(); ++b)
    for (std::uint32_t i = basics_[b].first; i <= basics_[b].last; ++i)
      basics_[b].swaps |=
          basics_[b].next[1] == b && code_.names[code_.code[i].name].starts_with("ATOMS.CAST.SPIN");
}

void Walker::find_meets() {
  std::vector<std::vector<std::uint32_t>> next(basics_.size());
  std::vector<bool> to_exit(basics_.size());
  for (std::size_t b = 0; b < basics_.size(); ++b) {
    for (const std::uint32_t follower : basics_[b].next)
      if (follower != kNone) next[b].push_back(follower);
    const Kind last = code_.code[basics_[b].last].kind;
    to_exit[b] = next[b].empty() || last == Kind::exit || last == Kind::ret;
  }
  const std::vector<std::uint32_t> meets = post_dominators(next, to_exit);
  for (std::size_t b = 0; b < basics_.size(); ++b)
    basics_[b].meets = meets[b] == basics_.size() ? kNone : meets[b];
}

// How many copies of the loop of one PTX block each basic block has. What tells are the instructions
// that ptxas makes exactly one of; in a loop without such, how many more there are than elsewhere.
std::map<std::uint32_t, Walker::Copies> Walker::copies_of(std::uint32_t block) const {
  struct Found {
    std::map<std::uint32_t, std::uint32_t> lines;  // how many instructions of each
    std::array<double, kTellings> always{}, guarded{};
  };
  std::map<std::uint32_t, Found> found;    // by basic block
  std::map<std::uint32_t, double> widest;  // by ordinal: the most that one instruction of it loads
  bool tells = false;
  for (std::uint32_t i = 0; i < code_.code.size(); ++i) {
    const MachineInstr& instr = code_.code[i];
    const Layout::Line* line = layout_.at(instr.ptx_line);
    if (!line || line->role == Layout::Role::none || line->block != block) continue;
    Found& here = found[basic_of_[i]];
    ++here.lines[instr.ptx_line];
    const Telling t = telling(line->name);
    if (t == kNothing || !is_of(instr.kind, t)) continue;
    tells = true;
    double& bytes = widest[line->ordinal];
    bytes = std::max(bytes, amount(instr, t));
    (instr.guard == 7 ? here.always : here.guarded)[t] += amount(instr, t);
  }
  std::array<double, kTellings> of_ptx{};  // in one copy
  for (const Layout::Line& line : layout_.lines) {
    const Telling t = telling(line.name);
    if (line.role == Layout::Role::none || line.block != block || t == kNothing) continue;
    of_ptx[t] += std::clamp(widest[line.ordinal], least_amount(line, t), amount(line.name));
  }
  std::size_t most = 0;
  std::map<std::uint32_t, std::uint32_t> least;  // by line: how many a single copy has
  for (const auto& [basic, here] : found) most = std::max(most, here.lines.size());
  for (const auto& [basic, here] : found)
    if (2 * here.lines.size() >= most)
      for (const auto& [number, count] : here.lines) {
        auto& n = least.try_emplace(number, count).first->second;
        n = std::min(n, count);
      }
  const auto median = [](std::vector<double> values) {
    if (values.empty()) return 0u;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return static_cast<std::uint32_t>(std::lround(*middle));
  };
  std::map<std::uint32_t, Copies> copies;
  for (const auto& [basic, here] : found) {
    std::vector<double> always, guarded;
    for (std::size_t t = 0; t < kTellings; ++t)
      if (of_ptx[t] > 0) {
        always.push_back(here.always[t] / of_ptx[t]);
        guarded.push_back(here.guarded[t] / of_ptx[t]);
      }
    if (!tells && 2 * here.lines.size() >= most)
      for (const auto& [number, count] : here.lines)
        always.push_back(static_cast<double>(count) / least.at(number));
    if (const Copies c{median(always), median(guarded)}; c.always || c.guarded) copies[basic] = c;
  }
  return copies;
}

// Loops of one PTX block for which there are several branches in the machine code, or one that makes
// several turns at a time.
void Walker::find_loops() {
  // Helpers that ptxas calls, such as a division's, have branches with the caller's line.
  std::vector<bool> of_kernel(basics_.size());
  std::vector<std::uint32_t> todo = {0};
  while (!todo.empty()) {
    const std::uint32_t b = todo.back();
    todo.pop_back();
    if (of_kernel[b]) continue;
    of_kernel[b] = true;
    for (const std::uint32_t next : basics_[b].next)
      if (next != kNone) todo.push_back(next);
  }
  std::map<std::uint32_t, std::vector<std::uint32_t>> branches;  // by PTX block: basics
  std::map<std::uint32_t, Loop> slot_of;
  for (std::uint32_t b = 0; b < basics_.size(); ++b) {
    if (!basics_[b].conditional || basics_[b].ends || basics_[b].swaps || !of_kernel[b]) continue;
    // (Round until all lanes are there: no turn of the loop.)
    if (asks_for_lanes(code_.code[basics_[b].last]) || waits_for_lanes(b) || serves_lanes(b))
      continue;
    if (slow_path(basics_[b].next[0]) != slow_path(basics_[b].next[1])) continue;
    const Layout::Line* line = layout_.at(code_.code[basics_[b].last].ptx_line);
    if (line && line->role != Layout::Role::none) branches[line->block].push_back(b);
  }
  for (const Layout::Line& line : layout_.lines)
    if (line.role == Layout::Role::branch && !line.indirect &&
        (line.taken == line.block || line.falls == line.block))
      slot_of[line.block] = {line.slot, line.taken == line.block ? kTaken : kNotTaken};
  for (const auto& [block, of_block] : branches) {
    const auto slot = slot_of.find(block);
    if (slot == slot_of.end()) continue;
    const std::map<std::uint32_t, Copies> copies = copies_of(block);
    // A single branch: unrolled, and nothing is left over.
    const auto only = copies.find(of_block.front());
    if (of_block.size() < 2 && (only == copies.end() || only->second.always < 2)) continue;
    const auto loop = static_cast<std::uint32_t>(loops_.size());
    loops_.push_back(slot->second);
    for (const std::uint32_t b : of_block) {
      basics_[b].loop = loop;
      basics_[b].by = Basic::By::unrolled;
    }
    for (const auto& [basic, count] : copies) {
      basics_[basic].loop = loop;
      basics_[basic].copies = count.always;
      basics_[basic].optional = count.guarded;
    }
  }
}

// Instructions from the begin of a basic block to the first one of a PTX block, without going
// through more than some hundred.
std::uint32_t Walker::distance(std::uint32_t from, std::uint32_t ptx_block) const {
  constexpr std::uint32_t kFar = 4000;
  std::deque<std::pair<std::uint32_t, std::uint32_t>> todo = {{from, 0}};
  std::unordered_map<std::uint32_t, bool> seen = {{from, true}};
  std::uint32_t best = kNone;
  while (!todo.empty()) {
    const auto [b, so_far] = todo.front();
    todo.pop_front();
    if (so_far >= std::min(best, kFar)) continue;
    const Basic& basic = basics_[b];
    for (std::uint32_t i = basic.first; i <= basic.last; ++i) {
      const Layout::Line* line = layout_.at(code_.code[i].ptx_line);
      if (!line || line->role == Layout::Role::none || line->block != ptx_block) continue;
      best = std::min(best, so_far + i - basic.first);
      break;
    }
    for (const std::uint32_t next : basic.next)
      if (next != kNone && !seen[next]) {
        seen[next] = true;
        todo.push_back({next, so_far + basic.last - basic.first + 1});
      }
  }
  return best;
}

// +1: the machine branch is taken when the PTX branch is; -1: when it is not; 0: cannot be told.
int Walker::direction(std::uint32_t b, const Layout::Line& line) const {
  const Basic& basic = basics_[b];
  std::uint32_t taken = line.taken, falls = line.falls;
  // A block that neither way leads to says nothing, as where ptxas has moved all of it in front of the
  // branch: the one behind it.
  const auto seen_from_here = [&](std::uint32_t block) {
    return std::any_of(std::begin(basic.next), std::end(basic.next), [&](std::uint32_t next) {
      return next != kNone && distance(next, block) != kNone;
    });
  };
  for (std::uint32_t* block : {&taken, &falls})
    for (int more = 0; more < 4 && *block < layout_.next.size() && !seen_from_here(*block) &&
                       layout_.next[*block].size() == 1;
         ++more)
      *block = layout_.next[*block].front();
  for (int deeper = 0; deeper < 4; ++deeper) {
    double score = 0;
    const auto far = [&](std::uint32_t from, std::uint32_t block) {
      const std::uint32_t d = from == kNone ? kNone : distance(from, block);
      return d == kNone ? 5000.0 : d;
    };
    score += far(basic.next[0], taken) - far(basic.next[1], taken);
    score -= far(basic.next[0], falls) - far(basic.next[1], falls);
    if (score != 0) return score > 0 ? 1 : -1;
    // ptxas has left nothing of these blocks: those behind them.
    const auto on = [&](std::uint32_t block) {
      return block < layout_.next.size() && !layout_.next[block].empty()
                 ? layout_.next[block].front()
                 : block;
    };
    taken = on(taken);
    falls = on(falls);
  }
  return 0;
}

// Code that is only there for rare arguments: it begins with a call, or lies behind the kernel's end
// and goes back.
bool Walker::slow_path(std::uint32_t b) const {
  const Basic& basic = basics_[b];
  for (std::uint32_t i = basic.first; i <= basic.last; ++i)
    if (code_.code[i].kind == Kind::call && !jumps(code_.code[i])) return true;
  return false;
}

// Whether one way from a branch leads to it again, without a decision and without anything of PTX.
bool Walker::comes_back(std::uint32_t b, int side) const {
  std::uint32_t at = basics_[b].next[side];
  for (int steps = 0; steps < 4 && at != kNone; ++steps) {
    if (at == b) return true;
    if (basics_[at].conditional || !basics_[at].lines.empty()) return false;
    at = basics_[at].next[0];
  }
  return false;
}

// Round until all lanes are there: they are. Such a loop has nothing of PTX but a branch.
bool Walker::waits_for_lanes(std::uint32_t b) const {
  return basics_[b].lines.empty() && comes_back(b, 0);
}

// A tensor copy takes its operands from registers of the whole warp: ptxas makes a loop of it that
// serves one lane a turn, until no lane is left. Mostly one lane asks; that it is one turn is assumed. A
// loop of the program around a copy ends with a branch of PTX.
bool Walker::serves_lanes(std::uint32_t b) const {
  if (basics_[b].next[1] != b) return false;
  const Layout::Line* const line = layout_.at(code_.code[basics_[b].last].ptx_line);
  if (line && line->role == Layout::Role::branch) return false;
  for (std::uint32_t i = basics_[b].first; i <= basics_[b].last; ++i)
    if (code_.code[i].kind == Kind::bulk_copy) return true;
  return false;
}

// The PTX branch that a machine branch stands for although it names another line, as ptxas has it
// for some that go back: that of the last PTX block of which its basic block has instructions.
const Layout::Line* Walker::branch_behind(std::uint32_t b) const {
  std::uint32_t last = 0;
  for (std::uint32_t i = basics_[b].first; i <= basics_[b].last; ++i)
    if (const Layout::Line* line = layout_.at(code_.code[i].ptx_line);
        line && line->role != Layout::Role::none)
      last = std::max(last, code_.code[i].ptx_line);
  const Layout::Line* const from = layout_.at(last);
  if (!from) return nullptr;
  for (const Layout::Line* line = from; line < layout_.lines.data() + layout_.lines.size();
       ++line) {
    if (line->role == Layout::Role::none) continue;
    if (line->block != from->block) break;
    if (line->role == Layout::Role::branch) return line;
  }
  return nullptr;
}

void Walker::decide_branches() {
  for (std::uint32_t b = 0; b < basics_.size(); ++b) {
    Basic& basic = basics_[b];
    if (!basic.conditional || basic.by == Basic::By::unrolled) continue;
    const MachineInstr& last = code_.code[basic.last];
    if (asks_for_lanes(last)) {
      basic.rare = true;
      basic.fixed = last.if_together ? 1 : 0;
      continue;
    }
    if (waits_for_lanes(b)) {
      basic.rare = true;
      basic.fixed = 1;
      continue;
    }
    if (serves_lanes(b)) {
      basic.rare = true;
      basic.fixed = 0;
      continue;
    }
    if (basic.swaps) {  // the turns that lanes at one address cost are made on the way
      basic.rare = true;
      basic.fixed = 0;
      continue;
    }
    const Layout::Line* line = layout_.at(last.ptx_line);
    const bool back = !basic.ends && basic.next[1] <= b;
    if (back && (!line || line->role != Layout::Role::branch)) line = branch_behind(b);
    if (line && line->role == Layout::Role::branch && !line->indirect) {
      const int way = direction(b, *line);
      if (way != 0) {
        basic.by = Basic::By::outcome;
        basic.slot = line->slot;
        basic.inverted = way < 0;
        continue;
      }
    }
    // Within one PTX instruction: round its slow path, out of its loop.
    if (basic.ends) continue;
    const bool falls_slow = slow_path(basic.next[0]), jumps_slow = slow_path(basic.next[1]);
    basic.rare = falls_slow != jumps_slow;
    basic.fixed = falls_slow && !jumps_slow ? 1 : 0;
    // Round until all lanes are there: they are.
    if (!basic.rare && comes_back(b, 0)) {
      basic.rare = true;
      basic.fixed = 1;
    }
  }
}

}  // namespace vgpu::time
