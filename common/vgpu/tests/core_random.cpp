// A seed of VGPU_SCHEDULE means the same schedule everywhere: the numbers are the standard's.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "../core/random.h"

TEST_CASE("random: numbers and shuffles are those of std::mt19937_64") {
  for (const std::uint64_t seed : std::vector<std::uint64_t>{1, 7 * 0x9E3779B97F4A7C15ull, ~0ull}) {
    CAPTURE(seed);
    std::mt19937_64 standard(seed);
    vgpu::Random first(seed);
    vgpu::Random random = std::move(first);
    bool same = true;
    for (int i = 0; i < 1000; ++i) same = same && random() == standard();
    CHECK(same);

    std::vector<int> expected(997);
    std::iota(expected.begin(), expected.end(), 0);
    std::vector<int> shuffled = expected;
    std::shuffle(expected.begin(), expected.end(), standard);
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    CHECK(shuffled == expected);
    CHECK(!std::is_sorted(shuffled.begin(), shuffled.end()));

    random = vgpu::Random(seed);
    standard.seed(seed);
    CHECK(random() == standard());
  }
}
