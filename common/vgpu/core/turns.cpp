#include "turns.h"

#include <algorithm>

#include "../ptx/program.h"

namespace vgpu {
namespace {

// A block of which a thread waits in a loop, when there is one.
Block& first_waiting(const Cluster& cluster) {
  for (const auto& block : cluster.blocks)
    for (const Warp& warp : block->warps)
      for (const Fragment& f : warp.fragments)
        if (f.waiting) return *block;
  return *cluster.blocks.front();
}

std::uint64_t instructions(const Block& block) {
  std::uint64_t sum = 0;
  for (const Warp& w : block.warps) sum += w.instructions;
  return sum;
}

}  // namespace

void Work::run(const ClusterOrder& order, std::uint64_t resident,
               std::atomic<std::uint64_t>& next) {
  Waiting waiting;
  const bool hostile = launch_.hostile;
  std::uint64_t most = hostile ? std::min(resident, kHostileClusters) : resident;
  for (bool more = true;;) {
    std::unique_ptr<Cluster> cluster;
    if (more && waiting.size() < most) {
      const std::uint64_t n = next.fetch_add(1, std::memory_order_relaxed);
      if (n >= order.clusters ||
          n > launch_.fault_cluster) {  // (a shuffled launch ends at its first fault)
        more = false;
      } else {
        if (launch_.only_sampled && !launch_.sampled(order.cluster(n))) continue;
        watch(order.cluster(n));
        if (launch_.only_sampled) launch_.executed_blocks += launch_.request.cluster.count();
        cluster = std::make_unique<Cluster>(launch_, worker_, order.cluster(n));
        got_further();
        if (hostile) {  // all in flight before one begins
          cluster->place = ranking_.place_of(cluster->number);
          waiting.push_back(std::move(cluster));
          continue;
        }
      }
    }
    if (!cluster) {
      if (waiting.empty()) break;
      if (hostile && idle_ <= kLooksIdle && !favourite_first(waiting)) {
        ++pass_;  // all were asked and nobody got further: perhaps they wait for those behind
        most = std::min(2 * most, resident);
        continue;
      }
      cluster = std::move(waiting.front());
      waiting.pop_front();
    }
    watch(cluster->number);
    if (cluster->number > launch_.fault_cluster) continue;
    try {
      if (turn(*cluster, waiting.size() + 1)) continue;
    } catch (Fault& fault) {
      launch_.stop_at(cluster->number, std::move(fault));
      if (launch_.may_wait) break;  // perhaps for this one
      continue;
    } catch (const PtxError& error) {
      launch_.stop_at(cluster->number, {FaultKind::illegal_instruction, error.what()});
      if (launch_.may_wait) break;
      continue;
    }
    waiting.push_back(std::move(cluster));
    if (const Cluster* stuck = stuck_one(waiting)) {
      const std::size_t blocks = waiting.size() * stuck->blocks.size();
      launch_.stop_at(stuck->number,
                      {FaultKind::deadlock, first_waiting(*stuck).waits_for_ever(blocks)});
      break;
    }
  }
}

void Work::watch(std::uint64_t cluster) {
  if (launch_.everywhere.all.size() == launch_.with_samplers.all.size()) return;
  worker_.attend(launch_.sampled(cluster) ? launch_.with_samplers : launch_.everywhere);
}

void Work::finish() {
  const std::lock_guard lock(launch_.mutex);
  for (std::size_t sm = 0; sm < l1_.size(); ++sm) {
    launch_.l1_clocks_by_sm[sm] += l1_[sm];
    launch_.shared_clocks_by_sm[sm] += shared_[sm];
    launch_.issued_by_sm[sm] += issued_[sm];
  }
}

// One turn of each block. True when all have ended. Throws Fault, also when nobody gets any further.
bool Work::turn(Cluster& cluster, std::uint64_t resident) {
  std::size_t blocked = 0, live = 0;
  for (const std::uint32_t rank : cluster.order()) {
    Block& block = *cluster.blocks[rank];
    if (block.live_threads == 0) continue;
    ++live;
    const std::uint64_t before = instructions(block);
    block.steady = idle_ > kLooksIdle;
    worker_.l1_clocks = worker_.shared_clocks = 0;
    const Block::Status status = block.run();
    const std::uint64_t executed = instructions(block) - before;
    if (worker_.counting) {
      l1_[block.sm] += worker_.l1_clocks;
      shared_[block.sm] += worker_.shared_clocks;
      issued_[block.sm] += executed;
    }
    if (status == Block::Status::done) {
      for (const Warp& w : block.warps) worker_.time += w.instructions + w.slept;
      got_further(cluster, resident);
      continue;
    }
    if (status == Block::Status::blocked && executed == 0) {
      ++blocked;
      continue;
    }
    idle_ += std::max(executed, kEmptyTurn);
    if (block.got_further) {
      got_further(cluster, resident);
      if (launch_.hostile && ranking_.falls()) cluster.place = ranking_.end();
    }
    if ((total_ += executed) >= launch_.machine.instruction_limit)
      throw Fault{FaultKind::deadlock, block.runs_for_ever()};
    if (idle_ > launch_.machine.patience)
      throw Fault{FaultKind::deadlock, block.waits_for_ever(resident * cluster.blocks.size())};
    if (launch_.hostile && block.got_further) break;  // who goes next?
  }
  if (live && blocked == live && !cluster.release_joins())
    throw Fault{FaultKind::deadlock, cluster.deadlock()};
  return cluster.done() || cluster.number > launch_.fault_cluster;
}

// Hostile schedules: moves the cluster that runs next to the front. It is the first in the ranking
// among the clusters without a turn since some cluster last got further. False: all have had a
// turn.
bool Work::favourite_first(Waiting& waiting) const {
  auto first = waiting.end();
  for (auto it = waiting.begin(); it != waiting.end(); ++it)
    if ((*it)->asked != pass_ && (first == waiting.end() || (*it)->place < (*first)->place))
      first = it;
  if (first == waiting.end()) return false;
  (*first)->asked = pass_;
  std::rotate(waiting.begin(), first, first + 1);
  return true;
}

void Work::got_further() {
  ++pass_;
  idle_ = looks_ = turns_ = seen_ = skipped_ = 0;
}

// `cluster` has; it may go on at once.
void Work::got_further(Cluster& cluster, std::uint64_t resident) {
  const bool ask_all =
      !launch_.hostile || resident <= kHostileClusters || ranking_.random(resident) < kAskedAgain;
  if (!ask_all) --pass_;
  got_further();
  if (!ask_all) cluster.asked = pass_ - 1;
}

// Deadlock detection. Called after each turn of a waiting cluster; returns the first cluster in the
// grid if no waiting cluster will ever go on, else null. None will if one whole state of all of them
// comes back: program counters, stacks, and the registers that decide what their loops do. Nobody
// writes to memory meanwhile, so they would go round for ever. Clusters that read a clock are shown
// one that runs ahead, up to a quarter of an hour, before they count as stuck.
const Cluster* Work::stuck_one(const Waiting& waiting) {
  if (idle_ <= kLooksIdle || ++turns_ < waiting.size()) return nullptr;
  turns_ = 0;
  std::uint64_t now = worker_.async_bytes;
  bool host = false, reads_clock = false;
  for (const auto& cluster : waiting)
    for (const auto& block : cluster->blocks) {
      if (block->live_threads == 0) continue;
      const std::uint64_t hash = block->state_hash(reads_clock);
      if (!hash) return nullptr;
      now = (now ^ hash) * 0x9E3779B97F4A7C15ull;
      host |= block->looks_at_host();
    }
  now |= 1;
  const bool same = now == seen_;
  // A cycle of any length is met by what was seen at the last power of two (Brent).
  if ((looks_ & (looks_ - 1)) == 0) {
    seen_ = now;
    if (looks_ == 0) since_ = std::chrono::steady_clock::now();
  }
  ++looks_;
  if (reads_clock && skipped_ < kWatched) {  // a time limit passes while nothing else happens
    const std::uint64_t ticks = kFirstSkip << std::min<std::uint64_t>(looks_, 30);
    worker_.time += ticks;
    skipped_ += ticks;
    return nullptr;
  }
  // Another thread of the host may be about to write what they wait for.
  if (!same || (host && std::chrono::steady_clock::now() - since_ < kHostPatience)) return nullptr;
  bool released = false;  // lanes that keep together with others that wait
  for (const auto& cluster : waiting) released |= cluster->release_joins();
  if (released) {
    looks_ = seen_ = 0;
    return nullptr;
  }
  const auto first = [](const auto& a, const auto& b) { return a->number < b->number; };
  return std::min_element(waiting.begin(), waiting.end(), first)->get();
}

}  // namespace vgpu
