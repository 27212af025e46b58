// Bulk copies and reductions from shared to global memory: when they land, what they combine.
#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

const std::string kTile = ".shared .align 16 .b8 tile[1024];\n";
const std::string kStore = "cp.async.bulk.global.shared::cta.bulk_group ";

}  // namespace

TEST_CASE("bulk: global memory changes with the wait, and the source is read no earlier") {
  Gpu gpu;
  // One thread. out: [0] before the wait, [1] behind wait_group.read, [2] behind wait_group.
  const auto got = gpu.run(R"(
mov.u32 %r1, tile; st.shared.u32 [%r1], 5; st.shared.u32 [%r1+16], 6;
cp.async.bulk.global.shared::cta.bulk_group [%in], [%r1], 16;
cp.async.bulk.commit_group;
st.shared.u32 [%r1], 7;                              // too early: this is what goes out
ld.global.u32 %r2, [%in]; st.global.u32 [%out], %r2;
cp.async.bulk.wait_group.read 0;
st.shared.u32 [%r1], 8;                              // early enough
ld.global.u32 %r2, [%in]; st.global.u32 [%out+4], %r2;
cp.async.bulk.wait_group 0;
ld.global.u32 %r2, [%in]; st.global.u32 [%out+8], %r2;)",
                           3, {1, 2, 3, 4}, {1, 1, 1}, {1, 1, 1}, kTile);
  CHECK_SAME(got, std::vector<std::uint32_t>{1, 1, 7});
}

