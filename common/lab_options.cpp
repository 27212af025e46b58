// Flags, and the order in which a chapter's program goes to work.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>

#include "lab.cuh"
#include "lab_files.h"

namespace lab {
namespace {

// Largest values of the flags: far beyond what fits in a GPU, so that the memory check speaks, and
// small enough that products of them stay far from 2^63.
constexpr int kMaxTokens = 65536, kMaxBatch = 65536, kMaxHeads = 4096, kMaxSize = 1024;
constexpr int kMaxRuns = 1'000'000;

// A whole number without anything around it; the error names value and range.
template <class Number>
Number parse_number(const std::string& flag, const std::string& text, Number least, Number most) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    throw UsageError(flag + " '" + text + "': must be a whole number from " +
                     std::to_string(least) + " to " + std::to_string(most));
  return number;
}

std::string lower_ending(const std::string& path) {
  const size_t dot = path.rfind('.');
  std::string ending = dot == std::string::npos ? "" : path.substr(dot);
  for (char& c : ending) c = char(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

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

void require_distinct(const std::vector<std::pair<std::string, std::string>>& files) {
  for (size_t i = 0; i < files.size(); ++i)
    for (size_t j = i + 1; j < files.size(); ++j)
      if (!files[i].second.empty() && !files[j].second.empty() &&
          canonical_path(files[i].second) == canonical_path(files[j].second))
        throw UsageError(files[i].first + " and " + files[j].first + " name the same file " +
                         files[j].second);
}

}  // namespace

Options parse_options(int argc, const char* const* argv, const std::string& about) {
  Options options;
  CLI::App app(about);
  app.get_formatter()->column_width(34);
  app.footer(
      "The problem is a photo (--image, --size), random tensors as soon as --heads, --tokens or\n"
      "--head-dim is given, or a file (--input: tensors in F16 or F32, scale may be left out).\n"
      "Exit codes: 0 correct, 1 wrong result, 2 bad usage or input, 3 this device or machine "
      "lacks\n"
      "what is asked, 86 a race, init or sync finding of the virtual GPU.");

  // Numbers are read as text first: one message for everything that is no number of the range.
  const auto number = [&](const char* flag, auto& value, auto least, auto most, const char* unit,
                          const std::string& help) {
    app.add_option_function<std::string>(
           flag,
           [&value, flag, least, most](const std::string& text) {
             value = parse_number(flag, text, decltype(least)(least), decltype(least)(most));
           },
           help)
        ->type_name(unit);
  };
  number("--batch", options.batch, 1, kMaxBatch, "N", "images (GPU: 32, virtual GPU: 1)");
  number("--heads", options.heads, 1, kMaxHeads, "N", "heads of random tensors (12)");
  number("--tokens", options.tokens, 1, kMaxTokens, "N", "tokens of random tensors (197)");
  app.add_option_function<std::string>(
         "--head-dim",
         [&](const std::string& text) {
           if (text != "32" && text != "64" && text != "128")
             throw UsageError("--head-dim '" + text + "': must be 32, 64 or 128");
           options.head_dim = std::stoi(text);
         },
         "values of a head of random tensors: 32, 64 or 128 (64)")
      ->type_name("N");
  number("--size", options.size, 16, kMaxSize, "PIXELS",
         "photo's side, a multiple of 16 (224, that is 197 tokens)");
  app.add_option("--image", options.image, "photo, PNG or JPEG (data/images/chelsea.png)")
      ->type_name("FILE");
  app.add_option("--patch", options.patch, "whose attention is drawn; or 'class' (the middle)")
      ->type_name("ROW,COLUMN");
  app.add_option("--out", options.out, "heat map, .png or .jpg (attention.png)")->type_name("FILE");
  app.add_option("--input", options.input,
                 "safetensors: q k v [batch, heads, tokens, head_dim], scale")
      ->type_name("FILE");
  app.add_option("--output", options.output, "safetensors: out, F16")->type_name("FILE");
  number("--warmup", options.warmup, 0, kMaxRuns, "N",
         "runs before the timed ones (5; virtual: 0)");
  number("--iterations", options.iterations, 1, kMaxRuns, "N", "timed runs (50; virtual: 1)");
  number("--seed", options.seed, uint64_t(0), std::numeric_limits<uint64_t>::max(), "N",
         "of random tensors, and of the shifts of a batch's photos (1)");
  app.add_option("--json", options.json, "result as JSON")->type_name("FILE");
  app.add_option("--csv", options.csv, "result's lines as CSV")->type_name("FILE");
  app.add_flag("--profile", options.profile, "counters and modelled limits (virtual GPU)");
  app.add_flag("--all", options.all, "all chapters that are built, on this one problem");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    std::exit(kCorrect);
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (--help lists the flags)");
  }

  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  const auto refuse = [&](std::initializer_list<const char*> flags, const std::string& why) {
    for (const char* flag : flags)
      if (given(flag)) throw UsageError(std::string(flag) + " " + why);
  };
  for (const char* flag : {"--image", "--patch", "--out", "--input", "--output", "--json", "--csv"})
    if (given(flag) && app.get_option(flag)->as<std::string>().empty())
      throw UsageError(std::string(flag) + ": the value is empty");

  options.random = given("--heads") || given("--tokens") || given("--head-dim");
  if (given("--input")) {
    refuse({"--batch", "--heads", "--tokens", "--head-dim", "--size", "--seed"},
           "does not go with --input: the file has its own shape");
    if (!given("--image"))
      refuse({"--patch", "--out"}, "draws on a photo: --input needs --image with it");
  } else if (options.random) {
    refuse({"--image", "--size", "--patch", "--out"},
           "belongs to a photo, --heads, --tokens and --head-dim to random tensors: choose one");
  }
  if (options.size % 16 != 0)
    throw UsageError(
        format("--size '%d': must be a multiple of 16 pixels, a patch's side", options.size));
  const bool draws = options.input.empty() ? !options.random : given("--image");
  if (!draws) options.out.clear();
  if (draws && options.input.empty()) {
    if (options.image.empty()) options.image = repository_path("data/images/chelsea.png");
    if (!options.patch.empty()) parse_patch(options.patch, options.size / 16);
  }
  const std::string ending = lower_ending(options.out);
  if (draws && ending != ".png" && ending != ".jpg" && ending != ".jpeg")
    throw UsageError("--out '" + options.out + "': the name must end in .png, .jpg or .jpeg");

  const std::vector<std::pair<std::string, std::string>> written = {{"--out", options.out},
                                                                    {"--output", options.output},
                                                                    {"--json", options.json},
                                                                    {"--csv", options.csv}};
  for (const auto& [flag, path] : written)
    if (!path.empty()) require_writable(flag, path);
  std::vector<std::pair<std::string, std::string>> files = written;
  files.insert(files.end(), {{"--image", options.image}, {"--input", options.input}});
  require_distinct(files);
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

AttentionProblem input_attention(const Options& options) {
  const std::string& path = options.input;
  const std::vector<Tensor> tensors = read_safetensors(path, {"q", "k", "v"}, {"scale"});
  const Tensor &q = tensors[0], &scale = tensors[3];
  const char* names[] = {"q", "k", "v"};
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
    if (shape != q.shape) throw UsageError(where + " has another shape than 'q'");
  }

  AttentionProblem problem;
  problem.shape = {int(q.shape[0]), int(q.shape[1]), int(q.shape[2]), int(q.shape[3]),
                   float(1 / std::sqrt(double(q.shape[3])))};
  if (!scale.values.empty()) {
    if (scale.values.size() != 1 || !std::isfinite(scale.values[0]))
      throw UsageError(path + ": tensor 'scale' must be one finite number");
    problem.shape.scale = scale.values[0];
  }
  require_attention_shape(problem.shape);
  problem.q = checked_halves(path + ": tensor 'q'", tensors[0]);
  problem.k = checked_halves(path + ": tensor 'k'", tensors[1]);
  problem.v = checked_halves(path + ": tensor 'v'", tensors[2]);
  problem.source = file_name(path);
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

// The chapter's steps before its own. Everything that is the user's mistake comes before the device
// is touched, so that it is named on every machine.
int attention_program(int argc, char** argv, const AttentionChapter& chapter) {
  Run run;
  run.chapter = chapter.name;
  run.options = parse_options(argc, argv, chapter.about);
  Options& options = run.options;
  if (options.all) return run_all(argc, argv, options);
  Image photo;
  if (!options.input.empty())
    run.problem = input_attention(options);
  else if (!options.random)
    photo = load_image(options.image);

  run.device = open_device();
  const bool is_virtual = run.device.is_virtual;
  if (options.profile && !is_virtual)
    throw LackError(
        std::string("--profile reads the virtual GPU's counters (make DEVICE=vgpu); on "
                    "this GPU: ncu --set full ./run"));
  if (options.batch == 0) options.batch = is_virtual ? 1 : 32;
  if (options.warmup < 0) options.warmup = is_virtual ? 0 : 5;
  if (options.iterations == 0) options.iterations = is_virtual ? 1 : 50;

  AttentionShape& shape = run.problem.shape;
  if (options.random) {
    shape = {options.batch, options.heads, options.tokens, options.head_dim,
             float(1 / std::sqrt(double(options.head_dim)))};
  } else if (options.input.empty()) {
    const int grid = options.size / 16;
    shape = {options.batch, 12, grid * grid + 1, 64, 0.125f};
  }
  // On the device Q, K, V and O (fp16, rotated copies) and the chapter's scratch, twice: its own
  // and the launch function's. On the host Q, K, V in fp16 and in float, the output in double.
  const double elements = double(shape.elements());
  const double once = 8 * elements + double(chapter.scratch_bytes(shape));
  require_memory(run.device, once * (1 + rotation_copies(run.device, once)), 32 * elements,
                 "attention of shape " + describe(shape));

  if (options.random)
    run.problem = random_attention(shape, options.seed);
  else if (options.input.empty()) {
    run.problem = photo_attention(photo, options.size, options.batch, options.seed);
    run.problem.source =
        format("%s, %d x %d pixels", file_name(options.image).c_str(), options.size, options.size);
  }
  if (run.problem.grid > 0 && !options.patch.empty())
    run.problem.chosen_token = parse_patch(options.patch, run.problem.grid);
  return chapter.run(run);
}

// One line whatever a file's names or a library's message contain.
int complain(const char* program, const std::string& message, ExitCode code) {
  std::string line = message;
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  std::fflush(stdout);
  std::fprintf(stderr, "%s: error: %s\n", program, line.c_str());
  return code;
}

}  // namespace

int attention_main(int argc, char** argv, const AttentionChapter& chapter) {
  try {
    return attention_program(argc, argv, chapter);
  } catch (const UsageError& error) {
    return complain(chapter.name, error.what(), kBadUsage);
  } catch (const std::invalid_argument& error) {
    return complain(chapter.name, error.what(), kBadUsage);
  } catch (const LackError& error) {
    return complain(chapter.name, error.what(), kLacking);
  } catch (const std::bad_alloc&) {
    return complain(chapter.name, "out of host memory", kLacking);
  } catch (const std::exception& error) {
    return complain(chapter.name, error.what(), kWrong);
  }
}

}  // namespace lab
