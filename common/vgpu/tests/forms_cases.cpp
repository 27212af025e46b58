#include "forms_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "../core/machine.h"
#include "../ops/forms.h"
#include "forms_account.h"

namespace vgpu::rows {

// ---- registry -------------------------------------------------------------------------------

bool whole_run = false;

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char ch : text)
    if (ch == separator)
      parts.emplace_back();
    else
      parts.back() += ch;
  return parts;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

}  // namespace

std::vector<std::string> untouched() {
  std::vector<std::string> missing;
  for (const std::string& point : form_points())
    if (!test::touched_points().count(point)) missing.push_back(point);
  return missing;
}

namespace {
// Counts an instruction as tested; what is wrong with it, if anything.
std::string touched(const std::string& dotted) {
  test::touch(dotted);
  return points_of(dotted).empty() ? "the table has no row for " + dotted + "\n" : "";
}
}  // namespace

// ---- names and types ------------------------------------------------------------------------

std::vector<std::string> expand(const std::string& pattern) {
  const std::size_t open = pattern.find('{');
  if (open == pattern.npos) return {pattern};
  const std::size_t close = pattern.find('}', open);
  std::vector<std::string> result;
  for (const std::string& choice : split(pattern.substr(open + 1, close - open - 1), ','))
    for (const std::string& rest : expand(pattern.substr(close + 1)))
      result.push_back(pattern.substr(0, open) + choice + rest);
  return result;
}

Words::Words(std::string name) : dotted(std::move(name)), parts(split(dotted, '.')) {}
bool Words::has(std::string_view word) const {
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}
soft::Round Words::rounding() const {
  using soft::Round;
  if (has("rz") || has("rzi")) return Round::to_zero;
  if (has("rm") || has("rmi")) return Round::down;
  if (has("rp") || has("rpi")) return Round::up;
  if (has("rna")) return Round::nearest_away;
  return Round::nearest_even;
}

const soft::Format& format_of(std::string_view type) {
  if (type.substr(0, 4) == "bf16") return soft::kBf16;
  if (type.substr(0, 4) == "e4m3") return soft::kE4m3;
  if (type.substr(0, 4) == "e5m2") return soft::kE5m2;
  if (type.substr(0, 4) == "tf32") return soft::kTf32;
  if (type.substr(0, 3) == "f16") return soft::kF16;
  if (type.substr(0, 3) == "f64") return soft::kF64;
  return soft::kF32;
}

namespace {
bool is_packed(std::string_view type) {
  return type.size() > 2 && type.substr(type.size() - 2) == "x2";
}
bool is_float_name(std::string_view type) {
  return type[0] == 'f' || type.substr(0, 2) == "bf" || type[0] == 'e';
}
}  // namespace

int bits_of(std::string_view type) {
  if (type == "pred" || type == "!pred") return 1;
  if (type == "shift" || type == "tf32") return 32;
  if (is_packed(type)) return 2 * bits_of(type.substr(0, type.size() - 2));
  if (is_float_name(type)) return format_of(type).bits();
  return std::atoi(type.data() + 1);
}

long double value_of(const soft::Format& f, u64 bits) {
  const soft::Number n = soft::decode(f, bits);
  long double v = 0;
  if (n.kind == soft::Number::nan) return NAN;
  if (n.kind == soft::Number::infinite) v = INFINITY;
  if (n.kind == soft::Number::finite)
    v = std::ldexp(static_cast<long double>(static_cast<u64>(n.mantissa)), n.exponent);
  return n.negative ? -v : v;
}

// ---- operands -------------------------------------------------------------------------------

