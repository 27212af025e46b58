#include "access.h"

namespace vgpu {

template std::uint32_t coalescing_detail::shared_wavefronts<2>(const std::uint32_t*, std::uint32_t,
                                                               std::uint32_t);
template std::uint32_t coalescing_detail::shared_wavefronts<3>(const std::uint32_t*, std::uint32_t,
                                                               std::uint32_t);
template std::uint32_t coalescing_detail::shared_wavefronts<4>(const std::uint32_t*, std::uint32_t,
                                                               std::uint32_t);

namespace {

GlobalCounters& counters_of(Warp& warp, const Instr& instr, std::uint32_t allocation) {
  return warp.worker->by_allocation[{warp.frame->function, instr.memory_site, allocation}];
}

// Points the site at the allocation that holds `address`. False when there is none.
bool move_window(Warp& warp, const Instr& instr, Site& site, std::uint64_t address) {
  const auto allocation = warp.block->launch.memory.find(address);
  if (!allocation) return false;
  site.low = allocation->base;
  site.high = allocation->base + allocation->size;
  site.bias = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(allocation->host) -
                                          allocation->base);
  if (warp.worker->counting) {
    site.counters = &counters_of(warp, instr, allocation->id);
    const TouchMap* map = warp.block->launch.touch_map(allocation);
    site.read = map->read.get() - site.low / kSectorBytes;
    site.written = map->written.get() - site.low / kSectorBytes;
  }
  return true;
}

// One request of this shape, in which lanes of `mask` ask for `bytes` each.
inline void count_request(GlobalCounters& c, const RequestShape& shape, std::uint32_t mask,
                          std::uint32_t bytes) {
  ++c.requests;
  c.sectors += shape.sectors;
  c.lines += shape.lines;
  c.bytes_asked += std::uint64_t{static_cast<std::uint32_t>(std::popcount(mask))} * bytes;
  c.bytes_distinct += shape.bytes_distinct;
  c.ideal_sectors += (shape.bytes_distinct + kSectorBytes - 1) / kSectorBytes;
}

void count_global(Warp& warp, Site& site, const Addresses& a, std::uint32_t mask,
                  std::uint32_t bytes, Access access) {
  const RequestShape shape =
      a.strided ? strided_request(a.v[0], a.stride, bytes) : global_request(a.v, mask, bytes);
  count_request(*site.counters, shape, mask, bytes);
  warp.worker->l1_clocks += l1_clocks(shape, warp.worker->sectors_per_clock);
  // Sectors that the launch touches. A loop often walks through the same sectors for several turns:
  // with a stride of whole sectors the first lane's sector tells all.
  const std::uint64_t first = a.v[0] / kSectorBytes;
  if (a.strided && a.stride % kSectorBytes == 0) {
    if (site.marked_first == first && site.marked_stride == a.stride) return;
    site.marked_first = first;
    site.marked_stride = a.stride;
  }
  auto mark = [&](std::uint8_t* map) {
    if (shape.sectors == 1) {
      map[first] = 1;
    } else if (a.strided && a.stride > 0 && a.stride <= static_cast<std::int64_t>(kSectorBytes)) {
      for (std::uint32_t s = 0; s < shape.sectors; ++s) map[first + s] = 1;
    } else {  // inactive lanes repeat an active one's address
      for (int lane = 0; lane < kWarpSize; ++lane) map[a.v[lane] / kSectorBytes] = 1;
    }
  };
  if (access != Access::store) mark(site.read);
  if (access != Access::load) mark(site.written);
}

void check_alignment(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                     std::uint32_t bytes, Access access, Space space) {
  each_lane(mask, [&](int lane) {
    if (a.v[lane] & (bytes - 1))
      report_misaligned(warp, instr, lane, a.v[lane], bytes, access, space);
  });
}

// Accesses of which some name a block of the cluster. Those to the executing block are what they
// would be without its rank.
void resolve_cluster(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                     std::uint32_t bytes, Access access, Places& places) {
  std::byte* pointers[kWarpSize];
  std::uint32_t todo = mask, remote = 0, distinct = 0;
  while (todo) {  // block by block
    const SharedPlace first = shared_place(warp, instr, std::countr_zero(todo),
                                           a.v[std::countr_zero(todo)], bytes, access);
    std::uint32_t here = 0;
    Addresses part;
    std::fill_n(part.v, kWarpSize, std::uint64_t{first.offset});
    each_lane(todo, [&](int lane) {
      const SharedPlace place = shared_place(warp, instr, lane, a.v[lane], bytes, access);
      if (place.block != first.block) return;
      here |= 1u << lane;
      part.v[lane] = place.offset;
      pointers[lane] = place.bytes();
    });
    todo &= ~here;
    Places some;
    if (first.block == warp.block) {
      resolve_shared(warp, instr, here, part, bytes, access, some);
      continue;
    }
    remote |= here;
    check_alignment(warp, instr, here, part, bytes, access, Space::shared);
    if (warp.worker->counting) distinct += global_request(part.v, here, bytes).bytes_distinct;
    some.owner = first.block;
    some.bias = reinterpret_cast<std::intptr_t>(first.block->shared);
    if (!instr.async)
      warp.worker->notify([&](Observer& o) {
        o.access(warp, instr, here, part, bytes, access, Space::shared, some);
      });
  }
  places.single = false;
  std::copy_n(pointers, kWarpSize, places.pointer);
  if (!remote || !warp.worker->counting) return;
  RemoteCounters& c = warp.frame->sites[instr.memory_site].remote;
  ++c.requests;
  c.bytes += std::uint64_t{static_cast<std::uint32_t>(std::popcount(remote))} * bytes;
  c.bytes_distinct += distinct;
}

}  // namespace

