// Sectors, lines and wavefronts of single warp accesses: hand-worked cases, and sets as the oracle.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "../core/coalescing.h"

using namespace vgpu;

namespace {

using LaneAddresses = std::array<std::uint64_t, 32>;
using Offsets = std::array<std::uint32_t, 32>;
constexpr std::uint32_t kAll = 0xffffffffu;

RequestShape request_by_sets(const LaneAddresses& a, std::uint32_t mask, std::uint32_t bytes) {
  std::set<std::uint64_t> sectors, lines, all;
  for (int lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    for (std::uint32_t b = 0; b < bytes; ++b) {
      all.insert(a[lane] + b);
      sectors.insert((a[lane] + b) / 32);
      lines.insert((a[lane] + b) / 128);
    }
  }
  return {static_cast<std::uint32_t>(sectors.size()), static_cast<std::uint32_t>(lines.size()),
          static_cast<std::uint32_t>(all.size())};
}

SharedShape shared_by_sets(const Offsets& o, std::uint32_t mask, std::uint32_t bytes) {
  const int group_lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  SharedShape shape;
  for (int first = 0; first < 32; first += group_lanes) {
    std::array<std::set<std::uint32_t>, 32> words;  // distinct words of each bank
    bool any = false;
    for (int lane = first; lane < first + group_lanes; ++lane) {
      if (!(mask >> lane & 1)) continue;
      any = true;
      for (std::uint32_t b = 0; b < bytes; ++b) {
        const std::uint32_t word = (o[lane] + b) / 4;
        words[word % 32].insert(word);
      }
    }
    std::size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    shape.wavefronts += static_cast<std::uint32_t>(most);
    shape.ideal += any;
  }
  return shape;
}

template <class F>
LaneAddresses addresses(F f) {
  LaneAddresses a;
  for (int lane = 0; lane < 32; ++lane) a[lane] = 0x100000000000ull + f(lane);
  return a;
}

template <class F>
Offsets offsets(F f) {
  Offsets o;
  for (int lane = 0; lane < 32; ++lane) o[lane] = f(lane);
  return o;
}

void check_request(const LaneAddresses& a, std::uint32_t mask, std::uint32_t bytes,
                   std::array<std::uint32_t, 3> expected) {
  const RequestShape shape = global_request(a.data(), mask, bytes);
  CHECK(shape.sectors == expected[0]);
  CHECK(shape.lines == expected[1]);
  CHECK(shape.bytes_distinct == expected[2]);
}

void check_shared(const Offsets& o, std::uint32_t mask, std::uint32_t bytes,
                  std::uint32_t wavefronts, std::uint32_t ideal) {
  const SharedShape shape = shared_request(o.data(), mask, bytes);
  CHECK(shape.wavefronts == wavefronts);
  CHECK(shape.ideal == ideal);
}

// Masks as kernels have them: full, warp tails, one side of a branch, one lane, any.
std::uint32_t random_mask(std::mt19937& random) {
  switch (random() % 6) {
    case 0:
    case 1:
      return kAll;
    case 2:
      return kAll >> (random() % 32);
    case 3:
      return kAll << (random() % 32);
    case 4:
      return 1u << (random() % 32);
    default:
      return random();
  }
}

}  // namespace

TEST_CASE("global request: consecutive lanes touch the ideal number of sectors") {
  // 32 lanes x 2, 4, 8, 16 bytes = 64, 128, 256, 512 bytes from an aligned base:
  // / 32 = 2, 4, 8, 16 sectors; / 128 = 1, 1, 2, 4 lines.
  check_request(addresses([](int i) { return 2 * i; }), kAll, 2, {2, 1, 64});
  check_request(addresses([](int i) { return 4 * i; }), kAll, 4, {4, 1, 128});
  check_request(addresses([](int i) { return 8 * i; }), kAll, 8, {8, 2, 256});
  check_request(addresses([](int i) { return 16 * i; }), kAll, 16, {16, 4, 512});
  // Reversed lanes touch the same bytes.
  check_request(addresses([](int i) { return 4 * (31 - i); }), kAll, 4, {4, 1, 128});
}