namespace {

u64 low_bits(u64 v, int bits) { return bits >= 64 ? v : v & ((u64{1} << bits) - 1); }

// Bits in few runs of ones and zeros: that is where carries and roundings go wrong.
u64 runs(std::mt19937_64& random) {
  u64 v = random() & 1 ? ~u64{0} : 0;
  for (int edges = static_cast<int>(random() % 4); edges-- > 0;) v ^= ~u64{0} << random() % 64;
  return v;
}

std::vector<u64> interesting_integers(int bits) {
  std::vector<u64> values;
  for (u64 v : {u64{0}, u64{1}, u64{2}, u64{3}, u64{7}, u64{10}, u64{31}, u64{32}, u64{33}, u64{63},
                u64{64}, u64{127}, u64{128}, u64{255}, u64{256}, u64{0x5555555555555555},
                u64{0x123456789abcdef0}})
    values.push_back(v), values.push_back(~v);
  for (int bit : {15, 16, 23, 24, 31, 32, 47, 63})
    for (u64 near : {u64{0}, u64{1}, ~u64{0}}) values.push_back((u64{1} << bit) + near);
  for (u64& v : values) v = low_bits(v, bits);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

std::vector<u64> interesting_floats(const soft::Format& f) {
  const u64 inf = f.infinity(), one = static_cast<u64>(f.bias()) << f.mantissa_bits,
            unit = f.smallest_normal();
  std::vector<u64> values = {0,
                             1,
                             2,
                             3,
                             unit / 2,
                             unit - 1,
                             unit,
                             unit + 1,
                             one,
                             one - 1,
                             one + 1,
                             one + unit / 2,
                             one + unit,
                             one - unit,
                             f.largest(),
                             f.largest() - 1,
                             f.largest() / 2};
  if (f.has_infinity)  // infinity; NaNs: quiet, signalling, with a payload
    for (u64 v :
         {inf, inf | unit / 2, inf | 1, inf | unit / 4, inf | unit / 2 | 1, inf | (unit - 1)})
      values.push_back(v);
  else
    values.push_back(f.sign_bit() - 1);
  // Where integers end, and halves between integers.
  for (double v : {0.5,
                   1.5,
                   2.5,
                   3.5,
                   126.5,
                   127.0,
                   127.5,
                   128.0,
                   128.5,
                   254.5,
                   255.0,
                   255.5,
                   256.0,
                   32766.5,
                   32767.5,
                   32768.0,
                   32768.5,
                   65504.0,
                   65519.0,
                   65520.0,
                   65534.5,
                   65535.0,
                   65535.5,
                   65536.0,
                   448.0,
                   464.0,
                   480.0,
                   57344.0,
                   61440.0,
                   0x1p31,
                   0x1p31 - 1,
                   0x1p31 - 0.5,
                   0x1p31 + 1,
                   0x1p32,
                   0x1p32 - 1,
                   0x1p32 - 0.5,
                   0x1p63,
                   0x1p63 - 1024,
                   0x1p64,
                   0x1p64 - 2048,
                   0x1p23 + 1,
                   0x1p24 + 1,
                   0x1p52 + 1,
                   1e-3,
                   3.14159265358979,
                   0x1p-24,
                   0x1p-25,
                   0x1p-26,
                   0x1p-126,
                   0x1p-149,
                   0x1p-150,
                   0x1p126,
                   0x1.000002p126,
                   0x1p127,
                   0x1.fffffep127,
                   0x1.ffffffp127}) {
    const auto bits =
        static_cast<u64>(soft::encode(f, soft::decode(soft::kF64, std::bit_cast<u64>(v))));
    values.push_back(bits);
    if ((bits & (f.sign_bit() - 1)) < f.largest()) values.push_back(bits + 1);
    if (bits > 0) values.push_back(bits - 1);
  }
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) values.push_back(values[i] | f.sign_bit());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

u64 random_float(const soft::Format& f, std::mt19937_64& random) {
  const int bits = f.bits();
  u64 v = random() % 3 == 0 ? runs(random) : random();
  v = low_bits(v, bits);
  if (random() % 4 != 0) {  // near 1, so that operands meet
    const int spread = f.mantissa_bits + 4;
    const auto field = static_cast<u64>(std::clamp(
        f.bias() + static_cast<int>(random() % static_cast<unsigned>(2 * spread)) - spread, 0,
        2 * f.bias()));
    v = (v & (f.sign_bit() | (f.smallest_normal() - 1))) | field << f.mantissa_bits;
  }
  return v;
}

u64 random_value(const std::string& type, std::mt19937_64& random) {
  static std::map<std::string, std::vector<u64>> pools;
  const int bits = bits_of(type);
  if (bits == 1) return random() & 1;
  if (is_packed(type)) {
    const std::string part = type.substr(0, type.size() - 2);
    return random_value(part, random) | random_value(part, random) << bits / 2;
  }
  const bool floating = is_float_name(type);
  auto& pool = pools[type];
  if (pool.empty())
    pool = floating ? interesting_floats(format_of(type)) : interesting_integers(bits);
  if (type == "shift" && random() % 4) return random() % 70;
  switch (random() % 4) {
    case 0:
    case 1:
      return pool[random() % pool.size()];
    case 2:
      return floating ? random_float(format_of(type), random) : low_bits(runs(random), bits);
    default:
      return floating ? random_float(format_of(type), random)
                      : low_bits(random() >> random() % static_cast<unsigned>(bits), bits);
  }
}

// Class of register and how it is loaded: pred, 16, 32 or 64 bits.
int register_bits(const std::string& type) {
  const int bits = bits_of(type);
  return bits == 1 ? 1 : std::max(16, bits);
}
std::string reg(int bits, int index) {
  return std::string(bits == 1    ? "%p"
                     : bits == 16 ? "%h"
                     : bits == 32 ? "%r"
                                  : "%rd") +
         std::to_string(index);
}

}  // namespace

// ---- cases ----------------------------------------------------------------------------------

struct Batch::Case {
  Words words;
  std::vector<std::string> results, sources;  // types
  Host host;
  Options options;
  std::vector<int> alias;  // variants: -1 a register of its own, else the source it overwrites

