// Flags of chapter 19, and the problem that they name.
#include "options.h"

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/progress.h"

namespace lab::deformable {
namespace {

constexpr int kMaxBatch = 4096, kMaxHeads = 64, kMaxQueries = 10'000'000, kMaxSize = 256;

}  // namespace

GradientOptions gradient_options(int argc, char** argv, const char* about) {
  GradientOptions options;
  options.out = "gradient.png";
  std::string distribution = "local";
  Flags flags(about,
              "The problem is random (--preset and the flags that change it); the last step also "
              "works\non a photo (--image, --size) and draws where its gradient is.");
  flags.text("--preset", options.preset, "NAME",
             "tiny: 1 image of 1000 queries; small, medium or full: 2, 8 or 48\nimages of 15422 "
             "(GPU: full, virtual GPU: tiny)");
  flags.text("--step", options.step, "NAME", "this step alone");
  flags.text("--distribution", distribution, "NAME",
             "of sampling points: local (2 pixels around a raster) or uniform (local)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images, in place of the preset's");
  flags.number("--queries", options.queries, 1, kMaxQueries, "N",
               "queries of an image, in place of the preset's");
  flags.number("--heads", options.heads, 1, kMaxHeads, "N", "heads (1)");
  flags.number("--channels", options.channels, 16, 64, "N", "of a head: 16, 32 or 64 (32)");
  flags.number("--points", options.points, 4, 8, "N", "samples of a query in a level: 4 or 8 (8)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 8 (48; on the way to 4 levels)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and the gradient over it, .png or .jpg");
  flags.text("--output", options.output, "FILE",
             "safetensors: grad_value, grad_locations and grad_weights of the last step, F32");
  flags.run_flags(options, "of the random problem (1)");
  flags.parse(argc, argv);

  if (!options.preset.empty())
    require_one_of("--preset", options.preset, {"tiny", "small", "medium", "full"});
  require_one_of("--distribution", distribution, {"local", "uniform"});
  options.distribution = distribution == "local" ? Distribution::kLocal : Distribution::kUniform;
  if (!flags.given("--size")) options.size = 48;
  if (options.size % 8 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 8 pixels, for four levels", options.size));
  const bool photo_flags = flags.given("--image") || flags.given("--out") || flags.given("--size");
  bool reshaped = false;
  for (const char* flag : {"--preset", "--batch", "--queries", "--heads", "--channels", "--points"})
    reshaped |= flags.given(flag);
  flags.refuse_with_predict(options);
  if (options.predict)
    flags.refuse({"--image", "--size"}, "belongs to a picture, which --predict has not");
  options.draws = (photo_flags || !reshaped) && !options.predict;
  if (!options.draws) options.out.clear();
  if (options.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return options;
}

Device open_device(GradientOptions& options) {
  const Device device = lab::open_device(static_cast<Options&>(options));
  if (options.preset.empty()) options.preset = device.is_virtual ? "tiny" : "full";
  const std::string& preset = options.preset;
  if (options.batch == 0)
    options.batch = preset == "tiny" ? 1 : preset == "small" ? 2 : preset == "medium" ? 8 : 48;
  if (options.queries == 0) options.queries = preset == "tiny" ? 1000 : 15422;
  return device;
}

GradientProblem gradient_problem(const GradientOptions& options, const Device& device) {
  DeformableShape shape = course_deformable_shape(options.batch, options.queries);
  shape.heads = options.heads;
  shape.channels = options.channels;
  shape.points = options.points;
  require_deformable_shape(shape);
  const double bytes = gradient_bytes(shape);
  require_memory(device, 1.5 * bytes * rotation_copies(device, bytes), 5 * bytes,
                 "gradients of deformable attention of shape " + describe(shape));
  const Progress progress("making the problem");
  return random_gradients(shape, options.distribution, options.seed);
}

}  // namespace lab::deformable
