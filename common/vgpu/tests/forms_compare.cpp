// Comparison and selection, row by row: setp, set, selp, slct, testp.
#include <doctest/doctest.h>

#include "forms_cases.h"

using namespace vgpu::rows;

namespace {

// -1, 0, 1, or 2 for a NaN among the operands.
int order(const std::string& type, bool ftz, u64 a, u64 b) {
  if (type[0] == 'f' || type.substr(0, 2) == "bf") {
    const soft::Format& f = format_of(type);
    return soft::compare(soft::decode(f, ftz ? soft::flush(f, a) : a),
                         soft::decode(f, ftz ? soft::flush(f, b) : b));
  }
  if (type[0] == 's') {
    const int n = bits_of(type);
    const std::int64_t x = In::extend(a, n), y = In::extend(b, n);
    return x < y ? -1 : x > y;
  }
  return a < b ? -1 : a > b;
}

// PTX ISA, tables of comparison operators: the first six are false with a NaN, those in u true.
bool holds(const std::string& op, int order) {
  const bool nan = order == 2;
  if (op == "num") return !nan;
  if (op == "nan") return nan;
  if (nan) return op.size() == 3;  // equ, neu, ltu, leu, gtu, geu
  const std::string plain = op.substr(0, 2);
  if (plain == "eq") return order == 0;
  if (plain == "ne") return order != 0;
  if (plain == "lt" || plain == "lo") return order < 0;
  if (plain == "le" || plain == "ls") return order <= 0;
  if (plain == "gt" || plain == "hi") return order > 0;
  return order >= 0;  // ge, hs
}
bool combined(const Words& w, bool t, bool c) {
  if (w.has("and")) return t && c;
  if (w.has("or")) return t || c;
  if (w.has("xor")) return t != c;
  return t;
}

const std::string kIntegerOps = "{eq,ne,lt,le,gt,ge}", kUnsignedOps = "{lo,ls,hi,hs}";
const std::string kFloatOps = "{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}",
                  kBool = "{.and,.or,.xor}";

// Adds `opcode`.OP.<tail> with and without a predicate to combine with, plain and negated.
void add_all(Batch& batch, const std::string& opcode, const std::string& ops,
             const std::string& tail, const std::string& result, const std::string& source,
             const Host& host, std::size_t count = 256) {
  const std::string sources = result + " = " + source + " " + source;
  batch.add(opcode + "." + ops + tail, sources, host, {.count = count});
  batch.add(opcode + "." + ops + kBool + tail, sources + " pred", host, {.count = count});
  batch.add(opcode + "." + ops + ".and" + tail, sources + " !pred", host, {.count = 64});
}

}  // namespace

