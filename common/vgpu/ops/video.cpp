// Video instructions (PTX ISA, "Video Instructions"): arithmetic on bytes and halves of 32-bit words,
// one at a time (vadd, vset ...), two at a time (vadd2 ...) or four (vadd4 ...).
//
// An operand may say which of its parts it means, %r1.h10 or %r1.b2; the decoder packs that into
// Instr::constant (Decoder::select_parts).
#include <algorithm>
#include <cstdlib>

#include "forms.h"
#include "../core/lanes.h"

namespace vgpu {
namespace {

using std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;
using int128 = __int128;  // holds what a shift by 32 or a product of two words needs, and a sign

enum class Op { add, sub, avrg, absdiff, min, max, set, shl, shr, mad };

// What a handler wants to know about the operation, worked out by the binder into Instr.
enum Flag : std::uint64_t {
  kSignedA = 1,
  kSignedB = 2,
  kSignedD = 4,
  kSat = 8,
  kThenAdd = 16,
  kThenMin = 32,
  kThenMax = 64,  // what is done with c
  kWrap = 128,
  kPlusOne = 256,
  kShr7 = 512,
  kShr15 = 1024
};
uint64_t flags_of(const Instr& instr) { return static_cast<uint64_t>(instr.imm); }

struct Selector {
  int part_bits = 32, count = 1;
  int index[4] = {};
};
Selector unpack(uint64_t packed, const Selector& otherwise) {
  if ((packed & 7) == 0) return otherwise;
  Selector s;
  s.count = static_cast<int>(packed & 7);
  s.part_bits = packed & 8 ? 16 : 8;
  for (int i = 0; i < s.count; ++i) s.index[i] = static_cast<int>(packed >> (4 + 3 * i) & 7);
  return s;
}
uint64_t selector_of(const Instr& instr, int operand) {
  return static_cast<uint64_t>(instr.constant) >> 16 * operand & 0xffff;
}

int64_t extend(uint64_t value, int bits, bool is_signed) {
  const uint64_t cut = value << (64 - bits);
  return is_signed ? static_cast<int64_t>(cut) >> (64 - bits)
                   : static_cast<int64_t>(cut >> (64 - bits));
}
int128 clamped(int128 v, int bits, bool is_signed) {
  const int128 high = is_signed ? (int128{1} << (bits - 1)) - 1 : (int128{1} << bits) - 1;
  return std::clamp(v, is_signed ? -high - 1 : int128{0}, high);
}

bool compares(Compare how, int64_t a, int64_t b) {
  switch (how) {
    case Compare::eq:
      return a == b;
    case Compare::ne:
      return a != b;
    case Compare::lt:
      return a < b;
    case Compare::le:
      return a <= b;
    case Compare::gt:
      return a > b;
    default:
      return a >= b;
  }
}

template <Op op>
int64_t simple(int64_t a, int64_t b, Compare how) {
  if constexpr (op == Op::add) return a + b;
  if constexpr (op == Op::sub) return a - b;
  if constexpr (op == Op::avrg) return (a + b + (a + b >= 0)) >> 1;  // halves away from zero
  if constexpr (op == Op::absdiff) return std::abs(a - b);
  if constexpr (op == Op::min) return std::min(a, b);
  if constexpr (op == Op::max) return std::max(a, b);
  return compares(how, a, b);
}

// Two or four parts at a time; the parts may come from either source.
template <Op op, int kParts>
void parallel(Warp& warp, const Instr& instr, uint32_t mask) {
  constexpr int kBits = 32 / kParts;
  const uint64_t flags = flags_of(instr);
  Selector low, high,
      all;  // what is meant when nothing is said: a's parts, b's parts, each part of d
  for (int i = 0; i < kParts; ++i) low.index[i] = i, high.index[i] = kParts + i;
  all.count = kParts;
  for (int i = 0; i < kParts; ++i) all.index[i] = i;
  const Selector from_a = unpack(selector_of(instr, 1), low),
                 from_b = unpack(selector_of(instr, 2), high),
                 to = unpack(selector_of(instr, 0), all);
  bool chosen[kParts] = {};
  for (int i = 0; i < to.count; ++i) chosen[to.index[i]] = true;
  const auto *a = warp.lanes<const uint32_t>(instr.a), *b = warp.lanes<const uint32_t>(instr.b),
             *c = warp.lanes<const uint32_t>(instr.c);
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const uint64_t both = a[lane] | uint64_t{b[lane]} << 32;
    const bool adds = flags & kThenAdd;
    uint32_t value = adds ? c[lane] : 0;
    for (int i = 0; i < kParts; ++i) {
      int64_t t = simple<op>(extend(both >> kBits * from_a.index[i], kBits, flags & kSignedA),
                             extend(both >> kBits * from_b.index[i], kBits, flags & kSignedB),
                             instr.compare);
      if (flags & kSat) t = static_cast<int64_t>(clamped(t, kBits, flags & kSignedD));
      constexpr uint32_t kPart = (1u << kBits) - 1;
      if (adds)
        value += chosen[i] ? static_cast<uint32_t>(t) : 0;
      else
        value |= ((chosen[i] ? static_cast<uint32_t>(t) : c[lane] >> kBits * i) & kPart)
                 << kBits * i;
    }
    d[lane] = value;
  }
}

template <Op op>
int128 full(int128 a, int128 b, int128 c, uint64_t flags, Compare how) {
  if constexpr (op == Op::shl || op == Op::shr) {
    const int by = static_cast<int>(flags & kWrap ? b & 31 : std::min<int128>(b, 32));
    return op == Op::shl ? a * (int128{1} << by) : a >> by;
  }
  if constexpr (op == Op::mad)
    return (a * b + c + (flags & kPlusOne ? 1 : 0)) >> (flags & kShr7    ? 7
                                                        : flags & kShr15 ? 15
                                                                         : 0);
  return simple<op>(static_cast<int64_t>(a), static_cast<int64_t>(b), how);
}

// One number of each source, cut out of its word.
template <Op op>
void scalar(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint64_t flags = flags_of(instr);
  const Selector whole;
  const Selector from_a = unpack(selector_of(instr, 1), whole),
                 from_b = unpack(selector_of(instr, 2), whole),
                 to = unpack(selector_of(instr, 0), whole);
  const auto *a = warp.lanes<const uint32_t>(instr.a), *b = warp.lanes<const uint32_t>(instr.b),
             *c = instr.c.valid() ? warp.lanes<const uint32_t>(instr.c) : nullptr;
  const bool signed_d = flags & kSignedD;
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const uint32_t word = c ? c[lane] : 0;
    const int64_t third = extend(word, 32, signed_d);
    const int128 exact = full<op>(
        extend(a[lane] >> from_a.part_bits * from_a.index[0], from_a.part_bits, flags & kSignedA),
        extend(b[lane] >> from_b.part_bits * from_b.index[0], from_b.part_bits, flags & kSignedB),
        third, flags, instr.compare);
    const int128 kept = flags & kSat ? clamped(exact, to.part_bits, signed_d) : exact;
    int64_t value = extend(static_cast<uint64_t>(kept), 32, signed_d);
    if (flags & kThenAdd) value += third;
    if (flags & kThenMin) value = std::min(value, third);
    if (flags & kThenMax) value = std::max(value, third);
    if (to.part_bits == 32) {
      d[lane] = static_cast<uint32_t>(value);
    } else {
      const int shift = to.part_bits * to.index[0];
      const uint32_t part = ((1u << to.part_bits) - 1) << shift;
      d[lane] = (static_cast<uint32_t>(value) << shift & part) | (word & ~part);
    }
  }
}

