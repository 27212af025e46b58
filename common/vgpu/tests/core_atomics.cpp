// atom and red: every operation, type, space and spelling; contention; wrap-around; b128.
#include <algorithm>
#include <bit>
#include <random>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

using u128 = unsigned __int128;

// What one atomic leaves behind, from the ISA manual. Values as integers of `bits`.
u128 apply(const std::string& op, const std::string& type, u128 old, u128 b, u128 c) {
  const int bits = std::stoi(type.substr(type.find_first_of("0123456789")));
  const u128 mask = bits == 128 ? ~u128{0} : (u128{1} << bits) - 1;
  auto as_signed = [&](u128 v) {
    return bits == 32 ? static_cast<std::int64_t>(static_cast<std::int32_t>(v))
                      : static_cast<std::int64_t>(v);
  };
  const bool less = type[0] == 's' ? as_signed(b) < as_signed(old) : b < old;
  if (op == "add") return (old + b) & mask;
  if (op == "min") return less ? b : old;
  if (op == "max") return less ? old : b;
  if (op == "inc") return old >= b ? 0 : old + 1;
  if (op == "dec") return old == 0 || old > b ? b : old - 1;
  if (op == "and") return old & b;
  if (op == "or") return old | b;
  if (op == "xor") return old ^ b;
  if (op == "exch") return b;
  return old == b ? c : old;  // cas
}

struct Case {
  std::string op, type;
};
std::vector<Case> integer_cases() {
  std::vector<Case> cases;
  for (const char* op : {"add", "min", "max"})
    for (const char* type : {"u32", "s32", "u64", "s64"}) cases.push_back({op, type});
  for (const char* op : {"inc", "dec"}) cases.push_back({op, "u32"});
  for (const char* op : {"and", "or", "xor"})
    for (const char* type : {"b32", "b64"}) cases.push_back({op, type});
  for (const char* type : {"b32", "b64", "b128", "u32", "u64", "s32", "s64"})
    cases.push_back({"exch", type});
  for (const char* type : {"b16", "b32", "b64", "b128", "u32", "u64", "s32", "s64"})
    cases.push_back({"cas", type});
  return cases;
}

// Interesting operands: borders, equal ones, and what is random.
std::vector<u128> operands(std::uint32_t seed, int bits) {
  std::mt19937_64 random(seed);
  const std::uint64_t borders[] = {
      0, 1, 2, 0x7fffffffffffffff, 0x8000000000000000, ~0ull, 0x7fffffff, 0x80000000, 0xffffffff,
      5, 5, 6};
  std::vector<u128> values;
  for (int i = 0; i < 32; ++i) {
    u128 v = i < 12 ? borders[(i * 5 + seed) % 12] : random();
    if (bits == 128) v |= u128{i % 3 ? random() : 0} << 64;
    values.push_back(bits == 128 ? v : v & ((u128{1} << bits) - 1));
  }
  return values;
}
std::string reg(int bits, int i) {
  return (bits == 16 ? "%h" : bits == 32 ? "%r" : bits == 64 ? "%rd" : "%q") + std::to_string(i);
}

