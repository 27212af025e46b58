// The tile vocabulary's second part: what sm_90 has and nothing before it. Thin wrappers over PTX, each
// with its section of the PTX ISA manual, as in tile.cuh:
//
//   BoxTile<kRows, kColumns>       a tile of halves as the copy engine lays it out
//   Barrier                        an mbarrier: arrivals and bytes are awaited together
//   copy_tile                      global → shared, a whole tile asked for by one thread
//   operand, multiply_async        products of a warpgroup, four warps, from shared memory
//
// Code that calls these stands behind `#ifdef __CUDA_ARCH_FEAT_SM90_ALL`: that of other architectures
// has no such instructions.
#pragma once

#include <cuda.h>  // types alone

#include "tile.cuh"

namespace tile {

// ---- Tiles --------------------------------------------------------------------------------------

// kRows x kColumns halves, in panels of at most 64 columns, one panel after the other: a row of a panel
// is at most 128 bytes, the widest line that the engine swizzles. In a panel pieces lie as in
// Swizzled, which is the engine's pattern as long as a panel begins at a multiple of 1024 bytes.
template <int kRows_, int kColumns_>
struct alignas(1024) BoxTile {
  using Element = half;
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kPanelColumns = kColumns < 64 ? kColumns : 64;
  static constexpr int kPanels = kColumns / kPanelColumns;
  static constexpr int kPanelBytes = kRows * kPanelColumns * int(sizeof(half));
  using Layout = Swizzled<kPanelColumns* int(sizeof(half))>;
  static_assert(kRows % 8 == 0 && kRows <= 256, "what a box of a tensor map can have");
  static_assert(kPanelBytes % 1024 == 0 && kColumns % kPanelColumns == 0);

  unsigned char bytes[kPanels * kPanelBytes];

  __device__ static unsigned byte_of(unsigned row, unsigned piece) {
    constexpr unsigned kPieces = kPanelColumns / kOfPiece<half>;
    return piece / kPieces * kPanelBytes + Layout::byte_of(row, piece % kPieces);
  }
  __device__ uint32_t address(unsigned row, unsigned piece) const {
    return shared_address(bytes) + byte_of(row, piece);
  }
  __device__ half& at(unsigned row, unsigned column) {
    return reinterpret_cast<half*>(bytes + byte_of(row, column / 8))[column % 8];
  }
};

// ---- Barriers -----------------------------------------------------------------------------------

// An mbarrier in shared memory. Its phase is over when all arrivals of the phase and all bytes that were
// announced have come; then the next phase begins. Phases have parity 0, 1, 0, ...
// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
struct Barrier {
  uint64_t state;

  // By one thread, before fence_barriers() and a barrier of the block. PTX ISA, "mbarrier.init".
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)),
                 "r"(arrivals)
                 : "memory");
  }
  // An arrival that announces bytes. PTX ISA, "mbarrier.arrive" (.expect_tx).
  __device__ void arrive_expecting(int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)),
        "r"(bytes)
        : "memory");
  }
  // PTX ISA, "mbarrier.arrive".
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state))
                 : "memory");
  }
  // Waits for the end of the phase with this parity: returns at once when the current phase has the
  // other one. PTX ISA, "mbarrier.try_wait" (.parity).
  __device__ void wait(uint32_t parity) {
    uint32_t over = 0;
    while (!over)
      asm volatile(
          "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
          "selp.u32 %0, 1, 0, over;\n}"
          : "=r"(over)
          : "r"(shared_address(&state)), "r"(parity)
          : "memory");
  }
  // As arrive(), at the barrier in the same place of another block of the cluster.
  // PTX ISA, "mapa", "mbarrier.arrive" (.shared::cluster).
  __device__ void arrive_in(uint32_t rank) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&state)),
        "r"(rank)
        : "memory");
  }
};

// Makes initialized mbarriers known to the copy engine and to the cluster.
// PTX ISA, "membar / fence" (fence.mbarrier_init).
__device__ inline void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// ---- Tensor copies ------------------------------------------------------------------------------

