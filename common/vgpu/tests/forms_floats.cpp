// f32, f64 and f32x2 arithmetic, row by row, against exact arithmetic rounded once (forms_soft.h).
#include <doctest/doctest.h>

#include <functional>

#include "forms_cases.h"

using namespace vgpu::rows;
using soft::Number;

namespace {

// NaNs: single precision gives 0x7fffffff (as GPUs do; the ISA leaves it open); double precision
// keeps the payload of a NaN operand, made quiet, and calls any other one its own (PTX ISA,
// "Floating-Point Instructions": payloads are supported for .f64).
Want rounded(const Words& w, const soft::Format& f, Number n) {
  if (n.kind == Number::nan) {
    if (w.has("sat")) return Want(0);
    return f.bits() == 64 ? Want::nan() : Want(soft::canonical_nan(f));
  }
  u64 bits = soft::encode(f, n, w.rounding());
  if (w.ftz()) bits = soft::flush(f, bits);
  if (w.has("sat")) {
    const Number r = soft::decode(f, bits);
    if (r.negative || r.kind == Number::zero)
      bits = 0;
    else if (soft::compare(r, soft::from_integer(1, false)) > 0)
      bits = static_cast<u64>(f.bias()) << f.mantissa_bits;
  }
  return Want(bits);
}

using Operation =
    std::function<Number(const Number& a, const Number& b, const Number& c, soft::Round)>;
Host arithmetic(Operation operation) {
  return [operation](const Words& w, const In& in) {
    const soft::Format& f = format_of(w.last());
    const auto read = [&](u64 bits) {
      return soft::decode(f, w.ftz() ? soft::flush(f, bits) : bits);
    };
    const Number a = read(in.a), b = read(in.b), c = read(in.c);
    return rounded(w, f, operation(a, b, c, w.rounding()));
  };
}
const Operation kAdd = [](auto& a, auto& b, auto&, auto r) { return soft::sum(a, b, r); };
const Operation kSub = [](auto& a, auto& b, auto&, auto r) {
  return soft::sum(a, soft::negated(b), r);
};
const Operation kMul = [](auto& a, auto& b, auto&, auto) { return soft::product(a, b); };
const Operation kFma = [](auto& a, auto& b, auto& c, auto r) {
  return soft::sum(soft::product(a, b), c, r);
};
const Operation kDiv = [](auto& a, auto& b, auto&, auto) { return soft::quotient(a, b); };
const Operation kRcp = [](auto& a, auto&, auto&, auto) {
  return soft::quotient(soft::from_integer(1, false), a);
};
const Operation kSqrt = [](auto& a, auto&, auto&, auto) { return soft::root(a); };

// c near -a b, so that what the product's rounding would have lost decides; or near the middle of
// two numbers, so that a second rounding would show.
Inputs cancelling(const soft::Format& f) {
  return [&f](In& in, std::size_t i, std::mt19937_64& random) {
    if (i % 4 > 1) return;
    Number p = soft::product(soft::decode(f, in.a), soft::decode(f, in.b));
    if (p.kind != Number::finite) return;
    p.negative = !p.negative;
    if (i % 4 == 1) p.exponent += f.mantissa_bits + static_cast<int>(random() % 3);
    in.c = soft::encode(f, p) ^ (random() % 4 ? 0 : 1);
  };
}
Inputs close(const soft::Format& f) {  // b near -a, or a tiny part of it
  return [&f](In& in, std::size_t i, std::mt19937_64& random) {
    if (i % 4 == 0) in.b = (in.a ^ f.sign_bit()) + random() % 3 - 1;
    if (i % 4 == 1) {
      Number n = soft::decode(f, in.a);
      n.exponent -= f.mantissa_bits + 1;
      n.negative = random() & 1;
      if (n.kind == Number::finite) in.b = soft::encode(f, n);
    }
    in.b &= f.sign_bit() * 2 - 1;
  };
}

const std::string kRound = "{,.rn,.rz,.rm,.rp}", kExplicit = "{.rn,.rz,.rm,.rp}";

}  // namespace

TEST_CASE("forms: f32 and f32x2 add, sub, mul, fma, mad with each rounding, .ftz and .sat") {
  Batch batch;
  const std::string two = "f32 = f32 f32", three = two + " f32";
  batch.add("add" + kRound + "{,.ftz}{,.sat}.f32", two, arithmetic(kAdd),
            {.inputs = close(soft::kF32)});
  batch.add("sub" + kRound + "{,.ftz}{,.sat}.f32", two, arithmetic(kSub),
            {.inputs = close(soft::kF32)});
  batch.add("mul" + kRound + "{,.ftz}{,.sat}.f32", two, arithmetic(kMul));
  batch.add("fma" + kExplicit + "{,.ftz}{,.sat}.f32", three, arithmetic(kFma),
            {.inputs = cancelling(soft::kF32)});
  batch.add("mad" + kExplicit + "{,.ftz}{,.sat}.f32", three, arithmetic(kFma),
            {.inputs = cancelling(soft::kF32)});
  const std::string pair = "f32x2 = f32x2 f32x2";
  batch.add("add{,.rn}{,.ftz}.f32x2", pair, arithmetic(kAdd));
  batch.add("sub{,.rn}{,.ftz}.f32x2", pair, arithmetic(kSub));
  batch.add("mul{,.rn}{,.ftz}.f32x2", pair, arithmetic(kMul));
  batch.add("fma.rn{,.ftz}.f32x2", pair + " f32x2", arithmetic(kFma));
  CHECK(batch.run() == "");
}

