// libcuda.so.1: programs that use the driver interface start on the virtual GPU and are told what
// is not there. They are compiled here and run as build/vgpu runs them.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "child_process.h"
#include "toolkit.h"

using namespace vgpu_tests;

namespace {

// A relative path: nvcc hands the linker none with a space in it.
constexpr char kLibrary[] = "build/vgpu-lib/libcuda.so.1";

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What the program prints on the virtual GPU. It is linked with libcuda.so.1.
Result run_program(const std::string& file, const std::string& source, const std::string& flags) {
  const std::string path = temporary(file), program = path.substr(0, path.rfind('.'));
  std::ofstream(path) << source;
  const Result built = run(nvcc() + " " + flags + " -o " + word(program) + " " + word(path) +
                           " -Xlinker " + kLibrary);
  REQUIRE_MESSAGE(built.code == 0, built.text);
  return run("build/vgpu " + word(program));
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("driver: a program of the driver interface is refused by name, each function once" *
          doctest::test_suite("toolkit")) {
  const Result result = run_program("driver_program.cpp", R"(
#include <cuda.h>
#include <cstdio>
int main() {
  const CUresult first = cuInit(0), second = cuInit(0);
  CUmodule module;
  const int loaded = cuModuleLoad(&module, "kernel.cubin");
  const char *name = nullptr, *text = nullptr, *none = "?";
  cuGetErrorName(first, &name);
  cuGetErrorString(first, &text);
  printf("%d %d %d %s, %s\n", first, second, loaded, name, text);
  cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name);
  cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text);
  printf("%s, %s\n", name, text);
  const int unknown = cuGetErrorName(static_cast<CUresult>(54321), &none);
  printf("%d %d\n", unknown, none == nullptr);
  int version = 0;
  printf("%d ", cuDriverGetVersion(&version));
  printf("%d\n", version == CUDA_VERSION);
}
)",
                                    "");
  CHECK_MESSAGE(result.code == 0, result.text);
  CHECK(count(result.text, "vgpu: ") == 2);
  CHECK(count(result.text, "vgpu: cuInit is not supported by the virtual GPU: ") == 1);
  CHECK(count(result.text, "vgpu: cuModuleLoad is not supported by the virtual GPU: ") == 1);
  CHECK(count(result.text, "801 801 801 CUDA_ERROR_NOT_SUPPORTED, operation not supported\n") == 1);
  CHECK(count(result.text, "CUDA_ERROR_OUT_OF_MEMORY, out of memory\n") == 1);
  CHECK(count(result.text, "1 1\n0 1\n") == 1);
}

TEST_CASE("driver: the runtime beside it goes on") {
  const std::string source = R"(
#include <cuda.h>
#include <cstdio>
__global__ void k(int* p) { *p = 42; }
int main() {
  CUcontext context;
  const int current = cuCtxGetCurrent(&context);
  int *p, value = 0;
  cudaMalloc(&p, 4);
  k<<<1, 1>>>(p);
  const cudaError_t error = cudaMemcpy(&value, p, 4, cudaMemcpyDefault);
  printf("%d %s %d\n", current, cudaGetErrorName(error), value);
}
)";
  const std::string flags = "-gencode arch=compute_75,code=[compute_75,sm_75] --cudart shared";
  const Result result = run_program("driver_beside.cu", source, flags);
  CHECK_MESSAGE(result.code == 0, result.text);
  CAPTURE(result.text);
  CHECK(count(result.text, "vgpu: ") == 1);
  CHECK(count(result.text, "vgpu: cuCtxGetCurrent is not supported") == 1);
  CHECK(count(result.text, "801 cudaSuccess 42\n") == 1);
  const Result statically =
      run_program("driver_static.cu", source, "-gencode arch=compute_75,code=[compute_75,sm_75]");
  CHECK(statically.code == 2);
  CHECK(count(statically.text, "--cudart shared") == 1);
  // An old RPATH to another libcuda.so.1 does not win.
  const std::string other = temporary("driver_other");
  REQUIRE(run("mkdir -p " + word(other) +
              " && echo 'int cuCtxGetCurrent() { return 5; }' | gcc -w -x c -shared"
              " -fPIC - -Wl,-soname,libcuda.so.1 -o " +
              word(other + "/libcuda.so.1"))
              .code == 0);
  const Result with_rpath = run_program("driver_rpath.cu", source,
                                        flags + " -Xlinker --disable-new-dtags -Xlinker -rpath," +
                                            std::filesystem::relative(other).string());
  CHECK(count(with_rpath.text, "801 cudaSuccess 42\n") == 1);
}

