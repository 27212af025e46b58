// Bulk copies and reductions from shared to global memory, and the groups in which threads wait for
// them. (Those from global to shared report to an mbarrier: mbarrier.cpp.)
//
// Here too everything happens as late as the program allows: the source is read when the thread waits
// for its group, with or without .read, and global memory is written when it waits without .read, or
// ends. A tile that is filled again too early goes out with the wrong contents, every time.
#include <utility>

#include "../core/access.h"
#include "../core/bulk.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::uint16_t, std::uint32_t, std::uint64_t;

constexpr uint32_t kPiece = 16;

void read_source(Warp& warp, int lane, PendingBulk& copy) {
  if (!copy.source.empty()) return;
  const std::byte* from = warp.block->shared + copy.shared_offset;
  copy.source.assign(from, from + copy.bytes);
  Places places;
  places.bias = reinterpret_cast<std::intptr_t>(warp.block->shared);
  warp.worker->notify([&](Observer& o) {
    for (uint32_t k = 0; k < copy.bytes; k += kPiece) {
      Addresses a;
      std::fill_n(a.v, kWarpSize, uint64_t{copy.shared_offset} + k);
      o.access(warp, *copy.instr, 1u << lane, a, kPiece, Access::load, Space::shared, places);
    }
  });
}

void land(Warp& warp, int lane, PendingBulk& copy) {
  Frame* const running = std::exchange(warp.frame, copy.frame.get());
  read_source(warp, lane, copy);
  if (copy.box) {
    copy.box->write(warp, *copy.instr, lane, copy.source, copy.shared_offset);
    warp.changed = true;
    warp.frame = running;
    return;
  }
  const auto reduce = reinterpret_cast<BulkReduction>(const_cast<void*>(copy.instr->data));
  // Looked up again: the program may have freed it meanwhile.
  std::byte* to = lane_pointer(warp, *copy.instr, lane, copy.address, copy.bytes,
                               reduce ? Access::atomic : Access::store);
  if (reduce) {
    reduce(to, copy.source.data(), copy.bytes);
  } else if (copy.byte_mask == 0xffff) {
    std::memcpy(to, copy.source.data(), copy.bytes);
  } else {
    for (uint32_t i = 0; i < copy.bytes; ++i)
      if (copy.byte_mask >> i % kPiece & 1) to[i] = copy.source[i];
  }
  warp.changed = true;
  warp.frame = running;
}

// [global], [shared], bytes{, cache-policy}{, mask of bytes in each 16}, and of a tensor
// [map, {coordinates}], [shared]{, cache-policy}
void bulk_store(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses to, from;
  compute_addresses(warp, instr, mask, to);
  Instr source = instr;
  source.address = instr.address2;
  source.address_bits = instr.address2_bits;
  source.imm = instr.imm2;
  source.space = Space::shared;
  source.frame_local = false;
  compute_addresses(warp, source, mask, from);
  const Access access = instr.data ? Access::atomic : Access::store;
  const uint32_t* sizes = instr.rank ? nullptr : warp.lanes<const uint32_t>(instr.a);
  const uint16_t* masks = instr.b.valid() ? warp.lanes<const uint16_t>(instr.b) : nullptr;
  each_lane(mask, [&](int lane) {
    std::shared_ptr<const TensorBox> box;
    if (instr.rank) {
      if (from.v[lane] % 128)
        report_misaligned(warp, source, lane, from.v[lane], 128, Access::load, Space::shared);
      box = std::make_shared<const TensorBox>(warp, instr, lane, to.v[lane], access, true);
    }
    const uint32_t bytes = box ? box->bytes() : sizes[lane];
    if (!box && (bytes % kPiece || to.v[lane] % kPiece || from.v[lane] % kPiece))
      throw Fault{FaultKind::illegal_instruction,
                  describe(warp, instr, lane,
                           "bulk copy of " + std::to_string(bytes) +
                               " bytes: size and addresses must be multiples of 16")};
    if (bytes == 0) return;
    const uint32_t shared = warp.block->launch.shared_bytes;
    if (from.v[lane] >= shared || bytes > shared - from.v[lane])
      report_bad_access(warp, source, lane, from.v[lane], bytes, Access::load, Space::shared);
    if (!box) resolve_bulk(warp, instr, lane, to.v[lane], bytes, access);
    if (box)
      warp.worker->notify([&](Observer& o) {
        o.tensor_copy(warp, instr, lane, static_cast<uint32_t>(from.v[lane]), bytes,
                      box->pieces(kSectorBytes), box->pieces(128));
      });
    LaneCopies& copies = warp.copies_of(lane);
    const auto offset = static_cast<uint32_t>(from.v[lane]);
    ++copies.bulk_issued;
    warp.worker->notify(
        [&](Observer& o) { o.source_read(warp, instr, lane, offset, bytes, copies.bulk_issued); });
    copies.bulk_open.push_back({&instr,
                                Ref<Frame>(warp.frame),
                                to.v[lane],
                                offset,
                                bytes,
                                masks ? masks[lane] : uint16_t{0xffff},
                                copies.bulk_issued,
                                {},
                                std::move(box)});
    warp.worker->async_bytes += bytes;
  });
}