// A tile from an array [matrices, rows, columns]: the rows of one matrix from `row` on, by one thread,
// which does not wait. Rows past the matrix's last are zeros and count as bytes that arrive. The map's
// box is a panel: [1, kRows, kPanelColumns]. PTX ISA, "cp.async.bulk.tensor" (.3d, .tile).
template <int kRows, int kColumns>
__device__ void copy_tile(BoxTile<kRows, kColumns>& to, const CUtensorMap& map, int row, int matrix,
                          Barrier& arrived) {
  using Tile = BoxTile<kRows, kColumns>;
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
            shared_address(to.bytes + panel * Tile::kPanelBytes)),
        "l"(&map), "r"(panel * Tile::kPanelColumns), "r"(row), "r"(matrix),
        "r"(shared_address(&arrived.state))
        : "memory");
}

// The kPart rows of a tile from `first` on, in each block of the cluster whose bit is set in `blocks`; the
// barrier in this place of each hears of them. The memory is read once. The map's box is as many rows of
// a panel. PTX ISA, "cp.async.bulk.tensor" (.multicast::cluster).
template <int kPart, int kRows, int kColumns>
__device__ void multicast_rows(BoxTile<kRows, kColumns>& to, int first, const CUtensorMap& map,
                               int row, int matrix, Barrier& arrived, int blocks) {
  using Tile = BoxTile<kRows, kColumns>;
  constexpr int kRowBytes = Tile::kPanelColumns * int(sizeof(half));
  static_assert(kPart * kRowBytes % 1024 == 0, "a part begins where the pattern of pieces does");
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(
            shared_address(to.bytes + panel * Tile::kPanelBytes + first * kRowBytes)),
        "l"(&map), "r"(panel * Tile::kPanelColumns), "r"(row), "r"(matrix),
        "r"(shared_address(&arrived.state)), "h"(uint16_t(blocks))
        : "memory");
}

// Brings a map, a parameter of the kernel, into the engine's cache before it is needed.
// PTX ISA, "prefetch" (.tensormap).
__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- Warpgroups ---------------------------------------------------------------------------------

// Where an operand of a product lies: 64 rows or more from `row` on and the 16 columns from `column`
// on, or 16 rows and all columns. A core matrix is 8 rows of 16 bytes; the next 8 rows lie a stride
// further, the next panel a leading dimension further.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout: Matrix Descriptor Format".
template <int kRows, int kColumns>
__device__ uint64_t operand(const BoxTile<kRows, kColumns>& from, int row, int column) {
  using Tile = BoxTile<kRows, kColumns>;
  constexpr uint64_t kLine = Tile::kPanelColumns * sizeof(half);  // bytes: what is swizzled
  constexpr uint64_t kSwizzle = kLine == 128 ? 1 : 2;
  constexpr uint64_t kFixed =
      kSwizzle << 62 | (8 * kLine / 16) << 32 | uint64_t(Tile::kPanelBytes / 16) << 16;
  // The field has 18 bits of an address, all that a block's shared memory has. In a cluster an address has the
  // block's rank above them, which must not reach the next field.
  constexpr uint32_t kOfBlock = (1 << 18) - 1;
  const uint32_t offset = column / Tile::kPanelColumns * Tile::kPanelBytes + row * kLine +
                          column % Tile::kPanelColumns * sizeof(half);
  return kFixed | ((shared_address(from.bytes) & kOfBlock) / 16 + offset / 16);
}

// Before the first product, and between other accesses to registers and a product that uses them.
// PTX ISA, "wgmma.fence".
__device__ inline void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products asked for since the last call become a group. PTX ISA, "wgmma.commit_group".
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all of the warp's groups but the newest kNewest are complete: until then their sums and
// left operands belong to the tensor cores. PTX ISA, "wgmma.wait_group".
template <int kNewest>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNewest) : "memory");
}

