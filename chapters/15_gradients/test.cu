// Chapter 15's tests: each step right on every kind of shape and with extreme scores, the same bits
// where they are promised, what the counters say worked out by hand, the program.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "../../common/lab/device.h"
#include "../../common/testing/checks.h"
#include "kernels.cuh"
#include "test_support.h"

using namespace lab::testing;
using gradients::Step;

namespace {

void check_steps(const GradientCase& problem) {
  CAPTURE(problem.name);
  for (const Step& step : gradients::steps()) {
    CAPTURE(step.name);
    const GradientOutcome outcome = run_gradients(step, problem);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

const Step& step_of(const std::string& name) {
  for (const Step& step : gradients::steps())
    if (step.name == name) return step;
  throw std::invalid_argument("there is no step " + name);
}

}  // namespace

TEST_CASE("gradients: right on every kind of shape") {
  if (skipped("gradients")) return;
  // Tokens of one tile and of several, a number around each tile's size, and alone.
  for (const int head_dim : {32, 64, 128})
    for (const int tokens : {1, 2, 15, 17, 31, 32, 33, 63, 64, 65, 129})
      check_steps(random_gradient_case(1, 1 + tokens % 2, tokens, head_dim, uint64_t(tokens)));
  check_steps(random_gradient_case(3, 2, 19, 64));
  check_steps(random_gradient_case(2, 3, 130, 32));
}

TEST_CASE("gradients: extreme scores, without NaN") {
  if (skipped("gradients: extreme scores")) return;
  for (const int head_dim : {32, 64, 128})
    for (const GradientCase& problem : extreme_gradient_cases(67, head_dim)) check_steps(problem);
}

TEST_CASE("gradients: rows of dS add up to 0 where they are stored") {
  if (skipped("gradients: rows of dS")) return;
  const GradientCase problem = random_gradient_case(1, 2, 45, 64);
  const GradientOutcome outcome = run_gradients(step_of("naive"), problem);
  const AttentionShape& shape = problem.problem.attention.shape;
  for (int64_t row = 0; row < shape.rows(); ++row) {
    double sum = 0, size = 0;
    for (int key = 0; key < shape.tokens; ++key) {
      const double ds =
          double(outcome.workspace[size_t(shape.scores() + row * shape.tokens + key)]);
      sum += ds, size += std::abs(ds);
    }
    CHECK(size > 0);
    CHECK(std::abs(sum) <= 1e-5 * (1 + size));
  }
}

TEST_CASE("gradients: what they cannot do they refuse, with the value") {
  if (skipped("gradients: refusals")) return;
  const GradientCase problem = random_gradient_case(1, 1, 5, 32);
  const auto words = [](const AnyGradients& call, const GradientCase& of) {
    const GradientOutcome outcome = run_gradients(call, 4096, of);
    CHECK(outcome.caught_by == "error");
    return outcome.details;
  };
  for (const Step& step : gradients::steps()) {
    CAPTURE(step.name);
    const AnyGradients other_shape = [&](const gradients::Pointers& p, AttentionShape shape,
                                         cudaStream_t stream) {
      shape.head_dim = 48;
      gradients::run(step, p, shape, stream);
    };
    CHECK(words(other_shape, problem).find("head_dim 48]: head_dim must be 32, 64 or 128") !=
          std::string::npos);
    if (step.name == "naive") continue;
    const AnyGradients shifted = [&](gradients::Pointers p, const AttentionShape& shape,
                                     cudaStream_t stream) {
      ++p.dO;
      gradients::run(step, p, shape, stream);
    };
    CHECK(words(shifted, problem).find("must start at a multiple of 16 bytes") !=
          std::string::npos);
  }
}

TEST_CASE("program: the whole way, with a photo") {
  const auto run =
      check_photo_run("chapter15", 64, {}, {3, 1, 12, 17, 64},
                      {"forward", "naive", "recompute", "tensor cores", "deterministic"});
  if (!run) return;
  CHECK(json_at(run->json, "/problem/tokens") == "17");
  CHECK(run->output.find("for patch 2,2 to come out of attention as it went in") !=
        std::string::npos);
}
