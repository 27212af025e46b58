// Device code loaded at run time with cudaLibraryLoadData and cudaLibraryLoadFromFile.
#include <doctest/doctest.h>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "toolkit.h"

namespace {

using vgpu_tests::temporary;
using vgpu_tests::word;

#define CHECK_OK(call) CHECK((call) == cudaSuccess)

// out[tid] = in[tid] + addend, and a variable `addend`.
const std::string kPtx = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 addend = 3;
.visible .entry add(.param .u64 out, .param .u64 in)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r2, [%rd4];
  ld.global.u32 %r3, [addend];
  add.u32 %r2, %r2, %r3;
  add.s64 %rd5, %rd1, %rd3;
  st.global.u32 [%rd5], %r2;
  ret;
}
.visible .entry nothing()
{
  ret;
}
)";

cudaError_t load(cudaLibrary_t* library, const void* code) {
  return cudaLibraryLoadData(library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

void run_nvcc(const std::string& arguments) {
  const std::string command = vgpu_tests::nvcc() + " " + arguments;
  REQUIRE_MESSAGE(std::system(command.c_str()) == 0, command);
}

std::vector<char> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs `add` of the library on {10, 20, 30, 40} and gives the third result.
int third_sum(cudaKernel_t kernel) {
  int host[4] = {10, 20, 30, 40};
  int* device = nullptr;
  CHECK_OK(cudaMalloc(&device, 2 * sizeof host));
  CHECK_OK(cudaMemcpy(device + 4, host, sizeof host, cudaMemcpyHostToDevice));
  int* in = device + 4;
  void* args[] = {&device, &in};
  CHECK_OK(
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(4), args, 0, nullptr));
  CHECK_OK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
  CHECK_OK(cudaFree(device));
  return host[2];
}

}  // namespace

TEST_CASE("library: PTX text is loaded, listed and run") {
  cudaLibrary_t library = nullptr;
  CHECK_OK(load(&library, kPtx.c_str()));
  unsigned count = 0;
  CHECK_OK(cudaLibraryGetKernelCount(&count, library));
  CHECK(count == 2);
  cudaKernel_t kernels[3] = {};
  CHECK_OK(cudaLibraryEnumerateKernels(kernels, 3, library));
  CHECK(kernels[0] != nullptr);
  CHECK(kernels[1] != nullptr);
  CHECK(kernels[2] == nullptr);
  cudaKernel_t add = nullptr;
  CHECK_OK(cudaLibraryGetKernel(&add, library, "add"));
  CHECK((add == kernels[0] || add == kernels[1]));
  CHECK(third_sum(add) == 33);
  int* addend = nullptr;
  std::size_t bytes = 0;
  CHECK_OK(cudaLibraryGetGlobal(reinterpret_cast<void**>(&addend), &bytes, library, "addend"));
  CHECK(bytes == 4);
  const int hundred = 100;
  CHECK_OK(cudaMemcpy(addend, &hundred, 4, cudaMemcpyHostToDevice));
  CHECK(third_sum(add) == 130);
  // A second copy has a variable of its own.
  cudaLibrary_t second = nullptr;
  CHECK_OK(load(&second, kPtx.c_str()));
  cudaKernel_t add2 = nullptr;
  CHECK_OK(cudaLibraryGetKernel(&add2, second, "add"));
  CHECK(third_sum(add2) == 33);
  CHECK_OK(cudaLibraryUnload(second));
  CHECK(third_sum(add) == 130);
  CHECK_OK(
      cudaKernelSetAttributeForDevice(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536, 0));
  CHECK(cudaKernelSetAttributeForDevice(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20,
                                        0) == cudaErrorInvalidValue);
  cudaKernel_t none = nullptr;
  CHECK(cudaLibraryGetKernel(&none, library, "sub") == cudaErrorSymbolNotFound);
  CHECK(cudaLibraryGetGlobal(reinterpret_cast<void**>(&addend), nullptr, library, "x") ==
        cudaErrorSymbolNotFound);
  CHECK_OK(cudaLibraryUnload(library));
  CHECK(cudaLibraryUnload(library) == cudaErrorInvalidResourceHandle);
  CHECK(cudaLibraryGetKernel(&none, library, "add") == cudaErrorInvalidResourceHandle);
  void* args[] = {&addend, &addend};
  CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(add), dim3(1), dim3(1), args, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cudaGetLastError() == cudaErrorInvalidDeviceFunction);
}

