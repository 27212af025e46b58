// What a run reports beside its steps' times: the comparison, and what all tokens would take.
#include "report.h"

#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/table.h"
#include "../../../common/lab/tensors.h"

namespace patch_embedding {

using lab::format;

lab::ReportHead report_head(const char* chapter, const PatchOptions& options,
                            const lab::Device& device, const Problem& problem) {
  const Shape& shape = problem.shape;
  lab::ReportHead head;
  head.chapter = chapter;
  head.options = options;
  head.device = device;
  head.source = problem.source;
  head.shape = format("%s, %d patches of 768 values each", describe(shape).c_str(),
                      shape.patches() * shape.batch);
  head.sizes = {{"batch", shape.batch},
                {"height", shape.height},
                {"width", shape.width},
                {"channels", shape.channels},
                {"part_patches", options.part_patches},
                {"part_channels", options.part_channels}};
  return head;
}

lab::Cost tokens_cost(const Shape& shape, const Part& part) {
  const double values = double(part.images) * part.patches * kPatchValues +
                        double(part.channels) * kPatchValues + double(part.outputs());
  lab::Cost cost{2 * values, 2.0 * double(part.outputs()) * kPatchValues};
  cost.tensor_cores = part.outputs() == whole(shape).outputs();
  return cost;
}

lab::Comparison compare_tokens(const HostArrays& arrays, const Problem& problem, const Part& part) {
  const std::vector<double> expected = expected_tokens(problem, part);
  return lab::compare(tokens_in_part(arrays.tokens.data(), problem.shape, part), expected,
                      tokens_tolerance(expected), part_dims(part));
}

namespace {

std::string count_text(int64_t count) {
  std::string digits = std::to_string(count);
  for (int at = int(digits.size()) - 3; at > 0; at -= 3) digits.insert(size_t(at), ",");
  return digits;
}

std::string all_tokens_table(const std::vector<AllTokens>& lines, const Shape& shape,
                             bool is_virtual) {
  lab::TextTable table({"all tokens", "launches", "waits", "copies\nin", "bytes\nin", "copies\nout",
                        "bytes\nout", "device\nmemory", is_virtual ? "predicted" : "time"});
  for (const AllTokens& line : lines)
    table.add({line.name, count_text(line.traffic.launches), count_text(line.traffic.waits),
               count_text(line.traffic.copies_in), lab::human_bytes(double(line.traffic.bytes_in)),
               count_text(line.traffic.copies_out),
               lab::human_bytes(double(line.traffic.bytes_out)),
               lab::human_bytes(double(line.traffic.device_bytes)), lab::human_time(line.us)});
  return format(
             "What all %s outputs take with each step: counts by formula; times of steps that ran\n"
             "on a part, extended in a straight line from that part and half of it\n\n",
             count_text(whole(shape).outputs()).c_str()) +
         table.text();
}

}  // namespace

void add_all_tokens(const AllTokens& all, double share_run, lab::Report& report) {
  const Traffic& t = all.traffic;
  const std::pair<const char*, double> numbers[] = {{"launches", double(t.launches)},
                                                    {"waits", double(t.waits)},
                                                    {"copies_in", double(t.copies_in)},
                                                    {"bytes_in", double(t.bytes_in)},
                                                    {"copies_out", double(t.copies_out)},
                                                    {"bytes_out", double(t.bytes_out)},
                                                    {"device_bytes", double(t.device_bytes)},
                                                    {"us", all.us},
                                                    {"share_run", share_run}};
  for (const auto& [name, value] : numbers)
    report.add_number(all.name, std::string("all_tokens_") + name, value);
}

void note_all_tokens(const std::vector<AllTokens>& lines, const PatchOptions& options,
                     const Shape& shape, bool is_virtual, lab::Report& report) {
  const Part part = options.part();
  if (!options.predict && lines.size() > 1)
    report.note("Steps before the last computed " + count_text(part.outputs()) +
                " outputs: channels 0 to " + std::to_string(part.channels - 1) +
                " of patches 0 to " + std::to_string(part.patches - 1) + ", image 0.");
  report.note(
      is_virtual
          ? "Times are the host's, from its first call to the last wait: calls, copies over the "
            "link and kernels,\non the clock that VGPU_TIMELINE draws."
          : "Times are the host's, from its first call to the last wait.");
  report.note(all_tokens_table(lines, shape, is_virtual));
}

void write_results(const PatchOptions& options, const Problem& problem, const HostArrays& arrays,
                   lab::Report& report) {
  const Shape& shape = problem.shape;
  const half* const tokens = arrays.tokens.data();
  if (!options.out.empty()) {
    const int patch = options.patch_row * shape.patch_columns() + options.patch_column;
    lab::save_image(options.out, draw_likeness(problem, tokens, patch));
    report.note(
        format("%s: the photo, and how much each patch's token is like that of patch "
               "%d,%d (red)",
               options.out.c_str(), options.patch_row, options.patch_column));
  }
  if (!options.output.empty())
    lab::write_safetensors(options.output,
                           {{"tokens",
                             {{shape.batch, shape.rows(), shape.channels},
                              lab::to_float(tokens_in_part(tokens, shape, whole(shape))),
                              "F16"}}});
}

}  // namespace patch_embedding
