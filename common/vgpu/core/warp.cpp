// The warp loop: fetch, guard, dispatch; and how lanes part and meet.
#include "warp.h"
#include "bulk.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "block.h"
#include "builtins.h"
#include "lanes.h"

namespace vgpu {
namespace {

// Turns of a waiting loop (one that looks at memory others may write) before others get their share.
constexpr std::uint32_t kSpinTurns = 16;
constexpr std::uint32_t kQuietTurns = 1024;
constexpr std::uint32_t kMaxCallDepth = 4096;
constexpr std::uint64_t kCallsBeyondShare = 4096;  // instructions
constexpr std::uint64_t kMostFrameBytes = 256ull
                                          << 20;  // registers of all calls in flight, a host thread

Ref<Frame> make_frame(const Function& function) {
  Ref<Frame> frame(new Frame);
  frame->function = &function;
  const std::size_t areas = std::size_t{kWarpSize} * function.call_area_bytes;
  frame->storage = std::make_unique<std::byte[]>(function.register_bytes + areas + 64);
  const auto start = reinterpret_cast<std::uintptr_t>(frame->storage.get());
  frame->bytes = function.register_bytes + areas;
  frame->registers = frame->storage.get() + ((start + 63) / 64 * 64 - start);
  frame->call_area = frame->registers + function.register_bytes;
  return frame;
}

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

// Lanes that stand at the same place, without a meeting point before them that the others do not
// share, go on together: those that left a barrier, or that were let go early.
std::size_t Warp::merge_into(std::size_t current) {
  for (std::size_t i = fragments.size(); i-- > 0;) {
    Fragment& f = fragments[current];
    const Fragment& other = fragments[i];
    if (i == current || other.state != Fragment::State::ready || other.pc != f.pc ||
        other.frame.get() != f.frame.get() || other.join.get() != f.join.get())
      continue;
    f.mask |= other.mask;
    f.waiting &= other.waiting;
    f.watched |= other.watched;
    f.changed |= other.changed;
    f.sights += other.sights;
    fragments.erase(fragments.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < current) --current;
  }
  return current;
}

// At a jump back that is not taken: do those who waited still wait? Not when they have left all
// loops or seen something new. What a part of a turn saw is remembered as whole turns are.
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

Warp::Status Warp::run(std::uint64_t share) {
  return worker->followers.empty() ? run_fragments<false>(share) : run_fragments<true>(share);
}
void Warp::show(const Instr& instr, std::uint32_t mask, std::uint32_t on) {
  for (Observer* follower : worker->followers) follower->instruction(*this, instr, mask, on);
}

template <bool kFollowed>
Warp::Status Warp::run_fragments(std::uint64_t share) {
  const std::uint64_t stop_at = instructions + share;
  bool progress = false;
  std::size_t current = pick_ready(turn_);
  turn_ = 0;
  while (current < fragments.size()) {
    if (fragments.size() > 1) current = merge_into(current);
    // The running fragment's state lives in locals; `fragments` may grow meanwhile, so it is
    // reached by index, and written back before anything that looks at it.
    std::uint32_t pc = fragments[current].pc;
    std::uint32_t mask = fragments[current].mask;
    frame = fragments[current].frame.get();
    const Instr* code = frame->function->code.data();
    Count* counts = frame->counts;
    base[0] = frame->registers;
    base[1] = const_cast<std::byte*>(frame->function->constants.data());
    active = mask;
    watched = fragments[current].watched;
    changed = fragments[current].changed;
    sights = fragments[current].sights;
    enum class Leave { no, switch_fragment, gone, yield } leave = Leave::no;

    while (leave == Leave::no) {
      // Straight-line code first, in a loop of its own.
      const Instr* next = code + pc;
      for (; next->flow <= Flow::memory; ++next) {
        std::uint32_t on = mask;
        if (next->guard.valid())
          on &= next->guard_not ? ~predicate(next->guard) : predicate(next->guard);
        if (counts) {
          Count& count = counts[next->pc];
          ++count.issued;
          count.lanes += static_cast<std::uint32_t>(std::popcount(on));
        }
        ++instructions;
        if constexpr (kFollowed) show(*next, mask, on);
        if (on) next->run(*this, *next, on);
        if (next->flow == Flow::memory && instructions >= stop_at) [[unlikely]] {
          leave = Leave::yield;
          ++next;
          break;
        }
      }
      pc = next->pc;
      if (leave != Leave::no) break;
      const Instr& instr = *next;
      std::uint32_t on = mask;
      if (instr.guard.valid())
        on &= instr.guard_not ? ~predicate(instr.guard) : predicate(instr.guard);
      if (counts) {
        ++counts[pc].issued;
        counts[pc].lanes += static_cast<std::uint32_t>(std::popcount(on));
      }
      ++instructions;
      if constexpr (kFollowed)
        if (instr.flow != Flow::join) show(instr, mask, on);
      switch (instr.flow) {
        case Flow::plain:
        case Flow::memory:
          break;  // done above
        case Flow::fetch:
          if (on && !block->may_fetch()) {  // again in the next turn
            if (counts)
              --counts[pc].issued,
                  counts[pc].lanes -= static_cast<std::uint32_t>(std::popcount(on));
            --instructions;
            leave = Leave::yield;
            break;
          }
          if (on) instr.run(*this, instr, on);
          ++pc;
          if (instructions >= stop_at) leave = Leave::yield;
          break;
        case Flow::branch: {
          const bool backward = instr.target <= pc;
          if (on == mask) {
            pc = instr.target;
          } else if (on == 0) {
            if (backward) fragments[current].waiting = still_waits(fragments[current], pc);
            ++pc;
            break;
          } else {
            fragments[current].pc = pc;
            diverge(current, on, instr.target, instr);
            pc = fragments[current].pc;
            mask = active = fragments[current].mask;
          }
          if (backward && (turn_of_loop(fragments[current]) || instructions >= stop_at))
            leave = Leave::yield;
          break;
        }
        case Flow::branch_table: {
          if (!on) {
            ++pc;
            break;
          }
          // Peel off the lanes of one target after the other.
          const auto& table = frame->function->tables[instr.target];
          const std::uint32_t* index = lanes<std::uint32_t>(instr.a);
          std::uint32_t rest = on;
          bool backward = false;
          fragments[current].pc = pc;
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
            backward |= table[want] <= pc;
            if (same == fragments[current].mask) {
              fragments[current].pc = table[want];
            } else {
              diverge(current, same, table[want], instr);
              if (rest) fragments[current].pc = pc;  // what is left has not branched yet
            }
          }
          pc = fragments[current].pc;
          mask = active = fragments[current].mask;
          if (backward && (turn_of_loop(fragments[current]) || instructions >= stop_at))
            leave = Leave::yield;
          break;
        }
        case Flow::join: {
          if (counts) --counts[pc].issued, counts[pc].lanes -= std::popcount(on);
          --instructions;
          while (Join* join = enclosing_join(current, pc)) {
            Fragment& f = fragments[current];
            join->arrived |= mask;
            join->pending &= ~mask;
            if (join->pending) {
              join->take_turn(*this);
              leave = Leave::gone;
              break;
            }
            join->give_turn(*this);
            mask = active = join->arrived;
            join->arrived = 0;
            f.mask = mask;
            f.join = Ref<Join>(join->parent);
          }
          if (leave == Leave::no) ++pc;
          break;
        }
        case Flow::call:
          if (!on) {
            ++pc;
            break;
          }
          if (const CallSite& site = frame->function->calls[instr.site]; !site.builtin.empty()) {
            call_builtin(*this, instr, site, on);
            ++pc;
            break;
          }
          fragments[current].pc = pc;
          enter_call(fragments[current], instr, on);
          leave = Leave::switch_fragment;
          if (instructions >= stop_at &&
              instructions - stop_at >= kCallsBeyondShare) {  // calls alone may go on for ever
            pc = fragments[current].pc;
            leave = Leave::yield;
          }
          break;
        case Flow::ret:
        case Flow::exit:
          if (!on) {
            ++pc;
            break;
          }
          fragments[current].pc = pc;
          if (instr.flow == Flow::ret && frame->caller) {
            keep_turn(fragments[current]);
            leave_call(current, on);
          } else {
            fragments[current].mask &= ~on;
            progress = true;
            drop_lanes(fragments[current], on);
          }
          mask = active = fragments[current].mask;
          if (mask)
            ++pc;
          else
            leave = Leave::gone;
          break;
        case Flow::barrier: {
          if (!on) {
            ++pc;
            break;
          }
          fragments[current].pc = pc;
          if (on != mask) {  // the guard parts them: those that arrive are on their own
            Fragment arriving = fragments[current];
            arriving.mask = on;
            fragments[current].mask &= ~on;
            fragments[current].pc = pc + 1;
            fragments.push_back(std::move(arriving));
            arriving_ = fragments.size() - 1;
          } else {
            arriving_ = current;
          }
          instr.run(*this, instr, on);
          leave = Leave::switch_fragment;
          break;
        }
        case Flow::warp_sync:
          if (!on) {
            ++pc;
            break;
          }
          fragments[current].pc = pc;
          if (try_warp_sync(current, instr, on)) {
            ++pc;
            if (fragments.size() > 1) {  // those that came to the same place go on together
              fragments[current].pc = pc;
              leave = Leave::switch_fragment;
            }
          } else {
            leave = Leave::switch_fragment;
          }
          break;
        case Flow::yield:
          if (on) instr.run(*this, instr, on);
          ++pc;
          leave = Leave::yield;
          break;
        case Flow::trap:
          if (!on) {
            ++pc;
            break;
          }
          throw Fault{FaultKind::trap,
                      describe(*this, instr, std::countr_zero(on), "trap instruction executed")};
      }
    }

    // Also of lanes that only met others, inside a waiting loop.
    progress |= !fragments[current].waiting || changed;
    keep_turn(fragments[current]);
    switch (leave) {
      case Leave::gone:
        fragments.erase(fragments.begin() + static_cast<std::ptrdiff_t>(current));
        current = fragments.empty() ? 0 : pick_ready(fragments.size() - 1);
        break;
      case Leave::switch_fragment:
        if (current < fragments.size() && fragments[current].state == Fragment::State::ready) break;
        current = pick_ready(current);
        break;
      case Leave::yield: {
        fragments[current].pc = pc;
        fragments[current].spins = 0;
        // Others of this warp first; when all have had their turn, other warps.
        const std::size_t other = pick_ready(current + 1);
        if (instructions >= stop_at || other <= current) {
          turn_ = current + 1;
          return progress ? Status::share_used : Status::waiting;
        }
        current = other;
        break;
      }
      default:
        break;
    }
  }
  return progress ? Status::blocked : Status::waiting;
}

// The meeting point at `pc` that the fragment is under, or null. When it lies outside of others, the
// lanes have left those, and nobody there waits for them any longer.
Join* Warp::enclosing_join(std::size_t current, std::uint32_t pc) {
  const Frame* of = fragments[current].frame.get();
  Join* found = fragments[current].join.get();
  while (found && found->frame.get() == of && found->pc != pc) found = found->parent.get();
  if (!found || found->frame.get() != of) return nullptr;
  while (fragments[current].join.get() != found) {
    const Ref<Join> inner = fragments[current].join;
    inner->pending &= ~fragments[current].mask;
    complete_join(inner, Fragment(fragments[current]));
    fragments[current].join = inner->parent;
  }
  return found;
}

// Lanes `taken` of the fragment go to `target`, the others behind the branch.
void Warp::diverge(std::size_t current, std::uint32_t taken, std::uint32_t target,
                   const Instr& instr) {
  const bool again = instr.reconverge != kNoJoin && enclosing_join(current, instr.reconverge);
  Fragment& f = fragments[current];
  const std::uint32_t rest = f.mask & ~taken;
  const std::uint32_t next = f.pc + 1;
  if (instr.reconverge != kNoJoin && !again) {  // a loop's exits share one
    Ref<Join> join(new Join);
    join->pc = instr.reconverge;
    join->frame = f.frame;
    join->pending = f.mask;
    join->parent = f.join;
    f.join = std::move(join);
  }
  // One side is often there already (an if without else, a loop's exit).
  if (instr.reconverge != kNoJoin && target == instr.reconverge) {
    f.join->arrived |= taken;
    f.join->pending &= ~taken;
    f.mask = rest;
    f.pc = next;
    return;
  }
  if (instr.reconverge != kNoJoin && next == instr.reconverge && instr.flow == Flow::branch) {
    f.join->arrived |= rest;
    f.join->pending &= ~rest;
    f.mask = taken;
    f.pc = target;
    return;
  }
  Fragment other = f;
  other.watched = other.changed = false;  // the turn so far is f's
  other.sights = 0;
  if (target <= f.pc &&
      instr.flow == Flow::branch) {  // a loop goes on; the lanes that leave it wait their turn
    other.mask = rest;
    other.pc = next;
    other.waiting = still_waits(f, f.pc);
    f.mask = taken;
    f.pc = target;
  } else {
    other.mask = taken;
    other.pc = target;
    f.mask = rest;
    f.pc = next;
  }
  fragments.push_back(std::move(other));
}

// When nobody is missing any longer, those that wait go on. `last` is who they waited for.
void Warp::complete_join(const Ref<Join>& join, const Fragment& last) {
  if (join->pending || !join->arrived) return;
  Fragment f = last;  // what it has seen in its loop; a loop may call functions
  f.state = Fragment::State::ready;
  f.pc = join->pc;
  f.mask = join->arrived;
  f.frame = join->frame;
  f.join = join->parent;
  join->arrived = 0;
  join->give_turn(f);
  fragments.push_back(std::move(f));
}

void Warp::drop_lanes(Fragment& fragment, std::uint32_t lanes) {
  finish_bulk(*this, lanes);
  live &= ~lanes;
  worker->notify(
      [&](Observer& o) { o.lanes_exit(*this, frame->function->code[fragment.pc], lanes); });
  const Fragment ended = fragment;  // it may move when others are added
  for (Ref<Join> join = ended.join; join; join = Ref<Join>(join->parent)) {
    join->pending &= ~lanes;
    complete_join(join, ended);
  }
  block->threads_exited(*this, lanes);
  // Somebody may have waited for these lanes only.
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].state != Fragment::State::at_sync) continue;
    Frame* running = frame;
    std::byte* saved[2] = {base[0], base[1]};
    const std::uint32_t was_active = active;
    frame = fragments[i].frame.get();
    base[0] = frame->registers;
    base[1] = const_cast<std::byte*>(frame->function->constants.data());
    const Instr& instr = frame->function->code[fragments[i].pc];
    if (try_warp_sync(i, instr, fragments[i].sync_mask)) {
      fragments[i].state = Fragment::State::ready;
      ++fragments[i].pc;
    }
    frame = running;
    base[0] = saved[0];
    base[1] = saved[1];
    active = was_active;
  }
}

