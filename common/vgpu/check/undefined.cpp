#include "undefined.h"

#include <algorithm>

#include "../core/access.h"
#include "../core/instruction_set.h"

namespace vgpu {
namespace {

// How an instruction passes undefined bits on.
enum class Rule : std::uint8_t {
  nothing,    // its operands do not matter
  load,       // ld: see loaded()
  store,      // st: see stored()
  rearrange,  // moves bits about: mov, shifts, prmt, bfe, cvt between integers ...
  select,     // selp: those of the operand that is chosen
  and_,       // bit by bit; a defined bit may decide alone
  or_,
  compare,  // setp
  mix,      // one undefined bit of an operand makes all of the result undefined
  use,      // undefined bits of an operand matter
};

Rule rule_of(const Form& form) {
  const std::string_view opcode = form.opcode, pattern = form.pattern, bind = form.bind_name;
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), opcode) != names.end();
  };
  if (bind == "bind_hint") return Rule::nothing;
  if (is({"ld", "ldu"})) return Rule::load;
  if (opcode == "st" && !pattern.starts_with(".async")) return Rule::store;
  if (is({"mov", "not", "shl", "shr", "bfe", "prmt", "brev"}) || bind == "bind_cvt_integer")
    return Rule::rearrange;
  if (opcode == "selp") return Rule::select;
  if (opcode == "and") return Rule::and_;
  if (opcode == "or") return Rule::or_;
  if (opcode == "setp") return Rule::compare;
  switch (form.op_class) {
    case OpClass::memory:
    case OpClass::atomic:
    case OpClass::tensor:
    case OpClass::barrier:
    case OpClass::control:
    case OpClass::shuffle:
      return Rule::use;
    default:
      return Rule::mix;
  }
}
Rule rule_of(const Instr& instr) {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all;
    for (const Form& form : forms()) all.push_back(rule_of(form));
    return all;
  }();
  return rules[instr.form];
}

// Puts words together of bits of others, as nvcc does where it copies a struct.
bool places_bits(const Instr& instr) {
  const std::string_view opcode = forms()[instr.form].opcode;
  // (With a number beside it xor inverts, as 255 - x does.)
  return opcode == "bfi" || opcode == "lop3" || opcode == "shf" ||
         (opcode == "xor" && !instr.a.constant() && !instr.b.constant());
}

// Does the instruction add to what its result registers hold? wgmma does, where scale-d is true.
bool accumulates(Warp& warp, const Instr& instr) {
  if (instr.op_class != OpClass::tensor || !instr.c.valid()) return false;
  return get_predicate(warp, instr.c, instr.c_not) != 0 &&
         std::string_view(forms()[instr.form].opcode) == "wgmma";
}

// The type of a result whose two halves are computed apart, else none.
Type packed_type(const Instr& instr) {
  const bool converts = instr.op_class == OpClass::conversion;
  const Type type = converts ? instr.dtype : instr.type;
  if (converts && (!instr.b.valid() || type_bits(instr.type) != 32)) return Type::none;
  switch (type) {
    case Type::f16x2:
    case Type::bf16x2:
      return instr.d_bits == 32 ? type : Type::none;
    case Type::u16x2:
    case Type::s16x2:
      return converts ? Type::none : type;
    case Type::f32x2:
      return type;
    default:
      return Type::none;
  }
}
std::uint32_t lane_bytes(int bits) { return bits == 1 ? 0 : static_cast<std::uint32_t>(bits) / 8; }

// The value of one lane of a register or a constant, 1 to 8 bytes wide.
std::uint64_t value_of(Warp& warp, Slot slot, int lane, std::uint32_t width) {
  std::uint64_t value = 0;
  std::memcpy(&value, warp.lanes<const std::byte>(slot) + static_cast<std::uint32_t>(lane) * width,
              width);
  return value;
}

