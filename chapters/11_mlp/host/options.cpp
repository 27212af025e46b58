// Flags of chapter 11, a user's tensors, and the problem that they name.
#include "options.h"

#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/steps.h"
#include "../../../common/lab/tensors.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxTokens = 1 << 20, kMaxWidth = 1 << 16, kMaxSize = 1024;
constexpr const char* kNames[] = {"x", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};

}  // namespace

MlpOptions mlp_options(int argc, char** argv, const char* about) {
  MlpOptions options;
  options.batch = 1;
  options.out = "hidden.png";
  int tokens = 0, width = 0, hidden = 0;
  Flags flags(about,
              "The problem is a photo's patches as tokens of 768 values (--image, --size), random\n"
              "tensors as soon as --preset or a flag of a size is given, or a file (--input).");
  flags.text("--preset", options.preset, "NAME",
             "tokens x width to hidden: tiny (197x192 to 768),\nbase (197x768 to 3072), ffn512 "
             "(8x1024x512 to 2048),\nffn768 (4x2048x768 to 3072), ffn1024 (2x4096x1024 to 4096)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images (1, or the preset's)");
  flags.number("--tokens", tokens, 1, kMaxTokens, "N", "of an image (197)");
  flags.number("--width", width, 1, kMaxWidth, "N", "values of a token (768)");
  flags.number("--hidden", hidden, 1, kMaxWidth, "N", "hidden units (4 times the width)");
  flags.text("--step", options.step, "NAME", "this step alone");
  flags.text("--storage", options.storage_name, "NAME",
             "fp16 or fp32 (fp16): of all arrays; fp32 is multiplied in\ntf32, by the steps that "
             "can");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS", "photo's side (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and hidden units' answers, .png or .jpg");
  flags.text("--input", options.input, "FILE",
             "safetensors: x [tokens, width] or [N, tokens, width],\nfc1.weight, fc1.bias, "
             "fc2.weight, fc2.bias; F16 or F32");
  flags.text("--output", options.output, "FILE", "safetensors: out, as --storage says");
  flags.run_flags(options, "of random tensors and weights (1)");
  flags.parse(argc, argv);

  require_one_of("--storage", options.storage_name, {"fp16", "fp32"});
  flags.refuse_with_predict(options);
  const bool random = !options.preset.empty() || tokens || width || hidden;
  const bool photo = flags.given("--image") || flags.given("--size") || flags.given("--out");
  if (flags.given("--input")) {
    flags.refuse({"--preset", "--batch", "--tokens", "--width", "--hidden", "--seed"},
                 "does not go with --input: the file has its own sizes");
    flags.refuse({"--image", "--size", "--out"},
                 "belongs to a photo, --input is one's own tensors");
  } else if (random && photo) {
    flags.refuse({"--image", "--size", "--out"},
                 "belongs to a photo, sizes to random tensors: choose one");
  }
  options.draws = options.input.empty() && !random;
  if (!options.draws) options.out.clear();
  if (options.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  MlpSizes& sizes = options.sizes;
  sizes = preset_mlp(options.preset.empty() ? "base" : options.preset);
  if (flags.given("--batch")) sizes.batch = options.batch;
  if (tokens) sizes.tokens = tokens;
  if (width) sizes.width = width, sizes.hidden = 4 * width;
  if (hidden) sizes.hidden = hidden;
  options.batch = sizes.batch;
  require_files(options);
  return options;
}

// ---- The problem --------------------------------------------------------------------------------

namespace {

// Throws UsageError naming file, tensor and what is needed.
MlpProblem input_mlp(const std::string& path) {
  std::vector<Tensor> tensors =
      read_safetensors(path, std::vector<std::string>(std::begin(kNames), std::end(kNames)));
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  const std::vector<int64_t>&x = tensors[0].shape, &w1 = tensors[1].shape;
  if (x.size() != 2 && x.size() != 3)
    fail("tensor 'x' has shape " + shape_text(x) +
         ", [tokens, width] or [batch, tokens, width] is "
         "needed");
  for (const Tensor& tensor : tensors)
    for (const int64_t size : tensor.shape)
      if (size < 1 || size > INT32_MAX)
        fail("a dimension of " + shape_text(tensor.shape) + " is out of range");
  const int64_t width = x.back(), hidden = w1.empty() ? 0 : w1[0];
  const std::vector<int64_t> needed[] = {x, {hidden, width}, {hidden}, {width, hidden}, {width}};
  MlpProblem p;
  std::vector<float>* const into[] = {&p.x, &p.w1, &p.b1, &p.w2, &p.b2};
  for (int t = 0; t < 5; ++t) {
    if (tensors[t].shape != needed[t])
      fail(std::string("tensor '") + kNames[t] + "' has shape " + shape_text(tensors[t].shape) +
           ", " + shape_text(needed[t]) + " is needed to go with the others");
    for (size_t i = 0; i < tensors[t].values.size(); ++i)
      if (!std::isfinite(tensors[t].values[i]))
        fail(format("tensor '%s': element %zu is %g, a finite number is needed", kNames[t], i,
                    double(tensors[t].values[i])));
    *into[t] = std::move(tensors[t].values);
  }
  const bool batched = x.size() == 3;
  p.sizes = {batched ? int(x[0]) : 1, int(x[x.size() - 2]), int(width), int(hidden)};
  p.source = file_name(path);
  return p;
}

}  // namespace

MlpProblem mlp_input(const MlpOptions& options) {
  MlpProblem problem;
  if (!options.input.empty()) {
    problem = input_mlp(options.input);
  } else if (options.draws) {
    problem = photo_mlp(load_image(options.image), options.size, options.batch, options.seed);
    problem.source = format("%s, %d x %d pixels, patches of 16 x 16; random weights, seed %llu",
                            file_name(options.image).c_str(), options.size, options.size,
                            static_cast<unsigned long long>(options.seed));
  } else {
    problem.sizes = options.sizes;
  }
  const MlpSizes& s = problem.sizes;
  if (int64_t(s.batch) * s.tokens > INT32_MAX)
    throw UsageError(describe(s) + ": batch x tokens must be fewer than 2^31");
  require_shape(s.first());
  require_shape(s.second());
  return problem;
}

MlpProblem mlp_problem(const MlpOptions& options, MlpProblem input) {
  if (input.x.empty()) input = random_mlp(input.sizes, options.seed);
  return options.storage() == Storage::kFp16 ? rounded_to_fp16(std::move(input)) : input;
}

int copies_in_memory(const Device& device, const MlpSizes& s, Storage storage) {
  const double elements = 2.0 * s.rows() * s.width + 1.0 * s.rows() * s.hidden +
                          2.0 * s.width * s.hidden + s.width + s.hidden;
  const double bytes = elements * (storage == Storage::kFp16 ? 2 : 4);
  const int copies = rotation_copies(device, bytes);
  require_memory(device, bytes * copies, 12 * elements, "MLP of " + describe(s));
  return copies;
}

// ---- Steps --------------------------------------------------------------------------------------

std::vector<MlpStep> chosen_steps(const MlpOptions& options, std::vector<MlpStep> steps) {
  std::erase_if(steps, [&](const MlpStep& step) { return step.storage != options.storage(); });
  return chosen_steps(options.step, steps, ", with --storage " + options.storage_name);
}

void require_runnable(const MlpOptions& options, const std::vector<MlpStep>& steps) {
  for (const MlpStep& step : steps)
    if (const std::string why = step.lacking ? step.lacking() : ""; !why.empty())
      throw LackError("--storage " + options.storage_name + ": " + why);
}

}  // namespace lab
