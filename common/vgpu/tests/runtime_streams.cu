// What orders the work of streams, and the check that finds where nothing does (VGPU_CHECK=race).
// Each program runs in a process of its own with the check on: correct ones are silent, those with a
// missing wait say which two operations meet and exit with 86.
#include <doctest/doctest.h>

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "child_process.h"

namespace {

using namespace vgpu_tests;

constexpr int kCount = 2048, kBytes = kCount * 4, kBlock = 256, kGrid = kCount / kBlock;

__global__ void fill(int* x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void increment(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
__global__ void copy(const int* x, int* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}
__global__ void sum(const int* a, const int* b, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = a[i] + b[i];
}
__global__ void every_other(int* x, int first) {
  x[2 * (blockIdx.x * blockDim.x + threadIdx.x) + first] = first;
}
__global__ void count(int* counter) { atomicAdd(counter, 1); }
__global__ void bytes(char* x, int at) { x[at] = 1; }

__constant__ int other_table[8], table[64];
__global__ void look_up(int* out) { out[threadIdx.x] = table[threadIdx.x] + other_table[0]; }

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

int* device() {
  int* p = nullptr;
  CHECK_OK(cudaMalloc(&p, kBytes));
  CHECK_OK(cudaMemset(p, 0, kBytes));
  CHECK_OK(cudaDeviceSynchronize());
  return p;
}
int* pinned() {
  int* p = nullptr;
  CHECK_OK(cudaMallocHost(&p, kBytes));
  return p;
}
cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t s = nullptr;
  CHECK_OK(cudaStreamCreateWithFlags(&s, flags));
  return s;
}
cudaEvent_t event() {
  cudaEvent_t e = nullptr;
  CHECK_OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  return e;
}
cudaEvent_t recorded(cudaStream_t s) {
  const cudaEvent_t e = event();
  CHECK_OK(cudaEventRecord(e, s));
  return e;
}
void wait(cudaStream_t s, cudaEvent_t e) { CHECK_OK(cudaStreamWaitEvent(s, e)); }
void fill_in(cudaStream_t s, int* x) { fill<<<kGrid, kBlock, 0, s>>>(x, 1); }
void copy_in(cudaStream_t s, const int* x, int* y) { copy<<<kGrid, kBlock, 0, s>>>(x, y); }

// A kernel reads the first 32 words of the table, and 31 from `from` on are copied into it in another stream.
void renew_table(bool waits, int from) {
  int *y = device(), *host = pinned();
  const cudaStream_t a = stream(), b = stream();
  look_up<<<1, 32, 0, a>>>(y);
  if (waits) wait(b, recorded(a));
  CHECK_OK(cudaMemcpyToSymbolAsync(table, host, 31 * sizeof(int), from * sizeof(int),
                                   cudaMemcpyHostToDevice, b));
  CHECK_OK(cudaDeviceSynchronize());
}

// By name: a program, and what is said of it ("" for nothing).
struct Program {
  std::string finding;
  std::function<void()> run;
};

// x is written in one stream and read in another; `between` may put them in order.
std::function<void()> two(std::function<void(cudaStream_t, cudaStream_t)> between) {
  return [between] {
    int *x = device(), *y = device();
    const cudaStream_t a = stream(), b = stream();
    fill_in(a, x);
    between(a, b);
    copy_in(b, x, y);
  };
}

// Programs by name.
using Programs = std::map<std::string, Program>;

// What orders, and what does not.
Programs what_orders() {
  return {
      {"two streams",
       {"write by fill in stream 3 (non-blocking) and read by copy in stream 4 "
        "(non-blocking) at ",
        two([](auto, auto) {})}},
      {"an event", {"", two([](auto a, auto b) { wait(b, recorded(a)); })}},
      {"an event that was never recorded",
       {"; stream 4 (non-blocking) has waited for an event that nobody had recorded, which orders "
        "nothing",
        two([](auto, auto b) { wait(b, event()); })}},
      {"an event recorded too early",
       {"write by fill",
        [] {
          int *x = device(), *y = device();
          const cudaStream_t a = stream(), b = stream();
          const cudaEvent_t e = recorded(a);
          fill_in(a, x);
          wait(b, e);
          copy_in(b, x, y);
        }}},
      {"an event recorded again",
       {"",
        [] {
          int *x = device(), *y = device();
          const cudaStream_t a = stream(), b = stream();
          const cudaEvent_t e = recorded(a);
          fill_in(a, x);
          CHECK_OK(cudaEventRecord(e, a));
          wait(b, e);
          copy_in(b, x, y);
        }}},
      {"an event through a third stream", {"", two([](auto a, auto b) {
                                             const cudaStream_t c = stream();
                                             wait(c, recorded(a));
                                             wait(b, recorded(c));
                                           })}},
      {"a wait in the wrong direction",
       {"write by fill", two([](auto a, auto b) { wait(a, recorded(b)); })}},
      {"stream synchronized", {"", two([](auto a, auto) { CHECK_OK(cudaStreamSynchronize(a)); })}},
      {"the other stream synchronized",
       {"write by fill", two([](auto, auto b) { CHECK_OK(cudaStreamSynchronize(b)); })}},
      {"stream queried", {"", two([](auto a, auto) { CHECK_OK(cudaStreamQuery(a)); })}},
      {"event synchronized",
       {"", two([](auto a, auto) { CHECK_OK(cudaEventSynchronize(recorded(a))); })}},
      {"event queried", {"", two([](auto a, auto) { CHECK_OK(cudaEventQuery(recorded(a))); })}},
      {"device synchronized", {"", two([](auto, auto) { CHECK_OK(cudaDeviceSynchronize()); })}},
      {"another thread synchronizes",
       {"", two([](auto a, auto) { std::thread([a] { cudaStreamSynchronize(a); }).join(); })}},
      {"a host function", {"write by fill", two([](auto a, auto) {
                             CHECK_OK(cudaLaunchHostFunc(
                                 a, [](void*) {}, nullptr));
                           })}},
      {"streams destroyed",
       {"write by fill",
        [] {
          int *x = device(), *y = device();
          cudaStream_t a = stream();
          fill_in(a, x);
          CHECK_OK(cudaStreamDestroy(a));  // which does not wait
          copy_in(stream(), x, y);
        }}},
  };
}

// Default streams.
Programs default_streams() {
  return {
      {"legacy before blocking",
       {"",
        [] {
          int *x = device(), *y = device();
          fill_in(nullptr, x);
          copy_in(stream(cudaStreamDefault), x, y);
        }}},
      {"blocking before legacy",
       {"",
        [] {
          int *x = device(), *y = device();
          fill_in(stream(cudaStreamDefault), x);
          copy_in(nullptr, x, y);
        }}},
      {"blocking, legacy, blocking",
       {"",
        [] {
          int *x = device(), *y = device(), *z = device();
          fill_in(stream(cudaStreamDefault), x);
          fill_in(nullptr, z);
          copy_in(stream(cudaStreamDefault), x, y);
        }}},
      {"two blocking",
       {"write by fill in stream 3 and read by copy in stream 4",
        [] {
          int *x = device(), *y = device();
          const cudaStream_t a = stream(cudaStreamDefault), b = stream(cudaStreamDefault);
          fill_in(a, x);
          copy_in(b, x, y);
        }}},
      {"legacy before non-blocking",
       {"write by fill in the default stream and read by copy in stream 3 (non-blocking)",
        [] {
          int *x = device(), *y = device();
          fill_in(nullptr, x);
          copy_in(stream(), x, y);
        }}},
      {"destroyed blocking before legacy",
       {"",
        [] {
          int *x = device(), *y = device();
          cudaStream_t a = stream(cudaStreamDefault);
          fill_in(a, x);
          CHECK_OK(cudaStreamDestroy(a));
          copy_in(nullptr, x, y);
        }}},
      {"default stream of a thread",
       {"write by fill in a thread's default stream and read by copy in stream 3",
        [] {
          int *x = device(), *y = device();
          fill_in(cudaStreamPerThread, x);
          copy_in(stream(cudaStreamDefault), x, y);
        }}},
      {"default stream of a thread and the legacy one",
       {"",
        [] {
          int *x = device(), *y = device();
          fill_in(cudaStreamPerThread, x);
          copy_in(nullptr, x, y);
          fill_in(cudaStreamPerThread, y);
        }}},
  };
}

// Copies and fills.
Programs copies_and_fills() {
  return {
      {"copy back on another stream",
       {"write by fill in stream 3 (non-blocking) and read by cudaMemcpyAsync in stream 4",
        [] {
          int *x = device(), *host = pinned();
          fill_in(stream(), x);
          CHECK_OK(cudaMemcpyAsync(host, x, kBytes, cudaMemcpyDeviceToHost, stream()));
        }}},
      {"a synchronous copy does not wait for a non-blocking stream",
       {"write by fill in stream 3 (non-blocking) and read by cudaMemcpy in the default stream",
        [] {
          int* x = device();
          std::vector<int> host(kCount);
          fill_in(stream(), x);
          CHECK_OK(cudaMemcpy(host.data(), x, kBytes, cudaMemcpyDeviceToHost));
        }}},
      {"a synchronous copy after a blocking stream",
       {"",
        [] {
          int* x = device();
          std::vector<int> host(kCount);
          fill_in(stream(cudaStreamDefault), x);
          CHECK_OK(cudaMemcpy(host.data(), x, kBytes, cudaMemcpyDeviceToHost));
          fill_in(stream(), x);  // the copy is over
        }}},
      {"a synchronous copy to the device",
       {"",
        [] {
          int *x = device(), *y = device();
          CHECK_OK(cudaMemcpy(x, std::vector<int>(kCount).data(), kBytes, cudaMemcpyHostToDevice));
          copy_in(stream(), x, y);
        }}},
      {"cudaMemset returns before it is done",
       {"write by cudaMemset in the default stream and read by copy in stream 3",
        [] {
          int *x = device(), *y = device();
          CHECK_OK(cudaMemset(x, 0, kBytes));
          copy_in(stream(), x, y);
        }}},
      {"a copy between buffers returns before it is done",
       {"write by cudaMemcpy in the default stream and write by fill in stream 3",
        [] {
          int *x = device(), *y = device();
          CHECK_OK(cudaMemcpy(x, y, kBytes, cudaMemcpyDeviceToDevice));
          fill_in(stream(), x);
        }}},
      {"an asynchronous copy to memory that is not pinned waits",
       {"",
        [] {
          int* x = device();
          std::vector<int> host(kCount);
          const cudaStream_t a = stream();
          CHECK_OK(cudaMemcpyAsync(host.data(), x, kBytes, cudaMemcpyDeviceToHost, a));
          fill_in(stream(), x);
        }}},
      {"memory of a pool, freed without a wait",
       {"read by copy in stream 3 (non-blocking) and write by cudaFree of memory from "
        "cudaMallocAsync, which "
        "waits for nobody",
        [] {
          int *x = nullptr, *y = device();
          const cudaStream_t a = stream();
          CHECK_OK(cudaMallocAsync(&x, kBytes, a));
          copy_in(a, x, y);
          CHECK_OK(cudaFree(x));
        }}},
      {"memory of a pool, freed after a wait, or before anybody has used it",
       {"",
        [] {
          int *x = nullptr, *y = device();
          const cudaStream_t a = stream();
          CHECK_OK(cudaMallocAsync(&x, kBytes, a));
          copy_in(a, x, y);
          CHECK_OK(cudaStreamSynchronize(a));
          CHECK_OK(cudaFree(x));
          CHECK_OK(cudaMallocAsync(&x, kBytes, a));
          CHECK_OK(cudaFree(x));
        }}},
      {"cudaFree of other memory waits for all",
       {"",
        [] {
          int *x = device(), *y = device(), *z = device();
          copy_in(stream(), x, y);
          CHECK_OK(cudaFree(z));
          fill_in(stream(), x);
        }}},
      {"constant memory renewed while a kernel may read it",
       {"read by look_up in stream 3 (non-blocking) and write by cudaMemcpyToSymbolAsync in stream "
        "4 "
        "(non-blocking), byte 4 of 'table' (256 bytes), and nothing orders them",
        [] { renew_table(false, 1); }}},
      {"constant memory renewed in turn, and another part of it",
       {"",
        [] {
          renew_table(true, 1);
          renew_table(false, 33);
        }}},
      {"two copies into one pinned buffer",
       {"write by cudaMemcpyAsync in stream 3",
        [] {
          int *x = device(), *y = device(), *host = pinned();
          CHECK_OK(cudaMemcpyAsync(host, x, kBytes, cudaMemcpyDeviceToHost, stream()));
          CHECK_OK(cudaMemcpyAsync(host, y, kBytes, cudaMemcpyDeviceToHost, stream()));
        }}},
      {"freed in stream order, elsewhere",
       {"read by copy in stream 3 (non-blocking) and write by "
        "cudaFreeAsync in stream 4 (non-blocking)",
        [] {
          int *x = nullptr, *y = device();
          const cudaStream_t a = stream(), b = stream();
          CHECK_OK(cudaMallocAsync(&x, kBytes, a));
          wait(b, recorded(a));
          copy_in(a, x, y);
          CHECK_OK(cudaFreeAsync(x, b));
        }}},
      {"allocated in stream order, used elsewhere",
       {"write by cudaMallocAsync in stream 3 (non-blocking) and write by fill in stream 4",
        [] {
          int* x = nullptr;
          const cudaStream_t a = stream(), b = stream();
          CHECK_OK(cudaMallocAsync(&x, kBytes, a));
          fill_in(b, x);
        }}},
      {"allocated, used and freed in stream order",
       {"",
        [] {
          int* x = nullptr;
          const cudaStream_t a = stream(), b = stream();
          for (int i = 0; i < 3; ++i) {
            CHECK_OK(cudaMallocAsync(&x, kBytes, a));
            wait(b, recorded(a));
            fill_in(b, x);
            wait(a, recorded(b));
            CHECK_OK(cudaFreeAsync(x, a));
          }
        }}},
  };
}

// Which bytes.
Programs which_bytes() {
  return {
      {"two readers",
       {"",
        [] {
          int *x = device(), *y = device(), *z = device();
          copy_in(stream(), x, y);
          copy_in(stream(), x, z);
        }}},
      {"a write after a read",
       {"read by copy in stream 3 (non-blocking) and write by fill in stream 4",
        [] {
          int *x = device(), *y = device();
          copy_in(stream(), x, y);
          fill_in(stream(), x);
        }}},
      {"a write after two readers of whom one is waited for",
       {"read by copy in stream 4",
        [] {
          int *x = device(), *y = device(), *z = device();
          const cudaStream_t a = stream(), b = stream(), c = stream();
          copy_in(a, x, y);
          copy_in(b, x, z);
          wait(c, recorded(a));
          fill_in(c, x);
        }}},
      {"a write after a write that has waited for a reader",  // the reader is told no more
       {"write by fill in stream 4 (non-blocking) and write by cudaMemsetAsync in stream 5",
        [] {
          int *x = device(), *y = device();
          const cudaStream_t a = stream(), b = stream();
          copy_in(a, x, y);
          wait(b, recorded(a));
          fill_in(b, x);
          CHECK_OK(cudaMemsetAsync(x, 0, kBytes, stream()));
        }}},
      {"what a smaller write has left of a larger one",
       {"write by fill in stream 3 (non-blocking) and write by bytes in stream 4 "
        "(non-blocking) at ",
        [] {
          int* x = device();
          const cudaStream_t a = stream();
          fill_in(a, x);
          CHECK_OK(cudaMemsetAsync(x, 0, 100, a));
          bytes<<<1, 1, 0, stream()>>>(reinterpret_cast<char*>(x), 4000);
        }}},
      {"two halves",
       {"",
        [] {
          int* x = device();
          fill<<<kGrid / 2, kBlock, 0, stream()>>>(x, 1);
          fill<<<kGrid / 2, kBlock, 0, stream()>>>(x + kCount / 2, 1);
          CHECK_OK(cudaDeviceSynchronize());
          CHECK_OK(cudaMemsetAsync(x, 0, kBytes / 4 + 1, stream()));
          CHECK_OK(cudaMemsetAsync(reinterpret_cast<char*>(x) + kBytes / 4 + 1, 0, kBytes / 2,
                                   stream()));
        }}},
      {"halves that overlap by a byte",
       {", byte 2048 of an allocation of 8192 bytes",
        [] {
          int* x = device();
          CHECK_OK(cudaMemsetAsync(x, 0, kBytes / 4 + 1, stream()));
          CHECK_OK(
              cudaMemsetAsync(reinterpret_cast<char*>(x) + kBytes / 4, 0, kBytes / 2, stream()));
        }}},
      {"even and odd elements",
       {"",
        [] {
          int* x = device();
          every_other<<<kGrid / 2, kBlock, 0, stream()>>>(x, 0);
          every_other<<<kGrid / 2, kBlock, 0, stream()>>>(x, 1);
        }}},
      {"even elements and one odd byte",
       {", byte 4001 of an allocation",
        [] {
          int* x = device();
          every_other<<<kGrid / 2, kBlock, 0, stream()>>>(x, 0);
          bytes<<<1, 1, 0, stream()>>>(reinterpret_cast<char*>(x), 4004);
          bytes<<<1, 1, 0, stream()>>>(reinterpret_cast<char*>(x), 4001);
        }}},
      {"columns of a matrix",
       {"",
        [] {
          char* x = reinterpret_cast<char*>(device());
          CHECK_OK(cudaMemset2DAsync(x, 64, 1, 32, kBytes / 64, stream()));
          CHECK_OK(cudaMemset2DAsync(x + 32, 64, 2, 32, kBytes / 64, stream()));
        }}},
      {"atomics in two streams",
       {"",
        [] {
          int* x = device();
          count<<<2, 32, 0, stream()>>>(x);
          count<<<2, 32, 0, stream()>>>(x);
        }}},
      {"a read and an atomic",
       {"read by copy in stream 3 (non-blocking) and atomic access by count in stream 4",
        [] {
          int *x = device(), *y = device();
          copy_in(stream(), x, y);
          count<<<2, 32, 0, stream()>>>(x);
        }}},
      {"an atomic and a read",
       {"atomic access by count in stream 3 (non-blocking) and read by copy",
        [] {
          int *x = device(), *y = device();
          count<<<2, 32, 0, stream()>>>(x);
          copy_in(stream(), x, y);
        }}},
  };
}

#include "runtime_streams_graphs.inc"
#include "runtime_streams_programmatic.inc"

const Programs& programs() {
  static const Programs all = [] {
    Programs sum;
    for (Programs part : {what_orders(), default_streams(), copies_and_fills(), which_bytes(),
                          whole_programs(), graphs(), more_graphs(), programmatic()})
      sum.merge(part);
    return sum;
  }();
  return all;
}

// The program of that name alone, under that check.
Result run_alone(const std::string& check, const std::string& name) {
  return child("VGPU_CHECK=" + check + " STREAMS_PROGRAM='" + name + "'", "program");
}

}  // namespace

TEST_CASE("child: program" * doctest::skip()) {
  const char* name = std::getenv("STREAMS_PROGRAM");
  REQUIRE(name != nullptr);
  programs().at(name).run();
  CHECK_OK(cudaGetLastError());
}

TEST_CASE("streams: what is ordered is silent, what is not is found") {
  for (const auto& [name, program] : programs()) {
    CAPTURE(name);
    const Result result = run_alone("race", name);
    CAPTURE(result.text);
    if (program.finding.empty()) {
      CHECK(result.code == 0);
      CHECK(result.text.find("error: race") == std::string::npos);
    } else {
      CHECK(result.code == 86);
      CHECK(result.text.find("error: race between streams: ") != std::string::npos);
      CHECK(result.text.find(program.finding) != std::string::npos);
      CHECK(result.text.find("vgpu: 1 finding") != std::string::npos);
    }
  }
}

TEST_CASE("streams: without the check nobody looks, with all of them it is on") {
  CHECK(run_alone("memory", "two streams").code == 0);
  CHECK(run_alone("init", "two streams").code == 0);
  const Result all = run_alone("all", "two streams");
  CHECK(all.code == 86);
  // Where both instructions are.
  const auto first = all.text.find("runtime_streams.cu:"), second = all.text.find(" at ");
  CHECK(first < all.text.find(": error: race between streams"));
  CHECK(all.text.find("runtime_streams.cu:", second) != std::string::npos);
}
