// Grades exercise 8, layer norm behind a 1x1 convolution, and the norm of a convolution of each
// channel by itself, in task2.cuh.
#include <cmath>

#include "../../../common/grader/grader.h"
#include "../../../common/lab/random.h"
#include "../shape.h"

namespace {

using namespace lab::grader;

// What a problem is made of; fp16 as the student gets it.
struct Tensors {
  ConvNormShape shape;
  std::vector<half> x, weight;     // [batch, in_channels, pixels], [out_channels, in_channels]
  std::vector<float> gamma, beta;  // [out_channels]
};

// Normal values, convolutions of size 1. `offset`: what is added to all convolutions of a pixel,
// through a first input channel of 64; a multiple of 64, so that fp16 has it exactly.
Tensors random_problem(int batch, int in_channels, int out_channels, int height, int width,
                       uint64_t seed, double offset) {
  Tensors t;
  t.shape = {.batch = batch,
             .in_channels = in_channels,
             .out_channels = out_channels,
             .height = height,
             .width = width,
             .kernel = 1,
             .pad_top = 0,
             .pad_left = 0,
             .pad_bottom = 0,
             .pad_right = 0};
  const int64_t pixels = int64_t(height) * width;
  for (int64_t i = 0; i < t.shape.x_elements(); ++i) {
    const bool first = offset != 0 && i / pixels % in_channels == 0;
    t.x.push_back(__float2half(first ? 64.0f : float(lab::normal(seed, i))));
  }
  const double size = 1 / std::sqrt(double(in_channels));
  for (int64_t i = 0; i < t.shape.weight_elements(); ++i) {
    const bool first = offset != 0 && i % in_channels == 0;
    t.weight.push_back(
        __float2half(float(first ? offset / 64 : size * lab::normal(seed + 1000, i))));
  }
  for (int c = 0; c < out_channels; ++c) {
    t.gamma.push_back(float(1 + 0.3 * lab::normal(seed + 2000, c)));
    t.beta.push_back(float(0.3 * lab::normal(seed + 3000, c)));
  }
  return t;
}

// Straight from the formula, in double precision.
std::vector<double> expected_of(const Tensors& t) {
  const ConvNormShape& s = t.shape;
  const int64_t pixels = int64_t(s.height) * s.width;
  std::vector<double> y(s.y_elements()), conv(s.out_channels);
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      double mean = 0, variance = 0;
      for (int m = 0; m < s.out_channels; ++m) {
        conv[m] = 0;
        for (int c = 0; c < s.in_channels; ++c)
          conv[m] += double(t.weight[int64_t(m) * s.in_channels + c]) *
                     double(t.x[(n * s.in_channels + c) * pixels + pixel]);
        mean += conv[m] / s.out_channels;
      }
      for (const double value : conv) variance += (value - mean) * (value - mean) / s.out_channels;
      for (int m = 0; m < s.out_channels; ++m)
        y[(n * s.out_channels + m) * pixels + pixel] = std::fmax(
            0, double(t.gamma[m]) * (conv[m] - mean) / std::sqrt(variance + double(s.eps)) +
                   double(t.beta[m]));
    }
  return y;
}

Case of(const Tensors& t, const std::vector<double>& expected) {
  const ConvNormShape& s = t.shape;
  Case result;
  result.name = describe(s);
  result.dims = {s.batch, s.out_channels, s.height, s.width};
  result.arguments = {input("x", t.x),
                      input("weight", t.weight),
                      input("gamma", t.gamma),
                      input("beta", t.beta),
                      output("y"),
                      value(s)};
  // y is rounded to fp16 by up to 2^-11 of itself. A convolution of 1024 has 2^-14 of rounding for
  // each of its summands, with alternating signs, and deviations of 1: 2^-10 is 16 of them.
  result.tolerance = {.atol = 0x1p-10, .rtol = 0x1p-10, .relative_l2 = 1e-3};
  result.expected = expected;
  return result;
}

