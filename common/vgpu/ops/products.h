// Products of fragments (tiles.h), on the host's vectors and where the registers have the elements.
//
// Four neighbouring lanes are a quad. It holds one row of an accumulator, one row of A and one column
// of B. For each k, in rising order, a lane takes the element of A from its own quad and that of B
// from the quad that has its column: registers of B are sorted for this, once an instruction.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "half.h"

namespace vgpu::tensor {

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;

#if defined(__AVX512F__)
inline constexpr int kWidest = 64;
#elif defined(__AVX2__)
inline constexpr int kWidest = 32;
#else
inline constexpr int kWidest = 16;
#endif

// Lanes as the host computes them at once: whole quads.
template <class T>
struct Simd {
  static constexpr int kBytes = std::max<int>(kWidest, 4 * sizeof(T));
  static constexpr int kLanes = kBytes / static_cast<int>(sizeof(T));
  using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  typedef T Vector __attribute__((vector_size(kBytes)));
  typedef Index Indices __attribute__((vector_size(kBytes)));
};

template <class T>
using Vector = typename Simd<T>::Vector;

// a b + c, rounded once.
template <class T>
inline Vector<T> multiply_add(Vector<T> a, Vector<T> b, Vector<T> c) {
  if constexpr (std::is_integral_v<T>) return a * b + c;
#if defined(__AVX512F__)
  else if constexpr (std::is_same_v<T, float>)
    return reinterpret_cast<Vector<T>>(_mm512_fmadd_ps(
        reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
  else
    return reinterpret_cast<Vector<T>>(_mm512_fmadd_pd(
        reinterpret_cast<__m512d>(a), reinterpret_cast<__m512d>(b), reinterpret_cast<__m512d>(c)));
#elif defined(__AVX2__) && defined(__FMA__)
  else if constexpr (std::is_same_v<T, float>)
    return reinterpret_cast<Vector<T>>(_mm256_fmadd_ps(
        reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
  else
    return reinterpret_cast<Vector<T>>(_mm256_fmadd_pd(
        reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
#else
  else {
    for (int i = 0; i < Simd<T>::kLanes; ++i) c[i] = std::fma(a[i], b[i], c[i]);
    return c;
  }
#endif
}

template <class T>
inline Vector<T> load(const T* from) {
  Vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Element kLane of each quad, in all four lanes of the quad.
template <class T, int kLane>
inline Vector<T> spread(Vector<T> v) {
  return [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return __builtin_shuffle(v, typename Simd<T>::Indices{(kIndex / 4 * 4 + kLane)...});
  }
  (std::make_integer_sequence<int, Simd<T>::kLanes>());
}

// The same four elements in every quad.
template <class T>
inline Vector<T> repeat(const T* quad) {
  if constexpr (sizeof(Vector<T>) == 4 * sizeof(T)) return load(quad);
#if defined(__AVX512F__)
  else if constexpr (sizeof(T) == 8)
    return reinterpret_cast<Vector<T>>(
        _mm512_broadcast_f64x4(_mm256_loadu_pd(reinterpret_cast<const double*>(quad))));
  else
    return reinterpret_cast<Vector<T>>(
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(quad))));
#elif defined(__AVX2__)
  else
    return reinterpret_cast<Vector<T>>(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(quad))));
#endif
}

// c += a b for one tile of 8 x kHalves rows and 8 columns.
//   a: [k / (4 each)][half][element][32 lanes], as the registers come
//   b: [k / (4 each)][element][lane of the quad][even and odd columns][4], see sort_columns
//   c: [half][even and odd columns][32 lanes], as the registers come
template <class T, int kHalves>
void multiply_tile(const T* a, const T* b, T* c, int registers, int each) {
  constexpr int kLanes = Simd<T>::kLanes;
  constexpr int kTogether = std::min(2, kWarpSize / kLanes);  // so that sums stay in registers
  for (int first = 0; first < kWarpSize; first += kTogether * kLanes) {
    Vector<T> sums[kHalves][2][kTogether];
    for (int i = 0; i < 2 * kHalves; ++i)
      for (int v = 0; v < kTogether; ++v)
        sums[i / 2][i % 2][v] = load(c + i * kWarpSize + first + v * kLanes);
    for (int r = 0; r < registers; ++r) {
      const auto lane_of_quad = [&]<int kLane>(std::integral_constant<int, kLane>) {
        for (int j = 0; j < each; ++j) {
          const T* columns = b + (r * each + j) * kWarpSize + kLane * 8;
          const Vector<T> even = repeat(columns), odd = repeat(columns + 4);
#pragma GCC unroll 2
          for (int half = 0; half < kHalves; ++half)
#pragma GCC unroll 2
            for (int v = 0; v < kTogether; ++v) {
              const T* rows = a + ((r * kHalves + half) * each + j) * kWarpSize + first;
              const Vector<T> row = spread<T, kLane>(load(rows + v * kLanes));
              sums[half][0][v] = multiply_add<T>(row, even, sums[half][0][v]);
              sums[half][1][v] = multiply_add<T>(row, odd, sums[half][1][v]);
            }
        }
      };
      lane_of_quad(std::integral_constant<int, 0>());
      lane_of_quad(std::integral_constant<int, 1>());
      lane_of_quad(std::integral_constant<int, 2>());
      lane_of_quad(std::integral_constant<int, 3>());
    }
    for (int i = 0; i < 2 * kHalves; ++i)
      for (int v = 0; v < kTogether; ++v)
        std::memcpy(c + i * kWarpSize + first + v * kLanes, &sums[i / 2][i % 2][v],
                    sizeof(Vector<T>));
  }
}

// The lane whose word stands at `place` of a sorted register of B.
constexpr int column_order(int place) {
  const int lane_of_quad = place / 8, odd = place / 4 % 2, column = place % 4 * 2 + odd;
  return column * 4 + lane_of_quad;
}
// A register of B, [column][lane of the quad], as [lane of the quad][even, odd][column / 2].
template <class Word>
void sort_columns(const Word* lanes, Word* sorted) {
  if constexpr (sizeof(Vector<Word>) == 16 * sizeof(Word)) {  // all lanes are in two vectors
    const Vector<Word> low = load(lanes), high = load(lanes + 16);
    [&]<int... kAt>(std::integer_sequence<int, kAt...>) {
      using Indices = typename Simd<Word>::Indices;
      const Vector<Word> first = __builtin_shuffle(low, high, Indices{column_order(kAt)...}),
                         second = __builtin_shuffle(low, high, Indices{column_order(16 + kAt)...});
      std::memcpy(sorted, &first, sizeof first);
      std::memcpy(sorted + 16, &second, sizeof second);
    }
    (std::make_integer_sequence<int, 16>());
    return;
  }
  typedef Word Quad __attribute__((vector_size(4 * sizeof(Word))));
  for (int odd = 0; odd < 2; ++odd) {
    Quad q[4];
    for (int i = 0; i < 4; ++i) std::memcpy(&q[i], lanes + (2 * i + odd) * 4, sizeof(Quad));
    const Quad low02 = __builtin_shuffle(q[0], q[2], Quad{0, 4, 1, 5}),
               low13 = __builtin_shuffle(q[1], q[3], Quad{0, 4, 1, 5}),
               high02 = __builtin_shuffle(q[0], q[2], Quad{2, 6, 3, 7}),
               high13 = __builtin_shuffle(q[1], q[3], Quad{2, 6, 3, 7});
    const Quad lines[4] = {__builtin_shuffle(low02, low13, Quad{0, 4, 1, 5}),
                           __builtin_shuffle(low02, low13, Quad{2, 6, 3, 7}),
                           __builtin_shuffle(high02, high13, Quad{0, 4, 1, 5}),
                           __builtin_shuffle(high02, high13, Quad{2, 6, 3, 7})};
    for (int t = 0; t < 4; ++t) std::memcpy(sorted + t * 8 + odd * 4, &lines[t], sizeof(Quad));
  }
}

// 8 lines of 8 elements, with lines and columns exchanged. In three rounds, each of which interleaves
// the first half of the elements with the second.
inline void transpose(Half8* lines) {
  for (int round = 0; round < 3; ++round) {
    Half8 next[8];
    for (int i = 0; i < 4; ++i) {
      next[2 * i] = __builtin_shuffle(lines[i], lines[i + 4], Half8{0, 8, 1, 9, 2, 10, 3, 11});
      next[2 * i + 1] =
          __builtin_shuffle(lines[i], lines[i + 4], Half8{4, 12, 5, 13, 6, 14, 7, 15});
    }
    std::copy_n(next, 8, lines);
  }
}

// A vector of fp16 numbers as fp32.
template <class Halves>
inline Vector<float> floats_from(Halves halves) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector<float>>(_mm512_cvtph_ps(reinterpret_cast<__m256i>(halves)));
#elif defined(__AVX2__) && defined(__F16C__)
  return reinterpret_cast<Vector<float>>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(halves)));
#else
  Vector<float> v;
  for (int i = 0; i < Simd<float>::kLanes; ++i) v[i] = float_from_half(halves[i]);
  return v;
#endif
}

// The elements of 32 lanes of a register as numbers, [element][32 lanes]. (A NaN stays some NaN.)
template <Type kType>
void unpack(const uint32_t* lanes, float* out) {
  constexpr bool kFp8 = kType == Type::e4m3 || kType == Type::e5m2;
  if constexpr (kType == Type::f16 || kFp8) {
    typedef uint32_t Words __attribute__((vector_size(kWidest)));
    typedef uint16_t Halves __attribute__((vector_size(kWidest / 2)));
    constexpr int kBits = kFp8 ? 8 : 16;
    for (int lane = 0; lane < kWarpSize; lane += Simd<float>::kLanes) {
      Words words;
      std::memcpy(&words, lanes + lane, sizeof words);
      for (int j = 0; j < 32 / kBits; ++j) {
        Words half = words >> (kBits * j);
        if constexpr (kType == Type::e5m2) half <<= 8;  // the upper byte of an fp16 number
        if constexpr (kType == Type::e4m3) half = (half & 0x80) << 8 | (half & 0x7f) << 7;
        Vector<float> v = floats_from(__builtin_convertvector(half, Halves));
        if constexpr (kType == Type::e4m3) {  // exponents of fp16 count from 8 less; all ones: NaN
          v *= 256;
          const Words finite = (words >> (kBits * j) & 0x7f) != 0x7f;
          v = reinterpret_cast<Vector<float>>((reinterpret_cast<Words>(v) & finite) |
                                              (~finite >> 1));
        }
        std::memcpy(out + j * kWarpSize + lane, &v, sizeof v);
      }
    }
  } else if constexpr (kType == Type::bf16) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      out[lane] = std::bit_cast<float>(lanes[lane] << 16);
      out[kWarpSize + lane] = std::bit_cast<float>(lanes[lane] & 0xffff0000u);
    }
  } else if constexpr (kType == Type::tf32) {  // the low 13 bits do not take part
    for (int lane = 0; lane < kWarpSize; ++lane)
      out[lane] = std::bit_cast<float>(lanes[lane] & 0xffffe000u);
  } else {
    std::memcpy(out, lanes, 4 * kWarpSize);
  }
}
// Integers of 32 bits, whose sums wrap around.
template <Type kType>
void unpack(const uint32_t* lanes, uint32_t* out) {
  if constexpr (kType == Type::s32) {
    std::memcpy(out, lanes, 4 * kWarpSize);
  } else {
    constexpr int kBits = kType == Type::s8 || kType == Type::u8 ? 8 : 4;
    for (int j = 0; j < 32 / kBits; ++j)
      for (int lane = 0; lane < kWarpSize; ++lane) {
        const uint32_t top = lanes[lane] << (32 - kBits - kBits * j);
        out[j * kWarpSize + lane] =
            kType == Type::s8 || kType == Type::s4
                ? static_cast<uint32_t>(static_cast<int32_t>(top) >> (32 - kBits))
                : top >> (32 - kBits);
      }
  }
}
template <Type>
void unpack(const uint64_t* lanes, double* out) {
  std::memcpy(out, lanes, 8 * kWarpSize);
}

}  // namespace vgpu::tensor
