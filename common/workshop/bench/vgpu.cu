// Measures the virtual GPU itself: warp instructions a second, what counters and checks cost, how it
// scales with the host's cores, tensor operations, copies that land at barriers, and the default
// runs of the chapters.
//
//   bench_vgpu PROGRAM...      prints all; PROGRAM: chapters, run as they are, for their wall time
//   bench_vgpu --child         seconds of each kernel, for a run under other VGPU_* settings
//
// The two sides of every ratio come from alternating runs, so that ratios hold on a noisy machine.
#include <dlfcn.h>
#include <omp.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "../../../chapters/01_naive_attention/kernel.cuh"
#include "../../lab.cuh"
#include "attention/inputs.h"
#include "attention/reference.h"
#include "lab/device.h"
#include "lab/errors.h"

namespace {

constexpr int kRounds = 5;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The three kernels of chapter 1 on random input of 64 dimensions a head.
struct Attention {
  AttentionShape shape;
  lab::AttentionProblem problem;
  std::vector<lab::AttentionArrays> arrays;
  lab::DeviceArray<float> scores;  // [heads, tokens, tokens]
  struct Stage {
    const char* name;
    std::function<void()> launch;
  };
  std::vector<Stage> stages;

  static AttentionShape shape_of(int heads, int tokens) {
    AttentionShape shape;
    shape.heads = heads;
    shape.tokens = tokens;
    return shape;
  }
  Attention(int heads, int tokens)
      : shape(shape_of(heads, tokens)),
        problem(lab::random_attention(shape, 1)),
        arrays(lab::upload(problem, 1)),
        scores(shape.scores(), "scores") {
    lab::AttentionArrays& a = arrays[0];
    stages = {
        {"scores",
         [&] { naive_attention::launch_scores(a.Q.data(), a.K.data(), scores.data(), shape, 0); }},
        {"softmax", [&] { naive_attention::launch_softmax(scores.data(), shape, 0); }},
        {"values",
         [&] { naive_attention::launch_values(scores.data(), a.V.data(), a.O.data(), shape, 0); }}};
  }
  Attention(const Attention&) = delete;
};

double run_seconds(const Attention::Stage& stage) {
  return seconds_of([&] {
    stage.launch();
    lab::check(cudaDeviceSynchronize());
  });
}

// ---- one core, with and without counters, and all cores ------------------------------------------

double bench_kernels(Attention& attention, void (*set_threads)(int), int cores) {
  std::printf("%-10s %12s %14s %14s %12s %14s\n", "kernel", "warp instr.", "1 core", "1 core",
              "counters", "all cores");
  std::printf("%-10s %12s %14s %14s %12s %14s\n", "", "", "M/s counting", "M/s plain", "cost",
              "over one");
  double sum_counted = 0, sum_plain = 0, sum_all_cores = 0, sum_instructions = 0;
  auto line = [](const char* name, double instructions, double counted, double plain,
                 double all_cores) {
    std::printf("%-10s %12.0f %14.1f %14.1f %11.2fx %13.2fx\n", name, instructions,
                1e-6 * instructions / counted, 1e-6 * instructions / plain, counted / plain,
                counted / all_cores);
  };
  for (const Attention::Stage& stage : attention.stages) {
    auto run = [&](int threads, bool counters) {
      set_threads(threads);
      lab::vgpu::set_counters(counters);
      return run_seconds(stage);
    };
    std::vector<double> counted, plain, all_cores;
    double instructions = 0;
    for (int round = 0; round < kRounds; ++round) {
      counted.push_back(run(1, true));
      instructions = lab::vgpu::counter("/warp_instructions");
      plain.push_back(run(1, false));
      all_cores.push_back(run(cores, true));
    }
    line(stage.name, instructions, median(counted), median(plain), median(all_cores));
    sum_counted += median(counted);
    sum_plain += median(plain);
    sum_all_cores += median(all_cores);
    sum_instructions += instructions;
  }
  line("total", sum_instructions, sum_counted, sum_plain, sum_all_cores);
  set_threads(0);
  return sum_all_cores;
}

// ---- tensor operations -----------------------------------------------------------------------------

struct Fp16 {
  static constexpr int kProducts = 16 * 8 * 16;
  static __device__ void multiply(float (&c)[4], unsigned a, unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
        "{%5, %5}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a), "r"(b));
  }
  static constexpr unsigned kHalf = 0x38003800;  // 0.5, in every element of a register
  static constexpr int kDepth = 16;
};
struct Bf16 {
  static constexpr int kProducts = 16 * 8 * 16;
  static __device__ void multiply(float (&c)[4], unsigned a, unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
        "{%5, %5}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a), "r"(b));
  }
  static constexpr unsigned kHalf = 0x3f003f00;
  static constexpr int kDepth = 16;
};
struct Tf32 {
  static constexpr int kProducts = 16 * 8 * 8;
  static __device__ void multiply(float (&c)[4], unsigned a, unsigned b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
        "{%5, %5}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a), "r"(b));
  }
  static constexpr unsigned kHalf = 0x3f000000;
  static constexpr int kDepth = 8;
};

// Adds 8 `times` products of matrices of halves.
template <class Type>
__global__ void multiply_fragments(float* out, int times) {
  float c[4] = {};
  for (int i = 0; i < times; ++i)
#pragma unroll
    for (int k = 0; k < 8; ++k) Type::multiply(c, Type::kHalf, Type::kHalf);
  out[threadIdx.x] = c[0];
}

template <class Type>
void bench_tensor(const char* name) {
  constexpr int kTimes = 2500;
  lab::DeviceArray<float> out(32, "out");
  auto run = [&](int times) {
    return seconds_of([&] {
      multiply_fragments<Type><<<1, 32>>>(out.data(), times);
      lab::check(cudaDeviceSynchronize());
    });
  };
  std::vector<double> each;
  for (int round = 0; round < kRounds; ++round) {
    const double without = run(0);
    each.push_back((run(kTimes) - without) / (8 * kTimes));
  }
  if (out.download()[0] != 8 * kTimes * Type::kDepth * 0.25f)
    throw std::runtime_error("the fragments' product is wrong");
  std::printf("mma of %s, sums in fp32, counted: %.3f us each, %.1f G multiply-adds/s (one core)\n",
              name, 1e6 * median(each), 1e-9 * Type::kProducts / median(each));
}

// ---- copies that land at a barrier -----------------------------------------------------------------

// Every thread asks for `copies` of 16 bytes, which report to one barrier in shared memory.
__global__ void copy_to_barrier(const uint4* from, int copies) {
  __shared__ alignas(16) uint4 tile[256];
  __shared__ alignas(8) unsigned long long barrier;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(copies * 256) : "memory");
  __syncthreads();
  for (int i = 0; i < copies; ++i) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + threadIdx.x)
                 : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
  }
  asm volatile(
      "{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n"
      "@!done bra again;\n}" ::"r"(at)
      : "memory");
}

