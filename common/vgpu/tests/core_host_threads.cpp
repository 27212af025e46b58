// The host's threads: each place of a round is worked on once, by a thread of its own, and who waits for
// the next round takes no processor time.
#include <doctest/doctest.h>

#include <chrono>
#include <ctime>
#include <set>
#include <thread>
#include <vector>

#include "vgpu/core/host_threads.h"

using vgpu::HostThreads;

namespace {

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

TEST_CASE("host threads: a round works on each place once, on a thread of its own") {
  HostThreads threads;
  const std::thread::id caller = std::this_thread::get_id();
  // Rounds of fewer places than there are threads lie between larger ones.
  for (int round = 0; round < 2000; ++round) {
    const int count = 1 + round * 7 % 5;
    CAPTURE(round);
    CAPTURE(count);
    std::vector<int> times(5);
    std::vector<std::thread::id> who(5);
    threads.run(count, [&](int place) {
      ++times[place];
      who[place] = std::this_thread::get_id();
    });
    for (int place = 0; place < 5; ++place) REQUIRE(times[place] == (place < count ? 1 : 0));
    CHECK(who[0] == caller);
    REQUIRE(std::set(who.begin(), who.begin() + count).size() == static_cast<std::size_t>(count));
  }
}

TEST_CASE("host threads: all places of a round are worked on at the same time") {
  HostThreads threads;
  std::atomic<int> there{0};
  threads.run(4, [&](int) {
    ++there;
    while (there < 4) std::this_thread::yield();  // only once all have come
  });
  CHECK(there == 4);
}

TEST_CASE("host threads: between rounds they sleep, and a waiting caller sleeps, too") {
  using namespace std::chrono_literals;
  HostThreads threads;
  const double before = processor_seconds();
  for (int round = 0; round < 10; ++round) {
    threads.run(4, [](int place) {
      if (place == 3) std::this_thread::sleep_for(50ms);
    });
    std::this_thread::sleep_for(50ms);
  }
  // A second in which four threads have nothing to do. One that looked all the time took half of it.
  CHECK(processor_seconds() - before < 0.25);
}
