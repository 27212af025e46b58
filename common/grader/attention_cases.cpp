// Problems of attention for the exercises, and their reference.
#include "attention_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attention/inputs.h"
#include "lab/files.h"

namespace lab::grader {

namespace {
float usual_scale(int head_dim) { return float(1 / std::sqrt(double(head_dim))); }
}  // namespace

std::string AttentionTensors::describe() const {
  const std::string sizes = format("[batch %d, heads %d, %d queries, %d keys, head_dim %d]", batch,
                                   heads, queries, keys, head_dim);
  return scale == usual_scale(head_dim) ? sizes : sizes + format(", scale %.5g", double(scale));
}

AttentionTensors random_tensors(int batch, int heads, int queries, int keys, int head_dim,
                                uint64_t seed) {
  // Some have a scale that no kernel can know.
  const float scale = usual_scale(head_dim) * (seed % 7 == 3 ? 0.75f : 1.0f);
  AttentionTensors t{batch, heads, queries, keys, head_dim, scale, {}, {}, {}};
  AttentionProblem problem = random_attention({batch, heads, keys, head_dim, t.scale}, seed);
  // Where there are more queries than keys the rows of Q repeat, each time weaker, so that no two
  // queries have the same output.
  for (int matrix = 0; matrix < batch * heads; ++matrix)
    for (int query = 0; query < queries; ++query)
      for (int d = 0; d < head_dim; ++d) {
        const half q = problem.q[(int64_t(matrix) * keys + query % keys) * head_dim + d];
        const float factor = 1.0f / float(1 + query / keys);
        t.Q.push_back(query < keys ? q : __float2half(__half2float(q) * factor));
      }
  t.K = std::move(problem.k);
  t.V = std::move(problem.v);
  return t;
}

AttentionTensors moved(AttentionTensors t, double offset) {
  // The first element of every query and key gives all their scores the same summand.
  constexpr float kQuery = 32;
  for (size_t i = 0; i < t.Q.size(); i += t.head_dim) t.Q[i] = __float2half(kQuery);
  for (size_t i = 0; i < t.K.size(); i += t.head_dim)
    t.K[i] = __float2half(float(offset / double(t.scale)) / kQuery);
  return t;
}

namespace {

// [rows, columns] of halves, as doubles.
std::vector<double> doubles(const half* values, size_t count) {
  std::vector<double> result(count);
  for (size_t i = 0; i < count; ++i) result[i] = double(values[i]);
  return result;
}

// The same, transposed.
std::vector<double> transposed(const half* values, int rows, int columns) {
  std::vector<double> result(size_t(rows) * columns);
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      result[size_t(column) * rows + row] = double(values[size_t(row) * columns + column]);
  return result;
}

}  // namespace

std::vector<double> expected(const AttentionTensors& t, const ChangeScore& change) {
  std::vector<double> O(t.Q.size());
#pragma omp parallel for
  for (int matrix = 0; matrix < t.batch * t.heads; ++matrix) {
    const int64_t first_key = int64_t(matrix) * t.keys, first_query = int64_t(matrix) * t.queries;
    const std::vector<double> Q =
        doubles(&t.Q[first_query * t.head_dim], size_t(t.queries) * t.head_dim);
    // By columns: the scores of neighbouring keys are added up side by side.
    const std::vector<double> K = transposed(&t.K[first_key * t.head_dim], t.keys, t.head_dim);
    const std::vector<double> V =
        doubles(&t.V[first_key * t.head_dim], size_t(t.keys) * t.head_dim);
    std::vector<double> weights(t.keys);
    for (int query = 0; query < t.queries; ++query) {
      std::fill(weights.begin(), weights.end(), 0.0);
      for (int d = 0; d < t.head_dim; ++d) {
        const double q = Q[int64_t(query) * t.head_dim + d];
        const double* const column = &K[int64_t(d) * t.keys];
        for (int key = 0; key < t.keys; ++key) weights[key] += q * column[key];
      }
      double row_max = -std::numeric_limits<double>::infinity(), row_sum = 0;
      for (int key = 0; key < t.keys; ++key) {
        double& score = weights[key] *= double(t.scale);
        if (change) score = change(matrix / t.heads, matrix % t.heads, query, key, score);
        row_max = std::fmax(row_max, score);
      }
      for (double& weight : weights) row_sum += weight = std::exp(weight - row_max);
      double* const row = &O[(first_query + query) * t.head_dim];
      for (int key = 0; key < t.keys; ++key) {
        const double weight = weights[key] / row_sum;
        const double* const value = &V[int64_t(key) * t.head_dim];
        for (int d = 0; d < t.head_dim; ++d) row[d] += weight * value[d];
      }
    }
  }
  return O;
}

namespace {

// The output when only O, of all that was added up, keeps the factors of the tiles' own maxima.
std::vector<double> not_rescaled(const AttentionTensors& t, const ChangeScore& changed, int tile) {
  std::vector<double> maxima(size_t(t.batch) * t.heads * t.queries * t.keys);
  std::vector<double> scores(maxima.size());
  const std::vector<double> right =
      expected(t, [&](int batch, int head, int query, int key, double score) {
        const size_t row = (size_t(batch * t.heads + head) * t.queries + query) * t.keys;
        return scores[row + key] = changed(batch, head, query, key, score);
      });
  std::vector<double> output(right.size());
  for (size_t row = 0; row < right.size() / t.head_dim; ++row) {
    const double* const score = &scores[row * t.keys];
    double* const running = &maxima[row * t.keys];
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int first = 0; first < t.keys; first += tile) {
      const int last = std::min(first + tile, t.keys);
      for (int key = first; key < last; ++key) most = std::fmax(most, score[key]);
      for (int key = first; key < last; ++key) running[key] = most;
    }
    for (int key = 0; key < t.keys; ++key)
      if (std::isfinite(most)) sum += std::exp(score[key] - most);
    const half* V = &t.V[row / t.queries * t.keys * t.head_dim];
    for (int key = 0; key < t.keys; ++key)
      if (std::isfinite(running[key]))
        for (int d = 0; d < t.head_dim; ++d)
          output[row * t.head_dim + d] +=
              std::exp(score[key] - running[key]) / sum * double(V[int64_t(key) * t.head_dim + d]);
  }
  return output;
}

// What comes out when keys, scores or weights are treated in a likely wrong way.
std::vector<Case::Alternative> mistakes(const AttentionTensors& t, const ChangeScore& change,
                                        int key_tile) {
  std::vector<Case::Alternative> all;
  const auto changed = [&](int batch, int head, int query, int key, double score) {
    return change ? change(batch, head, query, key, score) : score;
  };
  std::set<int> seen = {t.keys};
  std::vector<int> counts = {t.keys - 1};
  for (const int multiple : {8, 16, 32, 64, 128}) counts.push_back(t.keys / multiple * multiple);
  for (const int first : {16, 32, 64, 128}) counts.push_back(std::min(t.keys, first));
  for (const int count : counts) {
    if (count <= 0 || !seen.insert(count).second) continue;
    const std::string number = format("the last %d of %d keys", t.keys - count, t.keys);
    all.push_back(
        {expected(t,
                  [&](int batch, int head, int query, int key, double score) {
                    return key < count ? changed(batch, head, query, key, score)
                                       : -std::numeric_limits<double>::infinity();
                  }),
         "this comes out when " + number +
             " are left out: who takes them, in each loop over keys, and is every division "
             "rounded up?"});
    AttentionTensors shorter = t;
    for (int64_t i = 0; i < int64_t(shorter.V.size()); ++i)
      if (i / t.head_dim % t.keys >= count) shorter.V[size_t(i)] = __float2half(0.0f);
    all.push_back(
        {expected(shorter, change),
         "this comes out when " + number +
             " count in the sum of the weights, but their rows of V are not added up: where "
             "does the loop over V end?"});
  }
  if (change)
    all.push_back({expected(t),
                   "this comes out when the scores are not changed as the exercise asks for: where "
                   "does that happen, and does it happen before the maximum is looked for?"});
  AttentionTensors unscaled = t;
  unscaled.scale = 1;
  all.push_back({expected(unscaled, change),
                 "this comes out when the products Q Kᵀ are not multiplied by the scale", true});
  const auto flat = [&](int batch, int head, int query, int key, double score) {
    return std::isinf(changed(batch, head, query, key, score))
               ? -std::numeric_limits<double>::infinity()
               : 0.0;
  };
  all.push_back({expected(t, flat),
                 "this is the mean of V: all weights are the same, so the scores do not arrive in "
                 "the softmax"});
  if (key_tile > 0 && key_tile < t.keys)
    all.push_back({not_rescaled(t, changed, key_tile),
                   "this comes out when what was added up in the tiles before is not rescaled in "
                   "each row whose maximum grows: in which rows does yours do it, and when?"});
  return all;
}

}  // namespace