// Runs `dotted` once per lane on a cell of its own: old[lane] and after[lane].
// cells: 16 bytes each at `in`; b, c: 16 bytes each behind them. Spaces: global, shared, "" (generic).
void check(Gpu& gpu, const Case& what, const std::string& dotted, bool is_red,
           const std::string& space, std::uint32_t seed, const std::string& hint = "") {
  const int bits = std::stoi(what.type.substr(what.type.find_first_of("0123456789")));
  const auto olds = operands(seed, bits), bs = operands(seed + 1, bits),
             cs = operands(seed + 2, bits);
  std::vector<u128> in = olds;
  std::vector<u128> b_used = bs;
  if (what.op == "cas")
    for (int i = 0; i < 32; i += 2) b_used[i] = olds[i];  // every second one succeeds
  in.insert(in.end(), b_used.begin(), b_used.end());
  in.insert(in.end(), cs.begin(), cs.end());
  const auto input = gpu.array(in);
  const auto out = gpu.array<u128>(64, 0);
  const std::string width = "b" + std::to_string(bits);
  std::string body =
      "mul.wide.u32 %rd1, %lane, 16; add.u64 %rd2, %rd1, %in; add.u64 %rd3, %rd1, %out;\n";
  body += "ld.global." + width + " " + reg(bits, bits == 128 ? 5 : 15) +
          ", [%rd2+512]; ld.global." + width + " " + reg(bits, bits == 128 ? 6 : 16) +
          ", [%rd2+1024];\n";
  std::string address = "%rd2";
  const bool shared = space.starts_with("shared") || space == "generic shared";
  if (shared) {
    body +=
        ".shared .align 16 .b8 s[512]; mov.u64 %rd10, s; add.u64 %rd10, %rd10, %rd1; "
        "ld.global.b128 %q7, [%rd2]; st.shared.b128 [%rd10], %q7;\n";
    if (space == "generic shared") body += "cvta.shared.u64 %rd10, %rd10;\n";
    address = "%rd10";
  }
  body += dotted + " " + (is_red ? "" : reg(bits, bits == 128 ? 4 : 14) + ", ") + "[" + address +
          "], " + reg(bits, bits == 128 ? 5 : 15) +
          (what.op == "cas" ? ", " + reg(bits, bits == 128 ? 6 : 16) : "") + hint + ";\n";
  if (!is_red) body += "st.global." + width + " [%rd3], " + reg(bits, bits == 128 ? 4 : 14) + ";\n";
  body += (space == "generic shared" || !shared ? "ld." : "ld.shared.") + width + " " +
          reg(bits, bits == 128 ? 3 : 13) + ", [" + address + "]; st.global." + width +
          " [%rd3+512], " + reg(bits, bits == 128 ? 3 : 13) + ";\n";
  const LaunchOutcome outcome = gpu.launch(kernel(body), {out.address(), input.address()});
  INFO(dotted);
  REQUIRE(outcome.fault.message == "");
  std::vector<u128> want(64, 0);
  for (int i = 0; i < 32; ++i) {
    if (!is_red) want[i] = olds[i];
    want[32 + i] = apply(what.op, what.type, olds[i], b_used[i], cs[i]);
  }
  CHECK_SAME(out.values(), want);
  gpu.machine.memory().release(out.address());
  gpu.machine.memory().release(input.address());
}

}  // namespace

TEST_CASE("atomics: every integer operation, type and space; atom and red") {
  Gpu gpu;
  std::uint32_t seed = 1;
  for (const Case& what : integer_cases())
    for (const std::string space : {"global", "shared", "shared::cta", "", "generic shared"}) {
      const std::string s = space.empty() || space == "generic shared" ? "" : "." + space;
      check(gpu, what, "atom" + s + "." + what.op + "." + what.type, false, space, ++seed);
      if (what.op != "exch" && what.op != "cas")
        check(gpu, what, "red" + s + "." + what.op + "." + what.type, true, space, ++seed);
    }
}

TEST_CASE("atomics: order and scope in both spellings, and cache policies") {
  Gpu gpu;
  std::uint32_t seed = 100;
  const std::string sems[] = {".relaxed", ".acquire", ".release", ".acq_rel"},
                    scopes[] = {".cta", ".cluster", ".gpu", ".sys"};
  for (const Case& what : integer_cases()) {
    const std::string tail = "." + what.op + "." + what.type;
    for (int i = 0; i < 4; ++i) {
      check(gpu, what, "atom" + sems[i] + scopes[i] + ".global" + tail, false, "global", ++seed);
      check(gpu, what, "atom" + sems[i] + tail, false, "", ++seed);
      check(gpu, what, "atom.global" + scopes[i] + tail, false, "global",
            ++seed);  // as nvcc orders them
      check(gpu, what, "atom" + scopes[3 - i] + ".shared" + tail, false, "shared", ++seed);
      if (what.op != "exch" && what.op != "cas") {
        check(gpu, what, "red" + sems[i] + scopes[i] + ".global" + tail, true, "global", ++seed);
        check(gpu, what, "red" + scopes[i] + ".shared::cta" + tail, true, "shared", ++seed);
      }
      // The order behind the operation. (exch and cas only as bits.)
      if ((what.op == "exch" || what.op == "cas") && what.type[0] != 'b') continue;
      for (const std::string space : {".global", ".shared", ".shared::cta", ""})
        for (const std::string& sem : {sems[i], std::string()}) {
          const std::string rest = what.op + sem + scopes[(i + 1) % 4] + space + "." + what.type,
                            where = space.empty() ? "" : space.substr(1);
          check(gpu, what, "atom." + rest, false, where, ++seed);
          if (what.op != "exch" && what.op != "cas")
            check(gpu, what, "red." + rest, true, where, ++seed);
        }
    }
    const std::string hint = ", %rd30";
    check(gpu, what, "atom.global." + what.op + ".L2::cache_hint." + what.type, false, "global",
          ++seed, hint);
    if (what.op != "exch" && what.op != "cas")
      check(gpu, what, "red.global." + what.op + ".L2::cache_hint." + what.type, true, "global",
            ++seed, hint);
  }
}

