#include "report.h"

#include <cmath>

#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/tensors.h"
#include "json/json.h"

namespace lab::deformable {

ReportHead report_head(const char* chapter, const GradientOptions& options, const Device& device,
                       const GradientProblem& problem) {
  const DeformableShape& shape = problem.shape();
  const double bytes = gradient_bytes(shape);
  return {chapter,
          options,
          device,
          problem.forward.source,
          describe(shape) + "\n         " + human_bytes(bytes) + " in all",
          problem_sizes(shape),
          {{"bytes", format("%.0f", bytes)},
           {"distribution", format("\"%s\"", distribution_name(options.distribution))}}};
}

GradientComparisons compare_gradients(const GradientArrays& arrays,
                                      const ExpectedGradients& expected,
                                      const DeformableShape& shape) {
  return compare_gradients(arrays.grad_value.download(), arrays.grad_locations.download(),
                           arrays.grad_weights.download(), expected, shape);
}

Comparison compare_gradients(const std::string& name, const GradientArrays& arrays,
                             const ExpectedGradients& expected, const DeformableShape& shape,
                             Report& report) {
  if (expected.gradients.value.empty()) return Comparison::none();
  const GradientComparisons right = compare_gradients(arrays, expected, shape);
  report.require(right.locations.pass,
                 name + ": gradient of locations: " + right.locations.describe());
  report.require(right.weights.pass, name + ": gradient of weights: " + right.weights.describe());
  return right.value;
}

void predict_kernels(const std::string& stage, const StepLaunch& launch, Timing& timing,
                     Report& report) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  check(cudaStreamCreate(&stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(0, stream);
  check(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  check(cudaGraphGetNodes(graph, nodes.data(), &count));
  double sum_us = 0, error = 0;
  int kernels = 0, unknown = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeMemset) {
      cudaMemsetParams set{};
      check(cudaGraphMemsetNodeGetParams(node, &set));
      check(cudaMemset2D(set.dst, set.pitch, int(set.value), set.width * set.elementSize,
                         set.height));
    }
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams kernel{};
    check(cudaGraphKernelNodeGetParams(node, &kernel));
    const vgpu::Predicting predicting(true);
    check(cudaLaunchKernel(kernel.func, kernel.gridDim, kernel.blockDim, kernel.kernelParams,
                           kernel.sharedMemBytes, nullptr));
    check(cudaDeviceSynchronize());
    const double us = vgpu::counter("/predicted/us");
    ++kernels;
    unknown += !std::isfinite(us);
    if (!std::isfinite(us)) continue;
    sum_us += us;
    error = vgpu::counter("/predicted/error");
  }
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  timing.counters.clear();
  if (unknown == kernels) return;
  timing.counters =
      json::Value(
          {{"predicted", {{"us", sum_us}, {"error", error}, {"stalls", json::Value::object()}}}})
          .dump();
  report.note(
      format("%s: %d kernels of CUB's; its time is the sum of %d. The others get no prediction.",
             stage.c_str(), kernels, kernels - unknown));
}

void write_output(const GradientOptions& options, const DeformableShape& shape,
                  const GradientArrays& a) {
  if (options.output.empty()) return;
  const int64_t B = shape.batch, Q = shape.queries, H = shape.heads, L = shape.levels,
                P = shape.points;
  write_safetensors(
      options.output,
      {{"grad_value", {{B, shape.pixels(), H, shape.channels}, a.grad_value.download(), "F32"}},
       {"grad_locations", {{B, Q, H, L, P, 2}, a.grad_locations.download(), "F32"}},
       {"grad_weights", {{B, Q, H, L, P}, a.grad_weights.download(), "F32"}}});
}

void draw_photo(const GradientOptions& options, const Image& photo, const GradientStep& step,
                Report& report) {
  if (!options.draws) return;
  const GradientProblem pyramid = photo_gradients(photo, options.size);
  std::vector<GradientArrays> a = upload(pyramid, 1);
  run(step, a[0], pyramid.shape(), nullptr);
  check(cudaDeviceSynchronize());
  const GradientComparisons right =
      compare_gradients(a[0], expected_gradients(pyramid), pyramid.shape());
  save_image(options.out,
             draw_gradient(pyramid.forward.photo, options.size, a[0].grad_value.download()));
  report.note(format(
      "%s: %s of %s, %d x %d pixels: where a change of the\npyramid changes what the queries "
      "of the picture's middle third find",
      options.out.c_str(), step.name.c_str(), file_name(options.image).c_str(), options.size,
      options.size));
  report.require(right.worst().pass, "on the photo: " + right.worst().describe());
}

}  // namespace lab::deformable
