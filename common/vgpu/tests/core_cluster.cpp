// Clusters: registers, addresses of other blocks' shared memory, the barrier, and what goes wrong.
#include <algorithm>
#include <bit>
#include <iterator>

#include "core_cluster_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("cluster: registers say where a block is in its cluster, and the cluster in the grid") {
  const Dim3 grid{4, 6, 2}, size{2, 3, 1};
  const char* names[] = {"ctaid.x",
                         "ctaid.y",
                         "ctaid.z",
                         "clusterid.x",
                         "clusterid.y",
                         "clusterid.z",
                         "nclusterid.x",
                         "nclusterid.y",
                         "nclusterid.z",
                         "cluster_ctaid.x",
                         "cluster_ctaid.y",
                         "cluster_ctaid.z",
                         "cluster_nctaid.x",
                         "cluster_nctaid.y",
                         "cluster_nctaid.z",
                         "cluster_ctarank",
                         "cluster_nctarank",
                         "nctaid.x",
                         "smid"};
  constexpr int kNames = std::size(names) + 1;
  std::string body = R"(mov.u32 %r1, %ctaid.z; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.x;
mad.lo.u32 %r1, %r1, 6, %r2; mad.lo.u32 %r1, %r1, 4, %r3; mul.wide.u32 %rd1, %r1, )" +
                     std::to_string(4 * kNames) +
                     ";\nadd.u64 %rd1, %rd1, %out; mov.pred %p1, %is_explicit_cluster; selp.u32 "
                     "%r9, 1, 0, %p1; st.global.u32 [%rd1], %r9;\n";
  for (int i = 1; i < kNames; ++i)
    body += std::string("mov.u32 %r9, %") + names[i - 1] + "; st.global.u32 [%rd1+" +
            std::to_string(4 * i) + "], %r9;\n";
  for (const std::uint64_t seed : {0, 3}) {
    Clusters gpu(size, {.threads = 2, .schedule_seed = seed});
    CHECK_SAME(gpu.run(body, 48 * kNames, {0}, {1, 1, 1}, grid),
               expected(48 * kNames, [&](std::uint32_t at) -> std::uint32_t {
                 const std::uint32_t b = at / kNames, x = b % 4, y = b / 4 % 6, z = b / 24,
                                     rank = x % 2 + y % 3 * 2;
                 const std::uint32_t cluster = z * 4 + y / 3 * 2 + x / 2;
                 // 132 SMs hold 22 clusters of 6.
                 const std::uint32_t want[] = {
                     1,     x,     y, z, x / 2, y / 3, z,    2, 2, 2,
                     x % 2, y % 3, 0, 2, 3,     1,     rank, 6, 4, cluster % 22 * 6 + rank};
                 return want[at % kNames];
               }));
  }
}

TEST_CASE("cluster: a ring of four blocks; addresses in both widths, with and without the space") {
  Clusters gpu({4, 1, 1}, {.threads = 2});
  // Each thread reads its word of the next block through one of four addresses, and tells its rank.
  const auto got = gpu.run(R"(
mov.u32 %r1, %cluster_ctarank; add.u32 %r2, %r1, 1; and.b32 %r2, %r2, 3;
mad.lo.u32 %r3, %r1, 100, %thread; shl.b32 %r4, %thread, 2; mov.u32 %r5, data;
add.u32 %r5, %r5, %r4; st.shared.u32 [%r5], %r3;
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
cvt.u64.u32 %rd1, %r5; cvta.shared::cluster.u64 %rd2, %rd1;
mapa.shared::cluster.u32 %r6, %r5, %r2;
mapa.shared::cluster.u64 %rd3, %rd1, %r2;
mapa.u64 %rd4, %rd2, %r2;
mapa.u64 %rd5, data, %r2; cvt.u64.u32 %rd6, %r4; add.u64 %rd5, %rd5, %rd6;
ld.shared::cluster.u32 %r10, [%r6]; ld.shared::cluster.u32 %r11, [%rd3]; ld.u32 %r12, [%rd4];
ld.volatile.u32 %r13, [%rd5];
getctarank.shared::cluster.u32 %r20, %r6; getctarank.shared::cluster.u64 %r21, %rd3;
getctarank.u64 %r22, %rd4; getctarank.u64 %r23, %rd2;
sub.u32 %r23, %r23, %r1; mad.lo.u32 %r20, %r20, 10, %r21; mad.lo.u32 %r20, %r20, 10, %r22;
mad.lo.u32 %r20, %r20, 10, %r23;
setp.eq.u32 %p1, %r10, %r11; setp.eq.and.u32 %p1, %r10, %r12, %p1;
setp.eq.and.u32 %p1, %r10, %r13, %p1;
isspacep.shared::cluster %p2, %rd4; isspacep.shared %p3, %rd4; isspacep.shared::cta %p4, %rd2;
isspacep.shared::cluster %p5, %rd2; isspacep.global %p6, %rd4;
mapa.u64 %rd7, %rd2, 4; isspacep.shared::cluster %p7, %rd7;
not.pred %p3, %p3; not.pred %p6, %p6; not.pred %p7, %p7; and.pred %p1, %p1, %p2;
and.pred %p1, %p1, %p3; and.pred %p1, %p1, %p4; and.pred %p1, %p1, %p5; and.pred %p1, %p1, %p6;
and.pred %p1, %p1, %p7;
cvta.to.shared::cluster.u64 %rd8, %rd4; setp.eq.and.u64 %p1, %rd8, %rd3, %p1;
mad.lo.u32 %r10, %r20, 1000, %r10; @!%p1 mov.u32 %r10, 0;
st.global.u32 [%mine], %r10;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;)",
                           8 * 64, {0}, {64, 1, 1}, {8, 1, 1}, kShared);
  CHECK_SAME(got, expected(512, [](std::uint32_t i) {
               const std::uint32_t next = (i / 64 + 1) % 4;
               return (next * 1110) * 1000 + next * 100 + i % 64;
             }));
}

