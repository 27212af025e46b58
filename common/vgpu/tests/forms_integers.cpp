// Integer arithmetic, row by row, against sums and products in 128 bits and loops over bits.
#include <doctest/doctest.h>

#include <algorithm>

#include "forms_cases.h"

using namespace vgpu::rows;

namespace {

using s128 = __int128;
using u128 = unsigned __int128;

// An operand as the type of the instruction's last word means it.
s128 number(const std::string& type, u64 bits) {
  const int width = bits_of(type);
  return type[0] == 's' ? s128{In::extend(bits, width)} : s128{bits};
}
u64 wrapped(s128 v, int width) {
  const auto low = static_cast<u64>(v);
  return width == 64 ? low : low & ((u64{1} << width) - 1);
}
s128 clamped(s128 v, s128 low, s128 high) { return v < low ? low : v > high ? high : v; }
constexpr s128 kMin32 = -(s128{1} << 31), kMax32 = (s128{1} << 31) - 1;

// A function of numbers, its result cut to the type.
template <class F>
Host wrapping(F f) {
  return [f](const Words& w, const In& in) {
    const std::string& t = w.last();
    return Want(wrapped(f(number(t, in.a), number(t, in.b), number(t, in.c)), bits_of(t)));
  };
}
std::string repeated(const std::string& type, int n) {
  std::string s = type + " =";
  for (int i = 0; i < n; ++i) s += " " + type;
  return s;
}

const std::string kTypes[] = {"u16", "u32", "u64", "s16", "s32", "s64"};

void check(Batch& batch) { CHECK(batch.run() == ""); }

}  // namespace

TEST_CASE("forms: integer add, sub, min, max, neg, abs, sad") {
  Batch batch;
  for (const std::string& t : kTypes) {
    batch.add("add." + t, repeated(t, 2), wrapping([](s128 a, s128 b, s128) { return a + b; }));
    batch.add("sub." + t, repeated(t, 2), wrapping([](s128 a, s128 b, s128) { return a - b; }));
    batch.add("min." + t, repeated(t, 2),
              wrapping([](s128 a, s128 b, s128) { return b < a ? b : a; }));
    batch.add("max." + t, repeated(t, 2),
              wrapping([](s128 a, s128 b, s128) { return a < b ? b : a; }));
    batch.add("sad." + t, repeated(t, 3),
              wrapping([](s128 a, s128 b, s128 c) { return c + (a < b ? b - a : a - b); }));
    if (t[0] != 's') continue;
    batch.add("neg." + t, repeated(t, 1), wrapping([](s128 a, s128, s128) { return -a; }));
    batch.add("abs." + t, repeated(t, 1),
              wrapping([](s128 a, s128, s128) { return a < 0 ? -a : a; }));
  }
  batch.add("add.sat.s32", "s32 = s32 s32",
            wrapping([](s128 a, s128 b, s128) { return clamped(a + b, kMin32, kMax32); }));
  batch.add("sub.sat.s32", "s32 = s32 s32",
            wrapping([](s128 a, s128 b, s128) { return clamped(a - b, kMin32, kMax32); }));
  // Packed halves: the function sees one half at a time.
  const auto halves = [](auto f) {
    return [f](const Words& w, const In& in) {
      const std::string t = w.last().substr(0, 3);
      const s128 r = f(number(t, in.a), number(t, in.b));
      return Want(wrapped(w.has("relu") && r < 0 ? 0 : r, 16));
    };
  };
  for (const std::string t : {"u16x2", "s16x2"}) {
    batch.add("add." + t, repeated(t, 2), halves([](s128 a, s128 b) { return a + b; }));
    batch.add("min." + t, repeated(t, 2), halves([](s128 a, s128 b) { return b < a ? b : a; }));
    batch.add("max." + t, repeated(t, 2), halves([](s128 a, s128 b) { return a < b ? b : a; }));
  }
  batch.add("min.relu.s16x2", "s16x2 = s16x2 s16x2",
            halves([](s128 a, s128 b) { return b < a ? b : a; }));
  batch.add("max.relu.s16x2", "s16x2 = s16x2 s16x2",
            halves([](s128 a, s128 b) { return a < b ? b : a; }));
  batch.add("min.relu.s32", "s32 = s32 s32",
            wrapping([](s128 a, s128 b, s128) { return std::max<s128>(0, b < a ? b : a); }));
  batch.add("max.relu.s32", "s32 = s32 s32",
            wrapping([](s128 a, s128 b, s128) { return std::max<s128>(0, a < b ? b : a); }));
  // CUDA's headers write .relu behind the type.
  const auto clamped_max = [](bool largest, int bits) {
    return [=](const Words&, const In& in) {
      const std::int64_t a = in.sa(bits), b = in.sb(bits), r = largest == (a > b) ? a : b;
      return Want(wrapped(r < 0 ? 0 : r, bits));
    };
  };
  for (const bool largest : {false, true}) {
    const std::string op = largest ? "max" : "min";
    batch.add(op + ".s32.relu", "s32 = s32 s32", clamped_max(largest, 32));
    batch.add(op + ".s16x2.relu", "s16x2 = s16x2 s16x2", clamped_max(largest, 16));
  }
  check(batch);
}

