// The tile vocabulary: what kernels on tensor cores are written with. Thin wrappers over PTX, each
// with its shape and its section of the PTX ISA manual, and types that say where an element lies:
//
//   SharedTile<Element, kRows, kColumns, Layout>   a tile in shared memory, in pieces of 16 bytes
//   copy_async, end_copies, wait_for_copies        global → shared, while the warp goes on
//   Stages<kCount>                                 which of several tiles is whose turn
//   LeftFragment, RightFragment, Sums              operands and sums of one product, in registers
//   load_left, load_right                          shared → registers (ldmatrix)
//   multiply_add                                   sums += left rightᵀ (mma.sync)
//
// A piece of 16 bytes, 8 halves or 4 floats, is what an asynchronous copy brings and what ldmatrix
// reads of a row. All products add up 32 bytes of each row, so that fp16 (16 numbers) and tf32 (8
// floats) go the same ways and differ in multiply_add alone.
//
// From sm_80 on each wrapper is one instruction. For sm_75, which has neither asynchronous copies
// nor m16n8k16, a copy is a load and a store, and a product two of m16n8k8; it has no tf32 at all.
// The README beside it shows a whole kernel.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace tile {

constexpr int kPieceBytes = 16;
template <class Element>
constexpr int kOfPiece = kPieceBytes / int(sizeof(Element));  // elements of a piece
template <class Element>
constexpr int kDepth = 2 * kOfPiece<Element>;  // elements that one product adds up: 16 or 8

// An address in shared memory as PTX has it, 32 bits ("Addresses as Operands": cvta.to.shared).
__device__ inline uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// ---- Tiles in shared memory ---------------------------------------------------------------------

// How rows lie in shared memory: byte_of(row, piece) is where a piece begins. Eight pieces of 16
// bytes fill all 32 banks; eight lanes whose pieces lie in different groups of four banks are
// served at once. ldmatrix reads a piece of eight neighbouring rows, a copy writes neighbouring
// pieces of a row.

// One row after the other: rows of 128 bytes begin in the same bank, ldmatrix takes eight turns.
template <int kRowBytes>
struct Plain {
  static constexpr unsigned kPitch = kRowBytes;
  __host__ __device__ static constexpr unsigned byte_of(unsigned row, unsigned piece) {
    return row * kPitch + piece * kPieceBytes;
  }
};
// A piece of nothing behind each row. ldmatrix has no conflicts then; copies of rows of 64 bytes
// do.
template <int kRowBytes>
struct Padded {
  static constexpr unsigned kPitch = kRowBytes + kPieceBytes;
  __host__ __device__ static constexpr unsigned byte_of(unsigned row, unsigned piece) {
    return row * kPitch + piece * kPieceBytes;
  }
};
// Nothing behind them. Instead each row has its pieces in an order of its own: piece p lies at
// p ^ key(row), and any eight neighbouring rows have keys that bring a piece to different banks.
template <int kRowBytes>
struct Swizzled {
  static constexpr unsigned kPitch = kRowBytes;
  static constexpr unsigned kPieces = kRowBytes / kPieceBytes < 8 ? kRowBytes / kPieceBytes : 8;
  static constexpr unsigned kRowsOfLine = 8 / kPieces;  // rows in 128 bytes
  static_assert(kPieces == 2 || kPieces == 4 || kPieces == 8,
                "rows of 32, 64, or n times 128 bytes");
  static_assert(kRowBytes % (kPieces * kPieceBytes) == 0);
  __host__ __device__ static constexpr unsigned key(unsigned row) {
    return row / kRowsOfLine % kPieces;
  }
  __host__ __device__ static constexpr unsigned byte_of(unsigned row, unsigned piece) {
    return row * kPitch + (piece ^ key(row)) * kPieceBytes;
  }
};

// kRows x kColumns elements in shared memory; Layout is one of those above.
template <class Element_, int kRows_, int kColumns_, template <int> class Layout_>
struct alignas(128) SharedTile {
  using Element = Element_;
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kPieces = kColumns / kOfPiece<Element>;  // pieces per row
  using Layout = Layout_<kPieces * kPieceBytes>;
  static_assert(kColumns % kDepth<Element> == 0, "whole products");

  unsigned char bytes[kRows * Layout::kPitch];

  __device__ uint32_t address(unsigned row, unsigned piece) const {
    return shared_address(bytes) + Layout::byte_of(row, piece);
  }
  __device__ Element& at(unsigned row, unsigned column) {
    constexpr unsigned kOf = kOfPiece<Element>;
    return reinterpret_cast<Element*>(bytes + Layout::byte_of(row, column / kOf))[column % kOf];
  }
};

// ---- Asynchronous copies ------------------------------------------------------------------------

// 16 bytes from registers to shared memory. PTX ISA, "st" (.shared.v4.u32).
__device__ inline void store_piece(uint32_t to_shared, uint4 piece) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to_shared), "r"(piece.x),
               "r"(piece.y), "r"(piece.z), "r"(piece.w)
               : "memory");
}

// 16 bytes from global to shared memory, past the L1 and without registers; zeros where `there` is
// false, and then nothing is read. Both addresses are multiples of 16.
// PTX ISA, "Data Movement and Conversion Instructions: cp.async".
__device__ inline void copy_async(uint32_t to_shared, const void* from_global, bool there = true) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from_global),
               "r"(there ? 16 : 0)
               : "memory");
