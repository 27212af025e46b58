#include "report.h"

#include <cmath>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/files.h"

namespace lab {

ReportHead report_head(const char* chapter, const CvtOptions& options, const Device& device,
                       const Operation& operation) {
  return {chapter,          options,
          device,           format("random, seed %llu", (unsigned long long)options.seed),
          operation.shape,  operation.sizes,
          operation.details};
}

Timing time_whole(const CvtOptions& options, const Device& device, const OperationStep& step,
                  int copies) {
  Timing timing = time_step(device, step.run, copies, options.warmup, options.iterations);
  if (!device.is_virtual || !vgpu::can_predict() || vgpu::prediction_refused()) return timing;
  const double last_us = vgpu::counter("/predicted/us"), error = vgpu::counter("/predicted/error");
  const vgpu::Predicting predicting(true);
  step.run(0, nullptr);
  check(cudaDeviceSynchronize());
  const double us = predicting.us();
  if (std::isfinite(us) && us > 1.001 * last_us)
    timing.counters =
        json::Value(
            {{"predicted", {{"us", us}, {"error", error}, {"stalls", json::Value::object()}}}})
            .dump();
  return timing;
}

Comparison compare_step(const CvtOptions& options, const OperationStep& step, Report& report) {
  if (options.predict) return Comparison::none();
  const auto [name, comparison] = step.compare();
  report.require(comparison.pass, step.name + ": " + name + ": " + comparison.describe());
  return comparison;
}

void add_ratios(const std::vector<OperationStep>& steps, Report& report) {
  for (const bool back : {true, false}) {
    const OperationStep *first = nullptr, *last = nullptr;
    for (const OperationStep& step : steps)
      if (step.back == back) first = first ? first : &step, last = &step;
    if (first != last) report.add_ratio(last->name, first->name);
  }
}

}  // namespace lab
