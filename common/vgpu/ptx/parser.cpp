// PTX text -> ast. One pass; a cursor over the text, no token list.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>

#include "ast.h"

namespace vgpu {
namespace {

using ast::Body;
using ast::Operand;
using ast::Statement;

// Guards against text that is made to hurt; real modules stay far below.
constexpr std::uint64_t kMaxVariableBytes = 1ull << 40;
constexpr std::uint32_t kMaxRegisters = 1u << 22;  // of all functions together
constexpr int kMaxNesting = 64;

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

// Headers that come with the toolkit: a line in them says less than the user's line that called.
bool is_toolkit_file(std::string_view path) {
  for (std::string_view part :
       {"/targets/", "/cuda/include/", "/crt/", "/cccl/", "/nvidia/", "/cub/", "/thrust/",
        "/libcudacxx/", "/cooperative_groups/", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h",
        "/mma.h", "device_functions", "sm_30_intrinsics", "sm_20_intrinsics", "sm_32_intrinsics",
        "cooperative_groups.h", "cuda_pipeline"})
    if (path.find(part) != std::string_view::npos) return true;
  return false;
}

class Parser {
 public:
  explicit Parser(ParsedModule& parsed)
      : out_(parsed), module_(parsed.module), text_(module_.text) {}

  void run() {
    module_.locations.emplace_back();
    for (;;) {
      skip_space();
      if (at_end()) break;
      top_level();
    }
    if (module_.sm == 0) fail("no .target directive: this is not PTX");
    resolve_locations();
  }

 private:
  // ---- characters ----------------------------------------------------------------------------
  bool at_end() const { return pos_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0';
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw PtxError("PTX line " + std::to_string(line_) + ": " + what, static_cast<int>(line_));
  }

  void skip_space() {
    for (;;) {
      const char c = peek();
      if (c == '\n') {
        ++line_;
        ++pos_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++pos_;
      } else if (c == '/' && peek(1) == '/') {
        while (!at_end() && peek() != '\n') ++pos_;
      } else if (c == '/' && peek(1) == '*') {
        pos_ += 2;
        while (!at_end() && !(peek() == '*' && peek(1) == '/')) {
          if (peek() == '\n') ++line_;
          ++pos_;
        }
        if (at_end()) fail("comment without end");
        pos_ += 2;
      } else if (c == '\0' && pos_ + 1 >= text_.size() && !at_end()) {
        ++pos_;  // a terminating zero of an embedded image
      } else {
        return;
      }
    }
  }

  bool accept(char c) {
    skip_space();
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "', found '" + near() + "'");
  }
  std::string near() const {
    std::size_t end = pos_;
    while (end < text_.size() && end < pos_ + 24 && text_[end] != '\n') ++end;
    return std::string(text_.substr(pos_, end - pos_));
  }

  std::string_view name() {
    skip_space();
    const std::size_t start = pos_;
    if (!starts_name(peek())) fail("expected a name, found '" + near() + "'");
    ++pos_;
    while (in_name(peek())) ++pos_;
    return text_.substr(start, pos_ - start);
  }
  // ".align", "ld.global.nc.L2::128B.v4.f32", "%tid.x"
  std::string_view dotted() {
    skip_space();
    const std::size_t start = pos_;
    while (in_name(peek()) || peek() == '.' || peek() == '%' || (peek() == ':' && peek(1) == ':') ||
           (peek() == ':' && pos_ > start && text_[pos_ - 1] == ':'))
      ++pos_;
    if (pos_ == start) fail("expected a word, found '" + near() + "'");
    return text_.substr(start, pos_ - start);
  }
  // ".align" of ".align.b8": what stands between directives and types need not be a blank.
  std::string_view directive() {
    skip_space();
    const std::size_t start = pos_;
    if (peek() != '.' || !starts_name(peek(1)))
      fail("expected a directive, found '" + near() + "'");
    ++pos_;
    while (in_name(peek())) ++pos_;
    return text_.substr(start, pos_ - start);
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (text_.substr(pos_, word.size()) != word) return false;
    const char after = peek(word.size());
    if (in_name(after)) return false;
    pos_ += word.size();
    return true;
  }
  std::string quoted() {
    expect('"');
    std::string result;
    while (!at_end() && peek() != '"') {
      if (peek() == '\\' && pos_ + 1 < text_.size()) ++pos_;
      result += text_[pos_++];
    }
    if (at_end()) fail("string without end");
    ++pos_;
    return result;
  }

