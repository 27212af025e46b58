// Measures the virtual GPU itself: warp instructions a second and what counting costs, on the
// kernels of chapter 1 at 577 tokens and 12 heads. Every figure of a line comes from alternating
// runs of this one process, so that ratios hold on a noisy machine.
#include <dlfcn.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

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

}  // namespace

int main() {
  try {
    const lab::Device device = lab::open_device();
    const auto set_threads =
        reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "vgpuSetThreads"));
    if (!lab::vgpu::present() || !set_threads) {
      std::fprintf(stderr, "bench-vgpu measures the virtual GPU: build it with DEVICE=vgpu\n");
      return lab::kLacking;
    }
    const int cores = omp_get_num_procs();
    AttentionShape shape;
    shape.heads = 12;
    shape.tokens = 577;
    const lab::AttentionProblem problem = lab::random_attention(shape, 1);
    std::vector<lab::AttentionArrays> arrays = lab::upload(problem, 1);
    lab::AttentionArrays& a = arrays[0];
    lab::DeviceArray<float> scores(shape.scores(), "scores");

    std::printf("virtual GPU, %d of %d cores of this machine; 577 tokens, 12 heads of 64; median of %d\n\n",
                cores, cores, kRounds);
    std::printf("%-10s %12s %14s %14s %12s %14s\n", "kernel", "warp instr.", "1 core", "1 core", "counters",
                "all cores");
    std::printf("%-10s %12s %14s %14s %12s %14s\n", "", "", "M/s counting", "M/s plain", "cost", "over one");
    struct Stage {
      const char* name;
      std::function<void()> launch;
    };
    const Stage stages[] = {
        {"scores", [&] { naive_attention::launch_scores(a.Q.data(), a.K.data(), scores.data(), shape, 0); }},
        {"softmax", [&] { naive_attention::launch_softmax(scores.data(), shape, 0); }},
        {"values", [&] { naive_attention::launch_values(scores.data(), a.V.data(), a.O.data(), shape, 0); }}};
    double sum_counted = 0, sum_all_cores = 0, sum_instructions = 0;
    for (const Stage& stage : stages) {
      auto run = [&](int threads, bool counters) {
        set_threads(threads);
        lab::vgpu::set_counters(counters);
        return seconds_of([&] {
          stage.launch();
          lab::check(cudaDeviceSynchronize());
        });
      };
      std::vector<double> counted, plain, all_cores;
      double instructions = 0;
      for (int round = 0; round < kRounds; ++round) {
        counted.push_back(run(1, true));
        instructions = lab::vgpu::counter("/warp_instructions");
        plain.push_back(run(1, false));
        all_cores.push_back(run(cores, true));
      }
      sum_counted += median(counted);
      sum_all_cores += median(all_cores);
      sum_instructions += instructions;
      std::printf("%-10s %12.0f %14.1f %14.1f %11.2fx %13.2fx\n", stage.name, instructions,
                  1e-6 * instructions / median(counted), 1e-6 * instructions / median(plain),
                  median(counted) / median(plain), median(counted) / median(all_cores));
    }
    std::printf("%-10s %12.0f %14.1f %14s %12s %13.2fx\n", "total", sum_instructions,
                1e-6 * sum_instructions / sum_counted, "", "", sum_counted / sum_all_cores);

    const std::vector<float> q = lab::to_float(problem.q), k = lab::to_float(problem.k),
                             v = lab::to_float(problem.v);
    std::vector<double> expected(shape.elements());
    const double reference = seconds_of(
        [&] { reference::attention(q.data(), k.data(), v.data(), shape, expected.data()); });
    std::printf("\nCPU reference (double precision, %d cores): %.2f s; the three kernels with counters: %.2f s, "
                "%.1f times as long\n", cores, reference, sum_all_cores, sum_all_cores / reference);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-vgpu: %s\n", error.what());
    return lab::kLacking;
  }
}
