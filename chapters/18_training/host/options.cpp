// Flags of chapter 18, and the images that they name.
#include "options.h"

#include <unistd.h>

#include <cstdlib>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"

namespace training {

using lab::format;
using lab::UsageError;

namespace {

constexpr int kMaxBatch = 1024;

double parse_rate(const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(rate > 0 && rate <= 1e6))
    throw UsageError("--lr '" + text + "': must be a number above 0, up to 1000000");
  return rate;
}

}  // namespace

std::string misread_path(const std::string& out) {
  const size_t dot = out.rfind('.');
  return out.substr(0, dot) + "_misread" + out.substr(dot);
}

namespace {

void require_consistent(const lab::Flags& flags, TrainingOptions& options) {
  if (!options.infer.empty()) {
    flags.refuse({"--steps", "--batch", "--lr", "--data", "--held-out", "--resume", "--stop-after",
                  "--seed", "--out"},
                 "does not go with --infer, which trains nothing");
    if (options.checkpoint.empty())
      throw UsageError(
          "--infer needs --checkpoint FILE, a trained net: ./run --steps 800 --checkpoint "
          "FILE trains one");
    for (const auto& [flag, file] :
         {std::pair("--json", options.json), std::pair("--look", options.look)})
      if (!file.empty()) lab::require_writable(flag, file);
    lab::require_distinct({{"--checkpoint", options.checkpoint},
                           {"--infer", options.infer},
                           {"--json", options.json},
                           {"--look", options.look}});
    return;
  }
  if (!options.resume.empty())
    flags.refuse({"--steps", "--batch", "--lr", "--seed"},
                 "does not go with --resume: the checkpoint's own goes on");
  if (options.data.empty()) flags.refuse({"--held-out"}, "goes only with --data");
  const std::string saved = options.checkpoint;
  if (saved.empty()) {
    if (options.resume.empty())
      flags.refuse({"--stop-after"},
                   "goes only with --checkpoint FILE or --resume FILE: else the "
                   "steps are lost");
    options.checkpoint = options.resume;
    if (!options.resume.empty()) lab::require_writable("--resume", options.resume);
  }
  if (!saved.empty() && access(saved.c_str(), F_OK) == 0 &&
      (options.resume.empty() || !lab::same_file(saved, options.resume)))
    throw UsageError("--checkpoint " + saved + ": is there already: --resume " + saved +
                     " goes on with it; else name another file");
  if (!saved.empty()) lab::require_writable("--checkpoint", saved);
  lab::require_files(options);
  lab::require_writable("--out", misread_path(options.out));
  lab::require_distinct({{"--checkpoint", options.checkpoint},
                         {"--json", options.json},
                         {"--look", options.look},
                         {"--out", options.out},
                         {"the misread images of --out", misread_path(options.out)}});
}

}  // namespace

TrainingOptions training_options(int argc, char** argv, const char* about) {
  TrainingOptions options;
  Settings& settings = options.settings;
  options.out = "training.png";
  lab::Flags flags(
      about,
      "Without flags: a few steps on 400 of the 500 photos in data/fashion_mnist; the other 100 "
      "are held\n"
      "out. A whole training: ./run --steps 800 --checkpoint cvt.safetensors. Ctrl-C leaves a\n"
      "checkpoint.");
  flags.number("--steps", settings.steps, 1, kMaxSteps, "N", format("steps (%d)", settings.steps));
  flags.number("--batch", settings.batch, 2, kMaxBatch, "N",
               format("images a step (%d)", settings.batch));
  flags.option(
      "--lr", [&](const std::string& text) { settings.rate = parse_rate(text); }, "RATE",
      format("AdamW's rate at its highest (%g)", settings.rate));
  flags.number("--seed", settings.seed, uint64_t(0), uint64_t(1) << 40, "N",
               "of first weights, order and augmentation (1)");
  flags.text("--data", options.data, "DIR",
             "folder with the IDX files of the whole set, train-images-idx3-ubyte and so on");
  flags.number("--held-out", options.held_out, 1, 10'000, "N",
               "with --data: of the test images so many are read (500)");
  flags.text("--checkpoint", options.checkpoint, "FILE",
             "safetensors, written every 50 steps and at the end; --infer reads it");
  flags.text("--resume", options.resume, "FILE", "goes on with that checkpoint");
  flags.number("--stop-after", options.stop_after, 1, kMaxSteps, "N",
               "steps of this run; --resume goes on with the rest");
  flags.text("--infer", options.infer, "PHOTO", "says which garment a photo shows, PNG or JPEG");
  flags.text("--out", options.out, "FILE",
             "curve of the losses, .png or .jpg (training.png); beside it\n"
             "..._misread: the held-out images that it reads wrong");
  flags.text("--json", options.json, "FILE", "result as JSON");
  flags.look_flag(options);
  flags.parse(argc, argv);
  require_consistent(flags, options);
  if (!options.resume.empty()) settings = settings_of(options.resume);
  options.seed = settings.seed;
  options.batch = settings.batch;
  return options;
}

lab::Device open_device(const TrainingOptions& options) {
  const lab::Device device = lab::open_device();
  lab::begin_look(device, options);
  if (device.major < 8)
    throw lab::LackError(format("%s is sm_%d%d: products in tf32 need sm_80 or newer",
                                device.name.c_str(), device.major, device.minor));
  return device;
}

Split read_images(const TrainingOptions& options) {
  Split split = options.data.empty() ? read_excerpt() : read_folder(options.data, options.held_out);
  if (options.settings.batch > split.training.count)
    throw UsageError(format(options.resume.empty()
                                ? "--batch '%d': must be at most %d, the training images"
                                : "--resume: was trained with a batch of %d, here are %d training "
                                  "images: --data DIR names its own",
                            options.settings.batch, split.training.count));
  return split;
}

}  // namespace training