bool Warp::release_joins() {
  struct Waiting {
    Ref<Join> join;
    std::size_t on;  // a fragment that has not come
  };
  std::vector<Waiting> waiting;
  for (std::size_t i = 0; i < fragments.size(); ++i)
    for (Ref<Join> join = fragments[i].join; join; join = Ref<Join>(join->parent)) {
      bool known = false;
      for (const auto& w : waiting) known |= w.join.get() == join.get();
      if (!known && join->arrived && join->pending) waiting.push_back({join, i});
    }
  for (const auto& [join, on] : waiting) {
    Fragment f = fragments[on];  // they wait for what it waits for
    f.state = Fragment::State::ready;
    f.watched = f.changed = false;
    f.sights = 0;
    f.pc = join->pc;
    f.mask = join->arrived;
    f.frame = join->frame;
    f.join = join->parent;
    join->arrived = 0;
    join->give_turn(f);
    fragments.push_back(std::move(f));
  }
  return !waiting.empty();
}

// ---- calls ----------------------------------------------------------------------------------

void Warp::enter_call(Fragment& f, const Instr& instr, std::uint32_t mask) {
  const CallSite& site = f.frame->function->calls[instr.site];
  const Function* callee = site.callee;
  Launch& launch = block->launch;
  if (!callee) {  // through a pointer: the lanes of one target now, the others come back for theirs
    const std::uint64_t* pointer = lanes<std::uint64_t>(site.pointer);
    const int first = std::countr_zero(mask);
    std::uint32_t same = 0;
    each_lane(mask,
              [&](int lane) { same |= std::uint32_t{pointer[lane] == pointer[first]} << lane; });
    callee = launch.function_at(pointer[first]);
    if (!callee)
      throw Fault{FaultKind::illegal_instruction,
                  describe(*this, instr, first, "call of an address that is no function")};
    if (same != mask) {
      Fragment later = f;  // runs the call again, for the lanes that are left
      Ref<Join> join(new Join);
      join->pc = f.pc + 1;
      join->frame = f.frame;
      join->pending = f.mask;
      join->parent = f.join;
      if (f.frame->counts)
        f.frame->counts[f.pc].lanes -= static_cast<std::uint32_t>(std::popcount(mask & ~same));
      const std::uint32_t skipped = f.mask & ~mask;
      join->arrived = skipped;
      join->pending &= ~skipped;
      f.join = join;
      later.join = join;
      later.mask = mask & ~same;
      f.mask = same;
      mask = same;
      const std::size_t index = static_cast<std::size_t>(&f - fragments.data());
      fragments.push_back(std::move(later));
      return enter_call(fragments[index], instr, mask);
    }
  }
  if (callee->entry)
    throw Fault{FaultKind::illegal_instruction,
                describe(*this, instr, std::countr_zero(mask),
                         "call of " + callee->display + ", which is a kernel")};
  const Function& function = callee->code.empty() ? *launch.prepare(callee) : *callee;
  if (f.frame->depth + 1 > kMaxCallDepth)
    throw Fault{FaultKind::stack_overflow,
                describe(*this, instr, std::countr_zero(mask),
                         "calls nested deeper than " + std::to_string(kMaxCallDepth))};
  Ref<Join> join(new Join);
  join->pc = f.pc + 1;
  join->frame = f.frame;
  join->arrived = f.mask & ~mask;
  join->pending = mask;
  join->parent = f.join;
  Ref<Frame> inner = make_frame(function);
  inner->account = &worker->frame_bytes;
  if ((worker->frame_bytes += inner->bytes) > kMostFrameBytes)
    throw Fault{FaultKind::stack_overflow,
                describe(*this, instr, std::countr_zero(mask),
                         "the registers of calls take more than " +
                             std::to_string(kMostFrameBytes >> 20) + " MiB")};
  inner->caller = f.frame;
  inner->call = &instr;
  inner->depth = f.frame->depth + 1;
  inner->local_base = f.frame->local_base + f.frame->function->local_bytes;
  if (inner->local_base + function.local_bytes > local_capacity)
    throw Fault{
        FaultKind::stack_overflow,
        describe(*this, instr, std::countr_zero(mask),
                 "stack overflow: " + std::to_string(inner->local_base + function.local_bytes) +
                     " bytes of local memory, " + std::to_string(local_capacity) + " a thread")};
  FunctionState& state = worker->state_of(function);
  inner->counts = worker->counting ? state.counts.data() : nullptr;
  inner->sites = state.sites.data();
  // Arguments: results come first among a function's .param variables, then its parameters.
  std::uint32_t offset = 0;
  std::vector<std::uint32_t> to;
  for (const auto* list : {&function.results, &function.params})
    for (const Param& p : *list) {
      offset = (offset + std::max(1u, p.align) - 1) / std::max(1u, p.align) * std::max(1u, p.align);
      if (list == &function.params) to.push_back(offset);
      offset += p.size;
    }
  if (to.size() != site.args.size() || function.results.size() != site.results.size())
    throw Fault{FaultKind::illegal_instruction,
                describe(*this, instr, std::countr_zero(mask),
                         "call of " + function.display + " with other parameters than it has")};
  each_lane(mask, [&](int lane) {
    for (std::size_t i = 0; i < to.size(); ++i)
      std::memcpy(inner->call_area + lane * function.call_area_bytes + to[i],
                  f.frame->call_area + lane * f.frame->function->call_area_bytes + site.args[i],
                  std::min(site.arg_sizes[i], function.params[i].size));
  });
  f.join = std::move(join);
  f.frame = std::move(inner);
  f.mask = mask;
  f.pc = 0;
}

