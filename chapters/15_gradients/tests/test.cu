// Chapter 15's tests: each step right on every kind of shape and with extreme scores, the same bits
// where they are promised, what the counters say worked out by hand, the program.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "../../../common/lab/device.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../kernels.h"
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
    for (const int tokens : {1, 17, 32, 65, 129})
      check_steps(random_gradient_case(1, 1 + tokens % 2, tokens, head_dim, uint64_t(tokens)));
  for (const int tokens : {15, 33, 63, 64, 128})
    check_steps(random_gradient_case(1, 1, tokens, 32));
  check_steps(random_gradient_case(3, 2, 19, 64));
}

TEST_CASE("gradients: extreme scores, without NaN") {
  if (skipped("gradients: extreme scores")) return;
  for (const int head_dim : {32, 64, 128})
    for (const GradientCase& problem : extreme_gradient_cases(37, head_dim)) check_steps(problem);
}

TEST_CASE("gradients: arrays from PyTorch") {
  if (skipped("gradients: PyTorch")) return;
  for (const GradientCase& problem : gradient_golden_cases()) check_steps(problem);
}

TEST_CASE("gradients: the forward pass, O and log-sum-exp") {
  if (skipped("gradients: forward")) return;
  std::vector<GradientCase> cases = extreme_gradient_cases(67, 64);
  for (const int head_dim : {32, 128})
    for (const int tokens : {1, 17, 130})
      cases.push_back(random_gradient_case(1, 2, tokens, head_dim));
  for (const GradientCase& problem : cases) {
    CAPTURE(problem.name);
    const lab::AttentionProblem& a = problem.problem.attention;
    const AttentionShape& shape = a.shape;
    const GuardedInput<half> Q(a.q, "Q"), K(a.k, "K"), V(a.v, "V");
    GuardedOutput<half> O(a.q.size(), "O");
    GuardedOutput<float> sums(size_t(shape.rows()), "log_sum_exp");
    replay_once([&](cudaStream_t stream) {
      gradients::forward_pass(Q.data(), K.data(), V.data(), O.data(), sums.data(), shape, stream);
    });
    std::vector<half> output;
    std::vector<float> log_sum_exp;
    CHECK(O.download(output));
    CHECK(sums.download(log_sum_exp));
    const lab::Comparison of_output =
        lab::compare(output, problem.expected.O, problem.expected.for_O,
                     {shape.batch, shape.heads, shape.tokens, shape.head_dim});
    CHECK_MESSAGE(of_output.pass, of_output.describe());
    const lab::Comparison of_sums =
        lab::compare(log_sum_exp, problem.expected.log_sum_exp, problem.expected.for_log_sum_exp,
                     {shape.batch, shape.heads, shape.tokens});
    CHECK_MESSAGE(of_sums.pass, of_sums.describe());
  }
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
    for (int array = 0; array < 9; ++array) {
      CAPTURE(array);
      const AnyGradients shifted = [&](gradients::Pointers p, const AttentionShape& shape,
                                       cudaStream_t stream) {
        const half** const inputs[] = {&p.Q, &p.K, &p.V, &p.O, &p.dO};
        half** const outputs[] = {&p.dQ, &p.dK, &p.dV};
        if (array < 5)
          ++*inputs[array];
        else if (array < 8)
          ++*outputs[array - 5];
        else
          ++p.workspace;
        gradients::run(step, p, shape, stream);
      };
      CHECK(words(shifted, problem).find("must start at a multiple of 16 bytes") !=
            std::string::npos);
    }
  }
}

TEST_CASE("program: the whole way, with a photo") {
  const auto run =
      check_photo_run("chapter15", 64, on_a_gpu({"--batch", "1"}), {3, 1, 12, 17, 64},
                      {"forward", "naive", "recompute", "tensor cores", "deterministic"});
  if (!run) return;
  CHECK(json_at(run->json, "/problem/tokens") == "17");
  CHECK(run->output.find("for patch 2,2 to come out of attention as it went in") !=
        std::string::npos);
}

TEST_CASE("program: flags that are not right") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run_program("chapter15", arguments, folder.folder());
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.errors.find(named) != std::string::npos);
  };
  refused({"--head-dim", "48"}, "--head-dim '48': must be 32, 64 or 128");
  refused({"--tokens", "0"}, "--tokens '0': must be a whole number from 1 to 65536");
  refused({"--tokens", "5", "--size", "32"}, "choose one");
  refused({"--size", "40"}, "--size '40': must be a multiple of 16 pixels");
  refused({"--patch", "14,3"}, "--patch row '14': must be a whole number from 0 to 13");
  refused({"--patch", "class"}, "--patch 'class': must be ROW,COLUMN");
  refused({"--step", "fast"},
          "--step 'fast': must be naive, recompute, tensor cores or deterministic");
}