// Registers of its own for an instruction that runs on other values than the warp's.
class Scratch {
 public:
  explicit Scratch(Warp& warp) : warp_(warp), saved_{warp.base[0], warp.base[1]} {
    warp.base[0] = warp.base[1] = memory_;
  }
  ~Scratch() { warp_.base[0] = saved_[0], warp_.base[1] = saved_[1]; }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  static constexpr int kRegisters = 20;
  // A register, all zeros at first.
  Slot add() { return Slot{static_cast<std::uint32_t>(used_++ * kBytes) << 1}; }
  std::uint8_t* at(Slot slot) { return reinterpret_cast<std::uint8_t*>(memory_) + slot.offset(); }
  const std::byte* real(Slot slot) const { return saved_[slot.bits & 1] + slot.offset(); }

 private:
  static constexpr int kBytes = kWarpSize * 16;
  Warp& warp_;
  std::byte* saved_[2];
  int used_ = 0;
  alignas(64) std::byte memory_[kRegisters * kBytes] = {};
};

}  // namespace

std::uint64_t UndefinedValues::Register::bits(int lane) const {
  if (width == 0) return lanes >> lane & 1;
  std::uint64_t value = 0;
  std::memcpy(&value, raw + static_cast<std::uint32_t>(lane) * width, std::min(width, 8u));
  return value;
}

UndefinedValues::Registers* UndefinedValues::registers(const Warp& warp) {
  if (last_ == warp.frame) return last_registers_;
  last_ = warp.frame;
  const auto it = frames_.find(warp.frame);
  return last_registers_ = it == frames_.end() ? nullptr : &it->second;
}

UndefinedValues::Register* UndefinedValues::find(Registers& registers, Slot slot) {
  if (!slot.valid() || slot.constant()) return nullptr;
  const auto it = registers.of.find(slot.bits);
  return it == registers.of.end() ? nullptr : &it->second;
}

void UndefinedValues::put(Registers& registers, Slot slot, int lane, const std::uint8_t* raw,
                          std::uint32_t width, Source source) {
  if (!slot.valid() || slot.bits == 0) return;  // `_`, what nobody reads
  const Ref<Origin> origin = source.of->origin[source.lane];
  const std::uint8_t from = source.of->from[source.lane];
  const std::uint32_t computed = source.of->computed >> source.lane & 1;
  Register& r = registers.of[slot.bits];
  r.lanes |= 1u << lane;
  r.computed = (r.computed & ~(1u << lane)) | computed << lane;
  r.width = width;
  std::memcpy(r.raw + static_cast<std::uint32_t>(lane) * width, raw, width);
  r.origin[lane] = origin;
  r.from[lane] = from;
}
void UndefinedValues::put_all(Registers& registers, Slot slot, int lane, int width_bits,
                              Source source) {
  std::uint8_t ones[16];
  std::memset(ones, 0xff, sizeof ones);
  put(registers, slot, lane, ones, lane_bytes(width_bits), source);
}

void UndefinedValues::define(Registers& registers, Slot slot, std::uint32_t lanes) {
  Register* r = find(registers, slot);
  if (!r) return;
  each_lane(r->lanes & lanes, [&](int lane) { r->origin[lane] = Ref<Origin>(); });
  r->lanes &= ~lanes;
  if (!r->lanes) registers.of.erase(slot.bits);
}
void UndefinedValues::define_results(const Instr& instr, Registers& registers,
                                     std::uint32_t lanes) {
  define(registers, instr.d[0], lanes);
  define(registers, instr.d[1], lanes);
  for (int k = 0; k < instr.list_results; ++k) define(registers, Slot{instr.list[k]}, lanes);
}