SharedPlace shared_place(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                         std::uint64_t bytes, Access access) {
  Block* block = warp.block;
  // The window of .shared::cta ends with the block's own memory.
  const bool own_only = instr.space == Space::shared && !instr.cluster;
  const int named = address >= kSharedWindowSize ? -1 : rank_in(address);
  const int rank = own_only && named != static_cast<int>(block->rank) ? -1 : named;
  std::uint64_t offset = address;
  if (rank >= 0) {
    block = warp.block->cluster.block(rank);
    // An arrival at an mbarrier of a block that has ended is lost, as on a GPU (ops/mbarrier.cpp).
    const bool arrival = instr.op_class == OpClass::barrier && access == Access::atomic;
    if (!block || (block->live_threads == 0 && !arrival))
      report_no_block(warp, instr, lane, address, bytes, access, rank);
    offset = address % kRankedBytes;
  }
  const std::uint64_t size = warp.block->launch.shared_bytes;
  if (offset >= size || bytes > size - offset)
    report_bad_access(warp, instr, lane, offset, static_cast<std::uint32_t>(bytes), access,
                      Space::shared);
  return {block, static_cast<std::uint32_t>(offset)};
}

void resolve_global(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                    std::uint32_t bytes, Access access, Places& places) {
  Site& site = warp.frame->sites[instr.memory_site];
  const Extent extent = extent_of(a, bytes);
  if (extent.misaligned) check_alignment(warp, instr, mask, a, bytes, access, Space::global);
  if (extent.low < site.low || extent.high + bytes > site.high || extent.high + bytes < extent.high)
      [[unlikely]] {
    const bool found = move_window(warp, instr, site, extent.low);
    if (!found || extent.high + bytes > site.high || extent.high + bytes < extent.high) {
      // Several allocations, or a wrong address: lane by lane.
      places.single = false;
      std::uint32_t todo = mask;
      while (todo) {
        const int first = std::countr_zero(todo);
        // Sums of addresses may wrap around; offsets into an allocation that starts below do not.
        const auto inside = [&](std::uint64_t address) {
          const std::uint64_t size = site.high - site.low;
          return address >= site.low && size >= bytes && address - site.low <= size - bytes;
        };
        if (!move_window(warp, instr, site, a.v[first]) || !inside(a.v[first]))
          report_bad_access(warp, instr, first, a.v[first], bytes, access, Space::global);
        std::uint32_t here = 0;
        each_lane(todo, [&](int lane) {
          if (!inside(a.v[lane])) return;
          here |= 1u << lane;
          places.pointer[lane] =
              reinterpret_cast<std::byte*>(a.v[lane] + static_cast<std::uint64_t>(site.bias));
        });
        if (warp.worker->counting) {
          Addresses part = a;
          part.strided = false;
          for (int lane = 0; lane < kWarpSize; ++lane)
            if (!(here >> lane & 1)) part.v[lane] = a.v[first];
          // A request is one, however many allocations it touches: only the first counts it.
          const std::uint64_t requests = site.counters->requests;
          count_global(warp, site, part, here, bytes, access);
          if (todo != mask) site.counters->requests = requests;
        }
        todo &= ~here;
      }
      warp.worker->notify([&](Observer& o) {
        o.access(warp, instr, mask, a, bytes, access, Space::global, places);
      });
      return;
    }
  }
  places.single = true;
  places.bias = site.bias;
  warp.worker->notify(
      [&](Observer& o) { o.access(warp, instr, mask, a, bytes, access, Space::global, places); });
  if (warp.worker->counting) count_global(warp, site, a, mask, bytes, access);
}

