// What a run reports beside its steps' times: comparison, head, ratios, hit rates, files.
#include "report.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/tensors.h"
#include "reference.h"

namespace lab {
namespace {

// Some rows at a time, so that the progress shown is true.
std::vector<double> reference_output(const DeformableProblem& problem) {
  const DeformableShape& shape = problem.shape;
  std::atomic<double> share = 0;
  const Progress progress("CPU reference of " + describe(shape), [&] { return share.load(); });
  const std::vector<float> value = to_float(problem.value), locations = to_float(problem.locations),
                           weights = to_float(problem.weights);
  std::vector<double> out(shape.out_elements());
  constexpr int64_t kRows = 16384;
  for (int64_t row = 0; row < shape.rows(); row += kRows) {
    const int64_t rows = std::min(kRows, shape.rows() - row);
    reference::deformable_attention_rows(value.data(), locations.data(), weights.data(), shape, row,
                                         rows, &out[row * shape.channels]);
    share = double(row + rows) / double(shape.rows());
  }
  return out;
}

void run_step(const DeformableStep& step, DeformableArrays& a, const DeformableShape& shape) {
  step.function(a.value.data(), a.locations.data(), a.weights.data(), a.out.data(), shape, nullptr);
  check(cudaDeviceSynchronize());
}

}  // namespace

std::vector<double> expected_output(const DeformableOptions& options,
                                    const DeformableProblem& problem) {
  if (options.predict) return {};
  std::vector<double> out = reference_output(problem);
  for (size_t i = 0; i < out.size() && !options.input.empty(); ++i)
    if (std::abs(out[i]) > 65504)
      throw UsageError(
          format("%s: overflows fp16: element %zu of the output is %g, fp16 ends at "
                 "65504: smaller value or attention_weights",
                 options.input.c_str(), i, out[i]));
  return out;
}

Comparison compare_output(const std::vector<half>& out, const std::vector<double>& expected,
                          const Tolerance& tolerance, const DeformableShape& shape) {
  if (expected.empty()) return Comparison::none();
  return compare(out, expected, tolerance,
                 {shape.batch, shape.queries, shape.heads, shape.channels});
}

ReportHead report_head(const char* chapter, const DeformableOptions& options, const Device& device,
                       const DeformableProblem& problem) {
  const DeformableShape& shape = problem.shape;
  const double bytes = deformable_cost(shape).bytes;
  ReportHead head{chapter,
                  options,
                  device,
                  problem.source,
                  describe(shape) + "\n         " + human_bytes(bytes) + " in all",
                  problem_sizes(shape),
                  {{"bytes", format("%.0f", bytes)}}};
  if (options.input.empty())
    head.details.emplace_back("distribution",
                              format("\"%s\"", distribution_name(options.distribution)));
  return head;
}

std::function<double()> share_written(const DeformableArrays& arrays, bool once) {
  check(cudaDeviceSynchronize());  // the host reads managed memory from here on
  if (!once) return [] { return -1.0; };
  return [out = arrays.out.data(), count = arrays.out.size()] {
    const size_t places = std::min<size_t>(count, 1000);
    size_t written = 0;
    for (size_t i = 0; i < places; ++i) {
      const volatile uint16_t* place =
          reinterpret_cast<const volatile uint16_t*>(out) + i * count / places;
      written += *place != 0xffff;
    }
    return double(written) / double(places);
  };
}

void StepCounters::read(const std::string& step) {
  if (step == "vectorized") loaded_by_vectorized = vgpu::counter("/global/load/bytes_asked");
  if (vgpu::counter("/distributed_shared/load/requests") > 0 &&
      std::isnan(vgpu::counter("/limits/distributed shared memory")))
    unlimited.insert(step);
}

void add_ratios(const std::vector<DeformableStep>& steps, const StepCounters& counters,
                Report& report) {
  const std::set<std::string>& unlimited = counters.unlimited;
  for (size_t i = 1; i < steps.size(); ++i) {
    const std::string& after = steps[i].name;
    const std::string& before = steps[i].before.empty() ? steps[i - 1].name : steps[i].before;
    if (!unlimited.count(after) && !unlimited.count(before)) report.add_ratio(after, before);
  }
  for (const std::string& name : unlimited)
    report.note(name +
                ": its bound leaves out what comes from other blocks' shared memory, since "
                "how fast\nthat comes on this device is not published. So no ratio is shown.");
}

void note_intensity(const Device& device, const DeformableShape& shape,
                    const StepCounters& counters, Report& report) {
  const double loaded = counters.loaded_by_vectorized;
  if (!device.is_virtual || !(loaded > 0)) return;
  const double flops = deformable_cost(shape).flops;
  const double l1 = 128.0 * device.sm_count * device.clock_hz;
  report.note(
      format("arithmetic intensity of vectorized: %.2f FLOP for each byte its loads ask for.\n"
             "The L1 delivers at most %.1f TB/s, enough for %.0f TFLOP/s; fp32 units do "
             "%.0f: faster multiplying\nwould not help.",
             flops / loaded, l1 / 1e12, flops / loaded * l1 / 1e12, device.fp32_flop_per_s / 1e12));
}

void add_hit_rates(const std::vector<DeformableStep>& steps, const DeformableShape& shape,
                   uint64_t seed, Report& report) {
  vgpu::set_cache_model(true);
  DeformableShape image = shape;
  image.batch = 1;
  for (const DeformableStep& step : steps) {
    const Progress progress(step.name + ", cache model");
    std::string text = step.name + ": hits in L1 of what values ask for:";
    for (const Distribution distribution : {Distribution::kLocal, Distribution::kUniform}) {
      std::vector<DeformableArrays> arrays =
          upload(random_deformable(image, distribution, seed), 1);
      run_step(step, arrays[0], image);
      const double rate = vgpu::counter("/allocations/value/cache/l1/hit_rate");
      report.add_number(step.name, std::string("l1_hit_rate_") + distribution_name(distribution),
                        rate);
      text += format(" %.1f%% %s,", 100 * rate, distribution_name(distribution));
    }
    text.back() = ' ';
    report.note(text + "(cache model, batch 1)");
  }
  vgpu::set_cache_model(false);
}

void write_output(const std::string& path, const DeformableShape& shape,
                  const std::vector<half>& out) {
  if (path.empty()) return;
  const int64_t columns = int64_t(shape.heads) * shape.channels;
  write_safetensors(path, {{"out", {{shape.batch, shape.queries, columns}, to_float(out), "F16"}}});
}

void draw_photo(const DeformableStep& step, const Image& photo, const DeformableOptions& options,
                Report& report) {
  const DeformableProblem pyramid = photo_deformable(photo, options.size);
  std::vector<DeformableArrays> arrays = upload(pyramid, 1);
  run_step(step, arrays[0], pyramid.shape);
  const std::vector<half> directions = arrays[0].out.download();
  const Comparison right =
      compare_output(directions, reference_output(pyramid),
                     Tolerance::fp16_mean(max_abs(pyramid.value)), pyramid.shape);
  save_image(options.out, draw_directions(pyramid.photo, options.size, directions));
  report.note(format("%s: %s of %s, %d x %d pixels, seen by 32 oriented filters in 4 levels",
                     options.out.c_str(), step.name.c_str(), file_name(options.image).c_str(),
                     options.size, options.size));
  report.require(right.pass, "on the photo: " + right.describe());
}

}  // namespace lab
