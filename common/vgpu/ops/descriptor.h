// Matrix descriptors of wgmma: where an operand lies in shared memory (PTX ISA, "Asynchronous
// Warpgroup Level Matrix Shared Memory Layout").
//
// An operand consists of core matrices: 8 lines of 16 bytes. It is K-major when a line runs along K, and
// MN-major when it runs along M or N. Of an operand that is K-major the core matrices are counted by
// (8 rows of M or N, 16 bytes of K), of one that is MN-major by (16 bytes of M or N, 8 rows of K). A product
// is always two core matrices deep. Without a swizzle the 8 lines of a core matrix follow one another;
// with a swizzle of 32, 64 or 128 bytes, lines of so many bytes do, and the 16-byte pieces of a line
// change places with its number.
#pragma once
#include <cstdint>

namespace vgpu {

struct MatrixDescriptor {
  std::uint32_t start = 0;    // bytes; bits 0 to 13, in units of 16 bytes, as the next two
  std::uint32_t leading = 0;  // leading dimension byte offset: bits 16 to 29
  std::uint32_t stride = 0;   // stride dimension byte offset: bits 32 to 45
  std::uint32_t base = 0;     // base offset: bits 49 to 51
  std::uint32_t row = 16;     // bytes of a line: 32, 64 or 128 with a swizzle (bits 62 and 63)
  bool swizzled() const { return row != 16; }
};

inline MatrixDescriptor decode_descriptor(std::uint64_t bits) {
  constexpr std::uint32_t kRows[] = {16, 128, 64, 32};
  const auto field = [&](int first) {
    return static_cast<std::uint32_t>(bits >> first & 0x3fff) * 16;
  };
  return {field(0), field(16), field(32), static_cast<std::uint32_t>(bits >> 49 & 7),
          kRows[bits >> 62]};
}

// Offsets in shared memory of the 8 lines of a core matrix: `tile` counts along M or N, `deep` (0 or 1)
// along K. The window of a descriptor is 256 KiB, in which addresses wrap around.
inline void core_matrix_lines(const MatrixDescriptor& d, bool mn_major, std::uint32_t tile,
                              std::uint32_t deep, std::uint32_t* at) {
  constexpr std::uint32_t kWindow = 1u << 18, kPiece = 16;
  const std::uint32_t pieces = d.row / kPiece;  // pieces of a line: a power of two
  std::uint32_t first = d.start;
  if (!d.swizzled())
    first += tile * d.stride + deep * d.leading;
  else if (!mn_major)
    first += tile * d.stride + deep * kPiece;
  else
    first += tile / pieces * d.leading + tile % pieces * kPiece + deep * d.stride;
  // The number of the 128 bytes in which a piece lies, counted from where the pattern begins, changes
  // its place among the 8, 4 or 2 pieces of a line.
  for (std::uint32_t line = 0; line < 8; ++line) {
    const std::uint32_t straight = first + line * d.row;
    at[line] = (straight ^ (((straight >> 7) - d.base) & (pieces - 1)) * kPiece) & (kWindow - 1);
  }
}

}  // namespace vgpu
