#include "report.h"

#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/tensors.h"

namespace lab {

ReportHead report_head(const char* chapter, const ConvNormOptions& options, const Device& device,
                       const ConvNormProblem& problem) {
  const ConvNormShape& shape = problem.shape;
  ReportHead head{chapter,
                  options,
                  device,
                  problem.source,
                  describe(shape) + (options.precision == "fp32" ? "" : ", " + options.precision) +
                      (options.half_storage() ? " storage" : ""),
                  {{"batch", shape.batch},
                   {"in_channels", shape.in_channels},
                   {"out_channels", shape.out_channels},
                   {"height", shape.height},
                   {"width", shape.width},
                   {"kernel", shape.kernel},
                   {"stride", shape.stride}},
                  {}};
  if (options.precision != "fp32") head.details = {{"precision", '"' + options.precision + '"'}};
  if (options.half_storage()) head.details.emplace_back("storage", "\"fp16\"");
  if (!options.preset.empty()) head.details.emplace_back("preset", "\"" + options.preset + "\"");
  return head;
}

namespace {

// What counters say of a step's launches: how often its output is stored, and whether anything that
// was stored is read again.
std::string traffic_note(const std::string& name, const std::vector<Timing>& launches,
                         const ConvNormShape& shape, bool half_storage) {
  double all = 0, stored = 0, outputs = 0, read_again = 0;
  const double elements = double(shape.y_elements());
  for (const Timing& launch : launches) {
    const json::Value counters = json::parse_or_null(launch.counters);
    const auto number = [&](const std::string& pointer) {
      const json::Value* const found = counters.find_path(pointer);
      return found ? found->get<double>() : 0.0;
    };
    all += number("/global/store/bytes_asked");
    for (const auto& [array, bytes] :
         {std::pair<std::string, double>("conv", 4), {"y", 4}, {"y16", 2}}) {
      stored += number("/allocations/" + array + "/store/bytes_asked");
      outputs += number("/allocations/" + array + "/store/bytes_asked") / bytes / elements;
      read_again += number("/allocations/" + array + "/load/bytes_asked") / bytes / elements;
    }
  }
  return format("%s: %zu launch%s; output (%s) written %.3f times, read again %.3f times%s",
                name.c_str(), launches.size(), launches.size() == 1 ? "" : "es",
                human_bytes((half_storage ? 2 : 4) * elements).c_str(), outputs, read_again,
                all > stored ? ("; moments " + human_bytes(all - stored)).c_str() : "");
}

}  // namespace

void note_step(const ConvNormOptions& options, const Device& device, const ConvNormStep& step,
               const ConvNormShape& shape, const std::vector<Timing>& launches, Report& report) {
  if (step.plan) report.note(step.name + ": " + step.plan(shape));
  if (device.is_virtual && !options.predict)
    report.note(traffic_note(step.name, launches, shape, step.half_storage()));
}

void note_packing(const ConvNormOptions& options, const Device& device, const ConvNormStep& step,
                  const ConvNormShape& shape, std::vector<ConvNormArrays>& arrays,
                  const Comparison& right, Report& report) {
  const auto pack = [&](int i) { arrays[size_t(i) % arrays.size()].pack(step.in_fp16(), shape); };
  report.add_beside("pack weights",
                    time_stages(device, {pack}, options.warmup, options.iterations)[0], right);
  report.note("pack weights: once for a network, not at each call of " + step.name);
}

void write_results(const ConvNormOptions& options, const ConvNormProblem& problem,
                   const std::string& last_step, const std::vector<float>& y, Report& report) {
  const ConvNormShape& shape = problem.shape;
  if (!options.output.empty())
    write_safetensors(
        options.output,
        {{"out",
          {{shape.batch, shape.out_channels, shape.out_height(), shape.out_width()}, y, "F32"}}});
  if (!options.draws || options.predict) return;
  save_image(options.out, draw_responses(problem.photo, shape, y));
  report.note(format("%s: the photo, and what %s answers for edges in 8 directions",
                     options.out.c_str(), last_step.c_str()));
}

}  // namespace lab