void UndefinedValues::consume(Warp& warp, Registers& registers, Slot slot, std::uint32_t lanes) {
  Register* r = find(registers, slot);
  if (!r || !(r->lanes & lanes)) return;
  each_lane(r->lanes & lanes, [&](int lane) { use_(warp, *r->origin[lane], r->from[lane]); });
  define(registers, slot, lanes);  // told once
}
void UndefinedValues::consume_all(Warp& warp, const Instr& instr, Registers& registers,
                                  std::uint32_t lanes) {
  for (const Slot slot : {instr.a, instr.b, instr.c, instr.e})
    consume(warp, registers, slot, lanes);
  for (int k = instr.list_results; k < instr.list_count; ++k)
    consume(warp, registers, Slot{instr.list[k]}, lanes);
}

void UndefinedValues::instruction(Warp& warp, const Instr& instr, std::uint32_t mask,
                                  std::uint32_t on) {
  stored_.lanes = 0;
  if (frames_.empty()) return;
  Registers* const found = registers(warp);
  if (!found) return;
  consume(warp, *found, instr.guard, mask);
  if (on && instr.flow != Flow::warp_sync) {
    consume(warp, *found, instr.address, on);
    consume(warp, *found, instr.address2, on);
    switch (rule_of(instr)) {
      case Rule::nothing:
        break;
      case Rule::load:
        define_results(instr, *found, on);
        break;
      case Rule::store:
        store(instr, *found, on);
        break;
      case Rule::rearrange:
        rearrange(warp, instr, *found, on);
        break;
      case Rule::select:
        select(warp, instr, *found, on);
        break;
      case Rule::and_:
      case Rule::or_:
        logic(warp, instr, *found, on, rule_of(instr) == Rule::and_);
        break;
      case Rule::compare:
        compare(warp, instr, *found, on);
        break;
      case Rule::mix:
        mix(instr, *found, on);
        break;
      case Rule::use:
        if (accumulates(warp, instr))
          for (int k = 0; k < instr.list_results; ++k)
            consume(warp, *found, Slot{instr.list[k]}, on);
        consume_all(warp, instr, *found, on);
        define_results(instr, *found, on);
        break;
    }
  }
  if (found->of.empty()) {
    frames_.erase(warp.frame);
    last_ = nullptr;
  }
}

void UndefinedValues::warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask) {
  Registers* const found = frames_.empty() ? nullptr : registers(warp);
  if (!found || &instr != &warp.frame->function->code[instr.pc]) return;  // or operands gathered
  if (std::string_view(forms()[instr.form].opcode) == "shfl") {
    for (const Slot slot : {instr.b, instr.c, instr.e}) consume(warp, *found, slot, mask);
    shuffle(warp, instr, *found, mask);
  } else {
    consume_all(warp, instr, *found, mask);
    define_results(instr, *found, mask);
  }
}

bool UndefinedValues::follows(const Instr& instr) { return rule_of(instr) == Rule::load; }

UndefinedValues::Registers& UndefinedValues::registers_or_new(const Warp& warp) {
  if (Registers* const found = registers(warp)) return *found;
  Registers& fresh = frames_[warp.frame];
  fresh.frame = Ref<Frame>(warp.frame);
  fresh.block = warp.block;
  last_ = nullptr;
  return fresh;
}

void UndefinedValues::unassigned(Warp& warp, std::uint32_t lanes, Slot slot, int bits,
                                 const Ref<Origin>& origin) {
  Registers& of_frame = registers_or_new(warp);
  Register source;
  each_lane(lanes, [&](int lane) {
    source.origin[lane] = origin;
    source.from[lane] = static_cast<std::uint8_t>(lane);
    put_all(of_frame, slot, lane, bits, {&source, lane});
  });
}

