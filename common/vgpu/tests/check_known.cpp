// The tree of what threads know of each other against the plain array that it stands for.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "../check/clock.h"
#include "../check/known.h"

using namespace vgpu;

TEST_CASE("known: learning and joining say what an array would") {
  constexpr std::uint64_t kBlocks = 40, kThreads = kBlocks * 1024;  // two groups of blocks
  constexpr int kRoot = 3, kTrees = 4;
  for (unsigned seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<Knowledge> trees(kTrees);
    std::vector<std::vector<Time>> arrays(kTrees, std::vector<Time>(kThreads, 0));
    std::size_t differences = 0, positive = 0;
    for (int step = 0; step < 300; ++step) {
      const std::size_t a = random() % kTrees, b = random() % kTrees;
      const std::uint64_t key = random() % kThreads;
      const Time time = 1 + random() % 1000;
      const Knowledge before = trees[a];
      const Time seen = known_until(before, key);
      switch (random() % 4) {
        case 0: {
          trees[a] = learn(trees[a], kRoot, key, kThreadLevel, time);
          arrays[a][key] = std::max(arrays[a][key], time);
          break;
        }
        case 1:
        case 2: {
          const bool warp = random() % 2;
          trees[a] = learn(trees[a], kRoot, key, warp ? kWarpLevel : kBlockLevel, time);
          const std::uint64_t size = warp ? 32 : 1024, first = key / size * size;
          for (std::uint64_t i = first; i < first + size; ++i)
            arrays[a][i] = std::max(arrays[a][i], time);
          break;
        }
        case 3: {
          trees[a] = join(trees[a], trees[b]);
          for (std::uint64_t i = 0; i < kThreads; ++i)
            arrays[a][i] = std::max(arrays[a][i], arrays[b][i]);
          break;
        }
      }
      differences += known_until(before, key) != seen;  // trees that others hold never change
      for (int probe = 0; probe < 50; ++probe) {
        // Near what was just touched, and anywhere.
        const std::uint64_t k = probe % 2 ? random() % kThreads : (key & ~63ull) + random() % 64;
        const Time is = known_until(trees[a], k);
        differences += is != arrays[a][k];
        positive += is > 0;
        // What is known of a whole warp holds for each of its lanes.
        const auto lanes = arrays[a].begin() + static_cast<std::ptrdiff_t>(k / 32 * 32);
        differences += known_until(trees[a], k, kWarpLevel) > *std::min_element(lanes, lanes + 32);
      }
    }
    CHECK(differences == 0);
    CHECK(positive > 1000);
  }
}

TEST_CASE("known: two that know lanes of one warp are joined lane by lane") {
  const auto know = [](std::initializer_list<std::pair<std::uint64_t, Time>> lanes) {
    Knowledge tree;
    for (const auto& [key, time] : lanes) tree = learn(tree, 3, key, kThreadLevel, time);
    return tree;
  };
  const Knowledge both = join(know({{5, 10}, {6, 40}}), know({{5, 30}, {7, 20}}));
  CHECK(known_until(both, 5) == 30);
  CHECK(known_until(both, 6) == 40);
  CHECK(known_until(both, 7) == 20);
  CHECK(known_until(both, 8) == 0);
}

TEST_CASE("clock: what is known beyond the floor stays when the floor rises") {
  Clock clock;
  clock.learn(1, 10);
  clock.learn(2, 20);
  clock.learn_all(15);
  CHECK(clock.floor() == 15);
  for (const Timeline timeline : {1u, 3u}) {
    CHECK(clock.knows(timeline, 15));
    CHECK(!clock.knows(timeline, 16));
  }
  CHECK(clock.knows(2, 20));
  CHECK(!clock.knows(2, 21));
  Clock other;
  other.learn(3, 17);
  other.learn(2, 19);
  clock.join(other);
  CHECK(clock.knows(3, 17));
  CHECK(clock.knows(2, 20));
  CHECK(!clock.knows(1, 16));
}
