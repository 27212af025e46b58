// Tests of linear layers, LayerNorm, embedding, loss and optimizer: kernels against the formulas on ragged
// shapes. The formulas themselves: test_formulas.cpp.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>

#include "../../../common/lab/device.h"
#include "../../../common/testing/checks.h"
#include "../operations/token_embedding/patches.h"
#include "test_operations.h"

using namespace lab::testing;
using namespace cvt;
using namespace cvt::testing;
namespace ref = cvt::reference;

namespace {

lab::Tolerance relative(double error) { return {error, error, error}; }

// An array of `rows` in memory from the rows of a product: what lies between is NaN.
std::vector<float> spread(const std::vector<float>& values, const Rows& rows, int columns,
                          int rows_in_memory) {
  std::vector<float> result(size_t(rows_in_memory) * columns, std::nanf(""));
  for (int r = 0; r < rows.count; ++r) {
    const size_t at =
        size_t(rows.first) + size_t(r / rows.of_group) * rows.pitch + r % rows.of_group;
    for (int c = 0; c < columns; ++c) result[at * columns + c] = values[size_t(r) * columns + c];
  }
  return result;
}

struct LinearCase {
  int rows, in, out;
  bool gelu, added, bias;
};
std::string name_of(const LinearCase& c) {
  return std::to_string(c.rows) + " rows, in " + std::to_string(c.in) + ", out " +
         std::to_string(c.out);
}

// y and, with GELU, what is before it.
Trial forward_trial(const LinearCase& c, uint64_t seed) {
  const size_t outputs = size_t(c.rows) * c.out;
  const auto x = numbers(size_t(c.rows) * c.in, seed),
             w = numbers(size_t(c.out) * c.in, seed + 1, 1 / std::sqrt(double(c.in))),
             bias = c.bias ? numbers(size_t(c.out), seed + 2) : std::vector<float>{},
             added = c.added ? numbers(outputs, seed + 3) : std::vector<float>{};
  const Array before = ref::linear(widened(x), widened(w), widened(bias), c.rows, c.in, c.out);
  Array y = before;
  for (size_t i = 0; i < outputs; ++i) {
    if (c.gelu) y[i] = ref::gelu(y[i]);
    if (c.added) y[i] += double(added[i]);
  }
  lab::Tolerance tolerance = for_sums(c.in, widened(x), widened(w));
  Trial trial{name_of(c), {{"x", x}, {"w", w}, {"bias", bias}, {"added", added}}, {}};
  if (c.gelu) {
    trial.outputs.push_back({"before_gelu", before, tolerance});
    tolerance.atol += 1e-6;  // chapter 11's GELU is within 4.8e-7
    tolerance.relative_l2 += 1e-6;
  }
  trial.outputs.insert(trial.outputs.begin(), {"y", y, tolerance});
  return trial;
}
Operation forward_operation(const LinearCase& c, const Rows& rows) {
  return [=](const std::vector<const float*>& in, const std::vector<float*>& out,
             cudaStream_t stream) {
    linear_forward(in[0], in[1], in[2], out[0], rows, c.in, c.out,
                   {c.gelu ? out[1] : nullptr, in[3]}, stream);
  };
}

// dx, with GELU times its derivative there, and what is added.
Trial backward_trial(const LinearCase& c, uint64_t seed) {
  const auto dy = numbers(size_t(c.rows) * c.out, seed),
             w = numbers(size_t(c.out) * c.in, seed + 1, 1 / std::sqrt(double(c.out))),
             before = c.gelu ? numbers(size_t(c.rows) * c.in, seed + 2, 2) : std::vector<float>{},
             added = c.added ? numbers(size_t(c.rows) * c.in, seed + 3) : std::vector<float>{};
  Array dx = ref::linear_gradients(Array(size_t(c.rows) * c.in), widened(w), widened(dy), c.rows,
                                   c.in, c.out)
                 .x;
  for (size_t i = 0; i < dx.size(); ++i) {
    if (c.gelu) dx[i] *= ref::gelu_derivative(double(before[i]));
    if (c.added) dx[i] += double(added[i]);
  }
  return {name_of(c),
          {{"dy", dy}, {"w", w}, {"before_gelu", before}, {"added", added}},
          {{"dx", dx, for_sums(c.out + 8, widened(dy), widened(w))}}};
}
Operation backward_operation(const LinearCase& c) {
  return [=](const std::vector<const float*>& in, const std::vector<float*>& out,
             cudaStream_t stream) {
    linear_backward_x(in[0], in[1], out[0], Rows::all(c.rows), c.in, c.out,
                      {const_cast<float*>(in[2]), in[3]}, stream);
  };
}

std::vector<LinearCase> linear_cases() {
  return {{1, 1, 1, false, false, true},    {3, 5, 7, true, true, true},
          {33, 64, 10, false, false, true}, {64, 64, 64, true, false, true},
          {65, 96, 100, true, true, false}, {17, 129, 66, false, true, true},
          {130, 36, 132, true, true, true}, {200, 31, 65, false, false, false}};
}

struct NormCase {
  int rows, channels;
  double middle;
  bool added;
};
// moved: with one array after the other off 16 bytes.
void check_layer_norm(const NormCase& c, uint64_t seed, bool moved = false) {
  const auto check = [&](const Operation& operation, const Trial& trial) {
    moved ? check_moved_arrays(operation, trial) : check_trial(operation, trial);
  };
  const size_t count = size_t(c.rows) * c.channels;
  const auto x = numbers(count, seed, 1, c.middle),
             scale = numbers(size_t(c.channels), seed + 1, 0.5, 1),
             shift = numbers(size_t(c.channels), seed + 2), dy = numbers(count, seed + 3),
             added = c.added ? numbers(count, seed + 4) : std::vector<float>{};
  const auto expected =
      ref::layer_norm(widened(x), widened(scale), widened(shift), c.rows, c.channels);
  // Roundings of x - mean count as 2^-24 of the mean, and more where one channel is all there is.
  const double error = 1e-5 + 1e-6 * c.middle;
  const std::string name =
      std::to_string(c.rows) + " rows of " + std::to_string(c.channels) + " channels";
  check(
      [&](const std::vector<const float*>& in, const std::vector<float*>& out,
          cudaStream_t stream) {
        layer_norm_forward(in[0], in[1], in[2], out[0], out[1], out[2], c.rows, c.channels, stream);
      },
      {name,
       {{"x", x}, {"scale", scale}, {"shift", shift}},
       {{"y", expected.y, relative(error)},
        {"mean", expected.mean, relative(error)},
        {"inverse deviation", expected.inverse_deviation, relative(error)}}});

  auto d = ref::layer_norm_gradients(widened(x), widened(scale), widened(dy), c.rows, c.channels);
  for (size_t i = 0; c.added && i < count; ++i) d.x[i] += double(added[i]);
  std::vector<float> mean(expected.mean.begin(), expected.mean.end()),
      inverse(expected.inverse_deviation.begin(), expected.inverse_deviation.end());
  const double of_sums = error * std::sqrt(double(c.rows)) * 4;
  check(
      [&](const std::vector<const float*>& in, const std::vector<float*>& out,
          cudaStream_t stream) {
        layer_norm_backward(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2],
                            c.rows, c.channels, stream);
      },
      {name,
       {{"x", x},
        {"scale", scale},
        {"mean", mean},
        {"inverse deviation", inverse},
        {"dy", dy},
        {"added", added}},
       {{"dx", d.x, {error * lab::max_abs(d.x), error, error}},
        {"dscale", d.scale, {of_sums, error, error}},
        {"dshift", d.shift, {of_sums, error, error}}}});
}

}  // namespace

