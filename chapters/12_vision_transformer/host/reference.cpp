#include "reference.h"

#include <algorithm>
#include <cmath>

namespace vision_transformer::reference {
namespace {

constexpr int kRowsAtOnce = 8;  // of a product: they share each load of the weights

double gelu(double x) { return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5))); }

// y[m, n] = x[m, k] · w[n, k]ᵀ, row by row: the loop over n is the innermost one, whose sums the
// compiler may compute side by side without changing their order.
Doubles product(const Doubles& x, const std::vector<float>& weight, int64_t m, int64_t n,
                int64_t k) {
  Doubles transposed(size_t(n * k)), y(size_t(m * n));
#pragma omp parallel for
  for (int64_t d = 0; d < k; ++d)
    for (int64_t j = 0; j < n; ++j) transposed[d * n + j] = weight[j * k + d];
#pragma omp parallel for
  for (int64_t first = 0; first < m; first += kRowsAtOnce) {
    const int64_t last = std::min(m, first + kRowsAtOnce);
    for (int64_t d = 0; d < k; ++d) {
      const double* const right = &transposed[d * n];
      for (int64_t i = first; i < last; ++i) {
        const double left = x[i * k + d];
        double* const sums = &y[i * n];
        for (int64_t j = 0; j < n; ++j) sums[j] += left * right[j];
      }
    }
  }
  return y;
}

}  // namespace

Doubles linear(const Doubles& x, const std::vector<float>& weight, const std::vector<float>& bias,
               const Doubles& residual, const LinearShape& shape) {
  Doubles y = product(x, weight, shape.m, shape.n, shape.k);
#pragma omp parallel for
  for (int64_t row = 0; row < shape.m; ++row)
    for (int64_t j = 0; j < shape.n; ++j) {
      double& value = y[row * shape.n + j];
      if (!bias.empty()) value += bias[j];
      if (shape.gelu) value = gelu(value);
      if (!residual.empty()) value += residual[row * shape.n + j];
    }
  return y;
}

Doubles embed(const Doubles& image, const HostParameters& parameters, const NetShape& shape) {
  const int grid = shape.grid(), patch = shape.patch, values = shape.patch_values();
  const int64_t patches = shape.patches(), size = shape.size, width = shape.width;
  Doubles columns(size_t(shape.batch * patches * values));
  size_t at = 0;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int p = 0; p < patches; ++p)
      for (int colour = 0; colour < 3; ++colour)
        for (int row = 0; row < patch; ++row)
          for (int column = 0; column < patch; ++column)
            columns[at++] = image[((b * 3 + colour) * size + p / grid * patch + row) * size +
                                  p % grid * patch + column];
  const Doubles products =
      product(columns, parameters.patch_weight, shape.batch * patches, width, values);
  Doubles tokens(size_t(shape.rows() * width));
  for (int64_t row = 0; row < shape.rows(); ++row)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t b = row / shape.tokens(), token = row % shape.tokens();
      const double value = token == 0 ? double(parameters.class_token[c])
                                      : products[(b * patches + token - 1) * width + c] +
                                            double(parameters.patch_bias[c]);
      tokens[row * width + c] = value + double(parameters.position[token * width + c]);
    }
  return tokens;
}

Doubles layer_norm(const Doubles& x, const std::vector<float>& scale,
                   const std::vector<float>& bias, const NormShape& shape) {
  Doubles y(x.size());
  const int64_t columns = shape.columns;
#pragma omp parallel for
  for (int64_t row = 0; row < shape.rows; ++row) {
    const double* const from = &x[row * columns];
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < columns; ++c) mean += from[c] / double(columns);
    for (int64_t c = 0; c < columns; ++c)
      variance += (from[c] - mean) * (from[c] - mean) / double(columns);
    const double factor = 1 / std::sqrt(variance + double(shape.epsilon));
    for (int64_t c = 0; c < columns; ++c)
      y[row * columns + c] = (from[c] - mean) * factor * double(scale[c]) + double(bias[c]);
  }
  return y;
}

