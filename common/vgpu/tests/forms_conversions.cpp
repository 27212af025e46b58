// cvt, row by row, between all types, also from and to registers wider than the types.
#include <doctest/doctest.h>

#include <algorithm>

#include "forms_cases.h"

using namespace vgpu::rows;
using soft::Number;
using s128 = __int128;

namespace {

struct Types {
  std::string to, from;
  explicit Types(const Words& w) : to(w.parts[w.parts.size() - 2]), from(w.parts.back()) {}
};

u64 low(u64 v, int bits) { return bits == 64 ? v : v & ((u64{1} << bits) - 1); }
s128 integer(const std::string& type, u64 register_bits) {
  const int n = bits_of(type);
  return type[0] == 's' ? s128{In::extend(register_bits, n)} : s128{low(register_bits, n)};
}
s128 lowest(const std::string& type) {
  return type[0] == 's' ? -(s128{1} << (bits_of(type) - 1)) : 0;
}
s128 highest(const std::string& type) {
  return (s128{1} << (bits_of(type) - (type[0] == 's' ? 1 : 0))) - 1;
}

// As it stands in the destination register: extended by the type's sign. The harness cuts it to the
// register.
u64 in_register(const std::string& type, s128 value) {
  const u64 bits = low(static_cast<u64>(value), bits_of(type));
  return type[0] == 's' ? static_cast<u64>(In::extend(bits, bits_of(type))) : bits;
}

Number read(const Words& w, const std::string& type, u64 bits) {
  const soft::Format& f = format_of(type);
  bits = low(bits, f.bits());
  return soft::decode(f, w.ftz() && type == "f32" ? soft::flush(f, bits) : bits);
}
// A number as the result of a conversion to the type, with .sat, .relu, .satfinite and .ftz.
u64 written(const Words& w, const std::string& type, Number n) {
  const soft::Format& f = format_of(type);
  if (w.has("sat")) {  // PTX ISA, cvt: [0, 1], NaN to +0
    if (n.kind == Number::nan || n.negative || n.kind == Number::zero) return 0;
    if (soft::compare(n, soft::from_integer(1, false)) > 0) n = soft::from_integer(1, false);
  }
  if (w.has("relu") && n.negative && n.kind != Number::nan) n = {};
  u64 bits = soft::encode(f, n, w.rounding(), w.has("satfinite"));
  if (type == "tf32") return n.kind == Number::nan ? 0x7fffffff : bits << 13;
  return w.ftz() && type == "f32" ? soft::flush(f, bits) : bits;
}
Number integral(const Words& w, const Number& n) {
  if (n.kind != Number::finite || n.exponent >= 0) return n;
  Number whole = n;
  whole.mantissa = soft::round_integer(n, w.rounding());
  whole.exponent = 0;
  if (whole.mantissa == 0) whole.kind = Number::zero;  // keeps its sign
  return whole;
}

// Registers that may hold a type: its own width and all wider ones.
std::vector<std::string> registers(const std::string& type) {
  std::vector<std::string> result;
  for (int bits : {16, 32, 64})
    if (bits >= bits_of(type)) result.push_back("b" + std::to_string(bits));
  return result;
}

const std::string kIntegers[] = {"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"};
const std::string kFloats[] = {"f16", "bf16", "f32", "f64"};

}  // namespace

