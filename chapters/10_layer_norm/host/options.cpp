// Flags of chapter 10, a user's tensors, and the problem that they name.
#include "options.h"

#include <charconv>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/tensors.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxRows = 10'000'000, kMaxSize = 1024;

double parse_mean(const std::string& text) {
  double mean = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mean);
  if (error != std::errc() || end != text.data() + text.size() || !(std::abs(mean) <= 1e6))
    throw UsageError("--mean '" + text + "': must be a number from -1000000 to 1000000");
  return mean;
}

}  // namespace

LayerNormOptions layer_norm_options(int argc, char** argv, const char* about) {
  LayerNormOptions options;
  options.out = "normalized.png";
  std::string storage = "fp16", variance = "distances";
  Flags flags(about,
              "The problem is a photo's patches (--image, --size, --batch), random (--rows,\n"
              "--columns) or a file (--input).");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N",
               "photos, shifted (GPU: 32, virtual GPU: 1)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 16 (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and its normalized patches, .png or .jpg");
  flags.number("--rows", options.rows, 1, kMaxRows, "N", "random rows in place of the photo");
  flags.number("--columns", options.columns, LayerNormShape::kMinColumns,
               LayerNormShape::kMaxColumns, "N", "of random rows (768)");
  flags.option(
      "--mean", [&](const std::string& text) { options.mean = parse_mean(text); }, "X",
      "added to all of x (0)");
  flags.text("--storage", storage, "NAME", "of all arrays: fp16 or fp32; sums are fp32 (fp16)");
  flags.text("--variance", variance, "NAME",
             "naive: also variance as E[x^2] - E[x]^2, which fails\nwhere the mean is large "
             "(distances)");
  flags.text("--step", options.step, "NAME", "this step alone");
  flags.text("--input", options.input, "FILE",
             "safetensors: x [rows, columns], scale and bias [columns], and\nresidual or dy, as x; "
             "F16 or F32");
  flags.text("--output", options.output, "FILE", "safetensors: out, the last step's y");
  flags.run_flags(options, "of random numbers (1)");
  flags.parse(argc, argv);

  require_one_of("--storage", storage, {"fp16", "fp32"});
  require_one_of("--variance", variance, {"distances", "naive"});
  options.storage = storage == "fp16" ? Storage::kFp16 : Storage::kFp32;
  options.naive = variance == "naive";
  if (flags.given("--input"))
    flags.refuse({"--rows", "--columns", "--batch", "--size", "--image", "--out", "--mean"},
                 "does not go with --input: the file has its own x");
  if (flags.given("--columns") && !flags.given("--rows"))
    throw UsageError("--columns needs --rows: the photo's rows have 768");
  if (flags.given("--rows"))
    flags.refuse({"--batch", "--size", "--image", "--out"}, "does not go with --rows: no photo");
  if (!flags.given("--rows")) options.rows = 0;
  if (options.size % 16 != 0)
    throw UsageError(format("--size '%d': must be a multiple of 16 pixels", options.size));
  flags.refuse_with_predict(options);
  const bool photo = options.rows == 0 && options.input.empty();
  options.draws = photo && !options.predict;
  if (!options.draws) options.out.clear();
  if (photo && options.image.empty()) options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return options;
}

Device open_device(LayerNormOptions& options) {
  const Device device = open_device(static_cast<Options&>(options));
  if (options.batch == 0) options.batch = device.is_virtual ? 1 : 32;
  return device;
}

// ---- The problem --------------------------------------------------------------------------------

namespace {

LayerNormProblem input_layer_norm(const LayerNormOptions& options) {
  const std::string& path = options.input;
  const std::vector<Tensor> tensors =
      read_safetensors(path, {"x", "scale", "bias"}, {"residual", "dy"});
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  const std::vector<int64_t>& size = tensors[0].shape;
  if (size.size() != 2)
    fail("tensor 'x' has shape " + shape_text(size) + ", [rows, columns] is needed");
  if (size[0] < 1 || size[0] > kMaxRows)
    fail(format("tensor 'x' has %lld rows, 1 to %d are needed", (long long)size[0], kMaxRows));
  if (size[1] < LayerNormShape::kMinColumns || size[1] > LayerNormShape::kMaxColumns)
    fail(format("tensor 'x' has %lld columns, 64 to 4096 are needed", (long long)size[1]));
  LayerNormProblem problem;
  problem.shape = {int(size[0]), int(size[1]), 1e-6f};
  problem.storage = options.storage;
  // What is not in the file is random.
  LayerNormProblem others = random_layer_norm(problem.shape, options.storage, options.seed);
  const auto take = [&](size_t i, const char* name, std::vector<double>& values,
                        const std::vector<int64_t>& needed) {
    const Tensor& tensor = tensors[i];
    if (i >= 3 && !is_there(tensor)) return;
    if (tensor.shape != needed)
      fail(std::string("tensor '") + name + "' has shape " + shape_text(tensor.shape) + ", " +
           shape_text(needed) + " is needed");
    values.resize(tensor.values.size());
    for (size_t k = 0; k < values.size(); ++k) {
      values[k] = stored(double(tensor.values[k]), options.storage);
      if (!std::isfinite(values[k]))
        fail(format("tensor '%s': element %zu is %g; finite values are needed%s", name, k,
                    double(tensor.values[k]),
                    options.storage == Storage::kFp16 ? ", fp16 holds up to 65504" : ""));
    }
  };
  problem.residual = std::move(others.residual);
  problem.dy = std::move(others.dy);
  take(0, "x", problem.x, size);
  take(1, "scale", problem.scale, {size[1]});
  take(2, "bias", problem.bias, {size[1]});
  take(3, "residual", problem.residual, size);
  take(4, "dy", problem.dy, size);
  problem.source = file_name(path);
  return problem;
}

// The shape alone, before anything large is made.
LayerNormShape made_shape(const LayerNormOptions& options) {
  if (options.rows > 0) return {options.rows, options.columns, 1e-6f};
  const int grid = options.size / 16;
  return {options.batch * (grid * grid + 1), 768, 1e-6f};
}

}  // namespace

LayerNormProblem layer_norm_problem(const LayerNormOptions& options, const Device& device) {
  const bool from_file = !options.input.empty();
  LayerNormProblem problem;
  if (from_file) problem = input_layer_norm(options);
  const LayerNormShape shape = from_file ? problem.shape : made_shape(options);
  require_shape(shape);
  const double array = double(shape.elements()) * (options.storage == Storage::kFp16 ? 2 : 4);
  require_memory(device, 6.5 * array * rotation_copies(device, 2 * array),
                 10 * 8.0 * double(shape.elements()), "layer norm of shape " + describe(shape));
  if (from_file) return problem;
  const Progress progress("making the problem");
  if (options.rows > 0)
    return random_layer_norm(shape, options.storage, options.seed, options.mean);
  return photo_layer_norm(load_image(options.image), options.size, options.batch, options.storage,
                          options.seed, options.mean);
}

}  // namespace lab
