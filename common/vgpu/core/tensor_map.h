// Tensor maps: what the driver's cuTensorMapEncode... functions make and tensor copies read. Programs
// keep them as 128 bytes that only the driver understands, so their layout is this library's own.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vgpu {

inline constexpr int kTensorRanks = 5;
inline constexpr std::uint32_t kTensorMapBytes = 128;

// The numbers of these are CUDA's.
enum class TensorType : std::uint8_t {
  u8,
  u16,
  u32,
  s32,
  u64,
  s64,
  f16,
  f32,
  f64,
  bf16,
  f32_ftz,
  tf32,
  tf32_ftz
};
inline constexpr int kTensorTypes = 13;
std::uint32_t bytes_of(TensorType type);
const char* name_of(TensorType type);  // "FLOAT16"

// Bit 21 of the second 64 bits is always 0: CUTLASS clears it in maps of small tensors, against a fault
// of drivers up to 13.1.
struct TensorMap {
  std::uint64_t signature = 0;
  TensorType type = TensorType::u8;
  std::uint8_t rank = 0;
  bool im2col = false;         // (bits 16 to 23)
  std::uint8_t swizzle = 0;    // 0 none, 1 to 3: 32, 64, 128 bytes
  std::uint8_t promotion = 0;  // to the L2: a hint
  bool nan = false;            // what is outside the tensor reads as NaN, not as 0
  std::uint8_t changed = 0;    // 1: by the device; bit 1 + d: its dimension d has size 0
  std::uint8_t interleave = 0;
  std::uint64_t address = 0;
  std::array<std::uint64_t, kTensorRanks - 1> strides = {};  // bytes, of dimensions 1 to 4
  std::array<std::uint32_t, kTensorRanks> last = {};         // highest coordinate: size - 1
  std::array<std::uint16_t, kTensorRanks> box = {};          // tiled: elements
  std::array<std::uint8_t, kTensorRanks> element_strides = {};
  // im2col: corners of the box of pixels (w, h, d), relative to those of the tensor, channels of a
  // pixel, and pixels.
  std::array<std::int16_t, kTensorRanks - 2> lower = {}, upper = {};
  std::uint16_t channels = 0, pixels = 0;
  std::uint32_t sum = 0;  // checksum of all fields before

  std::uint64_t size(int dimension) const {
    return std::uint64_t{last[static_cast<std::size_t>(dimension)]} + 1;
  }
  std::uint64_t stride(int dimension) const {
    return dimension == 0 ? bytes_of(type) : strides[static_cast<std::size_t>(dimension - 1)];
  }
  std::uint32_t row_bytes() const { return (im2col ? channels : box[0]) * bytes_of(type); }
  std::uint32_t swizzle_bytes() const { return swizzle ? 16u << swizzle : 0; }
  void seal();          // after a change
  bool sealed() const;  // is it a map, and one that nobody has changed otherwise?
};

// What a program asks for: numbers as it gave them.
struct TensorMapRequest {
  bool im2col = false;
  int type = 0;
  std::uint32_t rank = 0;
  std::uint64_t address = 0;
  const std::uint64_t *sizes = nullptr, *strides = nullptr;
  const std::uint32_t *box = nullptr, *element_strides = nullptr;
  const int *lower = nullptr, *upper = nullptr;
  std::uint32_t channels = 0, pixels = 0;
  int interleave = 0, swizzle = 0, promotion = 0, fill = 0;
};

// What is wrong with a request, or with a map that is to change: "" nothing. `supported` is false for
// what CUDA has and the virtual GPU has not.
struct TensorMapFault {
  std::string text;
  bool supported = true;
};
TensorMapFault encode(const TensorMapRequest& request, TensorMap& map);
TensorMapFault replace_address(TensorMap& map, std::uint64_t address);

// What tensormap.replace can change, by the names of PTX.
enum class TensorMapField : std::uint8_t {
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  elemtype,
  interleave_layout,
  swizzle_mode,
  fill_mode
};
inline constexpr const char* kTensorMapFields[] = {
    "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
    "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"};
// A map may be wrong between two changes. replace() refuses what a map cannot hold; what a copy cannot
// use is left to fault_of().
TensorMapFault replace(TensorMap& map, TensorMapField field, std::size_t dimension,
                       std::uint64_t value);
TensorMapFault fault_of(const TensorMap& map);

// A stretch of a box that lies inside the tensor and has no gap, neither in global memory nor in the box.
struct TensorRow {
  std::uint64_t address = 0;
  std::uint32_t offset = 0, bytes = 0;  // in the box, before the swizzle
};
// What one copy moves: `bytes` bytes of shared memory. The rows are in the order of the box.
std::uint32_t box_bytes(const TensorMap& map);
std::vector<TensorRow> box_rows(const TensorMap& map, const std::int32_t* coordinates,
                                const std::uint16_t* offsets);

// Exchanges 16-byte pieces of shared memory: where what belongs to `offset` lies.
inline std::uint32_t swizzled(std::uint32_t offset, const TensorMap& map) {
  return offset ^ ((offset >> 3) & ((1u << map.swizzle) - 1) << 4);
}

}  // namespace vgpu
