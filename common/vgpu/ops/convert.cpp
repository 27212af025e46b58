// cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt" and "cvt.pack"): the forms. What
// they do to one lane is in lane/convert.h.
//
// The conversions of inner loops (f16 and bf16 from and to f32, index arithmetic, f32 from and to
// 32-bit integers) have handlers of their own. All others go in stages over 32 lanes: registers to
// int64 or double, which hold every source value exactly; rounding; the destination's bits; the
// register. Each stage is a plain loop around a step of lane/convert.h that becomes SIMD.
#include <array>

#include "../core/lanes.h"
#include "forms.h"
#include "half.h"
#include "lane/convert.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
namespace convert = op::convert;

// ---- stages: registers ----------------------------------------------------------------------

template <class T>
inline void widen_lanes(Warp& warp, Slot slot, uint64_t* to) {
  const T* from = warp.lanes<const T>(slot);
  for (int lane = 0; lane < kWarpSize; ++lane) to[lane] = from[lane];
}
void read_raw(Warp& warp, Slot slot, int bits, uint64_t* to) {
  switch (bits) {
    case 16:
      return widen_lanes<uint16_t>(warp, slot, to);
    case 32:
      return widen_lanes<uint32_t>(warp, slot, to);
    default:
      return widen_lanes<uint64_t>(warp, slot, to);
  }
}
// Integers as int64; those of u64 as the same bits.
void read_integers(Warp& warp, const Instr& instr, int64_t* to) {
  alignas(64) uint64_t raw[kWarpSize];
  read_raw(warp, instr.a, instr.a_bits, raw);
  const convert::ReadInteger read(instr);
  for (int lane = 0; lane < kWarpSize; ++lane) to[lane] = read.lane(raw[lane]);
}
template <Type kFrom>
void to_doubles(const uint64_t* raw, bool ftz, double* to) {
  for (int i = 0; i < kWarpSize; ++i) to[i] = convert::double_of<kFrom>(raw[i], ftz);
}
void read_doubles(Warp& warp, const Instr& instr, double* to) {
  alignas(64) uint64_t raw[kWarpSize];
  read_raw(warp, instr.a, instr.a_bits, raw);
  switch (instr.type) {
    case Type::f16: {  // 8 at a time
      alignas(64) uint16_t half[kWarpSize];
      alignas(64) float wide[kWarpSize];
      for (int i = 0; i < kWarpSize; ++i) half[i] = static_cast<uint16_t>(raw[i]);
      halves_to_floats(half, wide);
      for (int i = 0; i < kWarpSize; ++i) to[i] = wide[i];
      break;
    }
    case Type::bf16:
      return to_doubles<Type::bf16>(raw, instr.ftz, to);
    case Type::f32:
      return to_doubles<Type::f32>(raw, instr.ftz, to);
    default:
      return to_doubles<Type::f64>(raw, instr.ftz, to);
  }
}

template <class T>
inline void write_lanes(Warp& warp, const Instr& instr, uint32_t mask, const uint64_t* from) {
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = static_cast<T>(from[lane]);
}
void write_raw(Warp& warp, const Instr& instr, uint32_t mask, const uint64_t* from) {
  switch (instr.d_bits) {
    case 16:
      return write_lanes<uint16_t>(warp, instr, mask, from);
    case 32:
      return write_lanes<uint32_t>(warp, instr, mask, from);
    default:
      return write_lanes<uint64_t>(warp, instr, mask, from);
  }
}
// Integers of the destination's type, extended to its register.
void write_integers(Warp& warp, const Instr& instr, uint32_t mask, uint64_t* values) {
  const convert::WriteInteger write(instr);
  for (int lane = 0; lane < kWarpSize; ++lane) values[lane] = write.lane(values[lane]);
  write_raw(warp, instr, mask, values);
}

// ---- stages: rounding -----------------------------------------------------------------------