  explicit Case(std::string name) : words(std::move(name)) {}
  bool by_parts() const {
    if (!options.by_parts || !is_packed(results[0])) return false;
    return std::all_of(sources.begin(), sources.end(),
                       [](const std::string& s) { return is_packed(s) || bits_of(s) == 1; });
  }
  std::size_t inputs() const { return sources.size() + 2; }                  // guard, old value
  std::size_t outputs() const { return 2 * alias.size() * results.size(); }  // unguarded, guarded
  std::string kernel(int number) const;
};

void Batch::add(const std::string& pattern, const std::string& signature, Host host,
                Options options) {
  for (const std::string& name : expand(pattern)) {
    auto c = std::make_shared<Case>(name);
    const std::size_t equals = signature.find(" = ");
    c->results = split(signature.substr(0, equals), '|');
    c->sources = split(signature.substr(equals + 3), ' ');
    c->host = host;
    c->options = options;
    c->alias = {-1};
    // A sequence may need its sources after the first result.
    for (std::size_t s = 0; s < c->sources.size() && c->options.body.empty(); ++s)
      if (register_bits(c->sources[s]) == register_bits(c->results[0]))
        c->alias.push_back(static_cast<int>(s));
    cases_.push_back(std::move(c));
  }
}

std::string Batch::Case::kernel(int number) const {
  const std::string n = std::to_string(options.count);
  std::string k = ".visible .entry k" + std::to_string(number) +
                  "(.param .u64 p_out, .param .u64 p_in)\n{\n" +
                  ".reg .pred %p<40>; .reg .b16 %h<40>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg "
                  ".b64 %in, %out, %at; .reg .b32 %number, %word; .reg .pred %guard;\n"
                  "ld.param.u64 %out, [p_out]; ld.param.u64 %in, [p_in];\n"
                  "mov.u32 %number, %ctaid.x; mov.u32 %word, %ntid.x; mul.lo.u32 %number, %number, "
                  "%word; mov.u32 %word, %tid.x; add.u32 %number, %number, %word;\n"
                  "mul.wide.u32 %at, %number, 8; add.u64 %in, %in, %at; add.u64 %out, %out, %at;\n";
  const auto offset = [&](std::size_t index) { return std::to_string(index * options.count * 8); };
  const auto load = [&](const std::string& type, int index, std::size_t from) {
    const int bits = register_bits(type);
    if (bits == 1)
      k += "ld.global.u32 %word, [%in+" + offset(from) + "]; setp.ne.u32 " + reg(1, index) +
           ", %word, 0;\n";
    else
      k += "ld.global.b" + std::to_string(bits) + " " + reg(bits, index) + ", [%in+" +
           offset(from) + "];\n";
  };
  std::size_t out = 0;
  k += "ld.global.u32 %word, [%in+" + offset(sources.size()) + "]; setp.ne.u32 %guard, %word, 0;\n";
  for (const int overwritten : alias)
    for (const bool guarded : {false, true}) {
      // Registers: sources 0.., destinations 20.. (holding the old value).
      for (std::size_t s = 0; s < sources.size(); ++s) load(sources[s], static_cast<int>(s), s);
      for (std::size_t d = 0; d < results.size(); ++d)
        load(results[d], 20 + static_cast<int>(d), sources.size() + 1);
      std::vector<std::string> destination;
      for (std::size_t d = 0; d < results.size(); ++d)
        destination.push_back(reg(register_bits(results[d]), d == 0 && overwritten >= 0
                                                                 ? overwritten
                                                                 : 20 + static_cast<int>(d)));
      std::string text = options.body;
      if (text.empty()) {
        text = "$g " + words.dotted + " $d";
        if (results.size() > 1) text += "|$q";
        for (std::size_t s = 0; s < sources.size(); ++s) text += std::string(", $") + "abce"[s];
        text += ";";
      }
      text = replaced(text, "$g", guarded ? "@%guard" : "");
      text = replaced(text, "$name", words.dotted);
      text = replaced(text, "$d", destination[0]);
      if (results.size() > 1) text = replaced(text, "$q", destination[1]);
      for (std::size_t s = 0; s < sources.size(); ++s)
        text = replaced(text, std::string("$") + "abce"[s],
                        (sources[s][0] == '!' ? "!" : "") +
                            reg(register_bits(sources[s]), static_cast<int>(s)));
      k += "{ " + text + " }\n";
      for (std::size_t d = 0; d < results.size(); ++d, ++out) {
        const int bits = register_bits(results[d]);
        if (bits == 1)
          k += "selp.u32 %word, 1, 0, " + destination[d] + "; st.global.u32 [%out+" + offset(out) +
               "], %word;\n";
        else
          k += "st.global.b" + std::to_string(bits) + " [%out+" + offset(out) + "], " +
               destination[d] + ";\n";
      }
    }
  return k + "ret;\n}\n";
}

namespace {

std::string hex(u64 v) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(v));
  return text;
}

