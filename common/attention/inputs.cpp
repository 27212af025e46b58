// Inputs that discriminate, photos as tokens, and the attention of one query read off a kernel.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "inputs.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/errors.h"
#include "lab/files.h"
#include "lab/images.h"
#include "lab/random.h"

namespace lab {
namespace {

constexpr int kPatch = 16;         // pixels a side
constexpr int kPatchValues = 768;  // 3 x 16 x 16
constexpr int kHeads = 12, kHeadDim = 64;
constexpr double kLength = 8;  // each (token, head) vector's: scores up to 8 with scale 1/8

// Zero mean and length 8, or zeros where all values are the same.
void normalize(const double* values, half* result) {
  const double mean = std::accumulate(values, values + kHeadDim, 0.0) / kHeadDim;
  double squares = 0;
  for (int d = 0; d < kHeadDim; ++d) squares += (values[d] - mean) * (values[d] - mean);
  const double factor = squares > 1e-12 ? kLength / std::sqrt(squares) : 0;
  for (int d = 0; d < kHeadDim; ++d) result[d] = __float2half(float((values[d] - mean) * factor));
}

}  // namespace

AttentionProblem random_attention(const AttentionShape& shape, uint64_t seed) {
  AttentionProblem problem;
  problem.shape = shape;
  problem.source = format("random, seed %llu", static_cast<unsigned long long>(seed));
  const int64_t tokens = shape.tokens, head_dim = shape.head_dim;
  problem.q.resize(shape.elements());
  problem.k.resize(shape.elements());
  problem.v.resize(shape.elements());
  const uint64_t q_seed = seed * 4, k_seed = q_seed + 1, v_seed = q_seed + 2,
                 order_seed = q_seed + 3;

  // A key has |k|² about head_dim, so the query's own key scores ln(tokens) + 1 where the others
  // score around 0 and add up to about tokens: half of the weight is on the one key.
  const double strength = (std::log(double(tokens)) + 1) / (double(shape.scale) * double(head_dim));
#pragma omp parallel for
  for (int64_t matrix = 0; matrix < shape.matrices(); ++matrix) {
    const int64_t base = matrix * tokens * head_dim;
    for (int64_t i = base; i < base + tokens * head_dim; ++i) {
      problem.k[i] = __float2half(float(normal(k_seed, uint64_t(i))));
      problem.v[i] = __float2half(float(normal(v_seed, uint64_t(i))));
    }
    std::vector<int64_t> own_key(tokens);
    std::iota(own_key.begin(), own_key.end(), 0);
    for (int64_t i = tokens - 1; i > 0; --i)  // Fisher-Yates
      std::swap(own_key[i],
                own_key[random_bits(order_seed, uint64_t(matrix * tokens + i)) % (i + 1)]);
    for (int64_t query = 0; query < tokens; ++query)
      for (int64_t d = 0; d < head_dim; ++d) {
        const int64_t i = base + query * head_dim + d;
        const double key = __half2float(problem.k[base + own_key[query] * head_dim + d]);
        problem.q[i] = __float2half(float(strength * (key + 0.5 * normal(q_seed, uint64_t(i)))));
      }
  }
  return problem;
}

AttentionProblem photo_attention(const Image& photo, int size, int batch, uint64_t seed) {
  if (size < kPatch || size % kPatch != 0)
    throw UsageError(format("size %d: must be a multiple of 16 pixels", size));
  AttentionProblem problem;
  problem.photo = square(photo, size);
  const int grid = problem.grid = size / kPatch, tokens = grid * grid + 1;
  problem.shape = {batch, kHeads, tokens, kHeadDim, 0.125f};
  problem.chosen_token = 1 + (grid / 2) * grid + grid / 2;
  problem.q.resize(problem.shape.elements());

#pragma omp parallel for
  for (int image = 0; image < batch; ++image) {
    const uint64_t offset = image ? random_bits(seed, uint64_t(image)) : 0;
    const int shift_y = int(offset % uint64_t(size)),
              shift_x = int((offset >> 32) % uint64_t(size));
    std::vector<double> values(size_t(tokens) * kPatchValues, 0.0);  // [tokens, (c, y, x)]
    for (int token = 1; token < tokens; ++token)
      for (int i = 0; i < kPatchValues; ++i) {
        const int c = i / (kPatch * kPatch), y = i / kPatch % kPatch, x = i % kPatch;
        const int row = ((token - 1) / grid * kPatch + y + shift_y) % size;
        const int column = ((token - 1) % grid * kPatch + x + shift_x) % size;
        const double value = problem.photo.rgb[(size_t(row) * size + column) * 3 + c] / 255.0;
        values[size_t(token) * kPatchValues + i] = value;
        values[i] += value / (tokens - 1);  // the class token
      }
    for (int head = 0; head < kHeads; ++head)
      for (int token = 0; token < tokens; ++token)
        normalize(&values[size_t(token) * kPatchValues + head * kHeadDim],
                  &problem.q[((int64_t(image) * kHeads + head) * tokens + token) * kHeadDim]);
  }
  if (std::all_of(problem.q.begin(), problem.q.end(), [](half x) { return __half2float(x) == 0; }))
    throw UsageError("the photo has one flat colour: attention over it is zero, right or wrong");
  problem.k = problem.v = problem.q;
  return problem;
}

std::vector<AttentionArrays> upload(const AttentionProblem& problem, int copies) {
  std::vector<AttentionArrays> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    arrays.push_back({DeviceArray<half>(problem.q, "Q" + copy),
                      DeviceArray<half>(problem.k, "K" + copy),
                      DeviceArray<half>(problem.v, "V" + copy),
                      DeviceArray<half>(problem.v.size(), "O" + copy)});
    arrays.back().O.fill_nan();
  }
  return arrays;
}

std::vector<double> attention_weights(AttentionFunction attention, const AttentionProblem& problem,
                                      int query) {
  AttentionShape shape = problem.shape;
  shape.batch = 1;
  const int tokens = shape.tokens, head_dim = shape.head_dim;
  const auto image = [&](const std::vector<half>& all) {
    return std::vector<half>(all.begin(), all.begin() + shape.elements());
  };
  DeviceArray<half> Q(image(problem.q), "Q (one image)"), K(image(problem.k), "K (one image)");
  DeviceArray<half> V(size_t(shape.elements()), "V (one-hot)"),
      O(size_t(shape.elements()), "weights");

  std::vector<double> weights(tokens, 0.0);
  for (int first_key = 0; first_key < tokens; first_key += head_dim) {
    // Key first_key + d has a one at place d: the output's element d is that key's weight.
    const int keys = std::min(head_dim, tokens - first_key);
    std::vector<half> one_hot(shape.elements(), __float2half(0));
    for (int head = 0; head < shape.heads; ++head)
      for (int d = 0; d < keys; ++d)
        one_hot[(int64_t(head) * tokens + first_key + d) * head_dim + d] = __float2half(1);
    V.upload(one_hot);
    O.fill_nan();
    attention(Q.data(), K.data(), V.data(), O.data(), shape, nullptr);
    check(cudaDeviceSynchronize());
    const std::vector<half> output = O.download();
    for (int head = 0; head < shape.heads; ++head)
      for (int d = 0; d < keys; ++d)
        weights[first_key + d] +=
            double(__half2float(output[(int64_t(head) * tokens + query) * head_dim + d])) /
            shape.heads;
  }
  return weights;
}

}  // namespace lab
