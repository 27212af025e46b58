#include "problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "reference.h"

namespace patch_embedding {
namespace {

// Of ImageNet's photos, by colour: what networks trained on it expect to be taken off and divided by.
constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};

std::vector<half> normals(uint64_t stream, int64_t count, double deviation) {
  std::vector<half> values(count);
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i)
    values[i] = __float2half(float(deviation * lab::normal(stream, uint64_t(i))));
  return values;
}

void fill_weights(Problem& problem, uint64_t seed) {
  const Shape& shape = problem.shape;
  problem.weight = normals(8 * seed, shape.weight_values(), 1 / std::sqrt(double(kPatchValues)));
  problem.bias = normals(8 * seed + 1, shape.channels, 0.1);
  problem.class_token = normals(8 * seed + 2, shape.channels, 0.02);
  problem.position = normals(8 * seed + 3, int64_t(shape.rows()) * shape.channels, 0.02);
}

}  // namespace

Problem photo_problem(const lab::Image& photo, int size, int batch, int channels, uint64_t seed) {
  Problem problem;
  problem.shape = {batch, size, size, channels};
  require_shape(problem.shape, whole(problem.shape));
  problem.photo = lab::square(photo, size);
  problem.image.resize(problem.shape.image_values());
  for (int i = 0; i < batch; ++i)
    for (int color = 0; color < kColors; ++color)
      for (int y = 0; y < size; ++y)
        for (int x = 0; x < size; ++x) {
          const int column = i % 2 == 0 ? x : size - 1 - x;
          const float value = problem.photo.rgb[(size_t(y) * size + column) * 3 + color] / 255.0f;
          problem.image[((size_t(i) * kColors + color) * size + y) * size + x] =
              __float2half((value - kMean[color]) / kDeviation[color]);
        }
  fill_weights(problem, seed);
  return problem;
}

Problem random_problem(const Shape& shape, uint64_t seed) {
  require_shape(shape, whole(shape));
  Problem problem;
  problem.shape = shape;
  problem.source = lab::format("random, seed %llu", static_cast<unsigned long long>(seed));
  problem.image = normals(8 * seed + 4, shape.image_values(), 1);
  fill_weights(problem, seed);
  return problem;
}

std::vector<double> expected_tokens(const Problem& problem, const Part& part) {
  std::vector<double> tokens(int64_t(part.images) * (1 + part.patches) * part.channels);
  reference::patch_embedding(
      lab::to_float(problem.image).data(), lab::to_float(problem.weight).data(),
      lab::to_float(problem.bias).data(), lab::to_float(problem.class_token).data(),
      lab::to_float(problem.position).data(), problem.shape, part, tokens.data());
  return tokens;
}

std::vector<half> tokens_in_part(const half* tokens, const Shape& shape, const Part& part) {
  std::vector<half> result;
  for (int i = 0; i < part.images; ++i)
    for (int row = 0; row <= part.patches; ++row) {
      const half* const from = tokens + (int64_t(i) * shape.rows() + row) * shape.channels;
      result.insert(result.end(), from, from + part.channels);
    }
  return result;
}

lab::Tolerance tokens_tolerance(const std::vector<double>& expected) {
  double most = 0;
  for (const double value : expected) most = std::max(most, std::abs(value));
  lab::Tolerance tolerance = lab::Tolerance::fp32_sum(kPatchValues + 1, most);
  tolerance.rtol = 0x1p-10;  // twice the rounding to fp16
  tolerance.relative_l2 = 1e-3;
  return tolerance;
}

std::vector<int64_t> part_dims(const Part& part) {
  return {part.images, 1 + part.patches, part.channels};
}

lab::Image draw_likeness(const Problem& problem, const half* tokens, int patch) {
  const Shape& shape = problem.shape;
  const auto content = [&](int p, int c) {
    const int64_t at = int64_t(1 + p) * shape.channels + c;
    return double(__half2float(tokens[at])) - double(__half2float(problem.position[at]));
  };
  std::vector<double> alike(shape.patches()), size(shape.patches());
  for (int p = 0; p < shape.patches(); ++p)
    for (int c = 0; c < shape.channels; ++c) {
      alike[p] += content(p, c) * content(patch, c);
      size[p] += content(p, c) * content(p, c);
    }
  const double own = size[patch];
  for (int p = 0; p < shape.patches(); ++p)
    alike[p] = own * size[p] > 0 ? alike[p] / std::sqrt(own * size[p]) : 0;
  lab::Image picture{2 * shape.width, shape.height, {}};
  picture.rgb.resize(size_t(picture.width) * picture.height * 3);
  for (int y = 0; y < shape.height; ++y)
    for (int x = 0; x < shape.width; ++x) {
      const int p = y / kSide * shape.patch_columns() + x / kSide;
      for (int color = 0; color < 3; ++color) {
        unsigned char* const line = &picture.rgb[size_t(y) * picture.width * 3];
        line[x * 3 + color] = problem.photo.rgb[(size_t(y) * shape.width + x) * 3 + color];
        const bool chosen = p == patch && color > 0;  // the patch itself is red
        line[(shape.width + x) * 3 + color] =
            static_cast<unsigned char>(chosen ? 0 : 255 * std::clamp(alike[p], 0.0, 1.0));
      }
    }
  return picture;
}

// ---- Memory -------------------------------------------------------------------------------------

Pinned::Pinned(size_t values) : size_(values) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, std::max<size_t>(1, values) * sizeof(half)) != cudaSuccess) {
    cudaGetLastError();
    throw lab::LackError("out of pinned host memory: " +
                         lab::human_bytes(double(values) * sizeof(half)) + " were asked for");
  }
  data_ = static_cast<half*>(memory);
}
Pinned::Pinned(const std::vector<half>& values) : Pinned(values.size()) {
  std::copy(values.begin(), values.end(), data_);
}
Pinned::~Pinned() {
  if (data_) cudaFreeHost(data_);
}
void Pinned::fill_nan() { std::memset(static_cast<void*>(data_), 0xff, size_ * sizeof(half)); }

HostArrays::HostArrays(const Problem& problem, const Part& largest)
    : image(problem.image),
      weight(problem.weight),
      bias(problem.bias),
      class_token(problem.class_token),
      position(problem.position),
      tokens(size_t(problem.shape.token_values())),
      patches(size_t(largest.images) * largest.patches * kPatchValues),
      answers(size_t(largest.outputs())) {}

}  // namespace patch_embedding
