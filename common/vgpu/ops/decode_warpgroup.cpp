// Operands of wgmma.mma_async, which no signature of the table describes: D, A, B, scale-d, then
// numbers that depend on the type and on where A is.
#include "decoder.h"

namespace vgpu {
namespace {

bool transposable(Type type) { return type == Type::f16 || type == Type::bf16; }

}  // namespace

void Decoder::warpgroup_product(Instr& instr) {
  const auto& given = statement_->operands;
  if (given.size() < 4) fail("an operand is missing: D, A, B and scale-d");
  std::vector<Slot> slots;
  const auto fragment = [&](const Operand& o, const char* name) {
    if (o.kind != Kind::vector)
      fail(std::string("expected the registers of ") + name + " in braces");
    for (const Operand& part : o.parts) {
      if (part.kind == Kind::sink && *name == 'D') fail("'_' is no register of D");
      if (part.kind != Kind::reg) fail(std::string("expected a register in ") + name);
      if (width_of(part) != 32)
        fail("register '" + std::string(part.name) + "' of " + std::to_string(width_of(part)) +
             " bits in a fragment of 32-bit registers");
      slots.push_back(slots_[part.reg]);
    }
  };
  const auto descriptor = [&](const Operand& o, const char* name) {
    if (o.kind != Kind::reg || width_of(o) != 64)
      fail(std::string("the descriptor of ") + name + " needs a register of 64 bits");
    return source(o, Type::u64);
  };
  fragment(given[0], "D");
  instr.list_results = static_cast<std::uint16_t>(slots.size());
  const bool a_in_registers = given[1].kind == Kind::vector;
  if (a_in_registers)
    fragment(given[1], "A");
  else
    instr.a = descriptor(given[1], "A");
  add_list(instr, slots);
  instr.b = descriptor(given[2], "B");
  if (given[3].kind == Kind::reg && width_of(given[3]) != 1) fail("scale-d must be a predicate");
  instr.c = source(given[3], Type::pred);
  instr.c_not = given[3].negated;

  // imm-scale-a, imm-scale-b; then for types of 16 bits imm-trans-a, unless A is in registers, and
  // imm-trans-b. Bits of `constant` in this order.
  const bool scales = is_float(instr.type), transposes = transposable(instr.type);
  const std::size_t want = 4 + (scales ? 2u : 0u) + (transposes ? (a_in_registers ? 1u : 2u) : 0u);
  if (given.size() != want)
    fail("this form of wgmma.mma_async has " + std::to_string(want) + " operands, not " +
         std::to_string(given.size()));
  for (std::size_t i = 4; i < want; ++i) {
    if (given[i].kind != Kind::integer) fail("expected an integer constant");
    const std::int64_t value = given[i].value;
    const bool scale = i < 6;
    if (scale ? value != 1 && value != -1 : value != 0 && value != 1)
      fail(std::string(scale ? "imm-scale" : "imm-trans") + " is " + std::to_string(value) +
           " and must be " + (scale ? "-1 or 1" : "0 or 1"));
    const int bit = scale ? static_cast<int>(i) - 4 : i + 1 == want ? 3 : 2;
    if (scale ? value == -1 : value == 1) instr.constant |= std::int64_t{1} << bit;
  }
}

}  // namespace vgpu
