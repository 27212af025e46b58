// The tile vocabulary's second part: what sm_90 has and nothing before it. Thin wrappers over PTX, each
// with its section of the PTX ISA manual, as in tile.cuh:
//
//   BoxTile<kRows, kColumns>       a tile of halves as the copy engine lays it out
//   Barrier                        an mbarrier: arrivals and bytes are awaited together
//   copy_tile                      global → shared, a whole tile asked for by one thread
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

// Brings a map, a parameter of the kernel, into the engine's cache before it is needed.
// PTX ISA, "prefetch" (.tensormap).
__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace tile