TEST_CASE("bulk: groups are waited for oldest first, and the end of the thread waits for all") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(64, 0);
  const auto outcome = gpu.launch(kernel(R"(
mov.u32 %r1, tile; st.shared.v4.u32 [%r1], {1, 2, 3, 4}; st.shared.v4.u32 [%r1+16], {5, 6, 7, 8};
cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 16;
cp.async.bulk.commit_group;
cp.async.bulk.global.shared::cta.bulk_group [%out+16], [%r1+16], 16;
cp.async.bulk.commit_group;
cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%out+32], [tile], 32, %rd9;   // in no group
cp.async.bulk.wait_group 1;
ld.global.u32 %r2, [%out]; ld.global.u32 %r3, [%out+16]; ld.global.u32 %r4, [%out+32];
st.global.v2.u32 [%out+128], {%r2, %r3}; st.global.u32 [%out+136], %r4;)",
                                         kTile),
                                  {out.address(), out.address()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  auto got = out.values();
  CHECK_SAME(std::vector(got.begin() + 32, got.begin() + 35), {1, 0, 0});
  CHECK_SAME(std::vector(got.begin(), got.begin() + 16),
             {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("bulk: a mask leaves out bytes of each 16") {
  Gpu gpu;
  for (const std::string hint : {"", ".L2::cache_hint"}) {
    const auto out = gpu.array<std::uint8_t>(64, 0xee);
    std::string text = kernel(
        "mov.u32 %r1, tile; mov.u32 %r2, 0x03020100; mov.u32 %r3, 0x07060504; mov.u16 %h1, 0xa5;\n"
        "st.shared.v4.u32 [%r1], {%r2, %r3, %r2, %r3}; st.shared.v4.u32 [%r1+16], {%r3, %r2, %r2, "
        "%r2};\n"
        "cp.async.bulk.global.shared::cta.bulk_group" +
            hint + ".cp_mask [%out], [%r1], 32, " + (hint.empty() ? "" : "%rd9, ") + "%h1;",
        kTile);
    text.replace(text.find("sm_90"), 5, "sm_100a");  // masks are for later targets
    const auto outcome = gpu.launch(text, {out.address(), out.address()}, {1, 1, 1});
    REQUIRE(outcome.fault.message == "");
    std::vector<std::uint8_t> want(64, 0xee);
    for (const int byte : {0, 2, 5, 7}) {  // the bits of 0xa5
      want[static_cast<std::size_t>(byte)] = static_cast<std::uint8_t>(byte);
      want[static_cast<std::size_t>(byte + 16)] = static_cast<std::uint8_t>(byte ^ 4);
    }
    CHECK_SAME(out.values(), want);
  }
}

namespace {

// old and fresh combined, as numbers of T.
template <class T>
T combined(const std::string& op, T old, T b) {
  if (op == "min") return b < old ? b : old;
  if (op == "max") return old < b ? b : old;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    if (op == "add") return static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
    if (op == "inc") return old >= b ? T{0} : static_cast<T>(old + 1);
    if (op == "dec") return old == 0 || old > b ? b : static_cast<T>(old - 1);
    if (op == "and") return old & b;
    if (op == "or") return old | b;
    return old ^ b;
  } else {
    return old + b;
  }
}
// 256 bytes of the tile go from each of 2 threads; the second thread's come on top of the first's.
template <class T, class Encode>
void check_reduction(const std::string& name, const std::string& op, Encode encode,
                     const std::string& hint) {
  using Bits = decltype(encode(T{}));
  constexpr std::size_t n = 256 / sizeof(Bits);
  INFO(name);
  std::mt19937_64 random(n + op.size());
  std::vector<T> old(n), source(n);
  for (auto* list : {&old, &source})
    for (T& v : *list)
      v = std::is_integral_v<T> ? static_cast<T>(random() >> random() % 64)
                                : static_cast<T>(static_cast<int>(random() % 33) - 16);
  Gpu gpu;
  std::vector<Bits> old_bits, source_bits, want;
  for (std::size_t i = 0; i < n; ++i) {
    old_bits.push_back(encode(old[i]));
    source_bits.push_back(encode(source[i]));
    want.push_back(encode(combined(op, combined(op, old[i], source[i]), source[i])));
  }
  const auto out = gpu.array(old_bits), in = gpu.array(source_bits);
  const auto outcome = gpu.launch(kernel(R"(
mov.u32 %r1, tile; shl.b32 %r2, %lane, 3; add.u32 %r3, %r1, %r2; cvt.u64.u32 %rd1, %r2; add.u64 %rd1, %rd1, %in;
ld.global.b64 %rd2, [%rd1]; st.shared.b64 [%r3], %rd2; bar.sync 0;
setp.lt.u32 %p1, %lane, 2; mov.u32 %r4, 256;
@%p1 )" + name + " [%out], [%r1], %r4" + hint +
                                             R"(;
@%p1 cp.async.bulk.commit_group;
@%p1 cp.async.bulk.wait_group 0;)",
                                         kTile),
                                  {out.address(), in.address()});
  REQUIRE(outcome.fault.message == "");
  CHECK_SAME(out.values(), want);
}

// Small integers, exactly.
std::uint16_t half_bits(float v) {
  const auto u = std::bit_cast<std::uint32_t>(v);
  return static_cast<std::uint16_t>(
      v == 0 ? 0 : (u >> 16 & 0x8000) | ((u >> 23 & 255) - 112) << 10 | (u >> 13 & 0x3ff));
}
std::uint16_t brain_bits(float v) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16);
}

}  // namespace

TEST_CASE("bulk: every reduction on every type") {
  for (const std::string policy : {"", ".L2::cache_hint"}) {
    const std::string head = "cp.reduce.async.bulk.global.shared::cta.bulk_group" + policy + ".",
                      hint = policy.empty() ? "" : ", %rd9";
    const auto same = [](auto v) { return v; };
    for (const std::string op : {"add", "min", "max", "inc", "dec"})
      check_reduction<std::uint32_t>(head + op + ".u32", op, same, hint);
    for (const std::string op : {"add", "min", "max"}) {
      check_reduction<std::int32_t>(head + op + ".s32", op, same, hint);
      check_reduction<std::uint64_t>(head + op + ".u64", op, same, hint);
    }
    for (const std::string op : {"min", "max"})
      check_reduction<std::int64_t>(head + op + ".s64", op, same, hint);
    for (const std::string op : {"and", "or", "xor"}) {
      check_reduction<std::uint32_t>(head + op + ".b32", op, same, hint);
      check_reduction<std::uint64_t>(head + op + ".b64", op, same, hint);
    }
    check_reduction<float>(head + "add.f32", "add", same, hint);
    check_reduction<double>(head + "add.f64", "add", same, hint);
    for (const std::string op : {"add.noftz", "min", "max"}) {
      check_reduction<float>(head + op + ".f16", op.substr(0, 3), half_bits, hint);
      check_reduction<float>(head + op + ".bf16", op.substr(0, 3), brain_bits, hint);
    }
  }
}

