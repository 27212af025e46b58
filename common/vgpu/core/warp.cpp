// The warp loop: which lanes run, straight pieces of code, and what ends them.
#include "warp.h"

#include <algorithm>
#include <bit>

#include "block.h"
#include "builtins.h"
#include "lanes.h"
#include "straight.h"

namespace vgpu {
namespace {

// Turns of a waiting loop (one that looks at memory others may write) before others get their share.
constexpr std::uint32_t kSpinTurns = 16;
constexpr std::uint32_t kQuietTurns = 1024;
constexpr std::uint64_t kCallsBeyondShare = 4096;  // instructions

bool seen_before(const Fragment& f, std::uint64_t sights) {
  return std::find(std::begin(f.seen), std::end(f.seen), sights) != std::end(f.seen);
}
void remember(Fragment& f, std::uint64_t sights) {
  std::rotate(std::begin(f.seen), std::begin(f.seen) + 1, std::end(f.seen));
  *std::rbegin(f.seen) = sights;
}

}  // namespace

bool Warp::has_ready() const {
  for (const Fragment& f : fragments)
    if (f.state == Fragment::State::ready) return true;
  return false;
}

std::size_t Warp::pick_ready(std::size_t after) const {
  for (std::size_t k = 0; k < fragments.size(); ++k) {
    const std::size_t i = (after + k) % fragments.size();
    if (fragments[i].state == Fragment::State::ready) return i;
  }
  return fragments.size();
}

// Spin detection at a jump back that is not taken: is the fragment still waiting? No if it has left
// all loops or has loaded something new. What was loaded since the last jump is remembered like an
// iteration.
bool Warp::still_waits(Fragment& f, std::uint32_t pc) const {
  if (!f.waiting || changed || !worker->loops.goes_on_behind(*frame->function, pc)) return false;
  if (!watched || seen_before(f, sights)) return true;
  remember(f, sights);
  return false;
}

// At a jump back: has the loop waited long enough for others to have their turn?
bool Warp::turn_of_loop(Fragment& f) {
  if (changed) {
    f.waiting = false;
    f.spins = 0;
  } else if (watched) {
    f.waiting = seen_before(f, sights);
    if (!f.waiting) {
      remember(f, sights);
      f.spins = 0;
    }
  } else {
    if (f.waiting && ++f.quiet > kQuietTurns) f.waiting = false;  // this is work, not waiting
    return false;
  }
  changed = watched = false;
  sights = 0;
  f.quiet = 0;
  return f.waiting && ++f.spins >= kSpinTurns;
}

// ---- control flow -----------------------------------------------------------------------------

Warp::Leave Warp::branch(Running& r, const Instr& instr, std::uint32_t on) {
  const bool backward = instr.target <= r.pc;
  if (on == r.mask) {
    r.pc = instr.target;
  } else if (on == 0) {
    if (backward) fragments[r.current].waiting = still_waits(fragments[r.current], r.pc);
    ++r.pc;
    return Leave::no;
  } else {
    fragments[r.current].pc = r.pc;
    diverge(r.current, on, instr.target, instr);
    r.take_up(*this);
  }
  return after_jump(r, backward);
}

// Peels off the lanes of one target after the other.
Warp::Leave Warp::branch_table(Running& r, const Instr& instr, std::uint32_t on) {
  const auto& table = frame->function->tables[instr.target];
  const std::uint32_t* index = lanes<std::uint32_t>(instr.a);
  std::uint32_t rest = on;
  bool backward = false;
  fragments[r.current].pc = r.pc;
  while (rest) {
    const std::uint32_t want = index[std::countr_zero(rest)];
    if (want >= table.size())
      throw Fault{FaultKind::illegal_instruction,
                  describe(*this, instr, std::countr_zero(rest),
                           "branch index " + std::to_string(want) + " in a table of " +
                               std::to_string(table.size()))};
    std::uint32_t same = 0;
    each_lane(rest, [&](int lane) { same |= std::uint32_t{index[lane] == want} << lane; });
    rest &= ~same;
    backward |= table[want] <= r.pc;
    if (same == fragments[r.current].mask) {
      fragments[r.current].pc = table[want];
    } else {
      diverge(r.current, same, table[want], instr);
      if (rest) fragments[r.current].pc = r.pc;  // what is left has not branched yet
    }
  }
  r.take_up(*this);
  return after_jump(r, backward);
}

Warp::Leave Warp::after_jump(Running& r, bool backward) {
  r.progress |= backward && changed;  // who has written has got further, even if it waits again now
  const bool enough = backward && (turn_of_loop(fragments[r.current]) || instructions >= r.stop_at);
  return enough ? Leave::yield : Leave::no;
}

Warp::Leave Warp::meet(Running& r) {
  while (Join* join = enclosing_join(r.current, r.pc)) {
    Fragment& f = fragments[r.current];
    join->arrived |= r.mask;
    join->pending &= ~r.mask;
    if (join->pending) {
      join->take_turn(*this);
      return Leave::gone;
    }
    join->give_turn(*this);
    r.mask = active = join->arrived;
    join->arrived = 0;
    f.mask = r.mask;
    f.join = Ref<Join>(join->parent);
  }
  ++r.pc;
  return Leave::no;
}

Warp::Leave Warp::call(Running& r, const Instr& instr, std::uint32_t on) {
  if (const CallSite& site = frame->function->calls[instr.site]; !site.builtin.empty()) {
    call_builtin(*this, instr, site, on);
    ++r.pc;
    return Leave::no;
  }
  fragments[r.current].pc = r.pc;
  enter_call(fragments[r.current], instr, on);
  if (instructions < r.stop_at || instructions - r.stop_at < kCallsBeyondShare)
    return Leave::switch_fragment;
  r.pc = fragments[r.current].pc;  // calls alone may go on for ever
  return Leave::yield;
}

Warp::Leave Warp::end(Running& r, const Instr& instr, std::uint32_t on) {
  fragments[r.current].pc = r.pc;
  if (instr.flow == Flow::ret && frame->caller) {
    keep_turn(fragments[r.current]);
    leave_call(r.current, on);
  } else {
    fragments[r.current].mask &= ~on;
    r.progress = true;
    drop_lanes(fragments[r.current], on);
  }
  r.mask = active = fragments[r.current].mask;
  if (!r.mask) return Leave::gone;
  ++r.pc;
  return Leave::no;
}

Warp::Leave Warp::arrive(Running& r, const Instr& instr, std::uint32_t on) {
  fragments[r.current].pc = r.pc;
  arriving_ = r.current;
  if (on != r.mask) {  // the guard parts them: those that arrive are on their own
    Fragment arriving = fragments[r.current];
    arriving.mask = on;
    fragments[r.current].mask &= ~on;
    fragments[r.current].pc = r.pc + 1;
    fragments.push_back(std::move(arriving));
    arriving_ = fragments.size() - 1;
  }
  instr.run(*this, instr, on);
  return Leave::switch_fragment;
}

Warp::Leave Warp::sync(Running& r, const Instr& instr, std::uint32_t on) {
  fragments[r.current].pc = r.pc;
  if (!try_warp_sync(r.current, instr, on)) return Leave::switch_fragment;
  ++r.pc;
  if (fragments.size() == 1) return Leave::no;
  fragments[r.current].pc = r.pc;  // fragments at the same place go on together
  return Leave::switch_fragment;
}

// An atomic in a loop that asks a counter for more.
Warp::Leave Warp::fetch(Running& r, const Instr& instr, std::uint32_t on) {
  if (on && !block->may_fetch()) {  // again in the next turn
    not_executed(instr, on);
    return Leave::yield;
  }
  if (on) instr.run(*this, instr, on);
  ++r.pc;
  return instructions >= r.stop_at ? Leave::yield : Leave::no;
}

// When there are not enough registers, or the warpgroup has not come, the instruction is tried again in the
// warp's next turn, and the warp counts as waiting, like one in a loop.
Warp::Leave Warp::change_registers(Running& r, const Instr& instr, std::uint32_t on) {
  const bool again = short_of || ahead_of_group;
  instr.run(*this, instr, on);
  if (!short_of && !ahead_of_group) {
    if (again) fragments[r.current].waiting = false;
    ++r.pc;
    return Leave::no;
  }
  not_executed(instr, on);
  r.progress |= !again;
  fragments[r.current].waiting = true;
  changed = false;
  return Leave::yield;
}

void Warp::not_executed(const Instr& instr, std::uint32_t on) {
  --instructions;
  if (!frame->counts) return;
  InstrCounters& count = frame->counts[instr.pc];
  --count.issued;
  count.lanes -= static_cast<std::uint32_t>(std::popcount(on));
}

// One instruction that is not straight-line code.
Warp::Leave Warp::step(Running& r, const Instr& instr) {
  const std::uint32_t on = begin_instruction(*this, instr, r.mask, frame->counts);
  if (instr.flow == Flow::join) {  // none of the program's
    not_executed(instr, on);
    return meet(r);
  }
  const bool again = instr.flow == Flow::registers && (short_of || ahead_of_group);
  if (worker->audience && !again)
    for (Observer* follower : worker->audience->followers)
      follower->instruction(*this, instr, r.mask, on);
  if (instr.flow == Flow::fetch) return fetch(r, instr, on);
  if (instr.flow == Flow::branch) return branch(r, instr, on);
  if (!on) {
    ++r.pc;
    return instr.flow == Flow::yield ? Leave::yield : Leave::no;
  }
  switch (instr.flow) {
    case Flow::branch_table:
      return branch_table(r, instr, on);
    case Flow::call:
      return call(r, instr, on);
    case Flow::ret:
    case Flow::exit:
      return end(r, instr, on);
    case Flow::barrier:
      return arrive(r, instr, on);
    case Flow::warp_sync:
      return sync(r, instr, on);
    case Flow::yield:
      instr.run(*this, instr, on);
      ++r.pc;
      return Leave::yield;
    case Flow::registers:
      return change_registers(r, instr, on);
    case Flow::trap:
      throw Fault{FaultKind::trap,
                  describe(*this, instr, std::countr_zero(on), "trap instruction executed")};
    default:  // those above, and straight-line code
      return Leave::no;
  }
}

// ---- the loop ---------------------------------------------------------------------------------

// The loop keeps the running fragment's place and lanes in `Running`. It writes them back to
// `fragments` before other code looks there, and finds the fragment by its index: the vector may grow
// and move its elements.
void Warp::Running::take_up(Warp& warp) {
  pc = warp.fragments[current].pc;
  mask = warp.active = warp.fragments[current].mask;
}
void Warp::begin(Running& r) {
  if (fragments.size() > 1) r.current = merge_into(r.current);
  r.take_up(*this);
  const Fragment& f = fragments[r.current];
  frame = f.frame.get();
  base[0] = frame->registers;
  base[1] = const_cast<std::byte*>(frame->function->constants.data());
  watched = f.watched;
  changed = f.changed;
  sights = f.sights;
}

Warp::Status Warp::run(std::uint64_t share) {
  Running r;
  r.stop_at = instructions + share;
  r.current = pick_ready(turn_);
  turn_ = 0;
  while (r.current < fragments.size()) {
    begin(r);
    Leave leave = Leave::no;
    while (leave == Leave::no) {
      const Straight piece =
          worker->straight(*this, &frame->function->code[r.pc], r.mask, r.stop_at);
      r.pc = piece.next->pc;
      leave = piece.share_used ? Leave::yield : step(r, *piece.next);
    }
    // Also of lanes that only met others, inside a waiting loop.
    r.progress |= !fragments[r.current].waiting || changed;
    keep_turn(fragments[r.current]);
    if (leave == Leave::gone) {
      fragments.erase(fragments.begin() + static_cast<std::ptrdiff_t>(r.current));
      r.current = fragments.empty() ? 0 : pick_ready(fragments.size() - 1);
    } else if (leave == Leave::switch_fragment) {
      const bool goes_on =
          r.current < fragments.size() && fragments[r.current].state == Fragment::State::ready;
      if (!goes_on) r.current = pick_ready(r.current);
    } else {
      fragments[r.current].pc = r.pc;
      fragments[r.current].spins = 0;
      // Others of this warp first; when all have had their turn, other warps.
      const std::size_t other = pick_ready(r.current + 1);
      if (instructions >= r.stop_at || other <= r.current) {
        turn_ = r.current + 1;
        return r.progress ? Status::share_used : Status::waiting;
      }
      r.current = other;
    }
  }
  return r.progress ? Status::blocked : Status::waiting;
}

}  // namespace vgpu
