// Products with a sparse A (wgmma.mma_async.sp): of each chunk of a row of A only some elements are there,
// and the metadata say which (PTX ISA, "Sparse matrix storage").
//
// For types of 8 and 16 bits a chunk is 4 elements, of which 2 are there: 4 bits of metadata name their
// places, 2 bits each, the first one in the lower bits. For tf32 it is 2 elements, of which 1 is there, and
// 4 bits name the two halves of 16 bits that it consists of. A B element that no element of A meets plays
// no part: where it is infinite or NaN the sum is not.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>

#include "products.h"

namespace vgpu::tensor {

struct SparseShape {
  int bits = 16;     // bits of an element: 8, 16, or 32 (tf32)
  int selector = 0;  // which two threads of four have the metadata; with 8 bits all four do
  int kept() const { return 256 / bits; }  // elements of a row that are stored
  int in_chunk() const { return bits == 32 ? 1 : 2; }

  // The 4 bits of metadata for chunk `chunk` of row `row` of a warp's 16. `lanes`: a register of the warp.
  std::uint32_t metadata(const std::uint32_t* lanes, int row, int chunk) const {
    const int first = row % 8 * 4, half = row / 8;
    if (bits == 8) return lanes[first + chunk / 8 * 2 + half] >> chunk % 8 * 4 & 0xf;
    return lanes[first + selector * 2 + chunk / 4] >> (half * 16 + chunk % 4 * 4) & 0xf;
  }

  // Where in the row kept element `i` of a chunk with such metadata stands. Nothing: these metadata have
  // no meaning.
  std::optional<int> place(int chunk, std::uint32_t metadata, int i) const {
    const int low = static_cast<int>(metadata & 3), high = static_cast<int>(metadata >> 2);
    if (bits == 32) {
      if (low % 2 || high != low + 1) return {};
      return chunk * 2 + low / 2;
    }
    if (low == high) return {};
    return chunk * 4 + (i ? high : low);
  }
};

// A row of B or of the sums is padded to a multiple of so many elements.
inline constexpr int kRowUnit = 16;
inline constexpr int padded(int n) { return (n + kRowUnit - 1) / kRowUnit * kRowUnit; }

// sums[0..n) += a * b[0..n), each rounded once. n: padded.
template <class T>
void add_row(T a, const T* b, T* sums, int n) {
  constexpr int kLanes = Simd<T>::kLanes;
  static_assert(kRowUnit % kLanes == 0);
  Vector<T> factor;
  for (int i = 0; i < kLanes; ++i) factor[i] = a;
  for (int i = 0; i < n; i += kLanes) {
    const Vector<T> sum = multiply_add<T>(factor, load(b + i), load(sums + i));
    std::memcpy(sums + i, &sum, sizeof sum);
  }
}

}  // namespace vgpu::tensor
