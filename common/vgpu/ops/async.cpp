// Asynchronous copies from global to shared memory: cp.async and its groups.
//
// A copy lands as late as the program allows: when its group is waited for. Code that forgets the
// wait, or waits for the wrong group, reads what was there before, every time.
#include "../core/access.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::uint32_t, std::uint64_t, std::uint8_t;

void land(Warp& warp, int lane, const PendingCopy& copy) {
  std::byte* to = warp.block->shared + copy.shared_offset;
  if (copy.source_bytes == 16) {
    std::memcpy(to, copy.source, 16);
  } else if (copy.source_bytes == 4 && copy.bytes == 4) {
    std::memcpy(to, copy.source, 4);
  } else {
    if (copy.source_bytes) std::memcpy(to, copy.source, copy.source_bytes);
    std::memset(to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
  }
  warp.worker->notify(
      [&](Observer& o) { o.copy_land(warp, lane, *warp.block, copy.shared_offset, copy.bytes); });
}

void copy(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto bytes = static_cast<uint32_t>(instr.constant);
  Addresses to, from;
  compute_addresses(warp, instr, mask, to);
  Instr source = instr;
  source.address = instr.address2;
  source.address_bits = instr.address2_bits;
  source.imm = instr.imm2;
  source.space = Space::global;
  source.frame_local = false;
  compute_addresses(warp, source, mask, from);
  Places target, origin;
  resolve_shared(warp, instr, mask, to, bytes, Access::store, target);
  // Source bytes beyond src-size are not read and become zeros; an ignored source is not read at all.
  const uint32_t* size =
      instr.b.valid() && instr.variant == 0 ? warp.lanes<const uint32_t>(instr.b) : nullptr;
  const uint32_t ignored = instr.variant == 1 ? get_predicate(warp, instr.b, instr.b_not) : 0;
  uint32_t reading = mask & ~ignored;
  if (size)
    each_lane(mask, [&](int lane) {
      if (size[lane] == 0) reading &= ~(1u << lane);
      if (size[lane] > bytes)
        throw Fault{FaultKind::illegal_instruction,
                    describe(warp, instr, lane,
                             "cp.async reads " + std::to_string(size[lane]) +
                                 " bytes for a copy of " + std::to_string(bytes))};
    });
  if (reading) {
    if (reading != mask) {
      const uint64_t filler = from.v[std::countr_zero(reading)];
      for (int lane = 0; lane < kWarpSize; ++lane)
        if (!(reading >> lane & 1)) from.v[lane] = filler;
      from.strided = false;
    }
    resolve_global(warp, source, reading, from, bytes, Access::load, origin);
  }
  each_lane(mask, [&](int lane) {
    PendingCopy pending;
    pending.shared_offset = static_cast<uint32_t>(to.v[lane]);
    pending.bytes = static_cast<uint8_t>(bytes);
    pending.source_bytes =
        static_cast<uint8_t>(reading >> lane & 1 ? (size ? size[lane] : bytes) : 0);
    pending.source = pending.source_bytes ? origin.at(from, lane) : nullptr;
    LaneCopies& copies = warp.copies_of(lane);
    ++copies.issued;
    copies.pending.push(pending);
    warp.worker->notify([&](Observer& o) {
      o.copy_issue(warp, instr, lane, *warp.block, pending.shared_offset, bytes);
    });
  });
  if (!warp.block->launch.async_copies.load(std::memory_order_relaxed))
    warp.block->launch.async_copies = true;
  warp.worker->async_bytes += uint64_t{static_cast<uint32_t>(std::popcount(mask))} * bytes;
}

void commit(Warp& warp, const Instr&, uint32_t mask) {
  each_lane(mask, [&](int lane) {
    LaneCopies& copies = warp.copies_of(lane);
    copies.groups.push(copies.issued);
  });
}

void wait_group(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto allowed = static_cast<std::size_t>(instr.constant);
  each_lane(mask, [&](int lane) {
    LaneCopies& copies = warp.copies_of(lane);
    while (copies.groups.size() > allowed) land_copies(warp, lane, copies.groups.pop());
  });
}

void wait_all(Warp& warp, const Instr& instr, uint32_t mask) {
  commit(warp, instr, mask);
  Instr none = instr;
  none.constant = 0;
  wait_group(warp, none, mask);
}

}  // namespace

void land_copies(Warp& warp, int lane, uint64_t up_to) {
  LaneCopies& copies = warp.copies_of(lane);
  while (copies.issued - copies.pending.size() < up_to) land(warp, lane, copies.pending.pop());
}

Handler bind_cp_async(Instr& instr, const Mods& mods) {
  const bool bypass_l1 = mods.has("cg");
  if (instr.constant != 16 && (bypass_l1 || (instr.constant != 4 && instr.constant != 8)))
    return nullptr;
  // [dst], [src], bytes{, src-size | ignore-src}{, cache-policy}
  if (mods.has("L2::cache_hint") && !instr.c.valid()) instr.b = Slot{};
  if (instr.b.valid() && instr.b_bits > 1 && instr.b_bits != 32) return nullptr;
  if (instr.b.valid() && instr.b_bits == 1) instr.variant = 1;  // ignore-src
  instr.async = true;
  return &copy;
}
Handler bind_cp_commit(Instr&, const Mods&) { return &commit; }
Handler bind_cp_wait(Instr& instr, const Mods&) {
  return instr.constant < 0 ? nullptr : &wait_group;
}
Handler bind_cp_wait_all(Instr&, const Mods&) { return &wait_all; }

}  // namespace vgpu