TEST_CASE("driver: tensor maps are made where the runtime is, and refused where no GPU has them") {
  const std::string path = temporary("driver_map.cpp"), program = temporary("driver_map");
  std::ofstream(path) << R"(
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
int main() {
  void* data = nullptr;
  cudaMalloc(&data, 4096);
  CUtensorMap map;
  const cuuint64_t sizes[] = {32, 32}, strides[] = {64};
  const cuuint32_t box[] = {32, 8}, steps[] = {1, 1};
  int made[3] = {};
  for (int swizzle = 2; swizzle > 0; --swizzle)
    made[swizzle] = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, data, sizes, strides,
        box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CUtensorMapSwizzle(swizzle),
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  const int replaced = cuTensorMapReplaceAddress(&map, data);
  const int lower[] = {0}, upper[] = {0};
  const int pixels = cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, data, sizes,
      strides, lower, upper, 32, 8, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  printf("%d %d %d %d\n", made[2], made[1], replaced, pixels);
}
)";
  const Result built = run(nvcc() + " --cudart shared -o " + word(program) + " " + word(path) +
                           " -Xlinker " + kLibrary);
  REQUIRE_MESSAGE(built.code == 0, built.text);
  const Result hopper = run("VGPU_DEVICE=h200 build/vgpu " + word(program));
  CAPTURE(hopper.text);
  CHECK(count(hopper.text, "0 1 0 1\n") == 1);
  CHECK(count(hopper.text,
              "vgpu: cuTensorMapEncodeTiled: boxDim[0] is 32 (64 bytes): swizzle 32B "
              "allows at most 16 elements\n") == 1);
  CHECK(count(hopper.text, "vgpu: cuTensorMapEncodeIm2col: tensorRank is 2: 3 to 5 for im2col\n") ==
        1);
  for (const auto& [device, text] : {std::pair{"t4", "Tesla T4 has 7.5"}, {"a100", "has 8.0"}}) {
    const Result older = run(std::string("VGPU_DEVICE=") + device + " build/vgpu " + word(program));
    CAPTURE(older.text);
    CHECK(count(older.text, "801 801 801 801\n") == 1);
    CHECK(count(older.text,
                "vgpu: cuTensorMapEncodeTiled: tensor maps need compute capability "
                "9.0, and ") == 1);
    CHECK(count(older.text, text) == 3);
  }
}

