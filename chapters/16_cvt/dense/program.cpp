// The program of chapter 16's dense operations: flags, problem, each step forward and back.
#include "program.h"

#include <cmath>
#include <optional>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "problem.h"

namespace lab::dense {
namespace {

struct Component {
  std::string name;
  DenseProblem (*problem)(const std::string& preset, int batch, uint64_t seed);
  const char* about;
  bool tensor_cores;
};
const std::vector<Component>& components() {
  static const std::vector<Component> all = {
      {"linear", linear_problem, "A linear layer, an MLP's first one", true},
      {"layer_norm", layer_norm_problem, "LayerNorm of tokens", false},
      {"attention", attention_problem, "Attention with a quarter as many keys as queries", true},
      {"embedding", embedding_problem, "Convolutional token embedding", true}};
  return all;
}
const Component& component_of(const std::string& name) {
  for (const Component& component : components())
    if (component.name == name) return component;
  throw UsageError("--component '" + name +
                   "': must be linear, layer_norm, attention or embedding");
}

struct DenseOptions {
  Options common;
  std::string preset;
};
DenseOptions dense_options(const Component& component, int argc, char** argv) {
  DenseOptions result;
  Flags flags(std::string(component.about) +
                  ", forward and back: a simple step beside the chapter's\nown, both compared with "
                  "the CPU reference.",
              "All arrays are random and fp32.");
  flags.text("--preset", result.preset, "NAME",
             "small: 2 maps of 14 x 14 x 64; cvt13-1, cvt13-2, cvt13-3: CvT-13's three stages at "
             "224\npixels in batches of 32 (GPU: cvt13-1, virtual GPU: small)");
  flags.number("--batch", result.common.batch, 1, 4096, "N", "maps, in place of the preset's");
  flags.run_flags(result.common, "of the random problem (1)");
  flags.parse(argc, argv);
  if (!result.preset.empty())
    require_one_of("--preset", result.preset, {"small", "cvt13-1", "cvt13-2", "cvt13-3"});
  require_files(result.common);
  return result;
}

Arrays arrays_of(const DenseProblem& problem, const std::string& copy) {
  Arrays arrays;
  for (const auto& [name, values] : problem.inputs)
    arrays.emplace(name, DeviceArray<float>(values, name + copy));
  for (const auto& [name, count] : problem.outputs) {
    const auto at = arrays.emplace(name, DeviceArray<float>(count, name + copy)).first;
    at->second.fill_nan();
  }
  return arrays;
}

// The worst of what a step must give.
Comparison compared(const Step& step, const std::vector<Expected>& expected, const Arrays& arrays,
                    Report& report) {
  std::optional<Comparison> worst;
  for (const Expected& e : expected) {
    const Comparison comparison =
        compare(arrays.at(e.name).download(), e.values, e.tolerance, {int64_t(e.values.size())});
    if (!comparison.pass) report.note(step.name + ": " + e.name + ": " + comparison.describe());
    if (!worst ||
        (worst->pass && (!comparison.pass || comparison.relative_l2 > worst->relative_l2)))
      worst = comparison;
  }
  return *worst;
}

// A step as a whole: its time is that of all its launches. Other counters are there where it has
// but one.
Timing time_whole(const Device& device, const Step& step, std::vector<Arrays>& arrays,
                  const Options& options) {
  const int copies = int(arrays.size());
  Timing timing = time_step(
      device, [&](int i, cudaStream_t stream) { step.run(arrays[size_t(i % copies)], stream); },
      copies, options.warmup, options.iterations);
  if (!device.is_virtual || !vgpu::can_predict() || vgpu::prediction_refused()) return timing;
  const double last_us = vgpu::counter("/predicted/us"), error = vgpu::counter("/predicted/error");
  const vgpu::Predicting predicting(true);
  step.run(arrays[0], nullptr);
  check(cudaDeviceSynchronize());
  const double us = predicting.us();
  if (std::isfinite(us) && us > 1.001 * last_us)
    timing.counters =
        json::Value(
            {{"predicted", {{"us", us}, {"error", error}, {"stalls", json::Value::object()}}}})
            .dump();
  return timing;
}

ExitCode dense_program(const std::string& name, int argc, char** argv) {
  const Component& component = component_of(name);
  DenseOptions asked = dense_options(component, argc, argv);
  Options& options = asked.common;
  const Device device = open_device();
  if (component.tensor_cores && device.major < 8)
    throw LackError(
        format("--component %s: products in tf32 need compute capability 8.0 or newer, "
               "this device has %d.%d",
               name.c_str(), device.major, device.minor));
  complete_for(device, options);
  if (asked.preset.empty()) asked.preset = device.is_virtual ? "small" : "cvt13-1";
  const DenseProblem problem = [&] {
    const Progress progress("making the problem");
    return component.problem(asked.preset, options.batch, options.seed);
  }();
  double bytes = 0;
  for (const auto& [array, values] : problem.inputs) bytes += 4.0 * double(values.size());
  for (const auto& [array, count] : problem.outputs) bytes += 4.0 * double(count);
  const int copies = rotation_copies(device, bytes);
  require_memory(device, 2 * bytes * copies, 4 * bytes, problem.shape);
  std::vector<Arrays> arrays;
  for (int i = 0; i < copies; ++i)
    arrays.push_back(arrays_of(problem, i ? format(" (copy %d)", i + 1) : ""));

  ReportHead head{"16_cvt",
                  options,
                  device,
                  format("random, seed %llu", (unsigned long long)options.seed),
                  problem.shape,
                  problem.sizes,
                  {}};
  head.details.emplace_back("component", "\"" + name + "\"");
  head.details.emplace_back("preset", "\"" + asked.preset + "\"");
  Report report(head);
  for (const char* const direction : {"forward", "back"}) {
    std::vector<Expected> expected;
    if (!options.predict) {
      const Progress progress("CPU reference");
      expected = problem.expected.at(direction)();
    }
    std::string before;
    for (const Step& step : problem.steps) {
      if (step.direction != direction) continue;
      const Progress progress(step.name);
      for (const Expected& e : expected) arrays[0].at(e.name).fill_nan();
      const Timing timing = time_whole(device, step, arrays, options);
      report.add(
          step.name, timing, step.cost,
          options.predict ? Comparison::none() : compared(step, expected, arrays[0], report));
      if (!before.empty()) report.add_ratio(step.name, before);
      before = step.name;
    }
  }
  return report.finish();
}

}  // namespace
}  // namespace lab::dense

const std::vector<std::string>& dense_components() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const lab::dense::Component& component : lab::dense::components())
      all.push_back(component.name);
    return all;
  }();
  return names;
}

int dense_main(const std::string& component, int argc, char** argv) {
  return lab::guarded_main("16_cvt",
                           [&] { return lab::dense::dense_program(component, argc, argv); });
}