void Warp::leave_call(std::size_t current, std::uint32_t mask) {
  Ref<Frame> inner = fragments[current].frame;
  Ref<Frame> outer = inner->caller;
  const Function& function = *inner->function;
  const CallSite& site = outer->function->calls[inner->call->site];
  std::uint32_t offset = 0;
  for (std::size_t i = 0; i < function.results.size(); ++i) {
    const Param& p = function.results[i];
    offset = (offset + std::max(1u, p.align) - 1) / std::max(1u, p.align) * std::max(1u, p.align);
    each_lane(mask, [&](int lane) {
      std::memcpy(outer->call_area + lane * outer->function->call_area_bytes + site.results[i],
                  inner->call_area + lane * function.call_area_bytes + offset,
                  std::min(site.result_sizes[i], p.size));
    });
    offset += p.size;
  }
  fragments[current].mask &= ~mask;
  Ref<Join> join = fragments[current].join;
  const Fragment left = fragments[current];
  while (join && !(join->frame.get() == outer.get() && join->pc == inner->call->pc + 1)) {
    join->pending &= ~mask;
    complete_join(join, left);
    join = Ref<Join>(join->parent);
  }
  if (!join) {  // released early: these lanes go on by themselves
    Fragment f;
    f.pc = inner->call->pc + 1;
    f.mask = mask;
    f.frame = outer;
    fragments.push_back(std::move(f));
    return;
  }
  join->arrived |= mask;
  join->pending &= ~mask;
  Fragment came = left;
  if (join->pending) join->take_turn(came);
  complete_join(join, came);
}