TEST_CASE(
    "cluster: the address of own shared memory has the block's rank, and means the block itself") {
  // What of the address is above a block's 16 MiB, of an own variable: 0 where a cluster is one block.
  const std::string body = R"(
mov.u32 %r1, data; shr.u32 %r2, %r1, 24; mov.u32 %r3, %cluster_ctarank;
st.shared.u32 [%r1], %r3; ld.shared.u32 %r4, [data]; ld.shared::cluster.u32 %r5, [%r1];
cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd1, %rd1; ld.u32 %r6, [%rd1];
isspacep.shared::cta %p1, %rd1; selp.u32 %r7, 1, 0, %p1;
mad.lo.u32 %r2, %r2, 10, %r4; mad.lo.u32 %r2, %r2, 10, %r5; mad.lo.u32 %r2, %r2, 10, %r6;
mad.lo.u32 %r2, %r2, 10, %r7; st.global.u32 [%mine], %r2;
barrier.cluster.arrive; barrier.cluster.wait;)";
  Clusters alone({1, 1, 1}), two({2, 1, 1});
  CHECK_SAME(alone.run(body, 2, {0}, {1, 1, 1}, {2, 1, 1}, kShared),
             expected(2, [](std::uint32_t) -> std::uint32_t { return 1; }));
  CHECK_SAME(two.run(body, 4, {0}, {1, 1, 1}, {4, 1, 1}, kShared),
             expected(4, [](std::uint32_t i) -> std::uint32_t {
               return (i % 2 + 1) * 10000 + i % 2 * 1110 + 1;
             }));
}

