// Waits of libcu++ that never end are named with their line, whatever loop nvcc makes of them; the
// same programs without the mistake end. Each case runs this program again with one of its
// "child:" cases.
#include <doctest/doctest.h>

#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>

#include <new>
#include <string>
#include <utility>

#include "child_process.h"

namespace {

using namespace vgpu_tests;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

__device__ Barrier* barrier_for(int threads) {
  __shared__ alignas(Barrier) char storage[sizeof(Barrier)];
  Barrier* barrier = reinterpret_cast<Barrier*>(storage);
  if (threadIdx.x == 0) init(barrier, threads);
  __syncthreads();
  return barrier;
}

__global__ void together(int expected) { barrier_for(expected)->arrive_and_wait(); }
__global__ void apart(int expected) {
  Barrier* barrier = barrier_for(expected);
  if (threadIdx.x < 32) barrier->wait(barrier->arrive());
}
__global__ void by_parity(int expected) {
  Barrier* barrier = barrier_for(expected);
  (void)barrier->arrive();
  barrier->wait_parity(false);
}
__global__ void with_latch(int expected) {
  using Latch = cuda::latch<cuda::thread_scope_block>;
  __shared__ alignas(Latch) char storage[sizeof(Latch)];
  Latch* latch = reinterpret_cast<Latch*>(storage);
  if (threadIdx.x == 0) new (latch) Latch(expected);
  __syncthreads();
  latch->arrive_and_wait();
}
__global__ void with_semaphore(int permits) {
  using Semaphore = cuda::counting_semaphore<cuda::thread_scope_block>;
  __shared__ alignas(Semaphore) char storage[sizeof(Semaphore)];
  Semaphore* semaphore = reinterpret_cast<Semaphore*>(storage);
  if (threadIdx.x == 0) new (semaphore) Semaphore(permits);
  __syncthreads();
  semaphore->acquire();
}

enum Missing { kNothing, kConsumerWait, kConsumerRelease, kProducerCommit };

// The first warp copies, the second takes, through a ring of two stages.
template <Missing kMissing>
__global__ void roles(const int* in, int* out) {
  using State = cuda::pipeline_shared_state<cuda::thread_scope_block, 2>;
  __shared__ alignas(State) char storage[sizeof(State)];
  __shared__ int stages[2][32];
  const int t = static_cast<int>(threadIdx.x);
  const auto role = t < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(),
                                  reinterpret_cast<State*>(storage), role);
  int sum = 0;
  for (int i = 0; i < 6; ++i) {
    if (t < 32) {
      pipe.producer_acquire();
      cuda::memcpy_async(&stages[i % 2][t], &in[32 * i + t], sizeof(int), pipe);
      if (kMissing != kProducerCommit) pipe.producer_commit();
    } else {
      if (kMissing != kConsumerWait) pipe.consumer_wait();
      sum += stages[i % 2][63 - t];
      if (kMissing != kConsumerRelease) pipe.consumer_release();
    }
  }
  if (t >= 32) out[t - 32] = sum;
}

template <Missing kMissing>
void run_roles() {
  int *in = nullptr, *out = nullptr;
  REQUIRE(cudaMalloc(&in, 192 * sizeof(int)) == cudaSuccess);
  REQUIRE(cudaMalloc(&out, 32 * sizeof(int)) == cudaSuccess);
  REQUIRE(cudaMemset(in, 0, 192 * sizeof(int)) == cudaSuccess);
  roles<kMissing><<<1, 64>>>(in, out);
}

// Run with as many as wait, and with one more or less than is needed.
template <class Kernel>
void run_one(Kernel kernel, int threads, int count) {
  kernel<<<1, threads>>>(count);
}

cudaError_t end() { return cudaDeviceSynchronize(); }

void check(const std::string& name, const std::string& kernel, bool hangs) {
  for (const char* order : {"", "VGPU_SCHEDULE=random:1", "VGPU_CHECK=sync"}) {
    const Result result =
        run("env " + std::string(order) + " timeout 60 /proc/" + std::to_string(getpid()) +
            "/exe --no-skip -tc='child: " + name + "'");
    INFO(name << " " << order << ":\n" << result.text);
    // With a check a launch that fails makes an exit status of 0 one of a finding.
    CHECK(result.code == (hangs && std::string(order).starts_with("VGPU_CHECK") ? 86 : 0));
    CHECK((result.text.find("runtime_deadlock.cu:") != std::string::npos) == hangs);
    CHECK((result.text.find("deadlock: the only block that runs waits in a loop for what no other "
                            "thread does") != std::string::npos) == hangs);
    CHECK((result.text.find("; waiting by thread") != std::string::npos) == hangs);
    CHECK((result.text.find(" in " + kernel) != std::string::npos) == hangs);
  }
}

}  // namespace

#define CHILD(name, call, error)               \
  TEST_CASE("child: " name* doctest::skip()) { \
    call;                                      \
    CHECK(end() == error);                     \
  }
CHILD("together", run_one(together, 128, 128), cudaSuccess)
CHILD("together one more", run_one(together, 128, 129), cudaErrorLaunchTimeout)
CHILD("together one warp one more", run_one(together, 32, 33), cudaErrorLaunchTimeout)
CHILD("apart", run_one(apart, 64, 32), cudaSuccess)
CHILD("apart all expected", run_one(apart, 64, 64), cudaErrorLaunchTimeout)
CHILD("parity", run_one(by_parity, 64, 64), cudaSuccess)
CHILD("parity one more", run_one(by_parity, 64, 65), cudaErrorLaunchTimeout)
CHILD("latch", run_one(with_latch, 64, 64), cudaSuccess)
CHILD("latch one more", run_one(with_latch, 64, 65), cudaErrorLaunchTimeout)
CHILD("semaphore", run_one(with_semaphore, 64, 64), cudaSuccess)
CHILD("semaphore one less", run_one(with_semaphore, 64, 63), cudaErrorLaunchTimeout)
CHILD("roles", run_roles<kNothing>(), cudaSuccess)
CHILD("roles no wait", run_roles<kConsumerWait>(), cudaErrorLaunchTimeout)
CHILD("roles no release", run_roles<kConsumerRelease>(), cudaErrorLaunchTimeout)
CHILD("roles no commit", run_roles<kProducerCommit>(), cudaErrorLaunchTimeout)

TEST_CASE("deadlock: cuda::barrier, with threads that never come") {
  check("together", "together", false);
  check("together one more", "together", true);
  check("together one warp one more", "together", true);
  check("apart", "apart", false);
  check("apart all expected", "apart", true);
  check("parity", "by_parity", false);
  check("parity one more", "by_parity", true);
}
TEST_CASE("deadlock: cuda::latch and cuda::counting_semaphore") {
  check("latch", "with_latch", false);
  check("latch one more", "with_latch", true);
  check("semaphore", "with_semaphore", false);
  check("semaphore one less", "with_semaphore", true);
}
TEST_CASE("deadlock: cuda::pipeline with roles, one line missing") {
  check("roles", "roles<", false);
  check("roles no wait", "roles<", true);
  check("roles no release", "roles<", true);
  check("roles no commit", "roles<", true);
}
