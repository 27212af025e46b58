// Logic, shifts and prmt, row by row, bit by bit.
#include <doctest/doctest.h>

#include <algorithm>

#include "forms_cases.h"

using namespace vgpu::rows;

namespace {
u64 ones(int bits) { return bits == 64 ? ~u64{0} : (u64{1} << bits) - 1; }
bool bit(u64 v, int i) { return i >= 0 && i < 64 && (v >> i & 1); }
}  // namespace

TEST_CASE("forms: and, or, xor, not, cnot, of words and of predicates") {
  Batch batch;
  for (const std::string t : {"b16", "b32", "b64", "pred"}) {
    const std::string two = t + " = " + t + " " + t, one = t + " = " + t;
    const int n = bits_of(t);
    const auto table = [n](auto f) {  // f of two bits
      return [n, f](const Words&, const In& in) {
        u64 d = 0;
        for (int i = 0; i < n; ++i) d |= u64(f(bit(in.a, i), bit(in.b, i))) << i;
        return Want(d);
      };
    };
    batch.add("and." + t, two, table([](bool a, bool b) { return a ? b : false; }));
    batch.add("or." + t, two, table([](bool a, bool b) { return a ? true : b; }));
    batch.add("xor." + t, two, table([](bool a, bool b) { return a != b; }));
    batch.add("not." + t, one, table([](bool a, bool) { return a ? false : true; }));
    if (t == "pred") {
      batch.add("and.pred", "pred = !pred pred", table([](bool a, bool b) { return a && b; }));
      batch.add("or.pred", "pred = pred !pred", table([](bool a, bool b) { return a || b; }));
      batch.add("xor.pred", "pred = !pred pred", table([](bool a, bool b) { return a != b; }));
      batch.add("not.pred", "pred = !pred", table([](bool a, bool) { return !a; }));
    } else {
      batch.add("cnot." + t, one, [](const Words&, const In& in) { return Want(in.a ? 0 : 1); },
                {.inputs = [](In& in, std::size_t i, auto&) {
                  if (i % 3 == 0) in.a = 0;
                }});
    }
  }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: lop3 with each of its 256 tables, and with a predicate") {
  Batch batch;
  const auto result = [](const In& in, int table) {
    u64 d = 0;
    for (int i = 0; i < 32; ++i)
      d |= u64(table >> (bit(in.a, i) * 4 + bit(in.b, i) * 2 + bit(in.c, i)) & 1) << i;
    return d;
  };
  for (int table = 0; table < 256; ++table)
    batch.add("lop3.b32", "b32 = b32 b32 b32",
              [=](const Words&, const In& in) { return Want(result(in, table)); },
              {.body = "$g $name $d, $a, $b, $c, " + std::to_string(table) + ";", .count = 128});
  for (const int table : {0x00, 0xff, 0x80, 0xfe, 0x96, 0xe8, 0x01, 0x3c})
    batch.add("lop3{.or,.and}.b32", "b32|pred = b32 b32 b32 pred",
              [=](const Words& w, const In& in) {
                const u64 d = result(in, table);
                return Want(d, w.has("or") ? (d != 0 || in.e) : (d != 0 && in.e));
              },
              {.body = "$g $name $d|$q, $a, $b, $c, " + std::to_string(table) + ", $e;",
               .inputs = [](In& in, std::size_t i, auto&) {
                 if (i % 3 == 0)
                   in.a = in.b = in.c = i % 2 ? 0xffffffff : 0;  // zero and non-zero results
               }});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: shl, shr, shf") {
  Batch batch;
  for (const std::string t : {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"}) {
    const int n = bits_of(t);
    const auto shifted = [=](const Words& w,
                             const In& in) {  // bit i comes from bit i - b, or i + b
      u64 d = 0;
      for (int i = 0; i < n; ++i) {
        const std::int64_t from = w.has("shl") ? i - static_cast<std::int64_t>(in.b)
                                               : i + static_cast<std::int64_t>(in.b);
        const bool sign = t[0] == 's' && bit(in.a, n - 1);
        d |= u64(from < 0 ? false : from < n ? bit(in.a, static_cast<int>(from)) : sign) << i;
      }
      return Want(d);
    };
    batch.add("shr." + t, t + " = " + t + " shift", shifted);
    if (t[0] == 'b') batch.add("shl." + t, t + " = " + t + " shift", shifted);
  }
  batch.add("shf.{l,r}.{clamp,wrap}.b32", "b32 = b32 b32 shift", [](const Words& w, const In& in) {
    const int n = static_cast<int>(w.has("clamp") ? std::min<u64>(in.c, 32) : in.c & 31);
    u64 d = 0;  // 32 bits of {b, a}: from 32 - n on (left), from n on (right)
    for (int i = 0; i < 32; ++i) {
      const int from = w.has("l") ? 32 - n + i : n + i;
      d |= u64(from < 32 ? bit(in.a, from) : bit(in.b, from - 32)) << i;
    }
    return Want(d);
  });
  CHECK(batch.run() == "");
}

TEST_CASE("forms: prmt and its modes") {
  // PTX ISA, "prmt": source bytes of d.b3 d.b2 d.b1 d.b0 for the values 0 to 3 of c's low bits.
  struct Mode {
    const char* name;
    int bytes[4][4];
  };
  const Mode modes[] = {{"f4e", {{3, 2, 1, 0}, {4, 3, 2, 1}, {5, 4, 3, 2}, {6, 5, 4, 3}}},
                        {"b4e", {{5, 6, 7, 0}, {6, 7, 0, 1}, {7, 0, 1, 2}, {0, 1, 2, 3}}},
                        {"rc8", {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}},
                        {"ecl", {{3, 2, 1, 0}, {3, 2, 1, 1}, {3, 2, 2, 2}, {3, 3, 3, 3}}},
                        {"ecr", {{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 1, 0}, {3, 2, 1, 0}}},
                        {"rc16", {{1, 0, 1, 0}, {3, 2, 3, 2}, {1, 0, 1, 0}, {3, 2, 3, 2}}}};
  const auto byte = [](const In& in, int i) {
    return (i < 4 ? in.a >> 8 * i : in.b >> 8 * (i - 4)) & 255;
  };
  Batch batch;
  for (const Mode& mode : modes)
    batch.add(std::string("prmt.b32.") + mode.name, "b32 = b32 b32 b32",
              [=](const Words&, const In& in) {
                u64 d = 0;
                for (int i = 0; i < 4; ++i) d = d << 8 | byte(in, mode.bytes[in.c & 3][i]);
                return Want(d);
              });
  // A nibble for each byte: three bits choose, the fourth asks for eight copies of the byte's sign.
  batch.add("prmt.b32", "b32 = b32 b32 b32", [=](const Words&, const In& in) {
    u64 d = 0;
    for (int i = 3; i >= 0; --i) {
      const int nibble = static_cast<int>(in.c >> 4 * i & 15);
      const u64 chosen = byte(in, nibble & 7);
      d = d << 8 | (nibble & 8 ? (chosen >= 128 ? 255 : 0) : chosen);
    }
    return Want(d);
  });
  CHECK(batch.run() == "");
}

TEST_CASE("forms: immediates, among them such as do not fit 32 bits and negative ones") {
  Batch batch;
  const auto with = [&](const std::string& name, const std::string& signature,
                        const std::string& immediate, auto f) {
    batch.add(name, signature, [f](const Words&, const In& in) { return Want(f(in)); },
              {.body = "$g $name $d, $a, " + immediate + ";"});
  };
  with("add.s32", "s32 = s32", "-7", [](const In& in) { return (in.a - 7) & ones(32); });
  with("add.s64", "s64 = s64", "-7", [](const In& in) { return in.a - 7; });
  with("and.b64", "b64 = b64", "0xf0f0f0f00f0f0f0f",
       [](const In& in) { return in.a & 0xf0f0f0f00f0f0f0full; });
  with("and.b16", "b16 = b16", "-2", [](const In& in) { return in.a & 0xfffe; });
  with("mul.wide.s32", "s64 = s32", "-3",
       [](const In& in) { return static_cast<u64>(in.sa(32) * -3); });
  with("mul.wide.u16", "u32 = u16", "65535", [](const In& in) { return in.a * 65535; });
  with("shl.b64", "b64 = b64", "40", [](const In& in) { return in.a << 40; });
  with("shr.s64", "s64 = s64", "63",
       [](const In& in) { return static_cast<u64>(in.sa(64) >> 63); });
  CHECK(batch.run() == "");
}

TEST_CASE("forms: prmt with selectors known beforehand") {
  Batch batch;
  for (const u64 selectors : {0x5410, 0x7632, 0x3210, 0x0123, 0x4440, 0xb3a2, 0x8000, 0xffff,
                              0x0088, 0x777, 0x9100, 0xfedc})
    batch.add("prmt.b32", "b32 = b32 b32",
              [=](const Words&, const In& in) {
                u64 d = 0;
                for (int i = 3; i >= 0; --i) {
                  const u64 nibble = selectors >> 4 * i & 15, from = nibble & 7;
                  const u64 byte = (from < 4 ? in.a >> 8 * from : in.b >> 8 * (from - 4)) & 255;
                  d = d << 8 | (nibble < 8 ? byte : byte >= 128 ? 255 : 0);
                }
                return Want(d);
              },
              {.body = "$g $name $d, $a, $b, " + std::to_string(selectors) + ";"});
  CHECK(batch.run() == "");
}