// ---- Linear layers ------------------------------------------------------------------------------

TEST_CASE("operations: linear layers forward, on every remainder of a tile") {
  if (skipped("linear")) return;
  uint64_t seed = 10;
  for (const LinearCase& c : linear_cases()) {
    seed += 10;
    check_trial(forward_operation(c, Rows::all(c.rows)), forward_trial(c, seed),
                int(seed / 10 % 3) * 2);
  }
}

TEST_CASE("operations: linear layers back to x, with GELU's derivative and a residual") {
  if (skipped("linear")) return;
  uint64_t seed = 110;
  for (const LinearCase& c : linear_cases()) {
    seed += 10;
    check_trial(backward_operation(c), backward_trial(c, seed), int(seed / 10 % 3) * 2);
  }
}

TEST_CASE("operations: linear layers in large tiles") {
  if (skipped("linear")) return;
  // So many rows that each SM has two tiles of 128 x 128.
  int sms = 0;
  lab::check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  const auto check = [](const Operation& operation, const Trial& trial) {
    const Outcome outcome = run_trial(operation, trial);
    CHECK_MESSAGE(outcome.caught_by == "", outcome.details);
    if (lab::vgpu::present()) CHECK(lab::vgpu::counter("/block/0") == 256);
  };
  const LinearCase forward{128 * sms - 59, 8, 140, true, false, true};
  check(forward_operation(forward, Rows::all(forward.rows)), forward_trial(forward, 95));
  const LinearCase back{forward.rows, 140, 8, false, true, false};
  check(backward_operation(back), backward_trial(back, 97));
}

