// Tensor copies: cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and their prefetch. What a box is
// and where it lies; when it moves say mbarrier.cpp (into shared memory) and bulk.cpp (out of it).
#include <array>
#include <cstdio>
#include <iterator>
#include <utility>

#include "../core/access.h"
#include "../core/bulk.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::size_t, std::string, std::to_string, std::uint16_t, std::uint32_t, std::uint64_t;

constexpr uint32_t kPiece = 16;
using Reductions = std::array<BulkReduction, kTensorTypes>;

[[noreturn]] void refuse(const Warp& warp, const Instr& instr, int lane, const string& what) {
  throw Fault{FaultKind::illegal_instruction, describe(warp, instr, lane, what)};
}

TensorMap read_map(Warp& warp, const Instr& instr, int lane, uint64_t address) {
  if (address % 64) report_misaligned(warp, instr, lane, address, 64, Access::load, Space::generic);
  const std::byte* from = lane_pointer(warp, instr, lane, address, kTensorMapBytes, Access::load);
  TensorMap map;
  std::memcpy(static_cast<void*>(&map), from, sizeof map);
  if (!map.sealed())
    refuse(warp, instr, lane,
           "tensor copy with 128 bytes that are no tensor map (cuTensorMapEncodeTiled and "
           "cuTensorMapEncodeIm2col make them; a kernel takes one as const __grid_constant__ "
           "CUtensorMap)");
  if (const TensorMapFault fault = fault_of(map); !fault.text.empty())
    refuse(warp, instr, lane,
           "tensor copy with a map that tensormap.replace has changed, whose " + fault.text + ";");
  if (map.rank != instr.rank)
    refuse(warp, instr, lane,
           "tensor copy of " + to_string(instr.rank) + " dimensions with a map of tensorRank " +
               to_string(map.rank));
  if (map.im2col != (instr.variant != 0))
    refuse(warp, instr, lane,
           string("tensor copy ") + (map.im2col ? "of tiles" : "in im2col mode") +
               " with a map that cuTensorMapEncode" + (map.im2col ? "Im2col" : "Tiled") + " made");
  if (map.swizzle && map.row_bytes() != map.swizzle_bytes())
    refuse(warp, instr, lane,
           "tensor copy of rows of " + to_string(map.row_bytes()) + " bytes (" +
               (map.im2col ? "channelsPerPixel" : "boxDim[0]") + ") with a swizzle of " +
               to_string(map.swizzle_bytes()) +
               ": NVIDIA does not say where shorter rows lie; the virtual GPU has no");
  return map;
}

// "which lies 48 bytes past ...": the first of the map's fields with which the tensor, dimension by
// dimension, leaves the allocation that it begins in.
string field_at_fault(const TensorMap& map, const Allocation& allocation) {
  uint64_t end = map.address + bytes_of(map.type);
  const uint64_t limit = allocation.base + allocation.size;
  for (int d = 0; d < map.rank; ++d) {
    end += (map.size(d) - 1) * map.stride(d);
    if (end <= limit) continue;
    const string i = to_string(d);
    string text = "globalDim[" + i + "] is " + to_string(map.size(d));
    if (d) text += ", globalStrides[" + to_string(d - 1) + "] " + to_string(map.stride(d));
    return text + ": the tensor ends " + to_string(end - limit) + " bytes or more past it";
  }
  return "the tensor that the map describes lies inside";
}

[[noreturn]] void report_bad_row(Warp& warp, const Instr& instr, int lane, const TensorMap& map,
                                 const TensorRow& row, Access access) {
  Launch& launch = warp.block->launch;
  const auto allocation = launch.memory.find(map.address);
  char address[32];
  std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(map.address));
  if (!allocation)
    throw Fault{FaultKind::illegal_address,
                describe(warp, instr, lane,
                         string("tensor map's globalAddress ") + address +
                             " is in no allocation of the device: " +
                             (access == Access::load ? "read" : "write"))};
  const uint64_t end = row.address + row.bytes, limit = allocation->base + allocation->size;
  throw Fault{FaultKind::illegal_address,
              describe(warp, instr, lane,
                       string("out-of-bounds ") +
                           (access == Access::load    ? "read"
                            : access == Access::store ? "write"
                                                      : "atomic access") +
                           " of a tensor copy, up to " + to_string(end > limit ? end - limit : 0) +
                           " bytes past allocation " + allocation_text(launch, *allocation) +
                           "; of the tensor map " + field_at_fault(map, *allocation) + ";")};
}

