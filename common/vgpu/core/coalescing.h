// What one warp access asks of the memory system: sectors and lines of global memory, wavefronts of
// shared memory. Header only, since the memory handlers call it for every access that is counted.
//
// Both functions look at 32 lanes in three steps, from cheap and common to general:
//   1. one stride for all lanes (uniform, consecutive, strided, reversed): a formula;
//   2. addresses that never fall from lane to lane: a distinct value is one unlike its neighbour;
//   3. any order: each lane is compared with all lanes before it, 8 or 16 comparisons at a time.
// Step 3 is quadratic and still quicker than a sort of 32 values: there are no branches in it.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace vgpu {

inline constexpr std::uint32_t kSectorBytes = 32;
inline constexpr std::uint32_t kLineBytes = 128;
inline constexpr std::uint32_t kSharedBanks = 32;  // banks of 4 bytes

struct RequestShape {
  std::uint32_t sectors = 0;         // distinct 32-byte pieces
  std::uint32_t lines = 0;           // distinct 128-byte pieces
  std::uint32_t bytes_distinct = 0;  // bytes that at least one lane asked for
};

struct SharedShape {
  std::uint32_t wavefronts = 0;
  std::uint32_t ideal = 0;  // wavefronts of the same lanes without bank conflicts
};

// Clocks that a global or local request holds the L1 pipe for, at least one: the sectors over those
// that a clock moves (DeviceSpec::l1_bytes_per_clock_sm / 32), and the lines over 4, which is never
// more, since a line has at least one sector.
inline double l1_clocks(const RequestShape& shape, double sectors_per_clock = 4) {
  return std::max(1.0, shape.sectors / sectors_per_clock);
}

namespace coalescing_detail {

inline constexpr int kLanes = 32;

// Are all 32 values at equal distances? The distance goes to `stride`.
template <class T, class S>
inline bool constant_stride(const T* values, S& stride) {
  const T step = values[1] - values[0];
  T expected = values[0], wrong = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    wrong |= values[lane] ^ expected;
    expected += step;
  }
  stride = static_cast<S>(step);
  return wrong == 0;
}

// Shape of `count` addresses that never fall; false when they do.
[[gnu::always_inline]] inline bool monotone_shape(const std::uint64_t* a, int count,
                                                  std::uint32_t bytes, RequestShape& shape) {
  std::uint64_t values = 1, sectors = 1, lines = 1, falls = 0;
  for (int i = 1; i < count; ++i) {
    // Addresses are below 2^63; signed comparisons are what SIMD units have.
    const auto here = static_cast<std::int64_t>(a[i]);
    const auto before = static_cast<std::int64_t>(a[i - 1]);
    const std::uint64_t change = a[i] ^ a[i - 1];
    falls |= here < before;
    values += change != 0;
    sectors += change >= kSectorBytes;
    lines += change >= kLineBytes;
  }
  shape.sectors = static_cast<std::uint32_t>(sectors);
  shape.lines = static_cast<std::uint32_t>(lines);
  shape.bytes_distinct = static_cast<std::uint32_t>(values) * bytes;
  return falls == 0;
}

// Vector arithmetic of GCC and Clang, as wide as the processor's registers. Mixed widths would make
// loads wait for the narrower stores before them.
template <class Key>
struct Simd {
#if defined(__AVX512BW__)
  static constexpr int kWidest = 64;
#elif defined(__AVX2__)
  static constexpr int kWidest = 32;
#else
  static constexpr int kWidest = 16;
#endif
  static constexpr int kBytes = std::min<int>(kWidest, kLanes * sizeof(Key));
  static constexpr int kKeys = kBytes / static_cast<int>(sizeof(Key));
  static constexpr int kBlocks = kLanes / kKeys;
  typedef Key Vector __attribute__((vector_size(kBytes)));
};

