#include "options.h"

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"

namespace lab {
namespace {

constexpr int kMaxBatch = 4096, kMaxSize = 1024, kMaxChannels = 4096;

}  // namespace

CvtOptions cvt_options(int argc, char** argv, const char* about) {
  CvtOptions options;
  Flags flags(about, "All arrays are random: inputs, weights and the gradients that arrive.");
  flags.text(
      "--component", options.component, "NAME",
      "projection; linear, an MLP's first layer; layer_norm; attention, a quarter as\nmany keys as "
      "queries; or embedding (projection)");
  flags.text("--step", options.step, "NAME", "this step alone");
  flags.text(
      "--preset", options.preset, "NAME",
      "small: 2 maps of 14 x 14 x 64; cvt13-1, cvt13-2, cvt13-3: CvT-13's three stages at 224 "
      "pixels,\n56 x 56 x 64, 28 x 28 x 192 and 14 x 14 x 384 with a class token, in batches of "
      "32 (GPU: cvt13-1,\nvirtual GPU: small)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N", "maps, in place of the preset's");
  flags.number("--height", options.height, 1, kMaxSize, "N", "rows, in place of the preset's");
  flags.number("--width", options.width, 1, kMaxSize, "N", "columns, in place of the preset's");
  flags.number("--channels", options.channels, 1, kMaxChannels, "N", "in place of the preset's");
  flags.number("--class-tokens", options.class_tokens, 0, 1, "N",
               "0 or 1, in place of the preset's");
  flags.text("--dtype", options.dtype, "NAME",
             "fp16 or fp32: of x, maps and their gradients (fp16); weights and sums are fp32");
  flags.text("--output", options.output, "FILE",
             "safetensors: q, k, v before BatchNorm, dx, dw_q, dw_k and dw_v of the last steps");
  flags.run_flags(options, "of the random problem (1)");
  flags.parse(argc, argv);
  require_one_of("--component", options.component,
                 {"projection", "linear", "layer_norm", "attention", "embedding"});
  if (!options.preset.empty())
    require_one_of("--preset", options.preset, {"small", "cvt13-1", "cvt13-2", "cvt13-3"});
  require_one_of("--dtype", options.dtype, {"fp16", "fp32"});
  if (options.component != "projection")
    flags.refuse({"--height", "--width", "--channels", "--class-tokens", "--dtype", "--output"},
                 "goes only with --component projection");
  flags.refuse_with_predict(options);
  require_files(options);
  return options;
}

Device open_device(CvtOptions& options) {
  const Device device = open_device();
  const bool tf32 = options.component != "projection" && options.component != "layer_norm";
  if (tf32 && device.major < 8)
    throw LackError(
        format("--component %s: products in tf32 need compute capability 8.0 or newer, "
               "this device has %d.%d",
               options.component.c_str(), device.major, device.minor));
  if (options.preset.empty()) options.preset = device.is_virtual ? "small" : "cvt13-1";
  complete_for(device, options);
  return device;
}

}  // namespace lab