TEST_CASE("atomics: all lanes on one place: each sees its own step") {
  Gpu gpu;
  // 64 threads of 3 blocks; the old values are a permutation of 0 .. 191.
  const auto out = gpu.array<std::uint32_t>(193, 0);
  for (const char* body :
       {"atom.global.add.u32 %r1, [%out+768], 1;", "atom.add.u32 %r1, [%out+768], 1;",
        "atom.global.inc.u32 %r1, [%out+768], 1000;"}) {
    out[192] = 0;
    REQUIRE(gpu.launch(kernel(std::string(body) + "st.global.u32 [%mine], %r1;"),
                       {out.address(), out.address()}, {64, 1, 1}, {3, 1, 1})
                .fault.message == "");
    CHECK(out[192] == 192);
    auto seen = out.values();
    seen.pop_back();
    std::sort(seen.begin(), seen.end());
    CHECK_SAME(seen, expected(192, [](auto i) { return i; }));
  }
  // inc and dec go round.
  out[192] = 5;
  REQUIRE(gpu.launch(kernel("atom.global.inc.u32 %r1, [%out+768], 6; st.global.u32 [%mine], %r1;"),
                     {out.address(), out.address()}, {20, 1, 1})
              .fault.message == "");
  CHECK_SAME(std::vector(out.data(), out.data() + 20),
             expected(20, [](auto i) { return (i + 5) % 7; }));
  out[192] = 2;
  REQUIRE(gpu.launch(kernel("atom.global.dec.u32 %r1, [%out+768], 6; st.global.u32 [%mine], %r1;"),
                     {out.address(), out.address()}, {20, 1, 1})
              .fault.message == "");
  CHECK_SAME(std::vector(out.data(), out.data() + 20),
             expected(20, [](auto i) { return (2 + 7 * 20 - i) % 7; }));
}

TEST_CASE("atomics: blocks on several host threads") {
  Gpu gpu({.threads = 2});
  const auto out = gpu.array<std::uint32_t>(4, 0);
  REQUIRE(gpu.launch(kernel(R"(
    red.global.add.u32 [%out], 1; red.global.max.u32 [%out+4], %number; red.global.xor.b32 [%out+8], %number; red.global.or.b32 [%out+12], %thread;)"),
                     {out.address(), out.address()}, {256, 1, 1}, {500, 1, 1})
              .fault.message == "");
  CHECK(out[0] == 128000);
  CHECK(out[1] == 127999);
  std::uint32_t all = 0;
  for (std::uint32_t i = 0; i < 128000; ++i) all ^= i;
  CHECK(out[2] == all);
  CHECK(out[3] == 255);
}

