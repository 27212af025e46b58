// How memory instructions find the bytes their lanes mean: address, window, check, counters.
#pragma once
#include <algorithm>
#include <bit>
#include <cstring>

#include "block.h"
#include "cluster.h"
#include "coalescing.h"
#include "lanes.h"

namespace vgpu {

struct alignas(64) Addresses {
  std::uint64_t v[kWarpSize];  // inactive lanes repeat an active one's
  // Most accesses of a full warp step evenly from lane to lane, and then a formula replaces loops
  // over lanes. `stride` bytes; only meaningful when `strided`.
  bool strided = false;
  std::int64_t stride = 0;
};

// Removes the executing block's own rank from addresses that name the block by it.
inline void leave_own_rank_out(const Warp& warp, Addresses& a) {
  for (std::uint64_t& address : a.v)
    if (rank_in(address) == static_cast<int>(warp.block->rank)) address %= kRankedBytes;
}

// Addresses in the instruction's state space.
inline void compute_addresses(Warp& warp, const Instr& instr, std::uint32_t mask, Addresses& out) {
  const auto imm = static_cast<std::uint64_t>(instr.imm);
  if (!instr.address.valid()) {
    const std::uint64_t value =
        instr.frame_local && instr.space == Space::local ? imm + warp.frame->local_base : imm;
    for (int lane = 0; lane < kWarpSize; ++lane) out.v[lane] = value;
    out.strided = mask == kFullMask;
    out.stride = 0;
    return;
  }
  if (instr.address_bits == 64) {
    const auto* base = warp.lanes<const std::uint64_t>(instr.address);
    for (int lane = 0; lane < kWarpSize; ++lane) out.v[lane] = base[lane] + imm;
  } else {
    const auto* base = warp.lanes<const std::uint32_t>(instr.address);
    for (int lane = 0; lane < kWarpSize; ++lane)
      out.v[lane] = static_cast<std::uint32_t>(base[lane] + imm);
  }
  if (instr.space == Space::shared && warp.block->launch.ranked_shared) [[unlikely]]
    leave_own_rank_out(warp, out);
  if (mask != kFullMask) {
    const std::uint64_t filler = out.v[std::countr_zero(mask)];
    for (int lane = 0; lane < kWarpSize; ++lane)
      out.v[lane] = (mask >> lane & 1) ? out.v[lane] : filler;
    out.strided = false;
    return;
  }
  // Steps so large that 31 of them may wrap around say nothing about the lanes between the ends.
  constexpr std::int64_t kLargest = std::int64_t{1} << 56;
  out.strided = coalescing_detail::constant_stride(out.v, out.stride) && out.stride > -kLargest &&
                out.stride < kLargest;
}

struct Extent {
  std::uint64_t low, high, misaligned;
};
inline Extent extent_of(const Addresses& a, std::uint32_t bytes) {
  if (a.strided)
    return {std::min(a.v[0], a.v[kWarpSize - 1]), std::max(a.v[0], a.v[kWarpSize - 1]),
            (a.v[0] | static_cast<std::uint64_t>(a.stride)) & (bytes - 1)};
  std::uint64_t low = a.v[0], high = a.v[0], bits = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    low = std::min(low, a.v[lane]);
    high = std::max(high, a.v[lane]);
    bits |= a.v[lane];
  }
  return {low, high, bits & (bytes - 1)};
}

// Where the bytes of each lane are on the host: one bias for all, or a pointer each.
struct Places {
  Block* owner = nullptr;  // whose shared memory it is, when it is another block's
  bool single = true;
  std::ptrdiff_t bias = 0;        // pointer = address + bias
  std::byte* pointer[kWarpSize];  // for active lanes, when not single
  std::byte* at(const Addresses& a, int lane) const {
    return single ? reinterpret_cast<std::byte*>(a.v[lane] + static_cast<std::uint64_t>(bias))
                  : pointer[lane];
  }
};

// Resolve, check and count the accesses of the lanes in `mask`. Throw Fault.
void resolve_global(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                    std::uint32_t bytes, Access access, Places& places);
void resolve_shared(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                    std::uint32_t bytes, Access access, Places& places);
void resolve_other(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                   std::uint32_t bytes, Access access, Space space, Places& places);
void resolve_generic(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                     std::uint32_t bytes, Access access, Places& places);

inline void resolve(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                    std::uint32_t bytes, Access access, Places& places) {
  switch (instr.space) {
    case Space::global:
      return resolve_global(warp, instr, mask, a, bytes, access, places);
    case Space::shared:
      return resolve_shared(warp, instr, mask, a, bytes, access, places);
    case Space::generic:
      return resolve_generic(warp, instr, mask, a, bytes, access, places);
    default:
      return resolve_other(warp, instr, mask, a, bytes, access, instr.space, places);
  }
}

// A place in the shared memory of the cluster: whose, and where in it.
struct SharedPlace {
  Block* block = nullptr;
  std::uint32_t offset = 0;
  std::byte* bytes() const { return block->shared + offset; }
};
// Where `address` of .shared::cluster (or .shared::cta, as the instruction says) is. Throws Fault when
// there is no block of this rank, it has ended, or `bytes` do not fit into its shared memory.
SharedPlace shared_place(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                         std::uint64_t bytes, Access access);
// An address in the instruction's space, shared or generic, as one of .shared::cluster; an address
// elsewhere is none of any block.
inline std::uint64_t in_shared_window(const Instr& instr, std::uint64_t address) {
  return instr.space == Space::shared ? address : address - kSharedWindow;
}

// One lane's bytes behind a generic address, for functions of the machine (printf reads strings).
std::byte* lane_pointer(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                        std::uint32_t bytes, Access access);

// The side in global memory of a bulk copy (or reduction) that one lane asks for: checks, counts and
// shows it. Throws Fault.
void resolve_bulk(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                  std::uint32_t bytes, Access access);
// Bytes from `address` on that are one piece of it: 16, or fewer where a row of a tensor begins or ends between.
inline std::uint32_t bulk_piece(std::uint64_t address, std::uint64_t end) {
  std::uint32_t piece = 16;
  while (address % piece || piece > end - address) piece /= 2;
  return piece;
}
// A part of such a copy that is known to lie in this allocation. `copies`: how many it counts as.
void bulk_part(Warp& warp, const Instr& instr, int lane,
               const std::shared_ptr<Allocation>& allocation, std::uint64_t address,
               std::uint32_t bytes, Access access, std::uint32_t copies);

// check/memory_check.cpp: says what is wrong with an access, in the words of a compiler error.
[[noreturn]] void report_bad_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                                    std::uint32_t bytes, Access access, Space space);
// The same for shared memory of a block of the cluster that does not exist or has ended.
[[noreturn]] void report_no_block(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                                  std::uint64_t bytes, Access access, int rank);
[[noreturn]] void report_misaligned(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                                    std::uint32_t bytes, Access access, Space space);
// "'K' (50432 bytes, argument 2)"
std::string allocation_text(const Launch& launch, const Allocation& allocation);
// Name for reports: the given name, else that of the kernel's parameter, "argument 2" when its source
// is not there, else "allocation 7".
std::string allocation_name(const Launch& launch, const Allocation& allocation);

}  // namespace vgpu
