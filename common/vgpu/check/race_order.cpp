// What orders accesses for the race check: fences, flags and mbarriers, meetings of a warp, barriers
// of the block and of the cluster. race.h says the rules.
#include <bit>

#include "race.h"

namespace vgpu::race {

// ---- knowledge --------------------------------------------------------------------------------

Knowledge RaceCheck::known_of_warp(BlockState& block, WarpState& warp) {
  const std::uint64_t key = thread_key(block.block->linear, warp.index, 0);
  Knowledge k = learn(block.known, root_, key, kBlockLevel, block.barrier);
  k = learn(k, root_, key, kWarpLevel, warp.met.all);
  return join(k, warp.known);
}
Knowledge RaceCheck::known_of(BlockState& block, WarpState& warp, int lane) {
  Knowledge k = known_of_warp(block, warp);
  const std::uint64_t key =
      thread_key(block.block->linear, warp.index, static_cast<std::uint32_t>(lane));
  if (warp.met.pairs)
    for (std::uint32_t other = 0; other < kWarpSize; ++other)
      if (const Time t = (*warp.met.pairs)[static_cast<std::size_t>(lane)][other])
        k = learn(k, root_, (key & ~31ull) | other, kThreadLevel, t);
  k = learn(k, root_, key, kThreadLevel, warp.now);
  return warp.lanes ? join(k, warp.lane(lane).known) : k;
}

// ---- flags ------------------------------------------------------------------------------------

Flag* RaceCheck::find_flag(Now& now, std::uint64_t address) {
  auto& flags = now.space == Space::shared ? now.home.flags : flags_;
  if (flags.empty()) return nullptr;
  const auto it = flags.find(address);
  return it == flags.end() ? nullptr : &it->second;
}

void RaceCheck::tell(Flag& flag, std::uint64_t block, Scope scope, const Knowledge& told) {
  if (!told) return;
  if (scope == kGridScope) {
    if (flag.teller == Flag::kNobody) flag.teller = block;
    if (flag.teller != block && flag.teller != Flag::kSeveral) {  // now it matters who said what
      flag.by[{flag.teller, kGridScope}] = flag.to_grid;
      flag.teller = Flag::kSeveral;
    }
    flag.to_grid = join(flag.to_grid, told);
    if (flag.teller == block) return;
  }
  Knowledge& by = flag.by[{block, scope}];
  by = join(by, told);
}

// What threads of `block` learn when they acquire the flag with this scope. A release counts if its
// scope reaches `block`, and if the acquire's scope reaches the block that released.
Knowledge RaceCheck::told_to(const Flag& flag, const Block& block, Scope scope) {
  Knowledge all;
  if (scope == kGridScope || flag.teller == block.linear) all = flag.to_grid;
  if (flag.by.empty() && (flag.teller == block.linear || scope != kClusterScope)) return all;
  for (const auto& other : block.cluster.blocks) {
    if (scope == kClusterScope && flag.teller == other->linear) all = join(all, flag.to_grid);
    for (const Scope release : {kGridScope, kClusterScope, kBlockScope}) {
      if (other.get() != &block && (scope == kBlockScope || release == kBlockScope)) continue;
      const auto it = flag.by.find({other->linear, release});
      if (it != flag.by.end()) all = join(all, it->second);
    }
  }
  return all;
}

// An atomic, volatile or relaxed access to a place that threads synchronize through. The thread
// takes over the times that others released there, and leaves its own for others.
void RaceCheck::exchange(Now& now, std::uint32_t mask, const Addresses& a) {
  BlockState& block = now.block;
  WarpState& warp = now.state;
  const Block& own = *block.block;
  const Scope scope = scope_of(now.instr);
  const bool object = now.instr.op_class == OpClass::barrier;
  const bool reads =
      now.access != Access::store && !(now.access == Access::atomic && !now.instr.d[0].valid());
  const bool writes = now.access != Access::load && !(object && now.instr.d_bits == 1);
  const bool at_once = now.access == Access::atomic || (now.instr.order & kOrderAcquire);
  // An arrival at an mbarrier releases unless it says .relaxed.
  const bool releases =
      (now.instr.order & kOrderRelease) || (object && !(now.instr.order & kOrderRelaxed));
  bool released = false;
  each_lane(mask, [&](int i) {
    Flag* flag = find_flag(now, a.v[i]);
    if (reads && flag) {
      Lane& lane = warp.lane(i);
      if (object) {
        const bool relaxed = now.instr.order & kOrderRelaxed;
        if (relaxed) lane.seen[kGridScope] = join(lane.seen[kGridScope], flag->to_grid);
        Knowledge& to = relaxed ? lane.seen_here : lane.known;
        to = join(to, flag->to_grid);
      } else if (at_once) {
        lane.known = join(lane.known, told_to(*flag, own, scope));
      } else {
        for (const Scope fence : {kGridScope, kClusterScope, kBlockScope})
          lane.seen[fence] = join(lane.seen[fence], told_to(*flag, own, std::max(scope, fence)));
        if (now.space == Space::shared)
          lane.seen_here = join(lane.seen_here, told_to(*flag, own, scope));
      }
    }
    if (!writes) return;
    std::array<Knowledge, kScopes> told;
    if (releases) {
      told[scope] = known_of(block, warp, i);
      released = true;
    } else {
      told[scope] = join(block.fenced, warp.fenced);
      if (warp.lanes)
        for (const Fence* wider = nullptr;
             const Scope fence : {kGridScope, kClusterScope, kBlockScope}) {
          const Fence* const f = warp.lane(i).fence[fence].get();
          if (f && f != wider) {  // else it is the same, told already
            Knowledge& to = told[std::max(scope, fence)];
            to = join(to, f->known);
          }
          wider = f;
        }
    }
    if (!flag && std::none_of(told.begin(), told.end(), [](const Knowledge& k) { return bool(k); }))
      return;
    auto& flags = now.space == Space::shared ? now.home.flags : flags_;
    Flag& to = flags[a.v[i]];
    if (object) {  // who waits for this phase is told, once it is complete
      for (const Scope s : {kGridScope, kClusterScope, kBlockScope})
        if (s != kBlockScope || &now.home == &now.block) to.arriving = join(to.arriving, told[s]);
      return;
    }
    if (now.access == Access::store) to = {};  // an atomic passes on what was there
    for (const Scope s : {kGridScope, kClusterScope, kBlockScope}) tell(to, own.linear, s, told[s]);
  });
  if (released) tick(warp);
}

void RaceCheck::mbarrier_phase(Block& home, std::uint32_t offset) {
  auto& flags = blocks_.at(&home)->flags;
  const auto it = flags.find(offset);
  if (it == flags.end()) return;
  Flag& flag = it->second;
  flag.to_grid = join(flag.to_grid, std::exchange(flag.arriving, {}));
}

void RaceCheck::fence(Warp& warp, const Instr& instr, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  const Scope scope = scope_of(instr);
  if (state.lanes)
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      lane.known = join(lane.known, lane.seen[scope]);
      for (int s = scope; s < kScopes; ++s) lane.seen[static_cast<std::size_t>(s)] = {};
    });
  if (block.seen[scope])
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      lane.known = join(lane.known, block.seen[scope]);
    });
  // Lanes that know no more than their warp share one record of the fence. It may speak for all of
  // them because they execute the fence together.
  Ref<Fence> common;
  each_lane(mask, [&](int i) {
    Lane& lane = state.lane(i);
    Ref<Fence> fence = common;
    if (!fence || lane.known || state.met.pairs) {
      fence = Ref<Fence>(new Fence);
      if (lane.known || state.met.pairs || mask != state.born) {
        fence->known = known_of(block, state, i);
      } else {
        fence->known = learn(known_of_warp(block, state), root_,
                             thread_key(warp.block->linear, warp.index, 0), kWarpLevel, state.now);
        common = fence;
      }
    }
    for (int s = scope; s < kScopes; ++s) lane.fence[static_cast<std::size_t>(s)] = fence;
  });
  tick(state);
}