void resolve_shared(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                    std::uint32_t bytes, Access access, Places& places) {
  const Extent extent = extent_of(a, bytes);
  const std::uint32_t size = warp.block->launch.shared_bytes;
  if (extent.high >= size || extent.high + bytes > size) [[unlikely]] {
    if (instr.cluster || instr.space != Space::shared)
      return resolve_cluster(warp, instr, mask, a, bytes, access, places);
    each_lane(mask, [&](int lane) {
      if (a.v[lane] >= size || a.v[lane] + bytes > size)
        report_bad_access(warp, instr, lane, a.v[lane], bytes, access, Space::shared);
    });
  }
  if (extent.misaligned) check_alignment(warp, instr, mask, a, bytes, access, Space::shared);
  places.single = true;
  places.bias = reinterpret_cast<std::intptr_t>(warp.block->shared);
  if (!instr.async)  // a copy writes when it lands
    warp.worker->notify(
        [&](Observer& o) { o.access(warp, instr, mask, a, bytes, access, Space::shared, places); });
  if (!warp.worker->counting) return;
  alignas(64) std::uint32_t offsets[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane)
    offsets[lane] = static_cast<std::uint32_t>(a.v[lane]);
  const SharedShape shape = shared_request(offsets, mask, bytes);
  SharedCounters& c = warp.frame->sites[instr.memory_site].shared;
  ++c.requests;
  c.wavefronts += shape.wavefronts;
  c.ideal += shape.ideal;
  c.bytes_asked += std::uint64_t{static_cast<std::uint32_t>(std::popcount(mask))} * bytes;
  warp.worker->shared_clocks += shape.wavefronts;
}

