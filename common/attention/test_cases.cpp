#include "test_cases.h"
#include "inputs.h"
#include "lab/errors.h"
#include "lab/program.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "json/json.h"
#include "lab/files.h"
#include "lab/random.h"
#include "lab/tensors.h"
#include "reference.h"
#include "testing/text.h"

namespace lab::testing {
namespace {

std::vector<half> to_half(const std::vector<double>& values) {
  std::vector<half> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = __float2half(float(values[i]));
  return halves;
}

std::vector<half> to_half(const std::vector<float>& values) {
  std::vector<half> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = __float2half(values[i]);
  return halves;
}

void expect_reference(AttentionCase& result) {
  const AttentionProblem& problem = result.problem;
  result.expected.resize(problem.shape.elements());
  reference::attention(to_float(problem.q).data(), to_float(problem.k).data(),
                       to_float(problem.v).data(), problem.shape, result.expected.data());
}

}  // namespace

AttentionCase random_case(int batch, int heads, int tokens, int head_dim, uint64_t seed) {
  AttentionCase result;
  const AttentionShape shape{batch, heads, tokens, head_dim,
                             float(1 / std::sqrt(double(head_dim)))};
  result.name = describe(shape);
  result.problem = random_attention(shape, seed);
  expect_reference(result);
  return result;
}

AttentionCase offset_case(int batch, int heads, int tokens, int head_dim, double offset) {
  AttentionCase result = random_case(batch, heads, tokens, head_dim);
  AttentionProblem& problem = result.problem;
  result.name += format(", scores moved by %g", offset);
  // The first element of every query and key gives all their scores the same summand.
  const double product = offset / double(problem.shape.scale);
  for (int64_t row = 0; row < problem.shape.rows(); ++row) {
    problem.q[row * head_dim] = __float2half(32.0f);
    problem.k[row * head_dim] = __float2half(float(product / 32));
  }
  expect_reference(result);
  return result;
}

AttentionCase stepped_case(int batch, int heads, int tokens, int head_dim,
                           const std::vector<double>& moves) {
  constexpr int kStep = 64;  // keys
  AttentionCase result = random_case(batch, heads, tokens, head_dim);
  AttentionProblem& problem = result.problem;
  result.name += ", scores in steps";
  // The first elements of a query and a key give their score a summand, with the query's sign.
  for (int64_t row = 0; row < problem.shape.rows(); ++row) {
    const int64_t token = row % tokens;
    const double move = moves[size_t(token / kStep) % moves.size()];
    problem.q[row * head_dim] = __float2half(token % 2 ? -32.0f : 32.0f);
    problem.k[row * head_dim] = __float2half(float(move / double(problem.shape.scale) / 32));
  }
  expect_reference(result);
  return result;
}

std::vector<AttentionCase> stepped_cases() {
  return {stepped_case(1, 2, 197, 64, {0, -100, 100}), stepped_case(1, 1, 129, 32, {0, 100, -100}),
          stepped_case(2, 1, 65, 128, {0, 100}), stepped_case(1, 1, 257, 64, {100, 0, -100})};
}

AttentionCase half_grows_case(int heads, int tokens, int head_dim, int half_of_rows) {
  AttentionCase result = stepped_case(1, heads, tokens, head_dim, {0, 100, 200});
  AttentionProblem& problem = result.problem;
  result.name += format(", in rows %d to %d of 16", 8 * half_of_rows, 8 * half_of_rows + 7);
  for (int64_t row = 0; row < problem.shape.rows(); ++row) {
    const auto query = problem.q.begin() + row * head_dim;
    if (row % tokens / 8 % 2 == half_of_rows)
      *query = __float2half(32.0f);
    else
      std::fill(query, query + head_dim, __float2half(0.0f));
  }
  expect_reference(result);
  return result;
}

AttentionCase mean_case(int heads, int tokens, int head_dim) {
  AttentionCase result = random_case(1, heads, tokens, head_dim);
  AttentionProblem& problem = result.problem;
  result.name += ", means";
  std::fill(problem.q.begin(), problem.q.end(), __float2half(0.0f));
  // 10 bits from 1 to 3, negative in odd columns. A sum of 128 has 17 bits.
  for (size_t i = 0; i < problem.v.size(); ++i) {
    const float size = 1 + float(random_bits(7, i) % 512) / 256;
    problem.v[i] = __float2half(i % 2 ? -size : size);
  }
  expect_reference(result);
  for (double& mean : result.expected) mean = double(__float2half_rn(float(mean)));
  result.tolerance = Tolerance{};
  return result;
}

std::vector<AttentionCase> golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const json::Value manifest = json::parse(read_file(folder + "manifest.json"));
  std::vector<AttentionCase> cases;
  for (const json::Value& entry : manifest.at("cases")) {
    AttentionCase result;
    result.name = entry.at("name").get<std::string>() + " (PyTorch)";
    AttentionShape& shape = result.problem.shape;
    shape = {entry.at("batch").get<int>(), entry.at("heads").get<int>(),
             entry.at("tokens").get<int>(), entry.at("head_dim").get<int>(),
             float(entry.at("scale").get<double>())};
    const auto read = [&](const char* array) {
      const Array values =
          read_npy(folder + entry.at("arrays").at(array).at("file").get<std::string>());
      if (values.shape !=
          std::vector<int64_t>{shape.batch, shape.heads, shape.tokens, shape.head_dim})
        throw UsageError(folder + ": " + result.name + ": shape and manifest differ");
      return values.values;
    };
    result.problem.q = to_half(read("q"));
    result.problem.k = to_half(read("k"));
    result.problem.v = to_half(read("v"));
    result.problem.source = result.name;
    result.expected = read("out");
    cases.push_back(std::move(result));
  }
  return cases;
}

