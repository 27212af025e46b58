// A warp's 16 rows of a product of its warpgroup: operands, sums, and how they are multiplied.
#include "warpgroup_product.h"

#include <algorithm>

#include "../core/block.h"
#include "products.h"
#include "sparse.h"

namespace vgpu {
namespace {

using std::int32_t, std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;
using namespace tensor;

// ---- operands in shared memory --------------------------------------------------------------

// Offsets of the 16-byte pieces of `tiles` x `depth` core matrices from tile `first` on:
// [tile][deep][line].
void place_pieces(uint64_t descriptor, bool mn_major, uint32_t first, uint32_t tiles,
                  uint32_t depth, uint32_t* at) {
  const MatrixDescriptor d = decode_descriptor(descriptor);
  for (uint32_t tile = first; tile < first + tiles; ++tile)
    for (uint32_t deep = 0; deep < depth; ++deep, at += 8)
      core_matrix_lines(d, mn_major, tile, deep, at);
}
}  // namespace

void place_a(const Warp& warp, const WarpgroupOp& op, uint64_t descriptor, uint32_t* at) {
  place_pieces(descriptor, op.a_mn_major, warp.index % kWarpsOfGroup * 2, 2, 2, at);
}
int place_b(const WarpgroupOp& op, uint64_t descriptor, uint32_t* at) {
  const int depth = op.depth();
  place_pieces(descriptor, op.b_mn_major, 0, static_cast<uint32_t>(op.n / 8),
               static_cast<uint32_t>(depth), at);
  return op.n / 8 * depth * 8;
}

namespace {

// A core matrix as registers have it: 4 neighbouring lanes hold a row of M or N.
void read_core_matrix(const Warp& warp, const uint32_t* at, bool mn_major, uint32_t* lanes) {
  Half8 lines[8];
  for (int line = 0; line < 8; ++line)
    std::memcpy(&lines[line], warp.block->shared + at[line], sizeof(Half8));
  if (mn_major) transpose(lines);
  std::memcpy(lanes, lines, sizeof lines);
}

// ---- products -------------------------------------------------------------------------------

// [element][32 lanes].
void unpack_as(Type type, const uint32_t* lanes, float* out) {
  switch (type) {
    case Type::f16:
      return unpack<Type::f16>(lanes, out);
    case Type::bf16:
      return unpack<Type::bf16>(lanes, out);
    case Type::tf32:
      return unpack<Type::tf32>(lanes, out);
    case Type::e4m3:
      return unpack<Type::e4m3>(lanes, out);
    default:
      return unpack<Type::e5m2>(lanes, out);
  }
}
void unpack_as(Type type, const uint32_t* lanes, uint32_t* out) {
  type == Type::s8 ? unpack<Type::s8>(lanes, out) : unpack<Type::u8>(lanes, out);
}

// The sums of 8 columns, [half of the rows][even and odd columns][32 lanes], from registers.
void read_sums(Warp& warp, const WarpgroupOp& op, const uint32_t* list, float* sums) {
  for (int r = 0; r < op.per_tile(); ++r) {
    const uint32_t* lanes = warp.lanes<const uint32_t>(Slot{list[r]});
    if (op.d == Type::f16)
      unpack<Type::f16>(lanes, sums + 2 * kWarpSize * r);
    else
      std::memcpy(sums + kWarpSize * r, lanes, 4 * kWarpSize);
  }
}
void write_sums(Warp& warp, const WarpgroupOp& op, const uint32_t* list, const float* sums) {
  for (int r = 0; r < op.per_tile(); ++r) {
    uint32_t* lanes = warp.lanes<uint32_t>(Slot{list[r]});
    if (op.d != Type::f16) {
      for (int lane = 0; lane < kWarpSize; ++lane)
        lanes[lane] = std::bit_cast<uint32_t>(canonical(sums[kWarpSize * r + lane]));
      continue;
    }
    alignas(64) uint16_t low[kWarpSize], high[kWarpSize];
    floats_to_halves(sums + 2 * kWarpSize * r, low);
    floats_to_halves(sums + 2 * kWarpSize * r + kWarpSize, high);
    for (int lane = 0; lane < kWarpSize; ++lane)
      lanes[lane] = static_cast<uint32_t>(high[lane]) << 16 | low[lane];
  }
}
void read_sums(Warp& warp, const WarpgroupOp&, const uint32_t* list, uint32_t* sums) {
  for (int r = 0; r < 4; ++r)
    std::memcpy(sums + kWarpSize * r, warp.lanes<uint32_t>(Slot{list[r]}), 4 * kWarpSize);
}
void write_sums(Warp& warp, const WarpgroupOp&, const uint32_t* list, const uint32_t* sums) {
  for (int r = 0; r < 4; ++r)
    std::memcpy(warp.lanes<uint32_t>(Slot{list[r]}), sums + kWarpSize * r, 4 * kWarpSize);
}

}  // namespace

void read_a(Warp& warp, const Instr& instr, uint64_t descriptor, uint32_t (*words)[kWarpSize]) {
  const WarpgroupOp& op = op_of(instr);
  if (op.a_in_registers) {
    for (int r = 0; r < 4; ++r)
      std::memcpy(words[r], warp.lanes<uint32_t>(Slot{instr.list[instr.list_results + r]}),
                  4 * kWarpSize);
    return;
  }
  uint32_t at[kPiecesOfA];
  place_a(warp, op, descriptor, at);
  for (int half = 0; half < 2; ++half)
    for (int deep = 0; deep < 2; ++deep)
      read_core_matrix(warp, at + (half * 2 + deep) * 8, op.a_mn_major, words[deep * 2 + half]);
}

void read_b(Warp& warp, const WarpgroupOp& op, uint64_t descriptor, uint32_t (*words)[kWarpSize]) {
  uint32_t at[kMostPiecesOfB];
  const int pieces = place_b(op, descriptor, at);
  for (int i = 0; i < pieces; i += 8) read_core_matrix(warp, at + i, op.b_mn_major, *words++);
}

namespace {

// The same of a product whose operands may have been read before.
void read_a(Warp& warp, const PendingProduct& product, uint32_t (*words)[kWarpSize]) {
  if (product.operands && !op_of(*product.instr).a_in_registers)
    std::memcpy(words, product.operands->a, sizeof product.operands->a);
  else
    read_a(warp, *product.instr, product.a, words);
}
const uint32_t (*words_of(Warp& warp, const PendingProduct& product,
                          uint32_t (*space)[kWarpSize]))[kWarpSize] {
  if (product.operands) return product.operands->b.get();
  read_b(warp, op_of(*product.instr), product.b, space);
  return space;
}

template <class T>
void multiply(Warp& warp, const PendingProduct& product) {
  const Instr& instr = *product.instr;
  const WarpgroupOp& op = op_of(instr);
  const int each = op.each();
  alignas(64) uint32_t words[4][kWarpSize], sorted[kWarpSize];
  alignas(64) T a[4 * 4 * kWarpSize], b[2 * 4 * kWarpSize], sums[4 * kWarpSize];
  read_a(warp, product, words);
  for (int r = 0; r < 4; ++r) unpack_as(op.a, words[r], a + r * each * kWarpSize);
  if constexpr (std::is_floating_point_v<T>)
    if (op.negate)
      for (int i = 0; i < 4 * each * kWarpSize; ++i) a[i] = -a[i];
  alignas(64) uint32_t space[kMostColumns / 8 * 2][kWarpSize];
  const auto* const words_of_b = words_of(warp, product, space);
  for (int tile = 0; tile < op.n / 8; ++tile) {
    for (int deep = 0; deep < 2; ++deep) {
      sort_columns(words_of_b[tile * 2 + deep], sorted);
      unpack_as(op.b, sorted, b + deep * each * kWarpSize);
    }
    const uint32_t* list = instr.list + tile * op.per_tile();
    if (op.saturate || !product.accumulates)
      std::fill_n(sums, 4 * kWarpSize, T{});
    else
      read_sums(warp, op, list, sums);
    multiply_tile<T, 2>(a, b, sums, 2, each);
    if constexpr (std::is_integral_v<T>)
      if (op.saturate && product.accumulates) {
        alignas(64) T before[4 * kWarpSize];
        read_sums(warp, op, list, before);
        for (int i = 0; i < 4 * kWarpSize; ++i)
          sums[i] = static_cast<T>(std::clamp<int64_t>(
              int64_t{static_cast<int32_t>(before[i])} + static_cast<int32_t>(sums[i]), INT32_MIN,
              INT32_MAX));
      }
    write_sums(warp, op, list, sums);
  }
}

// The sums of 8 columns belong to these rows and columns.
struct SumPlace {
  int row, column;
};
constexpr SumPlace place_of_sum(int i) {
  const int lane = i % kWarpSize;
  return {i / 64 * 8 + lane / 4, lane % 4 * 2 + i / kWarpSize % 2};
}

[[noreturn]] void refuse_metadata(Warp& warp, const Instr& instr, int row, int chunk,
                                  uint32_t metadata) {
  const bool pairs = op_of(instr).a != Type::tf32;
  throw Fault{FaultKind::illegal_instruction,
              describe(warp, instr, row % 8 * 4,
                       "the metadata of a sparse A are " + std::to_string(metadata) +
                           " for chunk " + std::to_string(chunk) + " of row " +
                           std::to_string(warp.index % kWarpsOfGroup * 16 + row) + ", where " +
                           (pairs ? "the two places must differ, executed"
                                  : "they must be 4 or 14, executed"))};
}

// The elements of A that are there, each times the row of B that it meets.
template <class T>
void multiply_sparse(Warp& warp, const PendingProduct& product) {
  const Instr& instr = *product.instr;
  const WarpgroupOp& op = op_of(instr);
  const SparseShape shape{type_bits(op.a), op.selector};
  const int each = op.each(), tiles = op.n / 8, wide = padded(op.n);
  alignas(64) uint32_t words[4][kWarpSize];
  alignas(64) T a[4 * 4 * kWarpSize], part[4 * kWarpSize];
  read_a(warp, product, words);
  for (int r = 0; r < 4; ++r) unpack_as(op.a, words[r], a + r * each * kWarpSize);
  if constexpr (std::is_floating_point_v<T>)
    if (op.negate)
      for (int i = 0; i < 4 * each * kWarpSize; ++i) a[i] = -a[i];

  alignas(64) uint32_t space[kMostColumns / 8 * 4][kWarpSize];
  const auto* const words_of_b = words_of(warp, product, space);
  std::vector<T> b(static_cast<std::size_t>(op.k * wide));  // [k][column]
  for (int core = 0; core < tiles * 4; ++core) {
    unpack_as(op.b, words_of_b[core], part);
    for (int i = 0; i < each * kWarpSize; ++i) {
      const int lane = i % kWarpSize, k = (core % 4 * 4 + lane % 4) * each + i / kWarpSize;
      b[static_cast<std::size_t>(k * wide + core / 4 * 8 + lane / 4)] = part[i];
    }
  }

  std::vector<T> sums(static_cast<std::size_t>(16 * wide));  // [row][column]
  const auto each_tile = [&](bool stores) {
    for (int tile = 0; tile < tiles; ++tile) {
      const uint32_t* list = instr.list + tile * op.per_tile();
      const bool adds = product.accumulates && (stores ? op.saturate : !op.saturate);
      if (adds) read_sums(warp, op, list, part);
      for (int i = 0; i < 4 * kWarpSize; ++i) {
        const SumPlace at = place_of_sum(i);
        T& sum = sums[static_cast<std::size_t>(at.row * wide + tile * 8 + at.column)];
        if (!stores) {
          if (adds) sum = part[i];
        } else if constexpr (std::is_integral_v<T>) {
          const int64_t all =
              int64_t{static_cast<int32_t>(sum)} + (adds ? static_cast<int32_t>(part[i]) : 0);
          part[i] = static_cast<T>(std::clamp<int64_t>(all, INT32_MIN, INT32_MAX));
        } else {
          part[i] = sum;
        }
      }
      if (stores) write_sums(warp, op, list, part);
    }
  };
  each_tile(false);
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < shape.kept(); ++i) {
      const int rest = i % (4 * each), r = i / (4 * each) * 2 + row / 8;
      const T value = a[(r * each + rest % each) * kWarpSize + row % 8 * 4 + rest / each];
      const int chunk = i / shape.in_chunk();
      const uint32_t metadata = shape.metadata(warp.lanes<const uint32_t>(instr.e), row, chunk);
      const auto k = shape.place(chunk, metadata, i % shape.in_chunk());
      if (!k && value == T{}) continue;  // what is filled up at the edge of a matrix may have none
      if (!k) refuse_metadata(warp, instr, row, chunk, metadata);
      add_row(value, &b[static_cast<std::size_t>(*k * wide)],
              &sums[static_cast<std::size_t>(row * wide)], wide);
    }
  }
  each_tile(true);
}

