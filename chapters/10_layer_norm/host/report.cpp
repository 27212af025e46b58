#include "report.h"

#include <cmath>
#include <cstring>

#include "../../../common/lab/files.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/lab/timing.h"

namespace lab {

ReportHead report_head(const char* chapter, const LayerNormOptions& options, const Device& device,
                       const LayerNormProblem& problem) {
  const LayerNormShape& shape = problem.shape;
  const bool fp16 = problem.storage == Storage::kFp16;
  const std::string storage = fp16 ? "fp16" : "fp32";
  return {chapter,
          options,
          device,
          problem.source,
          describe(shape) + ", " + storage + "; x " +
              human_bytes(double(shape.elements()) * (fp16 ? 2 : 4)),
          {{"rows", shape.rows}, {"columns", shape.columns}},
          {{"storage", "\"" + storage + "\""}}};
}

void note_beside(const Device& device, const std::string& several,
                 const std::vector<Timing>& launches, const std::string& one, const Timing& launch,
                 Report& report) {
  double sum = 0;
  for (const Timing& part : launches) sum += microseconds(device, part);
  const double us = microseconds(device, launch);
  if (std::isfinite(sum / us))
    report.note(format("%s: %.3g us; %s: %.3g us, %.3gx as fast", several.c_str(), sum, one.c_str(),
                       us, sum / us));
}

int count_changed(const std::vector<float>& before, const std::vector<float>& now) {
  int changed = 0;
  for (size_t i = 0; i < now.size(); ++i)
    changed += std::memcmp(&before[i], &now[i], sizeof(float)) != 0;
  return changed;
}

void write_results(const LayerNormOptions& options, const LayerNormProblem& problem,
                   const std::vector<float>& y, Report& report) {
  const char* const type = problem.storage == Storage::kFp16 ? "F16" : "F32";
  if (!options.output.empty() && !options.predict)
    write_safetensors(options.output,
                      {{"out", {{problem.shape.rows, problem.shape.columns}, y, type}}});
  if (!options.draws) return;
  save_image(options.out, draw_normalized(problem, y));
  report.note(
      format("%s: the photo, and its patches normalized, each by itself", options.out.c_str()));
}

}  // namespace lab