TEST_CASE("atomics: fp32 and fp64 addition") {
  Gpu gpu;
  for (const std::string space : {".global", "", ".shared", ".shared::cta"})
    for (const bool red : {false, true})
      for (const char* order : {"", ".relaxed.gpu", ".release.cta"}) {
        const std::string s = space.starts_with(".shared") ? "[s]" : "[%in]";
        const std::string head = (red ? "red" : "atom") + std::string(order) + space + ".add.";
        std::string body =
            ".shared .align 8 .b8 s[8]; mov.b64 %rd1, 0; st.shared.b64 [s], %rd1; st.global.b64 "
            "[%in], %rd1; bar.sync 0; cvt.rn.f32.u32 %f1, %lane; cvt.rn.f64.u32 %fd1, %lane;\n";
        body +=
            head + "f32 " + (red ? "" : "%f2, ") + s + ", %f1;\n" +
            (space.starts_with(".shared") ? "ld.shared.f32 %f3, [s];"
                                          : "ld.global.f32 %f3, [%in];") +
            "st.global.f32 [%mine], %f3; st.shared.b64 [s], %rd1; st.global.b64 [%in], %rd1;\n" +
            head + "f64 " + (red ? "" : "%fd2, ") + s + ", %fd1;\n" +
            (space.starts_with(".shared") ? "ld.shared.f64 %fd3, [s];"
                                          : "ld.global.f64 %fd3, [%in];") +
            "cvt.rn.f32.f64 %f4, %fd3; st.global.f32 [%mine+128], %f4;";
        INFO(head);
        CHECK_SAME(gpu.run(body, 64, {0, 0}),
                   std::vector<std::uint32_t>(64, std::bit_cast<std::uint32_t>(496.0f)));
      }
  // In the other spelling and with a policy.
  CHECK_SAME(
      gpu.run(
          R"(mov.u32 %r1, 0x3f800000; mov.b64 %rd9, 0x3ff0000000000000; mov.b64 %rd8, 0; st.global.b64 [%out+8], %rd8; st.global.b64 [%out], %rd8;
    atom.add.relaxed.gpu.global.f32 %f1, [%out], 0f3F800000; atom.add.acq_rel.sys.f32 %f1, [%out], 0f3F800000;
    atom.global.add.L2::cache_hint.f32 %f1, [%out], 0f3F800000, %rd5; red.global.add.L2::cache_hint.f32 [%out], 0f3F800000, %rd5;
    atom.add.release.cta.global.f64 %fd1, [%out+8], 0d3FF0000000000000; red.global.add.L2::cache_hint.f64 [%out+8], 0d3FF0000000000000, %rd5;
    .shared .align 8 .b8 s[8]; st.shared.b64 [s], %rd8; bar.sync 0;
    atom.add.acquire.cluster.shared.f32 %f1, [s], 0f3F800000; atom.add.relaxed.cta.shared::cta.f32 %f1, [s], 0f3F800000; ld.shared.u32 %r2, [s]; st.global.u32 [%out+16], %r2;)",
          5, {0}, {1, 1, 1}),
      {0x40800000, 0, 0, 0x40000000, 0x40000000});
}

TEST_CASE(
    "atomics: fp32 addition rounds to nearest even, flushes subnormals in global memory and keeps "
    "them in shared") {
  Gpu gpu;
  // 2^24 + 1 stays; 2^24 + 3 -> 2^24 + 4; subnormals: ISA manual, atom.
  CHECK_SAME(gpu.run(R"(
    .shared .align 4 .b32 s[2];
    mov.b32 %r1, 0x4b800000; st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r1;
    red.global.add.f32 [%out], 1.0; red.global.add.f32 [%out+4], 3.0;
    mov.b32 %r2, 0x00000003; mov.b32 %f1, 0x00000005;
    st.global.u32 [%out+8], %r2; red.global.add.f32 [%out+8], %f1;
    st.global.u32 [%out+12], %r2; red.add.f32 [%out+12], %f1;
    st.shared.u32 [s], %r2; red.shared.add.f32 [s], %f1; ld.shared.u32 %r3, [s]; st.global.u32 [%out+16], %r3;
    mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; red.add.f32 [%rd1], %f1; ld.shared.u32 %r3, [s]; st.global.u32 [%out+20], %r3;
    mov.b32 %r4, 0x7f800000; st.global.u32 [%out+24], %r4; mov.b32 %f2, 0xff800000; red.global.add.f32 [%out+24], %f2;
    mov.b32 %r5, 0x80000001; st.global.u32 [%out+28], %r5; mov.b32 %f3, 0x80000000; red.global.add.f32 [%out+28], %f3;)",
                     8, {0}, {1, 1, 1}),
             {0x4b800000, 0x4b800002, 0, 0, 8, 13, 0x7fffffff, 0x80000000});
}

