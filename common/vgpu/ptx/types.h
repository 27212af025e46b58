// The types, state spaces and small enumerations of the PTX ISA that every room shares.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace vgpu {

inline constexpr int kWarpSize = 32;
inline constexpr std::uint32_t kFullMask = 0xffffffffu;

// Fundamental types of PTX (ISA manual, "Types"); packed types count as one value of 32 bits.
enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  u16x2,
  s16x2,
  f16,
  f16x2,
  bf16,
  bf16x2,
  f32,
  f32x2,
  f64,
  tf32,
  e4m3,
  e5m2,
  e4m3x2,
  e5m2x2,
  u4,
  s4,
  b1,
};

int type_bits(Type type);                    // 1 for pred, 4 for u4, 32 for f16x2, 0 for none
std::string_view type_name(Type type);       // "f16x2", without the dot
Type type_from_name(std::string_view name);  // Type::none when the name is no type
bool is_float(Type type);
bool is_signed(Type type);  // s8..s64, s16x2, s4

enum class Space : std::uint8_t { generic, global, shared, local, constant, param };
std::string_view space_name(Space space);

// What a profiler files an instruction under.
enum class OpClass : std::uint8_t {
  integer,
  fp32,
  fp64,
  fp16,
  special,
  tensor,
  conversion,
  memory,
  shuffle,
  barrier,
  atomic,
  control,
  move,
  count_
};
std::string_view class_name(OpClass op_class);

// An error in PTX text, or an instruction that the virtual GPU does not know.
struct PtxError : std::runtime_error {
  PtxError(std::string what_is_wrong, int ptx_line = 0)
      : std::runtime_error(std::move(what_is_wrong)), line(ptx_line) {}
  int line;  // line of the PTX text, 0 when unknown
};

}  // namespace vgpu
