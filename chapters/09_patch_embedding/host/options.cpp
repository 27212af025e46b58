// Flags of chapter 9, and the problem that they name.
#include "options.h"

#include <tuple>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"

namespace patch_embedding {
namespace {

using lab::format;
using lab::UsageError;

constexpr char kLastStep[] = "one product";

// Two numbers with a letter between them, as "4x16".
std::pair<int, int> two_numbers(const char* flag, const std::string& text, char between,
                                int least) {
  const size_t at = text.find(between);
  if (at == std::string::npos)
    throw UsageError(
        format("%s '%s': must be two numbers with '%c' between them", flag, text.c_str(), between));
  return {lab::parse_number(flag, text.substr(0, at), least, 1'000'000),
          lab::parse_number(flag, text.substr(at + 1), least, 1'000'000)};
}

}  // namespace

PatchOptions patch_options(int argc, char** argv, const char* about) {
  PatchOptions options;
  options.out = "tokens.png";
  options.batch = 1;
  lab::Flags flags(about,
                   "The steps before the last need a launch or more for each token and channel.\n"
                   "They run on a part of image 0, --part, and what all tokens would take is\n"
                   "worked out from it.");
  flags.number("--batch", options.batch, 1, 4096, "N", "images (1)");
  flags.number("--size", options.size, kSide, 2048, "PIXELS",
               "photo's side, a multiple of 16 (224)");
  flags.number("--channels", options.channels, 1, 65536, "N",
               "of a token (192; ViT-Small 384, ViT-Base 768)");
  flags.option(
      "--part",
      [&](const std::string& text) {
        std::tie(options.part_patches, options.part_channels) = two_numbers("--part", text, 'x', 1);
      },
      "PxC", "first patches and first channels that slow steps compute (4x16)");
  flags.number("--streams", options.streams, 1, 128, "N", "of the step of that name (4)");
  flags.text("--step", options.step, "NAME", "this step alone (all)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.option(
      "--patch",
      [&](const std::string& text) {
        std::tie(options.patch_row, options.patch_column) = two_numbers("--patch", text, ',', 0);
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
  if (!options.output.empty() && !options.step.empty() && options.step != kLastStep)
    throw UsageError("--output needs the step '" + std::string(kLastStep) +
                     "', which alone computes all tokens, not --step '" + options.step + "'");
  const int columns = options.size / kSide;
  if (options.patch_row < 0) options.patch_row = options.patch_column = columns / 2;
  if (options.patch_row >= columns || options.patch_column >= columns)
    throw UsageError(format("--patch '%d,%d': rows and columns go from 0 to %d", options.patch_row,
                            options.patch_column, columns - 1));
  if (options.part_patches > columns * columns || options.part_channels > options.channels)
    throw UsageError(format("--part '%dx%d': there are %d patches and %d channels",
                            options.part_patches, options.part_channels, columns * columns,
                            options.channels));
  if (options.image.empty()) options.image = lab::repository_path("data/images/chelsea.png");
  lab::require_files(options);
  return options;
}

Problem photo_problem(const PatchOptions& options, const lab::Image& photo,
                      const lab::Device& device) {
  const Shape shape{options.batch, options.size, options.size, options.channels};
  require_shape(shape, options.part());
  const double bytes =
      2.0 * double(shape.image_values() + shape.weight_values() + shape.token_values());
  lab::require_memory(device, bytes, 4 * bytes, "patch embedding of shape " + describe(shape));
  Problem problem =
      photo_problem(photo, options.size, options.batch, options.channels, options.seed);
  problem.source =
      lab::file_name(options.image) + ", random filters, seed " + std::to_string(options.seed);
  return problem;
}

}  // namespace patch_embedding