// ---- meetings ---------------------------------------------------------------------------------

void RaceCheck::warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t) {
  const bool barrier = instr.op_class == OpClass::barrier;
  // Lanes that execute it together meet only those that their masks name.
  const std::uint32_t* masks = instr.e.valid() ? warp.lanes<const std::uint32_t>(instr.e) : nullptr;
  while (mask) {
    std::uint32_t group = mask;
    if (masks) {
      const std::uint32_t named = masks[std::countr_zero(mask)];
      each_lane(mask, [&](int lane) {
        if (masks[lane] != named) group &= ~(1u << lane);
      });
    }
    if (barrier)
      meet(warp, group);
    else
      pass_on(warp, group);
    mask &= ~group;
  }
}

// A shuffle, vote or the like makes nothing visible that its lanes wrote (programming guide: "do
// not imply a memory barrier"). Two things hold nevertheless, and NVIDIA's own libraries build on
// them (the tiles of several warps of cooperative groups on both): what a lane read before, it has,
// so that a later write of another lane comes too late to change it; and what one of them has
// acquired from other warps, those have too that go by what it says.
void RaceCheck::pass_on(Warp& warp, std::uint32_t mask) {
  WarpState& state = state_of(*warp.block).warps[warp.index];
  const bool all = mask == warp.live;
  if (all)
    state.read = {state.now, nullptr};
  else
    state.read.add(mask, state.now);
  tick(state);
  if (!state.lanes) return;
  Knowledge known;
  each_lane(mask, [&](int i) { known = join(known, state.lane(i).known); });
  if (!known) return;
  if (all) state.known = join(state.known, known);
  each_lane(mask, [&](int i) { state.lane(i).known = all ? Knowledge() : known; });
}

