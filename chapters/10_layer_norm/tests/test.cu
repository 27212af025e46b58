// Chapter 10's tests: each step right on every kind of shape and storage, with large means, same bits
// twice, planted bugs, and counters by formula. The way back: test_backward.cu.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../../../common/lab/device.h"
#include "../../../common/testing/checks.h"
#include "../kernels.h"
#include "test_support.h"

namespace steps = layer_norm;
using namespace lab::testing;
using lab::Storage;

namespace {

template <class T>
std::vector<lab::LayerNormStep<T>> all_steps() {
  return steps::kernels<T>().steps;
}

template <class T>
void check_steps(const LayerNormCase& problem, const Shift& shift = {}) {
  CAPTURE(problem.name);
  CAPTURE(shift.elements);
  CAPTURE(shift.only);
  for (const lab::LayerNormStep<T>& step : all_steps<T>()) {
    CAPTURE(step.name);
    const LayerNormOutcome<T> outcome = run_forward<T>(step.function, problem, shift);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
  const LayerNormOutcome<T> outcome = run_residual<T>(steps::kernels<T>().residual, problem, shift);
  CAPTURE(outcome.details);
  CHECK(outcome.caught_by == "");
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

// ---- Right results ------------------------------------------------------------------------------

TEST_CASE("right: every kind of shape, both storages") {
  if (skipped("right")) return;
  for (const LayerNormShape& shape : layer_norm_shapes()) {
    check_steps<half>(layer_norm_case(shape, Storage::kFp16));
    check_steps<float>(layer_norm_case(shape, Storage::kFp32));
  }
  // A piece of 16 bytes more than residual() takes in one launch.
  check_steps<half>(layer_norm_case({5, 2056, 1e-6f}, Storage::kFp16));
  check_steps<float>(layer_norm_case({5, 1028, 1e-6f}, Storage::kFp32));
}

TEST_CASE("right: arrays from PyTorch") {
  if (skipped("right: PyTorch")) return;
  const std::vector<LayerNormCase> cases = layer_norm_golden_cases();
  REQUIRE(cases.size() == 5);
  for (const LayerNormCase& problem : cases)
    problem.problem.storage == Storage::kFp16 ? check_steps<half>(problem)
                                              : check_steps<float>(problem);
}

TEST_CASE("right: rows whose mean is a thousand times their deviation") {
  if (skipped("right: large means")) return;
  for (const double mean : {-3000.0, 1000.0}) {
    check_steps<half>(layer_norm_case({19, 768, 1e-6f}, Storage::kFp16, 3, mean));
    check_steps<float>(layer_norm_case({19, 768, 1e-6f}, Storage::kFp32, 3, mean));
  }
  check_steps<float>(layer_norm_case({5, 1000, 1e-6f}, Storage::kFp32, 4, 1e5));
}

TEST_CASE("right: the variance from two sums is not, and the tolerance sees it") {
  if (skipped("right: naive variance")) return;
  const auto caught = [](double mean, auto of_type, Storage storage) {
    using T = decltype(of_type);
    return run_forward<T>(steps::kernels<T>().naive_variance.function,
                          layer_norm_case({19, 768, 1e-6f}, storage, 3, mean))
        .caught_by;
  };
  CHECK(caught(0, half(), Storage::kFp16) == "");
  CHECK(caught(0, float(), Storage::kFp32) == "");
  CHECK(caught(1000, half(), Storage::kFp16) == "element");
  CHECK(caught(1000, float(), Storage::kFp32) == "element");
}

TEST_CASE("right: rows that are all one number") {
  if (skipped("right: flat rows")) return;
  LayerNormCase problem = layer_norm_case({9, 256, 1e-6f}, Storage::kFp16);
  std::fill(problem.problem.x.begin(), problem.problem.x.end(), 0.75);
  problem.expected = lab::expected_layer_norm(problem.problem);
  check_steps<half>(problem);  // the variance is 0, and y is bias
}

TEST_CASE("right: arrays that do not start at a multiple of 16 bytes") {
  if (skipped("right: unaligned")) return;
  const LayerNormCase halves = layer_norm_case({11, 256, 1e-6f}, Storage::kFp16),
                      floats = layer_norm_case({11, 256, 1e-6f}, Storage::kFp32);
  for (int only = -1; only < 6; ++only) {  // all arrays, or one of six
    check_steps<half>(halves, {1, only});
    check_steps<float>(floats, {3, only});
  }
  // The sum alone, which residual() needs where it cannot be one launch.
  const std::vector<half> ones(size_t(halves.problem.shape.elements()), half(1.0f));
  for (int only = 0; only < 3; ++only) {
    const Shift shift(1, only);
    const GuardedInput<half> x(ones, "x", shift.of(0)), r(ones, "r", shift.of(1));
    GuardedOutput<half> sum(ones.size(), "sum", shift.of(2));
    std::vector<half> sums;
    steps::kernels<half>().add(x.data(), r.data(), sum.data(), halves.problem.shape, nullptr);
    CHECK(sum.download(sums));
    CHECK(std::count(sums.begin(), sums.end(), half(2.0f)) == int64_t(ones.size()));
  }
}

namespace {
template <class T>
void check_copy(const LayerNormShape& shape) {
  const auto& copy = steps::kernels<T>().copy;
  const std::vector<T> values = lab::stored_as<T>(layer_norm_case(shape, kStorage<T>).problem.x);
  const GuardedInput<T> x(values, "x");
  GuardedOutput<T> y(values.size(), "y");
  copy(x.data(), y.data(), shape, nullptr);
  std::vector<T> copied;
  CHECK(y.download(copied));
  CHECK(same_bits(copied, values));
  const GuardedInput<T> x_off(values, "x", 1);
  GuardedOutput<T> y_off(values.size(), "y", 1);
  const auto off = doctest::Contains("must start at a multiple of 16 bytes");
  CHECK_THROWS_WITH_AS(copy(x_off.data(), y.data(), shape, nullptr), off, std::invalid_argument);
  CHECK_THROWS_WITH_AS(copy(x.data(), y_off.data(), shape, nullptr), off, std::invalid_argument);
}
}  // namespace

TEST_CASE("right: the copy that is the measure, whole pieces of 16 bytes and what is left") {
  if (skipped("right: copy")) return;
  for (const int columns : {64, 65}) {
    check_copy<half>({3, columns, 1e-6f});
    check_copy<float>({3, columns, 1e-6f});
  }
}

TEST_CASE("right: in place") {
  if (skipped("right: in place")) return;
  const LayerNormCase problem = layer_norm_case({37, 768, 1e-6f}, Storage::kFp16);
  const lab::LayerNormProblem& p = problem.problem;
  const lab::DeviceArray<half> scale(lab::stored_as<half>(p.scale), "scale"),
      bias(lab::stored_as<half>(p.bias), "bias");
  for (const lab::LayerNormStep<half>& step : all_steps<half>()) {
    CAPTURE(step.name);
    lab::DeviceArray<half> x(lab::stored_as<half>(p.x), "x");
    step.function(x.data(), scale.data(), bias.data(), x.data(), p.shape, nullptr);
    const lab::Comparison right =
        lab::compare(x.download(), problem.expected.y, problem.expected.for_y, {37, 768});
    CHECK_MESSAGE(right.pass, right.describe());
  }
}

TEST_CASE("the same bits twice, in a graph, and fused or not") {
  if (skipped("the same bits")) return;
  for (const int columns : {768, 100}) {
    const LayerNormCase problem = layer_norm_case({67, columns, 1e-6f}, Storage::kFp16, 2);
    for (const lab::LayerNormStep<half>& step : all_steps<half>()) {
      CAPTURE(step.name);
      const auto first = run_forward<half>(step.function, problem);
      CHECK(same_bits(first.output, run_forward<half>(step.function, problem).output));
      CHECK(same_bits(first.output, run_forward<half>(in_a_graph(step.function), problem).output));
    }
    const lab::LayerNormKernels<half> kernels = steps::kernels<half>();
    const auto two = [&](const half* x, const half* r, const half* scale, const half* bias,
                         half* sum, half* y, const LayerNormShape& shape, cudaStream_t stream) {
      kernels.add(x, r, sum, shape, stream);
      kernels.steps.back().function(sum, scale, bias, y, shape, stream);  // rows
    };
    const auto fused = run_residual<half>(kernels.residual, problem);
    CHECK(same_bits(fused.output, run_residual<half>(two, problem).output));
    CHECK(
        same_bits(fused.output, run_residual<half>(in_a_graph(kernels.residual), problem).output));
  }
}

TEST_CASE("what they cannot do they refuse") {
  const auto message = [](const LayerNormShape& shape, const auto& step) -> std::string {
    const half* const some = reinterpret_cast<const half*>(256);
    try {
      step.function(some, some, some, nullptr, shape, nullptr);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  for (const lab::LayerNormStep<half>& step : all_steps<half>()) {
    CAPTURE(step.name);
    CHECK(message({0, 768, 1e-6f}, step) ==
          "layer norm of shape [rows 0, columns 768, epsilon 1e-06]: rows must be at least 1");
    for (const int columns : {0, 63, 4097})
      CHECK(message({3, columns, 1e-6f}, step).find("columns must be 64 to 4096") !=
            std::string::npos);
    CHECK(message({3, 768, 0.0f}, step).find("epsilon must lie between 0 and 1") !=
          std::string::npos);
    CHECK(message({3, 768, 1e-6f}, step).find("no array may be null") != std::string::npos);
  }
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

// The bytes of an element, T's.
template <class T>
constexpr double kBytes = sizeof(T);

struct Arrays {
  lab::DeviceArray<half> x, residual, scale, bias, y, sum;
  explicit Arrays(const LayerNormShape& shape)
      : x(std::vector<half>(shape.elements(), half(1.0f)), "x"),
        residual(std::vector<half>(shape.elements(), half(1.0f)), "residual"),
        scale(std::vector<half>(shape.columns, half(1.0f)), "scale"),
        bias(std::vector<half>(shape.columns, half(1.0f)), "bias"),
        y(size_t(shape.elements()), "y"),
        sum(size_t(shape.elements()), "sum") {}
};

void run_for_counters(const std::string& name, const LayerNormShape& shape) {
  Arrays a(shape);
  const lab::LayerNormKernels<half> kernels = steps::kernels<half>();
  for (const lab::LayerNormStep<half>& step : kernels.steps)
    if (step.name == name)
      step.function(a.x.data(), a.scale.data(), a.bias.data(), a.y.data(), shape, nullptr);
  if (name == "copy") kernels.copy(a.x.data(), a.y.data(), shape, nullptr);
  if (name == "residual")
    kernels.residual(a.x.data(), a.residual.data(), a.scale.data(), a.bias.data(), a.sum.data(),
                     a.y.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
}

}  // namespace

TEST_CASE("counters: how often x is read, and in how many requests and sectors") {
  if (skipped_without_counters("counters")) return;
  for (const int columns : {256, 768, 2048}) {
    CAPTURE(columns);
    const LayerNormShape shape{53, columns, 1e-6f};
    const double rows = shape.rows, bytes = 2 * double(shape.elements());
    // Elements a request: 32 lanes with one of 2 bytes each, or with 8.
    const double narrow = columns / 32, wide = std::ceil(columns / 256.0);
    for (const auto& [name, reads, requests, of_scale] :
         {std::tuple{"base", 3.0, narrow, rows * narrow},
          {"cub", 3.0, narrow, rows * narrow},
          {"warp", 1.0, narrow, rows * narrow},
          {"vector", 1.0, wide, rows * wide},
          {"rows", 1.0, wide, columns <= 1024 ? std::ceil(rows / 2) * wide : rows * wide}}) {
      CAPTURE(name);
      run_for_counters(name, shape);
      CHECK(counted("x", "load/bytes_asked") == reads * bytes);
      CHECK(counted("x", "load/requests") == reads * rows * requests);
      CHECK(counted("x", "load/sectors") == reads * bytes / 32);
      CHECK(counted("scale", "load/requests") == of_scale);
      CHECK(counted("bias", "load/requests") == of_scale);
      CHECK(counted("y", "store/bytes_asked") == bytes);
      CHECK(counted("y", "store/requests") == rows * requests);
      CHECK(counted("y", "store/sectors") == bytes / 32);
      CHECK(lab::vgpu::counter("/local/store/requests") == 0);
    }
  }
}

TEST_CASE("counters: the tree's wavefronts in shared memory, and none in steps with shuffles") {
  if (skipped_without_counters("counters: tree")) return;
  const LayerNormShape shape{29, 768, 1e-6f};
  run_for_counters("base", shape);
  // A sum: 8 warps store their values; then 4, 2 and 1 warps, and one warp five times more, load two
  // values and store one; in the end 8 warps load the sum.
  const double of_a_sum = 8 + 3 * (4 + 2 + 1 + 5) + 8;
  CHECK(shared_wavefronts() == 2 * shape.rows * of_a_sum);
  CHECK(shared_conflicts() == 0);
  for (const char* name : {"warp", "vector", "rows", "residual"}) {
    CAPTURE(name);
    run_for_counters(name, shape);
    CHECK(shared_wavefronts() == 0);
  }
}

TEST_CASE("counters: CUB meets in shared memory an order of magnitude less often than the tree") {
  if (skipped_without_counters("counters: cub")) return;
  const LayerNormShape shape{29, 768, 1e-6f};
  run_for_counters("base", shape);
  const double tree = shared_wavefronts();
  run_for_counters("cub", shape);
  // A sum: 8 warps store one value each, thread 0 loads the 7 others', stores the sum, and 8 warps
  // load it.
  CHECK(shared_wavefronts() <= 2 * shape.rows * (8 + 7 + 1 + 8));
  CHECK(shared_wavefronts() * 2 < tree);
  CHECK(shared_conflicts() == 0);
}

TEST_CASE("counters: copy and residual move each byte once") {
  if (skipped_without_counters("counters: copy")) return;
  const LayerNormShape shape{53, 768, 1e-6f};
  const double bytes = 2 * double(shape.elements());
  run_for_counters("copy", shape);
  CHECK(counted("x", "load/bytes_asked") == bytes);
  CHECK(counted("y", "store/bytes_asked") == bytes);
  CHECK(counted("x", "load/requests") == std::ceil(bytes / 512));
  run_for_counters("residual", shape);
  CHECK(lab::vgpu::counter("/grid/0") == std::ceil(shape.rows / 8.0));
  for (const char* array : {"x", "residual"}) {
    CAPTURE(array);
    CHECK(counted(array, "load/bytes_asked") == bytes);
    CHECK(counted(array, "load/sectors") == bytes / 32);
  }
  for (const char* array : {"sum", "y"}) {
    CAPTURE(array);
    CHECK(counted(array, "store/bytes_asked") == bytes);
    CHECK(counted(array, "store/requests") == shape.rows * 3);
  }
  CHECK(counted("sum", "load/requests") == 0);  // it stayed in registers
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// Shapes that one instance of a kernel takes: `columns` in this order.
void check_bugs(const std::string& file, const std::vector<Mutant>& bugs,
                const std::string& instances, const std::vector<LayerNormShape>& shapes,
                const std::function<ForwardStep<half>(const Mutants&, size_t)>& step_of) {
  std::vector<LayerNormCase> cases;
  for (const LayerNormShape& shape : shapes)
    cases.push_back(layer_norm_case(shape, Storage::kFp16));
  cases.push_back(layer_norm_case(shapes.back(), Storage::kFp16, 5, 512));
  LayerNormCase flat = cases[0];
  std::fill(flat.problem.x.begin(), flat.problem.x.end(), 0.5);
  flat.expected = lab::expected_layer_norm(flat.problem);
  cases.push_back(flat);
  const Mutants mutants("chapters/10_layer_norm/" + file, "layer_norm", bugs, instances,
                        Mutants::kKernelsOnly);
  check_each_bug(bugs, cases.size(), [&](size_t number, size_t trial) {
    return named(cases[trial].name, run_forward<half>(step_of(mutants, number), cases[trial]));
  });
}

// A mutant of that step's kernel.
ForwardStep<half> launching(const std::string& step, const void* kernel) {
  return [=](const half* x, const half* scale, const half* bias, half* y,
             const LayerNormShape& shape, cudaStream_t stream) {
    const steps::Grid grid = steps::grid_of(step, shape);
    launch(kernel, grid.blocks, grid.threads, 0, stream, x, scale, bias, y, shape);
  };
}
const std::string kHalf = "6__half";

}  // namespace

TEST_CASE("planted bugs in base: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in base*")) return;
  check_bugs("1_base.cuh", planted_bugs("10_layer_norm", "base"),
             "template __global__ void base_kernel<half>(const half*, "
             "const half*, const half*, half*, const Shape);",
             {{3, 64, 1e-6f}, {9, 768, 1e-6f}}, [](const Mutants& mutants, size_t number) {
               return launching("base", mutants.kernel(number, "base_kernel", {}, kHalf));
             });
}

TEST_CASE("planted bugs in warp: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in warp*")) return;
  check_bugs("3_warp.cuh", planted_bugs("10_layer_norm", "warp"),
             "template __global__ void warp_kernel<half, 4>(const half*, const half*, const half*, "
             "half*, const Shape);",
             {{3, 64, 1e-6f}, {9, 100, 1e-6f}}, [](const Mutants& mutants, size_t number) {
               return launching("warp", mutants.kernel(number, "warp_kernel", {4}, kHalf));
             });
}

TEST_CASE("planted bugs in vector: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in vector*")) return;
  check_bugs("4_vector.cuh", planted_bugs("10_layer_norm", "vector"),
             "template __global__ void vector_kernel<half, 2>(const half*, const half*, const "
             "half*, half*, const Shape);",
             {{3, 64, 1e-6f}, {9, 264, 1e-6f}}, [](const Mutants& mutants, size_t number) {
               return launching("vector", mutants.kernel(number, "vector_kernel", {2}, kHalf));
             });
}

