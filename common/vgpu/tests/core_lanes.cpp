// Lanes of a warp (shfl, vote, match, redux, elect) and threads of a block (barriers, fences).
#include <algorithm>
#include <bit>
#include <random>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// What __shfl_*_sync says, in the words of the CUDA programming guide: the warp is cut into groups
// of `width` lanes. Lane that `lane` reads from, and whether it lies inside.
int source_lane(const std::string& mode, int lane, int amount, int width, bool& inside) {
  const int group = lane / width * width, in_group = lane % width;
  int from = lane;
  if (mode == "up") inside = in_group >= amount, from = lane - amount;
  if (mode == "down") inside = in_group + amount < width, from = lane + amount;
  if (mode == "bfly")
    from = lane ^ amount, inside = from < group + width;  // earlier groups may be read
  if (mode == "idx") from = group + amount % width, inside = true;
  return inside ? from : lane;
}

std::vector<std::uint32_t> random_words(std::size_t n, std::uint32_t seed,
                                        std::uint32_t mask = ~0u) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> words(n);
  for (auto& w : words) w = random() & mask;
  return words;
}
const std::string kLoadOwn =
    "mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in; ld.global.u32 %r1, [%rd1];\n";

}  // namespace

TEST_CASE(
    "lanes: shfl of every mode, width and amount, with and without .sync, with and without "
    "predicate") {
  Gpu gpu;
  const auto in = random_words(32, 1);
  for (const std::string mode : {"up", "down", "bfly", "idx"})
    for (const int width : {1, 2, 4, 8, 16, 32})
      for (const int amount : {0, 1, 2, 3, 5, 8, 15, 16, 17, 31}) {
        if (mode != "idx" && amount >= width && amount != 31)
          continue;  // (31: outside of every group)
        const std::uint32_t c = (32 - width) << 8 | (mode == "up" ? 0 : 31);
        const bool sync = (amount + width) % 2 == 0, immediate = amount % 3 == 0;
        const std::string b = immediate ? std::to_string(amount) : "%r3";
        const auto out = gpu.run(
            kLoadOwn + "mov.u32 %r3, " + std::to_string(amount) + "; mov.u32 %r4, " +
                std::to_string(c) + ";\nshfl." + (sync ? "sync." : "") + mode +
                ".b32 %r2|%p1, %r1, " + b + ", %r4" + (sync ? ", -1" : "") + ";\n" + "shfl.sync." +
                mode + ".b32 %r5, %r1, " + b + ", " + std::to_string(c) + ", 0xffffffff;\n" +
                "selp.u32 %r6, 1, 0, %p1; st.global.u32 [%mine], %r2; st.global.u32 [%mine+128], "
                "%r5; st.global.u32 [%mine+256], %r6;",
            96, in);
        INFO(mode << " width " << width << " amount " << amount);
        CHECK_SAME(out, expected(96, [&](std::uint32_t i) {
                     bool inside = false;
                     const int from =
                         source_lane(mode, static_cast<int>(i % 32), amount, width, inside);
                     return i < 64 ? in[from] : std::uint32_t{inside};
                   }));
      }
}

TEST_CASE(
    "lanes: shfl with an amount of its own in each lane, in a partial warp and under a guard") {
  Gpu gpu;
  const auto in = random_words(32, 2);
  CHECK_SAME(gpu.run(kLoadOwn + "mul.lo.u32 %r2, %lane, 7; shfl.sync.idx.b32 %r3, %r1, %r2, 31, "
                                "-1; st.global.u32 [%mine], %r3;",
                     32, in),
             expected(32, [&](auto i) { return in[i * 7 % 32]; }));
  // 20 threads; the mask names all 32.
  CHECK_SAME(
      gpu.run(kLoadOwn + "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; st.global.u32 [%mine], %r3;", 20,
              in, {20, 1, 1}),
      expected(20, [&](auto i) { return in[i ^ 1]; }));
  // Only the lanes of the mask; those that would read outside of it read something of no meaning.
  CHECK_SAME(
      gpu.run(kLoadOwn + "mov.u32 %r3, 9; setp.lt.u32 %p1, %lane, 8; @%p1 shfl.sync.bfly.b32 %r3, "
                         "%r1, 4, 31, 0xff; st.global.u32 [%mine], %r3;",
              32, in),
      expected(32, [&](auto i) { return i >= 8 ? 9 : in[i ^ 4]; }));
}