TEST_CASE("forms: f64 add, sub, mul, fma, mad with each rounding") {
  Batch batch;
  const std::string two = "f64 = f64 f64", three = two + " f64";
  batch.add("add" + kRound + ".f64", two, arithmetic(kAdd), {.inputs = close(soft::kF64)});
  batch.add("sub" + kRound + ".f64", two, arithmetic(kSub), {.inputs = close(soft::kF64)});
  batch.add("mul" + kRound + ".f64", two, arithmetic(kMul));
  batch.add("fma" + kExplicit + ".f64", three, arithmetic(kFma),
            {.inputs = cancelling(soft::kF64)});
  batch.add("mad" + kExplicit + ".f64", three, arithmetic(kFma),
            {.inputs = cancelling(soft::kF64)});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: the payload of a double-precision NaN") {
  // One NaN among the operands: it comes out, quiet.
  Batch batch;
  const Host kept = [](const Words&, const In& in) { return Want(in.a | 0x0008000000000000); };
  const Inputs one = [](In& in, std::size_t, std::mt19937_64& random) {
    in.a = 0x7ff0000000000001 | (random() & 0x800fffffffffffff);
    in.b = 0x3ff0000000000000 | random() >> 12;
    in.c = 0xbff0000000000000 | random() >> 12;
  };
  for (const std::string name : {"add", "sub", "mul", "div.rn", "fma.rn"}) {
    const bool three = name == "fma.rn";
    batch.add(name + ".f64", three ? "f64 = f64 f64 f64" : "f64 = f64 f64", kept, {.inputs = one});
    if (name != "sub")
      batch.add(
          name + ".f64", three ? "f64 = f64 f64 f64" : "f64 = f64 f64", kept,
          {.body = three ? "$g $name $d, $b, $c, $a;" : "$g $name $d, $b, $a;", .inputs = one});
  }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: div, rcp, sqrt correctly rounded") {
  Batch batch;
  batch.add("div" + kExplicit + "{,.ftz}.f32", "f32 = f32 f32", arithmetic(kDiv));
  batch.add("div" + kExplicit + ".f64", "f64 = f64 f64", arithmetic(kDiv));
  batch.add("rcp" + kExplicit + "{,.ftz}.f32", "f32 = f32", arithmetic(kRcp));
  batch.add("rcp" + kExplicit + ".f64", "f64 = f64", arithmetic(kRcp));
  batch.add("sqrt" + kExplicit + "{,.ftz}.f32", "f32 = f32", arithmetic(kSqrt));
  batch.add("sqrt" + kExplicit + ".f64", "f64 = f64", arithmetic(kSqrt));
  CHECK(batch.run() == "");
}

TEST_CASE("forms: abs, neg, copysign") {
  Batch batch;
  // PTX ISA, abs and neg: a NaN gives an unspecified NaN.
  const Host signs = [](const Words& w, const In& in) {
    const soft::Format& f = format_of(w.last());
    if (soft::is_nan(f, in.a)) return Want::nan();
    const u64 a = w.ftz() ? soft::flush(f, in.a) : in.a;
    return Want(w.has("abs") ? a & ~f.sign_bit() : a ^ f.sign_bit());
  };
  batch.add("{abs,neg}{,.ftz}.f32", "f32 = f32", signs);
  batch.add("{abs,neg}.f64", "f64 = f64", signs);
  for (const std::string t : {"f32", "f64"})
    batch.add("copysign." + t, t + " = " + t + " " + t, [](const Words& w, const In& in) {
      const u64 sign = format_of(w.last()).sign_bit();
      return Want((in.a & sign) | (in.b & ~sign));
    });
  CHECK(batch.run() == "");
}

namespace {
// PTX ISA, min and max: a NaN loses against a number, or wins with .NaN; two NaNs give the
// canonical one; +0 is larger than -0; .xorsign gives the result both signs' product.
u64 extreme(const Words& w, const soft::Format& f, u64 a, u64 b) {
  if (w.ftz()) a = soft::flush(f, a), b = soft::flush(f, b);
  const u64 sign = (a ^ b) & f.sign_bit();
  if (w.has("abs")) a &= ~f.sign_bit(), b &= ~f.sign_bit();
  const bool nan_a = soft::is_nan(f, a), nan_b = soft::is_nan(f, b);
  u64 r;
  if (nan_a && nan_b) return soft::canonical_nan(f);
  if (nan_a || nan_b) {
    if (w.has("NaN")) return soft::canonical_nan(f);
    r = nan_a ? b : a;
  } else {
    int order = soft::compare(soft::decode(f, a), soft::decode(f, b));
    if (order == 0) order = (a & f.sign_bit() ? 0 : 1) - (b & f.sign_bit() ? 0 : 1);
    r = (w.parts[0] == "min") == (order < 0) ? a : b;
  }
  return w.has("xorsign") ? (r & ~f.sign_bit()) | sign : r;
}
}  // namespace

