// Flags of chapter 0, and the problem that they name.
#include "options.h"

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"

namespace lab {

constexpr int kMaxSize = 4096;  // its square is the most pixels that a step takes

PhotoOptions photo_options(int argc, char** argv, const char* about) {
  PhotoOptions options;
  options.out = "blurred.png";
  Flags flags(about, "The problem is a photo (--image, --size) or random (--height, --width).");
  flags.number("--size", options.size, 1, kMaxSize, "PIXELS", "photo's side (224)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--out", options.out, "FILE", "photo, grey and blurred, .png or .jpg");
  flags.number("--height", options.height, 1, PhotoShape::kMaxSide, "N",
               "random pixels in place of the photo: rows");
  flags.number("--width", options.width, 1, PhotoShape::kMaxSide, "N", "columns");
  flags.text("--step", options.step, "NAME",
             "this step alone. Two are run only so: 'sum serial', where one thread\nof a block "
             "adds, and race, whose sum is wrong");
  flags.text("--output", options.output, "FILE", "safetensors: out, the blurred photo, F32");
  flags.run_flags(options, "of random pixels (1)");
  flags.parse(argc, argv);

  if (flags.given("--height") != flags.given("--width"))
    throw UsageError("--height and --width go together: random pixels have both");
  const bool random = flags.given("--height");
  if (random)
    flags.refuse({"--size", "--image"},
                 "does not go with --height and --width: no photo is loaded");
  flags.refuse_with_predict(options);
  if (flags.given("--step"))
    flags.refuse({"--out", "--output"}, "does not go with --step: it needs all steps");
  options.draws = !options.predict && !flags.given("--step") && (!random || flags.given("--out"));
  if (!options.draws) options.out.clear();
  if (options.image.empty() && !random) options.image = repository_path("data/images/chelsea.png");
  require_files(options);
  return options;
}

PhotoProblem photo_problem(const PhotoOptions& options, const Device& device) {
  const bool random = options.height > 0;
  const PhotoShape shape =
      random ? PhotoShape{options.height, options.width} : PhotoShape{options.size, options.size};
  require_shape(shape);
  const double bytes = photo_bytes(shape);
  require_memory(device, bytes * rotation_copies(device, bytes), 8 * bytes,
                 "photo of shape " + describe(shape));
  return random ? random_photo(shape, options.seed)
                : photo_problem(load_image(options.image), options.size);
}

}  // namespace lab