TEST_CASE("lanes: votes of all kinds, in both spellings, negated, with partial masks") {
  Gpu gpu;
  for (const std::uint32_t set : {0u, 0xffffffffu, 0x0f0f1234u, 1u, 0x80000000u})
    for (const std::uint32_t members : {0xffffffffu, 0x0000ffffu, 0x80000001u}) {
      // Lanes outside of the mask go elsewhere.
      const std::string m = std::to_string(members);
      std::string body =
          "mov.u32 %r1, " + std::to_string(set) +
          "; shr.u32 %r2, %r1, %lane; and.b32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 1;\n" +
          "mov.u32 %r3, " + m +
          "; shr.u32 %r4, %r3, %lane; and.b32 %r4, %r4, 1; setp.eq.u32 %p2, %r4, 0; mov.u32 %r9, "
          "0; @%p2 bra END;\n";
      for (const char* mode : {"all", "any", "uni"})
        body += std::string("vote.sync.") + mode +
                ".pred %p3, %p1, %r3; selp.u32 %r5, 1, 0, %p3; shl.b32 %r9, %r9, 1; or.b32 %r9, "
                "%r9, %r5;\n" +
                "vote." + mode + ".sync.pred %p3, !%p1, " + m +
                "; selp.u32 %r5, 1, 0, %p3; shl.b32 %r9, %r9, 1; or.b32 %r9, %r9, %r5;\n";
      body +=
          "vote.sync.ballot.b32 %r6, %p1, %r3; vote.ballot.sync.b32 %r7, !%p1, %r3; END: "
          "st.global.u32 [%mine], %r9; st.global.u32 [%mine+128], %r6; st.global.u32 [%mine+256], "
          "%r7;";
      INFO(set << " of " << members);
      CHECK_SAME(gpu.run(body, 96), expected(96, [&](std::uint32_t i) -> std::uint32_t {
                   if (!(members >> i % 32 & 1)) return 0;
                   const std::uint32_t yes = set & members, no = ~set & members;
                   if (i >= 64) return no;
                   if (i >= 32) return yes;
                   const bool uniform = !yes || !no;
                   return (!no) << 5 | (!yes) << 4 | (yes != 0) << 3 | (no != 0) << 2 |
                          uniform << 1 | uniform;
                 }));
    }
}

TEST_CASE("lanes: match.any and match.all of 32 and 64 bits") {
  Gpu gpu;
  for (const std::uint32_t low_bits : {0u, 1u, 7u, 0xffffffffu})
    for (const std::uint32_t members : {0xffffffffu, 0x00ff00ffu}) {
      auto in = random_words(32, 3, low_bits);
      const std::string m = std::to_string(members);
      const std::string body =
          kLoadOwn + "mov.u32 %r3, " + m +
          "; shr.u32 %r4, %r3, %lane; and.b32 %r4, %r4, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra "
          "END;\n" +
          "mov.b64 %rd2, {5, %r1};   // differs in the high half only\n"
          "match.any.sync.b32 %r5, %r1, %r3; match.any.sync.b64 %r6, %rd2, %r3;\n"
          "match.all.sync.b32 %r7|%p3, %r1, %r3; match.all.sync.b64 %r8, %rd2, " +
          m +
          "; match.all.sync.b64 _|%p4, %rd2, %r3;\n"
          "selp.u32 %r9, 1, 0, %p3; selp.u32 %r10, 2, 0, %p4; or.b32 %r9, %r9, %r10;\n"
          "END: st.global.u32 [%mine], %r5; st.global.u32 [%mine+128], %r6; st.global.u32 "
          "[%mine+256], %r7; st.global.u32 [%mine+384], %r8; st.global.u32 [%mine+512], %r9;";
      CHECK_SAME(gpu.run(body, 160, in), expected(160, [&](std::uint32_t i) -> std::uint32_t {
                   const std::uint32_t lane = i % 32;
                   if (!(members >> lane & 1)) return 0;
                   std::uint32_t equal = 0;
                   for (std::uint32_t other = 0; other < 32; ++other)
                     if (members >> other & 1 && in[other] == in[lane]) equal |= 1u << other;
                   const bool all = equal == members;
                   if (i < 64) return equal;
                   return i < 128 ? (all ? members : 0) : all ? 3 : 0;
                 }));
    }
}

