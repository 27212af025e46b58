#include "finite_words.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "../core/instruction_set.h"

namespace vgpu {
namespace {

Effect effect_of(const Form& form) {
  const std::string_view opcode = form.opcode, bind = form.bind_name;
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), opcode) != names.end();
  };
  if (is({"setp", "set", "testp"}) || bind == "bind_hint") return Effect::other;
  if (bind == "bind_cvt_float" || bind == "bind_cvt_pair" || bind == "bind_cvt_integer_to_float")
    return Effect::arithmetic;
  if (is({"mma"}) || bind == "bind_wmma_mma") return Effect::product;
  if (bind == "bind_wgmma") return Effect::later;
  if (is({"st", "red", "atom", "stmatrix"}) ||
      (opcode == "wmma" && std::string_view(form.pattern).starts_with(".store")))
    return Effect::store;
  if (is({"mov", "selp", "slct", "and", "or", "xor", "not", "shl", "shr", "shf", "prmt", "bfe",
          "bfi", "lop3"}) ||
      bind == "bind_cvt_integer")
    return Effect::move;
  switch (form.op_class) {
    case OpClass::fp16:
    case OpClass::fp32:
    case OpClass::fp64:
    case OpClass::special:
      return Effect::arithmetic;
    default:
      return Effect::other;
  }
}

}  // namespace

const std::vector<Effect>& effects() {
  static const std::vector<Effect> by_form = [] {
    std::vector<Effect> all;
    for (const Form& form : forms()) all.push_back(effect_of(form));
    return all;
  }();
  return by_form;
}

std::string computation_words(const Instr& instr, const std::array<double, 3>& x, int count,
                              double result, Type format) {
  const auto text = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", value);
    return std::string(std::isnan(value) ? "nan" : digits);
  };
  const std::string_view opcode = forms()[instr.form].opcode;
  const std::string a = text(x[0]), b = text(x[1]), c = text(x[2]);
  const std::string is = " is " + text(result);
  if (instr.op_class == OpClass::conversion)
    return (count ? a : "an integer") + " as " + std::string(type_name(format)) + is;
  if (opcode == "add") return a + " + " + b + is;
  if (opcode == "sub") return a + " - " + b + is;
  if (opcode == "mul") return a + " * " + b + is;
  if (opcode == "div") return a + " / " + b + is;
  if (opcode == "fma" || opcode == "mad") return a + " * " + b + " + " + c + is;
  if (opcode == "rcp") return "1 / " + a + is;
  if (opcode == "ex2") return "2 to the power of " + a + is;
  if (opcode == "lg2") return "the logarithm of " + a + is;
  return std::string(opcode) + "(" + a + (count > 1 ? ", " + b : "") + ")" + is;
}
const char* computation_advice(const Instr& instr, const std::array<double, 3>& x, double result,
                               Type format) {
  const std::string_view opcode = forms()[instr.form].opcode;
  if (std::isnan(result))
    return std::isinf(x[0]) || std::isinf(x[1]) || std::isinf(x[2])
               ? "test for infinities before (where a mask leaves nothing of a row, its maximum "
                 "is "
                 "-inf)"
               : "test the operands before";
  if (opcode == "lg2" || opcode == "rsqrt" || opcode == "rcp" || (opcode == "div" && x[1] == 0))
    return "test the operand for 0 before";
  if (format == Type::f16)
    return instr.op_class == OpClass::conversion
               ? "the largest half is 65504: scale the value, or clamp it"
               : "the largest half is 65504: compute in float, or scale before";
  return "scale the operands before";
}

}  // namespace vgpu