TEST_CASE("cluster: every width and order of loads and stores reaches the other block") {
  struct Row {
    std::string store, load;
    std::uint32_t bytes;
  };
  std::vector<Row> rows;
  for (const std::string type : {"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32",
                                 "b64", "u64", "s64", "f64"}) {
    const std::uint32_t bytes = static_cast<std::uint32_t>(std::stoi(type.substr(1))) / 8;
    const std::string reg = type == "f32"   ? "%f1"
                            : type == "f64" ? "%fd1"
                            : bytes == 8    ? "%rd1"
                            : bytes == 4    ? "%r1"
                                            : "%h1";
    rows.push_back({"st.shared::cluster." + type + " [%r6], " + reg,
                    "ld.shared::cluster." + type + " " + reg + ", [%r5]", bytes});
  }
  for (const std::string order : {"volatile", "relaxed.cluster", "relaxed.sys"})
    rows.push_back({"st." + order + ".shared::cluster.u32 [%r6], %r1",
                    "ld." + order + ".shared::cluster.u32 %r1, [%r5]", 4});
  rows.push_back({"st.release.cluster.shared::cluster.u32 [%r6], %r1",
                  "ld.acquire.cluster.shared::cluster.u32 %r1, [%r5]", 4});
  rows.push_back({"st.weak.shared::cluster.v2.u32 [%r6], {%r1, %r2}",
                  "ld.weak.shared::cluster.v2.u32 {%r1, %r2}, [%r5]", 8});
  rows.push_back({"st.relaxed.cluster.shared::cluster.v4.u32 [%r6], {%r1, %r2, %r3, %r4}",
                  "ld.relaxed.cluster.shared::cluster.v4.u32 {%r1, %r2, %r3, %r4}, [%r5]", 16});
  rows.push_back({"st.volatile.shared::cluster.v2.u64 [%r6], {%rd1, %rd2}",
                  "ld.volatile.shared::cluster.v2.u64 {%rd1, %rd2}, [%r5]", 16});
  for (const bool pull : {false, true})  // the data is fetched from the peer, or sent to it
    for (const Row& row : rows) {
      CAPTURE(row.store);
      // Block b's 32 x 16 bytes are 4 words each, (b << 16) + 4 lane + k; bytes [0, n) come from
      // the peer.
      Clusters gpu({2, 1, 1});
      const std::string names[] = {"%r1", "%r2", "%r3", "%r4"};
      std::string body =
          kPeer +
          "shl.b32 %r7, %lane, 4; add.u32 %r92, %r92, %r7; mov.u32 %r8, data; add.u32 %r8, %r8, "
          "%r7; shl.b32 %r9, %r90, 16; shl.b32 %r10, %lane, 2; add.u32 %r9, %r9, %r10;\n";
      for (int k = 0; k < 4; ++k)
        body += "add.u32 %r11, %r9, " + std::to_string(k) + "; st.shared.u32 [%r8+" +
                std::to_string(4 * k) + "], %r11; st.shared.u32 [%r8+" +
                std::to_string(512 + 4 * k) + "], %r11;\n";
      body += kSync + (pull ? "mov.u32 %r5, %r92; add.u32 %r6, %r8, 512;\n"
                            : "mov.u32 %r5, %r8; add.u32 %r6, %r92, 512;\n");
      body += row.load + ";\n" + row.store + ";\n" + kSync +
              "mul.wide.u32 %rd9, %number, 16; add.u64 %rd9, %rd9, %out;\n";
      body +=
          "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r8+512]; st.global.v4.u32 [%rd9], {%r1, %r2, "
          "%r3, %r4};\n";
      const auto got = gpu.run(body, 256, {0}, {32, 1, 1}, {2, 1, 1}, kShared);
      CHECK_SAME(got, expected(256, [&](std::uint32_t i) -> std::uint32_t {
                   const std::uint32_t own = i / 128, word = i % 4, rest = i % 128;
                   const std::uint32_t mine = (own << 16) + rest, its = ((own ^ 1) << 16) + rest;
                   const std::uint32_t from =
                       row.bytes <= word * 4 ? 0 : std::min(4u, row.bytes - word * 4);
                   const std::uint32_t mask = from == 4 ? ~0u : (1u << 8 * from) - 1;
                   return (its & mask) | (mine & ~mask);
                 }));
      const InstrReport remote = counters_of(gpu.outcome, pull ? row.load : row.store);
      CHECK(remote.remote.requests == 2);
      CHECK(remote.remote.bytes == 64 * row.bytes);
      CHECK(remote.shared.requests == 0);
      const InstrReport own = counters_of(gpu.outcome, pull ? row.store : row.load);
      CHECK(own.remote.requests == 0);
      CHECK(own.shared.requests == 2);
    }
}

