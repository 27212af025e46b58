#include "test_support.h"

#include <cmath>

#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"

namespace patch_embedding {
namespace {

std::vector<half> small_numbers(uint64_t stream, size_t count, int most) {
  std::vector<half> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = __float2half(float(int(lab::random_bits(stream, i) % (2 * most + 1)) - most));
  return values;
}

}  // namespace

Case random_case(const Shape& shape, const Part& part, uint64_t seed) {
  Case result{describe(shape), random_problem(shape, seed), part, {}};
  // Larger than in a net, so that a bias or position that is left out is seen.
  for (std::vector<half>* values :
       {&result.problem.bias, &result.problem.class_token, &result.problem.position})
    for (half& value : *values) value = __float2half(5 * __half2float(value));
  result.expected = expected_tokens(result.problem, part);
  return result;
}

Case exact_case(const Shape& shape) {
  Case result{"exact, " + describe(shape), random_problem(shape, 1), whole(shape), {}};
  Problem& p = result.problem;
  p.image = small_numbers(51, p.image.size(), 3);
  p.weight = small_numbers(52, p.weight.size(), 3);
  p.bias = small_numbers(53, p.bias.size(), 900);
  p.class_token = small_numbers(54, p.class_token.size(), 900);
  p.position = small_numbers(55, p.position.size(), 900);
  for (half& value : p.position) value = __float2half(__half2float(value) + 0.25f);  // odd quarters
  result.expected = expected_tokens(p, result.part);
  return result;
}

std::vector<Case> golden_cases() {
  const std::string folder = lab::repository_path("data/golden/");
  const json::Value manifest = json::parse(lab::read_file(folder + "patch_embedding.json"));
  std::vector<Case> cases;
  for (const json::Value& entry : manifest.at("cases")) {
    const std::string name = entry.at("name").get<std::string>();
    const Shape shape{entry.at("batch").get<int>(), entry.at("height").get<int>(),
                      entry.at("width").get<int>(), entry.at("channels").get<int>()};
    const lab::Array inputs = lab::read_npy(folder + "patch_embedding_" + name + "_inputs.npy");
    Case result{"PyTorch, " + name, random_problem(shape, 1), whole(shape), {}};
    size_t at = 0;
    Problem& p = result.problem;
    for (std::vector<half>* values : {&p.image, &p.weight, &p.bias, &p.class_token, &p.position})
      for (half& value : *values) value = __float2half(float(inputs.values.at(at++)));
    if (at != inputs.values.size())
      throw std::runtime_error(name + ": more inputs than the shape has");
    result.expected = lab::read_npy(folder + "patch_embedding_" + name + "_tokens.npy").values;
    cases.push_back(std::move(result));
  }
  return cases;
}

lab::testing::Verdict judge(const half* tokens, const Case& problem, bool exact) {
  const Shape& shape = problem.problem.shape;
  const std::vector<half> got = tokens_in_part(tokens, shape, problem.part);
  std::vector<double> expected = problem.expected;
  lab::Tolerance tolerance = tokens_tolerance(expected);
  if (exact) {
    tolerance = {};
    for (double& value : expected) value = __half2float(__float2half(float(value)));
  }
  size_t written = 0;
  for (int64_t i = 0; i < shape.token_values(); ++i)
    written += !std::isnan(__half2float(tokens[i]));
  lab::testing::Verdict verdict;
  verdict.comparison = lab::compare(got, expected, tolerance, part_dims(problem.part));
  verdict.judge(written <= got.size());
  return verdict;
}

lab::testing::Verdict run_step(const Step& step, const Case& problem, bool exact,
                               std::vector<half>* tokens) {
  const Shape& shape = problem.problem.shape;
  HostArrays arrays(problem.problem, problem.part);
  arrays.tokens.fill_nan();
  lab::testing::Verdict verdict;
  if (!lab::testing::ran([&] { step.prepare(arrays, shape, problem.part)(); }, verdict))
    return verdict;
  if (tokens) tokens->assign(arrays.tokens.data(), arrays.tokens.data() + shape.token_values());
  return judge(arrays.tokens.data(), problem, exact);
}

}  // namespace patch_embedding