// "" when `got` is what was wanted of a result of this type.
std::string difference(const std::string& type, const Want& want, u64 got, u64 wanted_bits) {
  switch (want.kind) {
    case Want::anything:
      return "";
    case Want::exact:
      return got == wanted_bits ? "" : "is " + hex(got) + ", not " + hex(wanted_bits);
    case Want::a_nan:
      return soft::is_nan(format_of(type), got) ? "" : "is " + hex(got) + ", not a NaN";
    default: {
      const long double v = value_of(format_of(type), got);
      if (v >= want.low && v <= want.high) return "";
      char text[160];
      std::snprintf(text, sizeof text, "is %.12Lg (%s), not within %.12Lg .. %.12Lg", v,
                    hex(got).c_str(), want.low, want.high);
      return text;
    }
  }
}

}  // namespace

void Batch::judge(const Case& c, const u64* input, const u64* output,
                  std::string& complaints) const {
  const std::size_t n = c.options.count;
  int shown = 0;
  std::size_t wrong = 0;
  const bool parts = c.by_parts();
  for (std::size_t lane = 0; lane < n; ++lane) {
    u64 operand[4] = {};
    for (std::size_t s = 0; s < c.sources.size(); ++s) operand[s] = input[s * n + lane];
    const bool guard = input[c.sources.size() * n + lane] != 0;
    const u64 old = input[(c.sources.size() + 1) * n + lane];
    std::vector<Want> wants;
    for (int part = 0; part < (parts ? 2 : 1); ++part) {
      u64 v[4];
      for (std::size_t s = 0; s < 4; ++s) v[s] = operand[s];
      if (parts)
        for (std::size_t s = 0; s < c.sources.size(); ++s) {
          const int width = bits_of(c.sources[s]) / 2;
          if (width) v[s] = low_bits(operand[s] >> part * width, width);
        }
      for (std::size_t s = 0; s < c.sources.size(); ++s)
        if (c.sources[s][0] == '!') v[s] ^= 1;
      wants.push_back(c.host(c.words, {v[0], v[1], v[2], v[3]}));
    }
    std::size_t out = 0;
    for (const int overwritten : c.alias)
      for (const bool guarded : {false, true})
        for (std::size_t d = 0; d < c.results.size(); ++d, ++out) {
          const int bits = register_bits(c.results[d]);
          const u64 got = low_bits(output[out * n + lane], bits == 1 ? 32 : bits);
          std::string problem;
          if (guarded && !guard) {
            u64 kept = d == 0 && overwritten >= 0 ? operand[overwritten] : old;
            kept = bits == 1 ? static_cast<std::uint32_t>(kept) != 0 : low_bits(kept, bits);
            problem = got == kept ? ""
                                  : "is " + hex(got) + " where the guard is false, not " +
                                        hex(kept) + " as before";
          } else if (parts) {
            const int width = bits / 2;
            const std::string type = c.results[d].substr(0, c.results[d].size() - 2);
            for (int part = 0; part < 2 && problem.empty(); ++part)
              problem = difference(type, wants[static_cast<std::size_t>(part)],
                                   low_bits(got >> part * width, width),
                                   low_bits(wants[static_cast<std::size_t>(part)].bits, width));
          } else {
            problem = difference(c.results[d], wants[0], got,
                                 low_bits(d ? wants[0].second : wants[0].bits, bits));
          }
          if (problem.empty()) continue;
          ++wrong;
          if (shown++ >= 3) continue;
          complaints += c.words.dotted + (d ? " (second result)" : "") + " of";
          for (std::size_t s = 0; s < c.sources.size(); ++s) complaints += " " + hex(operand[s]);
          complaints +=
              " in lane " + std::to_string(lane % 32) + (guarded ? " under a guard" : "") +
              (overwritten >= 0 ? std::string(" over operand ") + "abce"[overwritten] : "") + ": " +
              problem + "\n";
        }
  }
  if (wrong > 3) complaints += c.words.dotted + ": " + std::to_string(wrong) + " wrong in all\n";
}