std::vector<AttentionCase> deit_cases() {
  const std::string path = environment(
      "DEIT_TINY_ATTENTION",
      repository_path("../shared/data/deit_tiny/attention_chelsea_blocks_0_6.safetensors"));
  if (access(path.c_str(), R_OK) != 0) return {};
  std::vector<AttentionCase> cases;
  for (const std::string block : {"block0", "block6"}) {
    const std::vector<Tensor> tensors =
        read_safetensors(path, {block + ".q", block + ".k", block + ".v", block + ".out"});
    const std::vector<int64_t>& shape = tensors[0].shape;
    AttentionCase result;
    result.name = "DeiT-Tiny " + block;
    result.problem.shape = {int(shape.at(0)), int(shape.at(1)), int(shape.at(2)), int(shape.at(3)),
                            float(1 / std::sqrt(double(shape.at(3))))};
    result.problem.q = to_half(tensors[0].values);
    result.problem.k = to_half(tensors[1].values);
    result.problem.v = to_half(tensors[2].values);
    result.problem.source = result.name;
    result.expected.assign(tensors[3].values.begin(), tensors[3].values.end());
    cases.push_back(std::move(result));
  }
  return cases;
}

std::vector<AttentionShape> attention_shapes() {
  std::vector<AttentionShape> shapes;
  const auto add = [&](int batch, int heads, int tokens, int head_dim) {
    shapes.push_back({batch, heads, tokens, head_dim, float(1 / std::sqrt(double(head_dim)))});
  };
  for (const int tokens : {1, 2, 15, 16, 17, 31, 33, 63, 65, 127})
    for (const int batch : {1, 3})
      for (const int heads : {1, 3, 12})
        for (const int head_dim : {32, 64, 128}) add(batch, heads, tokens, head_dim);
  add(1, 12, 197, 64);
  add(3, 1, 197, 32);
  add(1, 3, 197, 128);
  add(1, 1, 577, 32);
  add(1, 3, 577, 64);
  add(1, 1, 577, 128);
  return shapes;
}

Outcome run_attention(const AnyAttention& attention, const AttentionCase& problem) {
  const AttentionProblem& inputs = problem.problem;
  const AttentionShape& shape = inputs.shape;
  const GuardedInput<half> Q(inputs.q, "Q"), K(inputs.k, "K"), V(inputs.v, "V");
  GuardedOutput<half> O(size_t(shape.elements()), "O");

  Outcome outcome;
  const auto launch = [&] { attention(Q.data(), K.data(), V.data(), O.data(), shape, nullptr); };
  if (!ran(launch, outcome)) return outcome;

  const bool guards = O.download(outcome.output);
  double max_value = 0;
  for (const half value : inputs.v) max_value = std::max(max_value, std::abs(double(value)));
  outcome.comparison = compare(outcome.output, problem.expected,
                               problem.tolerance.value_or(Tolerance::fp16_mean(max_value)),
                               {shape.batch, shape.heads, shape.tokens, shape.head_dim});

  outcome.judge(guards && Q.untouched() && K.untouched() && V.untouched());
  return outcome;
}

}  // namespace lab::testing
