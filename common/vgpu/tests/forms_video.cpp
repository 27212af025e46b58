// Video instructions against the sums of their parts, each part a plain number.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "forms_cases.h"

using namespace vgpu::rows;

namespace {

using i64 = std::int64_t;
using i128 = __int128;

i64 part(u64 word, int index, int bits, const std::string& type) {
  const u64 v = word >> index * bits & ((u64{1} << bits) - 1);
  return type[0] == 's' && v >> (bits - 1) ? static_cast<i64>(v) - (i64{1} << bits)
                                           : static_cast<i64>(v);
}
i128 limited(i128 v, int bits, const std::string& type) {
  const i128 low = type[0] == 's' ? -(i128{1} << (bits - 1)) : i128{0},
             high = low + (i128{1} << bits) - 1;
  return v < low ? low : v > high ? high : v;
}
i64 operation(const std::string& op, i64 a, i64 b) {
  if (op == "vadd") return a + b;
  if (op == "vsub") return a - b;
  if (op == "vavrg") {  // the mean; halves go up in value, or away from zero below it
    const i64 sum = a + b;
    return sum % 2 == 0 ? sum / 2 : sum > 0 ? (sum + 1) / 2 : (sum - 1) / 2;
  }
  if (op == "vabsdiff") return a > b ? a - b : b - a;
  if (op == "vmin") return a < b ? a : b;
  return a > b ? a : b;
}
bool holds(const std::string& how, i64 a, i64 b) {
  return how == "eq"   ? a == b
         : how == "ne" ? a != b
         : how == "lt" ? a < b
         : how == "le" ? a <= b
         : how == "gt" ? a > b
                       : a >= b;
}

// Selectors as written: parts of {b, a} for a and b, highest first, and the parts of d to write.
struct Selection {
  std::string d, a, b;
};

Host parallel(const std::string& op, int parts, Selection s) {
  return [=](const Words& w, const In& in) {
    const bool sets = op == "vset";
    const std::string type_a = w.parts[sets ? 1 : 2], type_b = w.parts[sets ? 2 : 3];
    const int bits = 32 / parts;
    const u64 both = in.a | in.b << 32;
    u64 sum = in.c, merged = 0;
    for (int i = 0; i < parts; ++i) {
      const auto digit = [&](const std::string& selector) {
        return selector[selector.size() - 1 - static_cast<std::size_t>(i)] - '0';
      };
      const i64 a = part(both, digit(s.a), bits, type_a), b = part(both, digit(s.b), bits, type_b);
      i64 t = sets ? holds(w.parts[3], a, b) : operation(op, a, b);
      if (w.has("sat")) t = static_cast<i64>(limited(t, bits, w.parts[1]));
      const bool written = s.d.find(static_cast<char>('0' + i)) != s.d.npos;
      if (written) sum += static_cast<u64>(t);
      const u64 kept = written ? static_cast<u64>(t) : static_cast<u64>(part(in.c, i, bits, "u"));
      merged |= (kept & ((u64{1} << bits) - 1)) << i * bits;
    }
    return Want(w.has("add") ? sum & 0xffffffff : merged);
  };
}

const std::string kWords = "u32 = u32 u32 u32";

// One number of each source; `at`: selectors of d, a, b ("" the whole word).
Host scalar(const std::string& op, Selection at) {
  return [=](const Words& w, const In& in) {
    const bool sets = op == "vset", shifts = op == "vshl" || op == "vshr";
    const std::string type_a = w.parts[sets ? 1 : 2], type_b = w.parts[sets ? 2 : 3];
    std::string type_d = sets ? "u32" : w.parts[1];
    const auto bits_at = [](const std::string& s) { return s.empty() ? 32 : s[0] == 'h' ? 16 : 8; };
    const auto index_at = [](const std::string& s) { return s.empty() ? 0 : s[1] - '0'; };
    const i128 a = part(in.a, index_at(at.a), bits_at(at.a), type_a),
               b = part(in.b, index_at(at.b), bits_at(at.b), type_b);
    if (op == "vmad") type_d = type_a == "s32" || type_b == "s32" ? "s32" : "u32";
    const i64 c = part(in.c, 0, 32, type_d);
    i128 t = 0;
    if (sets) {
      t = holds(w.parts[3], static_cast<i64>(a), static_cast<i64>(b));
    } else if (shifts) {
      const int by = static_cast<int>(w.has("wrap") ? b % 32 : b > 32 ? i128{32} : b);
      t = a;
      for (int i = 0; i < by; ++i) t = op == "vshl" ? t * 2 : t < 0 && t % 2 ? (t - 1) / 2 : t / 2;
    } else if (op == "vmad") {
      t = a * b + c + (w.has("po") ? 1 : 0);
      const i128 unit = w.has("shr7") ? 128 : w.has("shr15") ? 32768 : 1;
      const i128 rest = (t % unit + unit) % unit;  // floor
      t = (t - rest) / unit;
    } else {
      t = operation(op, static_cast<i64>(a), static_cast<i64>(b));
    }
    const int width = bits_at(at.d);
    if (w.has("sat")) t = limited(t, width, type_d);
    if (!at.d.empty()) {
      const u64 hole = ((u64{1} << width) - 1) << index_at(at.d) * width;
      return Want((in.c & ~hole) | (static_cast<u64>(t) << index_at(at.d) * width & hole));
    }
    i64 result = part(static_cast<u64>(t) & 0xffffffff, 0, 32, type_d);
    if (w.has("add")) result += c;
    if (w.parts.back() == "min") result = std::min(result, c);
    if (w.parts.back() == "max") result = std::max(result, c);
    return Want(static_cast<u64>(result) & 0xffffffff);
  };
}
std::string body(const Selection& s, bool third) {
  const auto dot = [](const std::string& t) { return t.empty() ? "" : "." + t; };
  return "$g $name $d" + dot(s.d) + ", $a" + dot(s.a) + ", $b" + dot(s.b) + (third ? ", $c;" : ";");
}

}  // namespace