// Smallest (key ^ earlier key) over all earlier lanes, for each lane: 0 where an earlier lane has
// the same key, below 2^n where one agrees with it in all but the n low bits, large in lane 0.
// Key: a signed integer; keys are not negative and leave its second highest bit clear.
template <class Key>
inline void nearest_earlier(const Key* keys, Key* nearest) {
  using Vector = typename Simd<Key>::Vector;
  constexpr int kKeys = Simd<Key>::kKeys, kBlocks = Simd<Key>::kBlocks;
  constexpr int kBytes = Simd<Key>::kBytes;
  constexpr Key kFar = static_cast<Key>(Key{1} << (8 * sizeof(Key) - 2));
  // Lane `from` comes before those lanes of its own block whose entry is 0.
  struct Order {
    alignas(64) Key not_later[kKeys][kKeys];
  };
  static constexpr Order kOrder = [] {
    Order order{};
    for (int from = 0; from < kKeys; ++from)
      for (int to = 0; to <= from; ++to) order.not_later[from][to] = kFar;
    return order;
  }();
  Vector here[kBlocks], least[kBlocks];
#pragma GCC unroll 8
  for (int block = 0; block < kBlocks; ++block) {
    std::memcpy(&here[block], keys + block * kKeys, kBytes);
    least[block] = here[block] | kFar;
  }
#pragma GCC unroll 32
  for (int from = 0; from < kLanes; ++from) {
    const Vector earlier = Vector{} + keys[from];
#pragma GCC unroll 8
    for (int block = 0; block < kBlocks; ++block) {
      if (block < from / kKeys) continue;
      Vector distance = here[block] ^ earlier;
      if (block == from / kKeys) {
        Vector not_later;
        std::memcpy(&not_later, kOrder.not_later[from % kKeys], kBytes);
        distance |= not_later;
      }
      least[block] = distance < least[block] ? distance : least[block];
    }
  }
#pragma GCC unroll 8
  for (int block = 0; block < kBlocks; ++block)
    std::memcpy(nearest + block * kKeys, &least[block], kBytes);
}

// Shape of 32 addresses in any order.
[[gnu::noinline]] inline RequestShape unordered_shape(const std::uint64_t* addresses,
                                                      std::uint32_t bytes) {
  // 30-bit keys that keep the borders of lines: distance from lane 0's line, plus 512 MiB.
  constexpr std::uint64_t kMiddle = 1u << 29;
  const std::uint64_t base = addresses[0] / kLineBytes * kLineBytes - kMiddle;
  alignas(64) std::int32_t keys[kLanes];
  std::uint64_t far = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t key = addresses[lane] - base;
    far |= key;
    keys[lane] = static_cast<std::int32_t>(key);
  }
  RequestShape shape;
  if (far >> 30 == 0) {
    alignas(64) std::int32_t nearest[kLanes];
    nearest_earlier(keys, nearest);
    std::int32_t values = 0, sectors = 0, lines = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      values += nearest[lane] > 0;
      sectors += nearest[lane] >= std::int32_t{kSectorBytes};
      lines += nearest[lane] >= std::int32_t{kLineBytes};
    }
    shape.sectors = static_cast<std::uint32_t>(sectors);
    shape.lines = static_cast<std::uint32_t>(lines);
    shape.bytes_distinct = static_cast<std::uint32_t>(values) * bytes;
  } else {  // lanes 512 MiB apart and more: rare, so short rather than quick
    std::uint64_t sorted[kLanes];
    std::copy(addresses, addresses + kLanes, sorted);
    std::sort(sorted, sorted + kLanes);
    monotone_shape(sorted, kLanes, bytes, shape);
  }
  return shape;
}