void UndefinedValues::loaded(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes,
                             std::uint32_t undefined, const Ref<Origin>& origin) {
  Registers* const found = &registers_or_new(warp);
  Register source;
  source.origin[lane] = origin;
  source.from[lane] = static_cast<std::uint8_t>(lane);
  source.computed = origin->computed;
  const std::uint32_t each = bytes / instr.elements, width = lane_bytes(instr.d_bits);
  for (std::uint32_t k = 0; k < instr.elements; ++k) {
    std::uint8_t raw[16] = {};
    bool any = false;
    for (std::uint32_t i = 0; i < each; ++i)
      if (undefined >> (k * each + i) & 1) raw[i] = 0xff, any = true;
    if (!any) continue;
    if (is_signed(instr.type)) std::fill(raw + each, raw + 16, raw[each - 1]);
    put(*found, instr.elements == 1 ? instr.d[0] : Slot{instr.list[k]}, lane, raw, width,
        {&source, lane});
  }
}

void UndefinedValues::store(const Instr& instr, Registers& registers, std::uint32_t on) {
  const auto each = static_cast<std::uint32_t>(type_bits(instr.type)) / 8;
  for (std::uint32_t k = 0; k < instr.elements; ++k) {
    const Register* r = find(registers, instr.elements == 1 ? instr.a : Slot{instr.list[k]});
    if (!r) continue;
    each_lane(r->lanes & on, [&](int lane) {
      std::uint32_t bytes = 0;
      for (std::uint32_t i = 0; i < each; ++i)
        if (r->raw[static_cast<std::uint32_t>(lane) * r->width + i]) bytes |= 1u << i;
      if (!bytes) return;
      if (!(stored_.lanes >> lane & 1)) {
        stored_.lanes |= 1u << lane;
        stored_.computed |= 1u << lane;
        stored_.bytes[lane] = 0;
        stored_.origin[lane] = r->origin[lane];
        stored_.from[lane] = r->from[lane];
      }
      stored_.computed &= ~(~r->computed & 1u << lane);
      stored_.bytes[lane] |= bytes << (k * each);
    });
  }
}

void UndefinedValues::mix(const Instr& instr, Registers& registers, std::uint32_t on) {
  std::uint32_t lanes = 0;
  Source sources[kWarpSize];
  // A conversion looks at as many bits as its type has, which may be fewer than the register's.
  const int seen = instr.op_class == OpClass::conversion ? type_bits(instr.type) : 64;
  const auto look = [&](Slot slot) {
    const Register* r = find(registers, slot);
    if (!r) return;
    each_lane(r->lanes & on & ~lanes, [&](int lane) {
      if (seen < 64 && r->width && !(r->bits(lane) & ((1ull << seen) - 1))) return;
      lanes |= 1u << lane;
      sources[lane] = {r, lane};
    });
  };
  for (const Slot slot : {instr.a, instr.b, instr.c, instr.e}) look(slot);
  for (int k = instr.list_results; k < instr.list_count; ++k) look(Slot{instr.list[k]});
  // Which of two packed halves an operand has a part in.
  const int half = type_bits(packed_type(instr)) / 2;
  const std::uint64_t low = half ? (1ull << half) - 1 : 0;
  std::uint64_t bits[kWarpSize] = {};
  if (half)
    for (const Slot slot : {instr.a, instr.b, instr.c})
      if (const Register* r = find(registers, slot))
        each_lane(r->lanes & lanes, [&](int lane) {
          const bool converts = instr.op_class == OpClass::conversion;  // a is the upper half
          const std::uint64_t all = r->width ? r->bits(lane) : ~0ull;
          if (converts ? slot.bits == instr.b.bits : (all & low) != 0) bits[lane] |= low;
          if (converts ? slot.bits == instr.a.bits : (all & ~low) != 0) bits[lane] |= low << half;
        });
  define_results(instr, registers, on & ~lanes);
  each_lane(lanes, [&](int lane) {
    Register source = *sources[lane].of;  // a result may be an operand, too
    if (!places_bits(instr)) source.computed |= 1u << lane;
    std::uint8_t raw[8];
    std::memcpy(raw, &bits[lane], 8);
    if (half)
      put(registers, instr.d[0], lane, raw, lane_bytes(instr.d_bits), {&source, lane});
    else
      put_all(registers, instr.d[0], lane, instr.d_bits, {&source, lane});
    if (instr.d[1].valid()) put_all(registers, instr.d[1], lane, 1, {&source, lane});
  });
}

