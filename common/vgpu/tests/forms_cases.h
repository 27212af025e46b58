// Instructions one by one against computations on the host.
//
//   batch.add("fma{.rn,.rz}{,.ftz}.f32", "f32 = f32 f32 f32",
//             [](const Words& w, const In& in) { ... });
//
// makes a small kernel for each instruction that the braces stand for, runs it on interesting and
// on random operands, and compares each lane with what the function says. Every kernel executes the
// instruction for all lanes, under a guard (lanes without it keep what the destination held), and
// with the destination being each of the sources in turn.
//
// What was checked goes into the account of forms_account.h; table_of_forms.cpp lists what is
// missing.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "forms_soft.h"

namespace vgpu {
class LoadedModule;
}

namespace vgpu::rows {

using u64 = std::uint64_t;

// ---- registry (forms_account.h) -------------------------------------------------------------

// Points of the table (form_points() in ops/forms.h) that nothing has touched so far.
std::vector<std::string> untouched();
// Set by main(): all test cases run, so that the registry says something at the end.
extern bool whole_run;

// ---- cases ----------------------------------------------------------------------------------

// The instruction's words, for the host's function: Words("add.rn.f32").has("rn").
struct Words {
  explicit Words(std::string dotted);
  std::string dotted;
  std::vector<std::string> parts;
  bool has(std::string_view word) const;
  bool ftz() const { return has("ftz"); }
  const std::string& last() const { return parts.back(); }
  soft::Round rounding() const;  // rn when nothing is said
};

// Operands of one lane as bits, zeros above their width. Predicates are 0 or 1.
struct In {
  u64 a = 0, b = 0, c = 0, e = 0;
  std::int64_t sa(int bits) const { return extend(a, bits); }
  std::int64_t sb(int bits) const { return extend(b, bits); }
  std::int64_t sc(int bits) const { return extend(c, bits); }
  static std::int64_t extend(u64 v, int bits) {
    return static_cast<std::int64_t>(v << (64 - bits)) >> (64 - bits);
  }
};

// What a lane must hold afterwards: bits; one of several NaNs; a number within bounds; or anything.
struct Want {
  enum Kind { exact, a_nan, within, anything } kind = exact;
  u64 bits = 0;
  u64 second = 0;                 // for the second destination
  long double low = 0, high = 0;  // within
  Want(u64 v) : bits(v) {}
  Want(u64 v, u64 q) : bits(v), second(q) {}
  static Want nan() { return of(a_nan); }
  static Want any() { return of(anything); }
  static Want between(long double low, long double high) {
    Want w = of(within);
    w.low = low, w.high = high;
    return w;
  }

 private:
  static Want of(Kind k) {
    Want w(0);
    w.kind = k;
    return w;
  }
};
using Host = std::function<Want(const Words&, const In&)>;
// Fills the operands of lane `i`, instead of the harness's own choice.
using Inputs = std::function<void(In& in, std::size_t i, std::mt19937_64& random)>;

struct Options {
  std::string body = {};     // PTX in place of "$g NAME $d, $a, $b, $c, $e;"; $g is the guard
  std::string touches = {};  // further instructions that the body is a test of, with spaces between
  Inputs inputs = {};
  std::size_t count = 1024;  // lanes, a multiple of 32
  // x2 types: the function sees and gives one part (half, float, byte) at a time.
  bool by_parts = true;
};

class Batch {
 public:
  // `signature`: "f32 = f32 f32 f32", "pred|pred = f32 f32 pred". Types as in PTX; the class of
  // the register and the interesting values follow from them. "shift" is a b32 of shift amounts.
  // "!pred": written as !p.
  void add(const std::string& pattern, const std::string& signature, Host host,
           Options options = {});
  // Complaints, one a line; "" when everything agrees. `sabotage` may change a loaded module.
  std::string run(const std::function<void(LoadedModule&)>& sabotage = {});
  std::size_t size() const { return cases_.size(); }
  // What `run` gave the machine.
  const std::string& text() const { return text_; }

 private:
  struct Case;
  std::vector<std::shared_ptr<Case>> cases_;
  std::string text_;
  void judge(const Case& c, const u64* input, const u64* output, std::string& complaints) const;
};

// "add{.rn,}.f32" -> {"add.rn.f32", "add.f32"}
std::vector<std::string> expand(const std::string& pattern);

// ---- for host functions ---------------------------------------------------------------------

const soft::Format& format_of(std::string_view type);  // "f16x2": that of its parts
int bits_of(std::string_view type);
// The number as long double, whose 64 bits of mantissa hold every format exactly.
long double value_of(const soft::Format& f, u64 bits);

}  // namespace vgpu::rows