TEST_CASE("operations: right where one array does not begin at a multiple of 16 bytes") {
  if (skipped("moved arrays")) return;
  const LinearCase c{33, 36, 40, true, true, true};
  check_moved_arrays(forward_operation(c, Rows::all(c.rows)), forward_trial(c, 81));
  check_moved_arrays(backward_operation(c), backward_trial(c, 83));
  check_layer_norm({19, 64, 1, true}, 85, true);
}

TEST_CASE(
    "operations: gradients of weights, in shares, added or stored, of x or of x factor + offset") {
  if (skipped("linear")) return;
  uint64_t seed = 210;
  std::vector<LinearCase> cases = linear_cases();
  cases.push_back({3000, 20, 24, true, true, true});  // more than one share
  for (const LinearCase& c : cases) {
    seed += 10;
    const auto dy = numbers(size_t(c.rows) * c.out, seed),
               x = numbers(size_t(c.rows) * c.in, seed + 1),
               factor = c.gelu ? numbers(size_t(c.in), seed + 2) : std::vector<float>{},
               offset = c.gelu ? numbers(size_t(c.in), seed + 3) : std::vector<float>{},
               dw_before = numbers(size_t(c.out) * c.in, seed + 4),
               dbias_before = numbers(size_t(c.out), seed + 5);
    Array taken = widened(x);
    for (size_t i = 0; c.gelu && i < taken.size(); ++i)
      taken[i] = taken[i] * double(factor[i % c.in]) + double(offset[i % c.in]);
    auto d =
        ref::linear_gradients(taken, Array(size_t(c.out) * c.in), widened(dy), c.rows, c.in, c.out);
    for (size_t i = 0; c.added && i < d.w.size(); ++i) d.w[i] += double(dw_before[i]);
    for (size_t i = 0; c.added && i < d.bias.size(); ++i) d.bias[i] += double(dbias_before[i]);
    Trial trial{name_of(c), {{"dy", dy}, {"x", x}, {"factor", factor}, {"offset", offset}}, {}};
    lab::Tolerance tolerance = for_sums(c.rows, widened(dy), taken);
    trial.outputs.push_back({"dw", d.w, tolerance, c.added ? dw_before : std::vector<float>{}});
    if (c.bias)
      trial.outputs.push_back({"dbias", d.bias, for_sums(c.rows, widened(dy), {1}),
                               c.added ? dbias_before : std::vector<float>{}});
    check_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          linear_backward_w(in[0], in[1], out[0], c.bias ? out[1] : nullptr, Rows::all(c.rows),
                            c.in, c.out, in[2], in[3], c.added, stream);
        },
        trial, int(seed / 10 % 3) * 2);
  }
}

