// How lanes part at a branch, and meet again.
#include <algorithm>

#include "block.h"
#include "bulk.h"
#include "lanes.h"
#include "warp.h"
#include "warpgroup.h"

namespace vgpu {

// Joins fragments at the same program counter into one. They must wait for the same joins. Lanes
// that left a barrier one after the other are such fragments, and lanes that were let go early.
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

// Lets the waiting lanes of a join go on once no lane is missing. `last`: the fragment that came
// last.
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
  finish_products(*this, lanes);
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

}  // namespace vgpu
