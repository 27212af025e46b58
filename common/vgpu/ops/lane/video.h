// What the video instructions do to one lane (PTX ISA, "Video Instructions"): arithmetic on bytes
// and halves of 32-bit words, one at a time (vadd, vset ...), two at a time (vadd2 ...) or four
// (vadd4 ...). See core/signature.h.
//
// An operand may say which of its parts it means, %r1.h10 or %r1.b2; the decoder packs that into
// Instr::constant (Decoder::select_parts). What else there is to know about the operation the
// binder packs into Instr::imm, as flags.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "../../ptx/program.h"

namespace vgpu::op::video {

using std::int64_t, std::uint32_t, std::uint64_t;
using int128 = __int128;  // holds what a shift by 32 or a product of two words needs, and a sign

enum class Op { add, sub, avrg, absdiff, min, max, set, shl, shr, mad };

// What an operation wants to know, worked out by the binder into Instr.
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
constexpr uint64_t flags_of(const Instr& instr) { return static_cast<uint64_t>(instr.imm); }

struct Selector {
  int part_bits = 32, count = 1;
  int index[4] = {};
};
constexpr Selector unpack(uint64_t packed, const Selector& otherwise) {
  if ((packed & 7) == 0) return otherwise;
  Selector s;
  s.count = static_cast<int>(packed & 7);
  s.part_bits = packed & 8 ? 16 : 8;
  for (int i = 0; i < s.count; ++i) s.index[i] = static_cast<int>(packed >> (4 + 3 * i) & 7);
  return s;
}
constexpr uint64_t selector_of(const Instr& instr, int operand) {
  return static_cast<uint64_t>(instr.constant) >> 16 * operand & 0xffff;
}

constexpr int64_t extend(uint64_t value, int bits, bool is_signed) {
  const uint64_t cut = value << (64 - bits);
  return is_signed ? static_cast<int64_t>(cut) >> (64 - bits)
                   : static_cast<int64_t>(cut >> (64 - bits));
}
constexpr int128 clamped(int128 v, int bits, bool is_signed) {
  const int128 high = is_signed ? (int128{1} << (bits - 1)) - 1 : (int128{1} << bits) - 1;
  return std::clamp(v, is_signed ? -high - 1 : int128{0}, high);
}

constexpr bool compares(Compare how, int64_t a, int64_t b) {
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
constexpr int64_t simple(int64_t a, int64_t b, Compare how) {
  if constexpr (op == Op::add) return a + b;
  if constexpr (op == Op::sub) return a - b;
  if constexpr (op == Op::avrg) return (a + b + (a + b >= 0)) >> 1;  // halves away from zero
  if constexpr (op == Op::absdiff) return std::abs(a - b);
  if constexpr (op == Op::min) return std::min(a, b);
  if constexpr (op == Op::max) return std::max(a, b);
  return compares(how, a, b);
}

struct Selectors {
  Selector d, a, b;
};
// One number each; or that many parts: a's, b's, and each part of d, where nothing is said.
[[gnu::noinline]] inline Selectors selectors_of(const Instr& instr, int parts) {
  Selectors s;
  for (int i = 0; parts > 1 && i < parts; ++i)
    s.a.index[i] = i, s.b.index[i] = parts + i, s.d.index[i] = i;
  s.d.count = parts;
  return {unpack(selector_of(instr, 0), s.d), unpack(selector_of(instr, 1), s.a),
          unpack(selector_of(instr, 2), s.b)};
}

// Two or four parts at a time; the parts may come from either source.
template <Op op, int kParts>
class Parallel {
 public:
  explicit Parallel(const Instr& instr) : flags_(flags_of(instr)), compare_(instr.compare) {
    const Selectors s = selectors_of(instr, kParts);
    a_ = s.a, b_ = s.b;
    for (int i = 0; i < s.d.count; ++i) chosen_[s.d.index[i]] = true;
  }
  uint32_t lane(uint32_t a, uint32_t b, uint32_t c) const {
    constexpr int kBits = 32 / kParts;
    constexpr uint32_t kPart = (1u << kBits) - 1;
    const uint64_t both = a | uint64_t{b} << 32;
    const bool adds = flags_ & kThenAdd;
    uint32_t value = adds ? c : 0;
    for (int i = 0; i < kParts; ++i) {
      int64_t t =
          simple<op>(extend(both >> kBits * a_.index[i], kBits, flags_ & kSignedA),
                     extend(both >> kBits * b_.index[i], kBits, flags_ & kSignedB), compare_);
      if (flags_ & kSat) t = static_cast<int64_t>(clamped(t, kBits, flags_ & kSignedD));
      if (adds)
        value += chosen_[i] ? static_cast<uint32_t>(t) : 0;
      else
        value |= ((chosen_[i] ? static_cast<uint32_t>(t) : c >> kBits * i) & kPart) << kBits * i;
    }
    return value;
  }

 private:
  uint64_t flags_;
  Compare compare_;
  Selector a_, b_;
  bool chosen_[kParts] = {};
};

template <Op op>
constexpr int128 full(int128 a, int128 b, int128 c, uint64_t flags, Compare how) {
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

// One number of each source, cut out of its word. c is 0 where there is none.
template <Op op>
class Scalar {
 public:
  explicit Scalar(const Instr& instr) : flags_(flags_of(instr)), compare_(instr.compare) {
    const Selectors s = selectors_of(instr, 1);
    a_ = s.a, b_ = s.b, to_ = s.d;
  }
  uint32_t lane(uint32_t a, uint32_t b, uint32_t c) const {
    const bool signed_d = flags_ & kSignedD;
    const int64_t third = extend(c, 32, signed_d);
    const int128 exact =
        full<op>(extend(a >> a_.part_bits * a_.index[0], a_.part_bits, flags_ & kSignedA),
                 extend(b >> b_.part_bits * b_.index[0], b_.part_bits, flags_ & kSignedB), third,
                 flags_, compare_);
    const int128 kept = flags_ & kSat ? clamped(exact, to_.part_bits, signed_d) : exact;
    int64_t value = extend(static_cast<uint64_t>(kept), 32, signed_d);
    if (flags_ & kThenAdd) value += third;
    if (flags_ & kThenMin) value = std::min(value, third);
    if (flags_ & kThenMax) value = std::max(value, third);
    if (to_.part_bits == 32) return static_cast<uint32_t>(value);
    const int shift = to_.part_bits * to_.index[0];
    const uint32_t part = ((1u << to_.part_bits) - 1) << shift;
    return (static_cast<uint32_t>(value) << shift & part) | (c & ~part);
  }

 private:
  uint64_t flags_;
  Compare compare_;
  Selector a_, b_, to_;
};

}  // namespace vgpu::op::video
