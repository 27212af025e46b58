// A net's weights, the photo that it sees, and what the whole net should say of it.
#include "problem.h"

#include <unistd.h>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/progress.h"
#include "resample.h"
#include "run.h"

namespace vision_transformer {
namespace {

using lab::format;
using lab::UsageError;
using reference::Doubles;

constexpr int kShiftPixels = 8;  // of one image of the batch against the one before

std::vector<std::string> labels_for(const NetOptions& options, int classes) {
  if (!options.labels.empty()) return read_labels(options.labels, classes);
  if (options.weights.empty()) return {};
  const size_t slash = options.weights.rfind('/');
  const std::string beside =
      (slash == std::string::npos ? "" : options.weights.substr(0, slash + 1)) +
      "imagenet_synset_words.txt";
  // Beside another net than one of ImageNet the file means nothing.
  return classes == 1000 && access(beside.c_str(), R_OK) == 0 ? read_labels(beside, classes)
                                                              : std::vector<std::string>();
}

// Image b is the photo shifted cyclically to the right by 8 b pixels, so that no two are alike.
std::vector<float> batch_of(const std::vector<float>& planes, int size, int batch) {
  std::vector<float> images;
  images.reserve(planes.size() * size_t(batch));
  for (int b = 0; b < batch; ++b)
    for (size_t row = 0; row < planes.size() / size_t(size); ++row)
      for (int column = 0; column < size; ++column) {
        const int from = ((column - kShiftPixels * b) % size + size) % size;
        images.push_back(rounded_to_fp16(planes[row * size_t(size) + size_t(from)]));
      }
  return images;
}

}  // namespace

NetProblem net_problem(const NetOptions& options) {
  NetProblem problem;
  const lab::Image photo = lab::load_image(options.image);
  problem.photo = crop_for_net(photo, options.size);
  if (options.weights.empty()) {
    NetShape shape = model_shape(options.model.empty() ? "tiny" : options.model);
    shape.size = options.size;
    problem.weights.shape = shape;  // the numbers are drawn when there is memory for them
  } else {
    problem.weights = read_weights(options.weights, options.model, options.size);
  }
  problem.shape = problem.weights.shape;
  problem.shape.batch = options.batch;
  require_net_shape(problem.shape);
  problem.labels = labels_for(options, problem.shape.classes);
  if (options.block >= problem.shape.blocks)
    throw UsageError(format("--block '%d': must be from 0 to %d, the net has %d blocks",
                            options.block, problem.shape.blocks - 1, problem.shape.blocks));
  return problem;
}

void require_net_memory(const NetOptions& options, const NetProblem& problem,
                        const lab::Device& device) {
  const NetShape& shape = problem.shape;
  const NetMemory needs = net_memory(shape, options.components);
  const double rows = double(shape.rows());
  // References in double: the widest arrays, and those that go in and out.
  const double host = 4.0 * double(shape.image_elements()) + 3 * needs.weights +
                      8 * rows * (3 * shape.hidden() + 4 * shape.width);
  lab::require_memory(device, needs.all(), host,
                      "a Vision Transformer of shape " + describe(shape) +
                          (shape.batch > 1 ? " (fewer images: --batch N)" : ""));
}

void fill(NetProblem& problem, const NetOptions& options) {
  if (options.weights.empty())
    problem.weights = random_weights(problem.weights.shape, options.seed);
  problem.image = batch_of(normalized(problem.photo), options.size, options.batch);
}

ExpectedLogits expected_logits(const NetProblem& problem) {
  const lab::Progress progress("reference of the whole net");
  const Doubles image(problem.image.begin(), problem.image.end());
  const HostParameters& parameters = problem.weights.parameters;
  const Doubles exact = reference::net(image, parameters, problem.shape, nullptr, {}),
                rounded = reference::net(image, parameters, problem.shape,
                                         static_cast<reference::Rounding>(rounded_to_fp16), {});
  return {exact, logits_tolerance(exact, rounded)};
}

lab::Comparison compare_logits(const std::vector<half>& logits, const ExpectedLogits& expected,
                               const NetShape& shape) {
  if (expected.logits.empty()) return lab::Comparison::none();
  return lab::compare(as_doubles(logits), expected.logits, expected.tolerance,
                      {shape.batch, shape.classes});
}

}  // namespace vision_transformer