constexpr std::string_view kOperations[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};

BulkReduction reduction_of(std::string_view operation, TensorType type) {
  const bool bits = operation == "and" || operation == "or" || operation == "xor";
  const bool counts = operation == "inc" || operation == "dec", adds = operation == "add";
  Mods mods;
  mods.words = {operation};
  switch (type) {
    case TensorType::u32:
      return bulk_reduction(Type::u32, mods);
    case TensorType::s32:
      return counts ? nullptr : bulk_reduction(bits ? Type::b32 : Type::s32, mods);
    case TensorType::u64:
      return counts ? nullptr : bulk_reduction(Type::u64, mods);
    case TensorType::s64:  // (sums of both signs are the same bits)
      return counts ? nullptr : bulk_reduction(bits || adds ? Type::u64 : Type::s64, mods);
    case TensorType::f16:
    case TensorType::bf16:
      return bits || counts
                 ? nullptr
                 : bulk_reduction(type == TensorType::f16 ? Type::f16 : Type::bf16, mods);
    case TensorType::f32:
      return adds ? bulk_reduction(Type::f32, mods) : nullptr;
    case TensorType::f64:
      return adds ? bulk_reduction(Type::f64, mods) : nullptr;
    default:
      return nullptr;
  }
}
const std::array<Reductions, std::size(kOperations)>& reductions() {
  static const auto all = [] {
    std::array<Reductions, std::size(kOperations)> table;
    for (size_t i = 0; i < table.size(); ++i)
      for (size_t t = 0; t < table[i].size(); ++t)
        table[i][t] = reduction_of(kOperations[i], static_cast<TensorType>(t));
    return table;
  }();
  return all;
}

// One element outside the tensor.
uint64_t fill_of(const TensorMap& map) {
  if (!map.nan) return 0;
  switch (bytes_of(map.type)) {
    case 2:
      return 0x7fff;
    case 4:
      return 0x7fffffff;
    default:
      return 0x7fffffffffffffff;
  }
}

// What the types with a conversion make of a word on its way into shared memory. How TF32 is rounded
// is not documented: here to nearest, ties away from zero, as cvt.rna does it.
uint32_t converted(TensorType type, uint32_t word) {
  const uint32_t exponent = word & 0x7f800000;
  if (exponent == 0x7f800000) return word;
  if (type != TensorType::tf32 && exponent == 0) return word & 0x80000000;
  return type == TensorType::f32_ftz ? word : (word + 0x1000) & ~0x1fffu;
}

void convert(TensorType type, std::byte* at, uint32_t bytes) {
  if (type < TensorType::f32_ftz) return;
  for (uint32_t i = 0; i < bytes; i += 4) {
    uint32_t word;
    std::memcpy(&word, at + i, 4);
    word = converted(type, word);
    std::memcpy(at + i, &word, 4);
  }
}

void prefetch(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  each_lane(mask,
            [&](int lane) { (void)TensorBox(warp, instr, lane, a.v[lane], Access::load, false); });
}

}  // namespace

TensorBox::TensorBox(Warp& warp, const Instr& instr, int lane, uint64_t map, Access access,
                     bool counts)
    : map_(read_map(warp, instr, lane, map)), map_address_(map), bytes_(box_bytes(map_)) {
  std::int32_t coordinates[kTensorRanks] = {};
  uint16_t offsets[kTensorRanks] = {};
  const auto rank = static_cast<size_t>(instr.rank);
  for (size_t i = 0; i < instr.list_count; ++i) {
    if (i < rank)
      coordinates[i] = warp.lanes<const std::int32_t>(Slot{instr.list[i]})[lane];
    else
      offsets[i - rank] = warp.lanes<const uint16_t>(Slot{instr.list[i]})[lane];
  }
  rows_ = box_rows(map_, coordinates, instr.list_count > rank ? offsets : nullptr);
  find_rows(warp, instr, lane, access, counts);
}