Case layer_norm(int batch, int in_channels, int out_channels, int height, int width, uint64_t seed,
                double offset = 0) {
  const Tensors t = random_problem(batch, in_channels, out_channels, height, width, seed, offset);
  Case result = of(t, expected_of(t));
  const int pixels = height * width;
  if (offset != 0) result.name += ", around " + std::to_string(int(offset));
  result.hint_not_finite =
      "NaN or infinity is computed: a variance below 0, or eps forgotten where it is 0?";
  result.hint =
      offset != 0 ? "the mean is large here: squares of the values themselves lose the deviations"
      : out_channels == 1 ? "one channel: its mean is itself, the variance 0, and y is relu(beta)"
      : out_channels < 128
          ? "fewer than 128 channels: some warps have fewer than 16, or none. Are channels that do "
            "not exist in the sums, and by which number is divided? And the last block has fewer "
            "than 64 pixels"
      : pixels % 64 ? "the last block has fewer than 64 pixels"
                    : "full tiles: are the sums of all eight warps in the mean?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {
      layer_norm(1, 1, 1, 1, 1, 1),        layer_norm(1, 3, 16, 1, 5, 2),
      layer_norm(1, 16, 128, 8, 8, 3),     layer_norm(2, 17, 33, 5, 13, 4),
      layer_norm(3, 5, 100, 2, 2, 5),      layer_norm(1, 40, 7, 3, 43, 6),
      layer_norm(1, 9, 64, 9, 7, 7, 1024), layer_norm(2, 33, 48, 5, 5, 8, -768),
      layer_norm(2, 65, 112, 14, 14, 9),   layer_norm(1, 48, 128, 17, 23, 10, 512)};
  return all;
}

// 4 blocks of 64 pixels each.
constexpr double kIn = 64, kOut = 96, kPixels = 256, kBlocks = 4;
Case measured() { return layer_norm(1, int(kIn), int(kOut), 16, 16, 11); }

const std::vector<Aim> kAims = {
    {"bytes of all stores: only y, once", 15, Aim::exactly, kOut* kPixels * 2,
     [](const Counters& c) { return c.stored(); },
     "the convolution stays in registers until it is normalized", Aim::bytes},
    {"kernels that are launched: one", 5, Aim::exactly, 1,
     [](const Counters& c) { return c.launches(); },
     "the block that computes a pixel's channels has all that their mean needs"},
    {"bytes of x that are loaded: once", 10, Aim::at_most, kIn* kPixels * 2,
     [](const Counters& c) { return c.bytes("x", "load"); },
     "a tile of x in shared memory serves all output channels", Aim::bytes, kIn* kPixels * 2},
    {"bytes of memory of your own that are loaded", 5, Aim::exactly, 0,
     [](const Counters& c) { return c.bytes(kScratch, "load"); },
     "what a block computed itself it need not load", Aim::bytes},
    {"bytes of the weights that are loaded: once for 64 pixels", 5, Aim::at_most,
     kBlocks* kIn* kOut * 2, [](const Counters& c) { return c.bytes("weight", "load"); },
     "a tile of weights in shared memory serves all 64 pixels", Aim::bytes, kIn* kOut * 2},
    {"sectors moved / needed, loads of x", 5, Aim::at_most, 1.02,
     [](const Counters& c) { return c.moved_over_needed("x", "load", kIn * kOut * kPixels * 2); },
     "neighbouring lanes must load neighbouring pixels"},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.02,
     [](const Counters& c) { return c.bank_conflict_share(kIn * kOut * kPixels); },
     "what lanes of a warp touch at a time is one word, or in different banks", Aim::share},
};

// ---- task2.cuh ----------------------------------------------------------------------------------

// How x is made: normal values; some steps of fp16 around 64 or -64, so that the convolution has a
// mean of about 576 and a deviation of 0.8; or one number everywhere.
enum Values { kNormal, kAround64, kAroundMinus64, kFlat };

