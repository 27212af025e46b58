// What an instruction does to infinities and NaNs, and words for one that makes them (finite.cpp).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../ptx/program.h"

namespace vgpu {

// What an instruction does to such values.
enum class Effect : std::uint8_t {
  other,  // its results are none of them
  arithmetic,
  product,  // by tensor cores: complete when the next instruction begins
  later,    // by a warpgroup: complete after a wait
  move,     // the bits go elsewhere: mov, selp, prmt, logic
  store,
};

const std::vector<Effect>& effects();  // by Instr::form

// "-inf - -inf is nan". The operands are the first `count` of `x`; `format` is the result's type.
std::string computation_words(const Instr& instr, const std::array<double, 3>& x, int count,
                              double result, Type format);
const char* computation_advice(const Instr& instr, const std::array<double, 3>& x, double result,
                               Type format);

}  // namespace vgpu