// setp, perhaps combined with a predicate that decides alone.
void UndefinedValues::compare(Warp& warp, const Instr& instr, Registers& registers,
                              std::uint32_t on) {
  Register none;
  const Register* r[3] = {find(registers, instr.a), find(registers, instr.b),
                          find(registers, instr.c)};
  for (const Register*& one : r) one = one ? one : &none;
  const std::uint32_t compared = (r[0]->lanes | r[1]->lanes) & on;
  std::uint32_t undefined[2] = {compared, compared};
  if (instr.c.valid() && instr.combine != Bool::none && instr.combine != Bool::xor_) {
    const std::uint32_t c = get_predicate(warp, instr.c, instr.c_not);
    const std::uint32_t decides = (instr.combine == Bool::and_ ? ~c : c) & ~r[2]->lanes;
    undefined[0] &= ~decides;
    undefined[1] = undefined[0];
  }
  if (const std::uint32_t open = r[2]->lanes & on & ~compared) {
    // What the comparison gives is known: does the result depend on the predicate?
    const std::uint32_t saved[2] = {warp.predicate(instr.c),
                                    instr.d[0].valid() ? warp.predicate(instr.d[0]) : 0};
    const std::uint32_t second = instr.d[1].valid() ? warp.predicate(instr.d[1]) : 0;
    std::uint32_t got[2][2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      warp.predicate(instr.c) = turn ? saved[0] | open : saved[0] & ~open;
      instr.run(warp, instr, on);
      for (int d = 0; d < 2; ++d)
        if (instr.d[d].valid()) got[turn][d] = warp.predicate(instr.d[d]);
      if (instr.d[0].valid()) warp.predicate(instr.d[0]) = saved[1];
      if (instr.d[1].valid()) warp.predicate(instr.d[1]) = second;
      warp.predicate(instr.c) = saved[0];
    }
    for (int d = 0; d < 2; ++d) undefined[d] |= (got[0][d] ^ got[1][d]) & open;
  }
  Register sources;
  each_lane((compared | r[2]->lanes) & on, [&](int lane) {
    for (const Register* one : r)
      if (one->lanes >> lane & 1) {
        sources.origin[lane] = one->origin[lane];
        sources.from[lane] = one->from[lane];
        break;
      }
  });
  define_results(instr, registers, on);
  for (int d = 0; d < 2; ++d)
    each_lane(undefined[d], [&](int lane) {
      put_all(registers, instr.d[d], lane, 1, {&sources, lane});
    });
}

void UndefinedValues::select(Warp& warp, const Instr& instr, Registers& registers,
                             std::uint32_t on) {
  const Register none, *a = find(registers, instr.a), *b = find(registers, instr.b),
                       *c = find(registers, instr.c);
  const Register copies[3] = {a ? *a : none, b ? *b : none, c ? *c : none};
  const std::uint32_t chosen = get_predicate(warp, instr.c, instr.c_not);
  const std::uint32_t width = lane_bytes(instr.d_bits);
  define_results(instr, registers, on);
  each_lane((copies[0].lanes | copies[1].lanes | copies[2].lanes) & on, [&](int lane) {
    const Register& value = copies[chosen >> lane & 1 ? 0 : 1];
    std::uint64_t bits = value.lanes >> lane & 1 ? value.bits(lane) : 0;
    const Register* source = &value;
    if (copies[2].lanes >> lane & 1) {  // either one: undefined unless they are the same
      source = &copies[2];
      const bool same =
          value_of(warp, instr.a, lane, width) == value_of(warp, instr.b, lane, width);
      bits = same && !((copies[0].lanes | copies[1].lanes) >> lane & 1) ? 0 : ~0ull;
    }
    std::uint8_t raw[8];
    std::memcpy(raw, &bits, 8);
    if (bits) put(registers, instr.d[0], lane, raw, width, {source, lane});
  });
}