TEST_CASE("global request: misaligned, strided, uniform") {
  // 128 bytes from byte 4 on: bytes 4..131, sectors 0..4, lines 0 and 1.
  check_request(addresses([](int i) { return 4 + 4 * i; }), kAll, 4, {5, 2, 128});
  // Every second float: 256 bytes of which half are asked: 8 sectors, 2 lines.
  check_request(addresses([](int i) { return 8 * i; }), kAll, 4, {8, 2, 128});
  // A row of 64 halves (128 bytes) a lane: each lane its own sector and its own line.
  check_request(addresses([](int i) { return 128 * i; }), kAll, 2, {32, 32, 64});
  // 48 bytes apart: all sectors differ (48 > 32); lane 31 is at 1488 = line 11, every line between
  // is touched (48 <= 128): 12.
  check_request(addresses([](int i) { return 48 * i; }), kAll, 4, {32, 12, 128});
  // All lanes one float.
  check_request(addresses([](int) { return 20; }), kAll, 4, {1, 1, 4});
  // Falling, a sector apart, from the middle of a line: lanes at 64 - 32 i, from byte 64 down to
  // -928: 32 sectors; from line 0 down to line -8 (-928 / 128 = -7.25, rounded down): 9 lines.
  check_request(addresses([](int i) { return 64 - 32 * i; }), kAll, 4, {32, 9, 128});
}

TEST_CASE("global request: tiles, permutations, masks") {
  // 4 rows of 8 floats, rows 1024 bytes apart: a sector and a line a row.
  check_request(addresses([](int i) { return i / 8 * 1024 + i % 8 * 4; }), kAll, 4, {4, 4, 128});
  // The same 8 floats for four groups of lanes, which falls at every eighth lane: one sector.
  check_request(addresses([](int i) { return i % 8 * 4; }), kAll, 4, {1, 1, 32});
  // Lanes permuted (multiplication by an odd number modulo 32): the same bytes as in order.
  check_request(addresses([](int i) { return i * 5 % 32 * 16; }), kAll, 16, {16, 4, 512});
  // The last 5 lanes of consecutive halves: bytes 54..63 of the line, one sector, 10 bytes.
  check_request(addresses([](int i) { return 2 * i; }), 0xf8000000u, 2, {1, 1, 10});
  // Every other lane of consecutive floats: all 4 sectors are still touched, half of the bytes.
  check_request(addresses([](int i) { return 4 * i; }), 0x55555555u, 4, {4, 1, 64});
  check_request(addresses([](int i) { return 4 * i; }), 0x00000400u, 4, {1, 1, 4});
  check_request(addresses([](int i) { return 4 * i; }), 0, 4, {0, 0, 0});
  // Two lanes that are 6 GiB apart, in falling order.
  check_request(addresses([](int i) { return i ? 0ull : 6ull << 30; }), 3, 4, {2, 2, 8});
}

TEST_CASE("global request agrees with sets on random and structured patterns") {
  std::mt19937 random(1);
  for (int round = 0; round < 30000; ++round) {
    const std::uint32_t bytes = 1u << (random() % 6);
    const int kind = static_cast<int>(random() % 7);
    const std::uint64_t base = 0x100000000000ull + random() % 64 * bytes;
    const std::uint32_t width = 1u << (random() % 6);
    const std::uint64_t pitch = random() % 5000 * bytes;
    const std::int64_t step =
        (static_cast<std::int64_t>(random() % 81) - 40) * static_cast<std::int64_t>(bytes);
    const std::uint64_t range = 1 + random() % (random() % 3 ? 100 : 1u << 30);
    LaneAddresses a;
    for (int lane = 0; lane < 32; ++lane) {
      switch (kind) {
        case 0:
          a[lane] = base + 4096 * bytes + static_cast<std::uint64_t>(step * lane);
          break;
        case 1:
          a[lane] = base + lane / width * pitch + lane % width * bytes;
          break;
        case 2:
          a[lane] = base + lane % width * pitch + lane / width * bytes;
          break;
        case 3:
          a[lane] = base + random() % range * bytes;
          break;
        case 4:
          a[lane] = (lane ? a[lane - 1] : base) + random() % 3 * bytes;
          break;
        case 5:
          a[lane] = base + random() % 2 * (std::uint64_t{5} << 30) + random() % 9 * bytes;
          break;
        default:
          a[lane] = base + (lane * 7 + 3) % 32 * pitch;
          break;
      }
    }
    const std::uint32_t mask = random_mask(random);
    LaneAddresses seen = a;  // inactive lanes hold anything
    for (int lane = 0; lane < 32; ++lane)
      if (!(mask >> lane & 1)) seen[lane] = random() | std::uint64_t{random()} << 32;
    const RequestShape got = global_request(seen.data(), mask, bytes);
    const RequestShape want = request_by_sets(a, mask, bytes);
    REQUIRE_MESSAGE(
        (got.sectors == want.sectors && got.lines == want.lines &&
         got.bytes_distinct == want.bytes_distinct),
        "round " << round << " kind " << kind << " bytes " << bytes << " mask " << mask);
  }
}

