// A thread block cluster: blocks that are resident together and reach each other's shared memory.
// A block of a launch without clusters is a cluster of its own.
//
// An address in .shared::cluster is the offset in a block's shared memory, with the block's rank +
// 1 in its highest byte; 0 there is the executing block, so that addresses of .shared::cta mean the
// same in both. In the generic address space kSharedWindow is added. Where a cluster has several blocks,
// `mov` of a variable's name gives its address with that byte, as on a GPU (which has the rank itself there):
// who makes something else of the address, as a descriptor of wgmma, must leave the byte out.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"
#include "random.h"
#include "ranking.h"

namespace vgpu {

class Block;
class Warp;
struct Fragment;
struct Launch;
struct Worker;

inline constexpr int kRankShift = 24;
inline constexpr std::uint64_t kRankedBytes = std::uint64_t{1} << kRankShift;
// The rank that an address names, or -1: the executing block.
inline int rank_in(std::uint64_t address) { return static_cast<int>(address >> kRankShift) - 1; }
// The same place in the shared memory of the block with this rank. A rank that no cluster has gives
// an address that no access finds.
inline std::uint64_t with_rank(std::uint64_t address, std::uint32_t rank) {
  return (address & (kRankedBytes - 1)) | static_cast<std::uint64_t>(rank < 254 ? rank + 1 : 255)
                                              << kRankShift;
}

// Which clusters a launch has, and where their blocks lie in the grid.
struct ClusterGrid {
  Dim3 clusters, size;  // the grid's size in clusters, a cluster's in blocks
  explicit ClusterGrid(const LaunchRequest& request)
      : clusters{request.grid.x / request.cluster.x, request.grid.y / request.cluster.y,
                 request.grid.z / request.cluster.z},
        size(request.cluster) {}
  // Number in the grid of the block with this rank.
  std::uint64_t block(std::uint64_t cluster, std::uint32_t rank, const Dim3& grid) const {
    const std::uint64_t x = cluster % clusters.x * size.x + rank % size.x;
    const std::uint64_t y = cluster / clusters.x % clusters.y * size.y + rank / size.x % size.y;
    const std::uint64_t z = cluster / clusters.x / clusters.y * size.z + rank / size.x / size.y;
    return (z * grid.y + y) * grid.x + x;
  }
};

class Cluster {
 public:
  Cluster(Launch& launch, Worker& worker, std::uint64_t number);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const std::uint64_t number;                  // in the grid of clusters
  std::vector<std::unique_ptr<Block>> blocks;  // by rank; those that have ended, too
  // The block with this rank, null when there is none.
  Block* block(int rank) const;
  bool done() const;
  // In which order its blocks take turns: by rank, or shuffled anew each time. In a hostile schedule
  // one gets further, then they are asked for the order again.
  const std::vector<std::uint32_t>& order();

  // barrier.cluster: a thread arrives, and later waits until all threads of the cluster that have
  // not ended have arrived. Throw Fault for an arrival after an arrival, a wait without one.
  void arrive(Warp& warp, const Instr& instr, std::uint32_t lanes);
  void wait(Warp& warp, Fragment& fragment, const Instr& instr, std::uint32_t lanes);
  void threads_exited(const Warp& warp, std::uint32_t lanes);

  // When no block can go on: lets lanes go that wait for others of their warp. False: nobody waits.
  bool release_joins();
  // By mbarrier object of one of its blocks: what expect_tx has announced in the phase that is not complete.
  std::map<const std::byte*, std::int64_t> announced_bytes;
  std::string deadlock();              // says who waits where for whom
  std::uint64_t place = 0, asked = 0;  // among clusters in a hostile schedule, see Work

 private:
  void complete();
  std::uint32_t live_threads() const;

  std::uint32_t missing_ = 0;  // threads that have neither ended nor arrived in this phase
  std::vector<std::uint32_t> order_;
  Random random_;
  bool shuffle_ = false;
  Ranking ranking_;  // orders the blocks of a hostile schedule
  std::vector<std::uint64_t> places_;
};

}  // namespace vgpu
