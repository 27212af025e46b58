// The decoder of one function: decode.cpp places registers and variables and decodes statements,
// decode_operands.cpp their operands, decode_control.cpp branches and calls.
#pragma once
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/instruction_set.h"
#include "forms.h"

namespace vgpu {

using ast::Body;
using ast::Operand;
using ast::Statement;
using Kind = ast::Operand::Kind;

inline std::uint32_t align_up(std::uint64_t value, std::uint64_t align) {
  return static_cast<std::uint32_t>((value + align - 1) / align * align);
}
inline int register_width(Type type) {  // as stored
  const int bits = type_bits(type);
  return bits == 1 ? 1 : std::max(16, bits);
}
// Offsets are 64-bit numbers that wrap around, as addresses do.
inline void add_offset(std::int64_t& imm, std::uint64_t offset) {
  imm = static_cast<std::int64_t>(static_cast<std::uint64_t>(imm) + offset);
}

// One word of the operand signature of a form: "b:u32?" or "d*".
struct Expected {
  char name = 'x';
  std::string_view type;
  bool optional = false, vector = false;
};

class Decoder {
 public:
  Decoder(Function& function, Body& body, const SymbolTable& symbols)
      : fn_(function), body_(body), symbols_(symbols) {}

  void run();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  // ---- places --------------------------------------------------------------------------------
  void place_variables();
  // Whether this kernel, or a function it may call, names a shared variable placed by the module.
  bool uses_module_shared() const;

  void place_registers();
  Slot allocate(int bits);

  // A value spread over 32 lanes of `bits`.
  Slot constant(std::uint64_t value, int bits);

  // ---- operands ------------------------------------------------------------------------------
  struct Address {  // what a name stands for
    Space space;
    std::uint64_t value;          // in its own state space
    bool dynamic_shared = false;  // known only at the launch
  };
  Address address_of(const Operand& o) const;

  // Notes that the instruction names this variable (Instr::named).
  void name_variable(Instr& instr, const Operand& o, const Address& address);

  // Puts what cannot stand in a register slot (special registers, addresses) into a fresh one.
  Slot materialize(const Operand& o, int bits);

  Slot source(const Operand& o, Type type);

  int width_of(const Operand& o) const;

  std::uint32_t* add_list(Instr& instr, const std::vector<Slot>& slots);

  void memory_operand(Instr& instr, const Operand& o);

  // The source of an asynchronous copy, in the other of its two spaces.
  void second_memory_operand(Instr& instr, const Operand& o);
  // The object that an asynchronous operation reports to, in shared memory. Its address has the
  // same form as the data's.
  void third_memory_operand(Instr& instr, const Operand& o);

  // The map and the coordinates in "[map, {c, w, h}]": the map's address, which is a generic one, stands
  // in place of the memory operand that is global memory's, the coordinates in the list.
  void tensor_operand(Instr& instr, const Operand& o);
  // "{w, h}": 16-bit offsets, behind the coordinates in the list.
  void tensor_offsets(Instr& instr, const Operand& o);

  // All registers of all vector operands in one list, in order (mma: D, A, B, C).
  void all_vectors(Instr& instr);

  void warpgroup_product(Instr& instr);  // decode_warpgroup.cpp
  void selection(Instr& instr);          // for a sparse one

  // ---- statements ----------------------------------------------------------------------------
  void stamp(Instr& instr) const;

  static Rounding rounding_of(std::string_view w);
  static Compare compare_of(std::string_view w);

  void apply_mods(Instr& instr, std::string_view opcode, const Mods& mods) const;

  void decode_statement();

  bool since_sm_100(std::string_view opcode, const Instr& instr, const Mods& mods) const;

  Type named_type(const Instr& instr, std::string_view name) const;

  void operands(Instr& instr, const std::vector<Expected>& expected);
  // What video.cpp reads: 16 bits each for d, a and b. Of these bits 0-2 count the parts, bit 3
  // says halves, not bytes, and 3 bits follow for each part, the lowest of the destination first.
  void select_parts(Instr& instr, const Operand& o, char operand);
  // Registers must be as wide as the type, where the ISA says so (ld, st, cvt may be wider).
  void check_width(const Instr& instr, const Operand& o, const Expected& want, Type type) const;

  // '_' in place of a result, which only these take.
  void discard(std::initializer_list<std::string_view> opcodes) const;
  void destination(Instr& instr, const Operand& o, const Expected& want, Type type);
  void destination2(Instr& instr, const Operand& o);
  void vector_sources(Instr& instr, const Operand& o, Type type);
  Slot constant_of_width(const Operand& o, Type type, int bits);

  void move(Instr& instr);
  // Checks that the parts fit in a mov that takes a word apart or puts one together.
  void packed_parts(const Instr& instr, const Operand& d, const Operand& a) const;

  std::uint32_t label(std::string_view name) const;

  void branch(Instr& instr);
  void branch_table(Instr& instr);

  void call(Instr& instr);

  // See Function::order_matters.
  void find_order_dependence();

  // Whether a jump back leads over the instruction.
  bool in_loop(std::uint32_t pc) const;

  Function& fn_;
  Body& body_;
  const SymbolTable& symbols_;
  const Statement* statement_ = nullptr;
  std::vector<Instr> code_;
  std::vector<Slot> slots_;
  Slot sink_;
  std::uint32_t next_register_ = 0;
  std::map<std::pair<std::uint64_t, int>, Slot> constants_;
  std::vector<std::uint32_t> statement_pc_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> branches_;  // pc, statement
};

}  // namespace vgpu
