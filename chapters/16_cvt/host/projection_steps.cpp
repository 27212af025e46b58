// The convolutional projection on the device: its steps, and what they leave.
#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/tensors.h"
#include "options.h"
#include "projection_arrays.h"

namespace lab {
namespace {

cvt::ProjectionShape shape_of(const CvtOptions& options) {
  const std::string& preset = options.preset;
  cvt::ProjectionShape shape = preset == "small"     ? cvt::ProjectionShape{2, 14, 14, 64, 0}
                               : preset == "cvt13-1" ? cvt::ProjectionShape{32, 56, 56, 64, 0}
                               : preset == "cvt13-2" ? cvt::ProjectionShape{32, 28, 28, 192, 0}
                                                     : cvt::ProjectionShape{32, 14, 14, 384, 1};
  if (options.batch > 0) shape.batch = options.batch;
  if (options.height > 0) shape.height = options.height;
  if (options.width > 0) shape.width = options.width;
  if (options.channels > 0) shape.channels = options.channels;
  if (options.class_tokens >= 0) shape.class_tokens = options.class_tokens;
  const double most = double(shape.batch) * shape.queries() * shape.channels;
  if (most >= double(1 << 30) * 2)
    throw UsageError(
        format("--batch %d, --height %d, --width %d and --channels %d: must be fewer "
               "than 2^31 numbers together",
               shape.batch, shape.height, shape.width, shape.channels));
  if (shape.batch * shape.out_height() * shape.out_width() < 2)
    throw UsageError(
        "one map of at most 2 x 2 pixels: BatchNorm's running variance needs at least 2 "
        "positions of k and v");
  return shape;
}

// Steps on the arrays of one problem, in as many copies as rotation needs.
template <class T>
class ProjectionOperation : public Operation {
 public:
  ProjectionOperation(const CvtOptions& options, const Device& device, ProjectionProblem&& problem)
      : problem_(std::move(problem)) {
    const cvt::ProjectionShape& s = problem_.shape;
    shape = format("[batch %d, height %d, width %d, channels %d], %d class tokens, %s", s.batch,
                   s.height, s.width, s.channels, s.class_tokens, options.dtype.c_str());
    sizes = {{"batch", s.batch},
             {"height", s.height},
             {"width", s.width},
             {"channels", s.channels},
             {"class_tokens", s.class_tokens}};
    details = {{"dtype", "\"" + options.dtype + "\""}, {"component", "\"projection\""}};
    const double bytes = backward_bytes(s, problem_.storage);
    copies = rotation_copies(device, bytes);
    require_memory(device, 2 * bytes * copies, 8 * bytes, "a convolutional projection");
    for (int i = 0; i < copies; ++i) arrays_.emplace_back(problem_);
    add_steps(conv_projection::forward_steps<T>(), false, forward_cost(s, problem_.storage));
    add_steps(conv_projection::backward_steps<T>(), true, backward_cost(s, problem_.storage));
  }

  void compute_reference() override {
    of_stored_ = expected_projection(problem_, {.maps = true, .gradients = true});
    expected_ = expected_projection(problem_);
  }

  void clear(const OperationStep& step) override {
    if (step.back) return arrays_[0].clear_gradients();
    arrays_[0].clear_maps();
    for (ProjectionArrays<T>& arrays : arrays_) arrays.reset_running(problem_);
  }

  void write_output(const std::string& path) const override {
    const ProjectionResults results = arrays_[0].download();
    const cvt::ProjectionShape& s = problem_.shape;
    const std::string type = std::is_same_v<T, half> ? "F16" : "F32";
    std::vector<NamedTensor> tensors;
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape,
                         const std::vector<double>& values, const std::string& stored) {
      tensors.push_back({name, {shape, {values.begin(), values.end()}, stored}});
    };
    for (int i = 0; i < 3; ++i)
      add(std::string(1, "qkv"[i]), {s.batch, i == 0 ? s.queries() : s.keys(), s.channels},
          results.maps[i], type);
    add("dx", {s.batch, s.queries(), s.channels}, results.dx, type);
    for (int i = 0; i < 3; ++i)
      add(
          std::string("dw_") + "qkv" [i], { s.channels, 3, 3 }, results.dw[i], "F32");
    write_safetensors(path, tensors);
  }

 private:
  // Each of conv_projection's steps, whose arguments are pointers of one copy.
  template <class Step>
  void add_steps(const std::vector<Step>& chapter_steps, bool back, const Cost& cost) {
    const cvt::ProjectionShape& s = problem_.shape;
    const auto arguments = [this](const Step&, int i) {
      ProjectionArrays<T>& arrays = arrays_[size_t(i % copies)];
      if constexpr (std::is_same_v<Step,
                                   conv_projection::Step<conv_projection::ForwardArguments<T>>>)
        return arrays.forward();
      else
        return arrays.backward();
    };
    for (const Step& step : chapter_steps) {
      OperationStep& added = steps.emplace_back();
      added.name = step.name, added.back = back, added.cost = cost;
      added.run = [&step, &s, arguments](int i, cudaStream_t stream) {
        step.run(arguments(step, i), s, stream);
      };
      const bool naive = &step == &chapter_steps.front();
      added.compare = [this, naive, back] {
        const ExpectedProjection& expected = naive ? *of_stored_ : *expected_;
        const ProjectionResults got = arrays_[0].download();
        return back ? compare_backward(got, expected, problem_.shape)
                    : compare_forward(got, expected, problem_.shape);
      };
      added.launches = [this, &step, &s, arguments] { return launches_of(step, s, arguments); };
    }
  }

  template <class Step, class ArgumentsOf>
  std::vector<OperationLaunch> launches_of(const Step& step, const cvt::ProjectionShape& s,
                                           const ArgumentsOf& arguments) {
    const auto scratch = std::make_shared<DeviceArray<char>>(step.scratch_bytes(s), "scratch");
    std::vector<std::vector<conv_projection::Launch>> of_copies;
    for (int i = 0; i < copies; ++i)
      of_copies.push_back(step.launches(arguments(step, i), scratch->data(), s));
    std::vector<OperationLaunch> launches;
    for (size_t l = 0; l < of_copies[0].size(); ++l) {
      std::vector<conv_projection::Launch> alike;
      for (const auto& of_copy : of_copies) alike.push_back(of_copy[l]);
      const conv_projection::Launch& first = alike[0];
      launches.push_back({first.name,
                          [alike, scratch](int i, cudaStream_t stream) {
                            alike[size_t(i) % alike.size()].run(stream);
                          },
                          {first.bytes, first.flops}});
    }
    return launches;
  }

  ProjectionProblem problem_;
  std::vector<ProjectionArrays<T>> arrays_;
  std::optional<ExpectedProjection> expected_, of_stored_;
};

}  // namespace

std::unique_ptr<Operation> projection_operation(CvtOptions& options, const Device& device) {
  const cvt::ProjectionShape shape = shape_of(options);
  options.batch = shape.batch;
  const Storage storage = options.dtype == "fp16" ? Storage::kFp16 : Storage::kFp32;
  // (Memory of the host: doubles of all arrays, and what the reference makes of them.)
  require_memory(device, 0, 40 * backward_bytes(shape, Storage::kFp16) / 14,
                 "the problem of a convolutional projection");
  ProjectionProblem problem = [&] {
    const Progress progress("making the problem");
    return random_projection(shape, storage, options.seed);
  }();
  if (storage == Storage::kFp16)
    return std::make_unique<ProjectionOperation<half>>(options, device, std::move(problem));
  return std::make_unique<ProjectionOperation<float>>(options, device, std::move(problem));
}

}  // namespace lab