TEST_CASE("L1 clocks of a global request") {
  CHECK(l1_clocks({1, 1, 4}) == 1.0);    // one clock at least
  CHECK(l1_clocks({4, 1, 128}) == 1.0);  // 128 bytes
  CHECK(l1_clocks({5, 2, 128}) == 1.25);
  CHECK(l1_clocks({32, 32, 64}) == 8.0);
  CHECK(l1_clocks({5, 2, 128}, 2) == 2.5);  // 64 bytes a clock
}

TEST_CASE("shared request: 32 banks of 32 bits") {
  // Consecutive words: each its own bank.
  check_shared(offsets([](int i) { return 4 * i; }), kAll, 4, 1, 1);
  // One word for all: a broadcast.
  check_shared(offsets([](int) { return 64; }), kAll, 4, 1, 1);
  // A column of a 32 x 32 tile of floats: every lane bank 0, 32 words.
  check_shared(offsets([](int i) { return 128 * i; }), kAll, 4, 32, 1);
  // The same column of a 32 x 33 tile: bank i of row i.
  check_shared(offsets([](int i) { return 132 * i; }), kAll, 4, 1, 1);
  // Stride of two words: lanes i and i + 16 share a bank.
  check_shared(offsets([](int i) { return 8 * i; }), kAll, 4, 2, 1);
  // Stride of 6 words: gcd(6, 32) = 2.
  check_shared(offsets([](int i) { return 24 * i; }), kAll, 4, 2, 1);
  // Halves in a row: two lanes a word.
  check_shared(offsets([](int i) { return 2 * i; }), kAll, 2, 1, 1);
  // A column of halves, rows of 64 halves = 32 words: bank 0 of 32 rows.
  check_shared(offsets([](int i) { return 128 * i; }), kAll, 2, 32, 1);
  // Rows of 66 halves = 33 words: no conflict. Rows of 33 halves = 16.5 words: lane i is in word
  // floor(16.5 i); even lanes 2k in word 33k, bank k; odd ones 2k + 1 in word 33k + 16, bank
  // k + 16: k runs from 0 to 15, so all 32 banks once.
  check_shared(offsets([](int i) { return 132 * i; }), kAll, 2, 1, 1);
  check_shared(offsets([](int i) { return 66 * i; }), kAll, 2, 1, 1);
  // The same words in two lanes each, twice 16 words of bank 0: 16 wavefronts, not 32.
  check_shared(offsets([](int i) { return i % 16 * 128; }), kAll, 4, 16, 1);
}

