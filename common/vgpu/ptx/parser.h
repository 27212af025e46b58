// The parser of PTX text: one pass, a cursor over the text, no token list.
//
// parser.cpp holds functions and statements, skip_body.cpp bodies that wait, parser_module.cpp what
// stands around them, parser_operand.cpp operands, parser_text.cpp characters and numbers.
#pragma once
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "ast.h"

namespace vgpu {

using ast::Body;
using ast::Operand;
using ast::Statement;

// Guards against text that is made to hurt; real modules stay far below.
inline constexpr std::uint64_t kMaxVariableBytes = 1ull << 40;
inline constexpr std::uint32_t kMaxRegisters = 1u << 22;  // in all functions together
inline constexpr int kMaxNesting = 64;

inline bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
inline bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$';
}

class Parser {
 public:
  Parser(ParsedModule& parsed, Bodies bodies)
      : out_(parsed), module_(parsed.module), text_(module_.text), bodies_(bodies) {}

  void run();

  // Reads the body of a kernel that run() left for later.
  void read_body(const std::string& function);

 private:
  // ---- characters ----------------------------------------------------------------------------
  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const;

  [[noreturn]] void fail(const std::string& what) const;

  void skip_space();

  bool accept(char c);
  void expect(char c);
  std::string near() const;

  std::string_view name();
  // ".align", "ld.global.nc.L2::128B.v4.f32", "%tid.x"
  std::string_view dotted();
  // ".align" of ".align.b8": what stands between directives and types need not be a blank.
  std::string_view directive();
  bool accept_word(std::string_view word);
  std::string quoted();

  // A number: integer, 0f/0d bits, or a decimal fraction. `bits` 0: integer.
  bool number(std::int64_t& value, int& bits);
  std::int64_t integer();

  // ---- module --------------------------------------------------------------------------------
  void top_level();
  // ---- linking of several files ---------------------------------------------------------------
  void begin_file();
  // The name that a definition or declaration of this file goes by in the module: what others do not
  // see gives way when the name is taken.
  std::string linked_name(std::string_view n, bool local);
  std::string_view link(std::string_view n) const;

  void dotted_number();
  void skip_section();

  void file_directive();

  // Locations are kept raw and resolved at the end, when the names of the files are known.
  using Position = std::tuple<int, int, int>;  // file, line, column
  struct RawLocation {
    Position at;
    Position inlined_at{-1, 0, 0};  // file -1: not inlined
    std::size_t outer = kNoOuter;   // the location that inlined_at means, in raw_locations_
    std::size_t index = 0;          // in Module::locations
    static constexpr std::size_t kNoOuter = ~std::size_t{0};
  };
  Position position();
  std::uint32_t loc_directive();
  // Those of one file, or of a body that is read later.
  void resolve_locations();

  // ---- variables -----------------------------------------------------------------------------
  struct Declaration {
    std::string_view name;
    Type type = Type::none;
    std::uint64_t elements = 1, element_bytes = 0;
    std::uint32_t align = 1, vector = 1;  // vector: how many parts a vector type has
    bool unsized = false, managed = false;
    std::uint64_t bytes() const { return elements * element_bytes; }
  };
  // After the state space: [.align N] [.v2|.v4] .type [.ptr ...] name [dims]
  Declaration declaration(bool named = true);
  // name [dims]; a list of them shares what stands before
  void declarator(Declaration& d, bool named = true);

  // Only the scope sees the name of a variable in the body of a function, `fn`.
  void module_variable(bool external, bool local, const Function* fn = nullptr);
  // A name that the module does not have yet, for a variable of a function's body.
  std::string own_name(const Function& fn, std::string_view n);
  void initializer(Global& global, Declaration& d);
  void initializer_item(Global& global, const Declaration& d, std::uint64_t& element,
                        std::uint64_t scalar, int depth);

  // ---- functions -----------------------------------------------------------------------------
  // "( .param .b32 a, .reg .b32 b )"; offsets as the ABI lays them out.
  // What those are that stand in registers goes to `registers`.
  struct Registers {
    Type type = Type::none;   // none: it stands in memory
    std::uint32_t width = 1;  // above 1: a vector of them
  };
  std::vector<Param> param_list(std::uint32_t& bytes, std::vector<Registers>* registers = nullptr);

