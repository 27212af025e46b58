#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/machine.h"
#include "../../../common/lab/table.h"

namespace lab {

LayerTime time_layer(const Device& device, const StyleOptions& options, double known_us,
                     const std::function<void()>& launch) {
  const bool known = std::isfinite(known_us);
  LayerTime time{{}, known_us};
  if (known && options.predict) return time;
  const vgpu::Predicting predicting(device.is_virtual && !known);
  time.timing = time_stages(device, {[&](int) { launch(); }}, options.warmup, options.iterations,
                            /*predicted=*/false)[0];
  if (!known) time.predicted_us = predicting.us() / (options.warmup + options.iterations);
  return time;
}

std::string stage_text(const StyleStage& stage) {
  const ConvNormShape& s = stage.shape;
  std::string text = stage.residual ? "2 x " : "";
  text += format("%d to %d, %dx%d", s.in_channels, s.out_channels, s.height, s.width);
  if (s.out_height() != s.height || s.out_width() != s.width)
    text += format(" to %dx%d", s.out_height(), s.out_width());
  return text + format(", %dx%d", s.kernel, s.kernel) + (s.stride == 2 ? ", stride 2" : "") +
         (s.upsample == 2 ? ", transposed" : "");
}

// ---- The table ----------------------------------------------------------------------------------

StyleReport::StyleReport(const char* chapter, const StyleOptions& options, const Device& device,
                         const std::string& step, const Image& photo,
                         const std::vector<StyleStage>& stages)
    : chapter_(chapter),
      options_(options),
      device_(device),
      step_(step),
      last_(stages.back().shape) {
  double flops = 0;
  for (const StyleStage& stage : stages) flops += flops_of(stage.shape) * (stage.residual ? 2 : 1);
  const std::string style = options.network.empty()
                                ? "under random weights"
                                : "in the style of " + file_name(options.network);
  std::printf("device   %s%s\nproblem  %s %s, %d x %d pixels, %.1f GFLOP\n\n", device.name.c_str(),
              device.is_virtual ? " (virtual GPU)" : "", file_name(options.image).c_str(),
              style.c_str(), photo.width, photo.height, flops / 1e9);
  print_head();
}

double StyleReport::predicted_us(const std::string& shape) const {
  const auto alike = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.shape == shape && std::isfinite(line.time.predicted_us);
  });
  return alike == lines_.end() ? std::nan("") : alike->time.predicted_us;
}

// The virtual GPU has no time of its own but a predicted one: the host's is shown with --profile
// alone, as the last thing.
void StyleReport::print_head() const {
  const char* const median = device_.is_virtual ? "   predicted" : "   median";
  if (options_.predict) {
    std::printf("%-8s %-45s %-12s%s\n", "layer", "channels, height x width, kernel", "path",
                median);
    return;
  }
  const bool host = device_.is_virtual && options_.profile;
  std::printf("%-8s %-45s %-12s%*s %7s %7s%s\n", "", "", "", int(std::strlen(median)), "", "max",
              "rel.", host ? "             host" : "");
  std::printf("%-8s %-45s %-12s%s %7s %7s  result%s\n", "layer", "channels, height x width, kernel",
              "path", median, "error", "error", host ? "     time" : "");
}

void StyleReport::begin(const std::string& name, const std::string& shape) {
  lines_.push_back({name, shape, "", {}, {}});
  std::printf("%-8s %-45s ", name.c_str(), shape.c_str());
  std::fflush(stdout);
}

void StyleReport::end(const std::string& path, const LayerTime& time,
                      std::vector<Comparison> comparisons) {
  Line& line = lines_.back();
  line.path = path;
  line.time = time;
  line.comparisons = std::move(comparisons);
  print_rest(line);
}

void StyleReport::print_rest(const Line& line) const {
  std::printf("%-12s", line.path.c_str());
  const double predicted_us = line.time.predicted_us;
  const std::string us = human_time(line.time.timing.median_us),
                    predicted = std::isnan(predicted_us) ? "-" : human_time(predicted_us);
  if (device_.is_virtual)
    std::printf(" %11s", predicted.c_str());
  else
    std::printf(" %8s", us.c_str());
  if (!options_.predict) {
    double max_error = 0, relative_l2 = 0;
    for (const Comparison& c : line.comparisons) {
      max_error = std::max(max_error, c.max_abs_error);
      relative_l2 = std::max(relative_l2, c.relative_l2);
    }
    std::printf(" %7.1e %7.1e  %s", max_error, relative_l2, line.pass() ? "PASS" : "FAIL");
    if (device_.is_virtual && options_.profile) std::printf("   %8s", us.c_str());
  }
  std::puts("");
  std::fflush(stdout);
}

