// mov, special registers, address spaces.
#include <iterator>

#include "../core/access.h"
#include "../core/specials.h"
#include "forms.h"
#include "lane/move.h"

namespace vgpu {
namespace {

using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

namespace move = op::move;

struct Bytes16 {
  uint64_t low, high;
};

void copy128(Warp& warp, const Instr& instr, uint32_t mask) {
  Bytes16* d = warp.lanes<Bytes16>(instr.d[0]);
  const Bytes16* a = warp.lanes<const Bytes16>(instr.a);
  each_lane(mask, [&](int lane) { d[lane] = a[lane]; });
}
void copy_predicate(Warp& warp, const Instr& instr, uint32_t mask) {
  set_predicate(warp, instr.d[0], get_predicate(warp, instr.a, instr.a_not), mask);
}

// {a, b} -> d and back. Elements are `Part` bytes; registers of 8-bit elements are 16 bits wide.
template <int kPart, class Lane>
void pack(Warp& warp, const Instr& instr, uint32_t mask) {
  auto* d = reinterpret_cast<std::byte*>(warp.lanes<std::byte>(instr.d[0]));
  const int total = kPart * instr.list_count;
  std::byte result[kWarpSize * 16];
  for (int k = 0; k < instr.list_count; ++k) {
    const Lane* s = warp.lanes<const Lane>(Slot{instr.list[k]});
    for (int lane = 0; lane < kWarpSize; ++lane)
      std::memcpy(result + lane * total + k * kPart, &s[lane], kPart);
  }
  each_lane(mask, [&](int lane) { std::memcpy(d + lane * total, result + lane * total, total); });
}
template <int kPart, class Lane>
void unpack(Warp& warp, const Instr& instr, uint32_t mask) {
  const int total = kPart * instr.list_count;
  std::byte source[kWarpSize * 16];
  std::memcpy(source, warp.lanes<const std::byte>(instr.a),
              static_cast<std::size_t>(kWarpSize) * total);
  for (int k = 0; k < instr.list_count; ++k) {
    Lane* d = warp.lanes<Lane>(Slot{instr.list[k]});
    each_lane(mask, [&](int lane) {
      Lane value = 0;
      std::memcpy(&value, source + lane * total + k * kPart, kPart);
      d[lane] = value;
    });
  }
}

// The same where all elements together are one word of at most 64 bits.
template <class Part, class Lane, class Word>
void pack_word(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) Word words[kWarpSize] = {};
  for (int k = 0; k < instr.list_count; ++k) {
    const Lane* s = warp.lanes<const Lane>(Slot{instr.list[k]});
    for (int lane = 0; lane < kWarpSize; ++lane)
      words[lane] |= move::Pack<Part, Lane, Word>::lane(s[lane], k);
  }
  Result<Word> result(warp, instr.d[0], mask);
  std::memcpy(result.lanes(), words, sizeof words);
}
template <class Part, class Lane, class Word>
void unpack_word(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) Word words[kWarpSize];
  std::memcpy(words, warp.lanes<const Word>(instr.a), sizeof words);
  for (int k = 0; k < instr.list_count; ++k) {
    Result<Lane> result(warp, Slot{instr.list[k]}, mask);
    Lane* d = result.lanes();
    for (int lane = 0; lane < kWarpSize; ++lane)
      d[lane] = move::Unpack<Part, Lane, Word>::lane(words[lane], k);
  }
}
template <class Part, class Lane>
Handler packing(const Instr& instr) {
  const bool pack_them = instr.variant == 1;
  switch (instr.list_count * sizeof(Part)) {
    case 2:
      return pack_them ? &pack_word<Part, Lane, uint16_t> : &unpack_word<Part, Lane, uint16_t>;
    case 4:
      return pack_them ? &pack_word<Part, Lane, uint32_t> : &unpack_word<Part, Lane, uint32_t>;
    case 8:
      return pack_them ? &pack_word<Part, Lane, uint64_t> : &unpack_word<Part, Lane, uint64_t>;
    default:
      return pack_them ? &pack<sizeof(Part), Lane> : &unpack<sizeof(Part), Lane>;
  }
}

// ---- special registers ---------------------------------------------------------------------

using Special = uint64_t (*)(Warp&, const Instr&, int lane);

uint32_t thread_of(const Warp& warp, int lane) {
  return warp.index * kWarpSize + static_cast<uint32_t>(lane);
}
const LaunchRequest& request_of(const Warp& warp) { return warp.block->launch.request; }

struct SpecialRow {
  std::string_view name;
  int bits;
  Special value;
};

// The fourth part of a vector such as %tid, which has three.
uint64_t no_part(Warp&, const Instr&, int) { return 0; }