TEST_CASE("forms: cvt between integers, cut, extended and saturated") {
  Batch batch;
  for (const std::string& to : kIntegers)
    for (const std::string& from : kIntegers)
      for (const std::string& d : registers(to))
        for (const std::string& a : registers(from))
          batch.add("cvt{,.sat}." + to + "." + from, d + " = " + a,
                    [](const Words& w, const In& in) {
                      const Types t(w);
                      s128 v = integer(t.from, in.a);
                      if (w.has("sat")) v = std::clamp(v, lowest(t.to), highest(t.to));
                      return Want(in_register(t.to, v));
                    },
                    {.count = 128});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: cvt from floating point to integers") {
  Batch batch;
  // PTX ISA, cvt: clamped to the destination's range; a NaN becomes 0, or 1 << (width - 1) when one
  // of the types is that wide.
  const Host host = [](const Words& w, const In& in) {
    const Types t(w);
    const Number n = read(w, t.from, in.a);
    const int bits = bits_of(t.to);
    if (n.kind == Number::nan)
      return Want(in_register(t.to, t.from == "f64" || bits == 64 ? s128{1} << (bits - 1) : 0));
    const bool huge = n.kind == Number::infinite ||
                      (n.kind == Number::finite && n.exponent + soft::top_bit(n.mantissa) > 66);
    s128 v = huge ? s128{1} << 70 : static_cast<s128>(soft::round_integer(n, w.rounding()));
    if (n.negative) v = -v;
    return Want(in_register(t.to, std::clamp(v, lowest(t.to), highest(t.to))));
  };
  for (const std::string& to : kIntegers)
    for (const std::string& from : kFloats) {
      batch.add("cvt{.rni,.rzi,.rmi,.rpi}{,.sat}." + to + "." + from,
                registers(to)[0] + " = " + from, host, {.count = 1024});
      if (from == "f32")
        batch.add("cvt{.rni,.rzi,.rmi,.rpi}.ftz{,.sat}." + to + ".f32", registers(to)[0] + " = f32",
                  host);
      batch.add("cvt.rzi." + to + "." + from, registers(to).back() + " = " + from, host,
                {.count = 256});
    }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: cvt from integers to floating point") {
  Batch batch;
  const Host host = [](const Words& w, const In& in) {
    const Types t(w);
    const s128 v = integer(t.from, in.a);
    return Want(written(w, t.to, soft::from_integer(static_cast<u64>(v < 0 ? -v : v), v < 0)));
  };
  for (const std::string& to : kFloats)
    for (const std::string& from : kIntegers) {
      const std::string sat = to == "bf16" ? "" : "{,.sat}";
      batch.add("cvt{.rn,.rz,.rm,.rp}" + sat + "." + to + "." + from,
                to + " = " + registers(from)[0], host, {.count = 1024});
      batch.add("cvt.rn." + to + "." + from, to + " = " + registers(from).back(), host,
                {.count = 256});
    }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: cvt between floating-point types") {
  Batch batch;
  const Host host = [](const Words& w, const In& in) {
    const Types t(w);
    Number n = read(w, t.from, in.a);
    if (t.from == t.to || w.has("rni") || w.has("rzi") || w.has("rmi") || w.has("rpi")) {
      if (w.parts[1].size() == 3 && w.parts[1][0] == 'r') n = integral(w, n);
    }
    const u64 bits = written(w, t.to, n);
    // Which NaN comes out of a wider type is not said, nor is it for bf16 sources.
    if (n.kind == Number::nan && !w.has("sat") &&
        (t.to == "f64" || t.from == t.to || format_of(t.to).bits() > format_of(t.from).bits()))
      return Want::nan();
    return Want(bits);
  };
  for (const std::string& to : kFloats)
    for (const std::string& from : kFloats) {
      const std::string ftz = to == "f32" || from == "f32" ? "{,.ftz}" : "",
                        sat = to == "bf16" ? "" : "{,.sat}";
      const std::string tail = ftz + sat + "." + to + "." + from, signature = to + " = " + from;
      const soft::Format &f = format_of(to), &g = format_of(from);
      const bool loses = f.mantissa_bits < g.mantissa_bits || f.exponent_bits < g.exponent_bits;
      if (loses)
        batch.add("cvt{.rn,.rz,.rm,.rp}" + tail, signature, host, {.count = 2048});
      else
        batch.add("cvt" + tail, signature, host, {.count = 2048});
      if (from == to)
        batch.add("cvt{.rni,.rzi,.rmi,.rpi}" + tail, signature, host, {.count = 1024});
      // A wider register: only its low bits count; the result is extended with zeros.
      if (from == "f16" && to == "f32") batch.add("cvt.f32.f16", "f32 = b32", host);
      if (from == "f32" && to == "f16") batch.add("cvt.rn.f16.f32", "b32 = f32", host);
    }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: cvt from f32 to f16, bf16 and tf32 with .relu and .satfinite") {
  Batch batch;
  const Host host = [](const Words& w, const In& in) {
    const Types t(w);
    return Want(written(w, t.to, read(w, t.from, in.a)));
  };
  for (const std::string t : {"f16", "bf16"})
    batch.add("cvt{.rn,.rz}{,.relu}{,.satfinite}." + t + ".f32", t + " = f32", host,
              {.count = 4096});
  batch.add("cvt.rna{,.satfinite}.tf32.f32", "b32 = f32", host, {.count = 4096});
  batch.add("cvt{.rn,.rz}{,.satfinite}{,.relu}.tf32.f32", "b32 = f32", host, {.count = 4096});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: cvt of two numbers into one register") {
  Batch batch;
  // d = {a, b}: a becomes the upper part.
  const Host two = [](const Words& w, const In& in) {
    const Types t(w);
    const int width = format_of(t.to).bits();
    return Want(written(w, t.to, read(w, "f32", in.a)) << width |
                written(w, t.to, read(w, "f32", in.b)));
  };
  for (const std::string t : {"f16x2", "bf16x2"})
    batch.add("cvt{.rn,.rz}{,.relu}{,.satfinite}." + t + ".f32", "b32 = f32 f32", two,
              {.count = 4096});
  batch.add("cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32", "b16 = f32 f32", two, {.count = 4096});
  const Host parts = [](const Words& w, const In& in) {
    const Types t(w);
    return Want(written(w, t.to, read(w, t.from, in.a)));
  };
  for (const std::string t : {"e4m3x2", "e5m2x2"}) {
    batch.add("cvt.rn.satfinite{,.relu}." + t + ".f16x2", t + " = f16x2", parts, {.count = 4096});
    batch.add("cvt.rn{,.relu}.f16x2." + t, "f16x2 = " + t, parts,
              {.inputs = [](In& in, std::size_t i, auto&) {
                in.a = (i & 0xff) | (~i & 0xff) << 8;  // all of them
              }});
  }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: cvt.pack") {
  Batch batch;
  const Host host = [](const Words& w, const In& in) {
    const std::string& t = w.parts[3];  // cvt.pack.sat.TYPE
    const int n = bits_of(t);
    const auto clamped = [&](u64 v) {
      return low(static_cast<u64>(std::clamp(s128{In::extend(v, 32)}, lowest(t), highest(t))), n);
    };
    const u64 pair = clamped(in.a) << n | clamped(in.b);
    return Want(n == 16 ? pair : low(in.c << 2 * n | pair, 32));
  };
  const Inputs small = [](In& in, std::size_t i, std::mt19937_64& random) {
    if (i % 2) in.a = (random() % 600 - 300) & 0xffffffff, in.b = (random() % 40 - 20) & 0xffffffff;
  };
  batch.add("cvt.pack.sat.{u16,s16}.s32", "b32 = s32 s32", host, {.inputs = small});
  batch.add("cvt.pack.sat.{u8,s8,u4,s4}.s32.b32", "b32 = s32 s32 b32", host, {.inputs = small});
  CHECK(batch.run() == "");
}