// Shape of the lanes of a mask that is neither empty nor full.
[[gnu::noinline]] inline RequestShape partial_shape(const std::uint64_t* addresses,
                                                    std::uint32_t mask, std::uint32_t bytes) {
  RequestShape shape;
  const int first = std::countr_zero(mask);
  const int count = std::popcount(mask);
  std::uint64_t active[kLanes];
  if ((mask >> first & ((mask >> first) + 1)) == 0) {  // neighbours, as in a warp's ragged tail
    if (monotone_shape(addresses + first, count, bytes, shape)) return shape;
    std::copy(addresses + first, addresses + first + count, active);
  } else {  // close up
    int lane = 0;
    for (std::uint32_t rest = mask; rest; rest &= rest - 1)
      active[lane++] = addresses[std::countr_zero(rest)];
    if (monotone_shape(active, count, bytes, shape)) return shape;
  }
  std::fill(active + count, active + kLanes, active[0]);  // a lane repeated adds nothing
  return unordered_shape(active, bytes);
}

}  // namespace coalescing_detail

// Shape of 32 lanes whose addresses lie `stride` bytes apart, the first at `first`.
inline RequestShape strided_request(std::uint64_t first, std::int64_t stride, std::uint32_t bytes) {
  if (stride == 0) return {1, 1, bytes};
  const std::uint64_t last = first + 31 * static_cast<std::uint64_t>(stride);
  const std::uint64_t low = std::min(first, last), high = std::max(first, last);
  const std::uint64_t step =
      stride < 0 ? -static_cast<std::uint64_t>(stride) : static_cast<std::uint64_t>(stride);
  // Steps of at most a piece touch every piece between; longer ones a new piece each.
  RequestShape shape;
  shape.sectors = step <= kSectorBytes
                      ? static_cast<std::uint32_t>(high / kSectorBytes - low / kSectorBytes + 1)
                      : 32;
  shape.lines = step <= kLineBytes
                    ? static_cast<std::uint32_t>(high / kLineBytes - low / kLineBytes + 1)
                    : 32;
  shape.bytes_distinct = 32 * bytes;
  return shape;
}

// Shape of one global, local or generic access of a warp.
// addresses: 32 byte addresses, only those of lanes in `mask` are looked at, each below 2^63 and a
// multiple of `bytes`; bytes: of one lane's access, 1, 2, 4, 8, 16 or 32. No lanes: all zero.
inline RequestShape global_request(const std::uint64_t* addresses, std::uint32_t mask,
                                   std::uint32_t bytes) {
  using namespace coalescing_detail;
  RequestShape shape;
  if (mask == 0) return shape;
  if (mask == 0xffffffffu) {
    std::int64_t stride;
    if (constant_stride(addresses, stride)) return strided_request(addresses[0], stride, bytes);
    if (monotone_shape(addresses, kLanes, bytes, shape)) return shape;
    return unordered_shape(addresses, bytes);
  }
  return (mask & (mask - 1)) == 0 ? RequestShape{1, 1, bytes}
                                  : partial_shape(addresses, mask, bytes);
}

