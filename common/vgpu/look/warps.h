// The warps of a simulated block over time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../time/kernel_time.h"
#include "code.h"

namespace vgpu::look {

class Warps {
 public:
  Warps() = default;  // nothing was simulated
  Warps(const time::SimulatedBlocks& blocks, const time::MachineCode& code, const PtxListing& ptx,
        std::uint64_t block, double clock_mhz);

  // "null" where nothing was simulated, else an object: block, clocks, clock_mhz, resolution, `kinds` and
  // `reasons` (names), and of each warp `begin` (its first clock) and `packed`: four numbers for a piece,
  // one after the other: its clocks, indices of its kind, its line of PTX and its reason; kind -1 is a gap.
  // At most about so many pieces: where there are more, each of `resolution` clocks shows what the warp
  // issued there, the rarest kind first, and what it waited for most only where it issued nothing.
  std::string json(std::size_t most) const;

 private:
  struct Piece {
    std::uint64_t begin = 0, end = 0;
    std::string_view phase, reason;
    int ptx = -1;
    bool same(const Piece& o) const {
      return phase == o.phase && reason == o.reason && ptx == o.ptx;
    }
  };
  using Lane = std::vector<Piece>;      // one warp's pieces
  static int rank(const Piece& piece);  // decides which piece a window shows; 0 waits
  static Lane coarser(const Lane& lane, std::uint64_t resolution);

  std::uint64_t block_ = 0, clocks_ = 0;
  double clock_mhz_ = 0;
  std::vector<Lane> lanes_;
};

}  // namespace vgpu::look
