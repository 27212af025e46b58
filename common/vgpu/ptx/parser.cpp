// PTX text -> ast: functions, their registers and statements.
#include "parser.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace vgpu {

void Parser::run() {
  module_.locations.emplace_back();
  for (;;) {
    skip_space();
    if (at_end()) break;
    top_level();
  }
  if (module_.sm == 0) fail("no .target directive: this is not PTX");
  resolve_locations();
}

std::vector<Param> Parser::param_list(std::uint32_t& bytes, std::vector<Registers>* registers) {
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
    if (space == ".reg" &&
        (d.elements != 1 || d.element_bytes > 16 || (d.type == Type::pred && d.vector > 1)))
      fail("parameter '" + p.name + "' does not fit into registers");
    if (registers)
      registers->push_back(space == ".reg" ? Registers{d.type, d.vector} : Registers{});
    params.push_back(std::move(p));
  } while (accept(','));
  expect(')');
  return params;
}

void Parser::function(bool entry, bool local) {
  auto fn = std::make_unique<Function>();
  fn->entry = entry;
  std::uint32_t result_bytes = 0;
  result_registers_.clear();
  param_registers_.clear();
  skip_space();
  if (!entry) {
    if (accept_attribute()) skip_space();
    if (peek() == '(') fn->results = param_list(result_bytes, &result_registers_);
  }
  fn->name = linked_name(name(), local);
  skip_space();
  if (peek() == '(') fn->params = param_list(fn->param_bytes, &param_registers_);
  if (entry && std::any_of(param_registers_.begin(), param_registers_.end(),
                           [](const Registers& r) { return r.type != Type::none; }))
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
    } else if (word == ".maxnreg") {
      fn->max_registers = static_cast<std::uint32_t>(integer());
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
  Later later;
  bool is_later = false;
  if (accept('{')) {
    is_later = entry && bodies_ == Bodies::at_first_use && skip_body(later);
    if (!is_later) function_body(*fn, body);
    body.has_body = true;
  } else {
    expect(';');
  }
  auto& slot = module_.functions[fn->name];
  // Where several files define it (templates, inline functions), the first definition counts.
  const bool again = slot && file_number_ > 1 && out_.bodies[fn->name].has_body;
  if (!slot || (body.has_body && !again)) {
    const std::string key = fn->name;
    // A definition after a declaration keeps the object, so that pointers to it stay right.
    if (slot)
      *slot = std::move(*fn);
    else
      slot = std::move(fn);
    out_.bodies[key] = std::move(body);
    later_.erase(key);
    if (is_later) later_[key] = later;
  }
}

void Parser::read_body(const std::string& function) {
  const auto it = later_.find(function);
  if (it == later_.end()) return;
  const auto [pos, line] = std::pair(pos_, line_);
  pos_ = it->second.begin;
  line_ = it->second.line;
  free_location_ = it->second.first_location;
  end_of_free_locations_ = it->second.end_of_locations;
  raw_locations_.clear();
  Body body;
  function_body(*module_.functions.at(function), body);
  resolve_locations();
  body.has_body = true;
  out_.bodies.at(function) = std::move(body);
  later_.erase(it);
  free_location_ = end_of_free_locations_ = 0;
  pos_ = pos;
  line_ = line;
}

bool Parser::accept_attribute() {
  skip_space();
  if (text_.substr(pos_, 11) != ".attribute(") return false;
  while (!at_end() && peek() != ')') ++pos_;
  expect(')');
  return true;
}

std::uint32_t Parser::add_register(Type type) {
  if (++declared_registers_ > kMaxRegisters) fail("too many registers");
  body_->registers.push_back({type, {}});
  return static_cast<std::uint32_t>(body_->registers.size() - 1);
}