TEST_CASE("forms: video instructions on two and four parts") {
  Batch batch;
  for (const std::string op : {"vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"})
    for (const int parts : {2, 4}) {
      const std::string types = op == "vset"
                                    ? "{.u32,.s32}{.u32,.s32}{.eq,.ne,.lt,.le,.gt,.ge}{,.add}"
                                    : "{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat,.add}";
      const std::string name = op + std::to_string(parts) + types;
      const Selection plain =
          parts == 2 ? Selection{"10", "10", "32"} : Selection{"3210", "3210", "7654"};
      batch.add(name, kWords, parallel(op, parts, plain), {.count = 256});
      const Selection of_two[] = {{"1", "03", "21"}, {"0", "33", "10"}, {"10", "20", "02"}};
      const Selection of_four[] = {
          {"1", "0347", "7216"}, {"31", "3333", "4567"}, {"320", "0123", "7654"}};
      for (const Selection& s : parts == 2 ? of_two : of_four) {
        const std::string letter = parts == 2 ? "h" : "b";
        batch.add(name, kWords, parallel(op, parts, s),
                  {.body = body({letter + s.d, letter + s.a, letter + s.b}, true), .count = 64});
      }
    }
  CHECK(batch.run() == "");
}

TEST_CASE("forms: video instructions on one part") {
  Batch batch;
  const Selection whole{"", "", ""};
  for (const std::string op :
       {"vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr"}) {
    const bool shifts = op == "vshl" || op == "vshr";
    const std::string name = op == "vset" ? "vset{.u32,.s32}{.u32,.s32}{.eq,.ne,.lt,.le,.gt,.ge}"
                             : shifts     ? op + "{.u32,.s32}{.u32,.s32}.u32{,.sat}{.clamp,.wrap}"
                                          : op + "{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.sat}";
    const std::string two = shifts ? "u32 = u32 shift" : "u32 = u32 u32", three = two + " u32";
    batch.add(name, two, scalar(op, whole), {.count = 256});
    batch.add(name + "{.add,.min,.max}", three, scalar(op, whole), {.count = 256});
    batch.add(name, two, scalar(op, {"", "b2", "h1"}),
              {.body = body({"", "b2", "h1"}, false), .count = 64});
    batch.add(name + "{.add,.min,.max}", three, scalar(op, {"", "h0", "b3"}),
              {.body = body({"", "h0", "b3"}, true), .count = 64});
    for (const std::string d : {"b0", "b3", "h0", "h1"})
      batch.add(name, three, scalar(op, {d, "", "b1"}),
                {.body = body({d, "", "b1"}, true), .count = 64});
  }
  batch.add("vmad{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.po}{,.sat}{,.shr7,.shr15}", kWords,
            scalar("vmad", whole), {.count = 256});
  batch.add("vmad{.u32,.s32}{.u32,.s32}{.u32,.s32}{,.po}{,.sat}{,.shr7,.shr15}", kWords,
            scalar("vmad", {"", "b3", "h0"}), {.body = body({"", "b3", "h0"}, true), .count = 64});
  CHECK(batch.run() == "");
}
