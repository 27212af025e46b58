#include "spelling.h"

#include <algorithm>

#include "instruction_set.h"

namespace vgpu {

std::string_view dotted_name(const Function& function, const Instr& instr) {
  if (!instr.ptx_line || instr.ptx_line > function.module->lines.size()) return {};
  std::string_view line = function.module->lines[instr.ptx_line - 1];
  const std::string_view opcode = forms()[instr.form].opcode;
  for (std::size_t at = line.find(opcode); at != line.npos; at = line.find(opcode, at + 1)) {
    const std::size_t end = at + opcode.size();
    if ((at > 0 && std::string_view(" \t{;").find(line[at - 1]) == std::string_view::npos) ||
        end >= line.size() || (line[end] != '.' && line[end] != ';'))
      continue;
    return line.substr(at, std::min(line.find_first_of(" \t;", at), line.size()) - at);
  }
  return {};
}

bool has_modifier(std::string_view name, std::string_view modifier) {
  while (!name.empty()) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    if (name.substr(0, dot) == modifier) return true;
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return false;
}

bool bypasses_l1(std::string_view name) {
  const auto has = [&](std::string_view modifier) { return has_modifier(name, modifier); };
  const bool ordered = has("relaxed") || has("acquire") || has("release") || has("mmio");
  return has("volatile") || has("cg") || has("cv") || has("wt") || (ordered && !has("cta"));
}

}  // namespace vgpu
