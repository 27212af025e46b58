// The approximate instructions against long double, within the errors and with the special values
// that the PTX ISA states for each ("Floating-Point Instructions", "Half Precision ...").
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../core/machine.h"
#include "core_support.h"
#include "forms_cases.h"

using namespace vgpu;
using namespace vgpu::rows;

namespace {

constexpr long double kInfinity = INFINITY;

u64 bits(float x) { return std::bit_cast<std::uint32_t>(x); }
long double read(const Words& w, u64 raw) {
  const soft::Format& f = format_of(w.last());
  return value_of(f, w.ftz() ? soft::flush(f, raw) : raw);
}
// One unit in the last place of a correctly rounded f32.
long double ulp(long double x) {
  int exponent;
  std::frexp(x, &exponent);
  return std::ldexp(1.0L, std::max(exponent - 24, -149));
}
// Within `error` of the exact value, which must not be special; results may be flushed with .ftz,
// and what is beyond the largest may be infinite.
Want within(const Words& w, long double exact, long double error) {
  const soft::Format& f = format_of(w.last());
  if (std::isinf(exact)) error = 0;
  long double low = exact - error, high = exact + error;
  const long double normal = value_of(f, f.smallest_normal()), largest = value_of(f, f.largest());
  if (w.ftz() && exact > 0 && low < normal) low = 0;
  if (w.ftz() && exact < 0 && high > -normal) high = 0;
  if (high > largest) high = kInfinity;
  if (low < -largest) low = -kInfinity;
  low = std::min(low, largest), high = std::max(high, -largest);
  return Want::between(low, high);
}
Want zero(bool negative) { return Want(negative ? 0x80000000u : 0u); }
Want infinite(bool negative) { return Want(negative ? 0xff800000u : 0x7f800000u); }

// Bits of x and what the f32 instruction named in w makes of it.
Want unary(const Words& w, const In& in) {
  const std::string& op = w.parts[0];
  const long double x = read(w, in.a);
  const bool negative = in.a >> 31;
  if (std::isnan(x)) return Want::nan();
  if (op == "ex2") {
    if (std::isinf(x)) return negative ? zero(false) : infinite(false);
    if (x == 0) return Want(bits(1));
    const long double exact = std::exp2(x);
    return within(w, exact, 2 * ulp(exact) + ulp(exact) / 2);  // 2 ulp from the rounded result
  }
  if (op == "lg2") {
    if (x == 0) return infinite(true);
    if (negative) return Want::nan();
    if (std::isinf(x)) return infinite(false);
    const long double exact = std::log2(x);
    const long double error = 0x1p-22L;
    return within(w, exact, x > 0.5L && x < 2 ? error : error * std::fabs(exact));
  }
  if (op == "rcp") {
    if (x == 0) return infinite(negative);
    if (std::isinf(x)) return zero(negative);
    return within(w, 1 / x, ulp(1 / x));
  }
  if (op == "sqrt") {
    if (x == 0) return zero(negative);
    if (negative) return Want::nan();
    if (std::isinf(x)) return infinite(false);
    return within(w, std::sqrt(x), std::sqrt(x) * 0x1p-23L);
  }
  if (op == "rsqrt") {
    if (x == 0) return infinite(negative);
    if (negative) return Want::nan();
    if (std::isinf(x)) return zero(false);
    return within(w, 1 / std::sqrt(x), std::exp2(-22.9L) / std::sqrt(x));
  }
  if (op == "tanh") {
    if (x == 0) return zero(negative);
    if (std::isinf(x)) return Want(bits(negative ? -1.0f : 1.0f));
    return within(w, std::tanh(x), std::fabs(std::tanh(x)) * 0x1p-11L);
  }
  // sin, cos
  if (std::isinf(x)) return Want::nan();
  if (x == 0) return op == "sin" ? zero(negative) : Want(bits(1));
  const long double pi = std::acos(-1.0L), exact = op == "sin" ? std::sin(x) : std::cos(x);
  if (std::fabs(x) > 100 * pi) return Want::between(-1, 1);  // best effort, says the ISA
  return within(w, exact, std::exp2(std::fabs(x) <= 2 * pi ? -20.5L : -14.7L));
}

// Runs `name` on the floats with the bits first, first + step ... and says what is not as it should
// be.
std::string sweep(const std::string& name, std::uint32_t first, std::uint32_t step,
                  std::uint32_t count, Want (*want)(const Words&, const In&)) {
  Machine machine({}, {.threads = 1});
  const auto module = machine.load(
      ".version 8.8\n.target sm_100a\n.address_size 64\n"
      ".visible .entry k(.param .u64 out, .param .u32 first, .param .u32 step)\n{\n"
      ".reg .b32 %x, %i, %n, %f, %s; .reg .b64 %out, %at;\n"
      "ld.param.u64 %out, [out]; ld.param.u32 %f, [first]; ld.param.u32 %s, [step];\n"
      "mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x; mul.lo.u32 %i, %i, %n; mov.u32 %n, %tid.x; "
      "add.u32 %i, %i, %n;\n"
      "mul.wide.u32 %at, %i, 4; add.u64 %out, %out, %at; mul.lo.u32 %x, %i, %s; add.u32 %x, %x, "
      "%f;\n" +
      name + " %x, %x; st.global.b32 [%out], %x; ret;\n}\n");
  const auto out = machine.memory().allocate(std::uint64_t{count} * 4, MemoryKind::device);
  const Function* function = module->module->find("k");
  std::vector<std::byte> params(function->param_bytes);
  std::memcpy(params.data(), &out->base, 8);
  std::memcpy(params.data() + 8, &first, 4);
  std::memcpy(params.data() + 12, &step, 4);
  LaunchRequest request;
  request.module = module.get();
  request.function = function;
  request.block = {1024, 1, 1};
  request.grid = {count / 1024, 1, 1};
  request.params = params;
  request.count = false;
  const LaunchOutcome outcome = machine.launch(request);
  if (!outcome.fault.message.empty()) return outcome.fault.message;
  const auto* got = reinterpret_cast<const std::uint32_t*>(out->host);
  const Words words(name);
  std::string complaints;
  int wrong = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const In in{first + i * step};
    const Want w = want(words, in);
    const long double value = value_of(soft::kF32, got[i]);
    const bool good = w.kind == Want::exact   ? got[i] == w.bits
                      : w.kind == Want::a_nan ? std::isnan(value)
                                              : value >= w.low && value <= w.high;
    if (good || ++wrong > 5) continue;
    char text[160];
    std::snprintf(text, sizeof text,
                  "%s of %.9Lg (0x%08llx) is %.9Lg, not within %.12Lg .. %.12Lg\n", name.c_str(),
                  value_of(soft::kF32, in.a), static_cast<unsigned long long>(in.a), value, w.low,
                  w.high);
    complaints += text;
  }
  return wrong ? complaints + std::to_string(wrong) + " wrong of " + std::to_string(count) : "";
}

}  // namespace