TEST_CASE("lanes: redux of each operation and type") {
  Gpu gpu;
  const auto in = random_words(32, 4);
  for (const std::uint32_t members : {0xffffffffu, 0x7ffffffeu, 0x00010000u})
    for (const std::string op : {"add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32",
                                 "and.b32", "or.b32", "xor.b32"}) {
      const std::string body = kLoadOwn + "mov.u32 %r3, " + std::to_string(members) +
                               "; shr.u32 %r4, %r3, %lane; and.b32 %r4, %r4, 1; setp.eq.u32 %p2, "
                               "%r4, 0; @%p2 bra END;\n" +
                               "redux.sync." + op +
                               " %r5, %r1, %r3;\nEND: st.global.u32 [%mine], %r5;";
      std::vector<std::uint32_t> values;
      for (int l = 0; l < 32; ++l)
        if (members >> l & 1) values.push_back(in[l]);
      std::uint32_t want = values[0];
      for (std::size_t k = 1; k < values.size(); ++k) {
        const std::uint32_t v = values[k];
        const bool less = op.ends_with("s32")
                              ? static_cast<std::int32_t>(v) < static_cast<std::int32_t>(want)
                              : v < want;
        if (op.starts_with("add"))
          want += v;
        else if (op.starts_with("min"))
          want = less ? v : want;
        else if (op.starts_with("max"))
          want = less ? want : v;
        else if (op.starts_with("and"))
          want &= v;
        else if (op.starts_with("or"))
          want |= v;
        else
          want ^= v;
      }
      INFO(op << " of " << members);
      CHECK_SAME(gpu.run(body, 32, in),
                 expected(32, [&](auto l) { return members >> l & 1 ? want : 0; }));
    }
}

TEST_CASE("lanes: elect and activemask") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    setp.lt.u32 %p1, %lane, 5; @%p1 bra END;
    elect.sync %r1|%p2, 0xffffffe0; elect.sync _|%p3, 0xffffffe0; activemask.b32 %r2;
    selp.u32 %r3, 100, 0, %p2; selp.u32 %r4, 1000, 0, %p3; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
    setp.eq.u32 %p4, %r2, 0xffffffe0; @!%p4 mov.u32 %r1, 0;
    END: st.global.u32 [%mine], %r1;)"),
             expected(32, [](auto l) { return l < 5    ? 0
                                              : l == 5 ? 1105
                                                       : 5; }));
}

TEST_CASE("lanes: a mask of its own in each half of the warp, in one instruction") {
  Gpu gpu;
  const auto in = random_words(32, 5, 1);
  CHECK_SAME(gpu.run(kLoadOwn + R"(
    setp.lt.u32 %p1, %lane, 16; selp.u32 %r3, 0x0000ffff, 0xffff0000, %p1;
    setp.eq.u32 %p2, %r1, 1;
    vote.sync.ballot.b32 %r4, %p2, %r3; redux.sync.add.u32 %r5, %lane, %r3; elect.sync %r6|%p3, %r3; match.any.sync.b32 %r7, %r1, %r3;
    shfl.sync.bfly.b32 %r8, %lane, 3, 31, %r3;
    st.global.u32 [%mine], %r4; st.global.u32 [%mine+128], %r5; st.global.u32 [%mine+256], %r6; st.global.u32 [%mine+384], %r7; st.global.u32 [%mine+512], %r8;)",
                     160, in),
             expected(160, [&](std::uint32_t i) -> std::uint32_t {
               const std::uint32_t lane = i % 32, half = lane < 16 ? 0xffff : 0xffff0000;
               std::uint32_t ones = 0;
               for (int l = 0; l < 32; ++l) ones |= in[l] << l;
               switch (i / 32) {
                 case 0:
                   return ones & half;
                 case 1:
                   return lane < 16 ? 120 : 120 + 256;
                 case 2:
                   return lane < 16 ? 0 : 16;
                 case 3:
                   return half & (in[lane] ? ones : ~ones);
                 default:
                   return lane ^ 3;
               }
             }));
}

