// Flags, and the problem that they name.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>

#include "inputs.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/flags.h"
#include "lab/images.h"
#include "lab/program.h"
#include "lab/sources.h"
#include "lab/tensors.h"
#include "program.h"

namespace lab {
namespace {

// Largest values of the flags: far beyond what fits in a GPU, so that the memory check speaks, and
// small enough that products of them stay far from 2^63.
constexpr int kMaxTokens = 65536, kMaxBatch = 65536, kMaxHeads = 4096, kMaxSize = 1024;

// The token that --patch names on a photo of grid x grid patches.
int parse_patch(const std::string& patch, int grid) {
  if (patch == "class") return 0;
  const size_t comma = patch.find(',');
  if (comma == std::string::npos)
    throw UsageError("--patch '" + patch + "': must be ROW,COLUMN, or class for the class token");
  const int row = parse_number("--patch row", patch.substr(0, comma), 0, grid - 1);
  const int column = parse_number("--patch column", patch.substr(comma + 1), 0, grid - 1);
  return 1 + row * grid + column;
}

// For the help: "\nSteps: tiling, coalesced loads; kept because it failed: ..."
std::string names_of(const std::vector<AttentionStep>& steps) {
  std::string names, variants;
  for (const AttentionStep& step : steps) {
    std::string& list = step.variant ? variants : names;
    list += (list.empty() ? "" : ", ") + step.name;
  }
  return (names.empty() ? "" : "\nSteps: " + names) +
         (variants.empty() ? "" : "; only with --step, tried and not kept: " + variants);
}

}  // namespace

AttentionOptions attention_options(int argc, const char* const* argv, const std::string& about,
                                   const std::vector<AttentionStep>& steps) {
  AttentionOptions options;
  Flags flags(
      about + names_of(steps),
      "The problem is a photo (--image, --size), random tensors as soon as --heads, --tokens or\n"
      "--head-dim is given, or a file (--input: tensors in F16 or F32, scale may be left out).");
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
  flags.text("--patch", options.patch, "ROW,COLUMN",
             "whose attention is drawn; or 'class' (the middle)");
  flags.text("--out", options.out, "FILE", "heat map, .png or .jpg (attention.png)");
  flags.text("--input", options.input, "FILE",
             "safetensors: q k v [batch, heads, tokens, head_dim], scale");
  flags.text("--prefix", options.prefix, "NAME",
             "what the names in that file begin with: 'block6.' for block6.q");
  flags.text("--output", options.output, "FILE", "safetensors: out, F16");
  flags.run_flags(options, "of random tensors, and of the shifts of a batch's photos (1)");
  flags.text("--step", options.step, "NAME", "this step alone");
  flags.given("--all", options.all, "all chapters that are built, on this one problem");
  flags.parse(argc, argv);

  if (options.all) flags.refuse({"--step"}, "names a step of one chapter, --all runs all chapters");
  options.random = flags.given("--heads") || flags.given("--tokens") || flags.given("--head-dim");
  if (flags.given("--input")) {
    flags.refuse({"--batch", "--heads", "--tokens", "--head-dim", "--size", "--seed"},
                 "does not go with --input: the file has its own shape");
    if (!flags.given("--image"))
      flags.refuse({"--patch", "--out"}, "draws on a photo: --input needs --image with it");
  } else if (flags.given("--prefix")) {
    throw UsageError("--prefix belongs to the names in a file: it needs --input");
  } else if (options.random) {
    flags.refuse(
        {"--image", "--size", "--patch", "--out"},
        "belongs to a photo, --heads, --tokens and --head-dim to random tensors: choose one");
  }
  if (options.size % 16 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 16 pixels, a patch's side", options.size));
  const bool draws = options.input.empty() ? !options.random : flags.given("--image");
  if (!draws) options.out.clear();
  flags.refuse_with_predict(options);
  if (options.predict) flags.refuse({"--patch"}, "belongs to a picture, which --predict has not");
  if (draws && options.input.empty()) {
    if (options.image.empty()) options.image = repository_path("data/images/chelsea.png");
    if (!options.patch.empty()) parse_patch(options.patch, options.size / 16);
  }
  require_files(options);
  return options;
}

namespace {

// q, k, v as the kernels take them, or the reason why not.
std::vector<half> checked_halves(const std::string& where, const Tensor& tensor) {
  std::vector<half> halves(tensor.values.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = __float2half(tensor.values[i]);
    if (std::isfinite(__half2float(halves[i]))) continue;
    throw UsageError(format("%s: element %zu is %g, fp16 holds finite values up to 65504",
                            where.c_str(), i, double(tensor.values[i])));
  }
  return halves;
}

// Scores are sums in fp32, times scale, and may be taken to powers of 2: beyond the range of fp32
// no kernel is right. Names the first score that is there.
void require_scores_in_range(const std::string& path, const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  constexpr double kLog2E = 1.4426950408889634;
  const double largest = double(std::numeric_limits<float>::max()) / kLog2E;
  const double scale = std::abs(double(shape.scale));
  double bound = scale * shape.head_dim;
  for (const std::vector<half>* values : {&problem.q, &problem.k}) {
    float most = 0;
    for (const half value : *values) most = std::max(most, std::abs(__half2float(value)));
    bound *= most;
  }
  if (bound <= largest) return;
  const std::vector<float> q = to_float(problem.q), k = to_float(problem.k);
  for (int64_t row = 0; row < shape.rows(); ++row)
    for (int64_t key = 0; key < shape.tokens; ++key) {
      const int64_t other = row / shape.tokens * shape.tokens + key;
      double score = 0;
      for (int64_t d = 0; d < shape.head_dim; ++d)
        score += std::abs(double(q[row * shape.head_dim + d]) * k[other * shape.head_dim + d]);
      if (scale * score > largest)
        throw UsageError(
            format("%s: overflows fp32: the score of query %lld and key %lld reaches %g "
                   "with scale %g, at most %.2g is possible",
                   path.c_str(), static_cast<long long>(row % shape.tokens),
                   static_cast<long long>(key), scale * score, double(shape.scale), largest));
    }
}

AttentionProblem input_attention(const AttentionOptions& options) {
  const std::string& path = options.input;
  const std::string names[] = {options.prefix + "q", options.prefix + "k", options.prefix + "v"};
  const std::vector<Tensor> tensors =
      read_safetensors(path, {names[0], names[1], names[2]}, {options.prefix + "scale"});
  const Tensor &q = tensors[0], &scale = tensors[3];
  for (int i = 0; i < 3; ++i) {
    const std::string where = path + ": tensor '" + names[i] + "'";
    const std::vector<int64_t>& shape = tensors[i].shape;
    if (shape.size() != 4)
      throw UsageError(
          format("%s has %zu dimensions, 4 are needed: [batch, heads, tokens, head_dim]",
                 where.c_str(), shape.size()));
    for (const int64_t size : shape)
      if (size < 1 || size > std::numeric_limits<int>::max())
        throw UsageError(where + " has a dimension of " + std::to_string(size));
    if (shape != q.shape) throw UsageError(where + " has another shape than '" + names[0] + "'");
  }

  AttentionProblem problem;
  problem.shape = {int(q.shape[0]), int(q.shape[1]), int(q.shape[2]), int(q.shape[3]),
                   float(1 / std::sqrt(double(q.shape[3])))};
  if (is_there(scale)) {
    const std::string where = path + ": tensor '" + options.prefix + "scale' ";
    if (scale.values.size() != 1)
      throw UsageError(where + "has " + std::to_string(scale.values.size()) +
                       " elements, one number is needed");
    if (!std::isfinite(scale.values[0]))
      throw UsageError(where + format("is %g, a finite number is needed", double(scale.values[0])));
    problem.shape.scale = scale.values[0];
  }
  try {
    require_attention_shape(problem.shape);
  } catch (const std::invalid_argument& error) {
    throw UsageError(path + ": " + error.what());
  }
  std::vector<half>* const halves[] = {&problem.q, &problem.k, &problem.v};
  for (int i = 0; i < 3; ++i)
    *halves[i] = checked_halves(path + ": tensor '" + names[i] + "'", tensors[i]);
  require_scores_in_range(path, problem);
  problem.source = file_name(path) + (options.prefix.empty() ? "" : ", " + options.prefix + "*");
  if (options.image.empty()) return problem;

  problem.grid = int(std::lround(std::sqrt(double(problem.shape.tokens - 1))));
  if (problem.grid < 1 || problem.grid * problem.grid + 1 != problem.shape.tokens)
    throw UsageError(
        format("%s: %d tokens are no square of patches and a class token, --image has "
               "nothing to draw on",
               path.c_str(), problem.shape.tokens));
  problem.photo = square(load_image(options.image), std::min(16 * problem.grid, 2 * kMaxSize));
  problem.chosen_token = 1 + problem.grid / 2 * problem.grid + problem.grid / 2;
  return problem;
}

}  // namespace

AttentionInput read_input(const AttentionOptions& options) {
  AttentionInput input;
  if (!options.input.empty())
    input.tensors = input_attention(options);
  else if (!options.random)
    input.photo = load_image(options.image);
  return input;
}

AttentionProblem attention_problem(const AttentionOptions& options, AttentionInput input,
                                   const Device& device, int bytes_per_score) {
  AttentionProblem problem = std::move(input.tensors);
  AttentionShape& shape = problem.shape;
  const int batch = options.batch > 0 ? options.batch : device.is_virtual ? 1 : 32;
  if (options.random) {
    shape = {batch, options.heads, options.tokens, options.head_dim,
             float(1 / std::sqrt(double(options.head_dim)))};
  } else if (options.input.empty()) {
    const int grid = options.size / 16;
    shape = {batch, 12, grid * grid + 1, 64, 0.125f};
  }
  // On the device Q, K, V and O (fp16, rotated copies) and the scores, twice: the program's own and
  // the launch function's. On the host Q, K, V in fp16 and in float, the output in double.
  const double elements = double(shape.elements());
  const double once = 8 * elements + double(bytes_per_score) * double(shape.scores());
  require_memory(device, once * (1 + rotation_copies(device, once)), 32 * elements,
                 "attention of shape " + describe(shape));

  if (options.random) {
    problem = random_attention(shape, options.seed);
  } else if (options.input.empty()) {
    problem = photo_attention(input.photo, options.size, batch, options.seed);
    problem.source =
        format("%s, %d x %d pixels", file_name(options.image).c_str(), options.size, options.size);
  }
  if (problem.grid > 0 && !options.patch.empty())
    problem.chosen_token = parse_patch(options.patch, problem.grid);
  return problem;
}

}  // namespace lab
