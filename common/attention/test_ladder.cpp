#include "test_ladder.h"
#include "inputs.h"
#include "json/json.h"
#include "lab/device.h"
#include "lab/images.h"
#include "lab/program.h"
#include "lab/tensors.h"
#include "test_cases.h"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "lab/files.h"
#include "lab/table.h"
#include "reference.h"

namespace lab::testing {

// ---- Right results ------------------------------------------------------------------------------

void check_right(const AnyAttention& attention, const AttentionCase& problem) {
  const Outcome outcome = run_attention(attention, problem);
  CAPTURE(problem.name);
  CAPTURE(outcome.details);
  CHECK(outcome.caught_by == "");
}

void check_every_shape(const AnyAttention& attention) {
  if (skipped("every shape")) return;
  uint64_t seed = 1;
  for (const AttentionShape& s : attention_shapes())
    check_right(attention, random_case(s.batch, s.heads, s.tokens, s.head_dim, seed++));
}

void check_unusual_scores(const AnyAttention& attention) {
  if (skipped("unusual scores")) return;
  for (const double offset : {150.0, -150.0})
    check_right(attention, offset_case(1, 2, 33, 64, offset));
  for (const float scale : {-0.125f, 0.0f}) {
    AttentionCase problem = random_case(1, 2, 97, 64);
    problem.name += format(", scale %g", double(scale));
    AttentionProblem& p = problem.problem;
    p.shape.scale = scale;
    reference::attention(to_float(p.q).data(), to_float(p.k).data(), to_float(p.v).data(), p.shape,
                         problem.expected.data());
    check_right(attention, problem);
  }
  for (const AttentionCase& problem : stepped_cases()) check_right(attention, problem);
  for (const int half_of_rows : {0, 1})
    check_right(attention, half_grows_case(1, 129, 64, half_of_rows));
}

void check_rounding(const AnyAttention& attention) {
  if (skipped("rounding")) return;
  for (const int head_dim : {32, 64, 128}) check_right(attention, mean_case(2, 128, head_dim));
  check_right(attention, mean_case(3, 16, 64));
}

void check_pytorch(const AnyAttention& attention) {
  if (skipped("arrays from PyTorch")) return;
  const std::vector<AttentionCase> cases = golden_cases();
  REQUIRE(cases.size() >= 6);
  for (const AttentionCase& problem : cases) check_right(attention, problem);
}

void check_deit_tiny(const AnyAttention& attention) {
  if (skipped("a trained DeiT-Tiny")) return;
  const std::vector<AttentionCase> cases = deit_cases();
  if (cases.empty()) MESSAGE("skipped: DeiT-Tiny's q, k, v are not there (DEIT_TINY_ATTENTION)");
  for (const AttentionCase& problem : cases) check_right(attention, problem);
}

void check_same_bits(const AnyAttention& attention) {
  if (skipped("the same bits twice")) return;
  for (const int head_dim : {32, 64, 128}) {
    const AttentionCase problem = random_case(1, 3, 127, head_dim);
    const Outcome first = run_attention(attention, problem);
    const Outcome second = run_attention(attention, problem);
    REQUIRE(first.output.size() == problem.problem.q.size());
    for (const Outcome& other : {second, run_attention(in_a_graph(attention), problem)}) {
      REQUIRE(other.output.size() == problem.problem.q.size());
      CHECK(std::memcmp(first.output.data(), other.output.data(),
                        first.output.size() * sizeof(half)) == 0);
    }
  }
}

void check_refusals(const AnyAttention& attention, int aligned) {
  // shifted: of Q, K, V and O the one that starts in the middle of 16 bytes.
  const auto message = [&](const AttentionShape& shape, int shifted = -1) -> std::string {
    half* arrays[4];
    for (int i = 0; i < 4; ++i) arrays[i] = reinterpret_cast<half*>(i == shifted ? 4104 : 4096);
    try {
      attention(arrays[0], arrays[1], arrays[2], arrays[3], shape, nullptr);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message({1, 1, 16, 48}) ==
        "attention of shape [batch 1, heads 1, tokens 16, head_dim 48]: head_dim must be 32, 64 or "
        "128");
  CHECK(message({1, 0, 16, 64}).find("must be at least 1") != std::string::npos);
  CHECK(message({-1, 1, 16, 64}).find("batch -1") != std::string::npos);
  CHECK(message({1, 1, 0, 64}).find("tokens 0") != std::string::npos);
  // 2^32 (batch, head) pairs, each at least one block.
  CHECK(
      message({1 << 16, 1 << 16, 1, 64}) ==
      "attention of shape [batch 65536, heads 65536, tokens 1, head_dim 64]: 4294967296 blocks, a "
      "grid has at most 2147483647");
  for (int array = 0; array < aligned; ++array) {
    CAPTURE(array);
    CHECK(message({1, 1, 16, 64}, array).find("multiple of 16 bytes") != std::string::npos);
  }
}

// ---- Planted bugs, checks, machine code ---------------------------------------------------------

void check_planted_bugs(const std::string& file, const std::string& name_space,
                        const std::vector<Mutant>& mutants, const MutantAttention& attention,
                        const std::string& instances) {
  if (rerun_with_checks("planted bugs*")) return;
  // With one head_dim, so that a template is compiled once a bug.
  const std::vector<AttentionCase> cases = {random_case(1, 1, 1, 64),
                                            random_case(1, 2, 33, 64),
                                            random_case(1, 1, 97, 64),
                                            offset_case(1, 1, 17, 64, 150),
                                            stepped_case(1, 1, 129, 64, {0, -100, 100}),
                                            mean_case(1, 16, 64)};
  const Mutants loaded(file, name_space, mutants, instances,
                       instances.empty() ? Mutants::kWholeFile : Mutants::kKernelsOnly);
  check_each_bug(mutants, cases.size(), [&](size_t number, size_t trial) {
    return named(cases[trial].name, run_attention(attention(loaded, number), cases[trial]));
  });
}

void check_without_findings(const AnyAttention& attention) {
  if (rerun_with_checks("checked*")) return;
  const int findings = vgpu::findings();
  check_right(attention, random_case(1, 2, 83, 32));
  check_right(attention, stepped_case(1, 1, 129, 64, {0, 100, -100}));
  check_right(attention, random_case(1, 1, 65, 128));
  CHECK(vgpu::findings() == findings);
}

void check_all_checks(const std::string& program) {
  check_all_checks(program, {{"--tokens", "83", "--heads", "2", "--head-dim", "32"},
                             {"--tokens", "83", "--heads", "2", "--head-dim", "64"},
                             {"--tokens", "83", "--heads", "2", "--head-dim", "128"}});
}

void check_program(const std::string& program, const std::vector<std::string>& steps) {
  const auto run =
      check_photo_run(program, 64, {"--batch", "2", "--patch", "1,2"}, {2, 12, 17, 64}, steps);
  if (!run) return;
  // A ratio is that of two lines.
  const json::Value written = json::parse(run->json);
  const auto us = [&](const std::string& name) {
    for (const json::Value& kernel : written["kernels"])
      if (kernel["name"].get<std::string>() == name)
        return kernel.at(vgpu::present() ? "predicted_us" : "median_us").get<double>();
    return std::nan("");
  };
  for (const std::string& step : steps) CHECK(us(step) > 0);
  if (vgpu::present())
    for (const json::Value& kernel : written["kernels"])
      CHECK(kernel.at("predicted_us").get<double>() >=
            kernel.at("modelled_limit_us").get<double>());
  REQUIRE(written["ratios"].size() == steps.size() - 1);
  for (size_t i = 1; i < steps.size(); ++i) {
    const json::Value& ratio = written["ratios"].item(i - 1);
    CHECK(ratio["after"].get<std::string>() == steps[i]);
    CHECK(ratio["before"].get<std::string>() == steps[i - 1]);
    CHECK(ratio.at("ratio").get<double>() == doctest::Approx(us(steps[i - 1]) / us(steps[i])));
    // The line of the step has it.
    const size_t at = run->output.find("\n" + steps[i] + " ") + 1;
    const std::string line = run->output.substr(at, run->output.find('\n', at) - at);
    CAPTURE(line);
    CHECK(line.find(" " + times(ratio.at("ratio").get<double>()) + " ") != std::string::npos);
  }
}

void check_variant(const std::string& program, const std::string& variant,
                   const std::string& kept) {
  if (skipped("a variant")) return;
  const TemporaryFolder folder;
  const auto has_line = [&](const std::string& step, std::vector<std::string> arguments) {
    for (const char* more : {"--tokens", "40", "--heads", "1"}) arguments.push_back(more);
    const ProgramResult result = run_program(program, arguments, folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    return result.output.find("\n" + step + " ") != std::string::npos;
  };
  CHECK(has_line(variant, {"--step", variant}));
  CHECK_FALSE(has_line(kept, {"--step", variant}));
  CHECK(has_line(kept, {}));
  CHECK_FALSE(has_line(variant, {}));
}

// ---- Counters -----------------------------------------------------------------------------------

void run_for_counters(const AnyAttention& attention, int batch, int heads, int tokens,
                      int head_dim) {
  run_for_counters(
      attention, random_attention(
                     {batch, heads, tokens, head_dim, float(1 / std::sqrt(double(head_dim)))}, 1));
}

void run_for_counters(const AnyAttention& attention, const AttentionProblem& problem) {
  std::vector<AttentionArrays> arrays = upload(problem, 1);
  AttentionArrays& a = arrays[0];
  attention(a.Q.data(), a.K.data(), a.V.data(), a.O.data(), problem.shape, nullptr);
  check(cudaDeviceSynchronize());
}

AttentionProblem equal_scores(int heads, int tokens, int head_dim) {
  AttentionProblem problem = random_attention({1, heads, tokens, head_dim, 1}, 1);
  std::fill(problem.q.begin(), problem.q.end(), __float2half(0.0f));
  return problem;
}

}  // namespace lab::testing