template <Rounding kRounding>
void to_whole(double* x) {
  for (int i = 0; i < kWarpSize; ++i) x[i] = convert::integral(x[i], kRounding);
}
void to_integral(double* x, Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      return to_whole<Rounding::rzi>(x);
    case Rounding::rmi:
      return to_whole<Rounding::rmi>(x);
    case Rounding::rpi:
      return to_whole<Rounding::rpi>(x);
    case Rounding::rni:
      return to_whole<Rounding::rni>(x);
    default:
      break;
  }
}

// Doubles, each exact or rounded to odd, as bits of the destination's format.
template <Type kTo>
void to_bits(const Instr& instr, const double* x, uint64_t* to) {
  const bool saturate = instr.variant;
  for (int i = 0; i < kWarpSize; ++i) to[i] = convert::bits_of<kTo>(x[i], instr.rounding, saturate);
}
void to_format(const Instr& instr, const double* from, uint64_t* to) {
  alignas(64) double x[kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) x[i] = from[i];
  if (instr.relu)
    for (int i = 0; i < kWarpSize; ++i) x[i] = convert::relu(x[i]);
  if (instr.sat)
    for (int i = 0; i < kWarpSize; ++i) x[i] = convert::saturated(x[i]);
  switch (instr.dtype) {
    case Type::f16:
      return to_bits<Type::f16>(instr, x, to);
    case Type::bf16:
      return to_bits<Type::bf16>(instr, x, to);
    case Type::tf32:
      return to_bits<Type::tf32>(instr, x, to);
    case Type::f32: {
      alignas(64) float f[kWarpSize];
      convert::convert_rounded(x, f, kWarpSize, instr.rounding);
      const bool ftz = instr.ftz;
      for (int i = 0; i < kWarpSize; ++i) to[i] = convert::bits_of_float(f[i], ftz);
      break;
    }
    default:
      return to_bits<Type::f64>(instr, x, to);
  }
}

// ---- any conversion -------------------------------------------------------------------------

// An operation of 64 bits on registers of any width.
template <class Op>
void widened(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) uint64_t v[kWarpSize];
  read_raw(warp, instr.a, instr.a_bits, v);
  const Op op(instr);
  for (int lane = 0; lane < kWarpSize; ++lane) v[lane] = op.lane(v[lane]);
  write_raw(warp, instr, mask, v);
}

void integer_saturated(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) int64_t v[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_integers(warp, instr, v);
  const convert::ClampInteger clamp(instr);
  for (int lane = 0; lane < kWarpSize; ++lane) r[lane] = clamp.lane(v[lane]);
  write_integers(warp, instr, mask, r);
}

void float_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) double x[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_doubles(warp, instr, x);
  to_integral(x, instr.rounding);
  to_format(instr, x, r);
  write_raw(warp, instr, mask, r);
}

void float_to_integer(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) double x[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_doubles(warp, instr, x);
  to_integral(x, instr.rounding);
  const convert::DoubleToInteger to_integer(instr);
  for (int lane = 0; lane < kWarpSize; ++lane) r[lane] = to_integer.lane(x[lane]);
  write_integers(warp, instr, mask, r);
}

template <class Integer>
void integers_to_doubles(const Instr& instr, const Integer* v, double* x) {
  if (instr.dtype == Type::f64) {
    convert::convert_rounded(v, x, kWarpSize, instr.rounding);
  } else if (instr.dtype == Type::f32) {
    alignas(64) float f[kWarpSize];
    convert::convert_rounded(v, f, kWarpSize, instr.rounding);
    for (int i = 0; i < kWarpSize; ++i) x[i] = f[i];
  } else {
    convert::convert_rounded(v, x, kWarpSize, Rounding::rz);
    for (int i = 0; i < kWarpSize; ++i) x[i] = convert::odd_unless_exact(x[i], v[i]);
  }
}
void integer_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) int64_t v[kWarpSize];
  alignas(64) double x[kWarpSize];
  alignas(64) uint64_t r[kWarpSize];
  read_integers(warp, instr, v);
  if (instr.type == Type::u64)
    integers_to_doubles(instr, reinterpret_cast<const uint64_t*>(v), x);
  else
    integers_to_doubles(instr, v, x);
  to_format(instr, x, r);
  write_raw(warp, instr, mask, r);
}

