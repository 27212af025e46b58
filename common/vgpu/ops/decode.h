// ast -> executable code: forms matched, operands placed, branches given their meeting points.
#pragma once
#include <functional>
#include <string_view>

#include "../ptx/ast.h"

namespace vgpu {

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

// Places shared variables of module scope and of functions that are not entries; returns bytes used.
std::uint32_t place_module_shared(ParsedModule& parsed);

}  // namespace vgpu