TEST_CASE("library: files of PTX and fat binaries of every compression" *
          doctest::test_suite("toolkit")) {
  const std::string source = temporary("library.cu");
  std::ofstream(source) << "__device__ int addend = 4;\n"
                           "extern \"C\" __global__ void add(int* out, const int* in) "
                           "{ out[threadIdx.x] = in[threadIdx.x] + addend; }\n";
  run_nvcc("-ptx -arch=compute_75 -o " + word(temporary("library.ptx")) + " " + word(source));
  std::vector<std::string> files{temporary("library.ptx")};
  for (const std::string mode : {"none", "speed", "size"}) {
    files.push_back(temporary("library_" + mode + ".fatbin"));
    run_nvcc(
        "-fatbin -gencode arch=compute_90,code=[compute_90,sm_90] -gencode "
        "arch=compute_120,code=compute_120 --compress-mode=" +
        mode + " -o " + word(files.back()) + " " + word(source));
  }
  for (const std::string& file : files) {
    CAPTURE(file);
    cudaLibrary_t library = nullptr;
    cudaKernel_t add = nullptr;
    CHECK_OK(
        cudaLibraryLoadFromFile(&library, file.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CHECK_OK(cudaLibraryGetKernel(&add, library, "add"));
    CHECK(third_sum(add) == 34);
    // Registers are known where a cubin came along.
    cudaFuncAttributes attributes{};
    CHECK_OK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(add)));
    CHECK((attributes.numRegs > 0) == (file.find(".fatbin") != std::string::npos));
    CHECK_OK(cudaLibraryUnload(library));
    // And from memory.
    std::vector<char> bytes = contents(file);
    bytes.push_back('\0');
    CHECK_OK(load(&library, bytes.data()));
    CHECK_OK(cudaLibraryGetKernel(&add, library, "add"));
    CHECK(third_sum(add) == 34);
    CHECK_OK(cudaLibraryUnload(library));
  }
}

TEST_CASE("library: what cannot be loaded is refused by name") {
  cudaLibrary_t library = nullptr;
  CHECK(load(&library, nullptr) == cudaErrorInvalidValue);
  CHECK(load(nullptr, kPtx.c_str()) == cudaErrorInvalidValue);
  CHECK(load(&library, "") == cudaErrorInvalidKernelImage);
  CHECK(load(&library, "this is no PTX") == cudaErrorInvalidPtx);
  CHECK(load(&library, (kPtx.substr(0, kPtx.size() / 2)).c_str()) == cudaErrorInvalidPtx);
  std::string newer = kPtx;
  newer.replace(newer.find("sm_80"), 5, "sm_100");
  CHECK(load(&library, newer.c_str()) == cudaErrorNoKernelImageForDevice);
  const auto from_file = [&](const std::string& path) {
    return cudaLibraryLoadFromFile(&library, path.c_str(), nullptr, nullptr, 0, nullptr, nullptr,
                                   0);
  };
  CHECK(from_file(temporary("there_is_no_such_file")) == cudaErrorFileNotFound);
  CHECK(from_file("/") != cudaSuccess);
  // A cubin alone has no PTX; a fat binary for newer devices has none that fits.
  const std::string source = temporary("refused.cu");
  std::ofstream(source) << "extern \"C\" __global__ void k(int* p) { *p = 1; }\n";
  run_nvcc("-cubin -arch=sm_90 -o " + word(temporary("refused.cubin")) + " " + word(source));
  CHECK(from_file(temporary("refused.cubin")) == cudaErrorNoKernelImageForDevice);
  run_nvcc(
      "-fatbin -gencode arch=compute_90,code=sm_90 -gencode arch=compute_100,code=compute_100 -o " +
      word(temporary("refused.fatbin")) + " " + word(source));
  CHECK(from_file(temporary("refused.fatbin")) == cudaErrorNoKernelImageForDevice);
  // Cut short at every length: always an error, never a crash.
  const std::vector<char> bytes = contents(temporary("refused.fatbin"));
  for (std::size_t n = 1; n < bytes.size(); n += bytes.size() / 50 + 1) {
    const std::string part = temporary("part.fatbin");
    std::ofstream(part, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(n));
    CHECK(from_file(part) != cudaSuccess);
  }
  cudaGetLastError();
}