bool Parser::find_register(std::string_view n, std::uint32_t& id, std::uint32_t& width) const {
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

void Parser::function_body(Function& fn, Body& body) {
  body_ = &body;
  scopes_.clear();
  scopes_.emplace_back();
  body.scope_parent.push_back(0);
  body.labels.emplace_back();
  location_ = 0;
  latest_.clear();
  if (!fn.entry) {
    for (std::size_t i = 0; i < fn.results.size(); ++i)
      declare_parameter(fn.results[i], result_registers_[i], true);
    for (std::size_t i = 0; i < fn.params.size(); ++i)
      declare_parameter(fn.params[i], param_registers_[i], false);
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

std::uint32_t Parser::declare_variable(std::string_view n, Space space, std::uint64_t size,
                                       std::uint32_t align) {
  if (size > (1u << 30)) fail("variable '" + std::string(n) + "' is larger than 1 GiB");
  body_->variables.push_back({std::string(n), space, static_cast<std::uint32_t>(size), align, 0});
  const auto index = static_cast<std::uint32_t>(body_->variables.size() - 1);
  scopes_.back().variables[n] = index;
  return index;
}

void Parser::registers() {
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

void Parser::body_directive(Function& fn) {
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

void Parser::statement() {
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
  std::vector<Statement> before, after;
  if (peek() != ';') {
    do {
      s.operands.push_back(operand(0));
      const bool is_result = s.operands.size() == 1 && !s.name.starts_with("bar");
      if (s.operands.back().kind == Operand::Kind::reg && !is_result)
        register_sum(s.operands.back(), before);
    } while (accept(','));
  }
  expect(';');
  if (s.name.starts_with("mov.v") && s.operands.size() == 2 &&
      s.operands[0].kind == Operand::Kind::vector)
    return move_vector(s);
  one_element(s);
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

void Parser::one_element(Statement& s) {
  const std::string_view opcode = s.name.substr(0, s.name.find('.'));
  if (opcode != "ld" && opcode != "ldu" && opcode != "st" && opcode != "mov") return;
  if (s.name == "mov.pred") return;
  Operand* only = nullptr;
  for (Operand& o : s.operands)
    if (o.kind == Operand::Kind::vector) {
      if (only) return;
      only = &o;
    }
  if (only && only->parts.size() == 1 && only->parts[0].kind != Operand::Kind::sink)
    *only = Operand(std::move(only->parts[0]));
}

void Parser::register_sum(Operand& o, std::vector<Statement>& before) {
  skip_space();
  if (peek() != '+') return;
  const Type type = body_->registers[o.reg].type;
  const int bits = type_bits(type);
  if (is_float(type) || (bits != 16 && bits != 32 && bits != 64))
    fail("a sum of a number and register '" + std::string(o.name) + "' of type ." +
         std::string(type_name(type)));
  Statement add;
  add.name = bits == 16 ? "add.u16" : bits == 32 ? "add.u32" : "add.u64";
  Operand to = o, number;
  to.reg = add_register(type);
  number.kind = Operand::Kind::integer;
  number.value = sum(0);
  add.operands = {to, o, number};
  before.push_back(std::move(add));
  o = std::move(to);
}

void Parser::move_vector(Statement& s) {
  std::vector<Operand>&to = s.operands[0].parts, &from = s.operands[1].parts;
  const Type type = type_from_name(s.name.substr(std::min(s.name.size(), std::size_t{7})));
  if (s.operands[1].kind == Operand::Kind::special)  // "tid": its parts x, y, z, w
    for (std::size_t i = 0; i < 4; ++i) {
      from.push_back(s.operands[1]);
      from[i].name =
          out_.renamed.emplace_back(std::string(from[i].name) + "." + std::string(1, "xyzw"[i]));
    }
  if (to.size() != from.size() || s.name.size() < 8 || s.name[6] != '.' ||
      to.size() != static_cast<std::size_t>(s.name[5] - '0'))
    fail("'" + std::string(s.name) + "' with vectors of " + std::to_string(to.size()) + " and " +
         std::to_string(from.size()) + " parts");
  const int bits = type_bits(type);
  if (std::all_of(to.begin(), to.end(),
                  [](const Operand& o) { return o.kind == Operand::Kind::sink; }))
    fail("a vector without a register");
  if (bits < 16 || type == Type::f16 || to.size() * static_cast<std::size_t>(bits) > 128)
    fail("'" + std::string(s.name) + "': it moves 16-, 32- or 64-bit parts, at most 128 bits");
  const auto move = [&](const Operand& d, const Operand& a) {
    Statement part = s;
    part.name = bits == 16 ? "mov.b16" : bits == 32 ? "mov.b32" : "mov.b64";
    part.operands = {d, a};
    body_->statements.push_back(std::move(part));
  };
  // What an earlier move overwrites is read before.
  for (std::size_t i = 0; i < to.size(); ++i)
    for (std::size_t later = i + 1; later < to.size(); ++later) {
      if (to[i].kind != Operand::Kind::reg || from[later].kind != Operand::Kind::reg ||
          from[later].reg != to[i].reg)
        continue;
      Operand copy = from[later];
      copy.reg = add_register(type);
      move(copy, from[later]);
      from[later] = copy;
    }
  for (std::size_t i = 0; i < to.size(); ++i)
    if (to[i].kind != Operand::Kind::sink) move(to[i], from[i]);
}

void Parser::labelled(std::string_view label) {
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
    // Nothing of it is kept: a call says how its arguments lie.
    std::uint32_t bytes = 0;
    skip_space();
    if (peek() == '(') param_list(bytes);
    name();  // "_"
    skip_space();
    if (peek() == '(') param_list(bytes);
    while (skip_space(), peek() == '.') {
      dotted();
      skip_space();
      if (std::isdigit(static_cast<unsigned char>(peek()))) integer();
    }
    expect(';');
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

std::unique_ptr<ParsedModule> parse_ptx(std::string text, Bodies bodies) {
  auto parsed = std::make_unique<ParsedModule>();
  Module& module = parsed->module;
  module.text = std::move(text);
  const auto parser = std::make_shared<Parser>(*parsed, bodies);
  if (bodies == Bodies::now) {
    parser->run();
  } else {
    // Where something is wrong all is read in order, so that the first mistake is reported.
    try {
      parser->run();
    } catch (const PtxError&) {
      return parse_ptx(std::move(module.text));
    }
    parsed->parser = parser;
  }
  const std::string_view all = module.text;
  for (std::size_t start = 0; start <= all.size();) {
    const std::size_t end = std::min(all.find('\n', start), all.size());
    module.lines.push_back(all.substr(start, end - start));
    start = end + 1;
  }
  return parsed;
}

void parse_body(ParsedModule& parsed, const std::string& function) {
  if (parsed.parser) parsed.parser->read_body(function);
}

const Function* Module::find(std::string_view name) const {
  const auto it = functions.find(name);
  return it == functions.end() ? nullptr : it->second.get();
}

}  // namespace vgpu