TEST_CASE("forms: integer mul, mad, mul24, mad24, div, rem") {
  Batch batch;
  for (const std::string& t : kTypes) {
    const int bits = bits_of(t);
    batch.add("mul.lo." + t, repeated(t, 2), wrapping([](s128 a, s128 b, s128) {
                return static_cast<s128>(static_cast<u128>(a) * static_cast<u128>(b));
              }));
    batch.add("mad.lo." + t, repeated(t, 3), wrapping([](s128 a, s128 b, s128 c) {
                return static_cast<s128>(static_cast<u128>(a) * static_cast<u128>(b) +
                                         static_cast<u128>(c));
              }));
    // The 128-bit product of u64 numbers is unsigned: shift it as such.
    const bool is_signed = t[0] == 's';
    const auto high = [=](s128 a, s128 b) {
      const u128 p = static_cast<u128>(a) * static_cast<u128>(b);
      return is_signed ? static_cast<s128>(p) >> bits : static_cast<s128>(p >> bits);
    };
    batch.add("mul.hi." + t, repeated(t, 2),
              wrapping([=](s128 a, s128 b, s128) { return high(a, b); }));
    batch.add("mad.hi." + t, repeated(t, 3),
              wrapping([=](s128 a, s128 b, s128 c) { return high(a, b) + c; }));
    if (bits == 64) continue;
    const std::string wide = t.substr(0, 1) + std::to_string(2 * bits);
    batch.add("mul.wide." + t, wide + " = " + t + " " + t, [=](const Words& w, const In& in) {
      return Want(wrapped(number(w.last(), in.a) * number(w.last(), in.b), 2 * bits));
    });
    batch.add(
        "mad.wide." + t, wide + " = " + t + " " + t + " " + wide,
        [=](const Words& w, const In& in) {
          return Want(wrapped(number(w.last(), in.a) * number(w.last(), in.b) + number(wide, in.c),
                              2 * bits));
        });
  }
  batch.add("mad.hi.sat.s32", "s32 = s32 s32 s32", wrapping([](s128 a, s128 b, s128 c) {
              return clamped(((a * b) >> 32) + c, kMin32, kMax32);
            }));

  // Low 24 bits of each factor; .hi is bits 47..16 of the 48-bit product.
  const auto low24 = [](const std::string& t, u64 v) {
    return t[0] == 's' ? s128{In::extend(v, 24)} : s128{v & 0xffffff};
  };
  for (const std::string t : {"u32", "s32"})
    for (const std::string mode : {"lo", "hi", "hi.sat"}) {
      if (mode == "hi.sat" && t == "u32") continue;
      const int shift = mode == "lo" ? 0 : 16;
      if (mode != "hi.sat")
        batch.add("mul24." + mode + "." + t, repeated(t, 2), [=](const Words&, const In& in) {
          return Want(wrapped((low24(t, in.a) * low24(t, in.b)) >> shift, 32));
        });
      batch.add("mad24." + mode + "." + t, repeated(t, 3), [=](const Words&, const In& in) {
        const s128 product = wrapped((low24(t, in.a) * low24(t, in.b)) >> shift, 32);
        const s128 sum = number(t, static_cast<u64>(product)) + number(t, in.c);
        return Want(wrapped(mode == "hi.sat" ? clamped(sum, kMin32, kMax32) : sum, 32));
      });
    }

  // The ISA leaves division by zero open; the most negative number over -1 wraps (as it does in
  // 64-bit arithmetic cut to the type). A zero divisor must only do no harm.
  for (const std::string& t : kTypes) {
    batch.add("div." + t, repeated(t, 2), [](const Words& w, const In& in) {
      const s128 a = number(w.last(), in.a), b = number(w.last(), in.b);
      return b == 0 ? Want::any() : Want(wrapped(a / b, bits_of(w.last())));
    });
    batch.add("rem." + t, repeated(t, 2), [](const Words& w, const In& in) {
      const s128 a = number(w.last(), in.a), b = number(w.last(), in.b);
      return b == 0 ? Want::any() : Want(wrapped(a % b, bits_of(w.last())));
    });
  }
  check(batch);
}