TEST_CASE("cluster: atomics of every kind on the other block's memory") {
  struct Row {
    std::string text;
    int bytes;
    std::uint64_t before, operand, third, after;
  };
  const auto f = [](float v) { return std::uint64_t{std::bit_cast<std::uint32_t>(v)}; };
  const auto d = [](double v) { return std::bit_cast<std::uint64_t>(v); };
  std::vector<Row> rows = {
      {"atom.shared::cluster.add.u32 %D, [%r92], %A", 4, 5, 7, 0, 12},
      {"atom.relaxed.cluster.shared::cluster.inc.u32 %D, [%r92], %A", 4, 7, 7, 0, 0},
      {"atom.acq_rel.gpu.shared::cluster.or.b32 %D, [%r92], %A", 4, 5, 10, 0, 15},
      {"atom.acquire.cta.shared::cluster.exch.b64 %D, [%r92], %A", 8, 5, 1ull << 40, 0, 1ull << 40},
      {"atom.release.sys.shared::cluster.cas.b32 %D, [%r92], %A, %B", 4, 5, 5, 9, 9},
      {"atom.shared::cluster.cas.b64 %D, [%r92], %A, %B", 8, 5, 6, 9, 5},
      {"atom.shared::cluster.add.f32 %D, [%r92], %A", 4, f(1.5f), f(2.25f), 0, f(3.75f)},
      {"atom.shared::cluster.add.f64 %D, [%r92], %A", 8, d(1.5), d(2.25), 0, d(3.75)},
      {"atom.shared::cluster.add.noftz.f16x2 %D, [%r92], %A", 4, 0x3c003c00, 0x40003c00, 0,
       0x42004000},
      {"atom.min.relaxed.cluster.shared::cluster.s32 %D, [%r92], %A", 4, 5, 0xfffffffe, 0,
       0xfffffffe},
      {"atom.dec.relaxed.cluster.shared::cluster.u32 %D, [%r92], %A", 4, 0, 7, 0, 7},
      {"atom.xor.relaxed.cluster.shared::cluster.b64 %D, [%r92], %A", 8, 5, 1, 0, 4},
      {"atom.exch.relaxed.cluster.shared::cluster.b32 %D, [%r92], %A", 4, 5, 1, 0, 1},
      {"atom.cas.relaxed.cluster.shared::cluster.b32 %D, [%r92], %A, %B", 4, 5, 5, 2, 2},
      {"atom.add.relaxed.cluster.shared::cluster.f32 %D, [%r92], %A", 4, f(1), f(2), 0, f(3)},
      {"red.shared::cluster.max.u64 [%r92], %A", 8, 5, 7, 0, 7},
      {"red.relaxed.cluster.shared::cluster.dec.u32 [%r92], %A", 4, 3, 7, 0, 2},
      {"red.shared::cluster.and.b32 [%r92], %A", 4, 5, 12, 0, 4},
      {"red.shared::cluster.add.f32 [%r92], %A", 4, f(1), f(2), 0, f(3)},
      {"red.shared::cluster.add.noftz.bf16x2 [%r92], %A", 4, 0x3f803f80, 0x40003f80, 0, 0x40404000},
      {"red.add.relaxed.cluster.shared::cluster.u32 [%r92], %A", 4, 5, 7, 0, 12},
      {"red.inc.relaxed.cluster.shared::cluster.u32 [%r92], %A", 4, 5, 7, 0, 6},
      {"red.or.relaxed.cluster.shared::cluster.b32 [%r92], %A", 4, 5, 8, 0, 13},
      {"red.add.relaxed.cluster.shared::cluster.f64 [%r92], %A", 8, d(1), d(2), 0, d(3)},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const std::string& t = row.text;
    const bool fp = t.ends_with("%A") && (has(t, ".f32") || has(t, ".f64"));
    const std::string kind = fp ? (row.bytes == 8 ? "%fd" : "%f") : row.bytes == 8 ? "%rd" : "%r";
    std::string op = t;
    for (auto [from, to] :
         {std::pair<std::string, std::string>{"%D", "1"}, {"%A", "2"}, {"%B", "3"}})
      if (const auto at = op.find(from); at != op.npos) op.replace(at, 2, kind + to);
    const std::string type = (fp ? "f" : "b") + std::to_string(8 * row.bytes);
    Clusters gpu({2, 1, 1});
    // in: before, operand, third, 8 bytes each. Every block works on its peer's word, then shows
    // its own and what its operation returned.
    const std::vector<std::uint64_t> words = {row.before, row.operand, row.third};
    std::vector<std::uint32_t> in(6);
    std::memcpy(in.data(), words.data(), 24);
    const bool returns = t.starts_with("atom");
    const auto got = gpu.run<std::uint64_t>(
        kPeer + "ld.global.u64 %rd9, [%in]; st.shared.u64 [data], %rd9;\nld.global." + type + " " +
            kind + "2, [%in+8]; ld.global." + type + " " + kind +
            "3, [%in+16];\nmul.wide.u32 %rd8, %block, 16; add.u64 %rd8, %rd8, %out;\n" + kSync +
            op + ";\n" + kSync + "ld.shared.u64 %rd9, [data]; st.global.u64 [%rd8], %rd9;\n" +
            (returns ? "st.global." + type + " [%rd8+8], " + kind + "1;\n"
                     : "ld.global.u64 %rd9, [%in]; st.global.u64 [%rd8+8], %rd9;\n"),
        4, in, {1, 1, 1}, {2, 1, 1}, kShared);
    CHECK_SAME(got, std::vector<std::uint64_t>{row.after, row.before, row.after, row.before});
    CHECK(counters_of(gpu.outcome, op).remote.requests == 2);
  }
  // 16 and 128 bits.
  Clusters gpu({2, 1, 1});
  const auto got = gpu.run(kPeer + R"(
st.shared.v4.u32 [data], {1, 2, 3, 4}; st.shared.u32 [data+16], 0x00070005;
mov.u64 %rd1, 0x200000001; mov.u64 %rd2, 0x400000003; mov.b128 %q1, {%rd1, %rd2};
mov.u64 %rd3, 77; mov.b128 %q2, {%rd3, %rd3};
mov.u16 %h1, 7; mov.u16 %h2, 9;
)" + kSync + R"(
atom.relaxed.cluster.shared::cluster.cas.b128 %q3, [%r92], %q1, %q2;
atom.shared::cluster.cas.b16 %h3, [%r92+18], %h1, %h2;
)" + kSync + "atom.exch.relaxed.cluster.shared::cluster.b128 %q4, [%r92], %q1;\n" +
                               kSync + R"(
mov.b128 {%rd4, %rd5}, %q4; cvt.u32.u64 %r1, %rd5; ld.shared.u32 %r2, [data+4];
ld.shared.u32 %r3, [data+16];
mad.lo.u32 %r1, %r1, 10, %r2; add.u32 %r1, %r1, %r3; st.global.u32 [%mine], %r1;)",
                           2, {0}, {1, 1, 1}, {2, 1, 1}, kShared);
  CHECK_SAME(got, std::vector<std::uint32_t>{772 + 0x00090005, 772 + 0x00090005});
}

