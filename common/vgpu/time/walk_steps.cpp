// What a warp does on its way, and how well that agrees with what was recorded of it.
#include <algorithm>
#include <array>
#include <cstdio>

#include "../core/coalescing.h"
#include "telling.h"
#include "walk.h"

namespace vgpu::time {

std::uint64_t Walker::length(const Way& way) const {
  std::uint64_t sum = 0;
  for (const std::uint32_t b : way.blocks) sum += basics_[b].last - basics_[b].first + 1;
  return sum;
}

bool Walker::multiplies(const Way& way) const {
  std::vector<bool> seen(basics_.size());
  for (const std::uint32_t b : way.blocks) seen[b] = true;
  for (std::size_t i = 0; i < basic_of_.size(); ++i)
    if (seen[basic_of_[i]] && code_.code[i].kind == Kind::tensor) return true;
  return false;
}

// Machine instructions of a warp in order, each with what its PTX line asked of memory. Where a line
// has more machine instructions than events, or fewer, the events are spread evenly over them.
class Steps : public WarpSteps {
 public:
  Steps(const Walker& walker, const WarpRecord& record, const Walker::Way& way)
      : walker_(walker),
        record_(record),
        way_(way),
        taken_(record.events.size()),
        seen_(record.events.size()),
        all_(record.events.size()) {
    std::vector<std::uint32_t> visits(walker.basics_.size());
    for (const std::uint32_t b : way.blocks) ++visits[b];
    for (std::size_t b = 0; b < visits.size(); ++b) {
      if (!visits[b]) continue;
      for (std::uint32_t i = walker.basics_[b].first; i <= walker.basics_[b].last; ++i)
        if (const auto slot = walker.slot_of_[i];
            slot != Walker::kNone && !looks(walker.code_.code[i]))
          all_[slot] += visits[b];
    }
    if (!way.blocks.empty()) at_ = walker.basics_[way.blocks[0]].first;
  }

  bool next(Step& step) override {
    if (place_ >= way_.blocks.size()) return false;
    const Walker::Basic& basic = walker_.basics_[way_.blocks[place_]];
    step = {at_, nullptr, false};
    if (const auto slot = walker_.slot_of_[at_]; slot != Walker::kNone) take(slot, step);
    if (at_ == basic.last && turns_ > 1) {
      --turns_;
      at_ = basic.first;
    } else if (at_ == basic.last) {
      turns_ = 0;
      if (++place_ < way_.blocks.size()) at_ = walker_.basics_[way_.blocks[place_]].first;
    } else {
      ++at_;
    }
    return true;
  }

 private:
  // The load of an atomic operation that is a loop round a swap.
  bool looks(const MachineInstr& instr) const {
    const Layout::Line* line = walker_.layout_.at(instr.ptx_line);
    return line && line->atomic && instr.kind == Kind::shared_load;
  }
  // An atomic operation. Of a loop round a swap, each turn serves one lane of each address.
  void take_atomic(Step& step) {
    const MachineInstr& instr = walker_.code_.code[step.instr];
    const std::string& name = walker_.code_.names[instr.name];
    const Walker::Basic& basic = walker_.basics_[way_.blocks[place_]];
    if (basic.swaps) {
      if (turns_ == 0) turns_ = step.event->same_address;
      return;
    }
    const bool joins = walker_.joins_lanes(walker_.layout_.at(instr.ptx_line)->slot);
    if (instr.kind == Kind::shared_atomic && !joins && !name.ends_with(".POPC.INC")) {
      together_ = *step.event;
      together_.wavefronts = std::max<std::uint16_t>(together_.wavefronts, together_.same_bank);
      step.event = &together_;
    } else if (instr.kind == Kind::global_atomic && joins && !step.event->lines.empty()) {
      together_ = *step.event;
      one_lane_ = step.event->lines.front();
      one_lane_.lanes = 1;
      one_lane_.meeting = 0;
      together_.lines = {&one_lane_, 1};
      step.event = &together_;
    }
  }
  void take(std::uint32_t slot, Step& step) {
    const auto& events = record_.events[slot];
    const MachineInstr& machine = walker_.code_.code[step.instr];
    if (turns_ > 0 || looks(machine)) {  // again, or ahead of the swap
      const std::uint64_t next = std::min<std::uint64_t>(
          turns_ > 0 && taken_[slot] > 0 ? taken_[slot] - 1 : taken_[slot], events.size());
      if (next < events.size()) step.event = &events[next];
      step.no_lane = !step.event || !step.event->wavefronts;
      return;
    }
    // The n-th of `all` machine instructions gets the events up to n / all of them.
    const std::uint64_t upto = ++seen_[slot] * events.size() / all_[slot];
    if (upto == taken_[slot]) {
      step.no_lane = true;
      return;
    }
    const MemoryEvent& first = events[taken_[slot]];
    const MachineInstr& instr = walker_.code_.code[step.instr];
    if (first.wavefronts && instr.bytes > first.lane_bytes && first.lane_bytes) {
      // Joined with accesses to the words next to it: as many wavefronts as all its words need.
      together_ = first;
      const std::uint32_t words = first.words * instr.bytes / first.lane_bytes;
      together_.wavefronts = std::max(
          first.wavefronts, static_cast<std::uint16_t>((words + kSharedBanks - 1) / kSharedBanks));
      step.event = &together_;
    } else if (upto - taken_[slot] == 1) {
      step.event = &first;
    } else {  // several in one
      together_ = events[taken_[slot]];
      for (std::uint64_t e = taken_[slot] + 1; e < upto; ++e) {
        together_.wavefronts =
            static_cast<std::uint16_t>(together_.wavefronts + events[e].wavefronts);
        together_.bytes += events[e].bytes;
        if (together_.lines.empty()) together_.lines = events[e].lines;
      }
      step.event = &together_;
    }
    taken_[slot] = upto;
    if (walker_.layout_.at(instr.ptx_line)->atomic) take_atomic(step);
    const MemoryEvent& e = *step.event;
    step.no_lane = e.lines.empty() && !e.wavefronts && !e.bytes &&
                   e.mbarrier == MemoryEvent::Mbarrier::none &&
                   walker_.code_.code[step.instr].kind != Kind::barrier;
  }