TEST_CASE("forms: approximate f32 functions at their edges") {
  Batch batch;
  batch.add("{ex2,lg2,rcp,sqrt,rsqrt,sin,cos}.approx{,.ftz}.f32", "f32 = f32", unary,
            {.count = 4096});
  // The other order, as curand's headers have it.
  batch.add(
      "{ex2,lg2,rcp,rsqrt}.approx.f32.ftz", "f32 = f32",
      [](const Words& w, const In& in) { return unary(Words(w.parts[0] + ".approx.ftz.f32"), in); },
      {.count = 4096});
  batch.add("tanh.approx.f32", "f32 = f32", unary, {.count = 4096});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: ex2.approx on every float in [1, 2) and [-2, -1)") {
  const auto want = [](const Words&, const In& in) {  // double is exact enough, and quick
    const double exact =
        std::exp2(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(in.a))));
    const double error = 2.5 * (exact >= 2     ? 0x1p-22
                                : exact >= 1   ? 0x1p-23
                                : exact >= 0.5 ? 0x1p-24
                                               : 0x1p-25);
    return Want::between(exact - error, exact + error);
  };
  CHECK(sweep("ex2.approx.ftz.f32", 0x3f800000, 1, 1 << 23, want) == "");
  CHECK(sweep("ex2.approx.f32", 0xbf800000, 5, (1 << 23) / 5 / 1024 * 1024, want) == "");
}