TEST_CASE(
    "cluster: generic addresses in several blocks and spaces at once; own ones count as shared") {
  Clusters gpu({2, 1, 1});
  // Lanes 0-7 read their own block, 8-15 the peer through its rank, 16-23 their own through its
  // rank, 24-31 global memory.
  const auto got =
      gpu.run(R"(
mov.u32 %r90, %cluster_ctarank; xor.b32 %r91, %r90, 1; shl.b32 %r1, %lane, 2; mov.u32 %r2, data;
add.u32 %r2, %r2, %r1;
mad.lo.u32 %r3, %r90, 100, %lane; st.shared.u32 [%r2], %r3;
cvt.u64.u32 %rd1, %r2; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, %r91;
mapa.u64 %rd3, %rd1, %r90;
shl.b32 %r4, %lane, 2; cvt.u64.u32 %rd4, %r4; add.u64 %rd4, %rd4, %in;
setp.ge.u32 %p1, %lane, 8; setp.ge.u32 %p2, %lane, 16; setp.ge.u32 %p3, %lane, 24;
@%p1 mov.u64 %rd1, %rd2; @%p2 mov.u64 %rd1, %rd3; @%p3 mov.u64 %rd1, %rd4;
)" + kSync + "ld.u32 %r5, [%rd1];\nst.global.u32 [%mine], %r5;\n" +
                  kSync,
              64, expected(32, [](auto i) { return 1000 + i; }), {32, 1, 1}, {2, 1, 1}, kShared);
  CHECK_SAME(got, expected(64, [](std::uint32_t i) {
               const std::uint32_t lane = i % 32, rank = i / 32;
               return lane >= 24 ? 1000 + lane : (lane / 8 == 1 ? rank ^ 1 : rank) * 100 + lane;
             }));
  const InstrReport ld = counters_of(gpu.outcome, "ld.u32 %r5");
  CHECK(ld.remote.requests == 2);
  CHECK(ld.remote.bytes == 2 * 8 * 4);
  CHECK(ld.remote.bytes_distinct == 2 * 8 * 4);
  CHECK(ld.shared.bytes_asked == 2 * 16 * 4);
  CHECK(ld.global.bytes_asked == 2 * 8 * 4);
}

