// Problems of an MLP: random ones, and a photo's patches as tokens; what is expected of them.
#include "problem.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "reference.h"

namespace lab {
namespace {

constexpr int kPatch = 16, kPatchValues = 3 * kPatch * kPatch;
constexpr int kMostCompared = 256;  // rows

void fill(std::vector<float>& values, int64_t count, uint64_t stream, double size) {
  values.resize(count);
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) values[i] = float(size * normal(stream, uint64_t(i)));
}

void fill_weights(MlpProblem& p, uint64_t seed) {
  const int64_t width = p.sizes.width, hidden = p.sizes.hidden;
  fill(p.w1, hidden * width, seed * 8 + 1, 1 / std::sqrt(double(width)));
  fill(p.b1, hidden, seed * 8 + 2, 0.25);
  fill(p.w2, width * hidden, seed * 8 + 3, 1 / std::sqrt(double(hidden)));
  fill(p.b2, width, seed * 8 + 4, 0.25);
}

// Mean 0 and deviation 1, or zeros where all values are the same.
void standardize(const double* values, int count, float* result) {
  double mean = 0, squares = 0;
  for (int i = 0; i < count; ++i) mean += values[i] / count;
  for (int i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean) / count;
  const double factor = squares > 1e-12 ? 1 / std::sqrt(squares) : 0;
  for (int i = 0; i < count; ++i) result[i] = float((values[i] - mean) * factor);
}

}  // namespace

std::string describe(const MlpSizes& sizes) {
  return format("[batch %d, tokens %d, width %d, hidden %d]", sizes.batch, sizes.tokens,
                sizes.width, sizes.hidden);
}

MlpProblem random_mlp(const MlpSizes& sizes, uint64_t seed) {
  MlpProblem p;
  p.sizes = sizes;
  p.source = format("random, seed %llu", static_cast<unsigned long long>(seed));
  fill(p.x, int64_t(sizes.rows()) * sizes.width, seed * 8, 1);
  fill_weights(p, seed);
  return p;
}

MlpProblem photo_mlp(const Image& photo, int size, int batch, uint64_t seed) {
  if (size < kPatch || size % kPatch != 0)
    throw UsageError(format("--size %d: must be a multiple of 16 pixels", size));
  MlpProblem p;
  p.photo = square(photo, size);
  require_not_flat(p.photo);
  const int grid = size / kPatch;
  p.sizes = {batch, 1 + grid * grid, kPatchValues, 4 * kPatchValues};
  p.x.resize(int64_t(p.sizes.rows()) * kPatchValues);
#pragma omp parallel for
  for (int image = 0; image < batch; ++image) {
    const uint64_t offset = image ? random_bits(seed, uint64_t(image)) : 0;
    const int shift_y = int(offset % uint64_t(size)),
              shift_x = int((offset >> 32) % uint64_t(size));
    std::vector<double> values(size_t(p.sizes.tokens) * kPatchValues, 0.0);
    for (int token = 1; token < p.sizes.tokens; ++token)
      for (int i = 0; i < kPatchValues; ++i) {  // in the order (channel, row, column)
        const int c = i / (kPatch * kPatch), y = i / kPatch % kPatch, x = i % kPatch;
        const int row = ((token - 1) / grid * kPatch + y + shift_y) % size;
        const int column = ((token - 1) % grid * kPatch + x + shift_x) % size;
        const double value = p.photo.rgb[(size_t(row) * size + column) * 3 + c] / 255.0;
        values[size_t(token) * kPatchValues + i] = value;
        values[i] += value / (p.sizes.tokens - 1);
      }
    for (int token = 0; token < p.sizes.tokens; ++token)
      standardize(&values[size_t(token) * kPatchValues], kPatchValues,
                  &p.x[(int64_t(image) * p.sizes.tokens + token) * kPatchValues]);
  }
  fill_weights(p, seed);
  return p;
}

MlpSizes preset_mlp(const std::string& name) {
  if (name == "tiny") return {1, 197, 192, 768};
  if (name == "base") return {1, 197, 768, 3072};
  if (name == "ffn512") return {8, 1024, 512, 2048};
  if (name == "ffn768") return {4, 2048, 768, 3072};
  if (name == "ffn1024") return {2, 4096, 1024, 4096};
  throw UsageError("--preset '" + name + "': must be tiny, base, ffn512, ffn768 or ffn1024");
}

MlpProblem rounded_to_fp16(MlpProblem p) {
  for (const auto& [name, values] :
       {std::pair("x", &p.x), {"w1", &p.w1}, {"b1", &p.b1}, {"w2", &p.w2}, {"b2", &p.b2}})
    for (size_t i = 0; i < values->size(); ++i) {
      float& value = (*values)[i];
      if (!(std::abs(value) <= 65504))
        throw UsageError(format("element %zu of %s is %g, fp16 ends at 65504 (--storage fp32)", i,
                                name, double(value)));
      value = __half2float(__float2half_rn(value));
    }
  return p;
}