TEST_CASE(
    "forms: bits of integers: popc, clz, bfind, fns, brev, bfe, bfi, szext, bmsk, dp4a, dp2a") {
  Batch batch;
  const auto bit = [](u64 v, int i) { return static_cast<int>(v >> i & 1); };
  for (const std::string t : {"b32", "b64"}) {
    const int n = bits_of(t);
    batch.add("popc." + t, "u32 = " + t, [=](const Words&, const In& in) {
      u64 count = 0;
      for (int i = 0; i < n; ++i) count += bit(in.a, i);
      return Want(count);
    });
    batch.add("clz." + t, "u32 = " + t, [=](const Words&, const In& in) {
      u64 count = 0;
      while (count < static_cast<u64>(n) && !bit(in.a, n - 1 - static_cast<int>(count))) ++count;
      return Want(count);
    });
    batch.add("brev." + t, t + " = " + t, [=](const Words&, const In& in) {
      u64 r = 0;
      for (int i = 0; i < n; ++i) r |= u64(bit(in.a, i)) << (n - 1 - i);
      return Want(r);
    });
    // PTX ISA, bfi: bits of a go over those of b from pos on, as many as len and the width allow.
    batch.add("bfi." + t, t + " = " + t + " " + t + " shift shift",
              [=](const Words&, const In& in) {
                const int pos = in.c & 255, len = in.e & 255;
                u64 f = in.b;
                for (int i = 0; i < len && pos + i < n; ++i)
                  f = (f & ~(u64{1} << (pos + i))) | u64(bit(in.a, i)) << (pos + i);
                return Want(f);
              });
  }
  for (const std::string t : {"u32", "s32", "u64", "s64"}) {
    const int n = bits_of(t);
    const bool is_signed = t[0] == 's';
    batch.add("bfind{,.shiftamt}." + t, "u32 = " + t, [=](const Words& w, const In& in) {
      u64 found = 0xffffffff;
      const int sign = is_signed ? bit(in.a, n - 1) : 0;
      for (int i = 0; i < n; ++i)
        if (bit(in.a, i) != sign) found = static_cast<u64>(w.has("shiftamt") ? n - 1 - i : i);
      return Want(found);
    });
    // PTX ISA, bfe: bits beyond the top of a are the sign of the field.
    batch.add("bfe." + t, t + " = " + t + " shift shift", [=](const Words&, const In& in) {
      const int pos = in.b & 255, len = in.c & 255, msb = n - 1;
      const int sign = !is_signed || len == 0 ? 0 : bit(in.a, std::min(pos + len - 1, msb));
      u64 d = 0;
      for (int i = 0; i <= msb; ++i)
        d |= u64(i < len && pos + i <= msb ? bit(in.a, pos + i) : sign) << i;
      return Want(d);
    });
  }
  // PTX ISA, fns: the n-th set bit from base upwards, or downwards for negative n; n = 0: base
  // itself.
  batch.add("fns.b32", "b32 = b32 shift s32",
            [=](const Words&, const In& in) {
              if (in.b > 31) return Want::any();  // not said by the ISA
              const int base = static_cast<int>(in.b);
              const std::int64_t n = in.sc(32);
              if (n == 0) return Want(bit(in.a, base) ? in.b : 0xffffffff);
              std::int64_t left = n < 0 ? -n : n;
              for (int i = base; i >= 0 && i < 32; i += n < 0 ? -1 : 1)
                if (bit(in.a, i) && --left == 0) return Want(static_cast<u64>(i));
              return Want(0xffffffff);
            },
            {.inputs = [](In& in, std::size_t i, std::mt19937_64& random) {
              in.b = random() % 33;
              if (i % 4) in.c = (random() % 40 - 20) & 0xffffffff;
            }});
  // PTX ISA, szext: the low n bits; n = 0 gives 0, .clamp with n >= 32 the operand itself.
  batch.add("szext{.clamp,.wrap}.{u32,s32}", "b32 = b32 shift", [=](const Words& w, const In& in) {
    if (w.has("clamp") && in.b >= 32) return Want(in.a);
    const int n = in.b & 31;
    u64 d = 0;
    for (int i = 0; i < 32 && n; ++i)
      d |= u64(i < n ? bit(in.a, i) : w.has("s32") ? bit(in.a, n - 1) : 0) << i;
    return Want(d);
  });
  // PTX ISA, bmsk: b ones from bit a on; what leaves the word is lost.
  batch.add("bmsk{.clamp,.wrap}.b32", "b32 = shift shift", [](const Words& w, const In& in) {
    const u64 from = w.has("clamp") ? std::min<u64>(in.a, 32) : in.a & 31;
    const u64 count = w.has("clamp") ? std::min<u64>(in.b, 32) : in.b & 31;
    u64 d = 0;
    for (u64 i = from; i < from + count && i < 32; ++i) d |= u64{1} << i;
    return Want(d);
  });
  const auto part = [](const std::string& t, u64 v, int width, int i) {
    const u64 field = v >> (width * i) & ((u64{1} << width) - 1);
    return t[0] == 's' ? In::extend(field, width) : static_cast<std::int64_t>(field);
  };
  batch.add("dp4a.{u32,s32}.{u32,s32}", "u32 = b32 b32 b32", [=](const Words& w, const In& in) {
    std::int64_t sum = static_cast<std::int64_t>(in.c);
    for (int i = 0; i < 4; ++i) sum += part(w.parts[1], in.a, 8, i) * part(w.parts[2], in.b, 8, i);
    return Want(static_cast<u64>(sum) & 0xffffffff);
  });
  batch.add(
      "dp2a.{lo,hi}.{u32,s32}.{u32,s32}", "u32 = b32 b32 b32", [=](const Words& w, const In& in) {
        std::int64_t sum = static_cast<std::int64_t>(in.c);
        for (int i = 0; i < 2; ++i)
          sum +=
              part(w.parts[2], in.a, 16, i) * part(w.parts[3], in.b, 8, i + (w.has("hi") ? 2 : 0));
        return Want(static_cast<u64>(sum) & 0xffffffff);
      });
  check(batch);
}

