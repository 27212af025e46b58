#include "report.h"

#include <cstring>

#include "../../../common/lab/files.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/tensors.h"

namespace lab {

ReportHead report_head(const char* chapter, const GradientOptions& options, const Device& device,
                       const GradientProblem& problem) {
  const AttentionShape& shape = problem.attention.shape;
  return {chapter,
          options,
          device,
          problem.attention.source,
          describe(shape) + format(", scale %g", double(shape.scale)),
          {{"batch", shape.batch},
           {"heads", shape.heads},
           {"tokens", shape.tokens},
           {"head_dim", shape.head_dim}},
          {{"scale", format("%.17e", double(shape.scale))}}};
}

Comparison compare_gradients(const gradients::Step& step, const GradientArrays& arrays,
                             const GradientExpected& expected, const AttentionShape& shape,
                             Report& report) {
  if (expected.dQ.empty()) return Comparison::none();
  const GradientComparison result = compare_gradients(arrays.dQ.download(), arrays.dK.download(),
                                                      arrays.dV.download(), expected, shape);
  if (!result.comparison.pass)
    report.note(step.name + ": " + result.array + ": " + result.comparison.describe());
  return result.comparison;
}

void note_changed(const gradients::Step& step, const std::vector<half>& first,
                  const std::vector<half>& second, const Device& device, Report& report) {
  int64_t changed = 0;
  for (size_t i = 0; i < first.size(); ++i)
    changed += std::memcmp(&first[i], &second[i], sizeof(half)) != 0;
  if (step.same_bits)
    report.require(changed == 0, step.name + ": dQ had other bits the second time");
  else
    report.note(format(
        "%s, run again: %lld of %lld numbers of dQ have other bits\n(atomic additions may "
        "come in any order%s)",
        step.name.c_str(), static_cast<long long>(changed), static_cast<long long>(first.size()),
        device.is_virtual ? "; the virtual GPU repeats its own" : ""));
}

void write_output(const GradientOptions& options, const AttentionShape& shape,
                  const GradientArrays& arrays) {
  if (options.output.empty()) return;
  Tensor out{{3, shape.batch, shape.heads, shape.tokens, shape.head_dim}, {}, "F16"};
  for (const DeviceArray<half>* array : {&arrays.dQ, &arrays.dK, &arrays.dV}) {
    const std::vector<float> values = to_float(array->download());
    out.values.insert(out.values.end(), values.begin(), values.end());
  }
  write_safetensors(options.output, {{"out", out}});
}

void draw_keys(const GradientOptions& options, const GradientProblem& problem,
               const gradients::Step& step, GradientArrays& arrays, Report& report) {
  if (options.out.empty() || options.predict) return;
  const AttentionProblem& photo = problem.attention;
  AttentionShape shape = photo.shape;
  shape.batch = 1;
  const int token =
      options.patch.empty() ? photo.chosen_token : parse_patch(options.patch, photo.grid);
  DeviceArray<half> d_o(gradient_of_token(problem, token), "dO of one token");
  DeviceArray<float> workspace(size_t(step.workspace_of(shape)), "workspace");
  gradients::Pointers pointers = arrays.pointers(workspace);
  pointers.dO = d_o.data();
  vgpu::set_counters(false);
  gradients::run(step, pointers, shape, nullptr);
  check(cudaDeviceSynchronize());
  vgpu::set_counters(true);
  const std::vector<double> sizes =
      size_of_keys(arrays.dK.download(0, size_t(shape.elements())), shape);
  save_image(options.out, draw_heat_map(photo.photo, photo.grid, token, sizes));
  const auto place = [&](int t) {
    return t == 0 ? std::string("the class token")
                  : format("patch %d,%d", (t - 1) / photo.grid, (t - 1) % photo.grid);
  };
  int next = -1;
  for (int t = 0; t < shape.tokens; ++t)
    if (t != token && (next < 0 || sizes[t] > sizes[next])) next = t;
  report.note(format(
      "%s: for %s to come out of attention as it went in, keys would have to\nchange; "
      "its own by %.3g, that of %s, the next, by %.3g",
      options.out.c_str(), place(token).c_str(), sizes[token], place(next).c_str(), sizes[next]));
}

}  // namespace lab