TEST_CASE("bulk: minimum and maximum of halves know NaN and the sign of zero") {
  Gpu gpu;
  const auto out =
      gpu.array<std::uint16_t>({0x7e00, 0x3c00, 0x8000, 0x0000, 0x7e00, 0xc000, 0xfc00, 0x7c00});
  const auto in =
      gpu.array<std::uint16_t>({0x3c00, 0x7e00, 0x0000, 0x8000, 0x7e00, 0xbc00, 0x7c00, 0xfc00});
  const auto outcome = gpu.launch(
      kernel("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in]; st.shared.v4.u32 [tile], {%r1, %r2, "
             "%r3, %r4};\n"
             "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.f16 [%out], [tile], 16;",
             kTile),
      {out.address(), in.address()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  CHECK_SAME(out.values(), {0x3c00, 0x3c00, 0x0000, 0x0000, 0x7fff, 0xbc00, 0x7c00, 0x7c00});
}

TEST_CASE(
    "bulk: loads with a policy, and prefetches, which only look whether the bytes are there") {
  Gpu gpu;
  const auto got = gpu.run(R"(
.shared .align 8 .b64 object; mov.u32 %r1, tile; mov.u32 %r2, object;
mbarrier.init.shared.b64 [%r2], 1;
cp.async.bulk.prefetch.L2.global [%in], 16; cp.async.bulk.prefetch.L2.global.L2::cache_hint [%in], 16, %rd9;
mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%in], 16, [%r2], %rd9;
wait: mbarrier.try_wait.shared.b64 %p1, [%r2], %rd1; @!%p1 bra wait;
ld.shared.u32 %r3, [%r1+8]; st.global.u32 [%out], %r3;)",
                           1, {1, 2, 3, 4}, {1, 1, 1}, {1, 1, 1}, kTile);
  CHECK_SAME(got, std::vector<std::uint32_t>{3});
}

TEST_CASE("bulk: sizes, addresses and bounds are looked at") {
  Gpu gpu;
  const auto message = [&](const std::string& body) {
    const auto out = gpu.array<std::uint32_t>(32);
    return gpu
        .launch(kernel("mov.u32 %r1, tile;\n" + body, kTile), {out.address(), out.address()},
                {1, 1, 1})
        .fault.message;
  };
  CHECK(message(kStore + "[%out], [%r1], 24;")
            .find("bulk copy of 24 bytes: size and addresses must be multiples of 16") !=
        std::string::npos);
  CHECK(message(kStore + "[%out+8], [%r1], 16;").find("multiples of 16") != std::string::npos);
  CHECK(message(kStore + "[%out], [%r1+4], 16;").find("multiples of 16") != std::string::npos);
  CHECK(message(kStore + "[%out], [%r1], 144;").find("out-of-bounds write of 144 bytes") !=
        std::string::npos);
  CHECK(message(kStore + "[%out], [%r1+1008], 32;").find("out-of-bounds read of 32 bytes") !=
        std::string::npos);
  CHECK(message("cp.async.bulk.prefetch.L2.global [%out], 144;")
            .find("out-of-bounds read of 144 bytes") != std::string::npos);
  CHECK(message(kStore + "[%out], [%r1], 128;") == "");
}