TEST_CASE("cluster: bytes that several lanes ask another block for count once") {
  // Lane i reads word i / 4 of the peer: 8 words; lanes from 16 on one word of rank 2.
  Clusters gpu({4, 1, 1});
  gpu.run(R"(
shr.u32 %r1, %lane, 2; shl.b32 %r1, %r1, 2; mov.u32 %r2, data; add.u32 %r1, %r1, %r2;
mov.u32 %r3, %cluster_ctarank; xor.b32 %r3, %r3, 1;
mapa.shared::cluster.u32 %r4, %r1, %r3;
mov.u32 %r5, 2; mapa.shared::cluster.u32 %r5, %r2, %r5;
setp.ge.u32 %p1, %lane, 16; mov.u32 %r6, %r4; @%p1 mov.u32 %r6, %r5;
)" + kSync + "ld.shared::cluster.u32 %r7, [%r4];\nld.shared::cluster.u32 %r8, [%r6];\n" +
              kSync,
          1, std::vector<std::uint32_t>(1), {32, 1, 1}, {4, 1, 1}, kShared);
  const InstrReport all = counters_of(gpu.outcome, "ld.shared::cluster.u32 %r7");
  CHECK(all.remote.requests == 4);
  CHECK(all.remote.bytes == 4 * 128);
  CHECK(all.remote.bytes_distinct == 4 * 8 * 4);
  // The first 16 lanes ask for 4 words of the peer, the others for the first word of rank 2: a fifth
  // in ranks 0 and 1, the own block's in rank 2, one of the four in rank 3.
  const InstrReport mixed = counters_of(gpu.outcome, "ld.shared::cluster.u32 %r8");
  CHECK(mixed.remote.bytes == (3 * 32 + 16) * 4);
  CHECK(mixed.remote.bytes_distinct == (5 + 5 + 4 + 4) * 4);
}

TEST_CASE("cluster: the barrier lets nobody through before all have arrived, phase after phase") {
  // 40 rounds, each with a barrier in one of its spellings: every thread writes its round to the
  // peer, and must find its own word written.
  const std::string spellings[] = {
      "barrier.cluster.arrive; barrier.cluster.wait;",
      "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;",
      "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
      "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
      "barrier.cluster.arrive.release.aligned; add.u32 %r20, %r20, 1; "
      "barrier.cluster.wait.acquire.aligned;"};
  for (const std::uint64_t seed : {0, 11, 12})
    for (const std::string& barrier : spellings) {
      Clusters gpu({8, 1, 1}, {.threads = 2, .schedule_seed = seed});
      const auto got = gpu.run(R"(
mov.u32 %r90, %cluster_ctarank; add.u32 %r91, %r90, 3; and.b32 %r91, %r91, 7;
shl.b32 %r1, %thread, 2;
mapa.shared::cluster.u32 %r92, data, %r91; add.u32 %r92, %r92, %r1; mov.u32 %r2, data;
add.u32 %r2, %r2, %r1;
mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r20, 0;
again:
st.shared::cluster.u32 [%r92], %r3;
)" + barrier + R"(
ld.shared.u32 %r5, [%r2]; setp.eq.u32 %p1, %r5, %r3; @%p1 add.u32 %r4, %r4, 1;
)" + barrier + R"(
add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 40; @%p2 bra again;
st.global.u32 [%mine], %r4;)",
                               16 * 70, {0}, {70, 1, 1}, {16, 1, 1}, kShared);
      CHECK_SAME(got, expected(16 * 70, [](auto) { return 40; }));
    }
}

TEST_CASE("cluster: threads that end count as arrived, lanes may wait on their own") {
  Clusters gpu({2, 1, 1});
  // Block 1's second warp ends at once, the lanes of the others come to the barrier in two parts;
  // the odd ones do something between arriving and waiting.
  const auto got = gpu.run(kPeer + R"(
shl.b32 %r1, %thread, 2; add.u32 %r92, %r92, %r1; mov.u32 %r2, data; add.u32 %r2, %r2, %r1;
setp.ge.u32 %p1, %number, 96; @%p1 ret;
mad.lo.u32 %r3, %r90, 100, %thread; st.shared.u32 [%r2], %r3;
and.b32 %r4, %lane, 1; setp.eq.u32 %p2, %r4, 0; mov.u32 %r6, 7;
@%p2 bra even;
barrier.cluster.arrive; add.u32 %r6, %r6, 1; barrier.cluster.wait;
bra meet;
even: barrier.cluster.arrive; barrier.cluster.wait;
meet:
ld.shared::cluster.u32 %r5, [%r92]; mad.lo.u32 %r5, %r6, 1000, %r5; st.global.u32 [%mine], %r5;
)" + kSync,
                           128, {0}, {64, 1, 1}, {2, 1, 1}, kShared);
  for (std::uint32_t i = 0; i < 96; ++i)
    if (i < 32 || i >= 64) CHECK(got[i] == (7 + i % 2) * 1000 + (i < 64 ? 100 : 0) + i % 64);

  // Warp 0 of block 0 arrives and then ends, which counts once: block 1's first warp sees what its
  // second writes before it arrives as the last.
  Clusters once({2, 1, 1});
  const auto seen = once.run(kPeer + R"(
shl.b32 %r1, %thread, 2; mov.u32 %r2, data; add.u32 %r3, %r2, %r1; st.shared.u32 [%r3], %number;
barrier.cluster.arrive;
setp.lt.u32 %p1, %number, 32; @%p1 ret;
barrier.cluster.wait;
xor.b32 %r1, %r1, 128; add.u32 %r3, %r2, %r1; ld.shared.u32 %r4, [%r3]; st.global.u32 [%mine], %r4;
)",
                             128, {0}, {64, 1, 1}, {2, 1, 1}, kShared);
  CHECK_SAME(seen, expected(128, [](auto i) { return i < 32 ? 0 : i ^ 32; }));
}