TEST_CASE("forms: ex2.approx.ftz gives no subnormal numbers, ex2.approx does") {
  test::Gpu gpu;
  // 2^-126, 2^-126.5, 2^-127
  const std::vector<std::uint32_t> in = {0xc2fc0000, 0xc2fd0000, 0xc2fe0000};
  const std::string load =
      "mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in; ld.global.f32 %f1, [%rd1];\n";
  CHECK_SAME(
      gpu.run(load + "ex2.approx.ftz.f32 %f2, %f1; st.global.f32 [%mine], %f2;", 3, in, {3, 1, 1}),
      std::vector<std::uint32_t>{0x00800000, 0, 0});
  const auto kept =
      gpu.run(load + "ex2.approx.f32 %f2, %f1; st.global.f32 [%mine], %f2;", 3, in, {3, 1, 1});
  CHECK(kept[0] == 0x00800000);
  CHECK(kept[1] > 0x00400000);
  CHECK(kept[2] == 0x00400000);
}

TEST_CASE("forms: approximate f32 functions over all exponents") {
  const auto one = [](const std::string& name) {
    INFO(name);
    const std::uint32_t points = 1 << 18;
    CHECK(sweep(name, 0, 0x80000000u / points, points, unary) == "");  // positive
    CHECK(sweep(name, 0x80000000u, 0x80000000u / points * 16, points / 16, unary) ==
          "");  // negative
  };
  for (const char* name : {"ex2.approx.ftz.f32", "lg2.approx.f32", "rcp.approx.ftz.f32",
                           "rcp.approx.f32", "sqrt.approx.f32", "rsqrt.approx.ftz.f32",
                           "sin.approx.f32", "cos.approx.f32", "tanh.approx.f32"})
    one(name);
  // Where the absolute bound of lg2 holds, and where ex2 becomes subnormal and infinite.
  CHECK(sweep("lg2.approx.ftz.f32", 0x3f000001, 61, 1 << 18, unary) == "");
  CHECK(sweep("ex2.approx.f32", 0xc2f80000, 17, 1 << 17, unary) == "");
  CHECK(sweep("ex2.approx.ftz.f32", 0xc2f80000, 17, 1 << 17, unary) == "");
  CHECK(sweep("ex2.approx.ftz.f32", 0x42f80000, 17, 1 << 17, unary) == "");
}