TEST_CASE("forms: setp of all comparisons, with one destination and with two") {
  Batch batch;
  const Host one = [](const Words& w, const In& in) {
    return Want(combined(w, holds(w.parts[1], order(w.last(), w.ftz(), in.a, in.b)), in.c));
  };
  const Host two = [](const Words& w, const In& in) {  // PTX ISA: q is BoolOp of the opposite
    const bool t = holds(w.parts[1], order(w.last(), w.ftz(), in.a, in.b));
    return Want(combined(w, t, in.c), combined(w, !t, in.c));
  };
  for (const std::string t : {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"}) {
    const std::string ops = t[0] == 'b' ? "{eq,ne}" : kIntegerOps;
    add_all(batch, "setp", ops, "." + t, "pred", t, one);
    add_all(batch, "setp", ops, "." + t, "pred|pred", t, two);
    if (t[0] == 'u') add_all(batch, "setp", kUnsignedOps, "." + t, "pred", t, one);
  }
  for (const std::string t : {"f32", "f64", "f16", "bf16"}) {
    const std::string tail = (t == "f32" || t == "f16" ? "{,.ftz}." : ".") + t;
    add_all(batch, "setp", kFloatOps, tail, "pred", t, one, 512);
    add_all(batch, "setp", kFloatOps, tail, "pred|pred", t, two);
  }
  // Packed: p from the low halves, q from the high ones.
  const Host packed = [](const Words& w, const In& in) {
    bool t[2];
    for (int i = 0; i < 2; ++i)
      t[i] = combined(w,
                      holds(w.parts[1], order(w.last(), w.ftz(), in.a >> 16 * i & 0xffff,
                                              in.b >> 16 * i & 0xffff)),
                      in.c);
    return Want(t[0], t[1]);
  };
  add_all(batch, "setp", kFloatOps, "{,.ftz}.f16x2", "pred|pred", "f16x2", packed);
  add_all(batch, "setp", kFloatOps, ".bf16x2", "pred|pred", "bf16x2", packed);
  CHECK(batch.run() == "");
}

TEST_CASE("forms: a destination of setp may be its source, another setp's or nobody's") {
  Batch batch;
  const auto both = [](const Words&, const In& in) {
    return Want(in.a < in.b && in.c, !(in.a < in.b) && in.c);
  };
  batch.add("setp.lt.and.u32", "pred|pred = u32 u32 pred", both,
            {.body = "$g $name $d|$q, $a, $b, $c;"});
  batch.add(
      "setp.lt.and.u32", "pred|pred = u32 u32 pred", both,
      {.body = ".reg .pred %x; mov.pred %x, $c; $g $name %x|$q, $a, $b, %x; $g mov.pred $d, %x;"});
  batch.add(
      "setp.lt.and.u32", "pred|pred = u32 u32 pred", both,
      {.body = ".reg .pred %x; mov.pred %x, $c; $g $name $d|%x, $a, $b, %x; $g mov.pred $q, %x;"});
  batch.add("setp.lt.and.u32", "pred = u32 u32 pred",
            [](const Words&, const In& in) { return Want(!(in.a < in.b) && in.c); },
            {.body = "$g $name _|$d, $a, $b, $c;"});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: set of all comparisons and destination types") {
  Batch batch;
  const Host host = [](const Words& w, const In& in) {
    const std::string& d = w.parts[w.parts.size() - 2];
    const bool t = combined(w, holds(w.parts[1], order(w.last(), w.ftz(), in.a, in.b)), in.c);
    const u64 yes = d == "f32"                 ? 0x3f800000
                    : d == "f16"               ? 0x3c00
                    : d == "bf16"              ? 0x3f80
                    : d == "u16" || d == "s16" ? 0xffff
                                               : 0xffffffff;
    return Want(t ? yes : 0);
  };
  for (const std::string d : {"u32", "s32", "f32"}) {
    for (const std::string t : {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"}) {
      add_all(batch, "set", t[0] == 'b' ? "{eq,ne}" : kIntegerOps, "." + d + "." + t, d, t, host,
              128);
      if (t[0] == 'u') add_all(batch, "set", kUnsignedOps, "." + d + "." + t, d, t, host, 128);
    }
    add_all(batch, "set", kFloatOps, "{,.ftz}." + d + ".f32", d, "f32", host, 256);
    add_all(batch, "set", kFloatOps, "." + d + ".f64", d, "f64", host, 256);
  }
  for (const std::string d : {"u16", "s16", "u32", "s32"}) {
    add_all(batch, "set", kFloatOps, "{,.ftz}." + d + ".f16", d, "f16", host, 128);
    add_all(batch, "set", kFloatOps, "." + d + ".bf16", d, "bf16", host, 128);
  }
  add_all(batch, "set", kFloatOps, "{,.ftz}.f16.f16", "f16", "f16", host, 256);
  add_all(batch, "set", kFloatOps, ".bf16.bf16", "bf16", "bf16", host, 256);
  // Packed: 1.0 or all ones in each half.
  const Host packed = [](const Words& w, const In& in) {
    const std::string& d = w.parts[w.parts.size() - 2];
    const u64 yes = d == "f16x2" ? 0x3c00 : d == "bf16x2" ? 0x3f80 : 0xffff;
    u64 result = 0;
    for (int i = 0; i < 2; ++i)
      if (combined(w,
                   holds(w.parts[1], order(w.last(), w.ftz(), in.a >> 16 * i & 0xffff,
                                           in.b >> 16 * i & 0xffff)),
                   in.c))
        result |= yes << 16 * i;
    return Want(result);
  };
  for (const std::string d : {"u32", "s32", "b32"}) {
    const std::string result = d == "b32" ? "f16x2" : d, result_b = d == "b32" ? "bf16x2" : d;
    const auto add = [&](const std::string& tail, const std::string& t) {
      const std::string sources = "b32 = " + t + " " + t;  // b32: the function sees whole words
      batch.add("set." + kFloatOps + tail, sources, packed, {.count = 128});
      batch.add("set." + kFloatOps + kBool + tail, sources + " pred", packed, {.count = 128});
    };
    add("{,.ftz}." + result + ".f16x2", "f16x2");
    add("." + result_b + ".bf16x2", "bf16x2");
  }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: selp, slct, testp") {
  Batch batch;
  for (const std::string t :
       {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"}) {
    const auto host = [](const Words&, const In& in) { return Want(in.c ? in.a : in.b); };
    batch.add("selp." + t, t + " = " + t + " " + t + " pred", host);
    batch.add("selp." + t, t + " = " + t + " " + t + " !pred", host);
    batch.add("slct." + t + ".s32", t + " = " + t + " " + t + " s32",
              [](const Words&, const In& in) { return Want(in.sc(32) >= 0 ? in.a : in.b); });
    // PTX ISA, slct: -0 equals 0, a NaN chooses b.
    batch.add("slct{,.ftz}." + t + ".f32", t + " = " + t + " " + t + " f32",
              [](const Words& w, const In& in) {
                const auto c =
                    soft::decode(soft::kF32, w.ftz() ? soft::flush(soft::kF32, in.c) : in.c);
                const bool first =
                    c.kind == soft::Number::zero || (c.kind != soft::Number::nan && !c.negative);
                return Want(first ? in.a : in.b);
              });
  }
  // PTX ISA, testp: zeros count as normal.
  for (const std::string t : {"f32", "f64"})
    batch.add("testp.{finite,infinite,number,notanumber,normal,subnormal}." + t, "pred = " + t,
              [](const Words& w, const In& in) {
                const soft::Format& f = format_of(w.last());
                const auto kind = soft::decode(f, in.a).kind;
                const bool finite = kind == soft::Number::finite || kind == soft::Number::zero;
                const bool subnormal = soft::is_subnormal(f, in.a);
                const std::string& what = w.parts[1];
                return Want(what == "finite"       ? finite
                            : what == "infinite"   ? kind == soft::Number::infinite
                            : what == "number"     ? kind != soft::Number::nan
                            : what == "notanumber" ? kind == soft::Number::nan
                            : what == "normal"     ? finite && !subnormal
                                                   : subnormal);
              });
  CHECK(batch.run() == "");
}