// ---- the usual ones, 8 lanes at a time ------------------------------------------------------

void half_to_float(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<float> result(warp, instr.d[0], mask);
  halves_to_floats(warp.lanes<const uint16_t>(instr.a), result.lanes());
}
void float_to_half(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint16_t> result(warp, instr.d[0], mask);
  floats_to_halves(warp.lanes<const float>(instr.a), result.lanes());
}

// ---- two values to one register -------------------------------------------------------------

// 32 floats to the nearest of the format.
template <class F>
void narrow_all(const float* from, uint16_t* to) {
  if constexpr (std::is_same_v<F, Fp16>)
    floats_to_halves(from, to);
  else
    for (int i = 0; i < kWarpSize; ++i) to[i] = convert::Narrow<F>::lane(from[i]);
}
// Two arrays of floats to one register, the first above the second; to the nearest. fp8 saturates.
template <class F>
void pack_lanes(Warp& warp, const Instr& instr, uint32_t mask, float* high, float* low) {
  if (instr.relu)
    for (float* x : {high, low})
      for (int i = 0; i < kWarpSize; ++i) x[i] = convert::relu(x[i]);
  alignas(64) uint16_t parts[2][kWarpSize];
  narrow_all<F>(high, parts[0]);
  narrow_all<F>(low, parts[1]);
  using Pack = convert::PackFloats<F>;
  using Lane = typename Pack::Pair;
  Result<Lane> result(warp, instr.d[0], mask);
  Lane* d = result.lanes();
  for (int i = 0; i < kWarpSize; ++i) d[i] = Pack::joined(parts[0][i], parts[1][i]);
}
// d = {a, b}: a becomes the upper part.
template <class F>
void pack_floats(Warp& warp, const Instr& instr, uint32_t mask) {
  alignas(64) float high[kWarpSize], low[kWarpSize];
  std::memcpy(high, warp.lanes<const float>(instr.a), sizeof high);
  std::memcpy(low, warp.lanes<const float>(instr.b), sizeof low);
  pack_lanes<F>(warp, instr, mask, high, low);
}
// The one that matters: two f32 to f16x2.
void pack_halves(Warp& warp, const Instr& instr, uint32_t mask) {
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  const float* a = warp.lanes<const float>(instr.a);
  const float* b = warp.lanes<const float>(instr.b);
  for (int i = 0; i < kWarpSize; i += 8) {
    Float8 high, low;
    std::memcpy(&high, a + i, sizeof high);
    std::memcpy(&low, b + i, sizeof low);
    const Word8 pair = __builtin_convertvector(halves_from_floats(high), Word8) << 16 |
                       __builtin_convertvector(halves_from_floats(low), Word8);
    std::memcpy(d + i, &pair, sizeof pair);
  }
}
// f16x2 to two fp8 in 16 bits.
template <class F>
void halves_to_fp8(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  alignas(64) uint16_t half[2][kWarpSize];
  alignas(64) float wide[2][kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) {
    half[0][i] = static_cast<uint16_t>(a[i] >> 16);
    half[1][i] = static_cast<uint16_t>(a[i]);
  }
  for (int part = 0; part < 2; ++part) halves_to_floats(half[part], wide[part]);
  pack_lanes<F>(warp, instr, mask, wide[0], wide[1]);
}

// ---- which roundings a conversion needs -----------------------------------------------------

