// Operands: registers, constants, addresses, vectors.
#include "decoder.h"

#include <algorithm>
#include <cstring>

#include "../core/memory.h"
#include "../core/specials.h"

namespace vgpu {
namespace {

bool is_integer(Type type) {
  switch (type) {
    case Type::u16:
    case Type::u32:
    case Type::u64:
    case Type::s16:
    case Type::s32:
    case Type::s64:
      return true;
    default:
      return false;
  }
}
// Bytes that the 32 lanes of a register take; see Slot.
std::uint32_t register_bytes(int bits) {
  if (bits == 1) return 4;
  return kWarpSize * static_cast<std::uint32_t>(std::max(16, bits) / 8);
}

}  // namespace

Slot Decoder::allocate(int bits) {
  const std::uint32_t bytes = register_bytes(bits);
  next_register_ = align_up(next_register_, std::min(bytes, 64u));
  Slot slot{next_register_ << 1};
  next_register_ += bytes;
  if (next_register_ > (1u << 30)) fail("more than 1 GiB of registers");
  return slot;
}

Slot Decoder::constant(std::uint64_t value, int bits) {
  if (bits == 1) {
    value = value ? kFullMask : 0;
  } else if (bits < 64) {
    bits = std::max(bits, 16);
    value &= (1ull << bits) - 1;
  }
  const auto [it, fresh] = constants_.try_emplace({value, bits});
  if (fresh) {
    const std::uint32_t bytes = register_bytes(bits);
    const std::uint32_t offset = align_up(fn_.constants.size(), std::min(bytes, 64u));
    fn_.constants.resize(offset + bytes);
    std::byte* at = fn_.constants.data() + offset;
    const int step = bits == 1 ? 4 : bits / 8;
    for (std::uint32_t b = 0; b < bytes; b += step) {
      std::memset(at + b, 0, step);
      std::memcpy(at + b, &value, std::min(step, 8));
    }
    it->second = Slot{offset << 1 | 1};
  }
  return it->second;
}

Decoder::Address Decoder::address_of(const Operand& o) const {
  if (o.kind == Kind::variable) {
    const ast::Variable& v = body_.variables[o.reg];
    return {v.space, v.offset};
  }
  if (const Global* g = symbols_.global(o.name)) {
    if (g->space == Space::shared && g->external) {
      if (!fn_.entry) return {Space::shared, 0, true};
      return {Space::shared, align_up(fn_.shared_bytes, fn_.dynamic_shared_align)};
    }
    if (g->external && g->address == 0)
      fail("variable '" + g->name +
           "' is declared but defined in no module (link the device code: nvcc -rdc=true and a "
           "device link)");
    return {g->space, g->address};
  }
  if (const Function* f = symbols_.function(o.name))
    return {Space::generic, symbols_.function_address(f)};
  if (fn_.entry)
    for (const Param& p : fn_.params)
      if (p.name == o.name) return {Space::param, p.offset};
  fail("unknown name '" + std::string(o.name) + "'");
}

void Decoder::name_variable(Instr& instr, const Operand& o, const Address& address) {
  if (address.dynamic_shared ||
      (address.space != Space::shared && address.space != Space::constant))
    return;
  const ast::Variable* const own = o.kind == Kind::variable ? &body_.variables[o.reg] : nullptr;
  const Global* const global = own ? nullptr : symbols_.global(o.name);
  if (!own && (!global || global->external)) return;
  const NamedVariable variable{address.space, own ? own->name : global->name, address.value,
                               own ? own->size : global->size};
  auto& named = fn_.named;
  const auto it = std::find_if(named.begin(), named.end(), [&](const NamedVariable& v) {
    return v.space == variable.space && v.offset == variable.offset && v.size == variable.size;
  });
  const auto index = static_cast<std::size_t>(it - named.begin());
  if (index >= 0xffff) return;
  if (it == named.end()) named.push_back(variable);
  instr.named = static_cast<std::uint16_t>(index + 1);
}

Slot Decoder::materialize(const Operand& o, int bits) {
  Instr mov;
  mov.op_class = OpClass::move;
  stamp(mov);
  mov.d[0] = allocate(bits);
  mov.d_bits = static_cast<std::uint8_t>(bits);
  const Slot slot = mov.d[0];
  if (o.kind == Kind::special) {
    mov.run = bind_special(mov, o.name, bits);
    if (!mov.run) fail("special register '%" + std::string(o.name) + "' is not known");
  } else {
    const Address address = address_of(o);
    if (address.dynamic_shared) {
      mov.imm = o.value;
      mov.run = bind_special(mov, "dynamic_shared_base", bits);
    } else if (address.space == Space::local) {
      mov.imm = o.value;
      add_offset(mov.imm, address.value);
      mov.run = bind_special(mov, "local_base", bits);
    } else {
      return constant(address.value + static_cast<std::uint64_t>(o.value), bits);
    }
  }
  code_.push_back(mov);
  return slot;
}

Slot Decoder::source(const Operand& o, Type type) {
  const int bits = type == Type::none ? 32 : type_bits(type);
  switch (o.kind) {
    case Kind::reg:
      return slots_[o.reg];
    case Kind::integer:
      if (type == Type::f32 || type == Type::f64)
        fail("the integer " + std::to_string(o.value) + " where ." + std::string(type_name(type)) +
             " stands: write a number with a point");
      return constant(static_cast<std::uint64_t>(o.value), bits);
    case Kind::real: {
      if (is_integer(type))
        fail("a floating-point number where ." + std::string(type_name(type)) + " stands");
      std::uint64_t value = static_cast<std::uint64_t>(o.value);
      if (o.bits == 64 && bits == 32) {
        double d;
        std::memcpy(&d, &value, 8);
        const float f = static_cast<float>(d);
        value = 0;
        std::memcpy(&value, &f, 4);
      } else if (o.bits == 32 && bits == 64 && type == Type::f64) {
        float f;
        std::memcpy(&f, &value, 4);
        const double d = f;
        std::memcpy(&value, &d, 8);
      }
      return constant(value, bits);
    }
    case Kind::special:
    case Kind::symbol:
    case Kind::variable:
      return materialize(o, std::max(bits, 32));
    case Kind::sink:
      fail("'_' stands for a result that nobody wants, and this is a source");
    default:
      fail("an operand of a kind that does not belong here");
  }
}

int Decoder::width_of(const Operand& o) const {
  if (o.kind == Kind::reg) return register_width(body_.registers[o.reg].type);
  return 0;
}

std::uint32_t* Decoder::add_list(Instr& instr, const std::vector<Slot>& slots) {
  auto list = std::make_unique<std::uint32_t[]>(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) list[i] = slots[i].bits;
  instr.list = list.get();
  instr.list_count = static_cast<std::uint16_t>(slots.size());
  fn_.lists.push_back(std::move(list));
  return fn_.lists.back().get();
}

void Decoder::memory_operand(Instr& instr, const Operand& o) {
  if (o.kind != Kind::memory) fail("expected a memory operand in brackets");
  if (o.parts.size() != 1) fail("memory operands with coordinates are not supported here");
  const Operand& base = o.parts[0];
  instr.imm = o.value;
  if (base.kind == Kind::reg) {
    instr.address = slots_[base.reg];
    instr.address_bits = static_cast<std::uint8_t>(width_of(base));
    if (instr.address_bits != 32 && instr.address_bits != 64)
      fail("an address needs a register of 32 or 64 bits");
    return;
  }
  if (base.kind == Kind::integer) {
    add_offset(instr.imm, static_cast<std::uint64_t>(base.value));
    return;
  }
  const Address address = address_of(base);
  if (address.dynamic_shared) {
    instr.address = materialize(base, 64);
    instr.address_bits = 64;
    if (instr.space == Space::generic) add_offset(instr.imm, kSharedWindow);
    return;
  }
  add_offset(instr.imm, address.value);
  name_variable(instr, base, address);
  if (instr.space == Space::generic) {
    switch (address.space) {
      case Space::shared:
        add_offset(instr.imm, kSharedWindow);
        break;
      case Space::constant:
        add_offset(instr.imm, kConstantWindow);
        break;
      case Space::local:
        instr.space = Space::local;
        break;
      case Space::param:
        instr.space = Space::param;
        break;
      default:
        break;
    }
  } else if (instr.space != address.space &&
             !(instr.space == Space::global && address.space == Space::generic)) {
    fail("'" + std::string(base.name) + "' lies in ." + std::string(space_name(address.space)) +
         ", not in ." + std::string(space_name(instr.space)));
  }
  if (base.kind == Kind::variable && (instr.space == Space::local || instr.space == Space::param))
    instr.frame_local = true;
}

void Decoder::second_memory_operand(Instr& instr, const Operand& o) {
  Instr other;
  other.space = instr.space == Space::shared && !instr.from_shared ? Space::global : Space::shared;
  memory_operand(other, o);
  instr.address2 = other.address;
  instr.address2_bits = other.address_bits;
  instr.imm2 = other.imm;
}

void Decoder::third_memory_operand(Instr& instr, const Operand& o) {
  Instr other;
  other.space = instr.space == Space::generic ? Space::generic : Space::shared;
  memory_operand(other, o);
  instr.b = other.address;
  instr.b_bits = other.address_bits;
  instr.constant = other.imm;
}

void Decoder::tensor_operand(Instr& instr, const Operand& o) {
  if (o.kind != Kind::memory || o.parts.size() != 2 || o.parts[1].kind != Kind::vector)
    fail("expected a tensor operand: [map, {coordinates}]");
  if (o.parts[1].parts.size() != instr.rank)
    fail(std::to_string(o.parts[1].parts.size()) + " coordinates for a tensor of " +
         std::to_string(instr.rank) + " dimensions");
  Operand base = o;
  base.parts.resize(1);
  Instr map;
  map.space = Space::generic;
  memory_operand(map, base);
  if (map.space == Space::param && !map.frame_local) add_offset(map.imm, kParamWindow);
  if (map.space == Space::local || map.frame_local)
    fail("a tensor map lies in .param, .const or .global memory");
  const bool into_shared = instr.space == Space::shared;
  (into_shared ? instr.address2 : instr.address) = map.address;
  (into_shared ? instr.address2_bits : instr.address_bits) = map.address_bits;
  (into_shared ? instr.imm2 : instr.imm) = map.imm;
  std::vector<Slot> slots;
  for (const Operand& part : o.parts[1].parts) {
    if (width_of(part) && width_of(part) != 32) fail("a coordinate needs a register of 32 bits");
    slots.push_back(source(part, Type::b32));
  }
  add_list(instr, slots);
}

void Decoder::tensor_offsets(Instr& instr, const Operand& o) {
  if (o.kind != Kind::vector || o.parts.size() + 2 != instr.rank)
    fail("expected " + std::to_string(instr.rank - 2) + " offsets in braces");
  std::vector<Slot> slots;
  for (std::uint16_t i = 0; i < instr.list_count; ++i) slots.push_back(Slot{instr.list[i]});
  for (const Operand& part : o.parts) {
    if (width_of(part) && width_of(part) != 16) fail("an offset needs a register of 16 bits");
    slots.push_back(source(part, Type::b16));
  }
  add_list(instr, slots);
}

void Decoder::all_vectors(Instr& instr) {
  std::vector<Slot> slots;
  const Type type =
      instr.dtype == Type::f64 ? Type::f64 : Type::f32;  // other fragments are packed in 32 bits
  for (const Operand& o : statement_->operands) {
    const bool result = &o == &statement_->operands[0];
    const auto one = [&](const Operand& part) {
      if (part.kind == Kind::reg && width_of(part) != type_bits(type))
        fail("register '" + std::string(part.name) + "' of " + std::to_string(width_of(part)) +
             " bits in a fragment of " + std::to_string(type_bits(type)) + "-bit registers");
      if (part.kind == Kind::reg)
        slots.push_back(slots_[part.reg]);
      else if (part.kind == Kind::sink && result)
        slots.push_back(sink_);
      else if (part.kind == Kind::real || part.kind == Kind::integer)
        slots.push_back(source(part, type));
      else
        fail("expected a register in a fragment");
    };
    if (o.kind == Kind::vector)
      for (const Operand& part : o.parts) one(part);
    else
      one(o);
    if (result &&
        std::all_of(slots.begin(), slots.end(), [&](Slot slot) { return slot.bits == sink_.bits; }))
      fail("a vector without a register");
  }
  add_list(instr, slots);
}

Type Decoder::named_type(const Instr& instr, std::string_view name) const {
  if (name.empty()) return instr.type;
  if (name == "dtype") return instr.dtype;
  if (name == "wide") {
    switch (instr.type) {
      case Type::u16:
        return Type::u32;
      case Type::s16:
        return Type::s32;
      case Type::u32:
        return Type::u64;
      case Type::s32:
        return Type::s64;
      default:
        return instr.type;
    }
  }
  return type_from_name(name);
}

void Decoder::operands(Instr& instr, const std::vector<Expected>& expected) {
  const auto& given = statement_->operands;
  // Operands that stand after the mandatory ones' number are the first optional ones.
  std::size_t g = 0, mandatory = 0;
  for (const Expected& want : expected) mandatory += !want.optional;
  std::size_t extra = given.size() > mandatory ? given.size() - mandatory : 0;
  for (const Expected& want : expected) {
    if (want.optional) {
      if (!extra) continue;
      --extra;
    }
    if (g == given.size()) fail("an operand is missing");
    const Operand& o = given[g++];
    if (!o.selector.empty()) select_parts(instr, o, want.name);
    const Type type = named_type(instr, want.type);
    switch (want.name) {
      case 'd':
        destination(instr, o, want, type);
        break;
      case 'p':
        destination2(instr, o);
        break;
      case 'm':
        memory_operand(instr, o);
        break;
      case 'a':
        if (o.kind == Kind::vector) {
          if (!want.vector) fail("a vector does not belong here");
          vector_sources(instr, o, type);
          break;
        }
        instr.a = source(o, type);
        instr.a_bits = static_cast<std::uint8_t>(width_of(o) ? width_of(o) : register_width(type));
        instr.a_not = o.negated;
        break;
      case 'b':
        instr.b = source(o, type);
        instr.b_bits = static_cast<std::uint8_t>(width_of(o));
        instr.b_not = o.negated;
        break;
      case 'c':
        instr.c = source(o, type);
        instr.c_not = o.negated;
        break;
      case 'e':
        instr.e = source(o, type);
        break;
      case 'n':
        second_memory_operand(instr, o);
        break;
      case 'z':
        tensor_operand(instr, o);
        break;
      case 'u':
        tensor_offsets(instr, o);
        break;
      case 'o':
        third_memory_operand(instr, o);
        break;
      case 'k':
        if (o.kind != Kind::integer) fail("expected an integer constant");
        instr.constant = o.value;
        break;
      case 'i':
        if (o.kind != Kind::integer) fail("expected an integer constant");
        instr.imm = o.value;
        break;
      default:
        fail("internal: bad operand signature");
    }
    if (o.kind == Kind::reg && want.name != 'm') check_width(instr, o, want, type);
  }
  if (g != given.size()) fail("too many operands");
}

void Decoder::select_parts(Instr& instr, const Operand& o, char operand) {
  const bool video = statement_->name[0] == 'v' && statement_->name.substr(0, 4) != "vote";
  const std::string_view digits = o.selector.substr(1);
  const std::size_t place = std::string_view("dab").find(operand);
  bool good = video && place != std::string_view::npos && !digits.empty() && digits.size() <= 4;
  std::uint64_t packed = digits.size() | (o.selector[0] == 'h' ? 8 : 0);
  for (std::size_t i = 0; good && i < digits.size(); ++i) {
    const char digit = digits[digits.size() - 1 - i];
    good = digit >= '0' && digit <= '7';
    packed |= static_cast<std::uint64_t>(digit - '0') << (4 + 3 * i);
  }
  if (!good)
    fail("'." + std::string(o.selector) + "' does not belong behind '" + std::string(o.name) +
         "' here");
  instr.constant |= static_cast<std::int64_t>(packed << 16 * place);
}

void Decoder::check_width(const Instr& instr, const Operand& o, const Expected& want,
                          Type type) const {
  if (type == Type::none) return;
  const int have = width_of(o), need = register_width(type);
  const Type declared = body_.registers[o.reg].type;
  if ((is_integer(type) && is_float(declared)) || (is_float(type) && is_integer(declared)))
    fail("register '" + std::string(o.name) + "' of type ." + std::string(type_name(declared)) +
         " where ." + std::string(type_name(type)) + " stands: move it to one of ." +
         std::string(type_name(type)) + " or .b" + std::to_string(need) + " first (operand " +
         want.name + ")");
  if (have == need) return;
  const std::string_view name = statement_->name.substr(0, statement_->name.find('.'));
  const bool may_be_wider = name == "ld" || name == "ldu" || name == "st" || name == "cvt";
  (void)instr;
  if (have > need && need > 1 && may_be_wider) return;
  fail("register '" + std::string(o.name) + "' of " + std::to_string(have) + " bits where ." +
       std::string(type_name(type)) + " needs " + std::to_string(need) + " (operand " + want.name +
       ")");
}

void Decoder::discard(std::initializer_list<std::string_view> opcodes) const {
  const std::string_view opcode = statement_->name.substr(0, statement_->name.find('.'));
  const bool waits = opcode == "mbarrier" && statement_->name.find(".arrive") == std::string::npos;
  if (waits || std::find(opcodes.begin(), opcodes.end(), opcode) == opcodes.end())
    fail("'" + std::string(opcode) + "' needs a register for its result, not '_'");
}

void Decoder::destination(Instr& instr, const Operand& o, const Expected& want, Type type) {
  if (o.kind == Kind::reg) {
    instr.d[0] = slots_[o.reg];
    instr.d_bits = static_cast<std::uint8_t>(width_of(o));
  } else if (o.kind == Kind::sink) {
    discard({"atom", "mbarrier", "setp"});
    instr.d[0] = sink_;
    instr.d_bits = static_cast<std::uint8_t>(register_width(type));
  } else if (o.kind == Kind::pair) {
    if (o.parts[0].kind == Kind::sink) discard({"elect", "match", "setp"});
    if (o.parts[0].kind == Kind::sink && o.parts[1].kind == Kind::sink)
      fail("at most one of two results may be '_'");
    if (o.parts[1].kind == Kind::sink && statement_->name.starts_with("elect"))
      fail("'elect' needs a predicate for its second result, not '_'");
    for (int i = 0; i < 2; ++i) {
      const Operand& part = o.parts[static_cast<std::size_t>(i)];
      const int need = i == 0 ? register_width(type) : 1;
      if (part.kind == Kind::reg && width_of(part) != need)
        fail("register '" + std::string(part.name) + "' of " + std::to_string(width_of(part)) +
             " bits where " + std::to_string(need) + " are needed");
      if (part.kind == Kind::reg)
        instr.d[i] = slots_[part.reg];
      else if (part.kind == Kind::sink && i == 0)
        instr.d[i] = sink_;
      else if (part.kind != Kind::sink)
        fail("expected a register");
      if (i == 0)
        instr.d_bits = static_cast<std::uint8_t>(part.kind == Kind::reg ? width_of(part)
                                                                        : register_width(type));
    }
  } else if (o.kind == Kind::vector && want.vector) {
    if (o.parts.empty()) fail("a vector without elements");
    std::vector<Slot> slots;
    for (const Operand& part : o.parts) {
      if (part.kind == Kind::reg) {
        slots.push_back(slots_[part.reg]);
        instr.d_bits = static_cast<std::uint8_t>(width_of(part));
      } else if (part.kind == Kind::sink) {
        slots.push_back(sink_);
      } else {
        fail("expected a register in the vector");
      }
    }
    for (const Operand& part : o.parts)
      if (part.kind == Kind::reg && width_of(part) != instr.d_bits)
        fail("registers of different width in one vector");
    if (!instr.d_bits) fail("a vector without a register");
    add_list(instr, slots);
    instr.list_results = instr.list_count;
    instr.d[0] = slots[0];
  } else {
    fail("expected a register as destination");
  }
}

void Decoder::destination2(Instr& instr, const Operand& o) {
  if (o.kind == Kind::reg)
    instr.d[1] = slots_[o.reg];
  else if (o.kind != Kind::sink)
    fail("expected a register");
}

void Decoder::vector_sources(Instr& instr, const Operand& o, Type type) {
  if (o.parts.empty()) fail("a vector without elements");
  std::vector<Slot> slots;
  for (const Operand& part : o.parts) {
    slots.push_back(source(part, type));
    if (width_of(part)) instr.a_bits = static_cast<std::uint8_t>(width_of(part));
  }
  if (!instr.a_bits) instr.a_bits = static_cast<std::uint8_t>(register_width(type));
  for (std::size_t i = 0; i < o.parts.size(); ++i) {
    const int width = width_of(o.parts[i]);
    if (width && width != instr.a_bits) fail("registers of different width in one vector");
    if (!width) slots[i] = constant_of_width(o.parts[i], type, instr.a_bits);
  }
  add_list(instr, slots);
  instr.a = slots[0];
}

Slot Decoder::constant_of_width(const Operand& o, Type type, int bits) {
  if (o.kind == Kind::integer && !is_float(type))
    return constant(static_cast<std::uint64_t>(o.value), bits);
  if (o.kind != Kind::sink && register_width(type) < bits)
    fail("a constant of " + std::to_string(register_width(type)) + " bits beside registers of " +
         std::to_string(bits) + " in one vector");
  return source(o, type);
}

}  // namespace vgpu
