#include "test_support.h"

#include <algorithm>
#include <cmath>

#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../host/reference.h"

namespace lab::testing {
namespace {

std::vector<int> all_rows(int m) {
  std::vector<int> rows(m);
  for (int row = 0; row < m; ++row) rows[row] = row;
  return rows;
}
const float* or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}
template <class Element>
std::vector<Element> converted(const std::vector<float>& values) {
  std::vector<Element> result;
  for (const float value : values) result.push_back(Element(value));
  return result;
}
float as_float(half value) { return __half2float(value); }
float as_float(float value) { return value; }

}  // namespace

ProductTrial product_trial(ProductTrial trial) {
  const std::vector<int> rows = all_rows(trial.shape.m);
  const reference::Product arrays{trial.x.data(), trial.weight.data(), or_null(trial.bias),
                                  or_null(trial.residual)};
  trial.y = reference::product(arrays, trial.shape, rows);
  mlp::Shape sums = trial.shape;
  sums.gelu = false;
  double largest = 0;
  for (const bool with_bias : {false, true})
    for (const double v : reference::product(
             {trial.x.data(), trial.weight.data(), with_bias ? or_null(trial.bias) : nullptr}, sums,
             rows))
      largest = std::max(largest, std::abs(v));
  for (const double v : trial.y) largest = std::max(largest, std::abs(v));
  trial.tolerance =
      lab::product_tolerance(trial.shape, trial.storage,
                             reference::largest_sum_of_sizes(arrays, trial.shape, rows), largest);
  return trial;
}

ProductTrial product_trial(const mlp::Shape& shape, uint64_t seed, Behind behind, Storage storage) {
  ProductTrial trial;
  trial.name = describe(shape) + ", seed " + std::to_string(seed);
  trial.shape = shape;
  trial.storage = storage;
  const auto fill = [&](std::vector<float>& values, int64_t count, uint64_t stream, double size) {
    values.resize(count);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = float(size * normal(seed * 4 + stream, uint64_t(i)));
      if (storage == Storage::kFp16) values[i] = __half2float(__float2half_rn(values[i]));
    }
  };
  fill(trial.x, shape.x_elements(), 0, 1);
  fill(trial.weight, shape.weight_elements(), 1, 1 / std::sqrt(double(shape.k)));
  if (behind == Behind::kBias || behind == Behind::kBoth) fill(trial.bias, shape.n, 2, 1);
  if (behind == Behind::kResidual || behind == Behind::kBoth)
    fill(trial.residual, shape.y_elements(), 3, 1);
  return product_trial(trial);
}

std::vector<mlp::Shape> product_shapes() {
  return {
      {1, 1, 8, true},       {1, 8, 8, false},     {2, 7, 16, true},      {15, 9, 24, false},
      {16, 16, 64, true},    {17, 33, 72, false},  {31, 63, 40, true},    {33, 64, 128, false},
      {63, 65, 136, true},   {65, 40, 200, false}, {96, 97, 8, true},     {127, 129, 192, true},
      {129, 128, 64, false}, {197, 31, 88, true},  {191, 193, 56, false}, {193, 200, 264, true}};
}

template <class Element>
ProductOutcome run_product(const AnyProduct<Element>& step, const ProductTrial& trial,
                           const Shift& shift) {
  const std::vector<Element> xs = converted<Element>(trial.x),
                             weights = converted<Element>(trial.weight),
                             biases = converted<Element>(trial.bias),
                             residuals = converted<Element>(trial.residual);
  const auto alone = [&](int array) { return shift.only == array ? shift.elements : 0; };
  const GuardedInput<Element> x(xs, "x", alone(3)), weight(weights, "weight", alone(4)),
      bias(biases, "bias", shift.of(0)), residual(residuals, "residual", shift.of(1));
  GuardedOutput<Element> y(size_t(trial.shape.y_elements()), "y", shift.of(2));
  ProductOutcome outcome;
  const auto launch = [&] {
    step(x.data(), weight.data(), bias.data(), residual.data(), y.data(), trial.shape, nullptr);
  };
  if (!ran(launch, outcome)) return outcome;
  std::vector<Element> output;
  const bool guards = y.download(output);
  for (const Element value : output) outcome.y.push_back(as_float(value));
  outcome.comparison = compare(outcome.y, trial.y, trial.tolerance, {trial.shape.m, trial.shape.n});
  outcome.judge(guards && x.untouched() && weight.untouched() && bias.untouched() &&
                residual.untouched());
  return outcome;
}
template ProductOutcome run_product(const AnyProduct<half>&, const ProductTrial&, const Shift&);
template ProductOutcome run_product(const AnyProduct<float>&, const ProductTrial&, const Shift&);

// ---- PyTorch's arrays ---------------------------------------------------------------------------

namespace {

std::vector<float> golden_floats(const std::string& name) {
  const Array array = read_npy(repository_path("data/golden/mlp_" + name + ".npy"));
  return {array.values.begin(), array.values.end()};
}
std::vector<double> golden_doubles(const std::string& name) {
  return read_npy(repository_path("data/golden/mlp_" + name + ".npy")).values;
}

}  // namespace

MlpGolden mlp_golden() {
  const json::Value manifest =
      json::parse(read_file(repository_path("data/golden/mlp.json"))).at("mlp");
  MlpGolden golden;
  golden.problem.sizes = {1, manifest.at("tokens").get<int>(), manifest.at("width").get<int>(),
                          manifest.at("hidden").get<int>()};
  golden.problem.x = golden_floats("x"), golden.problem.w1 = golden_floats("w1");
  golden.problem.b1 = golden_floats("b1"), golden.problem.w2 = golden_floats("w2");
  golden.problem.b2 = golden_floats("b2");
  golden.problem.source = "PyTorch";
  golden.hidden = golden_doubles("hidden"), golden.y = golden_doubles("y");
  return golden;
}

// Both products of that MLP, and the first one's sums without bias and GELU.
std::vector<ProductTrial> product_golden_trials() {
  const MlpGolden golden = mlp_golden();
  const MlpProblem& p = golden.problem;
  const auto trial = [](const char* name, const mlp::Shape& shape, const std::vector<float>& x,
                        const std::vector<float>& weight, const std::vector<float>& bias,
                        const std::vector<float>& residual, const std::vector<double>& y) {
    ProductTrial result =
        product_trial(ProductTrial{name, shape, x, weight, bias, residual, Storage::kFp16, {}, {}});
    result.y = y;
    return result;
  };
  return {trial("PyTorch, fc1 and GELU", p.sizes.first(), p.x, p.w1, p.b1, {}, golden.hidden),
          trial("PyTorch, fc2 and residual", p.sizes.second(), golden_floats("hidden16"), p.w2,
                p.b2, p.x, golden_doubles("y_of_hidden16"))};
}

}  // namespace lab::testing