TEST_CASE("driver: memory is filled where the runtime is") {
  const std::string path = temporary("driver_fill.cpp"), program = temporary("driver_fill");
  std::ofstream(path) << R"(
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
int main() {
  unsigned char *data = nullptr, host[64];
  cudaMalloc(&data, 64);
  cudaMemset(data, 0, 64);
  const CUdeviceptr at = (CUdeviceptr)data;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  int errors = cuMemsetD8(at + 1, 0x11, 2) + cuMemsetD16(at + 4, 0x2233, 2) + cuMemsetD32(at + 8, 0x44556677, 1);
  errors += cuMemsetD8Async(at + 17, 0x88, 1, stream) + cuMemsetD16Async(at + 18, 0x99aa, 1, stream) +
            cuMemsetD32Async(at + 20, 0xbbccddee, 2, stream);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuMemsetD32Async", &found, 12000, cudaEnableDefault, &status);
  errors += status != cudaDriverEntryPointSuccess;
  if (found) errors += ((CUresult(*)(CUdeviceptr, unsigned, size_t, CUstream))found)(at + 32, 1, 1, 0);
  cudaMemcpy(host, data, 64, cudaMemcpyDeviceToHost);
  printf("%d\n", errors);
  for (int i = 0; i < 37; ++i) printf("%02x", host[i]);
  printf("\n%d %d\n", cuMemsetD32(at + 2, 0, 1), cuMemsetD16Async(at + 1, 0, 1, 0));
}
)";
  const Result built = run(nvcc() + " --cudart shared -o " + word(program) + " " + word(path) +
                           " -Xlinker " + kLibrary);
  REQUIRE_MESSAGE(built.code == 0, built.text);
  const Result result = run("VGPU_DEVICE=t4 build/vgpu " + word(program));
  // Byte by byte, least significant first: what no fill touches is 0.
  CHECK(result.text ==
        "0\n00111100332233227766554400000000"
        "0088aa99eeddccbbeeddccbb0000000001000000"
        "00\n1 1\n");
}

TEST_CASE("driver: every function that a program may link is there and says its own name" *
          doctest::test_suite("toolkit")) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  REQUIRE_MESSAGE(library != nullptr, dlerror());
  std::set<std::string> names;
  std::ifstream list("common/vgpu/cuda_driver/exports.txt");
  for (std::string name; std::getline(list, name);) names.insert(name);
  CHECK(names.size() == 637);
  // And what this toolkit's header declares, which may be newer.
  const std::string file = temporary("driver_names.cu"), all = temporary("driver_names.ii");
  std::ofstream(file) << "#include <cuda.h>\n";
  REQUIRE(run(nvcc() + " -E -o " + word(all) + " " + word(file)).code == 0);
  const std::string header = contents(all);
  const std::regex declared("CUresult\\s+(cu[A-Za-z0-9_]+)\\s*\\(");
  std::size_t found = 0;
  for (std::sregex_iterator i(header.begin(), header.end(), declared), end; i != end; ++i, ++found)
    names.insert((*i)[1]);
  CHECK(found > 300);

  const std::set<std::string> own = {"cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
                                     "cuGetProcAddress", "cuGetProcAddress_v2"};
  using Function = int (*)(long, long, long, long, long, long, long, long);
  using Search = int (*)(const char*, void**, int, unsigned long long, int*);
  const auto search = reinterpret_cast<Search>(dlsym(library, "cuGetProcAddress_v2"));
  REQUIRE((search != nullptr));
  const std::string said = temporary("driver_said.txt");
  const pid_t child = fork();
  if (child == 0) {  // whose stderr is the file
    if (!freopen(said.c_str(), "w", stderr)) _exit(1);
    for (const std::string& name : names) {
      const auto function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
      void* same = nullptr;
      int status = 7;
      if (!function || search(name.c_str(), &same, 11000, 0, &status) != 0 || status != 0) _exit(2);
      if (same != reinterpret_cast<void*>(function)) _exit(3);
      const int expected = own.count(name) ? 1 : 801;  // 1: nulls are an invalid value
      for (int turn = 0; turn < 2; ++turn)
        if (function(0, 0, 0, 0, 0, 0, 0, 0) != expected) _exit(4);
    }
    std::fflush(stderr);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  const std::string text = contents(said);
  for (const std::string& name : names)
    CHECK_MESSAGE(count(text, "vgpu: " + name + " is not") == (own.count(name) ? 0 : 1), name);

  void* none = &status;
  int query = 0;
  CHECK(search("cuNoSuchFunction", &none, 13000, 0, &query) == 500);
  CHECK(none == nullptr);
  CHECK(query == 1);
  // The search for itself gives the function of the asker's time.
  CHECK(search("cuGetProcAddress", &none, 13000, 0, &query) == 0);
  CHECK(none == dlsym(library, "cuGetProcAddress_v2"));
  dlclose(library);
}
