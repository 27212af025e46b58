// Chapter 11's tests: each step right on ragged shapes, GELU exact, same bits twice, planted bugs
// found, what the counters say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "../kernels.h"
#include "internals.h"
#include "test_support.h"

using namespace lab::testing;
using lab::Storage;

namespace {

using Step = mlp::LayerStep<half>;
const std::vector<Step>& kSteps = mlp::layer_steps<half>();
template <class Element = half>
const mlp::LayerStep<Element>& step(const std::string& name) {
  for (const mlp::LayerStep<Element>& one : mlp::layer_steps<Element>())
    if (name == one.name) return one;
  throw std::invalid_argument("there is no step " + name);
}

bool has_tf32() { return mlp::lacking<float>().empty(); }

template <class Element = half>
void check_steps(const ProductTrial& trial, const Shift& shift = {}) {
  for (const mlp::LayerStep<Element>& step : mlp::layer_steps<Element>()) {
    const ProductOutcome outcome = run_product<Element>(step.layer, trial, shift);
    CAPTURE(step.name);
    CAPTURE(trial.name);
    CAPTURE(shift.elements);
    CAPTURE(shift.only);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}
// The epilogue with each of its tiles, whichever it would choose.
template <class Element>
void check_tiles(const ProductTrial& trial) {
  for (const mlp::EpilogueTile<Element>& tile : mlp::epilogue_tiles<Element>()) {
    if (shared_limit() < tile.shared_bytes || !tile.has_code()) continue;
    if (tile.name != std::string("small") && trial.shape.n % 8 != 0) continue;
    const ProductOutcome outcome = run_product<Element>(tile.layer, trial);
    CAPTURE(tile.name);
    CAPTURE(trial.name);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

}  // namespace

// ---- Right --------------------------------------------------------------------------------------

TEST_CASE(
    "right: every remainder of a tile, a fragment and a slice, with and without what is behind") {
  if (skipped("right")) return;
  uint64_t seed = 1;
  for (const mlp::Shape& shape : product_shapes()) {
    // Arrays that begin at odd elements, too; x and weight are copied in pieces of 16 bytes.
    check_steps(product_trial(shape, seed, Behind(seed % 4)), int(seed % 5 == 0));
    ++seed;
  }
  // One of bias, residual and y alone, where all else would let them be moved 16 bytes at a time.
  const ProductTrial whole = product_trial({70, 72, 64, true}, seed, Behind::kBoth);
  for (int only = 0; only < 3; ++only) check_steps(whole, {1, only});
}

TEST_CASE("right: each step on arrays in fp32, multiplied in tf32") {
  if (skipped("arrays in fp32")) return;
  if (!has_tf32()) return;
  uint64_t seed = 40;  // the first shape, a single output, is the tiles' test's
  for (const mlp::Shape& shape : product_shapes())
    if (++seed % 2 == 0 || shape.k == 264)
      check_steps<float>(product_trial(shape, seed, Behind(seed / 2 % 4), Storage::kFp32),
                         seed % 3 == 0);
  // Rows that are whole pieces of floats and none of halves; and, for wmma, none of either.
  check_steps<float>(product_trial({33, 12, 20, true}, 7, Behind::kBoth, Storage::kFp32));
  const ProductTrial any = product_trial({19, 70, 31, true}, 8, Behind::kBoth, Storage::kFp32);
  CHECK(run_product<float>(step<float>("wmma").layer, any).caught_by == "");
}

TEST_CASE("right: floats are rounded to tf32 and not cut") {
  if (skipped("rounded to tf32")) return;
  if (!has_tf32()) return;
  // 1 + 2^-11 + 2^-12 lies above the middle of two numbers of tf32, 1 and 1 + 2^-10: rounded it is the
  // latter. Products by 1 and sums of 8 of them are exact.
  ProductTrial trial;
  trial.name = "rounded to tf32";
  trial.shape = {16, 8, 8, false};
  trial.storage = Storage::kFp32;
  trial.x.assign(16 * 8, 1 + 0x1p-11f + 0x1p-12f), trial.weight.assign(8 * 8, 1.0f);
  trial = product_trial(trial);
  for (const mlp::LayerStep<float>& step : mlp::layer_steps<float>()) {
    CAPTURE(step.name);
    for (const float y : run_product<float>(step.layer, trial).y) CHECK(y == 8 * (1 + 0x1p-10f));
  }
}

TEST_CASE("right: each of the epilogue's tiles, in fp16 and in tf32") {
  if (skipped("each of the epilogue's tiles")) return;
  uint64_t seed = 21;
  for (const mlp::Shape& shape : product_shapes()) {
    check_tiles<half>(product_trial(shape, seed++));
    if (has_tf32()) check_tiles<float>(product_trial(shape, seed++, Behind::kBoth, Storage::kFp32));
  }
}

TEST_CASE("right: wmma takes any k and any array") {
  if (skipped("any k")) return;
  const auto check = [](const ProductTrial& trial, const Shift& shift) {
    const ProductOutcome outcome = run_product<half>(step("wmma").layer, trial, shift);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  };
  for (const int k : {1, 7, 31, 33, 50}) check(product_trial({19, 70, k, true}, uint64_t(k)), {});
  // x or weight alone, where all else would let them be loaded 16 bytes at a time.
  for (int only = 3; only < 5; ++only) check(product_trial({19, 70, 64, true}, 2), {1, only});
}

TEST_CASE("right: arrays from PyTorch") {
  if (skipped("arrays from PyTorch")) return;
  for (const ProductTrial& trial : product_golden_trials()) check_steps(trial);
}

TEST_CASE("right: GELU is the exact one, over all of its range") {
  if (skipped("GELU")) return;
  // x is diagonal: each sum is one number times 1.
  ProductTrial trial;
  trial.name = "GELU";
  trial.shape = {1024, 8, 8, true};
  trial.x.assign(8 * 1024, 0.0f), trial.weight.assign(64, 0.0f);
  for (int i = 0; i < 8; ++i) trial.weight[9 * i] = 1;
  for (int row = 0; row < 1024; ++row)
    trial.x[8 * row + row % 8] = __half2float(__float2half(float(row - 512) / 64));  // -8 to 8
  trial = product_trial(trial);
  // fp16's rounding, 2^-11, and the error of our GELU, 4.8e-7; tanh's approximation is 900 times as
  // far off.
  trial.tolerance = {.atol = 4.8e-7, .rtol = 0x1p-11 * 1.01, .relative_l2 = 0x1p-11};
  for (const Step& step : kSteps) {
    CAPTURE(step.name);
    const ProductOutcome outcome = run_product<half>(step.layer, trial);
    CAPTURE(outcome.details);
    // Steps that store the sums first round nothing: these are numbers of fp16.
    CHECK(outcome.caught_by == "");
  }
}

TEST_CASE("right: GELU by itself is as exact as its comment says") {
  if (skipped("GELU by itself")) return;
  std::vector<float> values;
  for (float v = -5; v <= 5; v += 0x1p-9f) values.push_back(v);
  const size_t within =
      values.size();  // numbers of the range whose error the coefficients make least
  for (const float v : {5.5f, 8.0f, 14.0f, 65504.0f, 1e30f})
    values.push_back(v), values.push_back(-v);
  const lab::DeviceArray<float> in(values, "v");
  lab::DeviceArray<float> out(values.size(), "y");
  mlp::apply_gelu(in.data(), out.data(), int(values.size()));
  lab::check(cudaDeviceSynchronize());
  const std::vector<float> y = out.download();
  double absolute = 0, relative = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i], exact = v / 2 * std::erfc(-v / std::sqrt(2.0));
    CAPTURE(v);
    if (v >= 0) CHECK(std::abs(y[i] - exact) <= 4.8e-7 + 0x1p-23 * v);  // y's own rounding
    if (v >= 0) continue;
    absolute = std::max(absolute, std::abs(y[i] - exact));
    if (i < within) relative = std::max(relative, std::abs(y[i] / exact - 1));
    if (i >= within) CHECK(std::abs(y[i] - exact) < 1e-12 + 1e-3 * std::abs(exact));
  }
  CHECK(absolute <= 4.8e-7);
  CHECK(relative <= 4e-6);
  CHECK(relative > 1e-7);  // not the library's erf: that takes three times as many instructions
}

TEST_CASE("right: sums stay in fp32: 4096 products of 1, where fp16 ends at 2048") {
  if (skipped("sums in fp32")) return;
  ProductTrial trial;
  trial.name = "sums of 4096";
  trial.shape = {17, 9, 4096, false};
  trial.x.assign(17 * 4096, 1.0f), trial.weight.assign(9 * 4096, 1.0f);
  trial = product_trial(trial);
  trial.tolerance = {};
  check_steps(trial);
}

TEST_CASE("right: the epilogue rounds once, behind the residual") {
  if (skipped("rounds once")) return;
  // A sum of 1 + 2^-11 lies in the middle of two numbers of fp16 and would be rounded to 1. With the residual,
  // 2^-12, it lies above the middle.
  ProductTrial trial;
  trial.name = "rounded once";
  trial.shape = {16, 8, 8, false};
  trial.x.assign(16 * 8, 0.0f), trial.weight.assign(8 * 8, 0.0f);
  for (int row = 0; row < 16; ++row) trial.x[8 * row] = 1, trial.x[8 * row + 1] = 0x1p-11f;
  for (int column = 0; column < 8; ++column)
    trial.weight[8 * column] = trial.weight[8 * column + 1] = 1;
  trial.residual.assign(16 * 8, 0x1p-12f);
  trial = product_trial(trial);
  for (const mlp::EpilogueTile<half>& tile : mlp::epilogue_tiles<half>()) {
    if (shared_limit() < tile.shared_bytes || !tile.has_code()) continue;
    CAPTURE(tile.name);
    for (const float y : run_product<half>(tile.layer, trial).y) CHECK(y == 1 + 0x1p-10f);
  }
}

TEST_CASE("right: no output takes part in another's: NaN in one row stays there") {
  if (skipped("NaN in one row")) return;
  ProductTrial trial = product_trial({70, 66, 72, false}, 9);
  for (int i = 0; i < 72; ++i) trial.x[size_t(33) * 72 + i] = NAN;
  for (const Step& step : kSteps) {
    CAPTURE(step.name);
    const ProductOutcome outcome = run_product<half>(step.layer, trial);
    REQUIRE(outcome.y.size() == trial.y.size());
    int wrong = 0;
    for (size_t i = 0; i < outcome.y.size(); ++i)
      wrong += (i / 66 == 33) != std::isnan(outcome.y[i]);
    CHECK(wrong == 0);
  }
}

TEST_CASE("the same bits twice, and in a graph; steps 2 to 4 have the same") {
  if (skipped("the same bits twice")) return;
  const ProductTrial trial = product_trial({150, 200, 328, true}, 8);
  std::vector<float> of_registers;
  for (const Step& step : kSteps) {
    CAPTURE(step.name);
    const std::vector<float> first = run_product<half>(step.layer, trial).y;
    REQUIRE(first.size() == trial.y.size());
    CHECK(run_product<half>(step.layer, trial).y == first);
    if (std::string(step.name) != "graph")
      CHECK(run_product<half>(lab::testing::in_a_graph(step.layer), trial).y == first);
    if (std::string(step.name) == "registers") of_registers = first;
    if (std::string(step.name) == "pipeline" || std::string(step.name) == "swizzle")
      CHECK(first == of_registers);
  }
}

TEST_CASE("what they cannot do they refuse") {
  half* const aligned = reinterpret_cast<half*>(64);
  for (const Step& step : kSteps) {
    CAPTURE(step.name);
    const auto message = [&](const mlp::Shape& shape, const half* x, const half* weight,
                             half* y) -> std::string {
      try {
        step.layer(x, weight, nullptr, nullptr, y, shape, nullptr);
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "";
    };
    CHECK(message({0, 8, 8, true}, aligned, aligned, aligned) ==
          "product of shape [m 0, n 8, k 8, GELU]: m, n and k must be at least 1");
    CHECK(message({1 << 16, 1 << 16, 8}, aligned, aligned, aligned).find("fewer than 2^31") !=
          std::string::npos);
    CHECK(message({8, 8, 8}, nullptr, aligned, aligned).find("must not be null") !=
          std::string::npos);
    if (std::string(step.name) == "wmma") continue;
    CHECK(
        message({8, 8, 12}, aligned, aligned, aligned) ==
        "product of shape [m 8, n 8, k 12]: k must be a multiple of 8: this step copies rows of x "
        "and weight 16 bytes at a time");
    CHECK(message({8, 8, 8}, aligned + 4, aligned, aligned)
              .find("x must start at a multiple of 16 bytes") != std::string::npos);
    CHECK(message({8, 8, 8}, aligned, aligned + 4, aligned)
              .find("weight must start at a multiple of 16 bytes") != std::string::npos);
  }
}

TEST_CASE("tf32 is refused by name where there is none") {
  if (skipped("tf32")) return;
  const std::string lack = mlp::lacking<float>();
  const ProductTrial trial = product_trial({8, 8, 8}, 1, Behind::kBoth, Storage::kFp32);
  if (!lack.empty())
    CHECK(lack == "products in tf32 need compute capability 8.0 or newer, this device has 7.5");
  for (const mlp::LayerStep<float>& step : mlp::layer_steps<float>()) {
    const ProductOutcome outcome = run_product<float>(step.layer, trial);
    CAPTURE(step.name);
    CHECK(outcome.caught_by == (lack.empty() ? "" : "error"));
    if (!lack.empty()) CHECK(outcome.details == lack);
  }
}

TEST_CASE("the epilogue's tile: full rounds, and what fits") {
  const int h200 = 227 * 1024, of_8_6 = 99 * 1024, t4 = 64 * 1024;
  // 33 x 4 and 33 x 16 tiles of 192 x 192 on 132 SMs.
  CHECK(mlp::chosen_tile({6304, 768, 3072}, 132, h200, true) == "wide");
  CHECK(mlp::chosen_tile({6304, 3072, 768}, 132, h200, true) == "wide");
  // 2 x 4 of them would leave 124 SMs idle.
  CHECK(mlp::chosen_tile({197, 768, 3072}, 132, h200, true) == "small");
  // An A100 has the memory, and no code for it.
  CHECK(mlp::chosen_tile({6304, 3072, 768}, 108, 163 * 1024, false) == "large");
  CHECK(mlp::chosen_tile({6304, 3072, 768}, 84, of_8_6, true) == "large");
  CHECK(mlp::chosen_tile({6304, 3072, 768}, 40, t4, false) == "small");
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

// Leaves the counters of a product alone as those of the last launch.
using Product =
    std::function<void(const half* x, const half* weight, half* y, const mlp::Shape& shape)>;
void run_for_counters(const Product& product, const mlp::Shape& shape) {
  const ProductTrial trial = product_trial(shape, 1, Behind::kNothing);
  const auto half_of = [](const std::vector<float>& values) {
    std::vector<half> result;
    for (const float value : values) result.push_back(__float2half(value));
    return result;
  };
  lab::DeviceArray<half> x(half_of(trial.x), "x"), weight(half_of(trial.weight), "weight"),
      y(size_t(shape.y_elements()), "y");
  product(x.data(), weight.data(), y.data(), shape);
  lab::check(cudaDeviceSynchronize());
}
double up(double value, double multiple) { return std::ceil(value / multiple) * multiple; }

// Bytes of the slices of x and weight that pipeline keeps for a tile with so many rows and columns: three
// of 64 halves a row, padded by 8.
constexpr int pipeline_bytes(int rows) { return 3 * 2 * rows * (64 + 8) * int(sizeof(half)); }

struct Padded {
  const char* name;
  Product product;
  double rows, columns, slice;  // a tile's
};
std::vector<Padded> products() {
  const auto of = [](const char* name, double tile, double slice) -> Padded {
    const mlp::Product<half> product = step(name).product;
    return {name,
            [product](const half* x, const half* weight, half* y, const mlp::Shape& shape) {
              product(x, weight, y, shape, nullptr);
            },
            tile, tile, slice};
  };
  const auto epilogue = [](const half* x, const half* weight, half* y, const mlp::Shape& shape) {
    mlp::epilogue_tiles<half>().back().layer(x, weight, nullptr, nullptr, y, shape, nullptr);
  };
  const int large = 128 * 64 * 2 * 2 * 3;  // swizzled, without padding
  return {of("wmma", 64, 32),
          of("registers", 128, 64),
          of("pipeline", shared_limit() >= pipeline_bytes(128) ? 128 : 64, 64),
          of("swizzle", shared_limit() >= large ? 128 : 64, 64),
          {"epilogue", epilogue, 64, 64, 64}};
}

}  // namespace

TEST_CASE("counters: multiply-adds of the padded tiles, bytes by formula, y stored once") {
  if (skipped_without_counters("counters")) return;
  for (const mlp::Shape& shape :
       {mlp::Shape{130, 192, 128}, {197, 264, 72}, {64, 64, 64}, {1, 8, 200}})
    for (const Padded& p : products()) {
      CAPTURE(p.name);
      CAPTURE(describe(shape));
      run_for_counters(p.product, shape);
      const double m = up(shape.m, p.rows), n = up(shape.n, p.columns), k = up(shape.k, p.slice);
      CHECK(lab::vgpu::counter("/tensor_macs") == m * n * k);
      // Each tile asks for its rows of x and weight: up to the array's end in wmma, that many in
      // the others, which repeat the last row.
      const bool repeats = std::string(p.name) != "wmma";
      const double x_rows = repeats ? m : shape.m, weight_rows = repeats ? n : shape.n;
      CHECK(counted("x", "load/bytes_asked") == n / p.columns * x_rows * shape.k * 2);
      CHECK(counted("weight", "load/bytes_asked") == m / p.rows * weight_rows * shape.k * 2);
      CHECK(counted("y", "store/bytes_asked") == 2.0 * double(shape.y_elements()));
      CHECK(counted("y", "load/bytes_asked") == 0);
      CHECK(lab::vgpu::counter("/local/store/requests") == 0);
      if (std::string(p.name) == "pipeline")
        CHECK(lab::vgpu::counter("/dynamic_shared") == pipeline_bytes(int(p.rows)));
    }
}

TEST_CASE("counters: no bank conflict in the swizzled tiles, whole sectors by the epilogue") {
  if (skipped_without_counters("bank conflicts")) return;
  const mlp::Shape shape{192, 192, 256};
  for (const Padded& p : products()) {
    CAPTURE(p.name);
    run_for_counters(p.product, shape);
    if (std::string(p.name) == "wmma") {
      CHECK(shared_conflicts() > 0);
    } else {
      CHECK(shared_conflicts() == 0);
    }
    const double bytes = 2.0 * double(shape.y_elements());
    // Eight rows of 16 bytes a store of mma.sync's own layout: half sectors.
    const double sectors = std::string(p.name) == "registers" ||
                                   std::string(p.name) == "pipeline" ||
                                   std::string(p.name) == "swizzle"
                               ? bytes / 16
                               : bytes / 32;
    CHECK(counted("y", "store/sectors") == sectors);
  }
}

TEST_CASE("counters: the hidden array is stored once by the epilogue, and twice before") {
  if (skipped_without_counters("the hidden array")) return;
  const mlp::Shape shape{130, 192, 64, true};
  const double hidden = 2.0 * double(shape.y_elements());
  const ProductTrial trial = product_trial(shape, 3, Behind::kBias);
  run_product<half>(step("epilogue").layer, trial);
  CHECK(counted("y", "store/bytes_asked") == hidden);
  CHECK(counted("y", "load/bytes_asked") == 0);
  // The launch behind swizzle's product, the last one, loads and stores all of it again.
  run_product<half>(step("swizzle").layer, trial);
  CHECK(counted("y", "store/bytes_asked") == hidden);
  CHECK(counted("y", "load/bytes_asked") == hidden);
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

using Launcher = std::function<void(const Mutants&, size_t, const half*, const half*, const half*,
                                    const half*, half*, const mlp::Shape&)>;

void check_bugs(const std::string& step, const std::vector<Mutant>& bugs, const Launcher& launcher,
                const std::string& instances, bool with_epilogue) {
  std::vector<ProductTrial> trials;
  const Behind behind = with_epilogue ? Behind::kBoth : Behind::kNothing;
  for (const mlp::Shape& shape : {mlp::Shape{64, 64, 328, with_epilogue},
                                  {70, 72, 200, with_epilogue},
                                  {37, 43, 136, false},
                                  {130, 136, 72, false}})
    trials.push_back(product_trial(shape, 5, behind));
  Mutants loaded(step_file("chapters/11_mlp", step), "mlp", bugs, instances, Mutants::kKernelsOnly);
  CAPTURE(step);
  const auto run = [&](size_t number, size_t trial) {
    const auto launched = [&](const half* x, const half* weight, const half* bias,
                              const half* residual, half* y, const mlp::Shape& shape,
                              cudaStream_t) {
      launcher(loaded, number, x, weight, bias, residual, y, shape);
    };
    return named(trials[trial].name, run_product<half>(launched, trials[trial]));
  };
  check_each_bug(bugs, trials.size(), run, [&] { loaded.reset(); });
}

// Tiles of so many rows and as many columns.
unsigned blocks_of(const mlp::Shape& s, int rows) {
  return unsigned((s.m + rows - 1) / rows) * unsigned((s.n + rows - 1) / rows);
}

// A kernel whose name has no template's arguments in it, of the functions that the steps consist
// of.
const std::string kOfPipeline = R"(
__global__ void planted_kernel(const half* x, const half* weight, const half*, const half*, half* y,
                               int m, int n, int k, bool) {
  extern __shared__ uint4 shared[];
  using T = SmallTile;
  const Place<T> place(n);
  WarpSums<T> sums;
  multiply_all<InOrder>(x, weight, m, n, k, reinterpret_cast<Stage<half, T, tile::Padded>*>(shared),
                        place, sums);
  store_sums<T>(sums, y, m, n, place);
})";
}  // namespace

TEST_CASE("planted bugs in wmma: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in wmma*")) return;
  check_bugs(
      "wmma", planted_bugs("11_mlp", "wmma"),
      [](const Mutants& mutants, size_t number, const half* x, const half* weight, const half*,
         const half*, half* y, const mlp::Shape& s) {
        launch(mutants.kernel(number, "wmma_kernel", {8}, "6__half"), blocks_of(s, 64), 128, 0,
               nullptr, x, weight, y, s.m, s.n, s.k);
      },
      "template __global__ void wmma_kernel<half, 8>(const half*, const half*, half*, int, int, "
      "int);",
      false);
}

