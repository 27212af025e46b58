#include "report.h"

#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/lab/timing.h"

namespace lab {

ReportHead report_head(const char* chapter, const MlpOptions& options, const Device& device,
                       const MlpProblem& problem) {
  const MlpSizes& s = problem.sizes;
  ReportHead head{
      chapter,
      options,
      device,
      problem.source,
      describe(s) + (options.storage() == Storage::kFp32 ? ", fp32 in tf32" : ""),
      {{"batch", s.batch}, {"rows", s.rows()}, {"width", s.width}, {"hidden", s.hidden}},
      {}};
  if (options.storage() == Storage::kFp32) head.details = {{"storage", "\"fp32\""}};
  if (!options.preset.empty()) head.details.emplace_back("preset", "\"" + options.preset + "\"");
  return head;
}

void note_rate(const Device& device, const MlpStep& step, const MlpSizes& sizes,
               const std::vector<Timing>& launches, const Timing& whole, Report& report) {
  double us = device.is_virtual ? 0 : whole.median_us;
  for (const Timing& launch : launches)
    if (device.is_virtual) us += microseconds(device, launch);
  if (us > 0)
    report.note(format("%s: %.3g TFLOP/s%s", step.name.c_str(),
                       mlp_cost(sizes, step.storage).flops / us / 1e6,
                       device.is_virtual ? " as predicted" : ""));
}

void write_results(const MlpOptions& options, const MlpProblem& problem, const MlpOnDevice& arrays,
                   const std::string& last_step, Report& report) {
  const MlpSizes& s = problem.sizes;
  const char* const type = options.storage() == Storage::kFp16 ? "F16" : "F32";
  if (!options.output.empty())
    write_safetensors(options.output, {{"out", {{s.batch, s.tokens, s.width}, arrays.y(), type}}});
  if (!options.draws || options.predict) return;
  save_image(options.out, draw_hidden(problem.photo, s, arrays.hidden()));
  report.note(format("%s: the photo, and what eight hidden units of %s answer to its patches",
                     options.out.c_str(), last_step.c_str()));
}

}  // namespace lab