TEST_CASE("operations: linear layers of some rows of an array leave the others alone") {
  if (skipped("linear")) return;
  // Class tokens: one row of each five; and all but those.
  for (const Rows& rows : {Rows{7, 1, 5, 0}, Rows{28, 4, 5, 1}}) {
    const LinearCase c{rows.count, 24, 12, true, true, true};
    const int in_memory = 35;
    Trial trial = forward_trial(c, 400);
    trial.inputs[0].values = spread(trial.inputs[0].values, rows, c.in, in_memory);
    trial.inputs[3].values = spread(trial.inputs[3].values, rows, c.out, in_memory);
    // What is not written stays as it was.
    for (Output& output : trial.outputs) {
      output.before.assign(size_t(in_memory) * c.out, 5.0f);
      Array expected(output.before.size(), 5.0);
      for (int r = 0; r < rows.count; ++r)
        for (int i = 0; i < c.out; ++i)
          expected[(size_t(rows.first) + size_t(r / rows.of_group) * rows.pitch +
                    r % rows.of_group) *
                       c.out +
                   i] = output.expected[size_t(r) * c.out + i];
      output.expected = expected;
    }
    check_trial(forward_operation(c, rows), trial);

    const auto dy = numbers(size_t(c.rows) * c.out, 410), x = numbers(size_t(c.rows) * c.in, 411);
    const auto d = ref::linear_gradients(widened(x), Array(size_t(c.out) * c.in), widened(dy),
                                         c.rows, c.in, c.out);
    check_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          linear_backward_w(in[0], in[1], out[0], out[1], rows, c.in, c.out, nullptr, nullptr,
                            false, stream);
        },
        {"dw of some rows",
         {{"dy", spread(dy, rows, c.out, in_memory)}, {"x", spread(x, rows, c.in, in_memory)}},
         {{"dw", d.w, for_sums(c.rows, widened(dy), widened(x))},
          {"dbias", d.bias, for_sums(c.rows, widened(dy), {1})}}});
  }
}

// ---- Embedding ----------------------------------------------------------------------------------

namespace {
template <class Forward, class Backward>
void check_embedding(const Forward& forward, const Backward& backward, const EmbedShape& shape,
                     uint64_t seed) {
  const size_t positions = size_t(shape.batch) * shape.out_height() * shape.out_width();
  const int depth = shape.in_channels * shape.kernel * shape.kernel;
  const auto x = numbers(size_t(shape.batch) * shape.height * shape.width * shape.in_channels,
                         seed),
             w = numbers(size_t(shape.out_channels) * depth, seed + 1),
             bias = numbers(size_t(shape.out_channels), seed + 2),
             dy = numbers(positions * shape.out_channels, seed + 3);
  const std::string name = "embedding, kernel " + std::to_string(shape.kernel) + ", stride " +
                           std::to_string(shape.stride) + ", height " +
                           std::to_string(shape.height);
  check_trial([&](const std::vector<const float*>& in, const std::vector<float*>& out,
                  cudaStream_t stream) { forward(in[0], in[1], in[2], out[0], shape, stream); },
              {name,
               {{"x", x}, {"w", w}, {"bias", bias}},
               {{"y", ref::embed(widened(x), widened(w), widened(bias), shape),
                 for_sums(depth, widened(x), widened(w))}}});
  const auto d = ref::embed_gradients(widened(x), widened(w), widened(dy), shape);
  Trial trial{
      name,
      {{"x", x}, {"w", w}, {"dy", dy}},
      {{"dw", d.w, for_sums(int(positions), widened(x), widened(dy))},
       {"dbias", d.bias, for_sums(int(positions), {1}, widened(dy))},
       {"dx", d.x,
        for_sums(shape.kernel * shape.kernel * shape.out_channels, widened(w), widened(dy))}}};
  const auto run_backward = [&](const std::vector<const float*>& in, const std::vector<float*>& out,
                                cudaStream_t stream) {
    backward(in[0], in[1], in[2], out.size() > 2 ? out[2] : nullptr, out[0], out[1], shape, stream);
  };
  check_trial(run_backward, trial);
  trial.outputs.pop_back();  // nobody needs dx
  check_trial(run_backward, trial);
}
// Both ways to compute it.
void check_embedding(const EmbedShape& shape, uint64_t seed) {
  check_embedding(embed_forward, embed_backward, shape, seed);
  check_embedding(token_embedding::patches_forward, token_embedding::patches_backward, shape, seed);
}
}  // namespace

