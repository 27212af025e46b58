// The program of chapter 9: flags, photo, steps, tables, picture.
#include <cmath>
#include <optional>
#include <tuple>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/table.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/lab/timing.h"
#include "problem.h"

namespace patch_embedding {
namespace {

using lab::format;
using lab::Progress;
using lab::Report;
using lab::UsageError;

constexpr char kLastStep[] = "one product";

struct Asked {
  lab::Options common;
  std::string step;  // empty: all
  int channels = 192, streams = 4;
  int part_patches = 4, part_channels = 16;  // of the steps that run on a part
  int patch_row = -1, patch_column = -1;     // -1: in the middle
};

// Two numbers with a letter between them, as "4x16".
std::pair<int, int> pair_of(const char* flag, const std::string& text, char between, int least) {
  const size_t at = text.find(between);
  if (at == std::string::npos)
    throw UsageError(
        format("%s '%s': must be two numbers with '%c' between them", flag, text.c_str(), between));
  return {lab::parse_number(flag, text.substr(0, at), least, 1'000'000),
          lab::parse_number(flag, text.substr(at + 1), least, 1'000'000)};
}

Asked asked_of(int argc, char** argv, const char* about) {
  Asked asked;
  lab::Options& options = asked.common;
  options.out = "tokens.png";
  options.batch = 1;
  lab::Flags flags(about,
                   "The steps before the last need a launch or more for each token and channel.\n"
                   "They run on a part of image 0, --part, and what all tokens would take is\n"
                   "worked out from it.");
  flags.number("--batch", options.batch, 1, 4096, "N", "images (1)");
  flags.number("--size", options.size, kSide, 2048, "PIXELS",
               "photo's side, a multiple of 16 (224)");
  flags.number("--channels", asked.channels, 1, 65536, "N",
               "of a token (192; ViT-Small 384, ViT-Base 768)");
  flags.option(
      "--part",
      [&](const std::string& text) {
        std::tie(asked.part_patches, asked.part_channels) = pair_of("--part", text, 'x', 1);
      },
      "PxC", "first patches and first channels that slow steps compute (4x16)");
  flags.number("--streams", asked.streams, 1, 128, "N", "of the step of that name (4)");
  flags.text("--step", asked.step, "NAME", "this step alone (all)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.option(
      "--patch",
      [&](const std::string& text) {
        std::tie(asked.patch_row, asked.patch_column) = pair_of("--patch", text, ',', 0);
      },
      "R,C", "the patch that others are compared with in the picture (the middle)");
  flags.text("--out", options.out, "FILE", "photo, and what is alike in it, .png or .jpg");
  flags.text("--output", options.output, "FILE",
             "safetensors: tokens, F16, of the last step, which computes all");
  flags.run_flags(options, "of the weights (1)");
  flags.parse(argc, argv);
  if (options.size % kSide != 0)
    throw UsageError(format("--size '%d': must be a multiple of 16 pixels", options.size));
  flags.refuse_with_predict(options);
  if (!options.output.empty() && !asked.step.empty() && asked.step != kLastStep)
    throw UsageError("--output needs the step '" + std::string(kLastStep) +
                     "', which alone computes all tokens, not --step '" + asked.step + "'");
  const int columns = options.size / kSide;
  if (asked.patch_row < 0) asked.patch_row = asked.patch_column = columns / 2;
  if (asked.patch_row >= columns || asked.patch_column >= columns)
    throw UsageError(format("--patch '%d,%d': rows and columns go from 0 to %d", asked.patch_row,
                            asked.patch_column, columns - 1));
  if (asked.part_patches > columns * columns || asked.part_channels > asked.channels)
    throw UsageError(format("--part '%dx%d': there are %d patches and %d channels",
                            asked.part_patches, asked.part_channels, columns * columns,
                            asked.channels));
  if (options.image.empty()) options.image = lab::repository_path("data/images/chelsea.png");
  lab::require_files(options);
  return asked;
}

lab::ReportHead head_of(const char* chapter, const Asked& asked, const lab::Device& device,
                        const Problem& problem) {
  const Shape& shape = problem.shape;
  lab::ReportHead head;
  head.chapter = chapter;
  head.options = asked.common;
  head.device = device;
  head.source = problem.source;
  head.shape = format("%s, %d patches of 768 values each", describe(shape).c_str(),
                      shape.patches() * shape.batch);
  head.sizes = {{"batch", shape.batch},
                {"height", shape.height},
                {"width", shape.width},
                {"channels", shape.channels},
                {"part_patches", asked.part_patches},
                {"part_channels", asked.part_channels}};
  return head;
}

lab::Cost cost_of(const Shape& shape, const Part& part) {
  const double values = double(part.images) * part.patches * kPatchValues +
                        double(part.channels) * kPatchValues + double(part.outputs());
  lab::Cost cost{2 * values, 2.0 * double(part.outputs()) * kPatchValues};
  cost.tensor_cores = part.outputs() == whole(shape).outputs();
  return cost;
}

// Predicted on the virtual GPU, measured on a GPU; NaN where neither is known.
double time_of(const lab::Timing& timing, const lab::Device& device) {
  if (!device.is_virtual) return timing.median_us;
  const json::Value counters = json::parse_or_null(timing.counters);
  const json::Value* const us =
      counters.is_object() ? counters.find_path("/predicted/us") : nullptr;
  return us ? us->get<double>() : std::nan("");
}

lab::Timing time_part(const lab::Device& device, const lab::Options& options, const Step& step,
                      HostArrays& arrays, const Shape& shape, const Part& part) {
  const Progress progress(step.name);
  return lab::time_program(device, step.prepare(arrays, shape, part), options.warmup,
                           options.iterations);
}

lab::Comparison compared(const HostArrays& arrays, const Problem& problem, const Part& part) {
  const std::vector<double> expected = expected_tokens(problem, part);
  return lab::compare(part_of(arrays.tokens.data(), problem.shape, part), expected,
                      tolerance_for(expected), dims_of(part));
}

std::string count_text(int64_t count) {
  std::string digits = std::to_string(count);
  for (int at = int(digits.size()) - 3; at > 0; at -= 3) digits.insert(size_t(at), ",");
  return digits;
}

// What a step would take for all tokens.
struct All {
  std::string name;
  Traffic traffic;
  double us;
};

std::string all_tokens_table(const std::vector<All>& lines, const Shape& shape, bool is_virtual) {
  lab::TextTable table({"all tokens", "launches", "waits", "copies\nin", "bytes\nin", "copies\nout",
                        "bytes\nout", "device\nmemory", is_virtual ? "predicted" : "time"});
  for (const All& line : lines)
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

class Program {
 public:
  Program(const char* chapter, const Asked& asked, const lab::Image& photo)
      : asked_(asked), device_(lab::open_device()) {
    lab::complete_for(device_, asked_.common);
    const lab::Options& options = asked_.common;
    Shape shape{options.batch, options.size, options.size, asked.channels};
    part_ = {1, asked.part_patches, asked.part_channels};
    require_shape(shape, part_);
    const double bytes =
        2.0 * double(shape.image_values() + shape.weight_values() + shape.token_values());
    lab::require_memory(device_, bytes, 4 * bytes, "patch embedding of shape " + describe(shape));
    problem_ = photo_problem(photo, options.size, options.batch, asked.channels, options.seed);
    problem_.source =
        lab::file_name(options.image) + ", random filters, seed " + std::to_string(options.seed);
    arrays_.emplace(problem_, part_);
    report_.emplace(head_of(chapter, asked_, device_, problem_));
  }

  void run(const Step& step) {
    const lab::Options& options = asked_.common;
    const Part part = step.whole ? whole(problem_.shape) : part_;
    arrays_->tokens.fill_nan();
    const lab::Timing timing = time_part(device_, options, step, *arrays_, problem_.shape, part);
    report_->add(step.name, timing, cost_of(problem_.shape, part),
                 options.predict ? lab::Comparison::none() : compared(*arrays_, problem_, part));
    All all{step.name, step.traffic(problem_.shape, whole(problem_.shape)),
            time_of(timing, device_)};
    if (!step.whole) {
      Part half = part;
      half.patches /= 2;
      const double less =
          half.patches == 0
              ? 0
              : time_of(time_part(device_, options, step, *arrays_, problem_.shape, half), device_);
      const double us_an_output = (all.us - less) / double(part.outputs() - half.outputs());
      all.us += us_an_output * double(whole(problem_.shape).outputs() - part.outputs());
    }
    const Traffic& t = all.traffic;
    const std::pair<const char*, double> numbers[] = {
        {"launches", double(t.launches)},         {"waits", double(t.waits)},
        {"copies_in", double(t.copies_in)},       {"bytes_in", double(t.bytes_in)},
        {"copies_out", double(t.copies_out)},     {"bytes_out", double(t.bytes_out)},
        {"device_bytes", double(t.device_bytes)}, {"us", all.us}};
    for (const auto& [name, value] : numbers)
      report_->add_number(step.name, std::string("all_tokens_") + name, value);
    report_->add_number(step.name, "all_tokens_share_run",
                        double(part.outputs()) / double(whole(problem_.shape).outputs()));
    all_.push_back(all);
  }

  lab::ExitCode finish(bool last_step_ran) {
    const Shape& shape = problem_.shape;
    if (!asked_.common.predict && !all_.empty() && all_.size() > 1)
      report_->note("Steps before the last computed " + count_text(part_.outputs()) +
                    " outputs: channels 0 to " + std::to_string(part_.channels - 1) +
                    " of patches 0 to " + std::to_string(part_.patches - 1) + ", image 0.");
    report_->note(
        device_.is_virtual
            ? "Times are the host's, from its first call to the last wait: calls, copies over the "
              "link and kernels,\non the clock that VGPU_TIMELINE draws."
            : "Times are the host's, from its first call to the last wait.");
    report_->note(all_tokens_table(all_, shape, device_.is_virtual));
    const std::string& out = asked_.common.out;
    if (last_step_ran && !out.empty()) {
      const int patch = asked_.patch_row * shape.patch_columns() + asked_.patch_column;
      lab::save_image(out, draw_likeness(problem_, arrays_->tokens.data(), patch));
      report_->note(
          format("%s: the photo, and how much each patch's token is like that of patch "
                 "%d,%d (red)",
                 out.c_str(), asked_.patch_row, asked_.patch_column));
    }
    if (last_step_ran && !asked_.common.output.empty())
      lab::write_safetensors(asked_.common.output,
                             {{"tokens",
                               {{shape.batch, shape.rows(), shape.channels},
                                lab::to_float(part_of(arrays_->tokens.data(), shape, whole(shape))),
                                "F16"}}});
    return report_->finish();
  }

 private:
  Asked asked_;
  lab::Device device_;
  Part part_;
  Problem problem_;
  std::optional<HostArrays> arrays_;
  std::optional<Report> report_;
  std::vector<All> all_;
};

}  // namespace

int patch_embedding_main(int argc, char** argv, const char* chapter, const char* about,
                         const std::function<std::vector<Step>(int streams)>& steps_of) {
  return lab::guarded_main(chapter, [&] {
    const Asked asked = asked_of(argc, argv, about);
    const std::vector<Step> steps = steps_of(asked.streams);
    std::string names;
    bool found = asked.step.empty();
    for (const Step& step : steps) {
      names += (names.empty() ? "" : ", ") + step.name;
      found = found || step.name == asked.step;
    }
    if (!found)
      throw UsageError("--step '" + asked.step + "': there is no such step; there are: " + names);
    const lab::Image photo = lab::load_image(asked.common.image);
    Program program(chapter, asked, photo);
    bool last_step_ran = false;
    for (const Step& step : steps) {
      if (!asked.step.empty() && step.name != asked.step) continue;
      program.run(step);
      last_step_ran = step.whole;
    }
    return program.finish(last_step_ran);
  });
}

}  // namespace patch_embedding