Case attention_case(const AttentionTensors& t, const std::vector<double>& expected,
                    const ChangeScore& change, int key_tile) {
  double most = 0;
  for (const half value : t.V) most = std::fmax(most, std::abs(double(value)));
  Case result;
  result.name = t.describe();
  result.dims = {t.batch, t.heads, t.queries, t.head_dim};
  result.tolerance = Tolerance::fp16_mean(most);
  result.expected = expected;
  result.axes = {"batch", "head", "query", "d"};
  result.sizes = {{"keys", t.keys}, {"queries", t.queries}};
  result.causes["factor"] =
      std::string(
          "the sum over V is right, and what it is divided by is not: that is the sum of all "
          "weights of this row, over all keys and from all lanes that have some of them") +
      (key_tile == 0 ? ""
       : t.keys > key_tile
           ? ". Is all that was added up before, row_sum as well as O, rescaled when the row's "
             "maximum grows?"
           : ", each weight as it is multiplied by V");
  result.causes["exchanged"] =
      "which (batch, head) or row a thread takes follows from its number: is that number divided "
      "by "
      "the right sizes, in the right order, for what is read as well as for what is written?";
  result.causes["rounding"] = "what is added up must be fp32: is a sum rounded to fp16 on the way?";
  result.alternatives = [t, change, key_tile] { return mistakes(t, change, key_tile); };
  result.hint_not_finite =
      "NaN comes from 0/0 or from infinity minus infinity: does the search for a row's maximum "
      "begin "
      "at -INFINITY, does each row have a key that counts, and is what it is divided by above 0?";
  return result;
}

}  // namespace lab::grader