// sums[64 x kColumns] = left rightᵀ over a depth of 16: both operands in shared memory, rows along the
// depth. `d` of a warp are those of its 16 rows.
// PTX ISA, "Asynchronous wgmma.mma_async" (.m64nNk16, both K-major).
template <int kColumns>
__device__ inline void multiply_async(Sums* d, uint64_t left, uint64_t right) {
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 48 || kColumns == 64);
  if constexpr (kColumns == 16)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, 0, 1, 1, 0, 0;"
        : "=f"(d[0].value[0]), "=f"(d[0].value[1]), "=f"(d[0].value[2]), "=f"(d[0].value[3]),
          "=f"(d[1].value[0]), "=f"(d[1].value[1]), "=f"(d[1].value[2]), "=f"(d[1].value[3])
        : "l"(left), "l"(right)
        : "memory");
  else if constexpr (kColumns == 32)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 0, 1, 1, 0, 0;"
        : "=f"(d[0].value[0]), "=f"(d[0].value[1]), "=f"(d[0].value[2]), "=f"(d[0].value[3]),
          "=f"(d[1].value[0]), "=f"(d[1].value[1]), "=f"(d[1].value[2]), "=f"(d[1].value[3]),
          "=f"(d[2].value[0]), "=f"(d[2].value[1]), "=f"(d[2].value[2]), "=f"(d[2].value[3]),
          "=f"(d[3].value[0]), "=f"(d[3].value[1]), "=f"(d[3].value[2]), "=f"(d[3].value[3])
        : "l"(left), "l"(right)
        : "memory");
  else if constexpr (kColumns == 48)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, %24, "
        "%25, 0, 1, 1, 0, 0;"
        : "=f"(d[0].value[0]), "=f"(d[0].value[1]), "=f"(d[0].value[2]), "=f"(d[0].value[3]),
          "=f"(d[1].value[0]), "=f"(d[1].value[1]), "=f"(d[1].value[2]), "=f"(d[1].value[3]),
          "=f"(d[2].value[0]), "=f"(d[2].value[1]), "=f"(d[2].value[2]), "=f"(d[2].value[3]),
          "=f"(d[3].value[0]), "=f"(d[3].value[1]), "=f"(d[3].value[2]), "=f"(d[3].value[3]),
          "=f"(d[4].value[0]), "=f"(d[4].value[1]), "=f"(d[4].value[2]), "=f"(d[4].value[3]),
          "=f"(d[5].value[0]), "=f"(d[5].value[1]), "=f"(d[5].value[2]), "=f"(d[5].value[3])
        : "l"(left), "l"(right)
        : "memory");
  else if constexpr (kColumns == 64)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31}, %32, %33, 0, 1, 1, 0, 0;"
        : "=f"(d[0].value[0]), "=f"(d[0].value[1]), "=f"(d[0].value[2]), "=f"(d[0].value[3]),
          "=f"(d[1].value[0]), "=f"(d[1].value[1]), "=f"(d[1].value[2]), "=f"(d[1].value[3]),
          "=f"(d[2].value[0]), "=f"(d[2].value[1]), "=f"(d[2].value[2]), "=f"(d[2].value[3]),
          "=f"(d[3].value[0]), "=f"(d[3].value[1]), "=f"(d[3].value[2]), "=f"(d[3].value[3]),
          "=f"(d[4].value[0]), "=f"(d[4].value[1]), "=f"(d[4].value[2]), "=f"(d[4].value[3]),
          "=f"(d[5].value[0]), "=f"(d[5].value[1]), "=f"(d[5].value[2]), "=f"(d[5].value[3]),
          "=f"(d[6].value[0]), "=f"(d[6].value[1]), "=f"(d[6].value[2]), "=f"(d[6].value[3]),
          "=f"(d[7].value[0]), "=f"(d[7].value[1]), "=f"(d[7].value[2]), "=f"(d[7].value[3])
        : "l"(left), "l"(right)
        : "memory");
}
// The same, added to the sums.
template <int kColumns>
__device__ inline void multiply_add_async(Sums* d, uint64_t left, uint64_t right) {
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 48 || kColumns == 64);
  if constexpr (kColumns == 16)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, 1, 1, 1, 0, 0;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3])
        : "l"(left), "l"(right)
        : "memory");
  else if constexpr (kColumns == 32)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
          "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
          "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3])
        : "l"(left), "l"(right)
        : "memory");
  else if constexpr (kColumns == 48)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, %24, "
        "%25, 1, 1, 1, 0, 0;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
          "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
          "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3]),
          "+f"(d[4].value[0]), "+f"(d[4].value[1]), "+f"(d[4].value[2]), "+f"(d[4].value[3]),
          "+f"(d[5].value[0]), "+f"(d[5].value[1]), "+f"(d[5].value[2]), "+f"(d[5].value[3])
        : "l"(left), "l"(right)
        : "memory");
  else if constexpr (kColumns == 64)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
          "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
          "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3]),
          "+f"(d[4].value[0]), "+f"(d[4].value[1]), "+f"(d[4].value[2]), "+f"(d[4].value[3]),
          "+f"(d[5].value[0]), "+f"(d[5].value[1]), "+f"(d[5].value[2]), "+f"(d[5].value[3]),
          "+f"(d[6].value[0]), "+f"(d[6].value[1]), "+f"(d[6].value[2]), "+f"(d[6].value[3]),
          "+f"(d[7].value[0]), "+f"(d[7].value[1]), "+f"(d[7].value[2]), "+f"(d[7].value[3])
        : "l"(left), "l"(right)
        : "memory");
}
// sums[64 x kColumns] += left right: left in registers, a warp's 16 rows in each warp; right
// [16, kColumns] in shared memory, rows across the depth. PTX ISA, likewise (A in registers, B MN-major).
template <int kColumns>
__device__ inline void multiply_add_async(Sums* d, const LeftFragment<half>& left, uint64_t right) {
  static_assert(kColumns == 32 || kColumns == 64 || kColumns == 128);
  const uint32_t(&a)[4] = left.registers;
  if constexpr (kColumns == 32)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 1;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
          "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
          "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right)
        : "memory");
  else if constexpr (kColumns == 64)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
          "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
          "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3]),
          "+f"(d[4].value[0]), "+f"(d[4].value[1]), "+f"(d[4].value[2]), "+f"(d[4].value[3]),
          "+f"(d[5].value[0]), "+f"(d[5].value[1]), "+f"(d[5].value[2]), "+f"(d[5].value[3]),
          "+f"(d[6].value[0]), "+f"(d[6].value[1]), "+f"(d[6].value[2]), "+f"(d[6].value[3]),
          "+f"(d[7].value[0]), "+f"(d[7].value[1]), "+f"(d[7].value[2]), "+f"(d[7].value[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right)
        : "memory");
  else if constexpr (kColumns == 128)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
        "%59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
          "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
          "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
          "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3]),
          "+f"(d[4].value[0]), "+f"(d[4].value[1]), "+f"(d[4].value[2]), "+f"(d[4].value[3]),
          "+f"(d[5].value[0]), "+f"(d[5].value[1]), "+f"(d[5].value[2]), "+f"(d[5].value[3]),
          "+f"(d[6].value[0]), "+f"(d[6].value[1]), "+f"(d[6].value[2]), "+f"(d[6].value[3]),
          "+f"(d[7].value[0]), "+f"(d[7].value[1]), "+f"(d[7].value[2]), "+f"(d[7].value[3]),
          "+f"(d[8].value[0]), "+f"(d[8].value[1]), "+f"(d[8].value[2]), "+f"(d[8].value[3]),
          "+f"(d[9].value[0]), "+f"(d[9].value[1]), "+f"(d[9].value[2]), "+f"(d[9].value[3]),
          "+f"(d[10].value[0]), "+f"(d[10].value[1]), "+f"(d[10].value[2]), "+f"(d[10].value[3]),
          "+f"(d[11].value[0]), "+f"(d[11].value[1]), "+f"(d[11].value[2]), "+f"(d[11].value[3]),
          "+f"(d[12].value[0]), "+f"(d[12].value[1]), "+f"(d[12].value[2]), "+f"(d[12].value[3]),
          "+f"(d[13].value[0]), "+f"(d[13].value[1]), "+f"(d[13].value[2]), "+f"(d[13].value[3]),
          "+f"(d[14].value[0]), "+f"(d[14].value[1]), "+f"(d[14].value[2]), "+f"(d[14].value[3]),
          "+f"(d[15].value[0]), "+f"(d[15].value[1]), "+f"(d[15].value[2]), "+f"(d[15].value[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right)
        : "memory");
}

// What this thread has written as usual comes before what copy engine and tensor cores read, when a
// barrier follows. PTX ISA, "membar / fence" (fence.proxy.async).
__device__ inline void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier of kThreads threads of the block, with a number from 1 to 15. PTX ISA, "bar".
template <int kThreads>
__device__ inline void meet(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
// As meet(), but goes on at once: others wait for this thread, too. PTX ISA, "bar.arrive".
template <int kThreads>
__device__ inline void arrive_at(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// All threads of the cluster that have not ended meet, as at a __syncthreads() of all its blocks.
// PTX ISA, "barrier.cluster".
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
// Number of this block in its cluster. PTX ISA, "Special Registers: %cluster_ctarank".
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Registers of a thread from now on, by all of a warpgroup: what one gives back, another takes, and waits
// until it is there. A multiple of 8 from 24 to 256. PTX ISA, "setmaxnreg".
template <int kRegisters>
__device__ inline void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace tile