bool integral(Rounding r) {
  return r == Rounding::rni || r == Rounding::rzi || r == Rounding::rmi || r == Rounding::rpi;
}
// PTX ISA, cvt: a floating-point rounding where precision may be lost and nowhere else, rounding to
// an integer only within a type; .ftz only with .f32; .sat not for .bf16.
bool legal(const Instr& instr) {
  if (instr.ftz && instr.type != Type::f32 && instr.dtype != Type::f32) return false;
  if (instr.sat && instr.dtype == Type::bf16) return false;
  if (instr.type == instr.dtype)
    return instr.rounding == Rounding::none || integral(instr.rounding);
  if (integral(instr.rounding)) return false;
  const auto size = [](Type t) { return type_bits(t) + (t == Type::bf16 ? 1 : 0); };
  // f16 has the longer mantissa, bf16 the larger range: each loses something of the other.
  const bool halves = type_bits(instr.type) == 16 && type_bits(instr.dtype) == 16;
  const bool loses = halves || size(instr.dtype) < size(instr.type) || instr.dtype == Type::tf32;
  return loses == (instr.rounding != Rounding::none);
}

template <class Out>
Handler words_from_floats(Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      return &lanewise<convert::FloatToWord<Out, Rounding::rzi>>;
    case Rounding::rmi:
      return &lanewise<convert::FloatToWord<Out, Rounding::rmi>>;
    case Rounding::rpi:
      return &lanewise<convert::FloatToWord<Out, Rounding::rpi>>;
    default:
      return &lanewise<convert::FloatToWord<Out, Rounding::rni>>;
  }
}
Handler integral_floats(Rounding rounding) {
  switch (rounding) {
    case Rounding::rzi:
      return &lanewise<convert::Integral<Rounding::rzi>>;
    case Rounding::rmi:
      return &lanewise<convert::Integral<Rounding::rmi>>;
    case Rounding::rpi:
      return &lanewise<convert::Integral<Rounding::rpi>>;
    default:
      return &lanewise<convert::Integral<Rounding::rni>>;
  }
}

// From a register through a type to a register.
template <class In, class Out>
Handler through(Type type) {
  switch (type) {
    case Type::u8:
      return &lanewise<convert::Through<uint8_t, Out, In>>;
    case Type::s8:
      return &lanewise<convert::Through<int8_t, Out, In>>;
    case Type::u16:
      return &lanewise<convert::Through<uint16_t, Out, In>>;
    case Type::s16:
      return &lanewise<convert::Through<int16_t, Out, In>>;
    case Type::u32:
      return &lanewise<convert::Through<uint32_t, Out, In>>;
    case Type::s32:
      return &lanewise<convert::Through<int32_t, Out, In>>;
    default:
      return &lanewise<convert::Cast<Out, In>>;
  }
}
template <class In>
Handler through(Type type, int d_bits) {
  switch (d_bits) {
    case 16:
      return through<In, uint16_t>(type);
    case 32:
      return through<In, uint32_t>(type);
    default:
      return through<In, uint64_t>(type);
  }
}

}  // namespace