void RaceCheck::meet(Warp& warp, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  const bool all = mask == warp.live;
  if (state.lanes) {
    Knowledge known, fenced;
    std::array<Knowledge, kScopes> seen;
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      known = join(join(known, lane.known), lane.seen_here);
      for (std::size_t s = 0; s < kScopes; ++s) seen[s] = join(seen[s], lane.seen[s]);
      if (lane.fence[kClusterScope]) fenced = join(fenced, lane.fence[kClusterScope]->known);
    });
    if (all) {
      state.known = join(state.known, known);
      state.fenced = join(state.fenced, fenced);
    }
    each_lane(mask, [&](int i) {
      Lane& lane = state.lane(i);
      lane.seen = seen;
      lane.seen_here = {};
      lane.known = all ? Knowledge() : known;
      if (!fenced) return;
      lane.fence[kGridScope] = lane.fence[kClusterScope] = {};
      if (all) return;
      lane.fence[kGridScope] = lane.fence[kClusterScope] = Ref<Fence>(new Fence);
      lane.fence[kGridScope]->known = fenced;
    });
  }
  if (mask == state.born) {  // lanes that have ended did not come: what they did is not over
    state.met = {state.now, nullptr};
  } else {
    state.met.add(mask, state.now);
  }
  tick(state);
}

void Meetings::add(std::uint32_t mask, Time now) {
  if (!pairs) pairs = std::make_unique<Pairs>();  // (all zero)
  std::array<Time, kWarpSize> sum{};
  each_lane(mask, [&](int i) {
    for (std::size_t k = 0; k < kWarpSize; ++k)
      sum[k] = std::max(sum[k], (*pairs)[static_cast<std::size_t>(i)][k]);
  });
  each_lane(mask, [&](int i) { sum[static_cast<std::size_t>(i)] = now; });
  each_lane(mask, [&](int i) { (*pairs)[static_cast<std::size_t>(i)] = sum; });
}

void RaceCheck::barrier_arrive(Warp& warp, const Instr&, std::uint32_t mask, int barrier,
                               bool wait) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  Arrival arrival{warp.index, mask, wait, state.now, {}};
  if (!wait) {  // it goes on and learns more, which those who wait must not profit from
    each_lane(mask, [&](int i) { arrival.known = join(arrival.known, known_of(block, state, i)); });
    tick(state);
  }
  block.arrivals[static_cast<std::size_t>(barrier)].push_back(std::move(arrival));
}

// Who has waited for a product of the warpgroup knows that all four warps have read its operands.
void RaceCheck::products_complete(Warp& warp, std::uint64_t product) {
  WarpState& own = state_of(*warp.block).warps[warp.index];
  own.known =
      learn(own.known, root_, operand_key(warp.block->linear, warp.index), kWarpLevel, product);
}

// The same for the sources of copies. Others learn it from the thread that has waited.
void RaceCheck::sources_read(Warp& warp, int lane, std::uint64_t copy) {
  if (!copy) return;
  Lane& own = state_of(*warp.block).warps[warp.index].lane(lane);
  const std::uint64_t key =
      engine_key(Actor::sender, warp.block->linear, warp.index, static_cast<std::uint32_t>(lane));
  own.known = learn(own.known, root_, key, kThreadLevel, copy);
}

