// Chapter 15's planted bugs: each is caught, and by what; and launches in a wrong order.
#include <doctest/doctest.h>

#include "../../../common/attention/launch.cuh"
#include "../../../common/testing/checks.h"
#include "../kernels.h"
#include "test_support.h"

using namespace lab::testing;
using gradients::Step;

namespace {

const Step& step_of(const std::string& name) {
  for (const Step& step : gradients::steps())
    if (step.name == name) return step;
  throw std::invalid_argument("there is no step " + name);
}

// What launches of the mutants need; the steps' own say so in their files.
constexpr unsigned kThreads = 256, kTensorThreads = 128;
constexpr int kTensorRows = 128;            // keys or queries of a block
constexpr size_t kSharedBytes = 64 * 1024;  // holds the tiles of these instances
unsigned blocks_of(int64_t threads) { return unsigned((threads + kThreads - 1) / kThreads); }
const float* dots_behind_sums(const gradients::Pointers& p, const AttentionShape& shape) {
  return p.workspace + shape.elements();
}

// A step in which a launch of that name is another one's.
using Replacement = std::function<void(const gradients::Pointers&, const AttentionShape&)>;
AnyGradients with(const Step& step, const std::string& name, const Replacement& replacement) {
  return
      [=, &step](const gradients::Pointers& p, const AttentionShape& shape, cudaStream_t stream) {
        for (const gradients::Launch& launch : step.launches)
          launch.name == name ? replacement(p, shape) : launch.function(p, shape, stream);
      };
}

// head_dim 64: a tile of 128 and a part of one, and scores that are far below 0.
const std::vector<GradientCase>& cases() {
  static const std::vector<GradientCase> all = [] {
    lab::GradientProblem peaked{lab::random_attention({1, 1, 141, 64, 0.125f}, 9), {}};
    peaked.d_o = lab::random_gradients(peaked.attention.shape, 9).d_o;
    std::vector<GradientCase> cases = {gradient_case(peaked, "random")};
    for (GradientCase& extreme : extreme_gradient_cases(67, 64))
      if (extreme.name.starts_with("all scores near -300")) cases.push_back(extreme);
    return cases;
  }();
  return all;
}

// step_of_mutant: the step with that bug.
void check_bugs(const std::string& file, const std::vector<Mutant>& bugs,
                const std::string& instances, const Step& step,
                const std::function<AnyGradients(const Mutants&, size_t)>& step_of_mutant) {
  const Mutants mutants("chapters/15_gradients/" + file, "gradients", bugs, instances,
                        Mutants::kKernelsOnly);
  REQUIRE(cases().size() == 2);
  check_each_bug(bugs, cases().size(), [&](size_t number, size_t trial) {
    const GradientCase& problem = cases()[trial];
    return named(problem.name,
                 run_gradients(step_of_mutant(mutants, number),
                               step.workspace_of(problem.problem.attention.shape), problem));
  });
}

}  // namespace

TEST_CASE("planted bugs in naive: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in naive*")) return;
  check_bugs("1_naive.cuh", planted_bugs("15_gradients", "naive"), "", step_of("naive"),
             [](const Mutants& mutants, size_t number) -> AnyGradients {
               return [&mutants, number](const gradients::Pointers& p, const AttentionShape& shape,
                                         cudaStream_t stream) {
                 const int tokens = shape.tokens, head_dim = shape.head_dim;
                 const int64_t scores = shape.scores(), elements = shape.elements();
                 float *const P = p.workspace, *const dP = p.workspace + scores;
                 const auto sums = [&](const char* kernel, const float* matrix, const half* rows,
                                       half* result, float scale) {
                   launch(mutants.kernel(number, kernel), blocks_of(elements), kThreads, 0, stream,
                          matrix, rows, result, elements, tokens, head_dim, scale);
                 };
                 launch(mutants.kernel(number, "weights_kernel"), blocks_of(scores), kThreads, 0,
                        stream, p.Q, p.K, p.log_sum_exp, P, scores, tokens, head_dim, shape.scale);
                 sums("sums_over_queries_kernel", P, p.dO, p.dV, 1.0f);
                 launch(mutants.kernel(number, "dP_kernel"), blocks_of(scores), kThreads, 0, stream,
                        p.dO, p.V, dP, scores, tokens, head_dim);
                 launch(mutants.kernel(number, "dS_kernel"), blocks_of(32 * shape.rows()), kThreads,
                        0, stream, static_cast<const float*>(P), dP, shape.rows(), tokens);
                 sums("sums_over_keys_kernel", dP, p.K, p.dQ, shape.scale);
                 sums("sums_over_queries_kernel", dP, p.Q, p.dK, shape.scale);
               };
             });
}