  void function(bool entry, bool local);
  bool accept_attribute();

  struct Scope {
    struct Named {
      std::uint32_t first, width;  // width: registers of a vector register
    };
    std::unordered_map<std::string_view, Named> registers;
    struct Range {
      std::uint32_t first, count, width;
    };
    std::unordered_map<std::string_view, Range> ranges;  // "%r" -> %r0 .. %r<count-1>
    std::unordered_map<std::string_view, std::uint32_t> variables;
    std::unordered_map<std::string_view, std::string_view> globals;  // its name in the module
    std::uint32_t id = 0;
  };

  std::uint32_t add_register(Type type);
  // `width` is above 1 for a vector register, whose parts follow each other.
  bool find_register(std::string_view n, std::uint32_t& id, std::uint32_t& width) const;

  void function_body(Function& fn, Body& body);

  // ---- bodies that are read at their first use ------------------------------------------------
  // Where such a body begins, behind its {, and its room in Module::locations, which does not grow
  // any more when kernels run.
  struct Later {
    std::size_t begin = 0;
    std::uint32_t line = 0;
    std::size_t first_location = 0, end_of_locations = 0;
  };
  // Goes behind the } of the body that begins here. Returns false and stays where the body has to be
  // read now: it declares what the whole module has to know, or does not end.
  bool skip_body(Later& later);

  std::uint32_t declare_variable(std::string_view n, Space space, std::uint64_t size,
                                 std::uint32_t align);

  // ---- parameters in registers: moved through memory, as those in .param are -------------------
  // `ld.param` or `st.param` of one register, of a vector of them, or of a number.
  Statement transfer(bool load, const Operand& value, Type type, std::uint32_t variable);
  void declare_parameter(const Param& p, Registers in_registers, bool result);
  // Puts variables in the place of a call's registers and numbers; what has to be moved goes to `moves`.
  void through_memory(Operand& list, bool load, std::vector<Statement>& moves);

  void registers();

  void body_directive(Function& fn);

  void statement();

  // "mov.v2.f32 v, w" and "mov.v4.u32 v, %tid": each part by itself.
  void move_vector(Statement& s);

  // "{%r1}" where one element is moved, loaded or stored means %r1.
  static void one_element(Statement& s);

  // "%r1 + 4" as a source: what follows the register `o`. An addition to a register of its own, for which
  // `o` then stands, goes to `before`.
  void register_sum(Operand& o, std::vector<Statement>& before);

  void labelled(std::string_view label);

  // A vector register stands for its parts, "v.y" or "v.g" for one of them.
  void vector_register(Operand& o, std::uint32_t width);

  // Numbers and operators as in C: what may stand behind the base of an address or as an operand.
  std::int64_t factor(int depth = 0);
  std::int64_t product(std::int64_t value, int depth = 0);
  std::int64_t expression(int depth = 0) { return sum(product(factor(depth), depth), depth); }
  std::int64_t sum(std::int64_t value, int depth = 0);
  static std::int64_t wrapped(std::int64_t a, std::int64_t b, char operation);

  Operand operand(int depth);

  ParsedModule& out_;
  Module& module_;
  std::string_view text_;
  Bodies bodies_;
  std::map<std::string, Later> later_;  // by function, of the file that is read
  std::size_t pos_ = 0;
  std::uint32_t line_ = 1;
  std::map<int, std::string> files_;
  std::vector<RawLocation> raw_locations_;
  std::map<Position, std::size_t> latest_;  // in raw_locations_, for the function that is read
  std::size_t free_location_ = 0, end_of_free_locations_ = 0;  // room for a body's locations
  int file_number_ = 0;
  struct Owner {
    int file;
    bool local;
  };
  std::map<std::string, Owner, std::less<>> owners_;      // by names of the module
  std::map<std::string_view, std::string_view> renames_;  // in the file that is read
  std::vector<Scope> scopes_;
  Body* body_ = nullptr;
  std::vector<Registers> result_registers_, param_registers_;  // for the function's parameters
  std::vector<Statement> result_stores_;                       // what a `ret` does for them
  std::uint32_t location_ = 0;
  std::uint32_t declared_registers_ = 0;  // in all functions
};

}  // namespace vgpu