TEST_CASE(
    "atomics: a sum of fp32 that is subnormal is flushed in global memory and kept in shared") {
  Gpu gpu;
  // (2^-126 + 2^-149) - 2^-126 = 2^-149, and the negative of it.
  CHECK_SAME(gpu.run(R"(
    .shared .align 4 .b32 s[2];
    mov.b32 %r1, 0x00800001; mov.b32 %f1, 0x80800000; mov.b32 %r2, 0x80800001; mov.b32 %f2, 0x00800000;
    st.global.u32 [%out], %r1; red.global.add.f32 [%out], %f1;
    st.global.u32 [%out+4], %r2; atom.global.add.f32 %f3, [%out+4], %f2; st.global.f32 [%out+8], %f3;
    st.global.u32 [%out+12], %r2; red.add.f32 [%out+12], %f2;
    st.shared.u32 [s], %r1; red.shared.add.f32 [s], %f1; ld.shared.u32 %r3, [s]; st.global.u32 [%out+16], %r3;
    mov.u64 %rd1, s; cvta.shared.u64 %rd1, %rd1; st.shared.u32 [s], %r2; red.add.f32 [%rd1], %f2; ld.shared.u32 %r3, [s]; st.global.u32 [%out+20], %r3;)",
                     6, {0}, {1, 1, 1}),
             {0, 0x80000000, 0x80800001, 0x80000000, 1, 0x80000001});
}

TEST_CASE("atomics: additions of floats with every order and scope") {
  Gpu gpu;
  const std::string sems[] = {".relaxed", ".acquire", ".release", ".acq_rel"},
                    scopes[] = {".cta", ".cluster", ".gpu", ".sys"};
  std::string body =
      ".shared .align 16 .b8 s[16]; mov.b64 %rd8, 0; st.shared.v2.b64 [s], {%rd8, %rd8}; "
      "st.global.b64 [%out], %rd8; st.global.v2.b64 [%out+16], {%rd8, %rd8}; mov.u32 %r9, "
      "0x3c003c00; mov.b32 {%h1, _}, %r9; mov.f32 %f1, 1.0; mov.f64 %fd1, 1.0;\n";
  for (int i = 0; i < 4; ++i) {
    const std::string order = sems[i] + scopes[3 - i];
    body += "atom" + order + ".global.add.f32 %f2, [%out], %f1;\nred" + order +
            ".global.add.f32 [%out], %f1;\n";
    body += "atom" + order + ".add.noftz.f16x2 %r5, [%out+4], %r9;\nred" + order +
            ".global.add.noftz.f16x2 [%out+4], %r9;\n";
    for (const std::string space : {".global", ".shared", ".shared::cta", ""}) {
      const bool shared = space.starts_with(".shared");
      body += "red.add" + order + space + (shared ? ".f32 [s], %f1;\n" : ".f32 [%out+32], %f1;\n");
      body +=
          "red.add" + order + space + (shared ? ".f64 [s+8], %fd1;\n" : ".f64 [%out+40], %fd1;\n");
    }
    body += "red" + order + ".global.add.v2.f32 [%out+16], {%f1, %f1};\nred" + order +
            ".add.v2.f32 [%out+24], {%f1, %f1};\n";
  }
  body +=
      "atom.global.add.noftz.L2::cache_hint.f16 %h2, [%out+4], %h1, "
      "%rd8;\nred.global.add.noftz.L2::cache_hint.f16 [%out+6], %h1, %rd8;\n";
  body +=
      "ld.shared.u32 %r1, [s]; st.global.u32 [%out+48], %r1; ld.shared.b64 %rd1, [s+8]; "
      "st.global.b64 [%out+56], %rd1;\n";
  // 8.0 in fp32; 9.0 in each fp16; 4.0 in each of the vector; 8.0 in fp32 and fp64, global and shared.
  CHECK_SAME(gpu.run(body, 16, {0}, {1, 1, 1}),
             {0x41000000, 0x48804880, 0, 0, 0x40800000, 0x40800000, 0x40800000, 0x40800000,
              0x41000000, 0, 0, 0x40200000, 0x41000000, 0, 0, 0x40200000});
}