  const Walker& walker_;
  const WarpRecord& record_;
  const Walker::Way& way_;
  std::size_t place_ = 0;
  std::uint32_t at_ = 0;
  std::vector<std::uint64_t> taken_, seen_, all_;  // by event slot
  MemoryEvent together_;
  LinePiece one_lane_;
  std::uint32_t turns_ = 0;  // turns of the loop round a swap, 0 before the first swap
};

std::unique_ptr<WarpSteps> Walker::steps(const WarpRecord& record, const Way& way) const {
  return std::make_unique<Steps>(*this, record, way);
}

void Walker::compare(const WarpRecord& record, const Way& way, Agreement& sum) const {
  struct Amounts {
    double least = 0, wanted = 0, always = 0, guarded = 0;
    bool has_code = false;
  };
  std::vector<std::array<Amounts, kTellings>> blocks(layout_.next.size());
  for (const Layout::Line& line : layout_.lines)
    if (const Telling t = telling(line.name); line.role != Layout::Role::none && t != kNothing) {
      Amounts& amounts = blocks[line.block][t];
      const double issued = record.issued[line.ordinal];
      amounts.wanted += amount(line.name) * issued;
      amounts.least += least_amount(line, t) * issued;
    }
  std::vector<std::uint32_t> visits(basics_.size());
  for (const std::uint32_t b : way.blocks) ++visits[b];
  for (std::size_t b = 0; b < visits.size(); ++b)
    for (std::uint32_t i = basics_[b].first; i <= basics_[b].last; ++i) {
      const MachineInstr& instr = code_.code[i];
      const Layout::Line* const line = layout_.at(instr.ptx_line);
      const Telling t = line ? telling(line->name) : kNothing;
      if (t == kNothing || !is_of(instr.kind, t)) continue;
      Amounts& amounts = blocks[line->block][t];
      amounts.has_code = true;  // else ptxas has done without
      (instr.guard == 7 ? amounts.always : amounts.guarded) += amount(instr, t) * visits[b];
    }
  for (std::size_t b = 0; b < blocks.size(); ++b)
    for (std::size_t t = 0; t < kTellings; ++t) {
      const Amounts& a = blocks[b][t];
      if (!a.has_code) continue;
      sum.executed += a.wanted;
      const double by = std::max({0.0, a.always - a.wanted, a.least - a.always - a.guarded});
      sum.differing += by;
      if (by <= sum.worst_by) continue;
      sum.worst_by = by;
      const auto first =
          std::find_if(layout_.lines.begin(), layout_.lines.end(), [&](const Layout::Line& line) {
            return line.role != Layout::Role::none && line.block == b && telling(line.name) == t;
          });
      char text[96];
      std::snprintf(text, sizeof text, "%.0f to %.0f in place of %.0f", a.always,
                    a.always + a.guarded, a.wanted);
      sum.worst = std::string(first->name) + " in the block of PTX line " +
                  std::to_string(layout_.first + (first - layout_.lines.begin())) + ": " + text;
    }
}

}  // namespace vgpu::time