namespace coalescing_detail {

// Sum over groups of the most lanes that are in one place. Places: bank and group, below 32; from 64
// on, and all different, for lanes that do not count.
template <int kGroupLanes>
inline std::uint32_t fullest_banks(const std::uint8_t* places) {
  alignas(64) std::uint8_t sharers[kLanes];  // lanes in the same place, itself included
  using Bytes = Simd<std::uint8_t>::Vector;
  for (int block = 0; block < kLanes; block += static_cast<int>(sizeof(Bytes))) {
    Bytes here, found{};
    std::memcpy(&here, places + block, sizeof here);
#pragma GCC unroll 32
    for (int lane = 0; lane < kLanes; ++lane)
      found -= reinterpret_cast<Bytes>(here == Bytes{} + places[lane]);
    found &= reinterpret_cast<Bytes>(here < 64);
    std::memcpy(sharers + block, &found, sizeof found);
  }
  std::uint32_t sum = 0;
  for (int group = 0; group < kLanes; group += kGroupLanes) {
    std::uint8_t most = 0;
    for (int lane = group; lane < group + kGroupLanes; ++lane) most = std::max(most, sharers[lane]);
    sum += most;
  }
  return sum;
}

// Clears `counts` of lanes that ask for what an earlier lane of their group asks for. Key: a signed
// integer wide enough for offset / unit with the group's number above its kUnitBits bits, and two
// bits more.
template <class Key, int kUnitShift, int kUnitBits>
inline void drop_repeated(const std::uint32_t* offsets, std::uint32_t mask, std::uint8_t* counts) {
  constexpr int kBankBits = 7 - kUnitShift;
  const int first = std::countr_zero(mask);
  const std::uint32_t fill =
      offsets[first] >> kUnitShift | static_cast<std::uint32_t>(first >> kBankBits) << kUnitBits;
  alignas(64) Key keys[kLanes];
  alignas(64) Key nearest[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t group = static_cast<std::uint32_t>(lane >> kBankBits) << kUnitBits;
    const std::uint32_t key = offsets[lane] >> kUnitShift | group;
    keys[lane] = static_cast<Key>(mask >> lane & 1 ? key : fill);
  }
  nearest_earlier(keys, nearest);
  // Inactive lanes repeat the first active one, which itself always counts.
  nearest[first] = 1;
  for (int lane = 0; lane < kLanes; ++lane) counts[lane] &= nearest[lane] != 0;
}

// Does every bank serve lanes of one unit only, in each group? `places`: bank and group, below 32.
inline bool free_of_conflicts(const std::uint32_t* units, const std::uint32_t* places) {
  std::uint32_t last[kLanes];  // unit that was asked for last, by place
  for (int lane = 0; lane < kLanes; ++lane) last[places[lane]] = units[lane];
  std::uint32_t wrong = 0;
  for (int lane = 0; lane < kLanes; ++lane) wrong |= last[places[lane]] ^ units[lane];
  return wrong == 0;
}

// Wavefronts of lanes in any order.
template <int kUnitShift>
[[gnu::noinline]] inline std::uint32_t shared_wavefronts(const std::uint32_t* offsets,
                                                         std::uint32_t mask, std::uint32_t ideal) {
  constexpr int kBankBits = 7 - kUnitShift;    // 32 banks of words, 16 of pairs, 8 of fours,
  constexpr int kGroupLanes = 1 << kBankBits;  // for as many lanes that are served together
  // Most accesses have no conflicts, which is quick to see. An inactive lane stands for the first
  // active one; where that meets others in its group, what follows tells.
  alignas(64) std::uint32_t units[kLanes], quick[kLanes];
  const std::uint32_t fill = offsets[std::countr_zero(mask)];
  for (int lane = 0; lane < kLanes; ++lane) {
    units[lane] = (mask >> lane & 1 ? offsets[lane] : fill) >> kUnitShift;
    quick[lane] =
        (units[lane] & (kGroupLanes - 1)) | static_cast<std::uint32_t>(lane & ~(kGroupLanes - 1));
  }
  if (free_of_conflicts(units, quick)) return ideal;

  alignas(64) std::uint8_t counts[kLanes], places[kLanes];
  auto wavefronts = [&] {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto bank = static_cast<std::uint8_t>(offsets[lane] >> kUnitShift & (kGroupLanes - 1));
      const auto group = static_cast<std::uint8_t>(lane & ~(kGroupLanes - 1));
      places[lane] = counts[lane] ? bank | group : static_cast<std::uint8_t>(64 + lane);
    }
    return fullest_banks<kGroupLanes>(places);
  };
  bool falls = false;
  if (mask == 0xffffffffu) {  // repetitions next to each other are easy to see
    counts[0] = 1;
    std::uint32_t fall = 0;
    for (int lane = 1; lane < kLanes; ++lane) {
      counts[lane] = lane % kGroupLanes == 0 || (offsets[lane] ^ offsets[lane - 1]) >> kUnitShift;
      fall |= offsets[lane] < offsets[lane - 1];
    }
    falls = fall != 0;
  } else {
    for (int lane = 0; lane < kLanes; ++lane) counts[lane] = mask >> lane & 1;
    falls = true;
  }
  const std::uint32_t most = wavefronts();
  if (!falls || most == ideal) return most;  // no two lanes in a bank: nothing is repeated
  // Offsets below 64 KiB and the group fit in 14 bits: half the work of 32-bit keys.
  std::uint32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= mask >> lane & 1 ? offsets[lane] : 0;
  if (any < 1u << 16)
    drop_repeated<std::int16_t, kUnitShift, 16 - kUnitShift>(offsets, mask, counts);
  else
    drop_repeated<std::int32_t, kUnitShift, 28 - kUnitShift>(offsets, mask, counts);
  return wavefronts();
}
// access.cpp has them: they are long, and many units count wavefronts.
extern template std::uint32_t shared_wavefronts<2>(const std::uint32_t*, std::uint32_t,
                                                   std::uint32_t);