TEST_CASE("planted bugs in rows: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in rows*")) return;
  check_bugs("5_rows.cuh", planted_bugs("10_layer_norm", "rows"),
             "template __global__ void rows_kernel<half, 2>(const half*, const half*, const half*, "
             "half*, const Shape);",
             {{3, 64, 1e-6f}, {9, 264, 1e-6f}}, [](const Mutants& mutants, size_t number) {
               return launching("rows", mutants.kernel(number, "rows_kernel", {2}, kHalf));
             });
}

TEST_CASE("planted bugs in residual: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in residual*")) return;
  const std::vector<Mutant> bugs = planted_bugs("10_layer_norm", "residual");
  const Mutants mutants(
      "chapters/10_layer_norm/6_residual.cuh", "layer_norm", bugs,
      "template __global__ void residual_kernel<half, 2>(const half*, const half*, const half*, "
      "const half*, half*, half*, const Shape);",
      Mutants::kKernelsOnly);
  const LayerNormCase problem = layer_norm_case({9, 264, 1e-6f}, Storage::kFp16);
  for (size_t number = 0; number <= bugs.size(); ++number) {
    const void* const kernel = mutants.kernel(number, "residual_kernel", {2}, kHalf);
    const auto step = [&](const half* x, const half* r, const half* scale, const half* bias,
                          half* sum, half* y, const LayerNormShape& shape, cudaStream_t stream) {
      const steps::Grid grid = steps::grid_of("residual", shape);
      launch(kernel, grid.blocks, grid.threads, 0, stream, x, r, scale, bias, sum, y, shape);
    };
    const auto outcome = run_residual<half>(step, problem);
    CAPTURE(number);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == (number ? bugs[number - 1].caught_by : ""));
  }
}

// ---- Checks -------------------------------------------------------------------------------------

TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;
  const int findings = lab::vgpu::findings();
  for (const int columns : {64, 100, 768, 2048})
    check_steps<half>(layer_norm_case({19, columns, 1e-6f}, Storage::kFp16));
  check_steps<float>(layer_norm_case({19, 264, 1e-6f}, Storage::kFp32));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("the program under all checks, in several orders") {
  check_all_checks("chapter10", {{"--rows", "70", "--columns", "264"},
                                 {"--rows", "70", "--columns", "100", "--storage", "fp32"}});
}

TEST_CASE("machine code: no spills") { check_machine_code("chapters/10_layer_norm"); }

TEST_CASE("on a T4") {
  check_twin_on_t4("right: arrays from*,right: rows whose*,the same bits*,counters: how*");
}