TEST_CASE("bulk: counted as the copy engine's, and not as anybody's requests") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(512);
  // Stored: 1024 bytes, 32 sectors; added: 48 bytes from byte 16 of a sector on, which touch 2; loaded:
  // 32 bytes from byte 16 on, 2. In all 34 sectors are written, and of these 4 read.
  const auto outcome = gpu.launch(kernel(R"(
.shared .align 8 .b64 object; mov.u32 %r2, object; mbarrier.init.shared.b64 [%r2], 1;
cp.async.bulk.global.shared::cta.bulk_group [%out], [tile], 1024;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out+1040], [tile], 48;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r2], 32;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%out+16], 32, [%r2];
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%out], 0, [%r2];
wait: mbarrier.try_wait.shared.b64 %p1, [%r2], %rd1; @!%p1 bra wait;)",
                                         kTile),
                                  {out.address(), out.address()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const auto numbers = [](const BulkCounters& c) {
    return std::array{c.copies, c.bytes, c.l2_sectors};
  };
  using Numbers = std::array<std::uint64_t, 3>;
  CHECK(numbers(counters_of(outcome, "cp.async.bulk.global").bulk) == Numbers{1, 1024, 32});
  CHECK(numbers(counters_of(outcome, "cp.reduce").bulk) == Numbers{1, 48, 2});
  CHECK(numbers(counters_of(outcome, "cp.async.bulk.shared").bulk) == Numbers{1, 32, 2});
  REQUIRE(outcome.counters.allocations.size() == 1);
  const AllocationReport& a = outcome.counters.allocations[0];
  CHECK(numbers(a.bulk[0]) == Numbers{1, 32, 2});
  CHECK(numbers(a.bulk[1]) == Numbers{1, 1024, 32});
  CHECK(numbers(a.bulk[2]) == Numbers{1, 48, 2});
  CHECK(a.sectors_written == 34);
  CHECK(a.sectors_read == 4);
  double l1 = 0, shared = 0, mbarriers = 0;
  for (const InstrReport& r : outcome.counters.instructions) {
    CHECK(r.global.requests == 0);
    if (r.ptx.find("cp.") != std::string::npos) CHECK(r.shared.requests == 0);
    mbarriers += static_cast<double>(r.shared.wavefronts);
  }
  for (const double clocks : outcome.counters.l1_clocks_by_sm) l1 += clocks;
  for (const double clocks : outcome.counters.shared_clocks_by_sm) shared += clocks;
  CHECK(l1 == 0);
  CHECK(shared == mbarriers);
}

TEST_CASE("bulk: the checks see a tile that is refilled too early") {
  const auto body = [](bool waits) {
    return std::string(R"(
.loc 1 3 0
shl.b32 %r1, %thread, 2; mov.u32 %r2, s; add.u32 %r1, %r1, %r2;
setp.ne.u32 %p1, %thread, 0;
#4:st.shared.u32 [%r1], 1;
fence.proxy.async.shared::cta;
bar.sync 0;
@%p1 bra filled;
#5:cp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 256;
cp.async.bulk.commit_group;
)") + (waits ? "#6:cp.async.bulk.wait_group.read 0;\n" : "") +
           R"(
filled:
bar.sync 0;
#7:st.shared.u32 [%r1], 2;
@!%p1 cp.async.bulk.wait_group 0;
)";
  };
  check_silent(body(true));
  Checked c(race_only());
  const auto findings = c.run(body(false));
  INFO(findings);
  REQUIRE(findings.size() == 1);
  for (const std::string& finding : findings) {
    CHECK(finding.find("s.cu:5") != std::string::npos);
    CHECK(finding.find("s.cu:7") != std::string::npos);
  }
}

TEST_CASE("bulk: nobody wrote the tile") {
  Checked c(init_only());
  CHECK(c.run("#4:" + kStore + "[%out], [s], 16;", {1, 1, 1}).size() == 1);
}
