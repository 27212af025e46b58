// Problems of LayerNorm: random ones and a photo's patches; and how near a result must be.
#include "problem.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/compare.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "reference.h"

namespace lab {

using layer_norm::Shape;

namespace {

constexpr int kPatch = 16;         // pixels a side
constexpr int kPatchValues = 768;  // 3 x 16 x 16
constexpr double kShown = 3;       // of normalized values: -3 is black, 3 white

double unit_of(Storage storage) { return storage == Storage::kFp16 ? 0x1p-11 : 0x1p-24; }

std::vector<double> normals(uint64_t seed, int64_t count, double mean, double deviation,
                            Storage storage) {
  std::vector<double> values(count);
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i)
    values[i] = stored(mean + deviation * normal(seed, uint64_t(i)), storage);
  return values;
}

// All but x.
void fill_others(LayerNormProblem& problem, uint64_t seed) {
  const Shape& shape = problem.shape;
  problem.residual = normals(seed * 8 + 1, shape.elements(), 0, 0.5, problem.storage);
  problem.dy = normals(seed * 8 + 2, shape.elements(), 0, 1, problem.storage);
  problem.scale = normals(seed * 8 + 3, shape.columns, 1, 0.25, problem.storage);
  problem.bias = normals(seed * 8 + 4, shape.columns, 0, 0.25, problem.storage);
}

std::string source_of(const std::string& what, double mean) {
  return mean == 0 ? what : what + format(", %g added", mean);
}

}  // namespace

double stored(double value, Storage storage) {
  return storage == Storage::kFp16 ? double(__half2float(__float2half(float(value))))
                                   : double(float(value));
}

LayerNormProblem random_layer_norm(const Shape& shape, Storage storage, uint64_t seed,
                                   double mean) {
  require_shape(shape);
  LayerNormProblem problem;
  problem.shape = shape;
  problem.storage = storage;
  problem.source =
      source_of(format("random, seed %llu", static_cast<unsigned long long>(seed)), mean);
  problem.x.resize(shape.elements());
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows; ++row) {
    const double deviation = std::exp2(4 * uniform(seed * 8 + 5, uint64_t(row)) - 2);
    for (int64_t i = row * shape.columns; i < (row + 1) * shape.columns; ++i)
      problem.x[i] = stored(mean + deviation * normal(seed * 8, uint64_t(i)), storage);
  }
  fill_others(problem, seed);
  return problem;
}

LayerNormProblem photo_layer_norm(const Image& photo, int size, int batch, Storage storage,
                                  uint64_t seed, double mean) {
  if (size < kPatch || size % kPatch != 0)
    throw UsageError(format("--size '%d': must be a multiple of 16 pixels", size));
  LayerNormProblem problem;
  problem.photo = square(photo, size);
  problem.storage = storage;
  const int grid = problem.grid = size / kPatch, tokens = grid * grid + 1;
  problem.shape = {batch * tokens, kPatchValues, 1e-6f};
  problem.source = source_of(format("%d photo%s of %d x %d pixels, %d rows each: a class token and "
                                    "%d patches",
                                    batch, batch == 1 ? "" : "s, all but the first shifted,", size,
                                    size, tokens, tokens - 1),
                             mean);
  problem.x.assign(problem.shape.elements(), 0);
#pragma omp parallel for
  for (int image = 0; image < batch; ++image) {
    const uint64_t offset = image ? random_bits(seed, uint64_t(image)) : 0;
    const int shift_y = int(offset % uint64_t(size)),
              shift_x = int((offset >> 32) % uint64_t(size));
    double* const tokens_of_image = &problem.x[int64_t(image) * tokens * kPatchValues];
    std::vector<double> class_token(kPatchValues, 0.0);
    for (int token = 1; token < tokens; ++token)
      for (int i = 0; i < kPatchValues; ++i) {
        const int c = i / (kPatch * kPatch), y = i / kPatch % kPatch, x = i % kPatch;
        const int row = ((token - 1) / grid * kPatch + y + shift_y) % size;
        const int column = ((token - 1) % grid * kPatch + x + shift_x) % size;
        const double value =
            problem.photo.rgb[(size_t(row) * size + column) * 3 + c] / 127.5 - 1 + mean;
        tokens_of_image[int64_t(token) * kPatchValues + i] = stored(value, storage);
        class_token[i] += value / (tokens - 1);
      }
    for (int i = 0; i < kPatchValues; ++i) tokens_of_image[i] = stored(class_token[i], storage);
  }
  fill_others(problem, seed);
  return problem;
}

