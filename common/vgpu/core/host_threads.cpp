#include "host_threads.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

namespace vgpu {

namespace {

// Launches often follow each other closely. For about 10 µs a thread only looks whether there is work:
// less than it takes to wake it.
constexpr int kLooks = 200;

template <class Condition>
void look_for(const Condition& condition) {
  for (int i = 0; i < kLooks && !condition(); ++i) {
#if defined(__x86_64__)
    __builtin_ia32_pause();  // (elsewhere it looks a little more often)
#endif
  }
}

}  // namespace

HostThreads::~HostThreads() {
  take_round(0, nullptr);
  for (std::thread& thread : threads_) thread.join();
}

void HostThreads::run(int count, const std::function<void(int)>& work) {
  if (count <= 1) return work(0);
  const int others = std::min(count - 1, make(count - 1));
  working_ = others;
  take_round(others + 1, &work);
  work(0);
  for (int place = others + 1; place < count; ++place) work(place);
  const auto ended = [&] { return working_.load(std::memory_order_acquire) == 0; };
  look_for(ended);
  if (ended()) return;
  std::unique_lock lock(mutex_);
  round_ended_.wait(lock, ended);
}

int HostThreads::make(int wanted) {
  try {
    while (static_cast<int>(threads_.size()) < wanted) {
      const int place = static_cast<int>(threads_.size()) + 1;
      threads_.emplace_back(&HostThreads::serve, this, place, round_.load());
    }
  } catch (const std::system_error&) {  // the host gives this process no more
  }
  return static_cast<int>(threads_.size());
}

void HostThreads::take_round(int count, const std::function<void(int)>* work) {
  {
    const std::lock_guard lock(mutex_);
    count_ = count;
    work_ = work;
    ++round_;
  }
  round_began_.notify_all();
}

// A round without work for this place may pass unseen; a round with work for it waits for it.
void HostThreads::serve(int place, std::uint64_t last_round) {
  const auto began = [&] { return round_.load(std::memory_order_relaxed) != last_round; };
  while (true) {
    look_for(began);
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      round_began_.wait(lock, began);
      last_round = round_;
      if (count_ == 0) return;
      if (place < count_) work = work_;
    }
    if (!work) continue;
    (*work)(place);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    const std::lock_guard lock(mutex_);
    round_ended_.notify_one();
  }
}

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace vgpu