void resolve_other(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                   std::uint32_t bytes, Access access, Space space, Places& places) {
  const Extent extent = extent_of(a, bytes);
  if (extent.misaligned) check_alignment(warp, instr, mask, a, bytes, access, space);
  Launch& launch = warp.block->launch;
  auto inside = [&](std::uint64_t size) {
    if (extent.high < size && extent.high + bytes <= size) return;
    each_lane(mask, [&](int lane) {
      if (a.v[lane] >= size || a.v[lane] + bytes > size)
        report_bad_access(warp, instr, lane, a.v[lane], bytes, access, space);
    });
  };
  switch (space) {
    case Space::constant:
      if (access != Access::load)
        report_bad_access(warp, instr, std::countr_zero(mask), a.v[std::countr_zero(mask)], bytes,
                          access, space);
      inside(launch.constant_bytes);
      places.single = true;
      places.bias = reinterpret_cast<std::intptr_t>(launch.constants);
      warp.worker->notify([&](Observer& o) { o.constant_access(warp, instr, mask, a, bytes); });
      return;
    case Space::param:
      if (instr.frame_local) {  // .param variables of a call: each lane has its own
        const std::uint32_t area = warp.frame->function->call_area_bytes;
        inside(area);
        places.single = false;
        each_lane(mask, [&](int lane) {
          places.pointer[lane] = warp.frame->call_area + lane * area + a.v[lane];
        });
        return;
      }
      if (access != Access::load)
        report_bad_access(warp, instr, std::countr_zero(mask), a.v[std::countr_zero(mask)], bytes,
                          access, space);
      inside(launch.params.size());
      places.single = true;
      places.bias = reinterpret_cast<std::intptr_t>(launch.params.data());
      return;
    case Space::local: {
      inside(warp.local_capacity);
      places.single = false;
      each_lane(mask, [&](int lane) {
        places.pointer[lane] = warp.local + std::size_t{warp.local_capacity} * lane + a.v[lane];
      });
      if (!warp.worker->counting) return;
      // On a GPU the 32 threads' local words are interleaved, so equal offsets are consecutive.
      Addresses physical;
      const std::uint32_t word = std::max(4u, bytes);
      for (int lane = 0; lane < kWarpSize; ++lane)
        physical.v[lane] = a.v[lane] / word * word * kWarpSize +
                           static_cast<std::uint64_t>(lane) * word + a.v[lane] % word;
      warp.worker->notify(
          [&](Observer& o) { o.local_access(warp, instr, mask, physical, bytes, access); });
      const RequestShape shape = global_request(physical.v, mask, bytes);
      count_request(warp.frame->sites[instr.memory_site].local, shape, mask, bytes);
      warp.worker->l1_clocks += l1_clocks(shape);
      return;
    }
    default:
      break;
  }
  throw Fault{FaultKind::address_space,
              describe(warp, instr, std::countr_zero(mask), "access to an unknown state space")};
}

void resolve_generic(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                     std::uint32_t bytes, Access access, Places& places) {
  auto space_of = [](std::uint64_t address) {
    if (address - kSharedWindow < kSharedWindowSize) return Space::shared;
    if (address - kLocalWindow < kLocalWindowSize) return Space::local;
    if (address - kConstantWindow < kConstantWindowSize) return Space::constant;
    if (address - kParamWindow < kParamWindowSize) return Space::param;
    return Space::global;
  };
  auto window_of = [](Space space) {
    switch (space) {
      case Space::shared:
        return kSharedWindow;
      case Space::local:
        return kLocalWindow;
      case Space::constant:
        return kConstantWindow;
      case Space::param:
        return kParamWindow;
      default:
        return std::uint64_t{0};
    }
  };
  auto resolve_in = [&](Space space, std::uint32_t lanes, const Addresses& at, Places& out) {
    switch (space) {
      case Space::global:
        resolve_global(warp, instr, lanes, at, bytes, access, out);
        break;
      case Space::shared:
        resolve_shared(warp, instr, lanes, at, bytes, access, out);
        break;
      default:
        resolve_other(warp, instr, lanes, at, bytes, access, space, out);
    }
  };
  const int first = std::countr_zero(mask);
  const Space space = space_of(a.v[first]);
  std::uint32_t same = 0;
  each_lane(mask, [&](int lane) { same |= std::uint32_t{space_of(a.v[lane]) == space} << lane; });
  if (space == Space::global && same == mask)
    return resolve_global(warp, instr, mask, a, bytes, access, places);
  // Other spaces, perhaps several: one after the other, as pointers.
  places.single = false;
  std::uint32_t todo = mask;
  while (todo) {
    const int lead = std::countr_zero(todo);
    const Space here = space_of(a.v[lead]);
    std::uint32_t lanes = 0;
    Addresses part;
    for (int lane = 0; lane < kWarpSize; ++lane) part.v[lane] = a.v[lead] - window_of(here);
    each_lane(todo, [&](int lane) {
      if (space_of(a.v[lane]) != here) return;
      lanes |= 1u << lane;
      part.v[lane] = a.v[lane] - window_of(here);
    });
    Places some;
    resolve_in(here, lanes, part, some);
    each_lane(lanes, [&](int lane) { places.pointer[lane] = some.at(part, lane); });
    todo &= ~lanes;
  }
}

