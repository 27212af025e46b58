// The host's own accesses to memory that the device may still use (VGPU_CHECK=host). Each program runs in a
// process of its own with the check on: right ones are silent, those without a wait say which operation
// the host meets, and exit with 86.
#include <doctest/doctest.h>

#include <cuda_runtime.h>

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "child_process.h"

namespace {

using namespace vgpu_tests;

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

__global__ void fill(int* x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void square(int* x) { x[threadIdx.x] *= x[threadIdx.x]; }
__global__ void copy(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void publish(int* x, volatile int* flag) {
  x[threadIdx.x] = 5;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) *flag = 1;
}
__global__ void raise_flag(volatile int* flag) { *flag = 1; }
__global__ void look_at_flag(const volatile int* flag, int* seen) { *seen = *flag; }
__global__ void hello() { printf("hello\n"); }

int* device(std::size_t count) {
  int* p = nullptr;
  CHECK_OK(cudaMalloc(&p, count * sizeof(int)));
  CHECK_OK(cudaMemset(p, 0, count * sizeof(int)));
  CHECK_OK(cudaDeviceSynchronize());
  return p;
}
int* pinned(std::size_t count) {
  int* p = nullptr;
  CHECK_OK(cudaMallocHost(&p, count * sizeof(int)));
  return p;
}
int* managed(std::size_t count) {
  int* p = nullptr;
  CHECK_OK(cudaMallocManaged(&p, count * sizeof(int)));
  for (std::size_t i = 0; i < count; ++i) p[i] = static_cast<int>(i);
  return p;
}
cudaStream_t stream() {
  cudaStream_t s = nullptr;
  CHECK_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  return s;
}
void store(int* p, int value) { *static_cast<volatile int*>(p) = value; }
int load(const int* p) { return *static_cast<const volatile int*>(p); }

// What the host does between an operation and its own access.
using Between = std::function<void(cudaStream_t)>;
const Between nothing = [](cudaStream_t) {};
const Between wait = [](cudaStream_t s) { CHECK_OK(cudaStreamSynchronize(s)); };

// By name: a program, and what is said of it ("" for nothing).
struct Program {
  std::string finding;
  std::function<void()> run;
};
using Programs = std::map<std::string, Program>;

std::function<void()> reads_result(const Between& between) {
  return [=] {
    int *x = device(1), *host = pinned(1);
    store(host, 0);
    const cudaStream_t s = stream();
    fill<<<1, 1, 0, s>>>(x, 5);
    CHECK_OK(cudaMemcpyAsync(host, x, sizeof(int), cudaMemcpyDeviceToHost, s));
    between(s);
    CHECK(load(host) == 5);
  };
}
std::function<void()> refills(const Between& between) {
  return [=] {
    constexpr std::size_t kCount = 3000;  // not a whole number of pages
    int *x = device(kCount), *host = pinned(kCount);
    const cudaStream_t s = stream();
    for (int batch = 0; batch < 2; ++batch) {
      for (std::size_t i = 0; i < kCount; ++i) store(host + i, batch);
      CHECK_OK(cudaMemcpyAsync(x, host, kCount * sizeof(int), cudaMemcpyHostToDevice, s));
      CHECK(load(host + 2999) == batch);  // the copy reads it, too
      between(s);
    }
  };
}
std::function<void()> reads_managed(const Between& between) {
  return [=] {
    int* x = managed(64);
    square<<<1, 64>>>(x);
    between(nullptr);
    CHECK(load(x + 9) == 81);
  };
}
std::function<void()> writes_managed(const Between& between) {
  return [=] {
    int *x = managed(64), *y = device(64);
    copy<<<1, 64>>>(x, y);
    CHECK(load(x + 9) == 9);
    between(nullptr);
    store(x + 9, 1);
  };
}
std::function<void()> copies(std::size_t count, const Between& between) {
  return [=] {
    int *x = device(count), *y = device(count);
    std::vector<int> host(count, 4);
    const cudaStream_t s = stream();
    CHECK_OK(cudaMemcpy(x, host.data(), count * sizeof(int), cudaMemcpyHostToDevice));
    between(nullptr);
    copy<<<1, 64, 0, s>>>(x, y);
    CHECK_OK(cudaStreamSynchronize(s));
  };
}

Programs waits() {
  return {
      {"pinned, read at once",
       {"error: race with the host: write by cudaMemcpyAsync in stream 3 (non-blocking) and read "
        "by the host",
        reads_result(nothing)}},
      {"pinned, read after the stream", {"", reads_result(wait)}},
      {"pinned, read after an event", {"", reads_result([](cudaStream_t s) {
                                         cudaEvent_t e = nullptr;
                                         CHECK_OK(cudaEventCreate(&e));
                                         CHECK_OK(cudaEventRecord(e, s));
                                         CHECK_OK(cudaEventSynchronize(e));
                                       })}},
      {"pinned, read after a query",
       {"", reads_result([](cudaStream_t s) { CHECK_OK(cudaStreamQuery(s)); })}},
      {"pinned, read after another stream",
       {"and read by the host", reads_result([](cudaStream_t) { wait(stream()); })}},
      {"pinned, filled again at once",
       {"error: race with the host: read by cudaMemcpyAsync in stream 3 (non-blocking) and write "
        "by the host",
        refills(nothing)}},
      {"pinned, filled again after the stream", {"", refills(wait)}},
      {"managed, read at once",
       {"error: race with the host: write by square in the default stream and read by the host",
        reads_managed(nothing)}},
      {"managed, read after the device", {"", reads_managed(wait)}},
      {"managed, written at once",
       {"error: race with the host: read by copy in the default stream and write by the host",
        writes_managed(nothing)}},
      {"managed, written after the device", {"", writes_managed(wait)}},
  };
}

// What is not the operation's, and other ways to know.
Programs others() {
  return {
      {"the other half of a buffer",
       {"",
        [] {
          int *x = device(1024), *host = pinned(2048);
          CHECK_OK(cudaMemcpyAsync(host, x, 4096, cudaMemcpyDeviceToHost, stream()));
          store(host + 1024, 1);
        }}},
      {"the word beside",
       {"",
        [] {
          int *x = device(1), *host = pinned(2);
          CHECK_OK(cudaMemcpyAsync(host, x, sizeof(int), cudaMemcpyDeviceToHost, stream()));
          store(host + 1, 1);
        }}},
      {"a kernel that tells the host by a flag",
       {"",
        [] {
          int *x = managed(64), *flag = pinned(1);
          store(flag, 0);
          publish<<<1, 64>>>(x, flag);
          while (load(flag) == 0) {
          }
          CHECK(load(x + 9) == 5);
        }}},
      {"a function of the host in the stream",
       {"",
        [] {
          int *x = device(1), *host = pinned(1);
          const cudaStream_t s = stream();
          fill<<<1, 1, 0, s>>>(x, 5);
          CHECK_OK(cudaMemcpyAsync(host, x, sizeof(int), cudaMemcpyDeviceToHost, s));
          CHECK_OK(cudaLaunchHostFunc(
              s, [](void* p) { store(static_cast<int*>(p), load(static_cast<int*>(p)) + 1); },
              host));
          CHECK(load(host) == 6);
        }}},
      {"the next operations of the stream",
       {"",
        [] {
          int *x = managed(64), *y = managed(64), *host = pinned(64);
          square<<<1, 64>>>(x);
          copy<<<1, 64>>>(x, y);
          CHECK_OK(cudaMemcpyAsync(host, y, 256, cudaMemcpyDefault));
          CHECK_OK(cudaDeviceSynchronize());
          CHECK(load(host + 9) == 81);
        }}},
      {"freed at once",
       {"",
        [] {
          int *x = device(1), *host = pinned(1);
          CHECK_OK(cudaMemcpyAsync(host, x, sizeof(int), cudaMemcpyDeviceToHost, stream()));
          CHECK_OK(cudaFreeHost(host));
          int* again = pinned(1);
          store(again, 1);
        }}},
      {"memory of the program, registered",
       {"",
        [] {
          int* x = device(1024);
          int* host = static_cast<int*>(std::aligned_alloc(4096, 8192));
          CHECK_OK(cudaHostRegister(host, 4096, cudaHostRegisterDefault));
          CHECK_OK(cudaMemcpyAsync(host, x, 4000, cudaMemcpyDeviceToHost, stream()));
          store(host + 1001, 1);
        }}},
      {"a large copy from memory that is not pinned",
       {"write by cudaMemcpy (from memory that is not pinned: it returns before its last part is "
        "there) in "
        "the default stream and read by copy in stream 3 (non-blocking)",
        copies(1 << 18, nothing)}},
      {"a large copy from memory that is not pinned, waited for", {"", copies(1 << 18, wait)}},
      {"a small copy from memory that is not pinned", {"", copies(1 << 14, nothing)}},
      {"output that nobody waits for",
       {"the program ends before it has waited for hello, whose output of printf a GPU does not "
        "show then "
        "(cudaDeviceSynchronize)",
        [] { hello<<<1, 1>>>(); }}},
      {"output that is waited for",
       {"",
        [] {
          hello<<<1, 1>>>();
          CHECK_OK(cudaDeviceSynchronize());
        }}},
  };
}

// Copies that return when they are done, whatever their names say.
Programs copies_that_wait() {
  constexpr std::size_t kBytes = 20000;
  const auto copied = [](const std::function<void(int* host, int* other)>& copy, bool of_host) {
    return [=] {
      int* const x = managed(kBytes / 4);
      int* const host = of_host ? pinned(kBytes / 4) : x;
      copy(host, of_host ? pinned(kBytes / 4) : device(kBytes / 4));
      store(host + 9, 1);
    };
  };
  return {
      {"cudaMemcpy to managed memory",
       {"", copied(
                [](int* host, int* other) {
                  CHECK_OK(cudaMemcpy(host, other, kBytes, cudaMemcpyDeviceToHost));
                },
                false)}},
      {"cudaMemcpy from managed memory",
       {"", copied([](int* host,
                      int* other) { CHECK_OK(cudaMemcpy(other, host, kBytes, cudaMemcpyDefault)); },
                   false)}},
      {"cudaMemset of managed memory",
       {"", copied([](int* host, int*) { CHECK_OK(cudaMemset(host, 1, kBytes)); }, false)}},
      {"from host to host",
       {"", copied(
                [](int* host, int* other) {
                  CHECK_OK(cudaMemcpyAsync(host, other, kBytes, cudaMemcpyDefault, stream()));
                },
                true)}},
      {"cudaMemsetAsync of managed memory",
       {"write by cudaMemsetAsync in stream 3 (non-blocking) and write by the host",
        copied([](int* host, int*) { CHECK_OK(cudaMemsetAsync(host, 1, kBytes, stream())); },
               false)}}};
}

// What tells the host that an operation is over, and what tells it nothing.
Programs messages() {
  return {
      {"a flag of a later kernel",
       {"",
        [] {
          int *x = managed(64), *flag = pinned(1);
          store(flag, 0);
          square<<<1, 64>>>(x);
          raise_flag<<<1, 1>>>(flag);
          while (load(flag) == 0) {
          }
          CHECK(load(x + 9) == 81);
        }}},
      {"a flag of a kernel in another stream",
       {"write by square in the default stream and read by the host",
        [] {
          int *x = managed(64), *flag = pinned(1);
          store(flag, 0);
          square<<<1, 64>>>(x);
          raise_flag<<<1, 1, 0, stream()>>>(flag);
          CHECK(load(flag) == 1);
          CHECK(load(x + 9) == 81);
        }}},
      {"a flag that a kernel looks at",
       {"",
        [] {
          int *seen = device(1), *flag = pinned(1);
          store(flag, 0);
          look_at_flag<<<1, 1>>>(flag, seen);
          store(flag, 1);
        }}},
      {"the time between events that are over",
       {"",
        [] {
          int *x = device(1), *host = pinned(1);
          cudaEvent_t events[2] = {};
          for (cudaEvent_t& event : events) CHECK_OK(cudaEventCreate(&event));
          CHECK_OK(cudaEventRecord(events[0]));
          CHECK_OK(cudaMemcpyAsync(host, x, sizeof(int), cudaMemcpyDeviceToHost));
          CHECK_OK(cudaEventRecord(events[1]));
          float time = 0;
          while (cudaEventElapsedTime(&time, events[0], events[1]) == cudaErrorNotReady) {
          }
          CHECK(load(host) == 0);
        }}},
      {"a large copy from memory that is not pinned, behind a kernel",
       {"",
        [] {
          int *x = managed(64), *y = device(1 << 18);
          const std::vector<int> host(1 << 18, 4);
          square<<<1, 64>>>(x);
          CHECK_OK(cudaMemcpy(y, host.data(), host.size() * sizeof(int), cudaMemcpyHostToDevice));
          CHECK(load(x + 9) == 81);
        }}},
      {"the second page",
       {"and read by the host",
        [] {
          int *x = device(1024), *host = pinned(2048);
          CHECK_OK(cudaMemcpyAsync(host + 1024, x, 4096, cudaMemcpyDeviceToHost, stream()));
          CHECK(load(host + 1026) == 0);
        }}},
      {"the last of many launches",
       {"write by fill in the default stream and read by the host",
        [] {
          int* x = managed(1 << 16);
          for (int i = 0; i < 200; ++i) fill<<<256, 256>>>(x, i);
          CHECK(load(x + 9) == 199);
        }}},
  };
}

const Programs& programs() {
  static const Programs all = [] {
    Programs sum = waits();
    sum.merge(others());
    sum.merge(copies_that_wait());
    sum.merge(messages());
    return sum;
  }();
  return all;
}

Result run_alone(const std::string& check, const std::string& name) {
  return child("VGPU_CHECK=" + check + " HOST_PROGRAM='" + name + "'", "program");
}

}  // namespace

TEST_CASE("child: program" * doctest::skip()) {
  const char* name = std::getenv("HOST_PROGRAM");
  REQUIRE(name != nullptr);
  programs().at(name).run();
  CHECK_OK(cudaGetLastError());
}
// Programs with a handler of their own, which gets over an access to no memory.
sigjmp_buf before_fault;
void get_over(int) { siglongjmp(before_fault, 1); }
bool faults(const std::function<void()>& access) {
  if (sigsetjmp(before_fault, 1) != 0) return true;
  access();
  return false;
}
bool faults() {
  return faults([] { store(reinterpret_cast<int*>(64), 1); });
}
int fill_stack(int depth) {
  volatile char large[4096];
  large[depth % 4096] = 1;
  return depth < 0 ? 0 : fill_stack(depth + 1) + large[3];
}

TEST_CASE("child: a handler before" * doctest::skip()) {
  std::signal(SIGSEGV, get_over);
  int* x = managed(64);
  for (int i = 0; i < 2; ++i) {
    square<<<1, 64>>>(x);
    CHECK(faults());
    CHECK(faults());
  }
  CHECK_OK(cudaDeviceSynchronize());
  CHECK(faults());
  square<<<1, 64>>>(x);
  CHECK(load(x + 1) == 1);  // found
}
// It remembers what it replaces, which is the check's, and puts that back.
TEST_CASE("child: a handler meanwhile" * doctest::skip()) {
  int* x = managed(64);
  square<<<1, 64>>>(x);
  struct sigaction own {
  }, old{};
  own.sa_handler = get_over;
  sigaction(SIGSEGV, &own, &old);
  CHECK(faults());
  square<<<1, 64>>>(x);
  CHECK(load(x + 1) == 1);  // not found
  CHECK(faults());
  sigaction(SIGSEGV, &old, nullptr);
  square<<<1, 64>>>(x);
  CHECK(load(x + 1) == 1);  // found
}
// It gives on what it gets, to the handler of the check, and that to the one before.
void give_on(int signal, siginfo_t* info, void* context);
struct sigaction behind {};
void give_on(int signal, siginfo_t* info, void* context) {
  if (behind.sa_flags & SA_SIGINFO) behind.sa_sigaction(signal, info, context);
}
TEST_CASE("child: a handler that gives on" * doctest::skip()) {
  std::signal(SIGSEGV, get_over);
  int* x = managed(64);
  square<<<1, 64>>>(x);
  struct sigaction own {};
  own.sa_sigaction = give_on;
  own.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &own, &behind);
  CHECK(faults());
  CHECK_OK(cudaDeviceSynchronize());
  square<<<1, 64>>>(x);
  CHECK(faults());
}
TEST_CASE("child: a handler on a stack of its own" * doctest::skip()) {
  static char stack[1 << 16];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  sigaltstack(&other, nullptr);
  struct sigaction own {};
  own.sa_handler = get_over;
  own.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &own, nullptr);
  int* x = managed(64);
  square<<<1, 64>>>(x);
  CHECK(faults([] { CHECK(fill_stack(0) == 0); }));
}
// Ends by the signal as if there were no check.
TEST_CASE("child: a handler for once" * doctest::skip()) {
  int* x = managed(64);
  struct sigaction own {};
  own.sa_handler = [](int) {};
  own.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGSEGV, &own, nullptr);
  square<<<1, 64>>>(x);
  store(reinterpret_cast<int*>(64), 1);
}
TEST_CASE("child: wild pointer" * doctest::skip()) {
  int* x = managed(64);
  square<<<1, 64>>>(x);
  store(reinterpret_cast<int*>(64), 1);
}

