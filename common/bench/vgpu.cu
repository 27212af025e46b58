// Measures the virtual GPU itself: warp instructions a second, what counters and checks cost, how it
// scales with the host's cores, tensor operations, and the default runs of the chapters.
//
//   bench_vgpu PROGRAM...      prints all; PROGRAM: chapters, run as they are, for their wall time
//   bench_vgpu --child         seconds of each kernel, for a run under other VGPU_* settings
//
// The two sides of every ratio come from alternating runs, so that ratios hold on a noisy machine.
#include <dlfcn.h>
#include <mma.h>
#include <omp.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "../../chapters/01_naive_attention/kernel.cuh"
#include "../lab.cuh"
#include "../reference/attention.h"

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

__global__ void multiply_fragments(const half* tile, float* out, int times) {
  namespace wmma = nvcuda::wmma;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::load_matrix_sync(a, tile, 16);
  wmma::load_matrix_sync(b, tile, 16);
  wmma::fill_fragment(c, 0.0f);
  for (int i = 0; i < times; ++i) wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(out, c, 16, wmma::mem_row_major);
}

void bench_tensor(void (*set_threads)(int)) {
  constexpr int kTimes = 20000;
  lab::DeviceArray<half> tile(std::vector<half>(256, __float2half(0.5f)), "tile");
  lab::DeviceArray<float> out(256, "out");
  set_threads(1);
  lab::vgpu::set_counters(true);
  auto run = [&](int times) {
    return seconds_of([&] {
      multiply_fragments<<<1, 32>>>(tile.data(), out.data(), times);
      lab::check(cudaDeviceSynchronize());
    });
  };
  std::vector<double> each;
  for (int round = 0; round < kRounds; ++round) {
    const double without = run(0);
    each.push_back((run(kTimes) - without) / kTimes);
  }
  set_threads(0);
  if (out.download()[0] != kTimes * 16 * 0.25f)
    throw std::runtime_error("the fragments' product is wrong");
  std::printf(
      "\nwmma 16x16x16, fp16 with fp32 accumulation, counted: %.2f us each (one core, loop "
      "included)\n",
      1e6 * median(each));
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
    bench_tensor(set_threads);
    bench_checks(attention);
    std::printf("\n");
    bench_programs(argc - 1, argv + 1);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-vgpu: %s\n", error.what());
    return lab::kLacking;
  }
}