template <int kParts>
Handler parallel_for(std::string_view op) {
  if (op == "vadd") return &parallel<Op::add, kParts>;
  if (op == "vsub") return &parallel<Op::sub, kParts>;
  if (op == "vavrg") return &parallel<Op::avrg, kParts>;
  if (op == "vabsdiff") return &parallel<Op::absdiff, kParts>;
  if (op == "vmin") return &parallel<Op::min, kParts>;
  if (op == "vmax") return &parallel<Op::max, kParts>;
  return &parallel<Op::set, kParts>;
}
Handler scalar_for(std::string_view op) {
  if (op == "vadd") return &scalar<Op::add>;
  if (op == "vsub") return &scalar<Op::sub>;
  if (op == "vabsdiff") return &scalar<Op::absdiff>;
  if (op == "vmin") return &scalar<Op::min>;
  if (op == "vmax") return &scalar<Op::max>;
  if (op == "vshl") return &scalar<Op::shl>;
  if (op == "vshr") return &scalar<Op::shr>;
  if (op == "vmad") return &scalar<Op::mad>;
  return &scalar<Op::set>;
}

// Whether a selector fits: `count` parts (a mask of d: up to that many, falling), each below `limit`.
bool fits(uint64_t packed, int part_bits, int count, int limit, bool is_mask) {
  if ((packed & 7) == 0) return true;
  const Selector s = unpack(packed, {});
  if (s.part_bits != part_bits || (is_mask ? s.count > count : s.count != count)) return false;
  for (int i = 0; i < s.count; ++i) {
    if (s.index[i] >= limit) return false;
    if (is_mask && i && s.index[i] <= s.index[i - 1]) return false;
  }
  return true;
}

}  // namespace