TEST_CASE("atomics: fp16 and bf16 addition, single and in pairs; vectors of fp32") {
  Gpu gpu;
  // 1.0 + lane in fp16/bf16 pairs: sums of small integers are exact. 0..31: 496, + 1.
  for (const std::string space : {".global", "", ".shared", ".shared::cta"})
    for (const bool red : {false, true}) {
      const std::string at = space.starts_with(".shared") ? "s" : "%in";
      auto head = [&](const char* type) {
        return (red ? "red" : "atom") + space + ".add.noftz." + type + " " +
               (red                                 ? ""
                : std::string(type).ends_with("x2") ? "%r5, "
                                                    : "%h5, ");
      };
      std::string body =
          ".shared .align 4 .b32 s[4]; mov.u32 %r9, 0x3c003c00; mov.u32 %r8, 0x3f803f80; mov.b32 "
          "{%h1, _}, %r9; mov.b32 {%h2, _}, %r8;\n"
          "st.shared.v4.u32 [s], {0, 0, 0, 0}; st.global.v4.u32 [%in], {0, 0, 0, 0}; bar.sync "
          "0;\n" +
          head("f16x2") + "[" + at + "], %r9;\n" + head("bf16x2") + "[" + at + "+4], %r8;\n" +
          head("f16") + "[" + at + "+8], %h1;\n" + head("bf16") + "[" + at + "+14], %h2;\n" + "ld" +
          (space.starts_with(".shared") ? ".shared" : ".global") +
          ".v4.u32 {%r1, %r2, %r3, %r4}, [" + at +
          "]; st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};";
      INFO(space << red);
      // 32 = 0x5000 in fp16 and 0x4200 in bf16.
      CHECK_SAME(gpu.run(body, 4, {0, 0, 0, 0}), {0x50005000, 0x42004200, 0x00005000, 0x42000000});
    }
  CHECK_SAME(
      gpu.run(R"(
    mov.b64 %rd8, 0; st.global.v2.b64 [%out], {%rd8, %rd8}; st.global.v2.b64 [%out+16], {%rd8, %rd8};
    mov.f32 %f1, 1.0; mov.f32 %f2, 2.0;
    red.global.add.v4.f32 [%out], {%f1, %f2, %f1, 0f00000000}; red.relaxed.gpu.global.add.v2.f32 [%out+16], {%f1, %f2}; red.add.v2.f32 [%out+24], {%f2, %f2};)",
              8),
      {0x42000000, 0x42800000, 0x42000000, 0, 0x42000000, 0x42800000, 0x42800000, 0x42800000});
  // The halves of a pair are told apart.
  CHECK_SAME(
      gpu.run("mov.u32 %r9, 0x40003c00; mov.u32 %r8, 0x40003f80;\n"
              "red.global.add.noftz.f16x2 [%out], %r9; red.global.add.noftz.bf16x2 [%out+4], %r8;",
              2),
      {0x54005000, 0x42804200});
}

TEST_CASE("atomics: whose result is used in a function put the blocks in order, too") {
  Gpu gpu({.threads = 4});
  const std::string function = R"(.global .u32 counter;
.func (.param .b32 result) take() { .reg .b32 %r1; atom.global.add.u32 %r1, [counter], 1; st.param.b32 [result], %r1; }
)";
  CHECK_SAME(gpu.run("{ .param .b32 x; call (x), take, (); ld.param.b32 %r1, [x]; st.global.u32 "
                     "[%mine], %r1; }",
                     200, {0}, {1, 1, 1}, {200, 1, 1}, function),
             expected(200, [](auto i) { return i; }));
  CHECK(gpu.outcome.counters.host_threads == 1);
}
