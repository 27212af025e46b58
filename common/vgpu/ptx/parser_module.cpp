// What stands outside of functions: directives, variables, several files in one text.
#include "parser.h"

#include <algorithm>
#include <cstring>

#include "paths.h"

namespace vgpu {

namespace {

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

}  // namespace

void Parser::top_level() {
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

void Parser::begin_file() {
  if (file_number_++ == 0) return;
  resolve_locations();
  // Their files' numbers and names are this file's.
  while (!later_.empty()) read_body(std::string(later_.begin()->first));
  files_.clear();
  renames_.clear();
}

std::string Parser::linked_name(std::string_view n, bool local) {
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

std::string_view Parser::link(std::string_view n) const {
  if (renames_.empty()) return n;
  const auto it = renames_.find(n);
  return it == renames_.end() ? n : it->second;
}

void Parser::dotted_number() {
  skip_space();
  while (std::isdigit(static_cast<unsigned char>(peek())) || peek() == '.') ++pos_;
}

void Parser::skip_section() {
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

void Parser::file_directive() {
  const int index = static_cast<int>(integer());
  files_[index] = normal_path(std::string(quoted()));
  while (accept(',')) integer();
}

Parser::Position Parser::position() {
  const int file = static_cast<int>(integer());
  const int line = static_cast<int>(integer());
  return {file, line, static_cast<int>(integer())};
}

std::uint32_t Parser::loc_directive() {
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
  if (free_location_ < end_of_free_locations_) {
    raw.index = free_location_++;
  } else {
    raw.index = module_.locations.size();
    module_.locations.emplace_back();
  }
  raw_locations_.push_back(raw);
  return static_cast<std::uint32_t>(raw.index);
}

void Parser::resolve_locations() {
  for (const RawLocation& location : raw_locations_) {
    const RawLocation* raw = &location;
    Position at = raw->at;
    while (std::get<0>(raw->inlined_at) >= 0 && is_toolkit_file(files_[std::get<0>(at)])) {
      at = raw->inlined_at;
      if (raw->outer == RawLocation::kNoOuter) break;
      raw = &raw_locations_[raw->outer];  // stands before it
    }
    const bool inlined = std::get<0>(raw->inlined_at) >= 0 && raw->outer != RawLocation::kNoOuter;
    module_.locations[location.index] = {
        files_[std::get<0>(at)], std::get<1>(at),
        inlined ? static_cast<std::uint32_t>(raw_locations_[raw->outer].index) : 0};
  }
  latest_.clear();
  raw_locations_.clear();
}

Parser::Declaration Parser::declaration(bool named) {
  Declaration d;
  std::uint32_t align = 0;
  for (;;) {
    skip_space();
    if (peek() != '.') break;
    const std::string_view word = directive();
    if (word == ".align") {
      align = static_cast<std::uint32_t>(integer());
      if (align == 0 || (align & (align - 1)) || align > 65536) fail("bad alignment");
    } else if (word == ".v2" || word == ".v4" || word == ".v8") {
      d.vector = word[2] - '0';
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
  d.element_bytes = d.vector * std::max(1, type_bits(d.type) / 8);
  d.align = align ? align : static_cast<std::uint32_t>(d.element_bytes);
  declarator(d, named);
  return d;
}

void Parser::declarator(Declaration& d, bool named) {
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

void Parser::module_variable(bool external, bool local, const Function* fn) {
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

std::string Parser::own_name(const Function& fn, std::string_view n) {
  const std::string key = fn.name + "$" + std::string(n);
  std::string free = key;
  for (int i = 1; owners_.count(free); ++i) free = key + "$" + std::to_string(i);
  owners_[free] = {file_number_, true};
  scopes_.back().globals[n] = out_.renamed.emplace_back(free);
  return free;
}

void Parser::initializer(Global& global, Declaration& d) {
  std::uint64_t element = 0;
  const std::uint64_t scalar = std::max(1, type_bits(d.type) / 8);
  initializer_item(global, d, element, scalar, 0);
  if (d.unsized) {
    d.elements = element;
    d.unsized = false;
    d.element_bytes = scalar;
  }
}

void Parser::initializer_item(Global& global, const Declaration& d, std::uint64_t& element,
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

}  // namespace vgpu
