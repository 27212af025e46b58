// What the rest asks of the instruction set. ops/ defines these functions; core/, check/ and profile/
// use them through this header, so that none of them includes a file of ops/.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "../ptx/ast.h"
#include "../ptx/program.h"

namespace vgpu {

class Warp;
struct Mods;  // ops/forms.h

// Chooses the handler of an instruction; null: this combination is refused by name.
using Binder = Handler (*)(Instr& instr, const Mods& mods);

// A row of the table of instructions (ops/forms.def). Its columns are explained in ops/forms.h.
struct Form {
  const char* opcode;
  const char* pattern;
  const char* operands;
  OpClass op_class;
  Flow flow;
  Binder bind;
  const char* bind_name;
};

// All rows. Instr::form is the number of the instruction's row.
std::span<const Form> forms();

// Where the names of a module live once it is loaded.
struct SymbolTable {
  const Global* global(std::string_view name) const;
  const Function* function(std::string_view name) const;
  std::uint64_t function_address(const Function* function) const;  // for indirect calls
  std::function<std::uint64_t(const Function*)> address;
  const ParsedModule* parsed = nullptr;
  std::uint32_t module_shared_bytes =
      0;  // module-scope and functions' shared variables, placed first
};

// Fills function.code and all that goes with it. Throws PtxError for what the table of forms does
// not hold, naming the instruction, its line and the source line.
void decode(Function& function, ast::Body& body, const SymbolTable& symbols);

// What a lane that is about to execute the instruction waits for, if it is a wait at an mbarrier: "for
// parity 0 of the mbarrier 'full' at offset 8 of shared memory: 1 of 1 arrivals is missing"; else "".
std::string mbarrier_wait_words(Warp& warp, const Instr& instr, int lane);

// Places shared variables of module scope and of functions that are not entries; returns bytes used.
std::uint32_t place_module_shared(ParsedModule& parsed);

}  // namespace vgpu
