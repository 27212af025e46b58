// What happens around a program: environment variables, reports at exit, the launcher. Each case
// runs this program again (its "child:" cases) or one compiled here, and reads what it prints.
#include <doctest/doctest.h>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "child_process.h"
#include "toolkit.h"
#include "vgpu/vgpu.h"

namespace {

using namespace vgpu_tests;

__managed__ int shared_count = 40;

__global__ void store(int* p, int value) { p[threadIdx.x] = value; }
__global__ void spin() {
  for (volatile int i = 0;; i = i + 1) {
  }
}
__global__ void spin_on(volatile int* p) {
  while (*p == 0) *(p + 0) = 0;
}
__global__ void count_up() { shared_count += 2; }

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

bool has(const Result& result, const std::string& part) {
  return result.text.find(part) != std::string::npos;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// The program, as a word for the shell.
std::string compile(const std::string& name, const std::string& source, const std::string& flags) {
  const std::string program = word(temporary(name)), file = temporary(name + ".cu");
  std::ofstream(file) << source;
  const Result result = run(nvcc() + " " + flags + " -o " + program + " " + word(file));
  REQUIRE_MESSAGE(result.code == 0, result.text);
  return program;
}

}  // namespace

TEST_CASE("child: two launches" * doctest::skip()) {
  int* p = nullptr;
  CHECK_OK(cudaMalloc(&p, 64 * sizeof(int)));
  CHECK(vgpuNameAllocation(p, "results") == 0);
  store<<<1, 64>>>(p, 1);
  store<<<1, 32>>>(p, 2);
  CHECK_OK(cudaDeviceSynchronize());
  CHECK_OK(cudaFree(p));
}

TEST_CASE("child: leak" * doctest::skip()) {
  void *p = nullptr, *q = nullptr, *freed = nullptr;
  CHECK_OK(cudaMalloc(&p, 1234));
  CHECK(vgpuNameAllocation(p, "forgotten") == 0);
  CHECK_OK(cudaMalloc(&q, 66));
  CHECK_OK(cudaMalloc(&freed, 5555));
  CHECK_OK(cudaFree(freed));
}

TEST_CASE("child: leak and reset" * doctest::skip()) {
  void *p = nullptr, *q = nullptr, *freed = nullptr;
  CHECK_OK(cudaMalloc(&p, 1234));
  CHECK(vgpuNameAllocation(p, "forgotten") == 0);
  CHECK_OK(cudaMallocAsync(&q, 66, nullptr));
  CHECK_OK(cudaMalloc(&freed, 5555));
  CHECK_OK(cudaFree(freed));
  count_up<<<1, 1>>>();  // whose module has a managed variable
  CHECK_OK(cudaDeviceSynchronize());
  CHECK_OK(cudaDeviceReset());
  CHECK_OK(cudaMalloc(&freed, 77));
  CHECK_OK(cudaFree(freed));
  CHECK_OK(cudaDeviceReset());
  CHECK_OK(cudaMalloc(&p, 1000));
}

TEST_CASE("child: no device" * doctest::skip()) {
  int count = 7;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 4) == cudaErrorNoDevice);
  store<<<1, 1>>>(nullptr, 1);
  CHECK(cudaGetLastError() == cudaErrorNoDevice);
  CHECK(cudaDeviceSynchronize() == cudaErrorNoDevice);
  shared_count = 3;  // whose module was never loaded: memory all the same
  CHECK(shared_count == 3);
  CHECK(vgpuNameAllocation(p, "x") == 1);
  CHECK(std::string(vgpuLastLaunchJson()) == "{}");
}

TEST_CASE("child: bad settings" * doctest::skip()) {
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 4) == cudaErrorInitializationError);
  CHECK(cudaDeviceSynchronize() == cudaErrorInitializationError);
}

TEST_CASE("child: older device" * doctest::skip()) {
  cudaDeviceProp properties{};
  CHECK_OK(cudaGetDeviceProperties(&properties, 0));
  CHECK(std::string(properties.name).find("T4") != std::string::npos);
  CHECK(properties.major == 7);
  CHECK(properties.multiProcessorCount == 40);
  void* p = nullptr;
  CHECK_OK(cudaMalloc(&p, 4));
  store<<<1, 1>>>(static_cast<int*>(p), 1);  // compiled for sm_90
  CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
  CHECK_OK(cudaDeviceSynchronize());  // nothing is broken
}

