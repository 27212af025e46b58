// Who runs when: clusters are taken one after the other, and those that wait for others take turns.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "block.h"

namespace vgpu {

// Which cluster comes n-th: the n-th, or a shuffled one. Grids too large for a list are stepped
// through with a stride that shares no factor with their size.
struct ClusterOrder {
  std::vector<std::uint64_t> list;
  std::uint64_t clusters = 0, stride = 0;
  ClusterOrder(std::uint64_t count, std::uint64_t seed) : clusters(count) {
    constexpr std::uint64_t kLongest = 1u << 18;
    if (!seed) return;
    Random random(seed);
    if (count <= kLongest) {
      list.resize(count);
      for (std::uint64_t i = 0; i < count; ++i) list[i] = i;
      std::shuffle(list.begin(), list.end(), random);
    } else {
      do stride = 1 + random() % (count - 1);
      while (std::gcd(stride, count) != 1);
    }
  }
  std::uint64_t cluster(std::uint64_t n) const {
    if (stride)
      return static_cast<std::uint64_t>(static_cast<unsigned __int128>(n) * stride % clusters);
    return list.empty() ? n : list[n];
  }
};

// Runs clusters, one after the other, until none is left. Waiting clusters stay resident, at most
// `resident` of them, and take turns. The blocks of a cluster take turns, too.
class Work {
 public:
  Work(Launch& launch, Worker& worker)
      : launch_(launch),
        worker_(worker),
        ranking_(launch.hostile ? Ranking(launch.seed, 0) : Ranking()),
        l1_(worker.counting ? launch.l1_clocks_by_sm.size() : 0),
        shared_(l1_.size()),
        issued_(l1_.size()) {}

  void run(const ClusterOrder& order, std::uint64_t resident, std::atomic<std::uint64_t>& next);
  // Tells the launch what was counted by SM.
  void finish();

 private:
  using Waiting = std::deque<std::unique_ptr<Cluster>>;
  void watch(std::uint64_t cluster);  // before its blocks are made, run or taken away
  bool turn(Cluster& cluster, std::uint64_t resident);
  bool favourite_first(Waiting& waiting) const;
  void got_further();
  void got_further(Cluster& cluster, std::uint64_t resident);
  const Cluster* stuck_one(const Waiting& waiting);

  Launch& launch_;
  Worker& worker_;
  Ranking ranking_;  // orders clusters in a hostile schedule
  std::uint64_t pass_ = 1;
  std::vector<double> l1_, shared_;
  std::vector<std::uint64_t> issued_;
  // Instructions in waiting loops after which it is worth the time to look whether they end.
  static constexpr std::uint64_t kLooksIdle = 1u << 16;
  // The least that a turn counts for in which no instruction is executed: setmaxnreg waits for
  // registers.
  static constexpr std::uint64_t kEmptyTurn = 64;
  static constexpr std::chrono::seconds kHostPatience{3};
  static constexpr std::uint64_t kHostileClusters = 32;  // in flight unless they wait for more
  // When more clusters than these are in flight, about so many are tried again whenever one gets
  // further: to try all of a large grid that waits at its barrier would take longer than to run it.
  static constexpr std::uint64_t kAskedAgain = 8;
  static constexpr std::uint64_t kFirstSkip = 1u << 20, kWatched = 1ull << 40;  // nanoseconds

  std::uint64_t idle_ = 0;  // instructions since a block last got further
  std::uint64_t looks_ = 0, turns_ = 0, seen_ = 0, skipped_ = 0;  // see stuck_one
  std::chrono::steady_clock::time_point since_;
  std::uint64_t total_ = 0;
};

}  // namespace vgpu