TEST_CASE("lanes: match.all with a mask of its own in each half gives that mask") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    setp.lt.u32 %p1, %lane, 16; selp.u32 %r3, 0x0000ffff, 0xffff0000, %p1; selp.u32 %r1, 5, %lane, %p1;
    match.all.sync.b32 %r4|%p2, %r1, %r3; selp.u32 %r5, 1, 0, %p2; add.u32 %r4, %r4, %r5; st.global.u32 [%mine], %r4;)"),
             expected(32, [](auto lane) { return lane < 16 ? 0x00010000 : 0; }));
}

TEST_CASE("lanes: the carry of lanes that are off stays") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    and.b32 %r1, %lane, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, -1; mov.u32 %r3, 1;
    add.cc.u32 %r4, %r2, %r3;
    @%p1 add.cc.u32 %r5, %r3, %r3;
    addc.u32 %r6, %r3, %r3; st.global.u32 [%mine], %r6;)"),
             expected(32, [](auto lane) { return lane % 2 ? 3 : 2; }));
}

TEST_CASE("lanes: operations of lanes that stand at different places") {
  for (const std::uint64_t seed : {0, 1, 2}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    const auto in = random_words(32, 6);
    // Odd lanes come to the first of each pair, even ones to the second; registers and immediates differ.
    CHECK_SAME(gpu.run(kLoadOwn + R"(
      and.b32 %r2, %lane, 1; setp.eq.u32 %p1, %r2, 1;
      mov.u32 %r20, 0xffffffff; mov.b64 %rd5, {%r2, 3};
      setp.lt.u32 %p9, %r1, 0x80000000;
      @%p1 bra ODD;
      mov.u32 %r3, 1; mov.u32 %r4, 31;
      shfl.sync.bfly.b32 %r10|%p5, %r1, %r3, %r4, %r20;
      vote.sync.ballot.b32 %r11, %p9, %r20;
      vote.sync.any.pred %p6, %p9, 0xffffffff;
      match.any.sync.b64 %r12, %rd5, -1;
      redux.sync.max.u32 %r13, %r1, -1;
      bra END;
ODD:  not.pred %p10, %p9; mov.u32 %r21, %r1; mov.b64 %rd6, {1, 3};
      shfl.sync.bfly.b32 %r10|%p5, %r21, 1, 31, -1;
      vote.sync.ballot.b32 %r11, !%p10, -1;
      vote.sync.any.pred %p6, !%p10, %r20;
      match.any.sync.b64 %r12, %rd6, %r20;
      redux.sync.max.u32 %r13, %r21, %r20;
END:  selp.u32 %r14, 1, 0, %p5; selp.u32 %r15, 2, 0, %p6; or.b32 %r14, %r14, %r15;
      st.global.u32 [%mine], %r10; st.global.u32 [%mine+128], %r11; st.global.u32 [%mine+256], %r12; st.global.u32 [%mine+384], %r13; st.global.u32 [%mine+512], %r14;)",
                       160, in),
               expected(160, [&](std::uint32_t i) -> std::uint32_t {
                 std::uint32_t small = 0;
                 for (int l = 0; l < 32; ++l) small |= std::uint32_t{in[l] < 0x80000000} << l;
                 switch (i / 32) {
                   case 0:
                     return in[i % 32 ^ 1];
                   case 1:
                     return small;
                   case 2:
                     return i & 1 ? 0xaaaaaaaa : 0x55555555;
                   case 3:
                     return *std::max_element(in.begin(), in.end());
                   default:
                     return 3;
                 }
               }));
  }
}