// ---- The same bits ------------------------------------------------------------------------------

TEST_CASE("bits: the same in every order of blocks, but for atomic additions") {
  if (skipped_without_counters("bits")) return;
  const TemporaryFolder folder;
  for (const Step& step : gradients::steps()) {
    CAPTURE(step.name);
    int64_t other = 0, other_keys = 0;  // numbers of dQ, and of dK and dV
    std::vector<float> first;
    for (const char* schedule : {"random:1", "random:2", "hostile:3"}) {
      setenv("VGPU_SCHEDULE", schedule, 1);
      const ProgramResult result = run_program("chapter15",
                                               {"--step", step.name, "--tokens", "300", "--heads",
                                                "1", "--head-dim", "32", "--output", "out"},
                                               folder.folder());
      unsetenv("VGPU_SCHEDULE");
      CAPTURE(result.errors);
      REQUIRE(result.exit_code == 0);
      const std::vector<float> now = lab::read_safetensors(folder.path("out"), {"out"})[0].values;
      if (first.empty()) first = now;
      REQUIRE(now.size() == first.size());
      for (size_t i = 0; i < now.size(); ++i)
        if (now[i] != first[i]) ++(i < now.size() / 3 ? other : other_keys);
    }
    CHECK(other_keys == 0);
    CHECK((other == 0) == step.same_bits);
  }
}

// A query gets a share from each block of 128 keys, and 0 + a + b = 0 + b + a.
TEST_CASE("bits: dQ of tensor cores, the same in every order up to two blocks of keys") {
  if (skipped_without_counters("bits")) return;
  const TemporaryFolder folder;
  const auto bits = [&](const char* tokens, const char* schedule) {
    setenv("VGPU_SCHEDULE", schedule, 1);
    const ProgramResult result = run_program(
        "chapter15",
        {"--step", "tensor cores", "--tokens", tokens, "--heads", "1", "--output", "out"},
        folder.folder());
    unsetenv("VGPU_SCHEDULE");
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    return lab::read_safetensors(folder.path("out"), {"out"})[0].values;
  };
  CHECK(bits("256", "random:1") == bits("256", "random:2"));
  CHECK(bits("257", "random:1") != bits("257", "random:2"));
}

TEST_CASE("bits: replayed from a graph") {
  if (skipped("bits: graph")) return;
  const GradientCase problem = random_gradient_case(1, 2, 70, 64);
  for (const Step& step : gradients::steps()) {
    CAPTURE(step.name);
    const AnyGradients all = [&](const gradients::Pointers& p, const AttentionShape& shape,
                                 cudaStream_t stream) { gradients::run(step, p, shape, stream); };
    const int64_t workspace = step.workspace_of(problem.problem.attention.shape);
    const GradientOutcome once = run_gradients(all, workspace, problem),
                          again = run_gradients(in_a_graph(all), workspace, problem);
    CHECK(again.caught_by == "");
    if (step.same_bits)
      CHECK(std::memcmp(once.dQ.data(), again.dQ.data(), 2 * once.dQ.size()) == 0);
    CHECK(std::memcmp(once.dK.data(), again.dK.data(), 2 * once.dK.size()) == 0);
  }
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

// What the counters say of each launch of a step, by the launch's name.
using PerLaunch = std::function<void(const std::string& launch)>;
void run_for_counters(const std::string& name, const AttentionShape& shape, const PerLaunch& look) {
  const Step& step = step_of(name);
  const std::vector<half> ones(size_t(shape.elements()), half(0.25f));
  const lab::DeviceArray<half> Q(ones, "Q"), K(ones, "K"), V(ones, "V"), O(ones, "O"),
      dO(ones, "dO");
  const lab::DeviceArray<float> sums(std::vector<float>(size_t(shape.rows()), 5.0f), "log_sum_exp");
  lab::DeviceArray<half> dQ(ones.size(), "dQ"), dK(ones.size(), "dK"), dV(ones.size(), "dV");
  lab::DeviceArray<float> workspace(size_t(step.workspace_of(shape)), "workspace");
  for (const gradients::Launch& launch : step.launches) {
    CAPTURE(launch.name);
    launch.function({Q.data(), K.data(), V.data(), O.data(), dO.data(), sums.data(), dQ.data(),
                     dK.data(), dV.data(), workspace.data()},
                    shape, nullptr);
    lab::check(cudaDeviceSynchronize());
    look(launch.name);
    CHECK(lab::vgpu::counter("/local/store/requests") == 0);
  }
}
double divide_up(double a, double b) { return std::ceil(a / b); }

}  // namespace

