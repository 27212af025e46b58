// What is right, what a step must cost at least, and what is reported and written of the run.
#include <algorithm>
#include <cmath>

#include "inputs.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/files.h"
#include "lab/images.h"
#include "lab/report.h"
#include "lab/tensors.h"
#include "program.h"
#include "reference.h"

namespace lab {

std::vector<double> expected_output(const AttentionOptions& options,
                                    const AttentionProblem& problem) {
  if (options.predict) return {};
  const std::vector<float> q = to_float(problem.q), k = to_float(problem.k),
                           v = to_float(problem.v);
  std::vector<double> expected(problem.shape.elements());
  reference::attention(q.data(), k.data(), v.data(), problem.shape, expected.data());
  return expected;
}

Comparison compare_output(const std::vector<half>& output, const std::vector<double>& expected,
                          const Tolerance& tolerance, const AttentionShape& shape) {
  if (expected.empty()) return Comparison::none();
  return compare(output, expected, tolerance,
                 {shape.batch, shape.heads, shape.tokens, shape.head_dim});
}

Cost attention_cost(const AttentionShape& shape, bool tensor_cores) {
  return {8.0 * shape.elements(), 4.0 * shape.scores() * shape.head_dim, tensor_cores};
}

ReportHead report_head(const std::string& chapter, const AttentionOptions& options,
                       const Device& device, const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  const double scale = shape.scale;
  return {chapter,
          options,
          device,
          problem.source,
          describe(shape) + format(", scale %g", scale),
          {{"batch", shape.batch},
           {"heads", shape.heads},
           {"tokens", shape.tokens},
           {"head_dim", shape.head_dim}},
          {{"scale", format("%.17e", scale)}}};
}

void write_heat_map(const AttentionOptions& options, const AttentionProblem& problem,
                    AttentionFunction attention, Report& report) {
  if (problem.grid == 0 || options.predict) return;
  const int chosen = problem.chosen_token;
  vgpu::set_counters(false);
  const std::vector<double> weights = attention_weights(attention, problem, chosen);
  vgpu::set_counters(true);
  save_image(options.out, draw_heat_map(problem.photo, problem.grid, chosen, weights));
  const auto place = [&](int token) {
    return token == 0
               ? std::string("the class token")
               : format("patch %d,%d", (token - 1) / problem.grid, (token - 1) % problem.grid);
  };
  int next = -1;
  double sum = 0;
  for (int token = 0; token < problem.shape.tokens; ++token) {
    sum += weights[token];
    if (token != chosen && (next < 0 || weights[token] > weights[next])) next = token;
  }
  report.note(format("%s: attention of %s: %.1f%% of it to itself, %.1f%% to %s, the next",
                     options.out.c_str(), place(chosen).c_str(), 100 * weights[chosen],
                     100 * weights[next], place(next).c_str()));
  // Each weight is rounded to fp16, relatively 2^-11; twice that is allowed. False for NaN.
  report.require(std::abs(sum - 1) <= 0x1p-10,
                 format("the weights of %s add up to %.6f, not 1", place(chosen).c_str(), sum));
}

void write_output(const AttentionOptions& options, const AttentionShape& shape,
                  const std::vector<half>& output) {
  if (options.output.empty()) return;
  write_safetensors(
      options.output,
      {{"out",
        {{shape.batch, shape.heads, shape.tokens, shape.head_dim}, to_float(output), "F16"}}});
}

std::string describe_occupancy(const std::string& name, const void* kernel, int threads,
                               int shared_bytes) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel));
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  int blocks = 0, most_threads = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
  check(cudaDeviceGetAttribute(&most_threads, cudaDevAttrMaxThreadsPerMultiProcessor, 0));
  return format("%s: %d registers, %s shared: an SM holds %d block%s, %d of %d warps", name.c_str(),
                attributes.numRegs,
                human_bytes(double(attributes.sharedSizeBytes) + shared_bytes).c_str(), blocks,
                blocks == 1 ? "" : "s", blocks * threads / 32, most_threads / 32);
}

}  // namespace lab