TEST_CASE("operations: token embedding, forward and back") {
  if (skipped("embedding")) return;
  uint64_t seed = 500;
  const EmbedShape shapes[] = {{2, 28, 28, 1, 32, 7, 4, 2}, {1, 13, 11, 3, 10, 7, 4, 2},
                               {2, 9, 7, 32, 64, 3, 2, 1},  {1, 6, 5, 12, 20, 3, 2, 1},
                               {3, 1, 1, 4, 4, 1, 1, 0},    {1, 9, 10, 5, 6, 2, 3, 0},
                               {1, 5, 4, 8, 8, 4, 1, 3},    {1, 7, 7, 6, 70, 3, 1, 1}};
  for (const EmbedShape& shape : shapes) check_embedding(shape, seed += 10);
}

// Slices of a sum are longer than the kernel has numbers: what is behind them must not be read, zeros or not.
TEST_CASE(
    "operations: a pixel that is no number is seen where the kernel meets it, and nowhere else") {
  if (skipped("embedding")) return;
  for (const EmbedShape& shape : {EmbedShape{1, 11, 9, 4, 8, 3, 2, 1}, {2, 9, 8, 3, 5, 3, 1, 1}}) {
    std::vector<float> x =
        numbers(size_t(shape.batch) * shape.height * shape.width * shape.in_channels, 90);
    for (int c = 0; c < shape.in_channels; ++c)
      x[(size_t(5) * shape.width + 4) * shape.in_channels + c] = std::nanf("");
    const auto w = numbers(
                   size_t(shape.out_channels) * shape.in_channels * shape.kernel * shape.kernel,
                   91),
               bias = numbers(size_t(shape.out_channels), 92);
    const Array expected = ref::embed(widened(x), widened(w), widened(bias), shape);
    const Outcome outcome = run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) { embed_forward(in[0], in[1], in[2], out[0], shape, stream); },
        {"NaN", {{"x", x}, {"w", w}, {"bias", bias}}, {{"y", expected, {}}}});
    REQUIRE(outcome.outputs.size() == 1);
    int differ = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      differ += std::isnan(outcome.outputs[0][i]) != std::isnan(expected[i]);
    CHECK(differ == 0);
  }
}

// ---- LayerNorm ----------------------------------------------------------------------------------

TEST_CASE("operations: LayerNorm, forward and back") {
  if (skipped("layer norm")) return;
  uint64_t seed = 700;
  for (const NormCase& c :
       {NormCase{1, 1, 0, false}, NormCase{5, 7, 1, true}, NormCase{33, 32, 0, true},
        NormCase{70, 64, 30, false}, NormCase{9, 384, 0, true}, NormCase{300, 20, 3, true},
        NormCase{3, 1024, 0, true}, NormCase{4, 1023, 0, true}, NormCase{10, 200, 0, false}})
    check_layer_norm(c, seed += 10);
}

// ---- Loss and optimizer -------------------------------------------------------------------------

namespace {
struct LossRun {
  float loss;
  std::vector<float> dlogits;
};
LossRun run_loss(const std::vector<float>& logits, const std::vector<int>& labels, int classes,
                 float smoothing, bool in_a_graph = false) {
  const lab::DeviceArray<float> from(logits, "logits");
  const lab::DeviceArray<int> of(labels, "labels");
  lab::DeviceArray<float> loss(1, "loss"), dlogits(logits.size(), "dlogits");
  loss.fill_nan(), dlogits.fill_nan();
  const auto launch = [&](cudaStream_t stream) {
    cross_entropy(from.data(), of.data(), loss.data(), dlogits.data(), int(labels.size()), classes,
                  smoothing, stream);
  };
  in_a_graph ? replay_once(launch) : launch(nullptr);
  return {loss.download()[0], dlogits.download()};
}
}  // namespace