// A defined 0 decides an `and` alone, a defined 1 an `or`.
void UndefinedValues::logic(Warp& warp, const Instr& instr, Registers& registers, std::uint32_t on,
                            bool is_and) {
  const Register none, *a = find(registers, instr.a), *b = find(registers, instr.b);
  const Register copies[2] = {a ? *a : none, b ? *b : none};
  const std::uint32_t width = lane_bytes(instr.d_bits);
  const auto value = [&](Slot slot, bool negated, int lane) -> std::uint64_t {
    if (width == 0) return get_predicate(warp, slot, negated) >> lane & 1;
    return value_of(warp, slot, lane, width);
  };
  std::uint64_t bits[kWarpSize] = {};
  const std::uint32_t lanes = (copies[0].lanes | copies[1].lanes) & on;
  each_lane(lanes, [&](int lane) {
    const std::uint64_t ua = copies[0].lanes >> lane & 1 ? copies[0].bits(lane) : 0,
                        ub = copies[1].lanes >> lane & 1 ? copies[1].bits(lane) : 0;
    std::uint64_t x = value(instr.a, instr.a_not, lane), y = value(instr.b, instr.b_not, lane);
    if (!is_and) x = ~x, y = ~y;
    bits[lane] = (ua & ub) | (ua & y) | (ub & x);
  });
  define_results(instr, registers, on);
  each_lane(lanes, [&](int lane) {
    std::uint8_t raw[8];
    std::memcpy(raw, &bits[lane], 8);
    if (bits[lane])
      put(registers, instr.d[0], lane, raw, width,
          {&copies[copies[0].lanes >> lane & 1 ? 0 : 1], lane});
  });
}