TEST_CASE("forms: div.approx and div.full") {
  Batch batch;
  const auto divide = [](const Words& w, const In& in) {
    const long double a = value_of(soft::kF32, w.ftz() ? soft::flush(soft::kF32, in.a) : in.a);
    const long double b = value_of(soft::kF32, w.ftz() ? soft::flush(soft::kF32, in.b) : in.b);
    const bool negative = (in.a ^ in.b) >> 31, approximate = w.has("approx");
    if (std::isnan(a) || std::isnan(b) || (a == 0 && b == 0)) return Want::nan();
    if (std::isinf(b)) return std::isinf(a) ? Want::nan() : zero(negative);
    if (approximate && std::fabs(b) > 0x1p126L) return std::isinf(a) ? Want::nan() : zero(negative);
    if (b == 0 || std::isinf(a)) return infinite(negative);
    if (a == 0) return zero(negative);
    if (approximate && std::fabs(b) < 0x1p-126L) return Want::any();  // no bound stated
    return within(w, a / b, 2 * ulp(a / b));
  };
  batch.add("div{.approx,.full}{,.ftz}.f32", "f32 = f32 f32", divide, {.count = 8192});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: rcp and rsqrt of double precision, approximately") {
  Batch batch;
  // PTX ISA: only the upper words of operand and result count; NaN is 0x7fffffff00000000.
  const auto high_words = [](const Words& w, const In& in) {
    const u64 a = in.a & 0xffffffff00000000;
    const bool negative = a >> 63, root = w.parts[0] == "rsqrt";
    const long double x = value_of(soft::kF64, soft::flush(soft::kF64, a));
    if (std::isnan(x) || (root && x < 0)) return Want(0x7fffffff00000000);
    if (x == 0) return Want(negative ? 0xfff0000000000000 : 0x7ff0000000000000);
    if (std::isinf(x)) return Want(negative ? u64{1} << 63 : 0);
    const long double exact = root ? 1 / std::sqrt(x) : 1 / x;
    if (std::fabs(exact) < 0x1p-1022L) return Want(negative ? u64{1} << 63 : 0);
    return Want::between(exact - std::fabs(exact) * 0x1p-19L, exact + std::fabs(exact) * 0x1p-19L);
  };
  batch.add("{rcp,rsqrt}.approx.ftz.f64", "f64 = f64", high_words, {.count = 4096});
  // The lower word of the result is zero.
  batch.add("{rcp,rsqrt}.approx.ftz.f64", "b32 = f64",
            [](const Words&, const In&) { return Want(0); },
            {.body = ".reg .f64 %x; .reg .b32 %y; $name %x, $a; $g mov.b64 {$d, %y}, %x;"});
  // No bound is stated for rsqrt.approx.f64: what libm's functions are held to.
  batch.add("rsqrt.approx.f64", "f64 = f64",
            [](const Words&, const In& in) {
              const long double x = value_of(soft::kF64, in.a);
              if (x == 0) return Want(in.a | 0x7ff0000000000000);
              if (std::isnan(x) || x < 0) return Want::nan();
              if (std::isinf(x)) return Want(0);
              return Want::between((1 - 0x1p-51L) / std::sqrt(x), (1 + 0x1p-51L) / std::sqrt(x));
            },
            {.count = 4096});
  CHECK(batch.run() == "");
}

TEST_CASE("forms: tanh and ex2 of half precision, all operands") {
  Batch batch;
  const auto host = [](const Words& w, const In& in) {
    const soft::Format& f = format_of(w.last());
    const bool brain = w.last()[0] == 'b', negative = in.a & f.sign_bit();
    const long double x = value_of(f, w.ftz() ? soft::flush(f, in.a) : in.a);
    const u64 one = static_cast<u64>(f.bias()) << f.mantissa_bits;
    if (std::isnan(x)) return Want::nan();
    if (w.parts[0] == "tanh") {
      if (x == 0) return Want(in.a);
      if (std::isinf(x)) return Want(one | (negative ? f.sign_bit() : 0));
      return within(w, std::tanh(x), std::exp2(brain ? -8.0L : -10.987L));
    }
    if (std::isinf(x)) return Want(negative ? 0 : f.infinity());
    if (x == 0) return Want(one);
    const long double exact = std::exp2(x), smallest = std::ldexp(1.0L, f.lowest_exponent());
    return within(w, exact, std::max(exact * std::exp2(brain ? -7.0L : -9.9L), smallest / 2));
  };
  const Inputs all = [](In& in, std::size_t i, auto&) { in.a = i | (~i & 0xffff) << 16; };
  for (const std::string t : {"f16", "bf16", "f16x2", "bf16x2"}) {
    batch.add("tanh.approx." + t, t + " = " + t, host, {.inputs = all, .count = 65536});
    batch.add((t[0] == 'b' ? "ex2.approx.ftz." : "ex2.approx.") + t, t + " = " + t, host,
              {.inputs = all, .count = 65536});
  }
  CHECK(batch.run() == "");
}