void RaceCheck::barrier_complete(Block& of, int barrier) {
  BlockState& block = state_of(of);
  std::vector<Arrival> arrivals = std::move(block.arrivals[static_cast<std::size_t>(barrier)]);
  block.arrivals[static_cast<std::size_t>(barrier)].clear();
  std::uint32_t waiting = 0;
  Knowledge known, fenced;
  for (const Arrival& a : arrivals) {
    if (!a.wait) continue;
    waiting += static_cast<std::uint32_t>(std::popcount(a.mask));
    WarpState& warp = block.warps[a.warp];
    known = join(known, warp.known);
    fenced = join(fenced, warp.fenced);
    if (warp.lanes)
      each_lane(a.mask, [&](int i) {
        Lane& lane = warp.lane(i);
        lane.known = join(lane.known, lane.seen_here);
        for (std::size_t s = 0; s < kScopes; ++s) block.seen[s] = join(block.seen[s], lane.seen[s]);
        lane.seen = {};
        lane.seen_here = {};
        known = join(known, lane.known);
        if (lane.fence[kClusterScope]) fenced = join(fenced, lane.fence[kClusterScope]->known);
      });
  }
  if (waiting >= of.live_threads) {  // everybody: one number says it all
    block.known = join(block.known, known);
    block.fenced = join(block.fenced, fenced);
    block.barrier = clock_;
    ++clock_;
    for (WarpState& warp : block.warps) {
      warp.known = {};
      warp.fenced = {};
      warp.met.pairs.reset();
      warp.lanes.reset();
      warp.now = clock_;
    }
    return;
  }
  for (const Arrival& a : arrivals) {
    if (!a.wait) {
      known = join(known, a.known);
      continue;
    }
    WarpState& warp = block.warps[a.warp];
    const std::uint64_t key = thread_key(of.linear, a.warp, 0);
    if (a.mask == of.warps[a.warp].live) {
      known = learn(known, root_, key, kWarpLevel, a.time);
    } else {
      each_lane(a.mask, [&](int i) {
        known = learn(known, root_, key | static_cast<std::uint32_t>(i), kThreadLevel, a.time);
      });
    }
    if (warp.met.pairs)
      each_lane(a.mask, [&](int i) { known = join(known, known_of(block, warp, i)); });
  }
  for (const Arrival& a : arrivals) {
    if (!a.wait) continue;
    WarpState& warp = block.warps[a.warp];
    if (a.mask == of.warps[a.warp].live) {
      warp.known = join(warp.known, known);
      warp.fenced = join(warp.fenced, fenced);
      warp.met.all = std::max(warp.met.all, a.time);
    } else {
      each_lane(a.mask, [&](int i) { warp.lane(i).known = join(warp.lane(i).known, known); });
    }
    tick(warp);
  }
}

// ---- clusters ---------------------------------------------------------------------------------

void RaceCheck::cluster_arrive(Warp& warp, const Instr& instr, std::uint32_t mask) {
  BlockState& block = state_of(*warp.block);
  WarpState& state = block.warps[warp.index];
  Knowledge& to = clusters_[&warp.block->cluster].arriving;
  if (instr.order & kOrderRelaxed) {  // only what a fence before it has released
    to = join(to, join(block.fenced, state.fenced));
    if (state.lanes)
      each_lane(mask, [&](int i) {
        if (const Ref<Fence>& f = state.lane(i).fence[kClusterScope]) to = join(to, f->known);
      });
    return;
  }
  if (mask == warp.live) {
    const std::uint64_t key = thread_key(warp.block->linear, warp.index, 0);
    to = join(to, learn(known_of_warp(block, state), root_, key, kWarpLevel, state.now));
    if (state.lanes) each_lane(mask, [&](int i) { to = join(to, state.lane(i).known); });
  } else {
    each_lane(mask, [&](int i) { to = join(to, known_of(block, state, i)); });
  }
  tick(state);
}

void RaceCheck::learn_lanes(Warp& warp, std::uint32_t mask, const Knowledge& told) {
  WarpState& state = state_of(*warp.block).warps[warp.index];
  if (mask == warp.live)
    state.known = join(state.known, told);
  else
    each_lane(mask, [&](int i) { state.lane(i).known = join(state.lane(i).known, told); });
}

void RaceCheck::cluster_complete(Cluster& cluster) {
  ClusterState& state = clusters_[&cluster];
  state.told = std::exchange(state.arriving, {});
  for (const auto& block : cluster.blocks)
    for (Warp& warp : block->warps)
      for (const Fragment& f : warp.fragments)
        if (f.state == Fragment::State::at_cluster) learn_lanes(warp, f.mask, state.told);
}

void RaceCheck::cluster_wait(Warp& warp, const Instr&, std::uint32_t mask) {
  if (const std::uint32_t passing = mask & warp.cluster_passed)
    learn_lanes(warp, passing, clusters_[&warp.block->cluster].told);
}

}  // namespace vgpu::race