TEST_CASE("shared request: 64 and 128 bits go by half and quarter warps") {
  // 8 bytes a lane in a row: 16 lanes fill 32 banks; two half-warps.
  check_shared(offsets([](int i) { return 8 * i; }), kAll, 8, 2, 2);
  check_shared(offsets([](int i) { return 16 * i; }), kAll, 16, 4, 4);
  // Broadcast: one wavefront for each half or quarter.
  check_shared(offsets([](int) { return 32; }), kAll, 8, 2, 2);
  check_shared(offsets([](int) { return 32; }), kAll, 16, 4, 4);
  // Rows of 64 halves (128 bytes), 16 bytes of a lane's own row: the 8 lanes of a quarter meet in
  // the same four banks: 8 wavefronts a quarter.
  check_shared(offsets([](int i) { return 128 * i; }), kAll, 16, 32, 4);
  // Rows padded to 72 halves (144 bytes = 36 words): lane i starts in bank 4i: no conflict.
  check_shared(offsets([](int i) { return 144 * i; }), kAll, 16, 4, 4);
  // 64-bit, 16 bytes apart: lanes i and i + 8 of a half share two banks: 2 wavefronts a half.
  check_shared(offsets([](int i) { return 16 * i; }), kAll, 8, 4, 2);
  // Only the lower half-warp is active; only quarters 0 and 2.
  check_shared(offsets([](int i) { return 8 * i; }), 0x0000ffffu, 8, 1, 1);
  check_shared(offsets([](int i) { return 16 * i; }), 0x00ff00ffu, 16, 2, 2);
  // Lanes 0 and 31 in one bank pair, different words: different halves, so no conflict.
  check_shared(offsets([](int i) { return i == 31 ? 128u : 0u; }), 0x80000001u, 8, 2, 2);
  // Lanes 0 and 1, both in banks 0 and 1, different words.
  check_shared(offsets([](int i) { return i * 128; }), 0x3u, 8, 2, 1);
  check_shared(offsets([](int i) { return 16 * i; }), 0x00000020u, 16, 1, 1);
  check_shared(offsets([](int i) { return 16 * i; }), 0, 16, 0, 0);
}

TEST_CASE("shared request: lanes in any order") {
  // Two rows 128 bytes apart, each half-warp the same 16 banks: lane 16 + i in lane i's bank, but
  // another word: 2. Falling order in the second half, so that neighbours do not tell.
  check_shared(offsets([](int i) { return i < 16 ? 4 * i : 128 + 4 * (31 - i); }), kAll, 4, 2, 1);
  // Bank 3 has words 3, 35, 67 (three lanes), 3 again: three distinct.
  check_shared(offsets([](int i) {
                 return i == 0 ? 12u : i == 1 ? 268u : i == 2 ? 140u : 12u;
               }),
               kAll, 4, 3, 1);
}

TEST_CASE("shared request agrees with sets on random and structured patterns") {
  std::mt19937 random(2);
  for (int round = 0; round < 30000; ++round) {
    const std::uint32_t bytes = 1u << (random() % 5);
    const int kind = static_cast<int>(random() % 6);
    // Up to 64 KiB, or up to the 2^28 of a cluster's window.
    const std::uint32_t space = random() % 4 ? 1u << 16 : 1u << 28;
    const std::uint32_t base = random() % (space / 2 / bytes) * bytes;
    const std::uint32_t width = 1u << (random() % 6);
    const std::uint32_t pitch = random() % 130 * bytes;
    const std::uint32_t range = 1 + random() % (random() % 3 ? 100 : 4000);
    Offsets o;
    for (int lane = 0; lane < 32; ++lane) {
      switch (kind) {
        case 0:
          o[lane] = base + lane * pitch;
          break;
        case 1:
          o[lane] = base + (31 - lane) * pitch;
          break;
        case 2:
          o[lane] = base + lane / width * pitch + lane % width * bytes;
          break;
        case 3:
          o[lane] = base + lane % width * pitch + lane / width * bytes;
          break;
        case 4:
          o[lane] = (lane ? o[lane - 1] : base) + random() % 3 * bytes;
          break;
        default:
          o[lane] = base + random() % range * bytes;
          break;
      }
    }
    const std::uint32_t mask = random_mask(random);
    Offsets seen = o;
    for (int lane = 0; lane < 32; ++lane)
      if (!(mask >> lane & 1)) seen[lane] = random();
    const SharedShape got = shared_request(seen.data(), mask, bytes);
    const SharedShape want = shared_by_sets(o, mask, bytes);
    REQUIRE_MESSAGE((got.wavefronts == want.wavefronts && got.ideal == want.ideal),
                    "round " << round << " kind " << kind << " bytes " << bytes << " mask " << mask
                             << " got " << got.wavefronts << " want " << want.wavefronts);
  }
}