std::string Batch::run(const std::function<void(LoadedModule&)>& sabotage) {
  std::string complaints;
  text_ = ".version 8.8\n.target sm_100a\n.address_size 64\n";
  std::size_t input_words = 0, output_words = 0;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = *cases_[i];
    text_ += c.kernel(static_cast<int>(i));
    input_words = std::max(input_words, c.inputs() * c.options.count);
    output_words = std::max(output_words, c.outputs() * c.options.count);
    complaints += touched(c.words.dotted);
    if (!c.options.touches.empty())
      for (const std::string& name : split(c.options.touches, ' ')) complaints += touched(name);
  }
  if (!complaints.empty()) return complaints;

  DeviceSpec spec;
  Machine machine(spec, {.threads = 1});
  const auto in = machine.memory().allocate(input_words * 8, MemoryKind::device);
  const auto out = machine.memory().allocate(output_words * 8, MemoryKind::device);
  auto* input = reinterpret_cast<u64*>(in->host);
  auto* output = reinterpret_cast<u64*>(out->host);
  std::unique_ptr<LoadedModule> module;
  try {
    module = machine.load(text_);
    for (const std::string& refusal : machine.refusals(*module)) complaints += refusal + "\n";
  } catch (const PtxError& error) {
    complaints += error.what();
  }
  if (!complaints.empty()) return complaints;
  if (sabotage) sabotage(*module);

  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const Case& c = *cases_[i];
    const std::size_t n = c.options.count;
    // The same operands every time, whatever ran before.
    std::mt19937_64 random(std::hash<std::string>{}(c.words.dotted));
    for (std::size_t lane = 0; lane < n; ++lane) {
      In v;
      u64* const slots[4] = {&v.a, &v.b, &v.c, &v.e};
      for (std::size_t s = 0; s < c.sources.size(); ++s)
        *slots[s] = random_value(c.sources[s], random);
      // Operands that are equal, or opposite, are rare otherwise.
      if (c.sources.size() > 1 && random() % 16 == 0 && c.sources[0] == c.sources[1]) v.b = v.a;
      if (c.options.inputs) c.options.inputs(v, lane, random);
      for (std::size_t s = 0; s < c.sources.size(); ++s) input[s * n + lane] = *slots[s];
      // Guards: warps with half of the lanes, with all but one, with one, with all.
      const std::size_t warp = lane / 32, chosen = warp * 7 % 32;
      bool guard = random() & 1;
      if (warp % 4 == 1) guard = lane % 32 != chosen;
      if (warp % 4 == 2) guard = lane % 32 == chosen;
      if (warp % 8 == 3) guard = true;
      input[c.sources.size() * n + lane] = guard;
      input[(c.sources.size() + 1) * n + lane] =
          register_bits(c.results[0]) == 1 ? random() & 1 : random();
    }
    std::memset(output, 0, c.outputs() * n * 8);
    const Function* function = module->module->find("k" + std::to_string(i));
    const u64 addresses[2] = {out->base, in->base};
    std::vector<std::byte> params(function->param_bytes);
    std::memcpy(params.data(), addresses, sizeof addresses);
    LaunchRequest request;
    request.module = module.get();
    request.function = function;
    request.block = {static_cast<std::uint32_t>(std::min<std::size_t>(n, 256)), 1, 1};
    request.grid = {static_cast<std::uint32_t>((n + 255) / 256), 1, 1};
    request.params = params;
    request.count = false;
    const LaunchOutcome outcome = machine.launch(request);
    if (!outcome.fault.message.empty()) {
      complaints += c.words.dotted + ": " + outcome.fault.message + "\n";
      continue;
    }
    judge(c, input, output, complaints);
    if (complaints.size() > 6000) return complaints + "(and so on)\n";
  }
  return complaints;
}

}  // namespace vgpu::rows