bool StyleReport::Line::pass() const {
  return std::all_of(comparisons.begin(), comparisons.end(),
                     [](const Comparison& c) { return c.pass; });
}

// ---- At the end ---------------------------------------------------------------------------------

// Times of all layers together.
void StyleReport::print_sums() const {
  double us = 0, predicted = 0;
  for (const Line& line : lines_)
    us += line.time.timing.median_us, predicted += line.time.predicted_us;
  if (!device_.is_virtual) {
    std::printf("\nAll layers: %s, the sum of their medians\n", human_time(us).c_str());
    return;
  }
  const double error = vgpu::counter("/predicted/error");
  if (std::isfinite(predicted))
    std::printf("\nAll layers, predicted: %s +-%.0f%%, the sum of their launches\n",
                human_time(predicted).c_str(), 100 * error);
  else
    std::printf("\nAll layers, predicted: no sum, since not every layer has a time: %s\n",
                vgpu::prediction_refused() ? "switched off (VGPU_TIME=0)"
                : vgpu::can_predict()      ? "VGPU_TIME=1 says why"
                                           : "this virtual GPU does not predict times");
  if (options_.profile)
    std::printf(
        "All layers: %s of host time, which the virtual GPU took on this machine's CPU: no "
        "GPU's time\n",
        human_time(us).c_str());
}

void StyleReport::write_json(const Image& picture, bool pass) const {
  if (options_.json.empty()) return;
  json::Value result;
  result["chapter"] = chapter_;
  result["style"] = options_.network.empty() ? "random weights" : file_name(options_.network);
  result["image"] = file_name(options_.image);
  result["height"] = picture.height;
  result["width"] = picture.width;
  result["problem"] = {{"height", picture.height}, {"width", picture.width}, {"step", step_}};
  result["device"] = device_json(device_);
  result["nvcc"] = nvcc_version();
  result["warmup"] = options_.warmup;
  result["iterations"] = options_.iterations;
  for (const Line& line : lines_) {
    const Timing& timing = line.time.timing;
    json::Value entry = {{"name", line.name},
                         {"shape", line.shape},
                         {"path", line.path},
                         {"clock", timing.host_time ? "wall time on the host" : "CUDA events"},
                         {"median_us", timing.median_us},
                         {"min_us", timing.min_us},
                         {"predicted_us", line.time.predicted_us}};  // NaN: null
    for (const Comparison& c : line.comparisons)
      entry["comparisons"].push_back({{"compared_elements", c.count},
                                      {"wrong_elements", c.bad},
                                      {"max_abs_error", c.max_abs_error},
                                      {"relative_l2", c.relative_l2}});
    entry["pass"] = options_.predict ? json::Value() : json::Value(line.pass());
    result["layers"].push_back(entry);
  }
  result["findings"] = vgpu::findings();
  result["pass"] = options_.predict ? json::Value() : json::Value(pass);
  write_file(options_.json, result.dump(2) + "\n");
}

ExitCode StyleReport::finish(const Image& picture) const {
  const bool pass =
      std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.pass(); });
  print_sums();
  if (options_.predict) {
    std::puts(
        "Only the blocks that predicted times need were executed: there is no picture, and nothing "
        "was compared.");
    write_json(picture, pass);
    return kCorrect;
  }
  std::puts(
      "max error: the largest error of one element of the layer's output\n"
      "rel. error: the errors of all elements (their norm), divided by the reference's norm");
  if (last_.out_height() != picture.height || last_.out_width() != picture.width)
    std::printf(
        "The network makes %d x %d pixels of it, multiples of 4; what is too much is cut "
        "off above\nand on the left, where padding had moved the picture from.\n",
        last_.out_width(), last_.out_height());
  for (const Line& line : lines_)
    for (const Comparison& c : line.comparisons)
      if (!c.pass) std::printf("%s: %s\n", line.name.c_str(), c.describe().c_str());
  save_image(options_.out, picture);
  std::printf("%s: %d x %d pixels\n", options_.out.c_str(), picture.width, picture.height);
  write_json(picture, pass);
  if (!pass) return kWrong;
  if (vgpu::findings() > 0) {
    std::printf("%d findings of the virtual GPU's checks\n", vgpu::findings());
    return kFindings;
  }
  return kCorrect;
}

}  // namespace lab
