// The table of instruction forms: what the virtual GPU can execute, and nothing else.
//
// Each row of forms.def is FORM(opcode, pattern, operands, class, flow, bind):
//   opcode    first word of the instruction, "fma"
//   pattern   its modifiers, separated by spaces: ".rn" must stand there, ".lo|.hi" is a
//             choice, a trailing "?" makes it optional, "$int" names a group (forms.cpp lists them).
//             In a program they may stand in another order, as far as ptxas allows it: see kNames
//             and Kin in forms.cpp
//   operands  in order, separated by spaces; "?" makes it optional. Names: d (destination),
//             p (second destination of "d|p" or "p|q"), a b c e (sources), m (memory operand),
//             i (integer constant, into Instr::imm), t (label),
//             z (tensor operand: map and coordinates), u (offsets of im2col, in braces),
//             n (second memory operand), o (third one: into b and constant), k (integer constant,
//             into Instr::constant), x (handled by
//             the opcode's own code); or just "fragments": all registers of all vectors, in order;
//             or "warpgroup": the operands of wgmma.mma_async (decode_warpgroup.cpp).
//             A ":type" says the operand's type where it is not the instruction's: ":u32", ":pred",
//             ":dtype" (first type modifier), ":wide" (twice the width). "*" after the name: a
//             vector {..} is allowed.
//   class     what profilers file it under
//   flow      what the warp loop does around it
//   bind      function that chooses the handler; null: this combination is refused by name
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/instruction_set.h"

namespace vgpu {

// The modifiers of one instruction, without dots, in the order of the pattern that matched them.
struct Mods {
  std::vector<std::string_view> words;
  bool has(std::string_view word) const;
  // Index of the first of `choices` that is present, or -1.
  int pick(std::initializer_list<std::string_view> choices) const;
};

// One item of a pattern: its alternatives (without dots) and whether it may be missing.
struct PatternItem {
  std::vector<std::string> choices;
  bool optional = false;
};
std::vector<PatternItem> parse_pattern(std::string_view pattern);

// Row whose opcode and pattern match the dotted name ("fma.rn.ftz.f32"), or null. When several
// match, the first, and those in whose order the words stand before others. `mods` gets the words
// after the opcode, in the row's order.
const Form* match_form(std::string_view dotted, Mods& mods);
// Why a dotted name has no row: "opcode 'foo' is unknown" or "'.rm' is not known for 'fma.f16'".
std::string explain_mismatch(std::string_view dotted);

// Every form as the tests count it: each row once for each choice of each of its items,
// e.g. "add | .sat? .s32 | .sat". The tests must touch each (tests/forms_*.cpp).
std::vector<std::string> form_points();
// The points that one dotted name touches.
std::vector<std::string> points_of(std::string_view dotted);

}  // namespace vgpu
