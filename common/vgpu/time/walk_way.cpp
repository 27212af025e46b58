// The way of a warp from basic block to basic block, by what was recorded of it.
#include <algorithm>
#include <cstdio>

#include "walk.h"

namespace vgpu::time {

struct Walker::State {
  const WarpRecord& record;
  std::vector<std::uint32_t> used;  // outcomes, by branch slot
  std::uint32_t loop = kNone;       // unrolled loop that the warp is in
  long left = 0;                    // turns of it that are left
  struct Side {
    std::uint32_t basic, until;
  };
  std::vector<Side> sides;  // lanes that have parted and wait for their turn
  Trust trust = Trust::branches;
  std::vector<std::uint32_t> seen;  // PTX instructions so far, by ordinal

  void visit(const Basic& basic) {
    for (const auto& [ordinal, count] : basic.lines) seen[ordinal] += count;
  }

  std::uint8_t outcome(std::uint32_t slot) {
    const auto& outcomes = record.outcomes[slot];
    if (outcomes.empty()) return kNotTaken;
    const std::uint32_t at = used[slot]++;
    return at < outcomes.size() ? outcomes[at] : outcomes.back();
  }
  bool exhausted(std::uint32_t slot) const { return used[slot] >= record.outcomes[slot].size(); }
};

// Turns of its unrolled loop that a basic block makes when `left` are left, -1 when that is too many.
long Walker::turns_in(const Basic& basic, long left) {
  const long always = basic.copies;
  return always > left ? -1 : always + std::min<long>(basic.optional, left - always);
}

// Turns of an unrolled loop that the way on from here makes before it has to decide again, with
// `left` turns left. -1: a way that leaves the loop too early, or makes too many.
long Walker::reach(std::uint32_t b, std::uint32_t loop, long left, int depth) const {
  for (int steps = 0; steps < 8 && b != kNone; ++steps) {
    const Basic& basic = basics_[b];
    if (basic.loop == loop && (basic.copies || basic.optional)) return turns_in(basic, left);
    if (basic.by == Basic::By::unrolled && basic.loop == loop) {
      if (depth == 0) return -1;
      return std::max(reach(basic.next[0], loop, left, depth - 1),
                      reach(basic.next[1], loop, left, depth - 1));
    }
    if (basic.conditional) break;
    b = basic.next[0];
  }
  return left == 0 ? 0 : -1;
}

// Whether a warp may go on at `b`: 1 if it finds instructions there that it has still to execute,
// -1 if it has executed them as often as its PTX did, 0 if nothing tells.
int Walker::support(const State& state, std::uint32_t b, std::uint32_t until) const {
  for (int steps = 0; steps < 8 && b != kNone && b != until; ++steps) {
    const Basic& basic = basics_[b];
    std::size_t left = 0;
    for (const auto& [ordinal, count] : basic.lines)
      left += state.record.issued[ordinal] >= state.seen[ordinal] + count;
    if (!basic.lines.empty()) return 2 * left >= basic.lines.size() ? 1 : -1;
    if (basic.conditional) return 0;
    b = basic.next[0];
  }
  return 0;
}

// Which way the instructions that are left speak for: an index into next, -1 for neither.
int Walker::by_counts(const State& state, std::uint32_t b) const {
  const Basic& basic = basics_[b];
  const int falls = support(state, basic.next[0], basic.meets);
  const int jumps = support(state, basic.next[1], basic.meets);
  return falls == jumps ? -1 : falls > jumps ? 0 : 1;
}

// The basic block after this one.
std::uint32_t Walker::step(State& state, std::uint32_t b) const {
  const Basic& basic = basics_[b];
  const auto turns = [&](const Loop& loop) {  // turns of the loop that begins now
    long count = 1;
    while (!state.exhausted(loop.slot) && state.outcome(loop.slot) & loop.again) ++count;
    return count;
  };
  if (basic.loop != kNone) {
    if (state.loop != basic.loop) {
      state.loop = basic.loop;
      state.left = turns(loops_[basic.loop]);
    }
    state.left -= std::max(0l, turns_in(basic, state.left));
  } else if (basic.conditional) {
    state.loop = kNone;
  }
  if (!basic.conditional) {
    if (basic.next[0] != kNone && basic.loop != kNone &&
        basics_[basic.next[0]].loop != basic.loop && state.left <= 0)
      state.loop = kNone;
    return basic.next[0];
  }
  if (basic.by == Basic::By::unrolled) {
    const long falls = reach(basic.next[0], basic.loop, state.left, 6);
    const long jumps = reach(basic.next[1], basic.loop, state.left, 6);
    bool taken = jumps > falls || (jumps == falls && jumps < 0 && state.left <= 0);
    if (const int way = by_counts(state, b);
        way >= 0 && (state.trust == Trust::counts || jumps == falls))
      taken = way == 1;
    const std::uint32_t next = basic.next[taken ? 1 : 0];
    if (basics_[next].loop != basic.loop) state.loop = state.left > 0 ? state.loop : kNone;
    return next;
  }
  const int way = basic.ends ? -1 : by_counts(state, b);
  if (basic.by == Basic::By::fixed)
    return basic.next[way >= 0 && !basic.rare ? static_cast<std::uint32_t>(way) : basic.fixed];
  const bool told = !state.exhausted(basic.slot);
  std::uint8_t outcome = state.outcome(basic.slot);
  if (way >= 0 && (!told || (state.trust == Trust::counts && outcome != (kTaken | kNotTaken))))
    return basic.next[way];
  if (basic.inverted)
    outcome = static_cast<std::uint8_t>((outcome & kTaken ? kNotTaken : 0) |
                                        (outcome & kNotTaken ? kTaken : 0));
  if (basic.ends) {
    if (outcome & kNotTaken) return basic.next[0];
    return kNone;
  }
  if (outcome != (kTaken | kNotTaken)) return basic.next[outcome & kTaken ? 1 : 0];
  // Lanes part: both ways, one after the other, unless one of them only waits for the other.
  if (basic.next[1] == basic.meets) return basic.next[0];
  if (basic.next[0] == basic.meets) return basic.next[1];
  if (basic.meets != kNone) state.sides.push_back({basic.next[1], basic.meets});
  return basic.next[0];
}

std::string Walker::listing(const WarpRecord& record, const Way& way) const {
  std::vector<std::uint32_t> visits(basics_.size());
  for (const std::uint32_t b : way.blocks) ++visits[b];
  std::string out;
  char text[160];
  const auto number = [](std::uint32_t n) { return n == kNone ? -1 : static_cast<int>(n); };
  for (std::size_t b = 0; b < basics_.size(); ++b) {
    const Basic& basic = basics_[b];
    const MachineInstr& last = code_.code[basic.last];
    std::uint32_t from = ~0u, to = 0;
    for (std::uint32_t i = basic.first; i <= basic.last; ++i) {
      if (!code_.code[i].ptx_line) continue;
      from = std::min(from, code_.code[i].ptx_line);
      to = std::max(to, code_.code[i].ptx_line);
    }
    std::snprintf(text, sizeof text, "%3zu at %5x-%5x, PTX %u-%u: %u times, %s of PTX %u, then %d",
                  b, code_.code[basic.first].address, last.address, from, to, visits[b],
                  code_.names[last.name].c_str(), last.ptx_line, number(basic.next[0]));
    out += text;
    if (basic.conditional) {
      std::snprintf(text, sizeof text, " or %d (%s %u%s), meeting in %d", number(basic.next[1]),
                    basic.by == Basic::By::fixed     ? "always"
                    : basic.by == Basic::By::outcome ? "by branch"
                                                     : "unrolled loop",
                    basic.by == Basic::By::fixed     ? basic.fixed
                    : basic.by == Basic::By::outcome ? basic.slot
                                                     : basic.loop,
                    basic.inverted ? ", inverted" : "", number(basic.meets));
      out += text;
    }
    if (basic.loop != kNone)
      out += ", turns " + std::to_string(basic.copies) + "+" + std::to_string(basic.optional);
    const Layout::Line* line = layout_.at(last.ptx_line);
    if (line && line->role == Layout::Role::branch) {
      out += ", outcomes ";
      const auto& outcomes = record.outcomes[line->slot];
      for (std::size_t i = 0; i < std::min<std::size_t>(outcomes.size(), 40); ++i)
        out += static_cast<char>('0' + outcomes[i]);
    }
    out += "\n";
  }
  return out;
}

Walker::Way Walker::walk(const WarpRecord& record) const {
  Way best = walk(record, Trust::branches);
  Agreement first;
  compare(record, best, first);
  if (!best.lost && first.differing == 0) return best;
  Way other = walk(record, Trust::counts);
  Agreement second;
  compare(record, other, second);
  if (!other.lost && (best.lost || second.share() < first.share())) return other;
  return best;
}

Walker::Way Walker::walk(const WarpRecord& record, Trust trust) const {
  Way way;
  State state{record, std::vector<std::uint32_t>(record.outcomes.size()), kNone, 0, {},
              trust,  std::vector<std::uint32_t>(record.issued.size())};
  const std::uint64_t most = 64 * record.instructions + 10'000;
  std::uint64_t length = 0;
  std::uint32_t b = 0;
  for (;;) {
    while (b != kNone && !state.sides.empty() && b == state.sides.back().until) {
      b = state.sides.back().basic;
      const std::uint32_t until = state.sides.back().until;
      state.sides.pop_back();
      if (b == until) continue;
    }
    if (b == kNone) {
      if (state.sides.empty()) break;
      b = state.sides.back().basic;
      state.sides.pop_back();
      continue;
    }
    way.blocks.push_back(b);
    state.visit(basics_[b]);
    length += basics_[b].last - basics_[b].first + 1;
    if (length > most || *basics_[b].stop) {
      way.lost = true;
      way.why = length > most ? "its machine code has loops that PTX has not" : basics_[b].stop;
      break;
    }
    b = step(state, b);
  }
  return way;
}

}  // namespace vgpu::time