Tensors depthwise_problem(int batch, int channels, int height, int width, uint64_t seed,
                          Values values) {
  Tensors t;
  t.shape = {.batch = batch,
             .in_channels = channels,
             .out_channels = channels,
             .height = height,
             .width = width,
             .padding = Padding::kReflect};
  const bool large = values == kAround64 || values == kAroundMinus64;
  for (int64_t i = 0; i < t.shape.x_elements(); ++i) {
    const double normal = lab::normal(seed, i);
    t.x.push_back(__float2half(float(values == kFlat ? 0.5
                                     : large ? (values == kAround64 ? 64 : -64) + 0.25 * normal
                                             : normal)));
  }
  for (int i = 0; i < channels * 9; ++i) {
    const double normal = lab::normal(seed + 1000, i);
    t.weight.push_back(__float2half(float(large ? 1 + 0.3 * normal : normal / 3)));
  }
  for (int c = 0; c < channels; ++c) {
    t.gamma.push_back(float(1 + 0.3 * lab::normal(seed + 2000, c)));
    t.beta.push_back(float(0.3 + 0.3 * lab::normal(seed + 3000, c)));
  }
  return t;
}

// Straight from the formula, in double precision.
std::vector<double> depthwise_expected(const Tensors& t) {
  const ConvNormShape& s = t.shape;
  const int height = s.height, width = s.width, pixels = height * width;
  const auto mirrored = [](int i, int size) {
    return i < 0 ? -i : i >= size ? 2 * size - 2 - i : i;
  };
  std::vector<double> y, conv(pixels);
  for (int64_t plane = 0; plane < s.planes(); ++plane) {
    const int64_t channel = plane % s.in_channels;
    double mean = 0, variance = 0;
    for (int row = 0; row < height; ++row)
      for (int column = 0; column < width; ++column) {
        double sum = 0;
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j)
            sum += double(t.weight[channel * 9 + i * 3 + j]) *
                   double(t.x[plane * pixels + mirrored(row + i - 1, height) * width +
                              mirrored(column + j - 1, width)]);
        conv[row * width + column] = sum;
        mean += sum / pixels;
      }
    for (const double value : conv) variance += (value - mean) * (value - mean) / pixels;
    for (const double value : conv)
      y.push_back(std::fmax(
          0, double(t.gamma[channel]) * (value - mean) / std::sqrt(variance + double(s.eps)) +
                 double(t.beta[channel])));
  }
  return y;
}

Case depthwise(int batch, int channels, int height, int width, uint64_t seed,
               Values values = kNormal) {
  const Tensors t = depthwise_problem(batch, channels, height, width, seed, values);
  // The tolerance of the first task holds here, too: a convolution of 576 rounds each of its 9
  // summands by up to 2^-15, and has a deviation of 0.8.
  Case result = of(t, depthwise_expected(t));
  result.name = "[batch " + std::to_string(batch) + ", channels " + std::to_string(channels) +
                ", " + std::to_string(height) + "x" + std::to_string(width) + "]";
  if (values == kAround64) result.name += ", x around 64";
  if (values == kAroundMinus64) result.name += ", x around -64";
  if (values == kFlat) result.name += ", x the same everywhere";
  result.hint_not_finite =
      "NaN or infinity is computed: a variance below 0, or eps forgotten where it is 0?";
  result.hint =
      values == kFlat
          ? "all pixels are alike, so are all convolutions: the variance is 0, and y is "
            "relu(beta)"
      : values != kNormal
          ? "the mean is large here: squares of the values themselves lose the deviations"
      : height == 2 || width == 2 ? "2 rows or columns: what is mirrored on either side is the "
                                    "same one. Is the population's "
                                    "variance taken, a mean over all pixels?"
      : batch * channels > 1
          ? "several planes: are x, y, weight, gamma and beta those of this image and channel? And "
            "is "
            "the picture mirrored at its outermost pixel, which does not appear twice?"
          : "one plane: are all its pixels in the mean, and is all of it there before it is read?";
  return result;
}