// ---- operations of several lanes ------------------------------------------------------------

// True when the instruction was executed for the current fragment (and for all that waited with it).
bool Warp::try_warp_sync(std::size_t current, const Instr& instr, std::uint32_t mask) {
  auto members = [&](const Fragment& f, const Instr& i, std::uint32_t lanes_of) {
    if (!i.e.valid()) return lanes_of;
    const std::byte* from =
        i.e.constant() ? f.frame->function->constants.data() : f.frame->registers;
    const auto* m = reinterpret_cast<const std::uint32_t*>(from + i.e.offset());
    std::uint32_t all = 0;
    each_lane(lanes_of, [&](int lane) { all |= m[lane]; });
    return all;
  };
  std::uint32_t need = members(fragments[current], instr, mask) & live;
  if ((need & ~mask) == 0) {
    worker->notify([&](Observer& o) {
      o.warp_sync(*this, instr, mask, members(fragments[current], instr, mask));
    });
    instr.run(*this, instr, mask);
    return true;
  }
  // Others must come. Those that already wait at the same operation count, wherever they stand.
  Fragment& self = fragments[current];
  self.state = Fragment::State::at_sync;
  self.sync_mask = mask;
  std::vector<std::size_t> party = {current};
  std::uint32_t have = mask, named = members(self, instr, mask);
  for (bool grown = true; grown && (need & ~have);) {
    grown = false;
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      Fragment& f = fragments[i];
      if (f.state != Fragment::State::at_sync || !(f.sync_mask & need)) continue;
      if (std::find(party.begin(), party.end(), i) != party.end()) continue;
      const Instr& other = f.frame->function->code[f.pc];
      if (other.run != instr.run || other.variant != instr.variant || other.type != instr.type)
        continue;
      party.push_back(i);
      have |= f.sync_mask;
      named |= members(f, other, f.sync_mask);
      need |= named & live;
      grown = true;
    }
  }
  if (need & ~have) return false;

  bool same_place = true;
  for (std::size_t i : party)
    same_place &= fragments[i].pc == self.pc && fragments[i].frame.get() == self.frame.get();
  if (same_place) {
    worker->notify([&](Observer& o) { o.warp_sync(*this, instr, have, named); });
    instr.run(*this, instr, have);
  } else {
    // Each stands at its own instruction with its own registers: gather, run once, hand out.
    alignas(64) std::byte scratch[7 * 512];
    std::memset(scratch, 0, sizeof scratch);
    Instr common = instr;
    Slot* slots[7] = {&common.d[0], &common.d[1], &common.a, &common.b,
                      &common.c,    &common.e,    nullptr};
    for (int s = 0; s < 6; ++s)
      if (slots[s]->valid()) *slots[s] = Slot{static_cast<std::uint32_t>(s * 512) << 1};
    auto own = [&](const Fragment& f, int s) {
      const Instr& i = f.frame->function->code[f.pc];
      const Slot slot = s == 0   ? i.d[0]
                        : s == 1 ? i.d[1]
                        : s == 2 ? i.a
                        : s == 3 ? i.b
                        : s == 4 ? i.c
                                 : i.e;
      if (!slot.valid()) return static_cast<std::byte*>(nullptr);
      std::byte* from = slot.constant()
                            ? const_cast<std::byte*>(f.frame->function->constants.data())
                            : f.frame->registers;
      return from + slot.offset();
    };
    auto is_predicate = [&](int s) {
      return s == 1 ||
             (s == 0 && common.op_class != OpClass::memory && common.dtype == Type::pred) ||
             (s == 2 && common.a_bits == 1);
    };
    auto bytes = [&](int s) {
      return s == 0 && common.d_bits == 64 ? 8 : s == 2 && common.a_bits == 64 ? 8 : 4;
    };
    auto copy = [&](std::byte* to, const std::byte* from, int s, std::uint32_t lanes_of,
                    bool negate) {
      if (is_predicate(s)) {
        std::uint32_t t, v;
        std::memcpy(&t, to, 4);
        std::memcpy(&v, from, 4);
        if (negate) v = ~v;
        t = (t & ~lanes_of) | (v & lanes_of);
        std::memcpy(to, &t, 4);
      } else {
        each_lane(lanes_of, [&](int lane) {
          std::memcpy(to + lane * bytes(s), from + lane * bytes(s), bytes(s));
        });
      }
    };
    common.a_not = false;
    for (std::size_t i : party)
      for (int s = 2; s < 6; ++s)
        if (std::byte* from = own(fragments[i], s))
          copy(scratch + s * 512, from, s, fragments[i].sync_mask,
               s == 2 && fragments[i].frame->function->code[fragments[i].pc].a_not);
    std::byte* saved[2] = {base[0], base[1]};
    base[0] = base[1] = scratch;
    worker->notify([&](Observer& o) { o.warp_sync(*this, common, have, named); });
    common.run(*this, common, have);
    base[0] = saved[0];
    base[1] = saved[1];
    for (std::size_t i : party)
      for (int s = 0; s < 2; ++s)
        if (std::byte* to = own(fragments[i], s))
          copy(to, scratch + s * 512, s, fragments[i].sync_mask, false);
  }
  // Lanes of a fragment whose guard kept them out have waited with it.
  for (std::size_t i : party) {
    fragments[i].state = Fragment::State::ready;
    if (i != current) ++fragments[i].pc;
  }
  return true;
}

}  // namespace vgpu