TEST_CASE(
    "cluster: one that never arrives is a deadlock with a name, the order of the barrier's halves "
    "is checked") {
  const Dim3 block{32, 1, 1}, grid{2, 1, 1};
  // Block 0 waits for block 1 in the barrier, block 1 for block 0 in a loop.
  Clusters stuck({2, 1, 1});
  stuck.machine.patience = 1 << 16;
  CHECK(has(stuck.message(kPeer + R"(setp.eq.u32 %p1, %r90, 0; @%p1 bra meet;
loop: ld.volatile.shared.u32 %r1, [data]; setp.eq.u32 %p2, %r1, 0; @%p2 bra loop;
meet: barrier.cluster.arrive; barrier.cluster.wait; st.shared::cluster.u32 [%r92], 1;)",
                          block, grid),
            "deadlock: all 2 blocks that run wait"));
  // Lane 0 of each block waits for the cluster, which its own warp's other lanes, at the block's
  // barrier, keep waiting.
  CHECK(lacks(Clusters({2, 1, 1}).message(
                  "setp.eq.u32 %p1, %lane, 0; @%p1 bra lead;\nbarrier.sync 0; bra meet;\nlead: "
                  "barrier.cluster.arrive;\nbarrier.cluster.wait;\nbarrier.sync 0;\nmeet: "
                  "barrier.cluster.arrive;",
                  block, grid),
              "deadlock: the cluster's barrier was reached by 2 of 64 threads, and no other thread "
              "of the cluster can go on; waiting by thread (0,0,0) of block (0,0,0)") == "");
  CHECK(
      lacks(Clusters({2, 1, 1}).message("barrier.cluster.wait;", block, grid),
            "barrier.cluster.wait without a barrier.cluster.arrive before it by thread (0,0,0)") ==
      "");
  CHECK(lacks(Clusters({2, 1, 1}).message("barrier.cluster.arrive; barrier.cluster.arrive;", block,
                                          grid),
              "barrier.cluster.arrive again, without a barrier.cluster.wait between, by thread "
              "(0,0,0)") == "");
  // Block 1 is the last to arrive, so all may pass; it must, before it arrives again.
  CHECK(lacks(Clusters({2, 1, 1}).message(kPeer + R"(barrier.cluster.arrive;
setp.eq.u32 %p1, %r90, 0; @%p1 bra wait; barrier.cluster.arrive;
wait: barrier.cluster.wait;)",
                                          block, grid),
              "barrier.cluster.arrive again, without a barrier.cluster.wait between, by thread "
              "(0,0,0) of block (1,0,0)") == "");
  // Without clusters a block is one of its own.
  Gpu gpu;
  CHECK_SAME(
      gpu.run(
          "barrier.cluster.arrive; barrier.cluster.wait; mapa.shared::cluster.u32 %r1, data, 0; "
          "st.shared::cluster.u32 [%r1], 5; ld.shared.u32 %r2, [data]; st.global.u32 [%mine], %r2;",
          32, {0}, {32, 1, 1}, {1, 1, 1}, kShared),
      expected(32, [](auto) { return 5; }));
}