std::vector<Case> depthwise_cases() {
  std::vector<Case> all = {depthwise(1, 1, 2, 2, 1),
                           depthwise(1, 2, 2, 5, 2),
                           depthwise(1, 3, 5, 13, 3),
                           depthwise(2, 1, 7, 3, 4),
                           depthwise(3, 2, 16, 16, 5),
                           depthwise(1, 5, 17, 9, 6),
                           depthwise(1, 2, 9, 33, 7, kAround64),
                           depthwise(2, 1, 30, 41, 8, kAroundMinus64),
                           depthwise(1, 2, 6, 7, 9, kFlat),
                           depthwise(1, 1, 2, 300, 10)};
  all.push_back(depthwise(1, 2, 128, 128, 11));
  all.push_back(depthwise(1, 1, 127, 129, 12, kAround64));
  return all;
}

// 6 planes of 56 x 56 pixels.
constexpr double kPlaneBytes = 2 * 3 * 56 * 56 * 2;  // x's, or y's
Case depthwise_measured() { return depthwise(2, 3, 56, 56, 13); }

// NaN, which reaches no aim, where less is brought to shared memory than x once.
double conflicts_of_planes(const Counters& c) {
  constexpr double kWavefront = 128;  // bytes
  const double brought = c.sum("/shared/store/ideal") * kWavefront + c.sum("/async_copied_bytes");
  // Each of three passes may compute the convolution again.
  return brought >= kPlaneBytes ? c.bank_conflict_share(3 * 9 * kPlaneBytes / 2) : NAN;
}

const std::vector<Aim> kDepthwiseAims = {
    {"bytes of all stores: only y, once", 15, Aim::exactly, kPlaneBytes,
     [](const Counters& c) { return c.stored(); },
     "the convolution stays on chip until it is normalized, or is computed again", Aim::bytes},
    {"kernels that are launched: one", 5, Aim::exactly, 1,
     [](const Counters& c) { return c.launches(); },
     "the block that has a plane has all that its mean needs"},
    {"bytes of x that are loaded: once", 15, Aim::at_most, kPlaneBytes,
     [](const Counters& c) { return c.bytes("x", "load"); },
     "a plane in shared memory serves the neighbours of all its pixels, as often as they are "
     "needed",
     Aim::bytes, kPlaneBytes},
    {"bytes of memory of your own that are loaded", 5, Aim::exactly, 0,
     [](const Counters& c) { return c.bytes(kScratch, "load"); },
     "what a block computed itself it need not load", Aim::bytes},
    {"sectors moved / needed, loads of x", 5, Aim::at_most, 1.02,
     [](const Counters& c) { return c.moved_over_needed("x", "load", 3 * 9 * kPlaneBytes); },
     "neighbouring lanes must load neighbouring pixels"},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.05,
     conflicts_of_planes,
     "keep x in shared memory; neighbouring lanes should read neighbouring pixels there, too",
     Aim::share},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 8: layer norm behind a 1x1 convolution",
        .folder = "chapters/08_fused_conv_norm",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const half*, const half*, const float*, const float*, half*, "
                      "const ConvNormShape&, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "conv_layer_norm",
        .unwritten_hint = "has each pixel and each output channel a lane that stores it, in the "
                          "last block and in the last warp too?"},
       {.title = "Exercise 8, from an empty function: the norm of a convolution of each channel",
        .folder = "chapters/08_fused_conv_norm",
        .file = "task2.cuh",
        .solution = "solution2.cuh",
        .name_space = "exercise",
        .parameters = "const half*, const half*, const float*, const float*, half*, "
                      "const ConvNormShape&, cudaStream_t",
        .cases = depthwise_cases,
        .measured = depthwise_measured,
        .aims = kDepthwiseAims,
        .function = "depthwise_norm",
        .unwritten_hint = "has each pixel of each plane a lane that stores it, in planes that are "
                          "larger than a block too?"}});
}
