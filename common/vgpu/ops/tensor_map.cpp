// tensormap.replace and tensormap.cp_fenceproxy: a kernel changes a tensor map, in shared or in
// global memory, and brings one from shared to global memory.
#include "../core/tensor_map.h"

#include "../core/access.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::uint32_t, std::uint64_t;

// The bytes of the map at `address` of one lane. Whoever watches sees 8 accesses of 16 bytes.
std::byte* map_bytes(Warp& warp, const Instr& instr, int lane, uint64_t address, Access access) {
  constexpr uint32_t kPiece = 16, kAligned = 64;
  if (address % kAligned)
    report_misaligned(warp, instr, lane, address, kAligned, access, instr.space);
  std::byte* first = nullptr;
  for (uint32_t i = 0; i < kTensorMapBytes; i += kPiece) {
    Addresses a;
    std::fill_n(a.v, kWarpSize, address + i);
    Places places;
    resolve(warp, instr, 1u << lane, a, kPiece, access, places);
    if (i == 0) first = places.at(a, lane);
  }
  return first;
}

[[noreturn]] void refuse_map(const Warp& warp, const Instr& instr, int lane,
                             const std::string& what) {
  throw Fault{FaultKind::illegal_instruction, describe(warp, instr, lane, what)};
}

// instr.variant: the field. instr.constant: the dimension, or the value of what has none.
void replace_field(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto field = static_cast<TensorMapField>(instr.variant);
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  each_lane(mask, [&](int lane) {
    TensorMap map;
    std::memcpy(static_cast<void*>(&map), map_bytes(warp, instr, lane, a.v[lane], Access::load),
                sizeof map);
    if (!map.sealed())
      refuse_map(
          warp, instr, lane,
          "tensormap.replace in 128 bytes that are no tensor map (cuTensorMapEncodeTiled makes "
          "them)");
    const uint64_t value = !instr.a.valid()          ? static_cast<uint64_t>(instr.constant)
                           : instr.type == Type::b64 ? warp.lanes<const uint64_t>(instr.a)[lane]
                                                     : warp.lanes<const uint32_t>(instr.a)[lane];
    if (const TensorMapFault fault =
            replace(map, field, static_cast<std::size_t>(instr.constant), value);
        !fault.text.empty())
      refuse_map(warp, instr, lane, "tensormap.replace: " + fault.text + ";");
    std::memcpy(map_bytes(warp, instr, lane, a.v[lane], Access::store), &map, sizeof map);
  });
  warp.changed = true;
}

// The lanes of the warp together copy one map, and release it to those who use it as a map.
void copy_map(Warp& warp, const Instr& instr, uint32_t mask) {
  const int first = std::countr_zero(mask);
  if (mask != warp.live)
    refuse_map(warp, instr, first,
               "tensormap.cp_fenceproxy needs all lanes of the warp together; here " +
                   std::to_string(std::popcount(mask)) + " of " +
                   std::to_string(std::popcount(warp.live)) + " execute it");
  Instr source = instr;
  source.space = Space::shared;
  source.volatile_ = false;
  source.address = instr.address2;
  source.address_bits = instr.address2_bits;
  source.imm = instr.imm2;
  Addresses from, to;
  compute_addresses(warp, source, mask, from);
  compute_addresses(warp, instr, mask, to);
  each_lane(mask, [&](int lane) {
    if (from.v[lane] != from.v[first] || to.v[lane] != to.v[first])
      refuse_map(warp, instr, lane,
                 "tensormap.cp_fenceproxy with other addresses than lane " + std::to_string(first) +
                     "'s, where all lanes of the warp must have the same,");
  });
  const std::byte* map = map_bytes(warp, source, first, from.v[first], Access::load);
  std::memcpy(map_bytes(warp, instr, first, to.v[first], Access::store), map, kTensorMapBytes);
  warp.changed = true;
  warp.worker->notify([&](Observer& o) { o.fence(warp, instr, mask); });
}

}  // namespace

Handler bind_tensormap_replace(Instr& instr, const Mods& mods) {
  for (const char* const& name : kTensorMapFields)
    if (mods.has(name)) instr.variant = static_cast<std::uint8_t>(&name - kTensorMapFields);
  // What has no register is a number: of a dimension, or the value itself.
  const std::int64_t most[] = {0,
                               0,
                               kTensorRanks - 1,
                               kTensorRanks - 1,
                               kTensorRanks - 1,
                               kTensorRanks - 1,
                               kTensorTypes - 1,
                               2,
                               3,
                               1};
  return instr.constant < 0 || instr.constant > most[instr.variant] ? nullptr : &replace_field;
}
Handler bind_tensormap_copy(Instr& instr, const Mods&) {
  return instr.constant == kTensorMapBytes ? &copy_map : nullptr;
}

}  // namespace vgpu