TEST_CASE("cluster: addresses of no block, beyond a block, misaligned, of a block that has ended") {
  const Dim3 one{1, 1, 1}, two{2, 1, 1};
  const auto message = [&](const std::string& body) {
    return Clusters(two).message(kPeer + body, one, two);
  };
  CHECK(
      lacks(message("mapa.shared::cluster.u32 %r1, data, 2; ld.shared::cluster.u32 %r2, [%r1+4];"),
            "out-of-bounds read of 4 bytes at offset 4 of the shared memory of rank 2 of the "
            "cluster, which has 2 blocks, ranks from 0; access by thread (0,0,0) of block (0,0,0) "
            "in k") == "");
  CHECK(
      lacks(message("mapa.shared::cluster.u32 %r1, data, 100000; st.shared::cluster.u32 [%r1], 1;"),
            "of rank 254 or above of the cluster") == "");
  CHECK(lacks(message("add.u32 %r1, %r92, 1040; atom.shared::cluster.add.u32 %r2, [%r1], 1;\n" +
                      kSync),
              "out-of-bounds atomic access of 4 bytes at offset 1040, 0 bytes past the block's "
              "shared memory (1040 bytes)") == "");
  CHECK(lacks(message("st.shared::cluster.u32 [%r92+2], 1;"), "misaligned write of 4 bytes") == "");
  CHECK(
      lacks(message(
                "setp.eq.u32 %p1, %r90, 1; @%p1 ret; loop: nanosleep.u32 10; add.u32 %r1, %r1, 1; "
                "setp.lt.u32 %p2, %r1, 100000; @%p2 bra loop; ld.shared::cluster.u32 %r2, [%r92];"),
            "out-of-bounds read of 4 bytes at offset 0 of the shared memory of rank 1 of the "
            "cluster, which is block (1,0,0) and has ended: a barrier of the cluster must keep it "
            "until then;") == "");
  // The window of .shared::cta is the block's own.
  CHECK(lacks(message("ld.shared.u32 %r2, [%r92];"), "out-of-bounds read") == "");
  CHECK(lacks(message("mov.u64 %rd1, %out; mapa.u64 %rd2, %rd1, 1;"),
              "mapa of an address that is not in shared memory") == "");
  CHECK(lacks(message("getctarank.u64 %r2, %out;"),
              "getctarank of an address that is not in shared memory") == "");
  Clusters gpu({3, 1, 1});
  CHECK(lacks(gpu.message("", one, {4, 1, 1}), "the grid of k is no multiple of its clusters") ==
        "");
}

TEST_CASE(
    "cluster: a fault in one block ends its cluster and those behind it, whoever runs first") {
  for (const std::uint64_t seed : {0, 1, 2}) {
    Clusters gpu({2, 1, 1}, {.threads = 2, .schedule_seed = seed});
    const auto out = gpu.array<std::uint32_t>(64);
    // The odd block of each cluster from the third on writes past its memory; its peer waits for
    // it.
    const LaunchOutcome outcome =
        gpu.launch(kernel(kPeer +
                              "setp.lt.u32 %p1, %block, 4; @%p1 bra meet; setp.eq.u32 %p2, %r90, "
                              "0; @%p2 bra meet; st.shared.u32 [data+2000], 1;\nmeet: " +
                              kSync + "st.global.u32 [%mine], 1;",
                          kShared),
                   {out.address(), out.address()}, {1, 1, 1}, {64, 1, 1});
    CHECK(lacks(outcome.fault.message, "out-of-bounds write of 4 bytes") == "");
    if (!seed) {
      CHECK(lacks(outcome.fault.message, "of block (5,0,0)") == "");
      for (int i = 0; i < 64; ++i) CHECK(out[i] == (i < 4));
    }
  }
}

TEST_CASE(
    "cluster: many clusters over host threads, with a grid barrier, and in three dimensions") {
  Clusters gpu({2, 2, 2}, {.threads = 2});
  // Block-sums over the cluster in rank 0's memory.
  const std::string body = R"(
mov.u32 %r90, %cluster_ctarank; mapa.shared::cluster.u32 %r92, data, 0; setp.eq.u32 %p1, %r90, 0;
@%p1 st.shared.u32 [data], 0;
)" + kSync + R"(
mov.u32 %r1, %ctaid.z; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, 4, %r2;
mad.lo.u32 %r1, %r1, 8, %r3;
red.shared::cluster.add.u32 [%r92], %r1;
)" + kSync + R"(
mul.wide.u32 %rd1, %r1, 4; add.u64 %rd1, %rd1, %out; ld.shared::cluster.u32 %r4, [%r92];
st.global.u32 [%rd1], %r4;
)" + kSync;
  const auto want = expected(128, [](std::uint32_t b) {
    const std::uint32_t x = b % 8 / 2 * 2, y = b / 8 % 4 / 2 * 2, z = b / 32 / 2 * 2;
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < 8; ++i) sum += ((z + i / 4) * 4 + y + i / 2 % 2) * 8 + x + i % 2;
    return sum;
  });
  for (const bool cooperative : {false, true}) {
    gpu.cooperative = cooperative;
    CHECK_SAME(gpu.run(body, 128, {0}, {1, 1, 1}, {8, 4, 4}, kShared), want);
  }
}