TEST_CASE("child: no end" * doctest::skip()) {
  spin<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchTimeout);
}

TEST_CASE("child: fault" * doctest::skip()) {
  int* p = nullptr;
  CHECK_OK(cudaMalloc(&p, 32 * sizeof(int)));
  CHECK(vgpuNameAllocation(p, "results") == 0);
  store<<<1, 33>>>(p, 1);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
}

TEST_CASE("child: endless" * doctest::skip()) {
  int* p = nullptr;
  CHECK_OK(cudaMalloc(&p, 4));
  std::printf("begun\n");
  std::fflush(stdout);
  spin_on<<<4, 64>>>(p);
}

TEST_CASE("child: exit in a callback" * doctest::skip()) {
  CHECK_OK(cudaLaunchHostFunc(
      nullptr, [](void*) { std::exit(7); }, nullptr));
}

TEST_CASE("child: fork" * doctest::skip()) {
  int* p = nullptr;
  CHECK_OK(cudaMalloc(&p, 4 * 64));
  store<<<8, 64>>>(p, 1);  // several blocks: host threads, which a child of fork() does not have
  CHECK_OK(cudaDeviceSynchronize());
  const pid_t pid = fork();
  if (pid == 0) {
    store<<<8, 64>>>(p, 2);
    const bool refused = cudaGetLastError() == cudaErrorInitializationError &&
                         cudaMalloc(&p, 4) == cudaErrorInitializationError &&
                         cudaDeviceSynchronize() == cudaErrorInitializationError;
    std::exit(refused ? 5 : 6);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
  CHECK_OK(cudaFree(p));  // the parent goes on
}

TEST_CASE("process: __managed__ variables are shared by host and device") {
  shared_count += 1;
  count_up<<<1, 1>>>();
  CHECK_OK(cudaDeviceSynchronize());
  CHECK(shared_count == 43);
}

TEST_CASE("process: VGPU_PROFILE writes each launch") {
  const std::string file = temporary("profile.json");
  std::remove(file.c_str());
  const Result json = child("VGPU_PROFILE=json:" + word(file), "two launches");
  CHECK_MESSAGE(json.code == 0, json.text);
  const std::string text = contents(file);
  CHECK(text.substr(0, 2) == "[\n");
  CHECK(text.substr(text.size() - 3) == "\n]\n");
  CHECK(count(text, "\"mangled\"") == 2);
  CHECK(count(text, "\"results\"") == 2);
  CHECK(text.find("\"block\":[64,1,1]") < text.find("\"block\":[32,1,1]"));
  const Result plain = child("VGPU_PROFILE=text", "two launches");
  CHECK(plain.code == 0);
  CHECK(count(plain.text, "store") >= 2);
  const Result nowhere = child("VGPU_PROFILE=json:/no/such/directory/x.json", "two launches");
  CHECK(nowhere.code != 0);
  CHECK(has(nowhere,
            "VGPU_PROFILE='json:/no/such/directory/x.json': cannot be written: No such "
            "file or directory"));
  // No launch: still a file that a reader understands.
  child("VGPU_PROFILE=json:" + word(file), "leak");
  CHECK(contents(file) == "[\n]\n");
}

TEST_CASE("process: VGPU_CHECK=leaks names what was not freed") {
  const Result leaks = child("VGPU_CHECK=leaks", "leak");
  CHECK(leaks.code == 0);
  CHECK(has(leaks, "leak: 1234 bytes of 'forgotten' never freed"));
  CHECK(has(leaks, "leak: 66 bytes"));
  CHECK(has(leaks, "leaks: 2 allocations, 1300 bytes"));
  CHECK_FALSE(has(leaks, "5555"));
  const Result reset = child("VGPU_CHECK=leaks", "leak and reset");
  CHECK_MESSAGE(reset.code == 0, reset.text);
  CHECK(count(reset.text, "leak: 1234 bytes of 'forgotten' not freed before cudaDeviceReset\n") ==
        1);
  CHECK(count(reset.text, "leak: 66 bytes") == 1);
  CHECK(count(reset.text, "leak: ") == 3);
  CHECK(count(reset.text, "leak: 1000 bytes") == 1);
  CHECK(has(reset, "leaks: 3 allocations, 2300 bytes"));
  CHECK_FALSE(has(child("VGPU_CHECK=race", "leak and reset"), "leak"));
  CHECK(has(child("VGPU_CHECK=leaks", "two launches"), "leaks: 0 allocations, 0 bytes"));
  CHECK_FALSE(has(child("VGPU_CHECK=race", "leak"), "leak:"));
}

TEST_CASE("process: settings that are not understood switch the device off") {
  const Result device = child("VGPU_DEVICE=h2000", "no device");
  CHECK_MESSAGE(device.code == 0, device.text);
  CHECK(count(device.text, "VGPU_DEVICE='h2000': no such device; there are h200,") == 1);
  for (const char* setting :
       {"VGPU_THREADS=many", "VGPU_CHECK=rcae", "VGPU_PROFILE=xml", "VGPU_SCHEDULE=fair"}) {
    const Result result = child(setting, "bad settings");
    CHECK_MESSAGE(result.code == 0, result.text);
    const std::string name = std::string(setting).substr(0, std::string(setting).find('='));
    CHECK(count(result.text, "vgpu: " + name + "='") == 1);
  }
}

TEST_CASE("process: code for a newer device than the chosen one") {
  const Result result = child("VGPU_DEVICE=t4", "older device");
  CHECK_MESSAGE(result.code == 0, result.text);
  CHECK(has(result, "PTX for sm_90 only"));
  CHECK(has(result, "-gencode arch=compute_75,code=[compute_75,sm_75]"));
}

TEST_CASE("process: a fault is told once, with its place and the allocation's name") {
  const Result result = child("A=1", "fault");
  CHECK_MESSAGE(result.code == 0, result.text);
  CHECK(count(result.text, "error: ") == 1);
  CHECK(has(result, "runtime_process.cu:"));
  CHECK(has(result, "'results'"));
  CHECK(has(result, "thread (32,0,0)"));
  CHECK(has(result, "store"));
}

TEST_CASE("process: VGPU_INSTRUCTIONS ends a launch that has no end") {
  const Result result = child("VGPU_INSTRUCTIONS=100000", "no end");
  CHECK(result.code == 0);
  CHECK(has(result, "no end after 100000 instructions"));
}

TEST_CASE("process: Ctrl-C ends a kernel without an end at once") {
  const std::string self = "/proc/" + std::to_string(getpid()) + "/exe";
  const Result result =
      run("timeout --preserve-status --kill-after=30 --signal=INT 5 env VGPU_THREADS=2 " + self +
          " --no-skip -tc='child: endless'");
  CHECK_MESSAGE(has(result, "begun"), result.text);
  CHECK_MESSAGE(result.code == 128 + 2, result.text);
}

TEST_CASE("process: exit() in a callback ends the program") {
  const Result result = child("VGPU_CHECK=all", "exit in a callback");
  CHECK_MESSAGE(result.code == 7, result.text);
}

TEST_CASE("process: a child of fork() has no device, and does not hang") {
  const Result result = child("VGPU_PROFILE=text", "fork");
  CHECK_MESSAGE(result.code == 0, result.text);
}

TEST_CASE("launcher: runs what was linked with the shared runtime, refuses the rest in words" *
          doctest::test_suite("toolkit")) {
  const std::string source =
      "#include <cstdio>\n"
      "#include <cstdlib>\n"
      "__global__ void k(int* p) { *p = 42; }\n"
      "int main(int argc, char** argv) {\n"
      "  int* p = nullptr; int value = 0; cudaDeviceProp properties;\n"
      "  cudaGetDeviceProperties(&properties, 0);\n"
      "  cudaMalloc(&p, 4); k<<<1, 1>>>(p);\n"
      "  const cudaError_t error = cudaMemcpy(&value, p, 4, cudaMemcpyDefault);\n"
      "  printf(\"%s: %s %d\\n\", properties.name, cudaGetErrorName(error), value);\n"
      "  return argc > 1 ? atoi(argv[1]) : 0;\n"
      "}\n";
  const std::string ptx = "-gencode arch=compute_75,code=[compute_75,sm_75] ";
  const std::string shared = compile("shared_runtime", source, ptx + "--cudart shared");
  const Result good = run("build/vgpu " + shared + " 7");
  CHECK_MESSAGE(good.code == 7, good.text);
  CHECK(good.text == "NVIDIA H200: cudaSuccess 42\n");
  const Result t4 = run("build/vgpu --device t4 --check --profile " + shared);
  CHECK_MESSAGE(t4.code == 0, t4.text);
  CHECK(has(t4, "T4: cudaSuccess 42"));
  CHECK(has(t4, "sectors"));  // from the profile
  // An old RPATH to the real runtime does not win. (Seen from here, since -Xlinker cannot quote a space.)
  const std::string with_rpath =
      compile("with_rpath", source,
              ptx + "--cudart shared -Xlinker --disable-new-dtags -Xlinker -rpath," +
                  std::filesystem::relative(cuda_libraries()).string());
  CHECK(has(run("build/vgpu " + with_rpath), "NVIDIA H200: cudaSuccess 42"));

  const Result statically = run("build/vgpu " + compile("static_runtime", source, ptx));
  CHECK(statically.code == 2);
  CHECK(has(statically, "--cudart shared"));
  const std::string no_ptx =
      compile("no_ptx", source, "-gencode arch=compute_90,code=sm_90 --cudart shared");
  const Result without = run("build/vgpu " + no_ptx);
  CHECK(has(without, "machine code for sm_90 but no PTX"));
  CHECK_FALSE(has(without, "cudaSuccess 42"));

  const Result none = run("build/vgpu /bin/true");
  CHECK(none.code == 2);
  CHECK(has(none, "is not a CUDA program"));
  const Result script = run("build/vgpu " + word(temporary("shared_runtime.cu")));
  CHECK(script.code == 2);
  CHECK(has(script, "not a 64-bit ELF program"));
  CHECK(run("build/vgpu /no/such/program").code == 2);
  CHECK(run("build/vgpu /tmp").code == 2);
  CHECK(run("build/vgpu no-such-program-in-path").code == 2);
  CHECK(run("build/vgpu").code == 2);
  CHECK(run("build/vgpu --wrong " + shared).code == 2);
  CHECK(run("build/vgpu --device").code == 2);
  CHECK(run("build/vgpu --help").code == 0);
}

TEST_CASE("process: files compiled apart (-rdc=true) are one program" *
          doctest::test_suite("toolkit")) {
  const std::string second = temporary("linked_2.cu");
  std::ofstream(second) << R"(
#include <cstdio>
__device__ int counter = 100;
__constant__ int table[4] = {1, 2, 3, 4};
__managed__ int total = 1;
static __device__ int hidden = 7;
template <class T> __device__ __noinline__ T twice(T x) { return 2 * x; }
__device__ int helper(int x) { if (x == 3) printf("second %d\n", x); return twice(x) + hidden; }
__global__ void read_counter(int* out) { out[threadIdx.x] = counter + twice(1); }
void set_table() { const int t[4] = {10, 20, 30, 40}; cudaMemcpyToSymbol(table, t, sizeof t); }
)";
  const std::string program = compile(
      "linked_1", R"(
#include <cstdio>
extern __device__ int counter;
extern __constant__ int table[4];
extern __managed__ int total;
static __device__ int hidden = 1000;
template <class T> __device__ __noinline__ T twice(T x) { return 2 * x; }
__device__ int helper(int x);
__global__ void read_counter(int* out);
void set_table();
__global__ void first(int* out) {
  if (threadIdx.x == 4) printf("first %d\n", hidden);
  out[threadIdx.x] = helper(threadIdx.x) + twice(table[threadIdx.x & 3]);
  atomicAdd(&counter, 1);
  if (threadIdx.x == 0) total += 4;
}
int main() {
  int *d, h[32];
  cudaMalloc(&d, sizeof h);
  set_table();
  first<<<1, 32>>>(d);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDefault);
  printf("%d %d %d %d\n", h[0], h[1], h[31], total);
  read_counter<<<1, 32>>>(d);
  cudaMemcpy(h, d, sizeof h, cudaMemcpyDefault);
  printf("%d %s\n", h[31], cudaGetErrorName(cudaGetLastError()));
}
)",
      "-rdc=true -gencode arch=compute_75,code=[compute_75,sm_75] --cudart shared " + word(second));
  const Result result = run("build/vgpu " + program);
  CHECK(result.code == 0);
  CHECK(count(result.text, "second 3\n") == 1);
  CHECK(count(result.text, "first 1000\n") == 1);
  // helper(i) = 2 i + 7, twice the table: 20, 40, ..., 80.
  CHECK(has(result, "27 49 149 5\n"));
  CHECK(has(result, "134 cudaSuccess\n"));
}