// The undefined bits take the way that the value's bits take: the instruction runs on them.
void UndefinedValues::rearrange(Warp& warp, const Instr& instr, Registers& registers,
                                std::uint32_t on) {
  std::vector<Slot> data;  // operands whose bits move; the others say where to
  const bool two = std::string_view(forms()[instr.form].opcode) == "prmt";
  const bool packs = instr.list && !instr.list_results;
  if (packs)
    for (int k = 0; k < instr.list_count; ++k) data.push_back(Slot{instr.list[k]});
  else
    data.push_back(instr.a);
  if (two) data.push_back(instr.b);
  std::uint32_t lanes = 0, unknown = 0;
  Register sources;
  const auto note = [&](const Register& r, std::uint32_t those) {
    each_lane(r.lanes & those, [&](int lane) {
      sources.origin[lane] = r.origin[lane];
      sources.from[lane] = r.from[lane];
    });
    sources.computed |= r.computed & r.lanes & those;
    lanes |= r.lanes & those;
  };
  for (const Slot slot : data)
    if (const Register* r = find(registers, slot)) note(*r, on & ~lanes);
  for (const Slot slot : {two ? Slot{} : instr.b, instr.c})
    if (const Register* r = find(registers, slot)) {
      unknown |= r->lanes & on;
      note(*r, on & ~lanes);
    }
  if (!lanes) return define_results(instr, registers, on);
  if (instr.d_bits == 1) {  // mov and not of predicates
    define_results(instr, registers, on);
    return each_lane(lanes, [&](int l) { put_all(registers, instr.d[0], l, 1, {&sources, l}); });
  }

  const bool unpacks = instr.list && !packs;
  const std::size_t results = unpacks ? instr.list_count : 1;
  std::vector<std::uint32_t> list;
  std::vector<std::uint8_t> got;
  const std::uint32_t width = lane_bytes(instr.d_bits);
  {
    Instr on_bits = instr;
    Scratch scratch(warp);
    const auto shadow = [&](Slot slot) {
      const Slot to = scratch.add();
      if (const Register* r = find(registers, slot))
        each_lane(r->lanes, [&](int lane) {
          const std::uint32_t at = static_cast<std::uint32_t>(lane) * r->width;
          std::memcpy(scratch.at(to) + at, r->raw + at, r->width);
        });
      return to;
    };
    const auto amount = [&](Slot slot) {
      if (!slot.valid()) return slot;
      const Slot to = scratch.add();
      std::memcpy(scratch.at(to), scratch.real(slot), kWarpSize * 4);
      return to;
    };
    if (packs) {
      for (const Slot slot : data) list.push_back(shadow(slot).bits);
      on_bits.a = Slot{list[0]};
    } else {
      on_bits.a = shadow(instr.a);
    }
    on_bits.b = two ? shadow(instr.b) : amount(instr.b);
    on_bits.c = amount(instr.c);
    if (unpacks)
      for (std::size_t k = 0; k < results; ++k) list.push_back(scratch.add().bits);
    on_bits.d[0] = unpacks ? Slot{list[0]} : scratch.add();
    if (instr.list) on_bits.list = list.data();
    const bool inverts = std::string_view(forms()[instr.form].opcode) == "not";
    if (inverts) sources.computed |= lanes;
    if (!inverts) instr.run(warp, on_bits, on);
    for (std::size_t k = 0; k < results; ++k) {
      const std::uint8_t* from = scratch.at(inverts   ? on_bits.a
                                            : unpacks ? Slot{list[k]}
                                                      : on_bits.d[0]);
      got.insert(got.end(), from, from + std::size_t{kWarpSize} * width);
    }
  }
  define_results(instr, registers, on);
  for (std::size_t k = 0; k < results; ++k) {
    const Slot to = unpacks ? Slot{instr.list[k]} : instr.d[0];
    each_lane(lanes, [&](int lane) {
      const std::uint8_t* raw =
          got.data() + (k * kWarpSize + static_cast<std::size_t>(lane)) * width;
      if (unknown >> lane & 1)
        put_all(registers, to, lane, instr.d_bits, {&sources, lane});
      else if (std::any_of(raw, raw + width, [](std::uint8_t byte) { return byte != 0; }))
        put(registers, to, lane, raw, width, {&sources, lane});
    });
  }
}

void UndefinedValues::shuffle(Warp& warp, const Instr& instr, Registers& registers,
                              std::uint32_t mask) {
  const Register* a = find(registers, instr.a);
  if (!a) return define_results(instr, registers, mask);
  const Register source = *a;
  std::uint32_t from[kWarpSize];
  {  // which lane each one gets its value from: the instruction runs on the lanes' numbers
    Instr on_lanes = instr;
    Scratch scratch(warp);
    on_lanes.a = scratch.add();
    for (std::uint32_t lane = 0; lane < kWarpSize; ++lane)
      std::memcpy(scratch.at(on_lanes.a) + lane * 4, &lane, 4);
    for (auto [to, operand] : {std::pair{&on_lanes.b, instr.b}, {&on_lanes.c, instr.c}}) {
      *to = scratch.add();
      std::memcpy(scratch.at(*to), scratch.real(operand), kWarpSize * 4);
    }
    on_lanes.d[0] = scratch.add();
    on_lanes.d[1] = Slot{};
    instr.run(warp, on_lanes, mask);
    std::memcpy(from, scratch.at(on_lanes.d[0]), sizeof from);
  }
  define_results(instr, registers, mask);
  each_lane(mask, [&](int lane) {
    const int other = static_cast<int>(from[lane] & 31);
    if (!(source.lanes >> other & 1)) return;
    put(registers, instr.d[0], lane, source.raw + static_cast<std::uint32_t>(other) * source.width,
        source.width, {&source, other});
  });
}

void UndefinedValues::forget(const Block& block) {
  std::erase_if(frames_, [&](const auto& entry) { return entry.second.block == &block; });
  last_ = nullptr;
}

}  // namespace vgpu