#else
  store_piece(to_shared, there ? *static_cast<const uint4*>(from_global) : uint4{});
#endif
}

// The copies that this thread has asked for since the last call become a group.
// PTX ISA, "cp.async.commit_group".
__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all of this thread's groups but the newest kNewest have arrived. What others copied
// is there behind the next __syncthreads(). PTX ISA, "cp.async.wait_group".
template <int kNewest>
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

// Whose turn it is among kCount stages of shared memory: `read` is multiplied, `write` is filled,
// and is kCount - 1 steps ahead. Each step ends one group of copies, also where it copies nothing,
// so that the stage to read has arrived when all but the newest kCount - 2 groups have.
template <int kCount>
struct Stages {
  static_assert(kCount >= 2, "a stage to read and one to write");
  static constexpr int kAhead = kCount - 1;
  int read = 0, write = kAhead;

  // Waits for the stage to read, of all threads of the block. All are done with the one to write.
  __device__ static void wait() {
    wait_for_copies<kCount - 2>();
    __syncthreads();
  }
  __device__ void next() {
    read = read + 1 == kCount ? 0 : read + 1;
    write = write + 1 == kCount ? 0 : write + 1;
  }
};

// ---- Fragments ----------------------------------------------------------------------------------

// Operands of one product, as registers of 32 bits. Lane 4 g + t has, with half two numbers and
// with float one in each register:
//   LeftFragment   [16, kDepth]  rows g (registers 0, 2) and g + 8 (1, 3)
//   RightFragment  [8, kDepth]   row g; the product is with its transpose: a row is a column of sums
//   Sums           [16, 8]       rows g (0, 1) and g + 8 (2, 3), columns 2 t and 2 t + 1
// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "... mma.m16n8k8".
template <class Element>
struct LeftFragment {
  uint32_t registers[4];
};
template <class Element>
struct RightFragment {
  uint32_t registers[2];
};
struct Sums {
  float value[4] = {};
  __device__ static int row(int lane, int i) { return lane / 4 + i / 2 * 8; }
  __device__ static int column(int lane, int i) { return lane % 4 * 2 + i % 2; }
};

// Four matrices of 8 rows of 16 bytes, whose addresses lanes 0-7, 8-15, 16-23 and 24-31 give: lane
// 4 g + t gets the t-th 4 bytes of row g of each.
// PTX ISA, "Warp-level Matrix Load Instruction: ldmatrix" (.x4.m8n8.b16).
__device__ inline void ldmatrix(uint32_t (&to)[4], uint32_t from_shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from_shared)
               : "memory");
}
// The same with each matrix of 8 x 8 halves transposed: lane 4 g + t gets elements 2 t and 2 t + 1
// of column g. PTX ISA, ldmatrix (.trans).
__device__ inline void ldmatrix_transposed(uint32_t (&to)[4], uint32_t from_shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from_shared)
               : "memory");
}

// A float as tf32, rounded to nearest: 10 bits behind the point. PTX ISA, "cvt" (.rna.tf32.f32).
__device__ inline uint32_t to_tf32(uint32_t float_bits) {
#if __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(float_bits)));
  return bits;
#else
  return float_bits;
#endif
}

// 16 rows of a tile from `row` on, and of these the 32 bytes from `piece` on; floats become tf32.
template <class Tile>
__device__ void load_left(LeftFragment<typename Tile::Element>& to, const Tile& from, unsigned row,
                          unsigned piece) {
  const unsigned lane = threadIdx.x % 32;
  ldmatrix(to.registers, from.address(row + lane % 16, piece + lane / 16));
  if constexpr (std::is_same_v<typename Tile::Element, float>)
    for (uint32_t& r : to.registers) r = to_tf32(r);
}
// Likewise two right operands: rows `row` to row + 7, and row + 8 to row + 15.
template <class Tile>
__device__ void load_right(RightFragment<typename Tile::Element> (&to)[2], const Tile& from,
                           unsigned row, unsigned piece) {
  const unsigned lane = threadIdx.x % 32;
  uint32_t r[4];
  ldmatrix(r, from.address(row + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2));
  if constexpr (std::is_same_v<typename Tile::Element, float>)
    for (uint32_t& bits : r) bits = to_tf32(bits);
  to[0] = {{r[0], r[1]}};
  to[1] = {{r[2], r[3]}};
}

// ---- Products -----------------------------------------------------------------------------------

// sums += left rightᵀ; products of halves are exact, sums fp32.
// PTX ISA, "Multiply-and-Accumulate Instruction: mma" (.m16n8k16, on sm_75 twice .m16n8k8).
__device__ inline void multiply_add(Sums& sums, const LeftFragment<half>& left,
                                    const RightFragment<half>& right) {
  float(&s)[4] = sums.value;
  const uint32_t(&a)[4] = left.registers, (&b)[2] = right.registers;
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}
// The same of numbers in tf32. Code for sm_75 has no such instruction: it traps.
// PTX ISA, mma (.m16n8k8, .tf32).
__device__ inline void multiply_add(Sums& sums, const LeftFragment<float>& left,
                                    const RightFragment<float>& right) {
#if __CUDA_ARCH__ >= 800
  float(&s)[4] = sums.value;
  const uint32_t(&a)[4] = left.registers, (&b)[2] = right.registers;
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

}  // namespace tile
