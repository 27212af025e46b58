// Flags and environment of chapter 7, and what the device adds to them.
#include "options.h"

#include <cstdlib>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/steps.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxHeads = 64, kMaxQueries = 10'000'000, kMaxSize = 1024;

// An environment variable in place of a flag that is not given.
template <class Number>
void from_environment(const char* name, const Flags& flags, const char* flag, Number most,
                      Number& value) {
  const char* text = std::getenv(name);
  if (text && *text && !flags.given(flag))
    value = parse_number(std::string("environment variable ") + name, text, Number(1), most);
}

}  // namespace

DeformableOptions deformable_options(int argc, char** argv, const char* about) {
  DeformableOptions options;
  options.out = "directions.png";
  std::string distribution = "local";
  Flags flags(about,
              "The problem is random (--preset and the flags that change it) or a file (--input);\n"
              "the last step also works on a photo (--image, --size) and draws what it finds.\n"
              "Environment, where the flag is not given: BATCH_SIZE, NUM_QUERY, CHANNELS,\n"
              "NUM_ITERATIONS.");
  flags.text("--preset", options.preset, "NAME",
             "small, medium or full: 2, 8 or 48 images (GPU: full, virtual GPU: small)");
  flags.text("--step", options.step, "NAME", "this step alone (all that the device can run)");
  flags.text("--distribution", distribution, "NAME",
             "of sampling points: local (2 pixels around a raster) or uniform (local)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "images, in place of the preset's");
  flags.number("--queries", options.queries, 1, kMaxQueries, "N", "queries of an image (15422)");
  flags.number("--heads", options.heads, 1, kMaxHeads, "N", "heads (1)");
  flags.number("--channels", options.channels, 16, 64, "N", "of a head: 16, 32 or 64 (32)");
  flags.number("--points", options.points, 4, 8, "N", "samples of a query in a level: 4 or 8 (8)");
  flags.number("--size", options.size, 16, kMaxSize, "PIXELS",
               "photo's side, a multiple of 8 (128; on the way to 4 levels)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo and its directions, .png or .jpg");
  flags.text(
      "--input", options.input, "FILE",
      "safetensors: value, spatial_shapes, sampling_locations, attention_weights;\nF16 or F32, "
      "spatial_shapes also I64 or I32, height and width of each level");
  flags.text("--output", options.output, "FILE", "safetensors: out, F16");
  flags.run_flags(options, "of the random problem (1)");
  flags.parse(argc, argv);

  if (!options.preset.empty())
    require_one_of("--preset", options.preset, {"small", "medium", "full"});
  require_one_of("--distribution", distribution, {"local", "uniform"});
  options.distribution = distribution == "local" ? Distribution::kLocal : Distribution::kUniform;
  if (!flags.given("--size")) options.size = 128;
  if (options.size % 8 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 8 pixels, for four levels", options.size));
  const bool reshaped = flags.given("--preset") || flags.given("--batch") ||
                        flags.given("--queries") || flags.given("--heads") ||
                        flags.given("--channels") || flags.given("--points");
  if (flags.given("--input")) {
    flags.refuse({"--preset", "--distribution", "--batch", "--queries", "--heads", "--channels",
                  "--points", "--seed"},
                 "does not go with --input: the file has its own shape");
  } else {
    from_environment("BATCH_SIZE", flags, "--batch", kMaxBatch, options.batch);
    from_environment("NUM_QUERY", flags, "--queries", kMaxQueries, options.queries);
    from_environment("CHANNELS", flags, "--channels", 64, options.channels);
  }
  from_environment("NUM_ITERATIONS", flags, "--iterations", 1'000'000, options.iterations);
  const bool photo_flags = flags.given("--image") || flags.given("--out") || flags.given("--size");
  options.draws = photo_flags || (!reshaped && options.input.empty());
  flags.refuse_with_predict(options);
  if (options.predict)
    flags.refuse({"--image", "--size"}, "belongs to a picture, which --predict has not");
  options.draws = options.draws && !options.predict;
  if (!options.draws) options.out.clear();
  if (options.draws && options.image.empty())
    options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return options;
}

Device open_device(DeformableOptions& options) {
  const Device device = open_device();
  complete_for(device, options);
  if (options.preset.empty()) options.preset = device.is_virtual ? "small" : "full";
  if (options.batch == 0)
    options.batch = options.preset == "small" ? 2 : options.preset == "medium" ? 8 : 48;
  if (options.queries == 0) options.queries = 15422;
  if (options.channels == 0) options.channels = 32;
  return device;
}

DeformableShape DeformableOptions::random_shape() const {
  DeformableShape shape = course_deformable_shape(batch, queries);
  shape.heads = heads;
  shape.channels = channels;
  shape.points = points;
  return shape;
}

std::vector<DeformableStep> runnable_steps(const std::string& name,
                                           const std::vector<DeformableStep>& steps,
                                           std::vector<std::string>& left_out) {
  std::vector<DeformableStep> runnable;
  for (const DeformableStep& step : chosen_steps(name, steps)) {
    const std::string lack = step.lacks ? step.lacks() : "";
    if (lack.empty())
      runnable.push_back(step);
    else if (name.empty())
      left_out.push_back(step.name + " is left out: it " + lack);
    else
      throw LackError("--step " + name + ": it " + lack);
  }
  return runnable;
}

int copies_in_memory(const Device& device, const DeformableShape& shape) {
  // On the device the four arrays, in rotated copies. On the host they are there in fp16 and, for
  // the reference, in float; its output in double, the kernel's in fp16.
  const double bytes = deformable_cost(shape).bytes;
  const int copies = rotation_copies(device, bytes);
  require_memory(device, bytes * copies, 3 * bytes + 12.0 * double(shape.out_elements()),
                 "deformable attention of shape " + describe(shape));
  return copies;
}

}  // namespace lab
