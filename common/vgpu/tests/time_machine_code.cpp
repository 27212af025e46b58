// Machine code of a kernel: made by the toolkit's ptxas from annotated PTX, equal to the program's own,
// and each instruction with its line of PTX.
#include "../time/machine_code.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../time/annotate.h"
#include "../time/opcodes.h"
#include "time_support.h"
#include "toolkit.h"

using namespace vgpu::time;
using namespace vgpu_tests;

namespace {

// Tiles of the inner product of attention: what the course's kernels do, and what they do not
// (a call that stays one, a table of constants, 64-bit division, printf's buffer).
constexpr const char* kKernels = R"cuda(
#include <cuda_fp16.h>
#include <mma.h>
#include <cstdio>
using namespace nvcuda;
__constant__ float weights[64];
__device__ int counter;
__device__ __noinline__ float wave(float x, int n) {
  for (int i = 0; i < n; ++i) x = __sinf(x) + x / (n + 1.5f);
  return x;
}
extern "C" __global__ void __launch_bounds__(128) attention(const half* q, const half* k, float* out,
                                                            int tokens) {
  __shared__ half tile[64 * 72];
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.f);
  float top = -1e30f;
  for (int t = 0; t < tokens; t += 64) {
    for (int i = threadIdx.x; i < 64 * 8; i += 128)
      *reinterpret_cast<int4*>(tile + i / 8 * 72 + i % 8 * 8) =
          reinterpret_cast<const int4*>(k + t * 64)[i];
    __syncthreads();
    for (int d = 0; d < 64; d += 16) {
      wmma::load_matrix_sync(a, q + d, 64);
      wmma::load_matrix_sync(b, tile + warp * 16 * 72 + d, 72);
      wmma::mma_sync(sum, a, b, sum);
    }
    for (int i = 0; i < sum.num_elements; ++i) top = fmaxf(top, sum.x[i]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 16));
    __syncthreads();
  }
  out[blockIdx.x * 128 + threadIdx.x] = expf(top) * weights[tokens & 63];
}
extern "C" __global__ void calls(float* out, long long* wide, int n) {
  if (out[0] > wave(out[1], n)) out[2] = wave(out[3], 2 * n);
  wide[0] = wide[1] / wide[2];
  atomicAdd(&counter, 1);
  if (n == 7) printf("%d\n", n);
}
)cuda";

struct Compiled {
  std::string ptx, cubin;
};

// PTX and cubin of kKernels for one target, by the test's toolkit.
const Compiled& compiled(const std::string& target) {
  static std::map<std::string, Compiled> all;
  const auto [it, fresh] = all.try_emplace(target);
  if (!fresh) return it->second;
  const std::string base = temporary("time_" + std::to_string(getpid()) + "_" + target);
  write(base + ".cu", kKernels);
  const std::string command = nvcc() + " -std=c++17 -lineinfo -arch=" + target + " ";
  REQUIRE(std::system(
              (command + "-ptx -o " + word(base + ".ptx") + " " + word(base + ".cu")).c_str()) ==
          0);
  REQUIRE(std::system((nvcc() + " -arch=" + target + " -cubin -o " + word(base + ".cubin") + " " +
                       word(base + ".ptx"))
                          .c_str()) == 0);
  it->second = {contents(base + ".ptx"), contents(base + ".cubin")};
  for (const char* end : {".cu", ".ptx", ".cubin"}) std::filesystem::remove(base + end);
  return it->second;
}

const char* const kTargets[] = {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120"};

std::string line_of(const std::string& text, std::uint32_t line) {
  std::size_t begin = 0;
  for (; line > 1; --line) begin = text.find('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("time, machine code: the program's own, byte for byte, each instruction with its line" *
          doctest::test_suite("toolkit")) {
  const TemporaryCache cache;
  for (const char* target : kTargets) {
    for (const char* kernel : {"attention", "calls"}) {
      INFO(std::string(target), " ", std::string(kernel));
      const Compiled& program = compiled(target);
      const auto made = machine_code(program.ptx, kernel, target, program.cubin);
      REQUIRE(made.why == "");
      CHECK(made.code.unknown.empty());
      CHECK(made.code.function == kernel);
      CHECK(made.code.target == target);
      CHECK(made.code.registers > 8);
      REQUIRE(made.code.code.size() > 50);
      std::set<Kind> kinds;
      for (const MachineInstr& instr : made.code.code) {
        INFO(instr.address, " ", made.code.names[instr.name]);
        kinds.insert(instr.kind);
        CHECK(instr.kind != Kind::unknown);
        REQUIRE(instr.ptx_line > 0);
        const std::string line = line_of(program.ptx, instr.ptx_line);
        // (A call stands on several lines, and the first counts.)
        CHECK_MESSAGE((line.find(';') != line.npos || line.find("call") != line.npos), line);
        // What can come of one PTX instruction only.
        const auto from = [&](Kind kind, const char* ptx) {
          if (instr.kind == kind) CHECK_MESSAGE(line.find(ptx) != line.npos, line);
        };
        from(Kind::tensor, "mma");
        from(Kind::barrier, "bar");
        from(Kind::shuffle, "shfl");
        if (kernel == std::string("attention")) {
          from(Kind::global_load, ".global");
          from(Kind::shared_store, "st.shared");
        }
        if (instr.kind == Kind::tensor) {
          REQUIRE(tensor_of(instr.flavour) != nullptr);
          CHECK(tensor_of(instr.flavour)->sum == Tensor::Sum::f32);
        }
        if (instr.kind == Kind::branch) {
          REQUIRE(instr.target >= 0);
          CHECK(instr.target < static_cast<int>(made.code.code.size()));
        }
      }
      CHECK(kinds.count(Kind::exit) == 1);
      CHECK(kinds.count(Kind::branch) == 1);
      const bool attention = kernel == std::string("attention");
      CHECK(kinds.count(attention ? Kind::tensor : Kind::call) == 1);
      CHECK(kinds.count(attention ? Kind::barrier : Kind::ret) == 1);
    }
  }
}