uint64_t reserved_begin(Warp& w, const Instr&, int) {
  return w.block->launch.shared_bytes - kReservedShared;
}

// In a launch without clusters each block is one of its own.
// The address by which a kernel is told the place in its block's shared memory.
uint64_t own_shared(const Warp& w, uint64_t offset) {
  return w.block->launch.ranked_shared ? with_rank(offset, w.block->rank) : offset;
}
constexpr SpecialRow kSpecials[] = {
    {"tid.x", 32,
     [](Warp& w, const Instr&, int l) -> uint64_t {
       return thread_of(w, l) % request_of(w).block.x;
     }},
    {"tid.y", 32,
     [](Warp& w, const Instr&, int l) -> uint64_t {
       return thread_of(w, l) / request_of(w).block.x % request_of(w).block.y;
     }},
    {"tid.z", 32,
     [](Warp& w, const Instr&, int l) -> uint64_t {
       return thread_of(w, l) / (request_of(w).block.x * request_of(w).block.y);
     }},
    {"ntid.x", 32, [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).block.x; }},
    {"ntid.y", 32, [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).block.y; }},
    {"ntid.z", 32, [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).block.z; }},
    {"ctaid.x", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->index.x; }},
    {"ctaid.y", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->index.y; }},
    {"ctaid.z", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->index.z; }},
    {"nctaid.x", 32, [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).grid.x; }},
    {"nctaid.y", 32, [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).grid.y; }},
    {"nctaid.z", 32, [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).grid.z; }},
    {"tid.w", 32, no_part},
    {"ntid.w", 32, no_part},
    {"ctaid.w", 32, no_part},
    {"nctaid.w", 32, no_part},
    {"laneid", 32, [](Warp&, const Instr&, int l) -> uint64_t { return static_cast<uint64_t>(l); }},
    {"warpid", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.index; }},
    {"nwarpid", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return static_cast<uint64_t>(w.block->launch.machine.spec().max_warps_per_sm);
     }},
    {"smid", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->sm; }},
    {"nsmid", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return static_cast<uint64_t>(w.block->launch.machine.spec().sm_count);
     }},
    {"gridid", 64, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->launch.grid_id; }},
    {"lanemask_eq", 32, [](Warp&, const Instr&, int l) -> uint64_t { return 1ull << l; }},
    {"lanemask_lt", 32, [](Warp&, const Instr&, int l) -> uint64_t { return (1ull << l) - 1; }},
    {"lanemask_le", 32, [](Warp&, const Instr&, int l) -> uint64_t { return (2ull << l) - 1; }},
    {"lanemask_gt", 32,
     [](Warp&, const Instr&, int l) -> uint64_t { return kFullMask & ~((2ull << l) - 1); }},
    {"lanemask_ge", 32,
     [](Warp&, const Instr&, int l) -> uint64_t { return kFullMask & ~((1ull << l) - 1); }},
    {"clock", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->clock(); }},
    {"clock_hi", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->clock() >> 32; }},
    {"clock64", 64, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->clock(); }},
    {"globaltimer", 64,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->launch.start_time + w.block->clock();
     }},
    {"globaltimer_lo", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->launch.start_time + w.block->clock();
     }},
    {"globaltimer_hi", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return (w.block->launch.start_time + w.block->clock()) >> 32;
     }},
    {"dynamic_smem_size", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).dynamic_shared; }},
    {"total_smem_size", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->launch.shared_bytes - w.block->launch.reserved_shared;
     }},
    // What the system keeps for itself: cooperative groups have the scratch of their large tiles in it.
    {"reserved_smem_offset_begin", 32, reserved_begin},
    {"reserved_smem_offset_1", 32, reserved_begin},
    {"reserved_smem_offset_end", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return w.block->launch.shared_bytes; }},
    {"reserved_smem_offset_cap", 32,
     [](Warp&, const Instr&, int) -> uint64_t { return kReservedShared; }},
    {"aggr_smem_size", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->launch.shared_bytes - w.block->launch.reserved_shared +
              static_cast<uint64_t>(w.block->launch.machine.spec().shared_reserved);
     }},
    {"clusterid.x", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->index.x / request_of(w).cluster.x;
     }},
    {"clusterid.y", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->index.y / request_of(w).cluster.y;
     }},
    {"clusterid.z", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->index.z / request_of(w).cluster.z;
     }},
    {"nclusterid.x", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return request_of(w).grid.x / request_of(w).cluster.x;
     }},
    {"nclusterid.y", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return request_of(w).grid.y / request_of(w).cluster.y;
     }},
    {"nclusterid.z", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return request_of(w).grid.z / request_of(w).cluster.z;
     }},
    {"cluster_ctaid.x", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->index.x % request_of(w).cluster.x;
     }},
    {"cluster_ctaid.y", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->index.y % request_of(w).cluster.y;
     }},
    {"cluster_ctaid.z", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->index.z % request_of(w).cluster.z;
     }},
    {"cluster_nctaid.x", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).cluster.x; }},
    {"cluster_nctaid.y", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).cluster.y; }},
    {"cluster_nctaid.z", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).cluster.z; }},
    {"cluster_ctarank", 32, [](Warp& w, const Instr&, int) -> uint64_t { return w.block->rank; }},
    {"cluster_nctarank", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).cluster.count(); }},
    {"is_explicit_cluster", 1,
     [](Warp& w, const Instr&, int) -> uint64_t { return request_of(w).explicit_cluster; }},
    {"current_graph_exec", 64, [](Warp&, const Instr&, int) -> uint64_t { return 0; }},
    // Cooperative groups reads the address of the grid's workspace here, high and low half.
    {"envreg1", 32,
     [](Warp& w, const Instr&, int) -> uint64_t { return w.block->launch.workspace >> 32; }},
    {"envreg2", 32,
     [](Warp& w, const Instr&, int) -> uint64_t {
       return w.block->launch.workspace & 0xffffffffu;
     }},
    // Not registers of the ISA: addresses that depend on the launch or on the running frame.
    {"dynamic_shared_base", 64,
     [](Warp& w, const Instr& i, int) -> uint64_t {
       return own_shared(w, w.block->launch.dynamic_shared_base + static_cast<uint64_t>(i.imm));
     }},
    {"shared_base", 64,
     [](Warp& w, const Instr& i, int) -> uint64_t {
       return own_shared(w, static_cast<uint64_t>(i.imm));
     }},
    {"local_base", 64,
     [](Warp& w, const Instr& i, int) -> uint64_t {
       return w.frame->local_base + static_cast<uint64_t>(i.imm);
     }},
};