TEST_CASE("process: dynamic parallelism is refused for what it is, kernels without it run" *
          doctest::test_suite("toolkit")) {
  const std::string source = R"(
#include <cstdio>
__global__ void child(int* p) { *p = 42; }
#if LAUNCHES
__global__ void parent(int* p) { child<<<1, 1>>>(p); }
#endif
int main() {
  int *p, value = 0;
  cudaMalloc(&p, 4);
  child<<<1, 1>>>(p);
  cudaError_t error = cudaMemcpy(&value, p, 4, cudaMemcpyDefault);
  printf("%s %d\n", cudaGetErrorName(error), value);
#if LAUNCHES
  parent<<<1, 1>>>(p);
#endif
  error = cudaDeviceSynchronize();
  printf("%s\n", cudaGetErrorName(error));
}
)";
  const std::string flags =
      "-rdc=true -gencode arch=compute_75,code=[compute_75,sm_75] --cudart shared -DLAUNCHES=";
  const Result result = run("build/vgpu " + compile("device_launch", source, flags + "1"));
  CHECK(result.code == 0);
  CHECK_MESSAGE(has(result, "cudaSuccess 42\n"), result.text);
  CHECK(count(result.text, "dynamic parallelism (kernels that launch kernels) is not supported") ==
        1);
  CHECK(has(result, " in parent"));
  CHECK_FALSE(has(result, "PTX for sm_"));
  CHECK_FALSE(has(result, "\ncudaSuccess\n"));
  // Code for newer devices is still that.
  const std::string newer =
      "-rdc=true -gencode arch=compute_100,code=[compute_100,sm_100] --cudart shared -DLAUNCHES=0";
  CHECK(has(run("build/vgpu " + compile("device_newer", source, newer)), "PTX for sm_100 only"));
}