void TensorBox::find_rows(Warp& warp, const Instr& instr, int lane, Access access, bool counts) {
  std::shared_ptr<Allocation> allocation;
  uint32_t copies = 1;
  for (const TensorRow& row : rows_) {
    if (!allocation) allocation = warp.block->launch.memory.find(row.address);
    const uint64_t offset = allocation ? row.address - allocation->base : 0;
    if (!allocation || offset >= allocation->size || row.bytes > allocation->size - offset)
      report_bad_row(warp, instr, lane, map_, row, access);
    places_.push_back(allocation->host + offset);
  }
  if (!counts) return;
  for (const TensorRow& row : rows_)
    bulk_part(warp, instr, lane, allocation, row.address, row.bytes, access,
              std::exchange(copies, 0));
}

uint32_t TensorBox::pieces(uint32_t bytes) const {
  uint64_t sum = 0;
  for (const TensorRow& row : rows_)
    sum += (row.address + row.bytes - 1) / bytes - row.address / bytes + 1;
  return static_cast<uint32_t>(sum);
}

std::vector<std::byte> TensorBox::image(uint32_t shared_offset) const {
  std::vector<std::byte> box(bytes_);
  const uint64_t fill = fill_of(map_);
  const uint32_t each = bytes_of(map_.type);
  for (uint32_t i = 0; fill && i < bytes_; i += each) std::memcpy(box.data() + i, &fill, each);
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::memcpy(box.data() + rows_[i].offset, places_[i], rows_[i].bytes);
    convert(map_.type, box.data() + rows_[i].offset, rows_[i].bytes);
  }
  if (!map_.swizzle) return box;
  std::vector<std::byte> moved(bytes_);
  for (uint32_t i = 0; i < bytes_; i += kPiece)
    std::memcpy(moved.data() + (swizzled(shared_offset + i, map_) - shared_offset), box.data() + i,
                kPiece);
  return moved;
}

void TensorBox::write(Warp& warp, const Instr& instr, int lane, const std::vector<std::byte>& image,
                      uint32_t shared_offset) const {
  std::vector<std::byte> box(bytes_);
  for (uint32_t i = 0; i < bytes_; i += kPiece)
    std::memcpy(box.data() + i, image.data() + (swizzled(shared_offset + i, map_) - shared_offset),
                kPiece);
  const auto* reductions = static_cast<const Reductions*>(instr.data);
  for (const TensorRow& row : rows_) {
    // Looked up again: the program may have freed it meanwhile.
    std::byte* to = lane_pointer(warp, instr, lane, row.address, row.bytes,
                                 reductions ? Access::atomic : Access::store);
    if (!reductions) {
      std::memcpy(to, box.data() + row.offset, row.bytes);
    } else if (const auto reduce = (*reductions)[static_cast<size_t>(map_.type)]) {
      reduce(to, box.data() + row.offset, row.bytes);
    } else {
      refuse(warp, instr, lane,
             string("tensor reduction of elements of type ") + name_of(map_.type) +
                 ", which this operation does not know,");
    }
  }
}

Handler bind_cp_bulk(Instr& instr, const Mods& mods);
Handler bind_bulk_store(Instr& instr, const Mods& mods);

static void bind_tensor(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("im2col") || mods.has("im2col_no_offs");
  if (const int operation = mods.has("reduce")
                                ? mods.pick({"add", "min", "max", "inc", "dec", "and", "or", "xor"})
                                : -1;
      operation >= 0)
    instr.data = &reductions()[static_cast<size_t>(operation)];
}
Handler bind_tensor_load(Instr& instr, const Mods& mods) {
  bind_tensor(instr, mods);
  return bind_cp_bulk(instr, mods);
}
Handler bind_tensor_store(Instr& instr, const Mods& mods) {
  bind_tensor(instr, mods);
  return bind_bulk_store(instr, mods);
}
Handler bind_tensor_prefetch(Instr& instr, const Mods& mods) {
  bind_tensor(instr, mods);
  return &prefetch;
}

}  // namespace vgpu