template <class T>
void read_special(Warp& warp, const Instr& instr, uint32_t mask) {
  const Special value = kSpecials[instr.special].value;
  T* d = warp.lanes<T>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = static_cast<T>(value(warp, instr, lane)); });
}
void read_special_predicate(Warp& warp, const Instr& instr, uint32_t mask) {
  const Special value = kSpecials[instr.special].value;
  set_predicate(warp, instr.d[0], collect([&](int lane) { return value(warp, instr, lane) != 0; }),
                mask);
}

Space space_of(uint64_t address) {
  if (address - kSharedWindow < kSharedWindowSize) return Space::shared;
  if (address - kLocalWindow < kLocalWindowSize) return Space::local;
  if (address - kConstantWindow < kConstantWindowSize) return Space::constant;
  if (address - kParamWindow < kParamWindowSize) return Space::param;
  return Space::global;
}
// The window of .shared::cta is part of that of .shared::cluster.
bool in_shared(const Block& block, uint64_t address, bool anywhere_in_cluster) {
  if (space_of(address) != Space::shared) return false;
  const int rank = rank_in(address - kSharedWindow);
  if (rank < 0) return true;
  return anywhere_in_cluster ? block.cluster.block(rank) != nullptr
                             : rank == static_cast<int>(block.rank);
}
template <class T>
void is_space(Warp& warp, const Instr& instr, uint32_t mask) {
  const T* a = warp.lanes<const T>(instr.a);
  const uint32_t bits = collect([&](int lane) {
    return instr.space == Space::shared ? in_shared(*warp.block, a[lane], instr.cluster)
                                        : space_of(a[lane]) == instr.space;
  });
  set_predicate(warp, instr.d[0], bits, mask);
}

void active_mask(Warp& warp, const Instr& instr, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = mask; });
}

template <class T>
void zero(Warp& warp, const Instr& instr, uint32_t mask) {
  T* d = warp.lanes<T>(instr.d[0]);
  each_lane(mask, [&](int lane) { d[lane] = 0; });
}

}  // namespace

int special_index(std::string_view name) {
  // Numbered ones that nothing here feeds: environment registers read as zero only where they are known.
  for (std::size_t i = 0; i < std::size(kSpecials); ++i)
    if (kSpecials[i].name == name) return static_cast<int>(i);
  return -1;
}

int special_bits(int index) { return kSpecials[index].bits; }

Handler bind_special(Instr& instr, std::string_view name, int bits) {
  const int index = special_index(name);
  if (index < 0) return nullptr;
  instr.special = static_cast<std::int16_t>(index);
  if (kSpecials[index].bits == 1) return bits == 1 ? &read_special_predicate : nullptr;
  switch (bits) {
    case 16:
      return &read_special<uint16_t>;
    case 32:
      return &read_special<uint32_t>;
    case 64:
      return &read_special<uint64_t>;
    default:
      return nullptr;
  }
}