Doubles attention(const Doubles& q, const Doubles& k, const Doubles& v, const HeadsShape& shape,
                  Rounding round_weights) {
  Doubles out(q.size());
  const int64_t tokens = shape.tokens, head_dim = shape.head_dim;
  const int64_t matrices = int64_t(shape.batch) * shape.heads;
  const double scale = 1 / std::sqrt(double(head_dim));
#pragma omp parallel for
  for (int64_t row = 0; row < matrices * tokens; ++row) {
    const int64_t first = row / tokens * tokens;  // of the matrix
    Doubles weights(size_t(tokens), 0.0);
    double largest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < tokens; ++key) {
      double score = 0;
      for (int64_t d = 0; d < head_dim; ++d)
        score += q[row * head_dim + d] * k[(first + key) * head_dim + d];
      weights[key] = score * scale;
      largest = std::max(largest, weights[key]);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (int64_t key = 0; key < tokens; ++key) {
      const double weight = round_weights ? round_weights(weights[key]) : weights[key];
      for (int64_t d = 0; d < head_dim; ++d)
        out[row * head_dim + d] += weight / sum * v[(first + key) * head_dim + d];
    }
  }
  return out;
}

Doubles split(const Doubles& qkv, int part, const HeadsShape& shape) {
  Doubles result;
  result.reserve(size_t(shape.elements()));
  const int64_t heads = shape.heads, head_dim = shape.head_dim;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t token = 0; token < shape.tokens; ++token)
        for (int64_t d = 0; d < head_dim; ++d)
          result.push_back(
              qkv[(((b * shape.tokens + token) * 3 + part) * heads + head) * head_dim + d]);
  return result;
}

Doubles merge(const Doubles& by_heads, const HeadsShape& shape) {
  Doubles result;
  result.reserve(by_heads.size());
  const int64_t heads = shape.heads, tokens = shape.tokens, head_dim = shape.head_dim;
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t d = 0; d < head_dim; ++d)
          result.push_back(by_heads[((b * heads + head) * tokens + token) * head_dim + d]);
  return result;
}

Doubles class_tokens(const Doubles& x, const NetShape& shape) {
  Doubles result;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const auto first = x.begin() + b * shape.tokens() * shape.width;
    result.insert(result.end(), first, first + shape.width);
  }
  return result;
}

Doubles net(const Doubles& image, const HostParameters& parameters, const NetShape& shape,
            Rounding round, const See& see) {
  const auto stored = [&](const std::string& name, Doubles values) {
    if (round)
      for (double& value : values) value = round(value);
    if (see) see(name, values);
    return values;
  };
  const int rows = int(shape.rows()), width = shape.width, hidden = shape.hidden();
  const NormShape norm{rows, width, shape.epsilon};
  const HeadsShape heads{shape.batch, shape.tokens(), shape.heads, shape.head_dim()};
  Doubles x = stored("tokens", embed(image, parameters, shape));
  for (size_t i = 0; i < parameters.blocks.size(); ++i) {
    const auto& block = parameters.blocks[i];
    const std::string name = "blocks." + std::to_string(i) + ".";
    Doubles y = stored(name + "norm1", layer_norm(x, block.norm1_scale, block.norm1_bias, norm));
    const Doubles qkv = stored(name + "qkv", linear(y, block.qkv_weight, block.qkv_bias, {},
                                                    {rows, 3 * width, width, false}));
    y = stored(name + "attention", attention(split(qkv, 0, heads), split(qkv, 1, heads),
                                             split(qkv, 2, heads), heads, round));
    x = stored(name + "proj", linear(merge(y, heads), block.proj_weight, block.proj_bias, x,
                                     {rows, width, width, false}));
    y = stored(name + "norm2", layer_norm(x, block.norm2_scale, block.norm2_bias, norm));
    y = stored(name + "fc1",
               linear(y, block.fc1_weight, block.fc1_bias, {}, {rows, hidden, width, true}));
    x = stored(name + "fc2",
               linear(y, block.fc2_weight, block.fc2_bias, x, {rows, width, hidden, false}));
  }
  const Doubles last =
      stored("norm", layer_norm(class_tokens(x, shape), parameters.norm_scale, parameters.norm_bias,
                                {shape.batch, width, shape.epsilon}));
  return stored("logits", linear(last, parameters.head_weight, parameters.head_bias, {},
                                 {shape.batch, shape.classes, width, false}));
}

}  // namespace vision_transformer::reference
