// Fair turns: blocks that fetch work from a counter get about as much of it each, whatever the
// order in which they run.
#include <algorithm>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// How many chunks each of `blocks` blocks fetched. in[0]: chunks, in[1]: instructions / 2 of one.
std::vector<std::uint32_t> fetched(Gpu& gpu, std::uint32_t chunks, std::uint32_t work, Dim3 block,
                                   std::uint32_t blocks, const std::string& fetch) {
  const std::string body = R"(
ld.global.u32 %r1, [%in]; ld.global.u32 %r2, [%in+4]; mov.u32 %r9, 0;
mul.wide.u32 %rd1, %block, 4; add.u64 %rd1, %rd1, %out; setp.eq.u32 %p1, %lane, 0;
next: mov.u32 %r3, 0;
@%p1 )" + fetch + R"( %r3, [counter], 1;
shfl.sync.idx.b32 %r3, %r3, 0, 31, -1;
setp.ge.u32 %p2, %r3, %r1; @%p2 bra end;
@%p1 red.global.add.u32 [%rd1], 1;
mov.u32 %r4, 0;
loop: add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, %r2; @%p3 bra loop;
bra next;
end:)";
  return gpu.run(body, blocks, {chunks, work}, block, {blocks, 1, 1}, ".global .u32 counter;\n");
}

}  // namespace

TEST_CASE(
    "turns: a counter's chunks go to all blocks alike, also when warps fetch for themselves") {
  for (const Dim3 block : {Dim3{32, 1, 1}, Dim3{128, 1, 1}}) {
    Gpu gpu({.threads = 4});
    CHECK_SAME(fetched(gpu, 240, 10, block, 12, "atom.global.add.u32"),
               expected(12, [](auto) { return 20; }));
  }
  // .inc with a bound of 1 goes 0, 1, 0, 1 ..., and 1 says that nothing is left: block 0 fetches 0,
  // then block 1 gets 1 and ends, block 0 fetches 0 once more and then 1.
  Gpu gpu;
  const auto got = fetched(gpu, 1, 10, {32, 1, 1}, 2, "atom.relaxed.gpu.global.inc.u32");
  CHECK_SAME(got, std::vector<std::uint32_t>{2, 0});
}

TEST_CASE("turns: with very many small chunks turns get longer, and shares stay alike") {
  Gpu gpu;
  const auto got = fetched(gpu, 6000, 5, {64, 1, 1}, 6, "atom.global.add.u32");
  std::uint32_t sum = 0;
  for (const std::uint32_t n : got) {
    sum += n;
    CHECK(n > 800);
    CHECK(n < 1200);
  }
  CHECK(sum == 6000);

  // Who fetched each chunk: at first the blocks take turns chunk by chunk, later many at a time.
  const std::uint32_t chunks = 6000;
  const auto owner = gpu.run(R"(
mov.u32 %r9, 0; setp.eq.u32 %p1, %thread, 0; ld.global.u32 %r1, [%in];
next: atom.global.add.u32 %r3, [counter], 1;
setp.ge.u32 %p2, %r3, %r1; @%p2 bra end;
mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd1, %out; st.global.u32 [%rd1], %block;
bra next;
end:)",
                             chunks, {chunks}, {1, 1, 1}, {6, 1, 1}, ".global .u32 counter;\n");
  const auto changes = [&](std::size_t from, std::size_t to) {
    std::size_t n = 0;
    for (std::size_t i = from + 1; i < to; ++i) n += owner[i] != owner[i - 1];
    return n;
  };
  CHECK(changes(0, 150) == 149);
  CHECK(changes(3000, 6000) < 100);
}

TEST_CASE("turns: shuffled schedules and one block fetch everything, too") {
  for (const std::uint64_t seed : {1, 2}) {
    Gpu gpu({.threads = 1, .schedule_seed = seed});
    const auto got = fetched(gpu, 100, 10, {96, 1, 1}, 5, "atom.global.add.u32");
    CHECK(std::accumulate(got.begin(), got.end(), 0u) == 100);
    for (const std::uint32_t n : got) CHECK(n > 0);
  }
  Gpu gpu;
  CHECK_SAME(fetched(gpu, 100, 10, {96, 1, 1}, 1, "atom.global.add.u32"),
             std::vector<std::uint32_t>{100});
}

TEST_CASE(
    "turns: a fetch outside of loops keeps blocks in their order, counts stay what was executed") {
  Gpu gpu;
  const auto got = gpu.run(R"(
atom.global.add.u32 %r1, [counter], 1; bar.sync 0; atom.global.add.u32 %r2, [counter], 1;
mad.lo.u32 %r1, %r1, 1000, %r2; st.global.u32 [%mine], %r1;)",
                           8, {0}, {1, 1, 1}, {8, 1, 1}, ".global .u32 counter;\n");
  CHECK_SAME(got, expected(8, [](std::uint32_t b) { return 2000 * b + 2 * b + 1; }));

  // Each warp of 3 blocks fetches until the counter is at its end: 30 chunks and one refusal each.
  Gpu counted;
  fetched(counted, 30, 10, {64, 1, 1}, 3, "atom.global.add.u32");
  const InstrReport atom = counters_of(counted.outcome, "atom.global.add.u32");
  CHECK(atom.count.issued == 30 + 6);
  CHECK(atom.count.lanes == 30 + 6);
  CHECK(atom.global.requests == 30 + 6);
}