std::byte* lane_pointer(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                        std::uint32_t bytes, Access access) {
  auto inside = [&](std::uint64_t offset, std::uint64_t size, std::byte* base, Space space) {
    if (offset >= size || bytes > size - offset)
      report_bad_access(warp, instr, lane, offset, bytes, access, space);
    return base + offset;
  };
  Launch& launch = warp.block->launch;
  if (address - kSharedWindow < kSharedWindowSize)
    return shared_place(warp, instr, lane, address - kSharedWindow, bytes, access).bytes();
  if (address - kLocalWindow < kLocalWindowSize)
    return inside(address - kLocalWindow, warp.local_capacity,
                  warp.local + std::size_t{warp.local_capacity} * lane, Space::local);
  if (address - kConstantWindow < kConstantWindowSize)
    return inside(address - kConstantWindow, launch.constant_bytes, launch.constants,
                  Space::constant);
  if (address - kParamWindow < kParamWindowSize)
    return inside(address - kParamWindow, launch.params.size(), launch.params.data(), Space::param);
  std::byte* p = launch.memory.translate(address, bytes);
  if (!p) report_bad_access(warp, instr, lane, address, bytes, access, Space::global);
  return p;
}

void resolve_bulk(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                  std::uint32_t bytes, Access access) {
  Launch& launch = warp.block->launch;
  const auto allocation = launch.memory.find(address);
  if (!allocation || bytes > allocation->base + allocation->size - address)
    report_bad_access(warp, instr, lane, address, bytes, access, Space::global);
  bulk_part(warp, instr, lane, allocation, address, bytes, access, 1);
}

void bulk_part(Warp& warp, const Instr& instr, int lane,
               const std::shared_ptr<Allocation>& allocation, std::uint64_t address,
               std::uint32_t bytes, Access access, std::uint32_t copies) {
  Launch& launch = warp.block->launch;
  warp.worker->notify([&](Observer& o) {
    o.bulk_access(warp, instr, lane, address, bytes, access,
                  allocation->host + (address - allocation->base));
  });
  if (!warp.worker->counting) return;
  const std::uint64_t first = address / kSectorBytes, last = (address + bytes - 1) / kSectorBytes;
  BulkCounters& c =
      warp.worker->bulk_by_allocation[{warp.frame->function, instr.memory_site, allocation->id}];
  c.copies += copies;
  c.bytes += bytes;
  c.l2_sectors += last - first + 1;
  const TouchMap* map = launch.touch_map(allocation);
  const std::uint64_t base = allocation->base / kSectorBytes;
  if (access != Access::store) std::fill_n(map->read.get() + (first - base), last - first + 1, 1);
  if (access != Access::load) std::fill_n(map->written.get() + (first - base), last - first + 1, 1);
}

void Observer::operand_read(Warp& warp, const Instr& instr, std::span<const std::uint32_t> pieces,
                            Reading, std::uint64_t) {
  Places places;
  places.bias = reinterpret_cast<std::intptr_t>(warp.block->shared);
  for (; !pieces.empty();
       pieces = pieces.subspan(std::min<std::size_t>(pieces.size(), kWarpSize))) {
    Addresses a;
    const auto here = static_cast<int>(std::min<std::size_t>(pieces.size(), kWarpSize));
    for (int lane = 0; lane < kWarpSize; ++lane)
      a.v[lane] = pieces[static_cast<std::size_t>(lane < here ? lane : 0)];
    access(warp, instr, kFullMask >> (kWarpSize - here), a, 16, Access::load, Space::shared,
           places);
  }
}
void Observer::bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                           std::uint32_t bytes, Access access_, std::byte* host) {
  Places places;
  places.bias = reinterpret_cast<std::intptr_t>(host) - static_cast<std::intptr_t>(address);
  const std::uint64_t end = address + bytes;
  for (std::uint32_t piece; address < end; address += piece) {
    piece = bulk_piece(address, end);
    Addresses a;
    std::fill_n(a.v, kWarpSize, address);
    access(warp, instr, 1u << lane, a, piece, access_, Space::global, places);
  }
}

}  // namespace vgpu