Handler bind_mov(Instr& instr, const Mods&) {
  const int bits = type_bits(instr.type);
  if (instr.variant == 3)
    return bind_special(instr, kSpecials[instr.special].name, instr.type == Type::pred ? 1 : bits);
  if (instr.variant == 1 || instr.variant == 2) {
    if (instr.list_count == 0 || bits % instr.list_count) return nullptr;
    const int part = bits / instr.list_count;
    const int lane = instr.variant == 1 ? instr.a_bits : instr.d_bits;
    if (lane != std::max(16, part)) return nullptr;
    switch (part) {
      case 8:
        return packing<uint8_t, uint16_t>(instr);
      case 16:
        return packing<uint16_t, uint16_t>(instr);
      case 32:
        return packing<uint32_t, uint32_t>(instr);
      case 64:
        return packing<uint64_t, uint64_t>(instr);
      default:
        return nullptr;
    }
  }
  switch (bits) {
    case 1:
      return &copy_predicate;
    case 16:
      return &lanewise<move::Copy<uint16_t>>;
    case 32:
      return &lanewise<move::Copy<uint32_t>>;
    case 64:
      return &lanewise<move::Copy<uint64_t>>;
    case 128:
      return &copy128;
    default:
      return nullptr;
  }
}

Handler bind_cvta(Instr& instr, const Mods& mods) {
  std::uint64_t window = 0;
  switch (instr.space) {
    case Space::shared:
      window = kSharedWindow;
      break;
    case Space::local:
      window = kLocalWindow;
      break;
    case Space::constant:
      window = kConstantWindow;
      break;
    case Space::param:
      window = kParamWindow;
      break;
    default:
      break;
  }
  if (type_bits(instr.type) != 64) return nullptr;
  instr.imm = static_cast<std::int64_t>(mods.has("to") ? 0 - window : window);
  return instr.imm ? &lanewise<move::AddWindow<uint64_t>> : &lanewise<move::Copy<uint64_t>>;
}
Handler bind_isspacep(Instr& instr, const Mods&) {
  return instr.a_bits == 32 ? nullptr : &is_space<uint64_t>;
}
namespace {
// mapa: the address of the same place in another block; getctarank: whose place it is.
template <class T>
void map_address(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<T> result(warp, instr.d[0], mask);
  const T* a = warp.lanes<const T>(instr.a);
  const uint32_t* rank = warp.lanes<const uint32_t>(instr.b);
  const uint64_t window = instr.space == Space::shared ? 0 : kSharedWindow;
  each_lane(mask, [&](int lane) {
    // (The operand may be a shared variable's name, which is no generic address.)
    const uint64_t address = a[lane] < kSharedWindowSize ? a[lane] : a[lane] - window;
    if (address >= kSharedWindowSize)
      throw Fault{FaultKind::address_space,
                  describe(warp, instr, lane, "mapa of an address that is not in shared memory")};
    result.lanes()[lane] = static_cast<T>(window + with_rank(address, rank[lane]));
  });
}
template <class T>
void rank_of_address(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint32_t> result(warp, instr.d[0], mask);
  const T* a = warp.lanes<const T>(instr.a);
  const uint64_t window = instr.space == Space::shared ? 0 : kSharedWindow;
  each_lane(mask, [&](int lane) {
    const uint64_t address = a[lane] < kSharedWindowSize ? a[lane] : a[lane] - window;
    if (address >= kSharedWindowSize)
      throw Fault{
          FaultKind::address_space,
          describe(warp, instr, lane, "getctarank of an address that is not in shared memory")};
    const int rank = rank_in(address);
    result.lanes()[lane] = rank < 0 ? warp.block->rank : static_cast<uint32_t>(rank);
  });
}
}  // namespace

// Generic addresses have 64 bits.
Handler bind_mapa(Instr& instr, const Mods&) {
  if (instr.type == Type::u64) return &map_address<uint64_t>;
  return instr.space == Space::shared ? &map_address<uint32_t> : nullptr;
}
Handler bind_getctarank(Instr& instr, const Mods&) {
  if (instr.type == Type::u64) return &rank_of_address<uint64_t>;
  return instr.space == Space::shared ? &rank_of_address<uint32_t> : nullptr;
}
Handler bind_activemask(Instr&, const Mods&) { return &active_mask; }
Handler bind_createpolicy(Instr&, const Mods&) { return &zero<uint64_t>; }

}  // namespace vgpu
