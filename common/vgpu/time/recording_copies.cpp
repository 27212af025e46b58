// What is recorded of bulk copies: what each asks for, which mbarrier hears of it, and what other blocks of a
// cluster copy here.
#include <algorithm>
#include <map>

#include "../core/block.h"
#include "../core/cluster.h"
#include "../core/warp.h"
#include "recording.h"

namespace vgpu::time {

void Recorder::bulk_access(Warp& warp, const Instr& instr, int, std::uint64_t, std::uint32_t bytes,
                           Access, std::byte*) {
  const Layout::Line* line = nullptr;
  if (instr.rank) return;  // tensor_copy() says it all at once
  if (MemoryEvent* event = last_event(warp, instr, line)) event->bytes += bytes;
}

void Recorder::tensor_copy(Warp& warp, const Instr& instr, int, std::uint32_t, std::uint32_t bytes,
                           std::uint32_t sectors, std::uint32_t lines) {
  const Layout::Line* line = nullptr;
  MemoryEvent* const event = last_event(warp, instr, line);
  if (!event) return;
  event->bytes += bytes;
  event->sectors += sectors;
  event->requests += lines;
  event->tensor = true;
}

void Recorder::bulk_issue(Warp& warp, const Instr& instr, const Block& to, std::uint32_t bytes) {
  const Layout::Line* line = nullptr;
  MemoryEvent* const event = last_event(warp, instr, line);
  if (!event) return;
  if (instr.from_shared && event->blocks == 0) {  // bulk_access() is told of global memory
    event->bytes = bytes;
    event->sent = true;
  }
  event->blocks = static_cast<std::uint16_t>(event->blocks | 1u << to.rank);
}

void Recorder::bulk_land(Warp& warp, const Instr& instr, int, const Block& to,
                         std::uint32_t mbarrier, std::uint32_t bytes, std::uint64_t) {
  BlockState* const home = &to == warp.block ? nullptr : state_of(to);
  if (home) home->from_others[{mbarrier, home->phases[mbarrier]}] += bytes;
  BlockState* const block = state_of(*warp.block);
  const Layout::Line* const line = block ? recording_->layout.at(instr.ptx_line) : nullptr;
  if (!line || line->role != Layout::Role::memory || (block->probe && !whole_sms_)) return;
  WarpState& state = block->warps[warp.index];
  auto& events = block->record->warps[warp.index].events[line->slot];
  std::uint32_t& next = state.untold[line->slot][to.rank];
  while (next < events.size() && !(events[next].blocks >> to.rank & 1)) ++next;
  if (next >= events.size()) return;
  MemoryEvent& event = events[next];
  const Landing landing{static_cast<std::uint32_t>(warp.index), line->slot, next++, mbarrier,
                        block->phases[mbarrier]};
  const std::uint16_t others = event.blocks & ~(1u << warp.block->rank);
  if (&to == warp.block) {
    event.offset = mbarrier;
    event.home = static_cast<std::uint8_t>(to.rank);
    event.mbarrier = MemoryEvent::Mbarrier::complete;
    if (cluster_blocks_ > 1) block->landed.push_back(landing);
  } else if (event.blocks == others && event.mbarrier == MemoryEvent::Mbarrier::none) {
    event.offset = mbarrier;  // an mbarrier in other blocks only
    event.mbarrier = MemoryEvent::Mbarrier::complete;
    block->sent.push_back(landing);
  }
}

// What other blocks of the cluster copy to this one comes with what this one does for the same phase, since
// they are taken to do the same at the same time: with its own last copy; or with what it sends them, when
// it copies nothing to itself; or else after it has announced the bytes.
void Recorder::share_phases(BlockState& block) {
  if (block.record->cut) return;
  std::map<std::uint32_t, std::uint64_t> phases, sends;  // by mbarrier
  for (const auto& [place, bytes] : block.from_others) ++phases[place.first];
  for (const Landing& send : block.sent) ++sends[send.offset];
  std::map<std::uint32_t, std::uint64_t> before;
  for (const auto& [place, bytes] : block.from_others) {
    const auto of_phase = [&](const Landing& l) {
      return l.offset == place.first && l.phase == place.second;
    };
    const auto last = [&](const std::vector<Landing>& all) {
      return std::find_if(all.rbegin(), all.rend(), of_phase);
    };
    const Landing* with = nullptr;
    if (const auto own = last(block.landed); own != block.landed.rend()) with = &*own;
    const std::uint64_t share = sends[place.first] / phases[place.first];
    std::uint64_t number = ++before[place.first] * share;  // which send it is, from 1
    if (!with && share)
      for (const Landing& send : block.sent)
        if (send.offset == place.first && --number == 0) with = &send;
    if (const auto told = last(block.announced); !with && told != block.announced.rend())
      with = &*told;
    if (with) block.record->warps[with->warp].events[with->slot][with->event].from_others += bytes;
  }
}

}  // namespace vgpu::time
