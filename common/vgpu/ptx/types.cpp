#include "types.h"

#include <array>
#include <utility>

namespace vgpu {
namespace {

struct TypeRow {
  Type type;
  std::string_view name;
  int bits;
};
constexpr TypeRow kTypes[] = {
    {Type::none, "none", 0},      {Type::pred, "pred", 1},      {Type::b8, "b8", 8},
    {Type::b16, "b16", 16},       {Type::b32, "b32", 32},       {Type::b64, "b64", 64},
    {Type::b128, "b128", 128},    {Type::u8, "u8", 8},          {Type::u16, "u16", 16},
    {Type::u32, "u32", 32},       {Type::u64, "u64", 64},       {Type::s8, "s8", 8},
    {Type::s16, "s16", 16},       {Type::s32, "s32", 32},       {Type::s64, "s64", 64},
    {Type::u16x2, "u16x2", 32},   {Type::s16x2, "s16x2", 32},   {Type::f16, "f16", 16},
    {Type::f16x2, "f16x2", 32},   {Type::bf16, "bf16", 16},     {Type::bf16x2, "bf16x2", 32},
    {Type::f32, "f32", 32},       {Type::f32x2, "f32x2", 64},   {Type::f64, "f64", 64},
    {Type::tf32, "tf32", 32},     {Type::e4m3, "e4m3", 8},      {Type::e5m2, "e5m2", 8},
    {Type::e4m3x2, "e4m3x2", 16}, {Type::e5m2x2, "e5m2x2", 16}, {Type::u4, "u4", 4},
    {Type::s4, "s4", 4},          {Type::b1, "b1", 1},
};

}  // namespace

int type_bits(Type type) { return kTypes[static_cast<int>(type)].bits; }
std::string_view type_name(Type type) { return kTypes[static_cast<int>(type)].name; }

Type type_from_name(std::string_view name) {
  for (const TypeRow& row : kTypes)
    if (row.name == name && row.type != Type::none) return row.type;
  return Type::none;
}

bool is_float(Type type) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
    case Type::bf16:
    case Type::bf16x2:
    case Type::f32:
    case Type::f32x2:
    case Type::f64:
    case Type::tf32:
    case Type::e4m3:
    case Type::e5m2:
    case Type::e4m3x2:
    case Type::e5m2x2:
      return true;
    default:
      return false;
  }
}

bool is_signed(Type type) {
  switch (type) {
    case Type::s8:
    case Type::s16:
    case Type::s32:
    case Type::s64:
    case Type::s16x2:
    case Type::s4:
      return true;
    default:
      return false;
  }
}

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
