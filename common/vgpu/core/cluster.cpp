// Clusters: which blocks they have, and their barrier.
#include "cluster.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "block.h"

namespace vgpu {

Cluster::Cluster(Launch& launch, Worker& worker, std::uint64_t n) : number(n) {
  const LaunchRequest& request = launch.request;
  const ClusterGrid grid(request);
  const auto size = static_cast<std::uint32_t>(request.cluster.count());
  missing_ = size * static_cast<std::uint32_t>(request.block.count());
  shuffle_ = launch.seed != 0 && size > 1;
  if (launch.hostile && size > 1) {
    ranking_ = Ranking(launch.seed, ~number);
    for (std::uint32_t rank = 0; rank < size; ++rank) places_.push_back(ranking_.place_of(rank));
  }
  if (shuffle_) random_ = Random(launch.seed * 0xD1B54A32D192ED03ull + number);
  order_.resize(size);
  std::iota(order_.begin(), order_.end(), 0u);
  blocks.reserve(size);
  for (std::uint32_t rank = 0; rank < size; ++rank)
    blocks.push_back(std::make_unique<Block>(launch, worker, *this, rank,
                                             grid.block(number, rank, request.grid)));
}
Cluster::~Cluster() = default;

Block* Cluster::block(int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < blocks.size()
             ? blocks[static_cast<std::size_t>(rank)].get()
             : nullptr;
}

bool Cluster::done() const {
  return std::all_of(blocks.begin(), blocks.end(),
                     [](const auto& b) { return b->live_threads == 0; });
}

const std::vector<std::uint32_t>& Cluster::order() {
  if (!places_.empty()) {
    const auto first = [&](std::uint32_t a, std::uint32_t b) { return places_[a] < places_[b]; };
    if (ranking_.falls()) places_[order_.front()] = ranking_.end();
    std::sort(order_.begin(), order_.end(), first);
  } else if (shuffle_) {
    std::shuffle(order_.begin(), order_.end(), random_);
  }
  return order_;
}

std::uint32_t Cluster::live_threads() const {
  std::uint32_t live = 0;
  for (const auto& b : blocks) live += b->live_threads;
  return live;
}

void Cluster::arrive(Warp& warp, const Instr& instr, std::uint32_t lanes) {
  if (const std::uint32_t again = lanes & (warp.cluster_arrived | warp.cluster_passed))
    throw Fault{FaultKind::illegal_instruction,
                describe(warp, instr, std::countr_zero(again),
                         "barrier.cluster.arrive again, without a barrier.cluster.wait between,")};
  warp.worker->notify([&](Observer& o) { o.cluster_arrive(warp, instr, lanes); });
  warp.cluster_arrived |= lanes;
  missing_ -= static_cast<std::uint32_t>(std::popcount(lanes));
  if (missing_ == 0) complete();
}

void Cluster::wait(Warp& warp, Fragment& fragment, const Instr& instr, std::uint32_t lanes) {
  if (const std::uint32_t early = lanes & ~(warp.cluster_arrived | warp.cluster_passed))
    throw Fault{FaultKind::illegal_instruction,
                describe(warp, instr, std::countr_zero(early),
                         "barrier.cluster.wait without a barrier.cluster.arrive before it")};
  warp.worker->notify([&](Observer& o) { o.cluster_wait(warp, instr, lanes); });
  const std::uint32_t passing = lanes & warp.cluster_passed;
  warp.cluster_passed &= ~passing;
  if (passing == lanes) {
    ++fragment.pc;
    return;
  }
  fragment.state = Fragment::State::at_cluster;
  if (!passing) return;
  Fragment ahead = fragment;  // in a loop, lanes one phase apart may stand here together
  fragment.mask = lanes & ~passing;
  ahead.state = Fragment::State::ready;
  ahead.mask = passing;
  ++ahead.pc;
  warp.fragments.push_back(std::move(ahead));
}

// A thread that ends counts as one that has arrived, in this phase and all that follow.
void Cluster::threads_exited(const Warp& warp, std::uint32_t lanes) {
  const std::uint32_t due = lanes & ~warp.cluster_arrived;
  missing_ -= static_cast<std::uint32_t>(std::popcount(due));
  if (missing_ == 0) complete();
}

void Cluster::complete() {
  missing_ = live_threads();
  if (missing_ == 0) return;  // all have ended
  Block& first = *blocks.front();
  first.worker.notify([&](Observer& o) { o.cluster_complete(*this); });
  for (const auto& block : blocks)
    for (Warp& warp : block->warps) {
      warp.cluster_passed |= warp.cluster_arrived & warp.live;
      warp.cluster_arrived = 0;
      for (Fragment& f : warp.fragments) {
        if (f.state != Fragment::State::at_cluster) continue;
        warp.cluster_passed &= ~f.mask;
        f.state = Fragment::State::ready;
        ++f.pc;
      }
    }
}

bool Cluster::release_joins() {
  bool released = false;
  for (const auto& block : blocks) released |= block->release_joins();
  return released;
}

std::string Cluster::deadlock() {
  const std::uint32_t live = live_threads();
  for (const auto& block : blocks)
    for (Warp& warp : block->warps)
      for (const Fragment& f : warp.fragments) {
        if (f.state != Fragment::State::at_cluster) continue;
        warp.frame = f.frame.get();
        return describe(warp, f.frame->function->code[f.pc], std::countr_zero(f.mask),
                        "deadlock: the cluster's barrier was reached by " +
                            std::to_string(live - missing_) + " of " + std::to_string(live) +
                            " threads, and no other thread of the cluster can go on; waiting");
      }
  return "deadlock in " + blocks.front()->launch.request.function->display;
}

}  // namespace vgpu
