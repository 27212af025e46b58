// Operands, and parameters in registers: these are moved through memory, as those in .param are.
#include "parser.h"

#include <algorithm>
#include <cstring>

namespace vgpu {

Statement Parser::transfer(bool load, const Operand& value, Type type, std::uint32_t variable) {
  Operand place, area;
  area.kind = Operand::Kind::variable;
  area.reg = variable;
  place.kind = Operand::Kind::memory;
  place.parts.push_back(std::move(area));
  Statement s;
  const std::size_t width = value.kind == Operand::Kind::vector ? value.parts.size() : 1;
  s.name = out_.renamed.emplace_back((load ? "ld.param." : "st.param.") +
                                     (width > 1 ? "v" + std::to_string(width) + "." : "") + "b" +
                                     std::to_string(type_bits(type)));
  s.line = line_;
  s.location = location_;
  s.scope = scopes_.back().id;
  s.operands = load ? std::vector<Operand>{value, place} : std::vector<Operand>{place, value};
  return s;
}

void Parser::declare_parameter(const Param& p, Registers in_registers, bool result) {
  const auto [type, width] = in_registers;
  if (type == Type::none) {
    declare_variable(p.name, Space::param, p.size, p.align);
    return;
  }
  const std::uint32_t variable = declare_variable("", Space::param, p.size, p.align);
  Operand value;
  value.kind = Operand::Kind::reg;
  value.name = p.name;
  value.reg = add_register(type);
  for (std::uint32_t i = 1; i < width; ++i) add_register(type);
  scopes_.back().registers[p.name] = {value.reg, width};
  if (type == Type::pred) return;  // no call has one
  if (width > 1) vector_register(value, width);
  auto& list = result ? result_stores_ : body_->statements;
  list.push_back(transfer(!result, value, type, variable));
}

void Parser::through_memory(Operand& list, bool load, std::vector<Statement>& moves) {
  for (Operand& o : list.parts) {
    Type type = Type::b64;
    std::uint32_t width = 1;
    if (o.kind == Operand::Kind::vector) {
      width = static_cast<std::uint32_t>(o.parts.size());
      for (const Operand& part : o.parts)
        if (part.kind != Operand::Kind::reg || part.name != o.parts[0].name)
          fail("a vector in braces as argument of a call: it must be a vector register");
      type = body_->registers[o.parts.at(0).reg].type;
    } else if (o.kind == Operand::Kind::reg) {
      type = body_->registers[o.reg].type;
    } else if (o.kind == Operand::Kind::real && o.bits == 32) {
      type = Type::b32;
    } else if (load || (o.kind != Operand::Kind::real && o.kind != Operand::Kind::integer)) {
      continue;
    }
    if (type == Type::pred)
      fail("a call with predicate '" + std::string(o.name) +
           "', which a function of the ABI cannot take or return: pass a register of 32 bits");
    const std::uint32_t bytes = width * static_cast<std::uint32_t>(type_bits(type)) / 8;
    const std::uint32_t variable = declare_variable("", Space::param, bytes, bytes);
    moves.push_back(transfer(load, o, type, variable));
    o = moves.back().operands[load].parts[0];
  }
}

void Parser::vector_register(Operand& o, std::uint32_t width) {
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

std::int64_t Parser::factor(int depth) {
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

std::int64_t Parser::product(std::int64_t value, int depth) {
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

std::int64_t Parser::sum(std::int64_t value, int depth) {
  for (;;) {
    skip_space();
    const char c = peek();
    if (c != '+' && c != '-') return value;
    ++pos_;
    value = wrapped(value, product(factor(depth), depth), c);
  }
}

std::int64_t Parser::wrapped(std::int64_t a, std::int64_t b, char operation) {
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

Operand Parser::operand(int depth) {
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

}  // namespace vgpu