TEST_CASE("operations: cross entropy, with smoothing, of logits of every size") {
  if (skipped("cross entropy")) return;
  uint64_t seed = 900;
  for (const int classes : {1, 2, 10, 33, 1000})
    for (const double size : {1.0, 1e4, 1e30})
      for (const float smoothing : {0.0f, 0.1f, 1.0f}) {
        const int batch = 1 + int(++seed % 11);
        std::vector<float> logits = numbers(size_t(batch) * classes, seed);
        std::vector<int> labels;
        for (float& logit : logits) logit *= float(size);
        for (int i = 0; i < batch; ++i) labels.push_back(int(seed * 7 + i * 5) % classes);
        const auto expected = ref::cross_entropy(widened(logits), labels, classes, smoothing);
        const LossRun got = run_loss(logits, labels, classes, smoothing);
        CAPTURE(classes);
        CAPTURE(size);
        CAPTURE(smoothing);
        // expf is good to two units of its last place.
        CHECK(std::abs(got.loss - expected.loss) <= 1e-6 + 2e-6 * std::abs(expected.loss));
        const lab::Comparison right = lab::compare(got.dlogits, expected.dlogits,
                                                   {1e-6 / batch, 1e-5, 1e-5}, {batch, classes});
        CAPTURE(right.describe());
        const bool zeros = lab::max_abs(expected.dlogits) == 0;  // one class: no gradient at all
        CHECK((zeros ? right.bad == 0 : right.pass));
        if (size > 1) continue;
        const LossRun replayed = run_loss(logits, labels, classes, smoothing, true);
        CHECK(replayed.loss == got.loss);
        CHECK(replayed.dlogits == got.dlogits);
      }
}

TEST_CASE("operations: a logit that is no number makes a loss that is none") {
  if (skipped("cross entropy")) return;
  std::vector<float> logits = numbers(50, 3);
  logits[37] = std::nanf("");
  CHECK(std::isnan(run_loss(logits, {0, 1, 2, 3, 4}, 10, 0.0f).loss));
  logits[37] = std::numeric_limits<float>::infinity();
  CHECK(std::isnan(run_loss(logits, {0, 1, 2, 3, 4}, 10, 0.0f).loss));
}

namespace {
// Five steps, replayed from graphs; of the four arrays `moved` begins off 16 bytes.
void check_adamw(int count, int moved) {
  const AdamW options{1e-2f, 0.9f, 0.99f, 1e-8f, 0.1f};
  const auto at = [&](int array) { return array == moved ? 1 : 0; };
  const auto placed = [&](int array, std::vector<float> values) {
    values.insert(values.begin(), size_t(at(array)), 7.0f);
    return values;
  };
  const std::vector<float> start = numbers(size_t(count), 40), zeros(size_t(count), 0.0f);
  lab::DeviceArray<float> p(placed(0, start), "parameters"), m(placed(2, zeros), "m"),
      v(placed(3, zeros), "v");
  Array ref_p = widened(start), ref_m(count, 0.0), ref_v(count, 0.0);
  for (int step = 1; step <= 5; ++step) {
    auto g = numbers(size_t(count), 50 + step);
    if (count > 1) g[1] = 0;  // always: only eps keeps this one from 0 / 0
    const lab::DeviceArray<float> gradients(placed(1, g), "gradients");
    replay_once([&](cudaStream_t stream) {
      adamw(p.data() + at(0), gradients.data() + at(1), m.data() + at(2), v.data() + at(3), count,
            step, options, stream);
    });
    ref::adamw(ref_p, widened(g), ref_m, ref_v, step, options);
  }
  for (const auto& [array, got, expected] :
       {std::tuple{0, p.download(), ref_p}, {2, m.download(), ref_m}, {3, v.download(), ref_v}}) {
    const std::vector<float> own(got.begin() + at(array), got.end());
    const lab::Comparison right = lab::compare(own, expected, relative(2e-6), {count});
    CAPTURE(right.describe());
    CHECK(right.pass);
  }
}
}  // namespace

TEST_CASE("operations: AdamW, decay apart from the moments, over several steps") {
  if (skipped("AdamW")) return;
  for (const int count : {1, 7, 64, 1000}) check_adamw(count, -1);
  for (int moved = 0; moved < 4; ++moved) check_adamw(64, moved);
}

