// Flags of chapter 15, and the problem that they name.
#include "options.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/progress.h"

namespace lab {
namespace {

constexpr int kMaxTokens = 65536, kMaxBatch = 65536, kMaxHeads = 4096, kMaxSize = 1024;

}  // namespace

int parse_patch(const std::string& patch, int grid) {
  const size_t comma = patch.find(',');
  if (comma == std::string::npos) throw UsageError("--patch '" + patch + "': must be ROW,COLUMN");
  const int row = parse_number("--patch row", patch.substr(0, comma), 0, grid - 1);
  const int column = parse_number("--patch column", patch.substr(comma + 1), 0, grid - 1);
  return 1 + row * grid + column;
}

GradientOptions gradient_options(int argc, char** argv, const char* about) {
  GradientOptions options;
  options.out = "gradients.png";
  Flags flags(about,
              "The problem is a photo (--image, --size) whose attention shall give back its own\n"
              "tokens, or random tensors as soon as --heads, --tokens or --head-dim is given.");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images (GPU: 32, virtual GPU: 1)");
  flags.number("--heads", options.heads, 1, kMaxHeads, "N", "heads of random tensors (12)");
  flags.number("--tokens", options.tokens, 1, kMaxTokens, "N", "tokens of random tensors (197)");
  flags.option(
      "--head-dim",
      [&](const std::string& text) {
        if (text != "32" && text != "64" && text != "128")
          throw UsageError("--head-dim '" + text + "': must be 32, 64 or 128");
        options.head_dim = std::stoi(text);
      },
      "N", "values of a head of random tensors: 32, 64 or 128 (64)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 16 (224, that is 197 tokens)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--patch", options.patch, "ROW,COLUMN", "whose gradient is drawn (the middle)");
  flags.text("--out", options.out, "FILE", "picture, .png or .jpg (gradients.png)");
  flags.text("--output", options.output, "FILE",
             "safetensors: out, the last step's dQ, dK and dV, F16");
  flags.text("--step", options.step, "NAME", "this step alone");
  flags.run_flags(options, "of random tensors, and of the shifts of a batch's photos (1)");
  flags.parse(argc, argv);

  options.random = flags.given("--heads") || flags.given("--tokens") || flags.given("--head-dim");
  if (options.random)
    flags.refuse(
        {"--image", "--size", "--patch", "--out"},
        "belongs to a photo, --heads, --tokens and --head-dim to random tensors: choose one");
  if (options.size % 16 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 16 pixels, a patch's side", options.size));
  if (options.random) options.out.clear();
  flags.refuse_with_predict(options);
  if (options.predict) flags.refuse({"--patch"}, "belongs to a picture, which --predict has not");
  if (!options.random && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  if (!options.patch.empty()) parse_patch(options.patch, options.size / 16);
  require_files(options);
  return options;
}

Device open_device(GradientOptions& options) {
  const Device device = open_device(static_cast<Options&>(options));
  if (options.batch == 0) options.batch = device.is_virtual ? 1 : 32;
  return device;
}

GradientProblem gradient_problem(const GradientOptions& options, const Device& device,
                                 const std::vector<gradients::Step>& steps) {
  const int grid = options.size / 16;
  const AttentionShape shape =
      options.random
          ? AttentionShape{options.batch, options.heads, options.tokens, options.head_dim,
                           float(1 / std::sqrt(double(options.head_dim)))}
          : AttentionShape{options.batch, 12, grid * grid + 1, 64, 0.125f};
  double workspace = 0;
  for (const gradients::Step& step : steps)
    workspace = std::max(workspace, 4.0 * double(step.workspace_of(shape)));
  const double once = gradient_bytes(shape);
  require_memory(device, once * rotation_copies(device, once) + workspace,
                 (8 + 12 * 8.0) * double(shape.elements()),
                 "gradients of attention of shape " + describe(shape));
  const Progress progress("making the problem");
  if (options.random) return random_gradients(shape, options.seed);
  GradientProblem problem;
  problem.attention =
      photo_attention(load_image(options.image), options.size, options.batch, options.seed);
  problem.attention.source =
      format("%s, %d x %d pixels", file_name(options.image).c_str(), options.size, options.size);
  return problem;
}

}  // namespace lab
