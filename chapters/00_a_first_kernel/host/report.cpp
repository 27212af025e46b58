#include "report.h"

#include <chrono>
#include <cmath>

#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/table.h"
#include "../../../common/lab/tensors.h"

namespace lab {

ReportHead report_head(const char* chapter, const PhotoOptions& options, const Device& device,
                       const PhotoProblem& problem) {
  const PhotoShape& shape = problem.shape;
  return {chapter,
          options,
          device,
          problem.source,
          describe(shape) + "; photo " + human_bytes(3.0 * double(shape.pixels())),
          {{"height", shape.height}, {"width", shape.width}},
          {}};
}

void note_mean(unsigned sum, const PhotoShape& shape, Report& report) {
  const double pixels = double(shape.pixels());
  report.note(format("Mean brightness: %.0f / %.0f = %.1f of 255", double(sum), pixels,
                     double(sum) / pixels));
}

double call_us(const Device& device, const std::function<void()>& call) {
  const auto now_us = [&] {
    if (device.is_virtual) return vgpu::clock_us();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(now).count();
  };
  const vgpu::Predicting predicting(true);
  const double start_us = now_us();
  call();
  return now_us() - start_us;
}

void note_whole_way(double us, double kernel_us, Report& report) {
  if (std::isfinite(us) && std::isfinite(kernel_us))
    report.note("The whole way, photo in and grey out: " + human_time(us) + ", of which " +
                human_time(kernel_us) + " are the kernel's");
}

void write_results(const PhotoOptions& options, const PhotoProblem& problem,
                   const PhotoArrays& arrays, Report& report) {
  if (!options.output.empty()) {
    const std::vector<unsigned char> blurred = arrays.blurred.download();
    const std::vector<float> values(blurred.begin(), blurred.end());
    const PhotoShape& shape = problem.shape;
    write_safetensors(options.output, {{"out", {{shape.height, shape.width}, values, "F32"}}});
  }
  if (!options.draws) return;
  save_image(options.out, draw_steps(problem, arrays.grey.download(), arrays.blurred.download()));
  report.note(format("%s: the photo, grey, blurred", options.out.c_str()));
}

}  // namespace lab