extern template std::uint32_t shared_wavefronts<3>(const std::uint32_t*, std::uint32_t,
                                                   std::uint32_t);
extern template std::uint32_t shared_wavefronts<4>(const std::uint32_t*, std::uint32_t,
                                                   std::uint32_t);

}  // namespace coalescing_detail

// Wavefronts of one shared-memory access (load, store or atomic) of a warp.
// offsets: 32 byte offsets into shared memory, only lanes in `mask` are looked at, multiples of
// `bytes`, below 2^28; bytes: of one lane's access, 1 to 16.
// Accesses of 32 bits and less are served for the whole warp at once, 64 bits in two half-warps and
// 128 bits in four quarter-warps; each takes as many wavefronts as its fullest bank has distinct
// words. Groups without active lanes take none.
inline SharedShape shared_request(const std::uint32_t* offsets, std::uint32_t mask,
                                  std::uint32_t bytes) {
  using namespace coalescing_detail;
  // A 64-bit access fills two neighbouring banks and a 128-bit one four, aligned: so a half-warp
  // asks 16 pairs of banks for units of 8 bytes, and a quarter-warp 8 fours for units of 16.
  const int unit_shift = bytes <= 4 ? 2 : bytes == 8 ? 3 : 4;
  SharedShape shape;
  if (mask == 0) return shape;
  switch (unit_shift) {
    case 2:
      shape.ideal = 1;
      break;
    case 3:
      shape.ideal = ((mask & 0xffff) != 0) + (mask >> 16 != 0);
      break;
    default:
      shape.ideal = ((mask & 0xff) != 0) + ((mask & 0xff00) != 0) + ((mask & 0xff0000) != 0) +
                    (mask >> 24 != 0);
  }
  if ((mask & (mask - 1)) == 0) return {1, 1};
  if (mask == 0xffffffffu) {
    std::int32_t stride;
    if (constant_stride(offsets, stride)) {
      const std::uint32_t unit = 1u << unit_shift;
      const std::uint32_t step = static_cast<std::uint32_t>(stride < 0 ? -stride : stride);
      if (step <= unit) return {shape.ideal, shape.ideal};  // at most 128 bytes in a row a group
      if (step % unit == 0) {
        // Distinct units, t apart, in 128 / unit banks: gcd(t, banks) lanes meet in each bank.
        const std::uint32_t banks = 128u >> unit_shift;
        const std::uint32_t apart = step >> unit_shift;
        shape.wavefronts = shape.ideal * std::min(banks, apart & (0u - apart));
        return shape;
      }
    }
  }
  shape.wavefronts = unit_shift == 2   ? shared_wavefronts<2>(offsets, mask, shape.ideal)
                     : unit_shift == 3 ? shared_wavefronts<3>(offsets, mask, shape.ideal)
                                       : shared_wavefronts<4>(offsets, mask, shape.ideal);
  return shape;
}

}  // namespace vgpu