  // A number: integer, 0f/0d bits, or a decimal fraction. `bits` 0: integer.
  bool number(std::int64_t& value, int& bits) {
    skip_space();
    std::size_t p = pos_;
    bool negative = false;
    if (p < text_.size() && (text_[p] == '-' || text_[p] == '+')) negative = text_[p++] == '-';
    if (p >= text_.size() || !std::isdigit(static_cast<unsigned char>(text_[p]))) return false;
    bits = 0;
    std::uint64_t v = 0;
    auto digits = [&](int base) {
      const std::size_t start = p;
      while (p < text_.size()) {
        const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[p])));
        const int d = std::isdigit(static_cast<unsigned char>(c)) ? c - '0'
                      : c >= 'a' && c <= 'f'                      ? c - 'a' + 10
                                                                  : 99;
        if (d >= base) break;
        v = v * base + d;
        ++p;
      }
      return p > start;
    };
    const char second = p + 1 < text_.size() ? text_[p + 1] : '\0';
    if (text_[p] == '0' && (second == 'x' || second == 'X')) {
      p += 2;
      if (!digits(16)) fail("bad hexadecimal number");
    } else if (text_[p] == '0' && (second == 'b' || second == 'B')) {
      p += 2;
      if (!digits(2)) fail("bad binary number");
    } else if (text_[p] == '0' && (second == 'f' || second == 'F')) {
      p += 2;
      if (!digits(16)) fail("bad 0f number");
      bits = 32;
    } else if (text_[p] == '0' && (second == 'd' || second == 'D')) {
      p += 2;
      if (!digits(16)) fail("bad 0d number");
      bits = 64;
    } else {
      std::size_t q = p;
      while (q < text_.size() && std::isdigit(static_cast<unsigned char>(text_[q]))) ++q;
      if (q < text_.size() && (text_[q] == '.' || text_[q] == 'e' || text_[q] == 'E')) {
        const std::string copy(text_.substr(p, 64));
        char* end = nullptr;
        const double d = std::strtod(copy.c_str(), &end);
        p += end - copy.c_str();
        std::memcpy(&v, &d, 8);
        bits = 64;
      } else if (text_[p] == '0' && q > p + 1) {
        digits(8);
      } else {
        digits(10);
      }
    }
    if (bits == 0 && p < text_.size() && text_[p] == 'U') ++p;
    if (negative) v = bits == 32 ? v ^ 0x80000000u : bits == 64 ? v ^ (1ull << 63) : 0 - v;
    value = static_cast<std::int64_t>(v);
    pos_ = p;
    return true;
  }
  std::int64_t integer() {
    std::int64_t value;
    int bits;
    if (!number(value, bits) || bits != 0) fail("expected an integer, found '" + near() + "'");
    return value;
  }

  // ---- module --------------------------------------------------------------------------------
  void top_level() {
    if (peek() != '.') fail("expected a directive, found '" + near() + "'");
    bool external = false, local = true;
    for (;;) {
      skip_space();
      const std::size_t before = pos_;
      const std::string_view word = directive();
      if (word == ".version") {
        dotted_number();
        begin_file();
        return;
      }
      if (word == ".target") {
        const std::string target(name());
        if (target.rfind("sm_", 0) != 0) fail("unknown target '" + target + "'");
        if (const int sm = std::atoi(target.c_str() + 3); sm >= module_.sm) {
          module_.target = target;
          module_.sm = sm;
        }
        while (accept(',')) name();
        return;
      }
      if (word == ".address_size") {
        if (integer() != 64) fail("only 64-bit PTX is supported (nvcc -m64)");
        return;
      }
      if (word == ".file") return file_directive();
      if (word == ".loc") return (void)loc_directive();
      if (word == ".section") return skip_section();
      if (word == ".pragma") {
        quoted();
        expect(';');
        return;
      }
      if (word == ".alias") {
        const std::string alias(name());
        expect(',');
        module_.aliases[alias] = std::string(name());
        expect(';');
        return;
      }
      if (word == ".visible" || word == ".weak" || word == ".common") {
        local = false;
        continue;
      }
      if (word == ".extern") {
        external = true;
        local = false;
        continue;
      }
      if (word == ".entry" || word == ".func") return function(word == ".entry", local);
      if (word == ".global" || word == ".const" || word == ".shared") {
        pos_ = before;
        return module_variable(external, local);
      }
      fail("unknown directive '" + std::string(word) + "'");
    }
  }
  // ---- linking of several files ---------------------------------------------------------------
  void begin_file() {
    if (file_number_++ == 0) return;
    resolve_locations();
    files_.clear();
    renames_.clear();
  }
  // The name that a definition or declaration of this file goes by in the module: what others do not
  // see gives way when the name is taken.
  std::string linked_name(std::string_view n, bool local) {
    std::string key(n);
    const auto owner = owners_.try_emplace(key, Owner{file_number_, local}).first->second;
    if (owner.file == file_number_) return key;
    if (local) {
      if (const auto it = renames_.find(n); it != renames_.end()) return std::string(it->second);
      out_.renamed.push_back(key + "$" + std::to_string(file_number_));
      renames_[n] = out_.renamed.back();
      return out_.renamed.back();
    }
    if (owner.local)
      fail("'" + key +
           "' is seen by other files here and by its own file only in one before: linking these is "
           "not supported");
    return key;
  }
  std::string_view link(std::string_view n) const {
    if (renames_.empty()) return n;
    const auto it = renames_.find(n);
    return it == renames_.end() ? n : it->second;
  }

  void dotted_number() {
    skip_space();
    while (std::isdigit(static_cast<unsigned char>(peek())) || peek() == '.') ++pos_;
  }
  void skip_section() {
    skip_space();
    while (!at_end() && peek() != '{') {
      if (peek() == '\n') ++line_;
      ++pos_;
    }
    int depth = 0;
    while (!at_end()) {
      const char c = text_[pos_++];
      if (c == '\n') ++line_;
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) return;
    }
    fail(".section without end");
  }

  void file_directive() {
    const int index = static_cast<int>(integer());
    files_[index] = quoted();
    while (accept(',')) integer();
  }

  // Locations are kept raw and resolved at the end, when the names of the files are known.
  using Position = std::tuple<int, int, int>;  // file, line, column
  struct RawLocation {
    Position at;
    Position inlined_at{-1, 0, 0};  // file -1: not inlined
    std::size_t outer = kNoOuter;   // the location that inlined_at means, in raw_locations_
    static constexpr std::size_t kNoOuter = ~std::size_t{0};
  };
  Position position() {
    const int file = static_cast<int>(integer());
    const int line = static_cast<int>(integer());
    return {file, line, static_cast<int>(integer())};
  }
  std::uint32_t loc_directive() {
    RawLocation raw{position()};
    while (accept(',')) {
      if (accept_word("function_name")) {
        name();
        if (accept('+')) integer();
      } else if (accept_word("inlined_at")) {
        raw.inlined_at = position();
      } else {
        fail("unknown attribute of .loc: '" + near() + "'");
      }
    }
    // The compiler writes the place of a call before what was inlined there, once in a function.
    // The same place may stand there several times, inlined at different calls: as ptxas takes it,
    // the last one counts.
    if (const auto it = latest_.find(raw.inlined_at); it != latest_.end()) raw.outer = it->second;
    latest_[raw.at] = raw_locations_.size();
    raw_locations_.push_back(raw);
    module_.locations.emplace_back();
    return static_cast<std::uint32_t>(module_.locations.size() - 1);
  }
  // Those of one file.
  void resolve_locations() {
    for (std::size_t i = 0; i < raw_locations_.size(); ++i) {
      const RawLocation* raw = &raw_locations_[i];
      Position at = raw->at;
      while (std::get<0>(raw->inlined_at) >= 0 && is_toolkit_file(files_[std::get<0>(at)])) {
        at = raw->inlined_at;
        if (raw->outer == RawLocation::kNoOuter) break;
        raw = &raw_locations_[raw->outer];  // stands before it
      }
      module_.locations[first_location_ + i] = {files_[std::get<0>(at)], std::get<1>(at)};
    }
    latest_.clear();
    raw_locations_.clear();
    first_location_ = module_.locations.size();
  }

  // ---- variables -----------------------------------------------------------------------------
  struct Declaration {
    std::string_view name;
    Type type = Type::none;
    std::uint64_t elements = 1, element_bytes = 0;
    std::uint32_t align = 1;
    bool unsized = false, managed = false;
    std::uint64_t bytes() const { return elements * element_bytes; }
  };
  // After the state space: [.align N] [.v2|.v4] .type [.ptr ...] name [dims]
  Declaration declaration(bool named = true) {
    Declaration d;
    std::uint32_t vector = 1, align = 0;
    for (;;) {
      skip_space();
      if (peek() != '.') break;
      const std::string_view word = directive();
      if (word == ".align") {
        align = static_cast<std::uint32_t>(integer());
        if (align == 0 || (align & (align - 1)) || align > 65536) fail("bad alignment");
      } else if (word == ".v2" || word == ".v4" || word == ".v8") {
        vector = word[2] - '0';
      } else if (word == ".ptr") {
        while (skip_space(), peek() == '.') {
          const std::string_view attribute = directive();
          if (attribute == ".align") integer();
        }
        break;
      } else if (word == ".attribute") {
        expect('(');
        const std::size_t begin = pos_;
        while (!at_end() && peek() != ')') ++pos_;
        d.managed |= text_.substr(begin, pos_ - begin).find(".managed") != std::string_view::npos;
        expect(')');
      } else {
        d.type = type_from_name(word.substr(1));
        if (d.type == Type::none) fail("unknown type '" + std::string(word) + "'");
      }
    }
    if (d.type == Type::none) fail("a declaration without a type");
    d.element_bytes = vector * std::max(1, type_bits(d.type) / 8);
    d.align = align ? align : static_cast<std::uint32_t>(d.element_bytes);
    declarator(d, named);
    return d;
  }
  // name [dims]; a list of them shares what stands before
  void declarator(Declaration& d, bool named = true) {
    d.elements = 1;
    d.unsized = false;
    skip_space();
    if (named || starts_name(peek())) d.name = name();
    while (accept('[')) {
      if (accept(']')) {
        d.unsized = true;
        d.elements = 0;
        continue;
      }
      const std::int64_t n = integer();
      if (n < 0 || (n > 0 && d.elements > kMaxVariableBytes / n)) fail("array too large");
      d.elements *= static_cast<std::uint64_t>(n);
      expect(']');
    }
    if (d.bytes() > kMaxVariableBytes) fail("array too large");
  }

  // Of a function's body, `fn`, only its scope sees the name.
  void module_variable(bool external, bool local, const Function* fn = nullptr) {
    const std::string_view word = directive();
    const Space space = word == ".global"  ? Space::global
                        : word == ".const" ? Space::constant
                                           : Space::shared;
    const Declaration shared_part = declaration();
    for (Declaration d = shared_part;; d = shared_part, declarator(d)) {
      auto global = std::make_unique<Global>();
      global->name = fn ? own_name(*fn, d.name) : linked_name(d.name, local);
      global->space = space;
      global->align = d.align;
      global->external = external;
      global->managed = d.managed;
      if (accept('=')) initializer(*global, d);
      global->size = d.bytes();
      if (d.unsized && !external && global->init.empty())
        fail("array '" + global->name + "' without a size");
      // A declaration says nothing new, and of weak definitions in several files the first one counts.
      auto& slot = module_.globals[global->name];
      const bool taken =
          slot && !slot->external && (external || owners_.at(global->name).file != file_number_);
      if (!taken) {
        if (slot) {
          global->align = std::max(global->align, slot->align);
          if (!external) owners_[global->name].file = file_number_;
        }
        slot = std::move(global);
      }
      if (!accept(',')) break;
    }
    expect(';');
  }
  // A name that the module does not have yet, for a variable of a function's body.
  std::string own_name(const Function& fn, std::string_view n) {
    const std::string key = fn.name + "$" + std::string(n);
    std::string free = key;
    for (int i = 1; owners_.count(free); ++i) free = key + "$" + std::to_string(i);
    owners_[free] = {file_number_, true};
    scopes_.back().globals[n] = out_.renamed.emplace_back(free);
    return free;
  }
  void initializer(Global& global, Declaration& d) {
    std::uint64_t element = 0;
    const std::uint64_t scalar = std::max(1, type_bits(d.type) / 8);
    initializer_item(global, d, element, scalar, 0);
    if (d.unsized) {
      d.elements = element;
      d.unsized = false;
      d.element_bytes = scalar;
    }
  }
  void initializer_item(Global& global, const Declaration& d, std::uint64_t& element,
                        std::uint64_t scalar, int depth) {
    if (depth > kMaxNesting) fail("initializer nested too deep");
    if (accept('{')) {
      if (accept('}')) return;
      do initializer_item(global, d, element, scalar, depth + 1);
      while (accept(','));
      expect('}');
      return;
    }
    const std::uint64_t at = element++ * scalar;
    if (!d.unsized && at + scalar > d.bytes()) fail("more values than '" + global.name + "' holds");
    if (global.init.size() < at + scalar) global.init.resize(at + scalar);
    std::int64_t value = 0;
    int bits = 0;
    if (number(value, bits)) {
      // 0xFF(symbol) takes one byte of an address: refused by name, no compiler output seen uses it.
      if (accept('(')) fail("masked addresses in initializers are not supported");
      if (bits == 64 && scalar == 4) {
        double v;
        std::memcpy(&v, &value, 8);
        const float f = static_cast<float>(v);
        std::memcpy(&value, &f, 4);
      }
      std::memcpy(global.init.data() + at, &value, std::min<std::uint64_t>(scalar, 8));
      return;
    }
    Global::Relocation relocation{at, {}, 0, false, static_cast<int>(scalar)};
    std::string_view symbol = name();
    if (symbol == "generic" && accept('(')) {
      relocation.generic = true;
      symbol = name();
      expect(')');
    }
    relocation.symbol = std::string(link(symbol));
    if (accept('+')) relocation.addend = integer();
    global.relocations.push_back(std::move(relocation));
  }

  // ---- functions -----------------------------------------------------------------------------
  // "( .param .b32 a, .reg .b32 b )"; offsets as the ABI lays them out.
  // Types of those that stand in registers go to `registers` (none: it stands in memory).
  std::vector<Param> param_list(std::uint32_t& bytes, std::vector<Type>* registers = nullptr) {
    std::vector<Param> params;
    bytes = 0;
    expect('(');
    if (accept(')')) return params;
    do {
      if (skip_space(), peek() == '.' && text_.substr(pos_, 4) == "....") fail("bad parameter");
      const std::string_view space = directive();
      if (space != ".param" && space != ".reg")
        fail("unknown parameter space '" + std::string(space) + "'");
      const Declaration d = declaration(false);
      Param p;
      p.name = std::string(d.name);
      p.align = d.align;
      p.size = static_cast<std::uint32_t>(std::min<std::uint64_t>(d.bytes(), 1u << 20));
      bytes = (bytes + p.align - 1) / p.align * p.align;
      p.offset = bytes;
      bytes += p.size;
      if (bytes > (1u << 20)) fail("parameters larger than 1 MiB");
      if (registers) registers->push_back(space == ".reg" ? d.type : Type::none);
      params.push_back(std::move(p));
    } while (accept(','));
    expect(')');
    return params;
  }

  void function(bool entry, bool local) {
    auto fn = std::make_unique<Function>();
    fn->entry = entry;
    std::uint32_t result_bytes = 0;
    result_types_.clear();
    param_types_.clear();
    skip_space();
    if (!entry) {
      if (accept_attribute()) skip_space();
      if (peek() == '(') fn->results = param_list(result_bytes, &result_types_);
    }
    fn->name = linked_name(name(), local);
    skip_space();
    if (peek() == '(') fn->params = param_list(fn->param_bytes, &param_types_);
    if (entry && std::any_of(param_types_.begin(), param_types_.end(),
                             [](Type t) { return t != Type::none; }))
      fail("parameters of a kernel stand in .param, not in .reg");
    // Directives between head and body.
    while (skip_space(), peek() == '.') {
      const std::string_view word = directive();
      if (word == ".maxntid" || word == ".reqntid") {
        std::uint32_t n[3] = {1, 1, 1};
        for (int i = 0; i < 3; ++i) {
          n[i] = static_cast<std::uint32_t>(integer());
          if (!accept(',')) break;
        }
        const std::uint64_t product = std::uint64_t{n[0]} * n[1] * n[2];
        fn->max_threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(product, 1024));
        if (word == ".reqntid") std::copy(n, n + 3, fn->required_block);
      } else if (word == ".minnctapersm") {
        fn->min_blocks = static_cast<std::uint32_t>(integer());
      } else if (word == ".pragma") {
        quoted();
        accept(';');
      } else if (word == ".reqnctapercluster") {
        std::fill_n(fn->required_cluster, 3, 1u);
        for (std::uint32_t& n : fn->required_cluster) {
          n = static_cast<std::uint32_t>(integer());
          if (n == 0) fail(".reqnctapercluster 0: a cluster has at least one block");
          if (!accept(',')) break;
        }
      } else if (word == ".maxclusterrank") {
        fn->max_cluster = static_cast<std::uint32_t>(integer());
      } else if (word == ".explicitcluster") {
        fn->explicit_cluster = true;
      } else if (word == ".blocksareclusters") {
        fn->blocks_are_clusters = true;
      } else if (word == ".noreturn") {
      } else {  // .maxnreg, .abi_preserve ...: numbers
        do integer();
        while (accept(','));
      }
    }
    fn->module = &module_;
    fn->display = fn->name;
    Body body;
    if (accept('{')) {
      function_body(*fn, body);
      body.has_body = true;
    } else {
      expect(';');
    }
    auto& slot = module_.functions[fn->name];
    // Of definitions in several files (templates, inline functions) the first one counts.
    const bool again = slot && file_number_ > 1 && out_.bodies[fn->name].has_body;
    if (!slot || (body.has_body && !again)) {
      const std::string key = fn->name;
      // A definition after a declaration keeps the object, so that pointers to it stay right.
      if (slot)
        *slot = std::move(*fn);
      else
        slot = std::move(fn);
      out_.bodies[key] = std::move(body);
    }
  }
  bool accept_attribute() {
    skip_space();
    if (text_.substr(pos_, 11) != ".attribute(") return false;
    while (!at_end() && peek() != ')') ++pos_;
    expect(')');
    return true;
  }

  struct Scope {
    struct Named {
      std::uint32_t first, width;  // of a vector register: as many registers
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

  std::uint32_t add_register(Type type) {
    if (++declared_registers_ > kMaxRegisters) fail("too many registers");
    body_->registers.push_back({type, {}});
    return static_cast<std::uint32_t>(body_->registers.size() - 1);
  }
  // `width` is above 1 for a vector register, whose parts follow each other.
  bool find_register(std::string_view n, std::uint32_t& id, std::uint32_t& width) const {
    std::size_t digits = n.size();
    while (digits > 0 && std::isdigit(static_cast<unsigned char>(n[digits - 1]))) --digits;
    for (std::size_t s = scopes_.size(); s-- > 0;) {
      const Scope& scope = scopes_[s];
      if (const auto it = scope.registers.find(n); it != scope.registers.end()) {
        id = it->second.first;
        width = it->second.width;
        return true;
      }
      if (digits < n.size() && n.size() - digits < 9) {
        if (const auto it = scope.ranges.find(n.substr(0, digits)); it != scope.ranges.end()) {
          std::uint32_t number = 0;
          for (char c : n.substr(digits)) number = number * 10 + (c - '0');
          if (number < it->second.count) {
            width = it->second.width;
            id = it->second.first + number * width;
            return true;
          }
        }
      }
    }
    return false;
  }

  void function_body(Function& fn, Body& body) {
    body_ = &body;
    scopes_.clear();
    scopes_.emplace_back();
    body.scope_parent.push_back(0);
    body.labels.emplace_back();
    location_ = 0;
    latest_.clear();
    if (!fn.entry) {
      for (std::size_t i = 0; i < fn.results.size(); ++i)
        declare_parameter(fn.results[i], result_types_[i], true);
      for (std::size_t i = 0; i < fn.params.size(); ++i)
        declare_parameter(fn.params[i], param_types_[i], false);
    }
    for (;;) {
      skip_space();
      if (at_end()) fail("function '" + fn.name + "' without end");
      const char c = peek();
      if (c == '}') {
        ++pos_;
        scopes_.pop_back();
        if (scopes_.empty()) {
          for (Statement& store : result_stores_) body.statements.push_back(std::move(store));
          result_stores_.clear();
          break;
        }
      } else if (c == '{') {
        ++pos_;
        if (scopes_.size() > kMaxNesting) fail("blocks nested too deep");
        body.scope_parent.push_back(scopes_.back().id);
        body.labels.emplace_back();
        scopes_.emplace_back();
        scopes_.back().id = static_cast<std::uint32_t>(body.labels.size() - 1);
      } else if (c == '.') {
        body_directive(fn);
      } else if (c == ';') {
        ++pos_;
      } else {
        statement();
      }
    }
    body_ = nullptr;
  }

  std::uint32_t declare_variable(std::string_view n, Space space, std::uint64_t size,
                                 std::uint32_t align) {
    if (size > (1u << 30)) fail("variable '" + std::string(n) + "' is larger than 1 GiB");
    body_->variables.push_back({std::string(n), space, static_cast<std::uint32_t>(size), align, 0});
    const auto index = static_cast<std::uint32_t>(body_->variables.size() - 1);
    scopes_.back().variables[n] = index;
    return index;
  }

  // ---- parameters in registers: moved through memory, as those in .param are -------------------
  // `ld.param` or `st.param` of one register, or of a number.
  Statement transfer(bool load, const Operand& value, Type type, std::uint32_t variable) {
    Operand place, area;
    area.kind = Operand::Kind::variable;
    area.reg = variable;
    place.kind = Operand::Kind::memory;
    place.parts.push_back(std::move(area));
    Statement s;
    switch (type_bits(type)) {
      case 16:
        s.name = load ? "ld.param.b16" : "st.param.b16";
        break;
      case 32:
        s.name = load ? "ld.param.b32" : "st.param.b32";
        break;
      case 64:
        s.name = load ? "ld.param.b64" : "st.param.b64";
        break;
      default:
        fail("a parameter in a register of type ." + std::string(type_name(type)));
    }
    s.line = line_;
    s.location = location_;
    s.scope = scopes_.back().id;
    s.operands = load ? std::vector<Operand>{value, place} : std::vector<Operand>{place, value};
    return s;
  }
  void declare_parameter(const Param& p, Type in_register, bool result) {
    if (in_register == Type::none) {
      declare_variable(p.name, Space::param, p.size, p.align);
      return;
    }
    const std::uint32_t variable = declare_variable("", Space::param, p.size, p.align);
    Operand value;
    value.kind = Operand::Kind::reg;
    value.name = p.name;
    value.reg = add_register(in_register);
    scopes_.back().registers[p.name] = {value.reg, 1};
    auto& list = result ? result_stores_ : body_->statements;
    list.push_back(transfer(!result, value, in_register, variable));
  }
  // Puts variables in the place of a call's registers and numbers; what has to be moved goes to `moves`.
  void through_memory(Operand& list, bool load, std::vector<Statement>& moves) {
    for (Operand& o : list.parts) {
      Type type = Type::b64;
      if (o.kind == Operand::Kind::reg)
        type = body_->registers[o.reg].type;
      else if (o.kind == Operand::Kind::real && o.bits == 32)
        type = Type::b32;
      else if (load || (o.kind != Operand::Kind::real && o.kind != Operand::Kind::integer))
        continue;
      const std::uint32_t bytes = static_cast<std::uint32_t>(type_bits(type)) / 8;
      const std::uint32_t variable =
          declare_variable("", Space::param, std::max(bytes, 1u), std::max(bytes, 1u));
      moves.push_back(transfer(load, o, type, variable));
      o = moves.back().operands[load].parts[0];
    }
  }

  void registers() {
    Type type = Type::none;
    std::uint32_t width = 1;
    do {
      const std::string_view t = directive();
      if (t == ".v2" || t == ".v4") {
        width = t[2] - '0';
        continue;
      }
      type = type_from_name(t.substr(1));
      if (type == Type::none) fail("unknown register type '" + std::string(t) + "'");
    } while (skip_space(), peek() == '.');
    if (width > 1 && type == Type::pred) fail("a vector register of predicates");
    if (width * type_bits(type) > 128) fail("a vector register of more than 128 bits");
    do {
      const std::string_view n = name();
      std::int64_t count = 1;
      const auto first = static_cast<std::uint32_t>(body_->registers.size());
      if (accept('<')) {
        count = integer();
        if (count < 0 || count > kMaxRegisters) fail("bad register count");
        expect('>');
        scopes_.back().ranges[n] = {first, static_cast<std::uint32_t>(count), width};
      } else {
        scopes_.back().registers[n] = {first, width};
      }
      for (std::int64_t i = 0; i < count * width; ++i) add_register(type);
    } while (accept(','));
    expect(';');
  }

  void body_directive(Function& fn) {
    const std::size_t before = pos_;
    const std::string_view word = directive();
    if (word == ".loc") {
      location_ = loc_directive();
    } else if (word == ".file") {
      file_directive();
    } else if (word == ".pragma") {
      quoted();
      while (accept(',')) quoted();
      expect(';');
    } else if (word == ".reg") {
      registers();
    } else if (word == ".global" || word == ".const") {
      pos_ = before;
      module_variable(false, true, &fn);
    } else if (word == ".local" || word == ".shared" || word == ".param") {
      const Space space = word == ".local"    ? Space::local
                          : word == ".shared" ? Space::shared
                                              : Space::param;
      for (Declaration d = declaration();; declarator(d)) {
        declare_variable(d.name, space, d.bytes(), d.align);
        if (!accept(',')) break;
      }
      expect(';');
    } else if (word == ".section") {
      skip_section();
    } else {
      fail("unknown directive '" + std::string(word) + "' in a function");
    }
  }

  void statement() {
    const std::size_t start = pos_;
    const std::uint32_t start_line = line_;
    // A label?
    if (starts_name(peek()) && peek() != '%') {
      const std::string_view label = name();
      skip_space();
      if (peek() == ':' && peek(1) != ':') {
        ++pos_;
        return labelled(label);
      }
      pos_ = start;
      line_ = start_line;
    }
    Statement s;
    s.line = line_;
    s.location = location_;
    s.scope = scopes_.back().id;
    if (accept('@')) {
      s.guard_not = accept('!');
      std::uint32_t id = 0, width = 1;
      const std::string_view n = name();
      if (!find_register(n, id, width)) fail("unknown guard predicate '" + std::string(n) + "'");
      if (body_->registers[id].type != Type::pred)
        fail("guard '" + std::string(n) + "' is not a predicate");
      s.guard = static_cast<std::int32_t>(id);
    }
    s.name = dotted();
    skip_space();
    if (peek() != ';') {
      do s.operands.push_back(operand(0));
      while (accept(','));
    }
    expect(';');
    if (s.name.starts_with("mov.v") && s.operands.size() == 2 &&
        s.operands[0].kind == Operand::Kind::vector && s.operands[1].kind == Operand::Kind::vector)
      return move_vector(s);
    std::vector<Statement> before, after;
    if (s.name == "ret" || s.name == "ret.uni") {
      before = result_stores_;
    } else if (s.name == "call" || s.name == "call.uni") {
      for (std::size_t i = 0; i < s.operands.size(); ++i)
        if (s.operands[i].kind == Operand::Kind::list)
          through_memory(s.operands[i], i == 0, i == 0 ? after : before);
    }
    auto push = [&](Statement& moved) {
      moved.guard = s.guard;
      moved.guard_not = s.guard_not;
      moved.line = s.line;
      moved.location = s.location;
      moved.scope = s.scope;
      body_->statements.push_back(std::move(moved));
    };
    for (Statement& move : before) push(move);
    const std::size_t at = body_->statements.size();
    body_->statements.push_back({});
    for (Statement& move : after) push(move);
    body_->statements[at] = std::move(s);
  }

  // "mov.v2.f32 v, w": each part by itself.
  void move_vector(const Statement& s) {
    const std::vector<Operand>&to = s.operands[0].parts, &from = s.operands[1].parts;
    const Type type = type_from_name(s.name.substr(std::min(s.name.size(), std::size_t{7})));
    if (to.size() != from.size() || s.name.size() < 8 || s.name[6] != '.' ||
        to.size() != static_cast<std::size_t>(s.name[5] - '0'))
      fail("'" + std::string(s.name) + "' with vectors of " + std::to_string(to.size()) + " and " +
           std::to_string(from.size()) + " parts");
    for (std::size_t i = 0; i < to.size(); ++i)
      for (std::size_t later = i + 1; later < to.size(); ++later)
        if (from[later].kind == Operand::Kind::reg && from[later].reg == to[i].reg)
          fail("a vector that is moved to a part of itself");
    const int bits = type_bits(type);
    for (std::size_t i = 0; i < to.size(); ++i) {
      Statement part = s;
      part.name = bits == 16 ? "mov.b16" : bits == 32 ? "mov.b32" : bits == 64 ? "mov.b64" : s.name;
      part.operands = {to[i], from[i]};
      body_->statements.push_back(std::move(part));
    }
  }

  void labelled(std::string_view label) {
    skip_space();
    if (text_.substr(pos_, 14) == ".branchtargets") {
      dotted();
      auto& targets = body_->branch_targets[label];
      do targets.push_back(name());
      while (accept(','));
      expect(';');
      return;
    }
    if (text_.substr(pos_, 14) == ".callprototype") {
      dotted();
      ast::Prototype prototype;
      std::uint32_t bytes = 0;
      skip_space();
      if (peek() == '(') prototype.results = param_list(bytes);
      name();  // "_"
      skip_space();
      if (peek() == '(') prototype.params = param_list(bytes);
      while (skip_space(), peek() == '.') {
        dotted();
        skip_space();
        if (std::isdigit(static_cast<unsigned char>(peek()))) integer();
      }
      expect(';');
      body_->prototypes[label] = std::move(prototype);
      return;
    }
    if (text_.substr(pos_, 12) == ".calltargets") {
      while (!at_end() && peek() != ';') ++pos_;
      expect(';');
      return;
    }
    auto& labels = body_->labels[scopes_.back().id];
    if (!labels.emplace(label, static_cast<std::uint32_t>(body_->statements.size())).second)
      fail("label '" + std::string(label) + "' stands twice");
  }

  // A vector register stands for its parts, "v.y" or "v.g" for one of them.
  void vector_register(Operand& o, std::uint32_t width) {
    const Operand first = o;
    if (peek() == '.' && peek(1) != '\0' && !in_name(peek(2))) {
      for (const std::string_view letters : {"xyzw", "rgba"})
        if (const std::size_t part = letters.find(peek(1)); part < width) {
          pos_ += 2;
          o.reg += static_cast<std::uint32_t>(part);
          return;
        }
      fail("'" + std::string(o.name) + "' has no part '" + near() + "'");
    }
    o.kind = Operand::Kind::vector;
    for (std::uint32_t i = 0; i < width; ++i) {
      o.parts.push_back(first);
      o.parts.back().reg += i;
    }
  }

  // Numbers and operators as in C: what may stand behind the base of an address or as an operand.
  std::int64_t factor(int depth = 0) {
    if (depth > kMaxNesting) fail("expression nested too deep");
    if (accept('(')) {
      const std::int64_t value = expression(depth + 1);
      expect(')');
      return value;
    }
    if (accept('-')) return wrapped(0, factor(depth + 1), '-');
    if (accept('+')) return factor(depth + 1);
    if (accept('~')) return ~factor(depth + 1);
    return integer();
  }
  std::int64_t product(std::int64_t value, int depth = 0) {
    for (;;) {
      skip_space();
      const char c = peek();
      if (c != '*' && c != '/' && c != '%') return value;
      if (c == '/' && (peek(1) == '/' || peek(1) == '*')) return value;
      ++pos_;
      const std::int64_t other = factor(depth);
      if (c != '*' && (other == 0 || other == -1)) fail("division by " + std::to_string(other));
      value = wrapped(value, other, c);
    }
  }
  std::int64_t expression(int depth = 0) { return sum(product(factor(depth), depth), depth); }
  std::int64_t sum(std::int64_t value, int depth = 0) {
    for (;;) {
      skip_space();
      const char c = peek();
      if (c != '+' && c != '-') return value;
      ++pos_;
      value = wrapped(value, product(factor(depth), depth), c);
    }
  }
  static std::int64_t wrapped(std::int64_t a, std::int64_t b, char operation) {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    switch (operation) {
      case '+':
        return static_cast<std::int64_t>(x + y);
      case '-':
        return static_cast<std::int64_t>(x - y);
      case '*':
        return static_cast<std::int64_t>(x * y);
      default:
        return operation == '/' ? a / b : a % b;
    }
  }

  Operand operand(int depth) {
    if (depth > kMaxNesting) fail("operand nested too deep");
    skip_space();
    Operand o;
    const char c = peek();
    if (c == '{' || c == '(') {
      ++pos_;
      const char close = c == '{' ? '}' : ')';
      o.kind = c == '{' ? Operand::Kind::vector : Operand::Kind::list;
      if (accept(close)) return o;
      do o.parts.push_back(operand(depth + 1));
      while (accept(','));
      expect(close);
      return o;
    }
    if (c == '[') {
      ++pos_;
      o.kind = Operand::Kind::memory;
      Operand base = operand(depth + 1);
      if (base.kind == Operand::Kind::symbol || base.kind == Operand::Kind::variable) {
        o.value = base.value;
        base.value = 0;
      }
      o.parts.push_back(std::move(base));
      o.value = sum(o.value);
      while (accept(',')) o.parts.push_back(operand(depth + 1));
      expect(']');
      return o;
    }
    if (c == '!') {
      ++pos_;
      o = operand(depth + 1);
      o.negated = !o.negated;
      return o;
    }
    std::int64_t value;
    int bits;
    if (number(value, bits)) {
      o.kind = bits ? Operand::Kind::real : Operand::Kind::integer;
      o.bits = static_cast<std::uint8_t>(bits);
      o.value = bits ? value : sum(product(value));
      return o;
    }
    if (!starts_name(c)) fail("expected an operand, found '" + near() + "'");
    const std::size_t start = pos_;
    std::string_view n = name();
    if (n == "_") {
      o.kind = Operand::Kind::sink;
    } else if (n == "WARP_SZ") {
      o.kind = Operand::Kind::integer;
      o.value = kWarpSize;
      return o;
    } else if (std::uint32_t width = 1; find_register(n, o.reg, width)) {
      o.kind = Operand::Kind::reg;
      o.name = n;
      if (width > 1) {
        vector_register(o, width);
      } else if (peek() == '.' && (peek(1) == 'b' || peek(1) == 'h')) {
        ++pos_;
        o.selector = name();
      }
    } else if (n[0] == '%') {
      pos_ = start;
      n = dotted();
      o.kind = Operand::Kind::special;
      o.name = n.substr(1);
      return o;
    } else {
      o.kind = Operand::Kind::symbol;
      o.name = link(n);
      for (std::size_t s = scopes_.size(); s-- > 0;) {
        if (const auto g = scopes_[s].globals.find(n); g != scopes_[s].globals.end()) {
          o.name = g->second;
          break;
        }
        const auto it = scopes_[s].variables.find(n);
        if (it == scopes_[s].variables.end()) continue;
        o.kind = Operand::Kind::variable;
        o.reg = it->second;
        break;
      }
      o.value = sum(0);
    }
    skip_space();
    if (peek() == '|') {
      ++pos_;
      Operand pair;
      pair.kind = Operand::Kind::pair;
      pair.parts.push_back(std::move(o));
      pair.parts.push_back(operand(depth + 1));
      return pair;
    }
    return o;
  }

  ParsedModule& out_;
  Module& module_;
  std::string_view text_;
  std::size_t pos_ = 0;
  std::uint32_t line_ = 1;
  std::map<int, std::string> files_;
  std::vector<RawLocation> raw_locations_;
  std::map<Position, std::size_t> latest_;  // of the function that is read: in raw_locations_
  std::size_t first_location_ = 1;  // of the file that is read
  int file_number_ = 0;
  struct Owner {
    int file;
    bool local;
  };
  std::map<std::string, Owner, std::less<>> owners_;      // of names of the module
  std::map<std::string_view, std::string_view> renames_;  // of the file that is read
  std::vector<Scope> scopes_;
  Body* body_ = nullptr;
  std::vector<Type> result_types_, param_types_;  // of the function's parameters in registers
  std::vector<Statement> result_stores_;          // what a `ret` does for them
  std::uint32_t location_ = 0;
  std::uint32_t declared_registers_ = 0;  // in all functions
};

}  // namespace

std::unique_ptr<ParsedModule> parse_ptx(std::string text) {
  auto parsed = std::make_unique<ParsedModule>();
  Module& module = parsed->module;
  module.text = std::move(text);
  Parser(*parsed).run();
  const std::string_view all = module.text;
  for (std::size_t start = 0; start <= all.size();) {
    const std::size_t end = std::min(all.find('\n', start), all.size());
    module.lines.push_back(all.substr(start, end - start));
    start = end + 1;
  }
  return parsed;
}

const Function* Module::find(std::string_view name) const {
  const auto it = functions.find(name);
  return it == functions.end() ? nullptr : it->second.get();
}

}  // namespace vgpu