// Single bits: the number of places where both have a one.
void multiply_bits(Warp& warp, const PendingProduct& product) {
  const Instr& instr = *product.instr;
  const WarpgroupOp& op = op_of(instr);
  alignas(64) uint32_t a[4][kWarpSize], sums[4 * kWarpSize];
  read_a(warp, product, a);
  alignas(64) uint32_t space[kMostColumns / 8 * 2][kWarpSize];
  const auto* const words_of_b = words_of(warp, product, space);
  for (int tile = 0; tile < op.n / 8; ++tile) {
    const auto* const b = words_of_b + tile * 2;
    const uint32_t* list = instr.list + tile * 4;
    std::fill_n(sums, 4 * kWarpSize, 0u);
    if (product.accumulates) read_sums(warp, op, list, sums);
    for (int i = 0; i < 4 * kWarpSize; ++i) {
      const int half = i / 64, lane = i % kWarpSize, row = lane / 4,
                column = lane % 4 * 2 + i / kWarpSize % 2;
      for (int word = 0; word < 8; ++word)
        sums[i] += static_cast<uint32_t>(std::popcount(a[word / 4 * 2 + half][row * 4 + word % 4] &
                                                       b[word / 4][column * 4 + word % 4]));
    }
    write_sums(warp, op, list, sums);
  }
}

}  // namespace

void multiply_for_warp(Warp& warp, const PendingProduct& product) {
  const WarpgroupOp& op = op_of(*product.instr);
  if (op.a == Type::b1) return multiply_bits(warp, product);
  const bool integers = op.d == Type::s32;
  if (op.sparse)
    (integers ? multiply_sparse<uint32_t> : multiply_sparse<float>)(warp, product);
  else
    (integers ? multiply<uint32_t> : multiply<float>)(warp, product);
}

}  // namespace vgpu