Image draw_normalized(const LayerNormProblem& problem, const std::vector<float>& y) {
  const int size = problem.photo.width, grid = problem.grid;
  constexpr int kGap = 4;  // white pixels between the two
  const int width = 2 * size + kGap;
  Image picture{width, size, std::vector<unsigned char>(size_t(3) * width * size, 255)};
  for (int row = 0; row < size; ++row)
    for (int column = 0; column < size; ++column)
      for (int c = 0; c < 3; ++c) {
        const int token = 1 + row / kPatch * grid + column / kPatch;
        const int i = (c * kPatch + row % kPatch) * kPatch + column % kPatch;
        const double n =
            (double(y[size_t(token) * kPatchValues + i]) - problem.bias[i]) / problem.scale[i];
        const size_t at = (size_t(row) * width + column) * 3 + c;
        picture.rgb[at] = problem.photo.rgb[(size_t(row) * size + column) * 3 + c];
        const double grey = 255 * (0.5 + 0.5 * n / kShown);
        picture.rgb[at + size_t(size + kGap) * 3] =
            (unsigned char)(std::clamp(grey, 0.0, 255.0) + 0.5);
      }
  return picture;
}

// ---- Expected -----------------------------------------------------------------------------------

namespace {

// What a row's sums in fp32 do to a number in it.
struct RowErrors {
  double of_n = 0;    // (x - mean) · factor is off by up to this
  double most_n = 0;  // and that large at most
  double factor = 0;  // of the row
};
constexpr double kUnit = 0x1p-24;
double additions(const Shape& shape) { return shape.columns / 32.0 + 8; }

std::vector<RowErrors> row_errors(const std::vector<double>& x, const Shape& shape) {
  std::vector<double> mean(shape.rows), factor(shape.rows);
  reference::row_moments(x.data(), shape, mean.data(), factor.data());
  std::vector<RowErrors> errors(shape.rows);
  for (int64_t row = 0; row < shape.rows; ++row) {
    double most_x = 0, most_n = 0;
    for (int64_t i = row * shape.columns; i < (row + 1) * shape.columns; ++i) {
      most_x = std::max(most_x, std::abs(x[i]));
      most_n = std::max(most_n, std::abs(x[i] - mean[row]) * factor[row]);
    }
    errors[row] = {
        kUnit * (additions(shape) * most_x * factor[row] + (additions(shape) + 8) * most_n), most_n,
        factor[row]};
  }
  return errors;
}

// An absolute error, then a rounding as it is stored; over all, half of that.
Tolerance rounded_tolerance(double atol, Storage storage, const std::vector<double>& expected) {
  const double unit = unit_of(storage) + 4 * kUnit;
  const double tiny = storage == Storage::kFp16 ? 0x1p-25 : 0;  // below 2^-14 steps are 2^-24
  const double all = l2_norm(expected);
  const double spread = all > 0 ? (atol + tiny) * std::sqrt(double(expected.size())) / all : 0;
  return {atol + tiny, unit, 0.5 * spread + 0.75 * unit};
}

}  // namespace

Tolerance layer_norm_tolerance(const std::vector<double>& x, const std::vector<double>& scale,
                               const std::vector<double>& y, const Shape& shape, Storage storage) {
  double atol = 0;
  for (const RowErrors& row : row_errors(x, shape)) atol = std::max(atol, row.of_n);
  return rounded_tolerance(atol * max_abs(scale), storage, y);
}