// No toolkit 12 is needed to be a program of CUDA 12: it imports names of version libcudart.so.12 and has
// the structs of that time. A library with these names and nothing in them stands in for the linker.
TEST_CASE("process: programs built with CUDA 12" * doctest::test_suite("toolkit")) {
  const std::string source = temporary("cuda12.cu"), object = temporary("cuda12.o"),
                    program = temporary("cuda12");
  std::ofstream(source) << R"(
#include <cstddef>
#include <cstdio>
#include <cstring>
extern "C" {
int cudaGetDeviceProperties_v2(void*, int);
int v12_pointer_attributes(void*, const void*) asm("cudaPointerGetAttributes");
int v12_prefetch(const void*, std::size_t, int, void*) asm("cudaMemPrefetchAsync");
int v12_capture_info(void*, int*, unsigned long long*, void*, void*, void*) asm("cudaStreamGetCaptureInfo_v2");
int cudaThreadSynchronize();
}
__managed__ int total = 1;
__global__ void kernel(int* p) { p[threadIdx.x] = 3 * threadIdx.x; if (threadIdx.x == 0) total = 9; }
int main() {
  // cudaDeviceProp of CUDA 12.8: 1032 bytes; offsets of some members, before and behind those that went.
  union { char bytes[1040]; int word[260]; } p;
  std::memset(&p, 0x55, sizeof p);
  const int error = cudaGetDeviceProperties_v2(&p, 0);
  const auto size_at = [&](int offset) { std::size_t v; std::memcpy(&v, p.bytes + offset, 8); return v; };
  printf("%d %s\n", error, p.bytes);
  // clockRate, totalConstMem, major, deviceOverlap, multiProcessorCount, maxTexture2D[0]
  printf("%d %zu %d %d %d %d\n", p.word[348 / 4] > 0, size_at(352), p.word[360 / 4], p.word[384 / 4], p.word[388 / 4], p.word[420 / 4]);
  // memoryBusWidth, sharedMemPerMultiprocessor, sharedMemPerBlockOptin, reservedSharedMemPerBlock, clusterLaunch
  printf("%d %zu %zu %zu %d\n", p.word[612 / 4], size_at(640), size_at(696), size_at(720), p.word[772 / 4]);
  printf("%d %x\n", p.word[1028 / 4], p.word[1032 / 4]);
  int* data;
  cudaMallocManaged(&data, 128);
  struct { int type, device; void *device_pointer, *host_pointer; int behind; } a;
  a.behind = 77;
  printf("%d ", v12_pointer_attributes(&a, data));
  printf("%d %d %d %d\n", a.behind, a.type, v12_prefetch(data, 128, 0, nullptr), v12_prefetch(data, 128, -1, nullptr));
  kernel<<<1, 32>>>(data);
  printf("%d ", cudaThreadSynchronize());
  printf("%d %d\n", data[31], total);
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  int status = 7, version = 0;
  unsigned long long id = 7;
  printf("%d ", v12_capture_info(stream, &status, &id, nullptr, nullptr, nullptr));
  printf("%d ", status);
  cudaRuntimeGetVersion(&version);
  printf("%d\n", version / 1000);
}
)";
  const Result built =
      run(nvcc() + " -gencode arch=compute_75,code=[compute_75,sm_75] --cudart none -c -o " +
          word(object) + " " + word(source) + " && cd " + word(temporary("")) + " && nm -u " +
          word(object) +
          " | awk '$2 ~ /cuda/ { print \"void \" $2 \"() {}\" }' > cuda12_names.c && echo "
          "'libcudart.so.12 { global: *; };' > cuda12.map"
          " && gcc -w -shared -fPIC cuda12_names.c -Wl,-soname,libcudart.so.12 "
          "-Wl,--version-script=cuda12.map -o libcudart.so.12"
          " && g++ " +
          word(object) + " ./libcudart.so.12 -o " + word(program));
  REQUIRE_MESSAGE(built.code == 0, built.text);
  const Result result = run("build/vgpu " + word(program));
  CHECK_MESSAGE(result.code == 0, result.text);
  CHECK(result.text ==
        "0 NVIDIA H200\n"
        "1 65536 9 1 132 131072\n"
        "6144 233472 232448 1024 1\n"
        "0 55555555\n"
        "0 77 3 0 0\n"
        "0 93 9\n"
        "0 0 12\n");
}

TEST_CASE("process: a program that opens and closes the library ends well" *
          doctest::test_suite("toolkit")) {
  const std::string program =
      compile("closes",
              "#include <dlfcn.h>\n"
              "int main(int, char** argv) {\n"
              "  void* library = dlopen(argv[1], RTLD_NOW);\n"
              "  if (!library) return 9;\n"
              "  void* p = nullptr;\n"
              "  auto take = reinterpret_cast<int (*)(void**, unsigned long)>(\n"
              "      dlsym(library, \"cudaMalloc\"));\n"
              "  const int error = take(&p, 16);\n"
              "  dlclose(library);\n"
              "  return error ? 8 : 7;\n"
              "}\n",
              "--cudart none -x c++ -ldl");
  Dl_info info;
  REQUIRE(dladdr(reinterpret_cast<const void*>(&cudaDeviceReset), &info) != 0);
  const Result result = run(program + " " + word(info.dli_fname));
  CHECK_MESSAGE(result.code == 7, result.text);
}
