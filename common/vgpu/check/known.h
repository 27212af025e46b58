// What a thread knows of the others: for each thread of the grid the time up to which everything it
// did happens before what the knower does next (a vector clock).
//
// A grid has far too many threads for a plain array each. Knowledge comes in bulk, though: a
// barrier tells of a whole block, __syncwarp of a whole warp. So it is a tree (lanes, warps,
// blocks, groups of 32 blocks ...), each node with a floor that holds for all threads below. Trees
// are never changed once made, and share what they have in common: passing knowledge on is copying
// a pointer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "../core/warp.h"

namespace vgpu {

using Time = std::uint64_t;

struct Known {
  std::uint32_t references = 0;
  int level = 0;                           // 0: a warp, 1: a block, 2 and up: 32 of the level below
  Time floor = 0, max = 0;                 // up to here all threads below are known; any of them
  std::unique_ptr<Time[]> lanes;           // level 0
  std::unique_ptr<Ref<Known>[]> children;  // other levels
};
using Knowledge = Ref<Known>;

inline constexpr int kThreadLevel = -1, kWarpLevel = 0, kBlockLevel = 1;

inline std::uint64_t thread_key(std::uint64_t block, std::uint32_t warp, std::uint32_t lane) {
  return block << 10 | warp << 5 | lane;
}

// The time up to which the thread is known. With `stop` kWarpLevel, the time up to which all lanes of its
// warp are known.
inline Time known_until(const Knowledge& tree, std::uint64_t key, int stop = kThreadLevel) {
  Time best = 0;
  for (const Known* node = tree.get(); node;) {
    best = std::max(best, node->floor);
    if (node->level == stop) break;
    if (node->level == 0) {
      if (node->lanes) best = std::max(best, node->lanes[key & 31]);
      break;
    }
    node = node->children ? node->children[key >> (5 * node->level) & 31].get() : nullptr;
  }
  return best;
}

// `old` with everything of the thread, warp or block (`target`) up to `time` known as well.
inline Knowledge learn(const Knowledge& old, int level, std::uint64_t key, int target, Time time) {
  if (old && old->floor >= time) return old;
  Knowledge fresh(new Known);
  fresh->level = level;
  if (old) fresh->floor = old->floor, fresh->max = old->max;
  fresh->max = std::max(fresh->max, time);
  if (level == target) fresh->floor = time;
  if (fresh->floor == fresh->max) return fresh;  // nobody is known better
  if (level == 0) {
    fresh->lanes = std::make_unique<Time[]>(32);
    if (old && old->lanes) std::copy_n(old->lanes.get(), 32, fresh->lanes.get());
    if (level != target) fresh->lanes[key & 31] = std::max(fresh->lanes[key & 31], time);
    return fresh;
  }
  fresh->children = std::make_unique<Ref<Known>[]>(32);
  if (old && old->children)
    for (int i = 0; i < 32; ++i)
      if (old->children[i] && old->children[i]->max > fresh->floor)
        fresh->children[i] = old->children[i];
  if (level != target) {
    Knowledge& child = fresh->children[key >> (5 * level) & 31];
    child = learn(child, level - 1, key, target, time);
  }
  return fresh;
}

inline Knowledge join(const Knowledge& a, const Knowledge& b) {
  if (!a || a.get() == b.get()) return b;
  if (!b || b->max <= a->floor) return a;
  if (a->max <= b->floor) return b;
  Knowledge fresh(new Known);
  fresh->level = a->level;
  fresh->floor = std::max(a->floor, b->floor);
  fresh->max = std::max(a->max, b->max);
  bool as_a = fresh->floor == a->floor, as_b = fresh->floor == b->floor;
  if (a->level == 0) {
    fresh->lanes = std::make_unique<Time[]>(32);
    for (int i = 0; i < 32; ++i) {
      const Time x = a->lanes ? a->lanes[i] : 0, y = b->lanes ? b->lanes[i] : 0;
      fresh->lanes[i] = std::max(x, y);
      as_a &= fresh->lanes[i] == x;
      as_b &= fresh->lanes[i] == y;
    }
  } else {
    fresh->children = std::make_unique<Ref<Known>[]>(32);
    for (int i = 0; i < 32; ++i) {
      const Knowledge x = a->children ? a->children[i] : Knowledge(),
                      y = b->children ? b->children[i] : Knowledge();
      Knowledge child = join(x, y);
      as_a &= child.get() == x.get();
      as_b &= child.get() == y.get();
      if (child && child->max > fresh->floor) fresh->children[i] = std::move(child);
    }
  }
  return as_a ? a : as_b ? b : fresh;  // one that is there keeps later joins short
}

}  // namespace vgpu