namespace {

// dx = factor (g - mean of g - n · mean of g n): each mean is a sum of L roundings of numbers up to
// G = max|g|, n up to N and off by d; |mean of g n| <= G, since n has a mean square of at most 1.
double dx_error(const std::vector<RowErrors>& rows, const LayerNormProblem& problem) {
  const Shape& shape = problem.shape;
  const double sum = (additions(shape) + 8) * kUnit;
  double atol = 0;
  for (int64_t row = 0; row < shape.rows; ++row) {
    double g = 0;
    for (int64_t i = 0; i < shape.columns; ++i)
      g = std::max(g, std::abs(problem.dy[row * shape.columns + i] * problem.scale[i]));
    const RowErrors& e = rows[row];
    const double of_means = sum + e.most_n * (sum + e.of_n);  // mean of g; n · mean of g n
    atol = std::max(atol, e.factor * g * (of_means + e.of_n + 8 * kUnit * (2 + e.most_n)));
  }
  return atol;
}

// Sums over rows: a number meets at most rows + 8 additions, whichever blocks add in which order, and
// each dy · n is off by dy times what n is off.
void set_column_tolerances(const std::vector<RowErrors>& rows, const LayerNormProblem& problem,
                           LayerNormExpected& expected) {
  const Shape& shape = problem.shape;
  const double additions_of_column =
      kUnit * (std::min(shape.rows, 64 / 8) + shape.rows / 64.0 + 16);
  double scale_error = 0, bias_error = 0;
  for (int64_t i = 0; i < shape.columns; ++i) {
    double dy_sum = 0, products = 0, of_n = 0;
    for (int64_t row = 0; row < shape.rows; ++row) {
      const double grad = std::abs(problem.dy[row * shape.columns + i]);
      dy_sum += grad;
      products += grad * rows[row].most_n;
      of_n += grad * rows[row].of_n;
    }
    scale_error = std::max(scale_error, additions_of_column * products + of_n);
    bias_error = std::max(bias_error, additions_of_column * dy_sum);
  }
  expected.for_dscale = rounded_tolerance(scale_error, Storage::kFp32, expected.dscale);
  expected.for_dbias = rounded_tolerance(bias_error, Storage::kFp32, expected.dbias);
}

}  // namespace

LayerNormExpected expected_layer_norm(const LayerNormProblem& problem) {
  const Shape& shape = problem.shape;
  const size_t elements = size_t(shape.elements());
  LayerNormExpected expected;
  const auto forward = [&](const std::vector<double>& x, std::vector<double>& y) {
    y.resize(elements);
    reference::layer_norm(x.data(), problem.scale.data(), problem.bias.data(), shape, y.data());
    return layer_norm_tolerance(x, problem.scale, y, shape, problem.storage);
  };
  expected.for_y = forward(problem.x, expected.y);

  // The sum is rounded once, and what is normalized is the rounded one.
  expected.sum.resize(elements);
  for (size_t i = 0; i < elements; ++i)
    expected.sum[i] = stored(problem.x[i] + problem.residual[i], problem.storage);
  expected.for_sum = {};  // exactly
  expected.for_y_of_sum = forward(expected.sum, expected.y_of_sum);

  expected.dx.resize(elements);
  expected.dscale.resize(shape.columns);
  expected.dbias.resize(shape.columns);
  reference::layer_norm_backward(problem.dy.data(), problem.x.data(), problem.scale.data(), shape,
                                 expected.dx.data(), expected.dscale.data(), expected.dbias.data());
  const std::vector<RowErrors> rows = row_errors(problem.x, shape);
  expected.for_dx = rounded_tolerance(dx_error(rows, problem), problem.storage, expected.dx);
  set_column_tolerances(rows, problem, expected);
  return expected;
}

void require_storage_range(const LayerNormProblem& problem, const LayerNormExpected& expected) {
  if (problem.storage != Storage::kFp16) return;
  const auto require = [](const char* name, const std::vector<double>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      if (!(std::abs(values[i]) <= 65504))
        throw UsageError(
            format("--storage fp16: element %zu of %s is %g, fp16 ends at 65504; "
                   "--storage fp32 has the range",
                   i, name, values[i]));
  };
  require("x", problem.x);
  require("x + residual", expected.sum);
  require("y", expected.y);
  require("dx", expected.dx);
}

Comparison compare_rows(const Values& got, const std::vector<double>& expected,
                        const Tolerance& tolerance, const Shape& shape) {
  if (expected.empty()) return Comparison::none();
  return compare(got, expected, tolerance, {shape.rows, shape.columns});
}

Cost layer_norm_cost(const Shape& shape, Storage storage, int arrays) {
  const double bytes = storage == Storage::kFp16 ? 2 : 4;
  return {bytes * (double(shape.elements()) * arrays + 2.0 * shape.columns),
          8.0 * double(shape.elements())};
}

}  // namespace lab
