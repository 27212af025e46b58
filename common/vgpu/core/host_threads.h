// The host's threads that run a launch's blocks, beside the thread that launches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace vgpu {

// They are made when a launch first needs them and sleep between launches: a program on the virtual
// GPU leaves the processor to others whenever its host's code waits or works alone. (OpenMP's threads
// wait actively, and a library cannot ask them not to.)
class HostThreads {
 public:
  HostThreads() = default;
  ~HostThreads();
  HostThreads(const HostThreads&) = delete;

  // Runs work(0) to work(count - 1) at the same time, 0 on the caller's thread and each other one on a
  // thread of its own; where the host has no more threads, the rest after 0. Returns when all have ended.
  // `work` does not throw. One call at a time.
  void run(int count, const std::function<void(int)>& work);

 private:
  int make(int wanted);  // threads, and how many there are then
  void serve(int place, std::uint64_t last_round);
  void take_round(int count, const std::function<void(int)>* work);

  std::vector<std::thread> threads_;  // threads_[0] runs work(1)
  std::mutex mutex_;
  std::condition_variable round_began_, round_ended_;
  std::atomic<std::uint64_t> round_{
      0};          // calls of run() so far; written under the mutex, as count_ is
  int count_ = 0;  // places of this round; 0: the threads are to end
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<int> working_{0};  // threads that have not ended their work of this round
};

// How many processors this process may use.
int processors();

}  // namespace vgpu