void bench_landing() {
  lab::DeviceArray<uint4> from(256, "from");
  std::printf("copies of 16 bytes that land at one barrier (one core):");
  for (const int copies : {16, 128}) {
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round)
      seconds.push_back(seconds_of([&] {
        copy_to_barrier<<<1, 256>>>(from.data(), copies);
        lab::check(cudaDeviceSynchronize());
      }));
    std::printf(" %d of each of 256 threads, %.3f us each%s", copies,
                1e6 * median(seconds) / (256 * copies), copies == 16 ? ";" : "\n");
  }
}

// ---- other processes -------------------------------------------------------------------------------

// Standard output of a command, or LackError when it fails.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) throw lab::LackError("cannot run: " + command);
  std::string text;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, count);
  const int status = pclose(pipe);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw lab::LackError("failed: " + command);
  return text;
}

int child() {
  Attention attention(9, 127);
  lab::vgpu::set_counters(false);
  for (const Attention::Stage& stage :
       attention.stages) {  // once for the decoding, then for the time
    run_seconds(stage);
    std::printf("%.9f\n", run_seconds(stage));
  }
  return 0;
}

void bench_checks(const Attention& attention) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::vector<double>> plain(3), checked(3);
  for (int round = 0; round < kRounds; ++round)
    for (const bool all : {false, true}) {
      const std::string text = output_of(std::string("VGPU_THREADS=1 ") +
                                         (all ? "VGPU_CHECK=all '" : "'") + self + "' --child");
      const char* at = text.c_str();
      for (int i = 0; i < 3; ++i)
        (all ? checked : plain)[i].push_back(std::strtod(at, const_cast<char**>(&at)));
    }
  std::printf("\nall checks over memory checks alone, 127 tokens, 9 heads, one core:");
  double sum_plain = 0, sum_checked = 0;
  for (int i = 0; i < 3; ++i) {
    std::printf(" %s %.1fx,", attention.stages[i].name, median(checked[i]) / median(plain[i]));
    sum_plain += median(plain[i]);
    sum_checked += median(checked[i]);
  }
  std::printf(" total %.1fx\n", sum_checked / sum_plain);
}

void bench_programs(int count, char** programs) {
  for (int i = 0; i < count; ++i) {
    const std::string out = (std::filesystem::temp_directory_path() / "bench_vgpu.png").string();
    const double seconds =
        seconds_of([&] { output_of(std::string(programs[i]) + " --out '" + out + "'"); });
    std::filesystem::remove(out);
    std::printf("default run of %s: %.2f s\n",
                std::filesystem::path(programs[i]).filename().c_str(), seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    lab::open_device();
    const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "vgpuSetThreads"));
    if (!lab::vgpu::present() || !set_threads) {
      std::fprintf(stderr, "bench-vgpu measures the virtual GPU: build it with DEVICE=vgpu\n");
      return lab::kLacking;
    }
    if (argc == 2 && !std::strcmp(argv[1], "--child")) return child();
    const int cores = omp_get_num_procs();
    std::printf(
        "virtual GPU on %d cores; chapter 1's kernels, 577 tokens, 12 heads of 64; medians of %d "
        "runs\n\n",
        cores, kRounds);
    Attention attention(12, 577);
    const double kernels = bench_kernels(attention, set_threads, cores);
    const std::vector<float> q = lab::to_float(attention.problem.q),
                             k = lab::to_float(attention.problem.k),
                             v = lab::to_float(attention.problem.v);
    std::vector<double> expected(attention.shape.elements());
    std::vector<double> reference;
    for (int round = 0; round < kRounds; ++round)
      reference.push_back(seconds_of([&] {
        reference::attention(q.data(), k.data(), v.data(), attention.shape, expected.data());
      }));
    std::printf(
        "\nCPU reference (double precision, all cores) %.3f s; the three kernels, counted, %.2f s: "
        "%.1f times as long\n",
        median(reference), kernels, kernels / median(reference));
    set_threads(1);
    lab::vgpu::set_counters(true);
    std::printf("\n");
    bench_tensor<Fp16>("fp16");
    bench_tensor<Bf16>("bf16");
    bench_tensor<Tf32>("tf32");
    bench_landing();
    set_threads(0);
    bench_checks(attention);
    std::printf("\n");
    bench_programs(argc - 1, argv + 1);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-vgpu: %s\n", error.what());
    return lab::kLacking;
  }
}