// The flag is seen through what the next instruction adds: sums and products of twice the width.
TEST_CASE("forms: carries: add.cc, addc, sub.cc, subc, mad.cc, madc") {
  Batch batch;
  for (const std::string t : {"u32", "s32", "u64", "s64"}) {
    const int n = bits_of(t);
    const auto low = [n](u128 v) { return wrapped(static_cast<s128>(v), n); };
    const std::string two = t + "|" + t + " = " + t + " " + t + " " + t + " " + t;
    // {c, a} + {e, b} and {c, a} - {e, b}
    batch.add(
        "addc." + t, two,
        [=](const Words&, const In& in) {
          const u128 sum = u128{in.a} + in.b;
          return Want(low(sum), low((sum >> n) + in.c + in.e));
        },
        {.body = "$g add.cc." + t + " $d, $a, $b; $g $name $q, $c, $e;", .touches = "add.cc." + t});
    batch.add(
        "subc." + t, two,
        [=](const Words&, const In& in) {
          return Want(low(u128{in.a} - in.b), low(u128{in.c} - in.e - (in.a < in.b ? 1 : 0)));
        },
        {.body = "$g sub.cc." + t + " $d, $a, $b; $g $name $q, $c, $e;", .touches = "sub.cc." + t});
    // A carry that arises from the carry itself, and one that .cc hands on: three words, the last 0
    // + 0.
    batch.add(
        "addc.cc." + t, two,
        [=](const Words&, const In& in) {
          const u128 sum = u128{in.a} + in.b, next = (sum >> n) + in.c + in.e;
          return Want(low(next >> n), low(next));
        },
        {.body = ".reg .b64 %x; .reg .b32 %y; $g add.cc." + t + " " + (n == 64 ? "%x" : "%y") +
                 ", $a, $b; $g $name $q, $c, $e; $g addc." + t + " $d, 0, 0;",
         .touches = "add.cc." + t + " addc." + t});
    batch.add(
        "subc.cc." + t, two,
        [=](const Words&, const In& in) {
          const u128 borrow = in.a < in.b ? 1 : 0, second = u128{in.c} - in.e - borrow;
          return Want(low(u128{in.a} - (second >> 127)), low(second));
        },
        {.body = ".reg .b64 %x; .reg .b32 %y; $g sub.cc." + t + " " + (n == 64 ? "%x" : "%y") +
                 ", $a, $b; $g $name $q, $c, $e; $g subc." + t + " $d, $a, 0;",
         .touches = "sub.cc." + t + " subc." + t});
    // addc without .cc leaves the flag alone.
    batch.add(
        "addc." + t, two,
        [=](const Words&, const In& in) {
          const u128 carry = (u128{in.a} + in.b) >> n;
          return Want(low(u128{in.e} + carry), low(u128{in.c} + in.c + carry));
        },
        {.body = ".reg .b64 %x; .reg .b32 %y; $g add.cc." + t + " " + (n == 64 ? "%x" : "%y") +
                 ", $a, $b; $g $name $q, $c, $c; $g addc." + t + " $d, $e, 0;"});
    // One flag for both: a sum's carry, or that a difference borrowed nothing.
    batch.add(
        "addc." + t, two,
        [=](const Words&, const In& in) {
          return Want(low(u128{in.a} - in.b), low(u128{in.c} + in.e + (in.a >= in.b ? 1 : 0)));
        },
        {.body = "$g sub.cc." + t + " $d, $a, $b; $g $name $q, $c, $e;", .touches = "sub.cc." + t});
    batch.add(
        "subc." + t, two,
        [=](const Words&, const In& in) {
          const u128 sum = u128{in.a} + in.b;
          return Want(low(sum), low(u128{in.c} - in.e - 1 + (sum >> n)));
        },
        {.body = "$g add.cc." + t + " $d, $a, $b; $g $name $q, $c, $e;", .touches = "add.cc." + t});
    batch.add(
        "subc.cc." + t, two,
        [=](const Words&, const In& in) {
          const u128 carry = (u128{in.a} + in.b) >> n;
          const bool kept = u128{in.c} + carry >= u128{in.e} + 1;
          return Want(low(u128{in.a} + in.b + (kept ? 1 : 0)), low(u128{in.c} - in.e - 1 + carry));
        },
        {.body = ".reg .b64 %x; .reg .b32 %y; $g add.cc." + t + " " + (n == 64 ? "%x" : "%y") +
                 ", $a, $b; $g $name $q, $c, $e; $g addc." + t + " $d, $a, $b;",
         .touches = "add.cc." + t + " addc." + t});
    const auto product = [=](u64 a, u64 b, bool high) {
      const u128 p = t[0] == 's' ? static_cast<u128>(number(t, a) * number(t, b)) : u128{a} * b;
      return low(high ? p >> n : p);
    };
    for (const bool high : {false, true}) {
      const std::string half = high ? "hi" : "lo";
      batch.add("mad." + half + ".cc." + t, two,
                [=](const Words&, const In& in) {
                  const u128 sum = u128{product(in.a, in.b, high)} + in.c;
                  return Want(low(sum), low((sum >> n) + in.e));
                },
                {.body = "$g $name $d, $a, $b, $c; $g addc." + t + " $q, $e, 0;"});
      batch.add("madc." + half + "." + t, two,
                [=](const Words&, const In& in) {
                  const u128 carry = (u128{in.c} + in.e) >> n;
                  return Want(low(u128{product(in.a, in.b, high)} + in.c + carry),
                              low(u128{in.c} + in.e));
                },
                {.body = "$g add.cc." + t + " $q, $c, $e; $g $name $d, $a, $b, $c;"});
      batch.add("madc." + half + "." + t, two,
                [=](const Words&, const In& in) {
                  const u128 kept = in.c >= in.e ? 1 : 0;
                  return Want(low(u128{product(in.a, in.b, high)} + in.c + kept),
                              low(u128{in.c} - in.e));
                },
                {.body = "$g sub.cc." + t + " $q, $c, $e; $g $name $d, $a, $b, $c;"});
      batch.add("mad." + half + ".cc." + t, two,
                [=](const Words&, const In& in) {
                  const u128 sum = u128{product(in.a, in.b, high)} + in.c;
                  return Want(low(sum), low(u128{in.e} - in.a - 1 + (sum >> n)));
                },
                {.body = "$g $name $d, $a, $b, $c; $g subc." + t + " $q, $e, $a;"});
      batch.add(
          "madc." + half + ".cc." + t, two,
          [=](const Words&, const In& in) {
            const u128 carry = (u128{in.c} + in.e) >> n;
            const u128 sum = u128{product(in.a, in.b, high)} + in.c + carry;
            return Want(low(sum), low((sum >> n) + in.e));
          },
          {.body = ".reg .b64 %x; .reg .b32 %y; $g add.cc." + t + " " + (n == 64 ? "%x" : "%y") +
                   ", $c, $e; $g $name $d, $a, $b, $c; $g addc." + t + " $q, $e, 0;"});
    }
  }
  check(batch);
}
