// Grades exercise 12, the norm of pooled patches.
#include <cmath>

#include "../../../common/grader/grader.h"
#include "../../../common/lab/random.h"
#include "../shape.h"

namespace {

using namespace lab::grader;
using vision_transformer::NetShape;

// Columns of different size around different means, and a class token that is far from the patches.
struct Tensors {
  NetShape shape;
  std::vector<half> x, scale, bias;  // [batch, tokens, width], [width], [width]
};

Tensors random_problem(int batch, int grid, int width, uint64_t seed, double offset) {
  Tensors t;
  t.shape = {.batch = batch, .size = 16 * grid, .width = width, .epsilon = 1e-3f};
  const int64_t tokens = t.shape.tokens();
  for (int64_t i = 0; i < t.shape.rows() * width; ++i) {
    const int64_t token = i / width % tokens;
    const double of_column = lab::normal(seed + 1000, i % width);
    t.x.push_back(__float2half(
        float(offset + of_column + lab::normal(seed, i) + (token == 0 ? 20 * of_column : 0))));
  }
  for (int c = 0; c < width; ++c) {
    t.scale.push_back(__float2half(float(1 + 0.3 * lab::normal(seed + 2000, c))));
    t.bias.push_back(__float2half(float(0.3 * lab::normal(seed + 3000, c))));
  }
  return t;
}

// Straight from the formula, in double precision.
std::vector<double> expected_of(const Tensors& t) {
  const int64_t width = t.shape.width, tokens = t.shape.tokens();
  std::vector<double> y(t.shape.batch * width), pooled(width);
  for (int64_t b = 0; b < t.shape.batch; ++b) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < width; ++c) {
      pooled[c] = 0;
      for (int64_t token = 1; token < tokens; ++token)
        pooled[c] += double(t.x[(b * tokens + token) * width + c]) / double(tokens - 1);
      mean += pooled[c] / double(width);
    }
    for (const double value : pooled) variance += (value - mean) * (value - mean) / double(width);
    for (int64_t c = 0; c < width; ++c)
      y[b * width + c] =
          (pooled[c] - mean) / std::sqrt(variance + double(t.shape.epsilon)) * double(t.scale[c]) +
          double(t.bias[c]);
  }
  return y;
}

Case pooled(int batch, int grid, int width, uint64_t seed, double offset = 0) {
  const Tensors t = random_problem(batch, grid, width, seed, offset);
  Case result;
  result.name = "[batch " + std::to_string(batch) + ", patches " +
                std::to_string(t.shape.patches()) + ", width " + std::to_string(width) + "]";
  if (offset != 0) result.name += ", x around " + std::to_string(int(offset));
  result.dims = {batch, width};
  result.axes = {"image", "column"};
  result.sizes = {{"batch", batch}, {"patches", t.shape.patches()}, {"width", width}};
  result.arguments = {input("x", t.x), input("scale", t.scale), input("bias", t.bias), output("y"),
                      value(t.shape)};
  // y is rounded to fp16 by up to 2^-11 of itself, twice that is allowed. Sums in fp32 around an
  // offset are off by a few 2^-24 of it, relatively to a deviation of about 1.
  result.tolerance = {.atol = 0x1p-12 + 8 * offset * 0x1p-24, .rtol = 0x1p-10, .relative_l2 = 5e-4};
  result.expected = expected_of(t);
  result.hint =
      offset != 0 ? "the mean is large here against the deviation: is the variance that of the "
                    "differences from the mean?"
      : t.shape.patches() < 4
          ? "few patches: do threads without a patch add nothing, and is the sum divided by the "
            "number of patches, not of tokens?"
      : batch > 1
          ? "several images: does each one begin at its own first patch, and is its class "
            "token left out?"
          : "is the mean taken over the patches first, and the variance over the columns of "
            "that mean?";
  result.hint_not_finite =
      "NaN is computed: is shared memory read that no thread has written, as of a group without "
      "threads?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {pooled(1, 4, 64, 1),  pooled(3, 3, 192, 2),      pooled(2, 1, 256, 3),
                           pooled(1, 5, 40, 4),  pooled(2, 4, 384, 5, 300), pooled(2, 2, 1024, 6),
                           pooled(5, 6, 768, 7), pooled(1, 9, 8, 8),        pooled(3, 14, 192, 9)};
  return all;
}

// Four images of 224 pixels, DeiT-Tiny's width.
constexpr double kBatch = 4, kWidth = 192, kPatches = 196;
constexpr double kOfPatches = kBatch * kPatches * kWidth * 2, kOfY = kBatch * kWidth * 2;
Case measured() { return pooled(int(kBatch), 14, int(kWidth), 10); }

const std::vector<Aim> kAims = {
    {"bytes of all stores: only y, once", 15, Aim::exactly, kOfY,
     [](const Counters& c) { return c.stored(); },
     "the means stay in shared memory until their own mean is known", Aim::bytes},
    {"kernels that are launched: one", 10, Aim::exactly, 1,
     [](const Counters& c) { return c.launches(); },
     "a block that has an image has all that its norm needs"},
    {"bytes of x that are loaded: each patch once", 15, Aim::exactly, kOfPatches,
     [](const Counters& c) { return c.bytes("x", "load"); },
     "a thread adds up its columns of all its patches in registers; token 0 is nobody's",
     Aim::bytes},
    // A block whose threads are no whole warps of pieces has a few requests more.
    {"requests for x", 10, Aim::at_most, std::floor(1.1 * kOfPatches / 512),
     [](const Counters& c) { return c.requests("x", "load"); },
     "a lane can load 8 columns at once, 16 bytes, and the next lane the next 8, of the next patch "
     "where this one ends",
     Aim::number, kOfPatches / 512},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 12, from an empty function: the norm of pooled patches",
        .folder = "chapters/12_vision_transformer",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const half*, const half*, const half*, half*, const "
                      "vision_transformer::NetShape&, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "pooled_norm",
        .unwritten_hint =
            "has each image a block that stores its row, and each column a thread?"}});
}