Image draw_hidden(const Image& photo, const MlpSizes& sizes, const std::vector<float>& hidden) {
  const int size = photo.width, grid = size / kPatch, half = size / 2, gap = 4;
  const int zoom = std::max(1, 448 / size), side = half * zoom;
  if (photo.height != size || sizes.tokens != 1 + grid * grid ||
      int64_t(hidden.size()) < int64_t(sizes.tokens) * sizes.hidden || sizes.hidden < 8)
    throw std::invalid_argument("draw_hidden: photo and hidden units do not fit");
  Image picture{size * zoom + 4 * (side + gap), 2 * side + gap, {}};
  picture.rgb.assign(size_t(picture.width) * picture.height * 3, 255);
  const auto pixel = [&](int row, int column) {
    return &picture.rgb[(size_t(row) * picture.width + column) * 3];
  };
  for (int row = 0; row < picture.height; ++row)
    for (int column = 0; column < size * zoom; ++column)
      std::copy_n(&photo.rgb[(size_t(std::min(row / zoom, size - 1)) * size + column / zoom) * 3],
                  3, pixel(row, column));
  for (int panel = 0; panel < 8; ++panel) {
    const int unit = int(int64_t(panel) * sizes.hidden / 8);
    const auto at = [&](int token) { return hidden[int64_t(token) * sizes.hidden + unit]; };
    float most = 1e-6f;
    for (int token = 1; token < sizes.tokens; ++token) most = std::max(most, at(token));
    const int top = panel / 4 * (side + gap), left = size * zoom + gap + panel % 4 * (side + gap);
    for (int row = 0; row < side; ++row)
      for (int column = 0; column < side; ++column) {
        const int token = 1 + row * grid / side * grid + column * grid / side;
        const double bright = std::sqrt(std::clamp(double(at(token) / most), 0.0, 1.0));
        std::fill_n(pixel(top + row, left + column), 3, static_cast<unsigned char>(255 * bright));
      }
  }
  return picture;
}

// ---- What is expected ---------------------------------------------------------------------------

std::vector<int> compared_rows(const MlpSizes& sizes) {
  std::vector<int> rows;
  if (sizes.rows() <= 2 * kMostCompared) {
    for (int row = 0; row < sizes.rows(); ++row) rows.push_back(row);
    return rows;
  }
  // One of each stretch, at another place in each: no tile's rows are all left out for long.
  for (int i = 0; i < kMostCompared; ++i) {
    const int64_t first = int64_t(sizes.rows()) * i / kMostCompared,
                  last = int64_t(sizes.rows()) * (i + 1) / kMostCompared;
    rows.push_back(int(first + int64_t(random_bits(1, uint64_t(i)) % uint64_t(last - first))));
  }
  rows.front() = 0, rows.back() = sizes.rows() - 1;
  return rows;
}

Tolerance product_tolerance(const mlp::Shape& shape, Storage storage, double sizes,
                            double largest) {
  const double gelu = shape.gelu ? 1.13 : 1;
  Tolerance t;
  t.atol = gelu * (double(shape.k) / 4 * 0x1p-23 * sizes);
  if (storage == Storage::kFp16) {
    t.atol += gelu * 0x1p-11 * largest + 0x1p-25;
    t.rtol = 0x1p-11;
    t.relative_l2 = 1e-3;
  } else {
    // Roundings are independent: of k products 6 deviations of their sum, with 2^-10 / sqrt(3)
    // each.
    t.atol += gelu * 6 * 0x1p-10 / std::sqrt(3.0) * sizes / std::sqrt(double(shape.k)) * 1.5;
    t.rtol = 0x1p-24;
    t.relative_l2 = 1e-3;
  }
  return t;
}