void commit(Warp& warp, const Instr&, uint32_t mask) {
  each_lane(mask, [&](int lane) {
    LaneCopies& copies = warp.copies_of(lane);
    copies.bulk_groups.push(std::exchange(copies.bulk_open, {}));
  });
}

void tell_sources_read(Warp& warp, int lane, uint64_t copy) {
  warp.worker->notify([&](Observer& o) { o.sources_read(warp, lane, copy); });
}

void wait_bulk(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto allowed = static_cast<std::size_t>(instr.constant);
  each_lane(mask, [&](int lane) {
    auto& groups = warp.copies_of(lane).bulk_groups;
    uint64_t last = 0;
    while (groups.size() > allowed)
      for (PendingBulk& c : groups.pop()) {
        land(warp, lane, c);
        last = c.number;
      }
    tell_sources_read(warp, lane, last);
  });
}
void wait_read(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto allowed = static_cast<std::size_t>(instr.constant);
  each_lane(mask, [&](int lane) {
    auto& groups = warp.copies_of(lane).bulk_groups;
    uint64_t last = 0;
    for (std::size_t i = 0; i + allowed < groups.size(); ++i)
      for (PendingBulk& c : groups[i]) {
        Frame* const running = std::exchange(warp.frame, c.frame.get());
        read_source(warp, lane, c);
        warp.frame = running;
        last = c.number;
      }
    tell_sources_read(warp, lane, last);
  });
}

// The bytes must exist, as for a copy; nothing else happens.
void prefetch(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  const uint32_t* bytes = warp.lanes<const uint32_t>(instr.a);
  each_lane(mask, [&](int lane) {
    if (bytes[lane] % kPiece || a.v[lane] % kPiece)
      throw Fault{FaultKind::illegal_instruction,
                  describe(warp, instr, lane,
                           "bulk prefetch of " + std::to_string(bytes[lane]) +
                               " bytes: size and address must be multiples of 16")};
    if (bytes[lane]) lane_pointer(warp, instr, lane, a.v[lane], bytes[lane], Access::load);
  });
}

}  // namespace

void finish_bulk(Warp& warp, uint32_t lanes) {
  if (!warp.copies) return;
  each_lane(lanes, [&](int lane) {
    LaneCopies& copies = warp.copies_of(lane);
    const auto end = [&](PendingBulk& c) {
      if (c.source.empty()) {
        Frame* const running = std::exchange(warp.frame, c.frame.get());
        warp.worker->notify([&](Observer& o) { o.source_given_up(warp, *c.instr, lane, c.bytes); });
        warp.frame = running;
      }
      land(warp, lane, c);
    };
    for (auto& group : copies.bulk_groups)
      for (PendingBulk& c : group) end(c);
    for (PendingBulk& c : copies.bulk_open) end(c);
    copies.bulk_groups.clear();
    copies.bulk_open.clear();
  });
}

Handler bind_bulk_store(Instr&, const Mods&) { return &bulk_store; }
Handler bind_bulk_reduce(Instr& instr, const Mods& mods) {
  const BulkReduction reduction = bulk_reduction(instr.type, mods);
  instr.data = reinterpret_cast<const void*>(reduction);
  return reduction ? &bulk_store : nullptr;
}
Handler bind_bulk_commit(Instr&, const Mods&) { return &commit; }
Handler bind_bulk_wait(Instr& instr, const Mods& mods) {
  return instr.constant < 0 ? nullptr : mods.has("read") ? &wait_read : &wait_bulk;
}
Handler bind_bulk_prefetch(Instr&, const Mods&) { return &prefetch; }

}  // namespace vgpu
