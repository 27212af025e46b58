// Flags of chapter 20, and the network and the photo that they name.
#include "options.h"

#include <algorithm>
#include <stdexcept>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"

namespace lab {
namespace {

constexpr int kMaxPhotoSize = 8192;  // pixels, of --size
constexpr int kRandomSize = 64;      // pixels of the photo that a random network is tried on
constexpr uint64_t kRandomSeed = 1;

}  // namespace

StyleOptions style_options(int argc, char** argv, const char* about) {
  StyleOptions options;
  options.out = "styled.png";
  options.size = kRandomSize;
  Flags flags(about,
              "The network is a safetensors file; README.md in the chapter's folder says where to\n"
              "find one and what its tensors are called. Without one the weights are random: a\n"
              "layer takes as long, and the picture is of no style.");
  flags.text("--style", options.network, "FILE",
             "trained network, safetensors (F16 or F32); without it,\nrandom weights");
  flags.text("--step", options.step, "NAME",
             "how chapter 8 computes a layer: fused, two passes or\nthree passes (fused)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.number("--size", options.size, 1, kMaxPhotoSize, "PIXELS",
               "squared photo's side (without it, the photo as it is;\nwith random weights 64)");
  flags.text("--out", options.out, "FILE", "styled picture, .png or .jpg (styled.png)");
  flags.number("--warmup", options.warmup, 0, 1000, "N",
               "runs of a layer before the timed ones (5; virtual: 0)");
  flags.number("--iterations", options.iterations, 1, 1000, "N",
               "timed runs of a layer (50; virtual: 1)");
  flags.text("--json", options.json, "FILE", "result as JSON");
  flags.given("--profile", options.profile, "host time of each layer (virtual GPU)");
  flags.given("--predict", options.predict,
              "predicted times alone (virtual GPU): executes only the\nblocks that they need, and "
              "writes no picture");
  flags.look_flag(options);
  flags.parse(argc, argv);
  if (options.predict) {
    flags.refuse({"--out"}, "does not go with --predict, which leaves results incomplete");
    flags.refuse({"--warmup", "--iterations"},
                 "does not go with --predict: each launch is predicted once");
    flags.refuse({"--profile"}, "does not go with --predict, whose host time says nothing");
    options.out.clear();
  }
  if (options.image.empty()) options.image = repository_path("data/images/chelsea.png");
  options.squared = flags.given("--size") || options.network.empty();
  require_files(options);
  for (const std::string& written : {options.out, options.json, options.look})
    if (!written.empty() && !options.network.empty() && same_file(written, options.network))
      throw UsageError("--style and an output name the same file " + written);
  return options;
}

std::vector<StyleLayer> chosen_network(const StyleOptions& options) {
  return options.network.empty() ? random_style_network(kRandomSeed)
                                 : read_style_network(options.network);
}

Image style_photo(const StyleOptions& options) {
  const Image photo = load_image(options.image);
  return options.squared ? square(photo, options.size) : photo;
}

std::vector<StyleStage> style_stages(const std::vector<StyleLayer>& network, const Image& photo) {
  try {
    return style_stages(network, photo.height, photo.width);
  } catch (const std::invalid_argument& error) {
    throw UsageError(format("%d x %d pixels are too many (fewer: --size PIXELS): %s", photo.width,
                            photo.height, error.what()));
  }
}

SharedArrays arrays_in_memory(const Device& device, const std::vector<StyleLayer>& network,
                              const std::vector<StyleStage>& stages, const Image& photo) {
  SharedArrays arrays;
  double scratch = 0, weights = 0, host = 0;
  for (const StyleLayer& layer : network)
    weights += 4.0 * double(layer.weight.size() + layer.gamma.size() + layer.beta.size());
  for (const StyleStage& stage : stages) {
    const int64_t x = stage.shape.x_elements(), y = stage.shape.y_elements();
    arrays.elements = std::max({arrays.elements, x, y});
    if (stage.residual) arrays.between = std::max(arrays.between, y);
    // Three passes keep two arrays like y more; the reference has x padded, conv and y in double.
    scratch = std::max(scratch, 8.0 * double(y));
    host = std::max(host, 4.0 * double(x + 2 * y) + 16.0 * double(x + y));
  }
  const double pixels = double(photo.rgb.size());
  require_memory(device,
                 weights + scratch + 4.0 * double(2 * arrays.elements + arrays.between) + pixels,
                 host + 2 * weights + 30.0 * pixels,
                 format("style transfer of %d x %d pixels (a smaller picture: --size PIXELS)",
                        photo.width, photo.height));
  return arrays;
}

}  // namespace lab