Handler bind_cvt_integer(Instr& instr, const Mods&) {
  if (instr.sat) return &integer_saturated;
  const int from = type_bits(instr.type), to = type_bits(instr.dtype);
  // One of the two types decides alone: the source's where the destination fills its register, the
  // destination's where it is no wider than the source's.
  if (to == instr.d_bits || to <= from) {
    const Type decides = to <= from ? instr.dtype : instr.type;
    switch (instr.a_bits) {
      case 16:
        return through<uint16_t>(decides, instr.d_bits);
      case 32:
        return through<uint32_t>(decides, instr.d_bits);
      default:
        return through<uint64_t>(decides, instr.d_bits);
    }
  }
  return &widened<convert::IntegerToInteger>;
}
Handler bind_cvt_float_to_integer(Instr& instr, const Mods&) {
  if (instr.ftz && instr.type != Type::f32) return nullptr;
  const bool plain = instr.type == Type::f32 && instr.a_bits == 32 && instr.d_bits == 32;
  // .ftz changes nothing where small numbers become zero anyway.
  const bool same =
      !instr.ftz || instr.rounding == Rounding::rzi || instr.rounding == Rounding::rni;
  if (plain && same && instr.dtype == Type::s32) return words_from_floats<int32_t>(instr.rounding);
  if (plain && same && instr.dtype == Type::u32) return words_from_floats<uint32_t>(instr.rounding);
  return &float_to_integer;
}
Handler bind_cvt_integer_to_float(Instr& instr, const Mods&) {
  if (instr.sat && instr.dtype == Type::bf16) return nullptr;
  const bool plain = instr.rounding == Rounding::rn && !instr.sat && instr.dtype == Type::f32 &&
                     instr.a_bits == 32 && instr.d_bits == 32;
  if (plain && instr.type == Type::s32) return &lanewise<convert::Cast<float, int32_t>>;
  if (plain && instr.type == Type::u32) return &lanewise<convert::Cast<float, uint32_t>>;
  if (!instr.sat && instr.dtype == Type::f64 && instr.a_bits == 32) {  // exact
    if (instr.type == Type::s32) return &lanewise<convert::Cast<double, int32_t>>;
    if (instr.type == Type::u32) return &lanewise<convert::Cast<double, uint32_t>>;
  }
  return &integer_to_float;
}
Handler bind_cvt_float(Instr& instr, const Mods& mods) {
  if (!legal(instr)) return nullptr;
  instr.variant = mods.has("satfinite");
  const Type to = instr.dtype, from = instr.type;
  const bool nearest = instr.rounding == Rounding::none || instr.rounding == Rounding::rn;
  const bool plain = nearest && !instr.sat && !instr.relu && !instr.ftz && !instr.variant &&
                     instr.a_bits == type_bits(from) && instr.d_bits == type_bits(to);
  if (plain && to == Type::f32 && from == Type::f16) return &half_to_float;
  if (plain && to == Type::f16 && from == Type::f32) return &float_to_half;
  if (plain && to == Type::f32 && from == Type::bf16) return &lanewise<convert::Bf16ToFloat>;
  if (plain && to == Type::bf16 && from == Type::f32) return &lanewise<convert::FloatToBf16>;
  if (plain && to == Type::f64 && from == Type::f32) return &lanewise<convert::Cast<double, float>>;
  if (plain && to == Type::f32 && from == Type::f64) return &lanewise<convert::DoubleToFloat>;
  if (to == Type::f32 && from == Type::f32 && integral(instr.rounding) && !instr.sat && !instr.ftz)
    return integral_floats(instr.rounding);
  if (to == Type::tf32 && instr.rounding == Rounding::rna && !instr.variant && !instr.relu)
    return &lanewise<convert::FloatToTf32>;
  if (to == Type::f32 && from == Type::f32 && instr.sat && !instr.ftz && nearest)
    return &lanewise<convert::Saturate>;
  return &float_to_float;
}
Handler bind_cvt_pair(Instr& instr, const Mods& mods) {
  instr.variant = mods.has("satfinite");
  const bool plain = instr.rounding == Rounding::rn && !instr.variant;
  switch (instr.dtype) {
    case Type::f16x2:
      if (plain && !instr.relu) return &pack_halves;
      return plain ? &pack_floats<Fp16> : &lanewise<convert::PackFloatsExactly<Fp16>>;
    case Type::bf16x2:
      return plain ? &pack_floats<Bfloat16> : &lanewise<convert::PackFloatsExactly<Bfloat16>>;
    case Type::e4m3x2:
      return &pack_floats<E4M3>;
    case Type::e5m2x2:
      return &pack_floats<E5M2>;
    default:
      return nullptr;
  }
}
Handler bind_cvt_fp8(Instr& instr, const Mods&) {
  if (instr.dtype == Type::f16x2)
    return instr.type == Type::e4m3x2 ? &widened<convert::Fp8ToHalves<E4M3>>
                                      : &widened<convert::Fp8ToHalves<E5M2>>;
  return instr.dtype == Type::e4m3x2 ? &halves_to_fp8<E4M3> : &halves_to_fp8<E5M2>;
}
Handler bind_cvt_pack(Instr& instr, const Mods&) {
  return instr.c.valid() ? &lanewise<convert::PackIntegersBelow> : &lanewise<convert::PackIntegers>;
}

}  // namespace vgpu