TEST_CASE("host: what it touches of memory in use is found, what it has waited for is not") {
  for (const auto& [name, program] : programs()) {
    CAPTURE(name);
    for (const char* const check : {"host", "all"}) {
      CAPTURE(check);
      const Result result = run_alone(check, name);
      CAPTURE(result.text);
      CHECK(result.code == (program.finding.empty() ? 0 : 86));
      CHECK(result.text.find(program.finding) != std::string::npos);
      CHECK((result.text.find("vgpu: 1 finding") != std::string::npos) == !program.finding.empty());
    }
    // Another check does not look there.
    CHECK(run_alone("race", name).code == 0);
  }
}

TEST_CASE("host: an access to no memory ends the program as ever") {
  const Result result = child("VGPU_CHECK=host", "wild pointer");
  CAPTURE(result.text);
  CHECK(result.code != 0);
  CHECK(result.text.find("race with the host") == std::string::npos);
}

TEST_CASE("host: a program's own handler of SIGSEGV gets what it would get") {
  const std::map<std::string, int> children = {{"a handler before", 86},
                                               {"a handler meanwhile", 86},
                                               {"a handler that gives on", 0},
                                               {"a handler on a stack of its own", 0},
                                               {"a handler for once", 128 + SIGSEGV}};
  for (const auto& [name, code] : children) {
    CAPTURE(name);
    const Result result = child("VGPU_CHECK=host timeout 60", name);
    CAPTURE(result.text);
    CHECK(result.code == code);
    CHECK(result.text.find("FAILURE") == std::string::npos);
    CHECK((result.text.find("vgpu: 1 finding") != std::string::npos) == (code == 86));
  }
}

TEST_CASE("host: the byte in the allocation, not in what was copied") {
  const Result result = run_alone("host", "the second page");
  CAPTURE(result.text);
  CHECK(result.text.find("byte 4104 of an allocation of 8192 bytes") != std::string::npos);
}