TEST_CASE("planted bugs in D and dQ's zeros: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in D*")) return;
  const Step& step = step_of("recompute");
  check_bugs(
      "parts/dots.cuh", planted_bugs("15_gradients", "dots"),
      "const auto instance = &dots_kernel<64>;", step, [&](const Mutants& mutants, size_t number) {
        return with(
            step, "D", [&, number](const gradients::Pointers& p, const AttentionShape& shape) {
              const int64_t pieces = shape.elements() / 8;
              launch(mutants.kernel(number, "dots_kernel", {64}), blocks_of(pieces), kThreads, 0,
                     nullptr, p.O, p.dO, p.workspace + shape.elements(), p.workspace, pieces);
            });
      });
}

TEST_CASE("planted bugs in recompute: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in recompute*")) return;
  const Step& step = step_of("recompute");
  check_bugs("2_recompute.cuh", planted_bugs("15_gradients", "recompute"),
             "const auto instance = &recompute_kernel<64>;", step,
             [&](const Mutants& mutants, size_t number) {
               return with(step, "columns",
                           [&, number](const gradients::Pointers& p, const AttentionShape& shape) {
                             launch(mutants.kernel(number, "recompute_kernel", {64}),
                                    blocks_for(shape, 32), kThreads, 0, nullptr, p.Q, p.K, p.V,
                                    p.dO, p.log_sum_exp, dots_behind_sums(p, shape), p.workspace,
                                    p.dK, p.dV, shape.tokens, shape.scale);
                           });
             });
}

TEST_CASE("planted bugs in tensor cores: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in tensor cores*")) return;
  const Step& step = step_of("tensor cores");
  check_bugs("3_tensor_cores.cuh", planted_bugs("15_gradients", "tensor cores"),
             "const auto instance = &tensor_kernel<true, 64, 32>;", step,
             [&](const Mutants& mutants, size_t number) {
               return with(step, "columns",
                           [&, number](const gradients::Pointers& p, const AttentionShape& shape) {
                             launch(mutants.kernel(number, "tensor_kernel", {64, 32}, "Lb1E"),
                                    blocks_for(shape, kTensorRows), kTensorThreads, kSharedBytes,
                                    nullptr, p.Q, p.K, p.V, p.dO, p.log_sum_exp,
                                    dots_behind_sums(p, shape), p.workspace, p.dK, p.dV,
                                    shape.tokens, shape.scale);
                           });
             });
}

TEST_CASE("planted bugs in rows: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in rows*")) return;
  const Step& step = step_of("deterministic");
  check_bugs(
      "4_rows.cuh", planted_bugs("15_gradients", "rows"), "const auto instance = &rows_kernel<64>;",
      step, [&](const Mutants& mutants, size_t number) {
        return with(
            step, "rows", [&, number](const gradients::Pointers& p, const AttentionShape& shape) {
              launch(mutants.kernel(number, "rows_kernel", {64}), blocks_for(shape, kTensorRows),
                     kTensorThreads, kSharedBytes, nullptr, p.Q, p.K, p.V, p.dO, p.log_sum_exp,
                     static_cast<const float*>(p.workspace), p.dQ, shape.tokens, shape.scale);
            });
      });
}

TEST_CASE("planted bugs: D too late, and D after dO is overwritten") {
  if (skipped("planted bugs: D")) return;
  const GradientCase& problem = cases()[0];
  for (const char* name : {"tensor cores", "deterministic"}) {
    const Step& step = step_of(name);
    CAPTURE(step.name);
    const int64_t workspace = step.workspace_of(problem.problem.attention.shape);
    const AnyGradients too_late = [&](const gradients::Pointers& p, const AttentionShape& shape,
                                      cudaStream_t stream) {
      for (size_t i : {size_t(1), size_t(0), size_t(2)})
        step.launches[i].function(p, shape, stream);
    };
    CHECK(run_gradients(too_late, workspace, problem).caught_by ==
          (step.same_bits ? "not finite" : "element"));  // D's launch clears dQ's sums, too
    // dQ takes the place of dO, which the next run reads for its D.
    const AnyGradients over = [&](gradients::Pointers p, const AttentionShape& shape,
                                  cudaStream_t stream) {
      const size_t bytes = size_t(shape.elements()) * sizeof(half);
      lab::DeviceArray<half> copy(size_t(shape.elements()), "dO and dQ");
      lab::check(cudaMemcpy(copy.data(), p.dO, bytes, cudaMemcpyDeviceToDevice));
      half* const dQ = p.dQ;
      p.dO = p.dQ = copy.data();
      for (int times = 0; times < 2; ++times) gradients::run(step, p, shape, stream);
      lab::check(cudaMemcpy(dQ, copy.data(), bytes, cudaMemcpyDeviceToDevice));
    };
    CHECK(run_gradients(over, workspace, problem).caught_by == "element");
  }
}