TEST_CASE("planted bugs in registers: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in registers*")) return;
  check_bugs(
      "registers", planted_bugs("11_mlp", "registers"),
      [](const Mutants& mutants, size_t number, const half* x, const half* weight, const half*,
         const half*, half* y, const mlp::Shape& s) {
        launch(mutants.kernel(number, "registers_kernel", {}, "6__half"), blocks_of(s, 128), 128, 0,
               nullptr, x, weight, y, s.m, s.n, s.k);
      },
      "template __global__ void registers_kernel<half>(const half*, const half*, half*, int, int, "
      "int);",
      false);
}

TEST_CASE("planted bugs in pipeline: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in pipeline*")) return;
  check_bugs(
      "pipeline", planted_bugs("11_mlp", "pipeline"),
      [](const Mutants& mutants, size_t number, const half* x, const half* weight, const half* bias,
         const half* residual, half* y, const mlp::Shape& s) {
        launch(mutants.kernel(number, "planted_kernel"), blocks_of(s, 64), 128, pipeline_bytes(64),
               nullptr, x, weight, bias, residual, y, s.m, s.n, s.k, false);
      },
      kOfPipeline, false);
}

TEST_CASE("planted bugs in epilogue: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in epilogue*")) return;
  const std::string kernel =
      "__global__ void planted_kernel(const half* x, const half* weight, "
      "const half* bias, const half* residual, half* y, int m, int n, int "
      "k, bool with_gelu)";
  check_bugs(
      "epilogue", planted_bugs("11_mlp", "epilogue"),
      [](const Mutants& mutants, size_t number, const half* x, const half* weight, const half* bias,
         const half* residual, half* y, const mlp::Shape& s) {
        const mlp::EpilogueTile<half>& small = mlp::epilogue_tiles<half>().back();
        launch(mutants.kernel(number, "planted_kernel"), blocks_of(s, small.rows), 128,
               small.shared_bytes, nullptr, x, weight, bias, residual, y, s.m, s.n, s.k, s.gelu);
      },
      kernel + R"( {
  using T = SmallTile;
  if (n % 8 == 0)
    epilogue_tile<half, T, true>(x, weight, bias, residual, y, m, n, k, with_gelu);
  else
    epilogue_tile<half, T, false>(x, weight, bias, residual, y, m, n, k, with_gelu);
})",
      true);
}

