#include "types.h"

#include <array>
#include <iterator>
#include <utility>

namespace vgpu {
namespace {

enum class TypeKind : std::uint8_t { other, signed_number, float_number };
struct TypeRow {
  Type type;
  std::string_view name;
  int bits;
  TypeKind kind = TypeKind::other;
};
constexpr TypeKind kSigned = TypeKind::signed_number, kFloat = TypeKind::float_number;
constexpr TypeRow kTypes[] = {
    {Type::none, "none", 0},
    {Type::pred, "pred", 1},
    {Type::b8, "b8", 8},
    {Type::b16, "b16", 16},
    {Type::b32, "b32", 32},
    {Type::b64, "b64", 64},
    {Type::b128, "b128", 128},
    {Type::u8, "u8", 8},
    {Type::u16, "u16", 16},
    {Type::u32, "u32", 32},
    {Type::u64, "u64", 64},
    {Type::s8, "s8", 8, kSigned},
    {Type::s16, "s16", 16, kSigned},
    {Type::s32, "s32", 32, kSigned},
    {Type::s64, "s64", 64, kSigned},
    {Type::u16x2, "u16x2", 32},
    {Type::s16x2, "s16x2", 32, kSigned},
    {Type::f16, "f16", 16, kFloat},
    {Type::f16x2, "f16x2", 32, kFloat},
    {Type::bf16, "bf16", 16, kFloat},
    {Type::bf16x2, "bf16x2", 32, kFloat},
    {Type::f32, "f32", 32, kFloat},
    {Type::f32x2, "f32x2", 64, kFloat},
    {Type::f64, "f64", 64, kFloat},
    {Type::tf32, "tf32", 32, kFloat},
    {Type::e4m3, "e4m3", 8, kFloat},
    {Type::e5m2, "e5m2", 8, kFloat},
    {Type::e4m3x2, "e4m3x2", 16, kFloat},
    {Type::e5m2x2, "e5m2x2", 16, kFloat},
    {Type::u4, "u4", 4},
    {Type::s4, "s4", 4, kSigned},
    {Type::b1, "b1", 1},
};
static_assert(std::size(kTypes) == static_cast<std::size_t>(Type::b1) + 1);

}  // namespace

int type_bits(Type type) { return kTypes[static_cast<int>(type)].bits; }
std::string_view type_name(Type type) { return kTypes[static_cast<int>(type)].name; }

Type type_from_name(std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (row.name == name && row.type != Type::none) return row.type;
  return Type::none;
}

bool is_float(Type type) { return kTypes[static_cast<int>(type)].kind == kFloat; }
bool is_signed(Type type) { return kTypes[static_cast<int>(type)].kind == kSigned; }

std::string_view space_name(Space space) {
  constexpr std::string_view names[] = {"generic", "global", "shared", "local", "const", "param"};
  return names[static_cast<int>(space)];
}

std::string_view class_name(OpClass op_class) {
  constexpr std::string_view names[] = {"integer", "fp32",       "fp64",   "fp16",    "special",
                                        "tensor",  "conversion", "memory", "shuffle", "barrier",
                                        "atomic",  "control",    "move"};
  static_assert(std::size(names) == static_cast<std::size_t>(OpClass::count_));
  return names[static_cast<int>(op_class)];
}

}  // namespace vgpu