MlpExpected expected_mlp(const MlpProblem& p, Storage storage) {
  MlpExpected e;
  e.rows = compared_rows(p.sizes);
  const MlpSizes& s = p.sizes;
  reference::MlpRows rows = reference::mlp(
      {p.x.data(), p.w1.data(), p.b1.data(), p.w2.data(), p.b2.data(), s.rows(), s.width, s.hidden},
      e.rows);
  // The sums of |x| |weight| by Cauchy and Schwarz: |x| |weight|, the largest of each.
  const auto length = [](const auto& values, size_t row, int count) {
    double squares = 0;
    for (int i = 0; i < count; ++i) squares += std::pow(double(values[row * count + i]), 2);
    return std::sqrt(squares);
  };
  double x = 0, w1 = 0, w2 = 0, hidden = 0, squares = 0;
  for (const int row : e.rows) x = std::max(x, length(p.x, size_t(row), s.width));
  for (int row = 0; row < s.hidden; ++row) w1 = std::max(w1, length(p.w1, size_t(row), s.width));
  for (int row = 0; row < s.width; ++row) w2 = std::max(w2, length(p.w2, size_t(row), s.hidden));
  for (size_t row = 0; row < e.rows.size(); ++row)
    hidden = std::max(hidden, length(rows.hidden, row, s.hidden));
  for (size_t i = 0; i < rows.sums.size(); ++i)
    squares += rows.sums[i] * rows.sums[i] / double(rows.sums.size());
  const double largest_sum = std::max(max_abs(rows.sums), max_abs(rows.y));
  e.first = product_tolerance(s.first(), storage, x * w1, max_abs(rows.sums));
  e.second = product_tolerance(s.second(), storage, hidden * w2, largest_sum);
  // Errors of the hidden numbers are independent roundings, of about 2^-11 (fp16: twice) of the
  // sums; y has them times w2: 6 deviations of that.
  const double of_hidden =
      (storage == Storage::kFp16 ? 2 : 4) * 0x1p-11 / std::sqrt(3.0) * std::sqrt(squares) * 1.13;
  e.y_tolerance = e.second;
  e.y_tolerance.atol += 6 * of_hidden * w2;
  e.y_tolerance.relative_l2 += 0x1p-10;
  e.hidden = std::move(rows.hidden);
  e.y = std::move(rows.y);
  return e;
}

Cost mlp_cost(const MlpSizes& sizes, Storage storage) {
  const double bytes = storage == Storage::kFp16 ? 2 : 4;
  const double tokens = sizes.rows(), width = sizes.width, hidden = sizes.hidden;
  return {.bytes = bytes * (2 * tokens * width + 2 * width * hidden + width + hidden),
          .flops = 4 * tokens * width * hidden,
          .tensor_cores = true,
          .tensor_rate = storage == Storage::kFp16 ? 1 : 0.5};
}

Comparison compare_output(const std::vector<float>& y, const MlpExpected& expected, int width) {
  if (expected.rows.empty()) return Comparison::none();
  std::vector<float> rows;
  for (const int row : expected.rows)
    rows.insert(rows.end(), y.begin() + int64_t(row) * width, y.begin() + int64_t(row + 1) * width);
  return compare(rows, expected.y, expected.y_tolerance, {int64_t(expected.rows.size()), width});
}

// ---- On the device ------------------------------------------------------------------------------

std::vector<float> MlpOnDevice::hidden() const {
  return fp16 ? to_float(fp16->hidden.download()) : fp32->hidden.download();
}
std::vector<float> MlpOnDevice::y() const {
  return fp16 ? to_float(fp16->y.download()) : fp32->y.download();
}
void MlpOnDevice::fill_results_with_nan() {
  if (fp16) fp16->y.fill_nan(), fp16->hidden.fill_nan();
  if (fp32) fp32->y.fill_nan(), fp32->hidden.fill_nan();
}

std::vector<MlpOnDevice> upload(const MlpProblem& p, Storage storage, int copies) {
  std::vector<MlpOnDevice> all;
  const auto arrays = [&]<class Element>(const std::string& copy, const auto& converted) {
    const size_t rows = size_t(p.sizes.rows());
    MlpOf<Element> of{DeviceArray<Element>(converted(p.x), "x" + copy),
                      DeviceArray<Element>(converted(p.w1), "w1" + copy),
                      DeviceArray<Element>(converted(p.b1), "b1" + copy),
                      DeviceArray<Element>(converted(p.w2), "w2" + copy),
                      DeviceArray<Element>(converted(p.b2), "b2" + copy),
                      DeviceArray<Element>(rows * p.sizes.hidden, "hidden" + copy),
                      DeviceArray<Element>(rows * p.sizes.width, "y" + copy)};
    of.hidden.fill_nan();
    of.y.fill_nan();
    return of;
  };
  const auto to_half = [](const std::vector<float>& values) {
    std::vector<half> result(values.size());
    for (size_t i = 0; i < values.size(); ++i) result[i] = __float2half_rn(values[i]);
    return result;
  };
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    MlpOnDevice one;
    if (storage == Storage::kFp16)
      one.fp16.emplace(arrays.template operator()<half>(copy, to_half));
    else
      one.fp32.emplace(arrays.template operator()<float>(
          copy,
          [](const std::vector<float>& values) -> const std::vector<float>& { return values; }));
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace lab