// ---- Checks, other devices, machine code --------------------------------------------------------

TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked: without*")) return;
  const int findings = lab::vgpu::findings();
  for (const mlp::Shape& shape : {mlp::Shape{70, 43, 200, true},
                                  {130, 136, 264, false},
                                  {33, 17, 72, false},
                                  {9, 8, 8, true}}) {
    const ProductTrial trial = product_trial(shape, 4);
    check_steps(trial);
    check_tiles<half>(trial);
    if (!has_tf32()) continue;
    const ProductTrial of_floats = product_trial(shape, 4, Behind::kBoth, Storage::kFp32);
    check_steps<float>(of_floats);
    check_tiles<float>(of_floats);
  }
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("checked: all that a step launches is in the stream that it is given") {
  if (rerun_with_checks("checked: all that*")) return;
  const lab::MlpSizes sizes{1, 70, 64, 72};
  std::vector<lab::MlpOnDevice> arrays =
      lab::upload(lab::rounded_to_fp16(lab::random_mlp(sizes, 1)), Storage::kFp16, 1);
  for (const lab::MlpStep& step : mlp::steps()) {
    if (step.storage != Storage::kFp16) continue;
    CAPTURE(step.name);
    check_stays_in_its_stream([&](cudaStream_t stream) {
      step.run(arrays[0], sizes, stream);
      // What one launch wrote in another stream, nothing orders before this.
      lab::check(cudaMemsetAsync(arrays[0].fp16->y.data(), 0, sizeof(half), stream));
    });
  }
}

TEST_CASE("all checks, six schedules") {
  check_all_checks("chapter11", {{"--tokens", "70", "--width", "40", "--hidden", "104"},
                                 {"--tokens", "131", "--width", "72", "--storage", "fp32"}});
}

TEST_CASE("on a T4") {
  check_twin_on_t4(
      "right: arrays*,right: GELU*,right: wmma*,the same bits*,tf32 is*,counters: mult*");
}

TEST_CASE("machine code: no spills") { check_machine_code("chapters/11_mlp"); }