TEST_CASE("forms: min, max of two and of three") {
  Batch batch;
  const Host two = [](const Words& w, const In& in) {
    const soft::Format& f = format_of(w.last());
    const u64 r = extreme(w, f, in.a, in.b);
    return f.bits() == 64 && soft::is_nan(f, r) ? Want::nan() : Want(r);
  };
  const Host three = [](const Words& w, const In& in) {
    return Want(extreme(w, soft::kF32, extreme(w, soft::kF32, in.a, in.b), in.c));
  };
  batch.add("{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32", "f32 = f32 f32", two);
  batch.add("{min,max}.f64", "f64 = f64 f64", two);
  batch.add("{min,max}{,.ftz}{,.NaN}{,.abs}.f32", "f32 = f32 f32 f32", three);
  const std::string halves = "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.";
  batch.add(halves + "f16", "f16 = f16 f16", two);
  batch.add(halves + "f16x2", "f16x2 = f16x2 f16x2", two);
  batch.add("{min,max}{,.NaN}{,.xorsign.abs}.bf16", "bf16 = bf16 bf16", two);
  batch.add("{min,max}{,.NaN}{,.xorsign.abs}.bf16x2", "bf16x2 = bf16x2 bf16x2", two);
  CHECK(batch.run() == "");
}

TEST_CASE("forms: half-precision add, sub, mul, fma, neg, abs") {
  Batch batch;
  const auto relu = [](Host host) {
    return [host](const Words& w, const In& in) {
      Want r = host(w, in);
      const soft::Format& f = format_of(w.last());
      if (w.has("relu") && !soft::is_nan(f, r.bits) && (r.bits & f.sign_bit())) r.bits = 0;
      return r;
    };
  };
  for (const std::string t : {"f16", "f16x2", "bf16", "bf16x2"}) {
    const bool brain = t[0] == 'b';
    const std::string two = t + " = " + t + " " + t, tail = (brain ? "." : "{,.ftz}{,.sat}.") + t;
    const soft::Format& f = format_of(t);
    batch.add("add{,.rn}" + tail, two, arithmetic(kAdd), {.count = 4096});
    batch.add("sub{,.rn}" + tail, two, arithmetic(kSub), {.count = 4096});
    batch.add("mul{,.rn}" + tail, two, arithmetic(kMul), {.count = 4096});
    const std::string three = two + " " + t;
    // Sums of a large c and a product just above, below or at half its last bit: one rounding only.
    const Inputs halfway = [&f](In& in, std::size_t i, std::mt19937_64& random) {
      if (i % 4 == 0) return;
      u64* const v[3] = {&in.a, &in.b, &in.c};
      for (int part = 0; part < 32; part += f.bits()) {
        const auto number = [&](int exponent, u64 mantissa) {
          return (u64(exponent + f.bias()) << f.mantissa_bits | mantissa |
                  (random() & 1 ? f.sign_bit() : 0))
                 << part;
        };
        const int top = f.bits() == 16 && f.exponent_bits == 5 ? 14 : 100;
        const int e = static_cast<int>(random() % 12) + top - 12,
                  x = static_cast<int>(random() % 8);
        const u64 unit = f.smallest_normal(), r = 1 + random() % 3;
        // The product is 2^(half of c's last bit) times 1 - r^2 4^-mantissa_bits, or near 1.
        const bool under = random() & 1;
        const u64 numbers[3] = {
            number(x, under ? r : r & random()),
            number(e - f.mantissa_bits - 1 - x - under, under ? unit - 2 * r : random() & r),
            number(e, random() % unit)};
        for (int k = 0; k < 3; ++k)
          *v[k] = (*v[k] & ~(((u64{1} << f.bits()) - 1) << part)) | numbers[k];
      }
    };
    batch.add(brain ? "fma.rn{,.relu}." + t : "fma.rn{,.ftz}{,.sat,.relu}." + t, three,
              relu(arithmetic(kFma)), {.inputs = halfway, .count = 16384});
    batch.add(brain ? "fma.rn{,.relu}." + t : "fma.rn{,.ftz}{,.sat,.relu}." + t, three,
              relu(arithmetic(kFma)), {.inputs = cancelling(f), .count = 4096});
    batch.add("{abs,neg}" + std::string(brain ? "." : "{,.ftz}.") + t, t + " = " + t,
              [](const Words& w, const In& in) {
                const soft::Format& f = format_of(w.last());
                if (soft::is_nan(f, in.a)) return Want::nan();
                const u64 a = w.ftz() ? soft::flush(f, in.a) : in.a;
                return Want(w.has("abs") ? a & ~f.sign_bit() : a ^ f.sign_bit());
              },
              {.count = 4096});
  }
  CHECK(batch.run() == "");
}