Handler bind_video(Instr& instr, const Mods& mods) {
  std::string_view op = forms()[instr.form].opcode;
  const int parts = op.back() == '2' ? 2 : op.back() == '4' ? 4 : 1;
  if (parts > 1) op.remove_suffix(1);
  const bool sets = op == "vset";
  // Types: d a b, without d where the result is a truth value.
  uint64_t flags = 0;
  const std::size_t first = sets ? 0 : 1;
  if (!sets && mods.words[0] == "s32") flags |= kSignedD;
  if (mods.words[first] == "s32") flags |= kSignedA;
  if (mods.words[first + 1] == "s32") flags |= kSignedB;
  const auto flag = [&](std::string_view word, Flag value) {
    if (mods.has(word)) flags |= value;
  };
  flag("sat", kSat), flag("wrap", kWrap), flag("po", kPlusOne), flag("shr7", kShr7),
      flag("shr15", kShr15);
  flag("add", kThenAdd), flag("min", kThenMin), flag("max", kThenMax);
  if (sets) {
    constexpr std::pair<std::string_view, Compare> names[] = {
        {"eq", Compare::eq}, {"ne", Compare::ne}, {"lt", Compare::lt},
        {"le", Compare::le}, {"gt", Compare::gt}, {"ge", Compare::ge}};
    for (const auto& [name, value] : names)
      if (mods.words[2] == name) instr.compare = value;
  }
  // A product and its sum are signed when a factor is, whatever d is said to be.
  if (op == "vmad")
    flags = flags & (kSignedA | kSignedB) ? flags | kSignedD : flags & ~uint64_t{kSignedD};
  instr.imm = static_cast<int64_t>(flags);

  const uint64_t d = selector_of(instr, 0), a = selector_of(instr, 1), b = selector_of(instr, 2);
  if (parts > 1) {
    const int bits = 32 / parts;
    if (!fits(d, bits, parts, parts, true) || !fits(a, bits, parts, 2 * parts, false) ||
        !fits(b, bits, parts, 2 * parts, false))
      return nullptr;
    return parts == 2 ? parallel_for<2>(op) : parallel_for<4>(op);
  }
  for (const uint64_t s : {d, a, b})
    if (!fits(s, s & 8 ? 16 : 8, 1, s & 8 ? 2 : 4, false)) return nullptr;
  // A merge or a second operation needs c, and there cannot be both; vmad has no merge.
  const bool second = flags & (kThenAdd | kThenMin | kThenMax), merges = d & 7;
  if (op == "vmad" ? merges || !instr.c.valid()
                   : (second && merges) || instr.c.valid() != (second || merges))
    return nullptr;
  return scalar_for(op);
}

}  // namespace vgpu