TEST_CASE("lanes: __syncwarp in divergent branches orders what is written before it") {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    // Lanes below 16 write, pass a __syncwarp of their own branch, and read what the other half wrote.
    CHECK_SAME(gpu.run(R"(
      .shared .align 4 .b32 s[32];
      mov.u32 %r1, s; mad.lo.u32 %r2, %lane, 4, %r1; xor.b32 %r3, %lane, 16; mad.lo.u32 %r3, %r3, 4, %r1;
      setp.lt.u32 %p1, %lane, 16;
      @%p1 bra LOW;
      add.u32 %r4, %lane, 500; st.shared.u32 [%r2], %r4;
      bar.warp.sync 0xffffffff;
      ld.shared.u32 %r5, [%r3];
      bra END;
LOW:  add.u32 %r4, %lane, 100; st.shared.u32 [%r2], %r4;
      bar.warp.sync -1;
      ld.shared.u32 %r5, [%r3];
END:  st.global.u32 [%mine], %r5;)"),
               expected(32, [](auto l) { return l < 16 ? l + 516 : l - 16 + 100; }));
  }
}

TEST_CASE("lanes: an operation does not wait for lanes that have ended") {
  for (const std::uint64_t seed : {0, 3}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    CHECK_SAME(gpu.run(R"(
      setp.lt.u32 %p1, %lane, 30;
      @%p1 bra WAIT;
      mov.u32 %r1, 0;
LOOP: add.u32 %r1, %r1, 1; ld.volatile.global.u32 %r3, [%in]; setp.lt.u32 %p2, %r1, 50; @%p2 bra LOOP;
      exit;
WAIT: vote.sync.ballot.b32 %r2, 1, 0xffffffff;
      st.global.u32 [%mine], %r2;)"),
               expected(32, [](auto l) { return l < 30 ? 0x3fffffffu : 0; }));
  }
}

TEST_CASE("lanes: a mask that names nobody, or not the lane itself, does not crash") {
  Gpu gpu;
  CHECK_SAME(
      gpu.run("redux.sync.add.u32 %r1, %lane, 0; elect.sync %r2|%p1, 0; vote.sync.ballot.b32 %r3, "
              "1, 0; match.any.sync.b32 %r4, 5, 0; shfl.sync.idx.b32 %r5, %lane, 3, 31, 0; "
              "st.global.u32 [%mine], %r1; st.global.u32 [%mine+128], %r2; st.global.u32 "
              "[%mine+256], %r3;",
              96),
      expected(96, [](auto i) { return i < 64 ? i % 32 : 1u << i % 32; }));
}

// ---- barriers -----------------------------------------------------------------------------------

TEST_CASE("lanes: barriers of the block, all spellings, with and without a count") {
  for (const std::uint64_t seed : {0, 1, 2}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    for (const char* barrier : {"bar.sync 0;", "bar.cta.sync 3;", "bar.sync 15, 96;",
                                "barrier.sync 1;", "barrier.cta.sync.aligned 2, 96;",
                                "mov.u32 %r20, 5; mov.u32 %r21, 96; barrier.sync %r20, %r21;"}) {
      // Reverses 80 values (2.5 warps) through shared memory, four times.
      INFO(barrier);
      CHECK_SAME(gpu.run(std::string(R"(
        .shared .align 4 .b32 s[80];
        mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 4, %r1; sub.u32 %r3, 79, %thread; mad.lo.u32 %r3, %r3, 4, %r1;
        mul.lo.u32 %r4, %thread, 3; mov.u32 %r9, 0;
LOOP:   st.shared.u32 [%r2], %r4;
        )") + barrier + R"(
        ld.shared.u32 %r4, [%r3]; add.u32 %r4, %r4, %r9;
        )" + barrier + R"(
        add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 4; @%p1 bra LOOP;
        st.global.u32 [%mine], %r4;)",
                         80, {0}, {80, 1, 1}),
                 expected(80, [](auto t) { return 3 * t + 0 + 1 + 2 + 3; }));
    }
  }
}

