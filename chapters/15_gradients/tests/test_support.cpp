#include "test_support.h"

#include <cmath>

#include "../../../common/json/json.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"

namespace lab::testing {

GradientCase gradient_case(const GradientProblem& problem, const std::string& name) {
  return {name, problem, expected_gradients(problem)};
}

GradientCase random_gradient_case(int batch, int heads, int tokens, int head_dim, uint64_t seed) {
  const AttentionShape shape{batch, heads, tokens, head_dim,
                             float(1 / std::sqrt(double(head_dim)))};
  return gradient_case(random_gradients(shape, seed), describe(shape));
}

std::vector<GradientCase> extreme_gradient_cases(int tokens, int head_dim) {
  const AttentionShape shape{1, 1, tokens, head_dim, float(1 / std::sqrt(double(head_dim)))};
  std::vector<GradientCase> cases;
  const auto add = [&](const char* name, uint64_t seed, const auto& change) {
    GradientProblem problem = random_gradients(shape, seed);
    change(problem);
    cases.push_back(gradient_case(problem, std::string(name) + ", " + describe(shape)));
  };
  const auto scale = [](std::vector<half>& values, float factor) {
    for (half& value : values) value = __float2half(__half2float(value) * factor);
  };
  // All scores of a row moved by the same: the first element of each key is 1, of each query so much.
  const auto move = [&](AttentionProblem& a, float by) {
    for (int64_t row = 0; row < shape.rows(); ++row) {
      a.k[size_t(row * head_dim)] = __float2half(1.0f);
      a.q[size_t(row * head_dim)] = __float2half(by / shape.scale);
    }
  };
  add("one score dominates", 2, [&](GradientProblem& p) { scale(p.attention.q, 30); });
  add("all scores equal", 3, [&](GradientProblem& p) { scale(p.attention.q, 0); });
  add("all scores near -300", 4, [&](GradientProblem& p) { move(p.attention, -300); });
  add("all scores near 300", 5, [&](GradientProblem& p) { move(p.attention, 300); });
  add("large values and gradients", 6, [&](GradientProblem& p) {
    scale(p.attention.v, 50);
    scale(p.d_o, 5);
  });
  add("negative scale", 7, [&](GradientProblem& p) { p.attention.shape.scale = -0.25f; });
  add("scale 0", 8, [&](GradientProblem& p) { p.attention.shape.scale = 0; });
  return cases;
}

std::vector<GradientCase> gradient_golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const json::Value manifest = json::parse(read_file(folder + "attention_gradients.json"));
  std::vector<GradientCase> cases;
  for (const json::Value& entry : manifest.at("cases")) {
    GradientCase result;
    result.name = entry.at("name").get<std::string>() + " (PyTorch)";
    AttentionProblem& a = result.problem.attention;
    a.shape = {entry.at("batch").get<int>(), entry.at("heads").get<int>(),
               entry.at("tokens").get<int>(), entry.at("head_dim").get<int>(),
               float(entry.at("scale").get<double>())};
    a.source = result.name;
    const size_t elements = size_t(a.shape.elements()), rows = size_t(a.shape.rows());
    const auto read = [&](const char* which, size_t count) {
      const Array file = read_npy(folder + entry.at(which).at("file").get<std::string>());
      if (file.values.size() != count)
        throw UsageError(folder + ": " + result.name + ": " + which + " and manifest differ");
      return file.values;
    };
    const std::vector<double> in = read("inputs", 4 * elements),
                              out = read("outputs", 4 * elements + rows);
    std::vector<half>* const inputs[] = {&a.q, &a.k, &a.v, &result.problem.d_o};
    GradientExpected& e = result.expected;
    std::vector<double>* const outputs[] = {&e.O, &e.dQ, &e.dK, &e.dV};
    for (size_t i = 0; i < 4; ++i) {
      for (size_t at = i * elements; at < (i + 1) * elements; ++at)
        inputs[i]->push_back(__float2half(float(in[at])));
      outputs[i]->assign(out.begin() + ptrdiff_t(i * elements),
                         out.begin() + ptrdiff_t((i + 1) * elements));
    }
    e.log_sum_exp.assign(out.end() - ptrdiff_t(rows), out.end());
    set_tolerances(result.problem, e);
    cases.push_back(std::move(result));
  }
  return cases;
}

GradientOutcome run_gradients(const AnyGradients& step, int64_t workspace,
                              const GradientCase& problem) {
  const AttentionProblem& a = problem.problem.attention;
  const AttentionShape& shape = a.shape;
  std::vector<half> output(problem.expected.O.size());
  for (size_t i = 0; i < output.size(); ++i) output[i] = __float2half(float(problem.expected.O[i]));
  const std::vector<float> sums(problem.expected.log_sum_exp.begin(),
                                problem.expected.log_sum_exp.end());
  const GuardedInput<half> Q(a.q, "Q"), K(a.k, "K"), V(a.v, "V"), O(output, "O"),
      dO(problem.problem.d_o, "dO");
  const GuardedInput<float> log_sum_exp(sums, "log_sum_exp");
  const size_t elements = size_t(shape.elements());
  GuardedOutput<half> dQ(elements, "dQ"), dK(elements, "dK"), dV(elements, "dV");
  GuardedOutput<float> space(size_t(workspace), "workspace");
  GradientOutcome outcome;
  const gradients::Pointers pointers{Q.data(),  K.data(),           V.data(),  O.data(),
                                     dO.data(), log_sum_exp.data(), dQ.data(), dK.data(),
                                     dV.data(), space.data()};
  if (!ran([&] { step(pointers, shape, nullptr); }, outcome)) return outcome;
  bool guards = dQ.download(outcome.dQ);
  guards = dK.download(outcome.dK) && guards;
  guards = dV.download(outcome.dV) && guards;
  guards = space.download(outcome.workspace) && guards;
  const GradientComparison result =
      compare_gradients(outcome.dQ, outcome.dK, outcome.dV, problem.expected, shape);
  outcome.comparison = result.comparison;
  outcome.array = result.array;
  outcome.judge(guards && Q.untouched() && K.untouched() && V.untouched() && O.untouched() &&
                dO.untouched() && log_sum_exp.untouched());
  outcome.details = outcome.array + ": " + outcome.details;
  return outcome;
}

GradientOutcome run_gradients(const gradients::Step& step, const GradientCase& problem) {
  return run_gradients([&](const gradients::Pointers& pointers, const AttentionShape& shape,
                           cudaStream_t stream) { gradients::run(step, pointers, shape, stream); },
                       step.workspace_of(problem.problem.attention.shape), problem);
}

}  // namespace lab::testing