TEST_CASE("counters: what goes to memory, what is added atomically, and multiply-adds") {
  if (skipped_without_counters("counters")) return;
  for (const int head_dim : {32, 64, 128}) {
    CAPTURE(head_dim);
    const AttentionShape shape{1, 2, 197, head_dim, 0.125f};
    const double rows = double(shape.rows()), elements = double(shape.elements()),
                 scores = double(shape.scores()), tokens = shape.tokens;
    const auto stored = [](const char* array) { return counted(array, "store/bytes_asked"); };
    const auto added = [] { return lab::vgpu::counter("/global/atomic/bytes_asked"); };
    const auto macs = [] { return lab::vgpu::counter("/tensor_macs"); };

    // P, dP and dS are stored once each; dV, dS, dQ and dK read one or two of the matrices.
    double of_matrices = 0, of_results = 0;
    run_for_counters("naive", shape, [&](const std::string& launch) {
      const bool result = launch == "dQ" || launch == "dK" || launch == "dV";
      if (result) of_results += stored(launch.c_str());
      if (!result) of_matrices += stored("workspace");
      CHECK(added() == 0);
      CHECK(macs() == 0);
    });
    CHECK(of_matrices == 3 * 4 * scores);
    CHECK(of_results == 3 * 2 * elements);

    // Without them: D, and dQ's sums, which begin as zeros; then an addition for each tile of keys.
    run_for_counters("recompute", shape, [&](const std::string& launch) {
      CHECK(stored("workspace") == (launch == "D" ? 4 * (rows + elements) : 0));
      CHECK(added() == (launch == "columns" ? 4 * elements * divide_up(tokens, 32) : 0));
      CHECK(macs() == 0);
      if (launch == "columns") CHECK(stored("dK") == 2 * elements);
    });
    const double keys = head_dim < 128 ? 128 : 64, queries = head_dim < 128 ? 64 : 32;
    const double of_product =  // of the columns, whole tiles
        2 * divide_up(tokens, keys) * keys * divide_up(tokens, queries) * queries * head_dim;
    run_for_counters("tensor cores", shape, [&](const std::string& launch) {
      CHECK(stored("workspace") == (launch == "D" ? 4 * (rows + elements) : 0));
      CHECK(added() == (launch == "columns" ? 4 * elements * divide_up(tokens, keys) : 0));
      CHECK(macs() == (launch == "columns" ? 5 * of_product : 0));
      CHECK(shared_conflicts() == 0);
      if (launch != "columns") return;
      // K and V once, Q and dO once for each tile of keys.
      CHECK(counted("K", "load/bytes_asked") == 2 * elements);
      CHECK(counted("Q", "load/bytes_asked") == 2 * elements * divide_up(tokens, keys));
      CHECK(stored("dK") == 2 * elements);
      CHECK(stored("dV") == 2 * elements);
    });
    const double of_rows = head_dim < 128 ? 128 : 64, of_keys = head_dim < 128 ? 64 : 32;
    run_for_counters("deterministic", shape, [&](const std::string& launch) {
      CHECK(stored("workspace") == (launch == "D" ? 4 * rows : 0));
      CHECK(added() == 0);
      CHECK(shared_conflicts() == 0);
      if (launch == "columns") CHECK(macs() == 4 * of_product);
      if (launch != "rows") return;
      CHECK(macs() == 3 * 2 * divide_up(tokens, of_rows) * of_rows * divide_up(tokens, of_keys) *
                          of_keys * head_dim);
      CHECK(counted("Q", "load/bytes_asked") == 2 * elements);
      CHECK(counted("K", "load/bytes_asked") == 2 * elements * divide_up(tokens, of_rows));
      CHECK(stored("dQ") == 2 * elements);
    });
  }
}

// ---- Checks -------------------------------------------------------------------------------------

TEST_CASE("all checks, six schedules") {
  // (128 keys or queries are a block's, 64 or 32 a tile's.)
  check_all_checks("chapter15", {{"--tokens", "67", "--heads", "1", "--head-dim", "128"}});
}

TEST_CASE("machine code: no spills") { check_machine_code("chapters/15_gradients"); }

TEST_CASE("on a T4") { check_twin_on_t4("gradients: arrays*,gradients: extreme*"); }