TEST_CASE("lanes: bar.red counts and combines a predicate over the block") {
  for (const std::uint64_t seed : {0, 1}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    for (const std::string form : {"bar", "bar.cta", "barrier", "barrier.cta"})
      for (const std::string count : {"", ", 64"})
        for (const std::uint32_t below : {0u, 1u, 40u, 64u}) {
          const std::string aligned = form.starts_with("barrier") && below == 40 ? ".aligned" : "";
          INFO(form << count << " " << below);
          CHECK_SAME(gpu.run("setp.lt.u32 %p1, %thread, " + std::to_string(below) + ";\n" + form +
                                 ".red.popc" + aligned + ".u32 %r1, 1" + count + ", %p1;\n" + form +
                                 ".red.popc" + aligned + ".u32 %r2, 1" + count + ", !%p1;\n" +
                                 form + ".red.and" + aligned + ".pred %p2, 0" + count + ", %p1;\n" +
                                 form + ".red.or" + aligned + ".pred %p3, 0" + count + ", %p1;\n" +
                                 "selp.u32 %r3, 1000, 0, %p2; selp.u32 %r4, 10000, 0, %p3; "
                                 "mad.lo.u32 %r1, %r2, 100000, %r1; add.u32 %r1, %r1, %r3; add.u32 "
                                 "%r1, %r1, %r4; st.global.u32 [%mine], %r1;",
                             64, {0}, {64, 1, 1}),
                     std::vector<std::uint32_t>(64, below + (64 - below) * 100000 +
                                                        (below == 64 ? 1000 : 0) +
                                                        (below > 0 ? 10000 : 0)));
        }
  }
}

TEST_CASE("lanes: a producer and a consumer warp with bar.arrive and bar.sync") {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    for (const std::string form : {"bar", "bar.cta", "barrier", "barrier.cta"}) {
      const std::string aligned = form == "barrier" ? ".aligned" : "";
      // Barrier 1: the buffer is full; barrier 2: it is empty. 9 rounds.
      const auto out = gpu.run(R"(
        .shared .align 4 .b32 s[32];
        mov.u32 %r1, s; mad.lo.u32 %r2, %lane, 4, %r1; mov.u32 %r9, 0; mov.u32 %r8, 0;
        setp.ge.u32 %p1, %thread, 32; @%p1 bra CONSUME;
PRODUCE: )" + form + ".sync" + aligned +
                                   R"( 2, 64;
        mad.lo.u32 %r3, %r9, 100, %lane; st.shared.u32 [%r2], %r3;
        )" + form + ".arrive" + aligned +
                                   R"( 1, 64;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 9; @%p2 bra PRODUCE;
        bra END;
CONSUME: )" + form + ".arrive" + aligned +
                                   R"( 2, 64;
        )" + form + ".sync" + aligned +
                                   R"( 1, 64;
        ld.shared.u32 %r4, [%r2]; mad.lo.u32 %r8, %r8, 7, %r4;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 9; @%p2 bra CONSUME;
        st.global.u32 [%mine+-128], %r8;
END:)",
                               32, {0}, {64, 1, 1});
      CHECK_SAME(out, expected(32, [](std::uint32_t l) {
                   std::uint32_t v = 0;
                   for (std::uint32_t i = 0; i < 9; ++i) v = v * 7 + i * 100 + l;
                   return v;
                 }));
    }
  }
}

