// Operands of wgmma.mma_async, which no signature of the table describes: D, A, B, of a sparse product
// metadata and selector, scale-d, then numbers that depend on the type and on where A is.
#include "decoder.h"

namespace vgpu {
namespace {

bool transposable(Type type) { return type == Type::f16 || type == Type::bf16; }

}  // namespace

void Decoder::warpgroup_product(Instr& instr) {
  const auto& given = statement_->operands;
  const bool sparse =
      std::string_view(forms()[instr.form].pattern).find(".sp ") != std::string_view::npos;
  const std::size_t scale_at = sparse ? 5 : 3;
  if (given.size() <= scale_at)
    fail(std::string("an operand is missing: D, A, B, ") +
         (sparse ? "metadata, selector and scale-d" : "and scale-d"));
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
  if (sparse) {
    selection(instr);
    slots.push_back(instr.e);
  }
  if (a_in_registers) instr.constant |= 32;
  add_list(instr, slots);
  instr.b = descriptor(given[2], "B");
  const Operand& scale_d = given[scale_at];
  if (scale_d.kind == Kind::reg && width_of(scale_d) != 1) fail("scale-d must be a predicate");
  instr.c = source(scale_d, Type::pred);
  instr.c_not = scale_d.negated;

  // imm-scale-a, imm-scale-b; then for types of 16 bits imm-trans-a, unless A is in registers, and
  // imm-trans-b. Bits of `constant` in this order.
  const bool scales = is_float(instr.type), transposes = transposable(instr.type);
  const std::size_t first = scale_at + 1;
  const std::size_t want =
      first + (scales ? 2u : 0u) + (transposes ? (a_in_registers ? 1u : 2u) : 0u);
  if (given.size() != want)
    fail("this form of wgmma.mma_async has " + std::to_string(want) + " operands, not " +
         std::to_string(given.size()));
  for (std::size_t i = first; i < want; ++i) {
    if (given[i].kind != Kind::integer) fail("expected an integer constant");
    const std::int64_t value = given[i].value;
    const bool scale = i < first + 2;
    if (scale ? value != 1 && value != -1 : value != 0 && value != 1)
      fail(std::string(scale ? "imm-scale" : "imm-trans") + " is " + std::to_string(value) +
           " and must be " + (scale ? "-1 or 1" : "0 or 1"));
    const int bit = scale ? static_cast<int>(i - first) : i + 1 == want ? 3 : 2;
    if (scale ? value == -1 : value == 1) instr.constant |= std::int64_t{1} << bit;
  }
}

// Reads a sparse product's register with the metadata, and which threads of four have it. (Bit 4 of
// `constant`; bit 5 says that A is in registers.)
void Decoder::selection(Instr& instr) {
  const auto& given = statement_->operands;
  if (given[3].kind != Kind::reg || width_of(given[3]) != 32)
    fail("the metadata of a sparse product need a register of 32 bits");
  instr.e = source(given[3], Type::u32);
  if (given[4].kind != Kind::integer) fail("the sparsity selector must be an integer constant");
  const int most = type_bits(instr.type) == 8 ? 0 : 1;
  if (given[4].value < 0 || given[4].value > most)
    fail("the sparsity selector is " + std::to_string(given[4].value) + " and must be " +
         (most ? "0 or 1" : "0 for types of 8 bits"));
  instr.constant |= given[4].value << 4;
}

}  // namespace vgpu
