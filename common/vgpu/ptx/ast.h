// PTX text as parsed: names resolved to registers and variables, nothing decoded yet.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace vgpu::ast {

struct Operand {
  enum class Kind : std::uint8_t {
    reg,       // reg, negated, name
    integer,   // value
    real,      // value: the bits; bits: 32 or 64
    special,   // name: "tid.x"
    variable,  // variable of the function (local, shared, call parameter): index in reg, value
    symbol,    // name of the module (variable, function) or a label; value: offset
    memory,    // parts[0]: base; value: offset; more parts: coordinates
    vector,    // parts
    pair,      // parts[0] | parts[1]
    list,      // ( parts ) of a call
    sink,      // _
  };
  Kind kind = Kind::sink;
  bool negated = false;
  std::uint8_t bits = 0;
  std::uint32_t reg = 0;
  std::int64_t value = 0;
  std::string_view name;
  std::string_view selector;  // in a video instruction, behind a register: "h10", "b2"
  std::vector<Operand> parts;
};

struct Statement {
  std::string_view name;    // dotted instruction; empty: only a label's place
  std::int32_t guard = -1;  // register
  bool guard_not = false;
  std::vector<Operand> operands;
  std::uint32_t line = 0, location = 0, scope = 0;
};

struct Register {
  Type type = Type::none;
  std::string name;
};

struct Variable {
  std::string name;
  Space space = Space::local;  // local, shared, param
  std::uint32_t size = 0, align = 1, offset = 0;
};

struct Body {
  std::vector<Register> registers;
  std::vector<Variable> variables;
  std::vector<Statement> statements;
  std::vector<std::uint32_t> scope_parent;  // [0] is the body itself
  std::vector<std::unordered_map<std::string_view, std::uint32_t>> labels;  // by scope: statement
  std::unordered_map<std::string_view, std::vector<std::string_view>> branch_targets;
  bool has_body = false;
};

}  // namespace vgpu::ast

namespace vgpu {

class Parser;

// Parses PTX text. Throws PtxError with the line. The functions' `code` stays empty until
// decode() (core/) is called for them; `bodies` holds what it needs. The text may be that of
// several files, each with its own .version: they are linked by name, as nvlink does it.
struct ParsedModule {
  Module module;
  std::unordered_map<std::string, ast::Body> bodies;
  std::deque<std::string> renamed;  // names of one file that another file has too
  std::shared_ptr<Parser> parser;   // which reads the bodies that it left for later
};
std::unique_ptr<ParsedModule> parse_ptx(std::string text, Bodies bodies = Bodies::now);

// Reads the body of a kernel that was left for later; does nothing for any other function. Throws
// PtxError with the line, each time that it is called.
void parse_body(ParsedModule& parsed, const std::string& function);

}  // namespace vgpu