TEST_CASE("lanes: a barrier does not wait for threads that have ended") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    setp.lt.u32 %p1, %thread, 40; @%p1 exit;
    bar.sync 0;
    st.global.u32 [%mine], 8;)",
                     96, {0}, {96, 1, 1}),
             expected(96, [](auto t) { return t < 40 ? 0 : 8; }));
  // Those that end when the others are there already let them go.
  CHECK_SAME(gpu.run(R"(
    setp.ge.u32 %p1, %thread, 40; @%p1 exit;
    bar.sync 0;
    st.global.u32 [%mine], 8;)",
                     96, {0}, {96, 1, 1}),
             expected(96, [](auto t) { return t < 40 ? 8 : 0; }));
}

TEST_CASE("lanes: the result of bar.red is for the lanes that execute it") {
  Gpu gpu;
  // Even lanes count the even ones into %r1, odd lanes the odd ones into %r2, at one barrier.
  CHECK_SAME(gpu.run(R"(
    mov.u32 %r1, 1000; mov.u32 %r2, 2000; and.b32 %r3, %lane, 1; setp.eq.u32 %p1, %r3, 0; setp.lt.u32 %p2, %thread, 10;
    setp.lt.u32 %p3, %thread, 0; setp.lt.u32 %p4, %thread, 0;
    @%p1 bra EVEN;
    barrier.red.popc.u32 %r2, 0, %p2; barrier.red.or.pred %p4, 0, %p2; bra MEET;
EVEN: barrier.red.popc.u32 %r1, 0, %p2; barrier.red.or.pred %p3, 0, %p2;
MEET: add.u32 %r1, %r1, %r2; selp.u32 %r4, 10000, 0, %p3; selp.u32 %r5, 20000, 0, %p4;
    add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5; st.global.u32 [%mine], %r1;)",
                     64, {0}, {64, 1, 1}),
             expected(64, [](auto t) { return t % 2 ? 1000 + 10 + 20000 : 2000 + 10 + 10000; }));
}

TEST_CASE("lanes: barriers that cannot be are refused") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  auto message = [&](const char* body) {
    const LaunchOutcome outcome = gpu.launch(kernel(body), {out.address(), out.address()});
    CHECK(outcome.fault.kind == FaultKind::illegal_instruction);
    return outcome.fault.message;
  };
  CHECK(message("bar.sync 16;").find("barrier 16 (there are 0 to 15)") != std::string::npos);
  CHECK(message("bar.sync -1;").find("(there are 0 to 15)") != std::string::npos);
  CHECK(message("bar.sync 1, 33;").find("barrier for 33 threads, which is no multiple of 32") !=
        std::string::npos);
  CHECK(message("bar.arrive 1, 0;").find("barrier for 0 threads") != std::string::npos);
  CHECK(message("and.b32 %r1, %lane, 1; barrier.sync %r1;")
            .find("barrier 1 where another thread of the warp has barrier 0") != std::string::npos);
}

TEST_CASE("lanes: fences and hints of order do nothing visible") {
  Gpu gpu;
  std::string body;
  for (const char* level : {"cta", "gl", "sys"}) body += std::string("membar.") + level + ";\n";
  for (const char* scope : {"cta", "cluster", "gpu", "sys"}) {
    for (const char* order : {".sc", ".acq_rel", ".acquire", ".release"})
      body += std::string("fence") + order + "." + scope + ";\n";
    body += std::string("fence.") + scope + ";\n";
  }
  for (const char* what :
       {"acquire.sync_restrict::shared::cluster.cluster",
        "release.sync_restrict::shared::cta.cluster", "mbarrier_init.release.cluster",
        "proxy.alias", "proxy.async", "proxy.async.global", "proxy.async.shared::cta",
        "proxy.async.shared::cluster",
        "proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
        "proxy.async::generic.release.sync_restrict::shared::cta.cluster"})
    body += std::string("fence.") + what + ";\n";
  body +=
      "griddepcontrol.launch_dependents; griddepcontrol.wait; brkpt; pmevent 3; pmevent.mask 5; "
      "nanosleep.u32 10; nanosleep.u32 %lane;\n";
  CHECK_SAME(gpu.run(body + "st.global.u32 [%mine], 3;"), std::vector<std::uint32_t>(32, 3));
}
