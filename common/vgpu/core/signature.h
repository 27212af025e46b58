// Lane operations: what an instruction does to one lane, by name.
//
// Each is a struct with a function `lane`, whose parameters are the instruction's sources in order
// (a, b, c, e) and whose types are those of the registers:
//
//   template <class T>
//   struct Add {
//     static constexpr T lane(T a, T b);
//   };
//
// What depends on more than the operands (a truth table, an address window) is made from the
// instruction, `Lop3(instr).lane(a, b, c)`. Nothing here or in ops/lane/ knows warps, masks or
// registers: the interpreter puts its loop around an operation (core/lanes.h), and any other way to
// execute an instruction can call the same one.
#pragma once
#include <tuple>
#include <type_traits>

#include "../ptx/program.h"

namespace vgpu {

// Result and operands of a lane function, static or not.
template <class Function>
struct SignatureOf;
template <class R, class... Operands>
struct SignatureOf<R (*)(Operands...)> {
  using Result = R;
  static constexpr int kOperands = sizeof...(Operands);
  template <int kIndex>
  using Operand = std::tuple_element_t<kIndex, std::tuple<Operands...>>;
};
template <class Op, class R, class... Operands>
struct SignatureOf<R (Op::*)(Operands...) const> : SignatureOf<R (*)(Operands...)> {};

template <class Op>
using Signature = SignatureOf<decltype(&Op::lane)>;

// The operation as this instruction wants it.
template <class Op>
constexpr Op operation_of(const Instr& instr) {
  if constexpr (std::is_constructible_v<Op, const Instr&>)
    return Op(instr);
  else
    return Op{};
}

}  // namespace vgpu