TEST_CASE("operations: a class token in front, and back") {
  if (skipped("class token")) return;
  for (const auto& [batch, tokens, channels] :
       {std::array{1, 1, 1}, std::array{3, 5, 7}, std::array{2, 49, 64}}) {
    const auto x = numbers(size_t(batch) * tokens * channels, 60),
               token = numbers(size_t(channels), 61),
               dy = numbers(size_t(batch) * (tokens + 1) * channels, 62);
    Array y, dx, dtoken(channels, 0.0);
    for (int b = 0; b < batch; ++b)
      for (int t = 0; t <= tokens; ++t)
        for (int c = 0; c < channels; ++c) {
          const double grad = double(dy[(size_t(b) * (tokens + 1) + t) * channels + c]);
          y.push_back(double(t ? x[(size_t(b) * tokens + t - 1) * channels + c] : token[c]));
          t ? dx.push_back(grad) : void(dtoken[c] += grad);
        }
    check_trial(
        [&, batch = batch, tokens = tokens, channels = channels](
            const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          prepend_token(in[0], in[1], out[0], batch, tokens, channels, stream);
        },
        {"class token", {{"x", x}, {"token", token}}, {{"y", y, {}}}});
    check_trial(
        [&, batch = batch, tokens = tokens, channels = channels](
            const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          prepend_token_backward(in[0], out[0], out[1], batch, tokens, channels, stream);
        },
        {"class token, back", {{"dy", dy}}, {{"dx", dx, {}}, {"dtoken", dtoken, relative(1e-6)}}});
  }
}

// ---- Checks, orders, another device -------------------------------------------------------------

TEST_CASE("checked operations: without a finding") {
  if (rerun_with_checks("checked operations*")) return;
  const int findings = lab::vgpu::findings();
  uint64_t seed = 1000;
  for (const LinearCase& c :
       {LinearCase{65, 96, 100, true, true, true}, {17, 31, 66, false, true, true}}) {
    check_trial(forward_operation(c, Rows::all(c.rows)), forward_trial(c, seed += 10));
    const auto dy = numbers(size_t(c.rows) * c.out, seed + 1),
               x = numbers(size_t(c.rows) * c.in, seed + 2),
               w = numbers(size_t(c.out) * c.in, seed + 3);
    const auto d = ref::linear_gradients(widened(x), widened(w), widened(dy), c.rows, c.in, c.out);
    check_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          const Rows rows = Rows::all(c.rows);
          linear_backward_w(in[0], in[1], out[0], out[1], rows, c.in, c.out, nullptr, nullptr,
                            false, stream);
          linear_backward_x(in[0], in[2], out[2], rows, c.in, c.out, {}, stream);
        },
        {name_of(c),
         {{"dy", dy}, {"x", x}, {"w", w}},
         {{"dw", d.w, for_sums(c.rows, widened(dy), widened(x))},
          {"dbias", d.bias, for_sums(c.rows, widened(dy), {1})},
          {"dx", d.x, for_sums(c.out, widened(dy), widened(w))}}});
  }
  check_embedding({2, 9, 7, 8, 12, 3, 2, 1}, seed += 10);
  check_embedding({1, 13, 11, 1, 10, 7, 4, 2}, seed += 10);
  check_layer_norm({19, 40, 1, true}, seed += 10);
  check_layer_norm({5, 7, 0, false}, seed += 10);
  std::vector<int> labels = {1, 2, 32, 0, 9};
  const auto logits = numbers(5 * 33, seed);
  const auto expected = ref::cross_entropy(widened(logits), labels, 33, 0.1);
  CHECK(run_loss(logits, labels, 33, 0.1f).loss == doctest::Approx(expected.loss).epsilon(1e-5));
  lab::DeviceArray<float> p(numbers(50, 1), "p"), m(std::vector<float>(50), "m"),
      v(std::vector<float>(50), "v");
  const lab::DeviceArray<float> g(numbers(50, 2), "g");
  adamw(p.data(), g.data(), m.data(), v.data(), 50, 1, {1e-2f}, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::findings() == findings);
}
TEST_CASE("checked operations in other orders") {
  check_in_other_orders("checked operations: without*");
}

TEST_CASE("operations: products are refused by name where there is no tf32") {
  if (skipped("no tf32")) return;
  int major = 0;
  lab::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major >= 8) return;
  const LinearCase c{3, 4, 4, false, false, true};
  const Outcome outcome = run_trial(forward_operation(c, Rows::all(3)), forward_trial(c, 1));
  CHECK(outcome.caught_by == "error");
  CHECK(outcome.details.find("tf32") != std::string::npos);
}
TEST_CASE("operations on a T4") {
  check_twin_on_t4(
      "operations: LayerNorm*,operations: cross*,operations: AdamW*,operations: a class "
      "token*,operations: products are*");
}
