// Chapter 16's planted bugs in linear layers, embedding, attention, LayerNorm, cross entropy and
// AdamW: each is caught, and by what.
#include <doctest/doctest.h>

#include <cmath>

#include "../../../common/testing/checks.h"
#include "test_operations.h"

using namespace lab::testing;
using namespace cvt;
using namespace cvt::testing;
namespace ref = cvt::reference;

namespace {

const std::string kFolder = "chapters/16_cvt/operations/";
unsigned blocks_of(int count, int of_block) { return unsigned((count + of_block - 1) / of_block); }

struct NamedTrial {
  Trial trial;
  std::function<Operation(const Mutants& mutants, size_t number)> operation;
};
void check_bugs(const Mutants& mutants, const std::vector<Mutant>& bugs,
                const std::vector<NamedTrial>& trials) {
  check_each_bug(bugs, trials.size(), [&](size_t number, size_t trial) -> Verdict {
    return run_trial(trials[trial].operation(mutants, number), trials[trial].trial);
  });
}

std::vector<float> floats(const Array& values) { return {values.begin(), values.end()}; }

// ---- Linear layers ------------------------------------------------------------------------------

constexpr int kRows = 70, kIn = 100, kOut = 72;
constexpr size_t kProductBytes = 56 * 1024;  // three slices of both operands
const std::string kLinearKernels = R"(
__device__ inline Matrix whole_matrix(const float* array, int rows, int columns) {
  return {array, Rows{rows, rows, rows, 0}, columns, true};
}
__global__ void planted_forward(const float* x, const float* w, const float* bias,
                                float* y, float* before, int rows, int in, int out) {
  product_tile<SmallProduct, Along, Along>(
      whole_matrix(x, rows, in), whole_matrix(w, out, in),
      LinearFinish{y, bias, before, nullptr, nullptr, Rows{rows, rows, rows, 0}, out, true},
      ProductSize{rows, out, (in + 31) / 32, (in + 31) / 32});
}
__global__ void planted_backward_x(const float* dy, const float* w, const float* before, float* dx,
                                   int rows, int in, int out) {
  product_tile<SmallProduct, Along, Across>(
      whole_matrix(dy, rows, out), whole_matrix(w, out, in),
      LinearFinish{dx, nullptr, nullptr, before, nullptr, Rows{rows, rows, rows, 0}, in, true},
      ProductSize{rows, in, (out + 31) / 32, (out + 31) / 32});
}
__global__ void planted_backward_w(const float* dy, const float* x, float* products, float* sums,
                                   int rows, int in, int out) {
  product_tile<SmallProduct, Across, Across>(
      whole_matrix(dy, rows, out), whole_matrix(x, rows, in), WeightShares{products, sums, out, in},
      ProductSize{out, in, (rows + 31) / 32, 2});
}
__global__ void planted_finish(const float* products, const float* sums, const float* factor,
                               const float* offset, float* dw, float* dbias, int in, int out,
                               int shares) {
  finish_weights(
      WeightShares{const_cast<float*>(products), const_cast<float*>(sums), out, in},
      WeightFinish{dw, dbias, factor, offset, false, in, 1}, shares);
}
)";

NamedTrial forward_trial() {
  const auto x = numbers(size_t(kRows) * kIn, 1), w = numbers(size_t(kOut) * kIn, 2, 0.1),
             bias = numbers(kOut, 3);
  const Array before = ref::linear(widened(x), widened(w), widened(bias), kRows, kIn, kOut);
  Array y = before;
  for (size_t i = 0; i < y.size(); ++i) y[i] = ref::gelu(y[i]);
  const lab::Tolerance tolerance = for_sums(kIn, widened(x), widened(w));
  return {{"forward",
           {{"x", x}, {"w", w}, {"bias", bias}},
           {{"y", y, tolerance}, {"before_gelu", before, tolerance}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              launch(mutants.kernel(number, "planted_forward"),
                     blocks_of(kRows, 64) * blocks_of(kOut, 64), 128, kProductBytes, nullptr, in[0],
                     in[1], in[2], out[0], out[1], kRows, kIn, kOut);
            };
          }};
}
NamedTrial backward_x_trial() {
  const auto dy = numbers(size_t(kRows) * kOut, 5), w = numbers(size_t(kOut) * kIn, 6, 0.1),
             before = numbers(size_t(kRows) * kIn, 7, 2);
  Array dx =
      ref::linear_gradients(Array(size_t(kRows) * kIn), widened(w), widened(dy), kRows, kIn, kOut)
          .x;
  for (size_t i = 0; i < dx.size(); ++i) dx[i] *= ref::gelu_derivative(double(before[i]));
  return {{"back to x",
           {{"dy", dy}, {"w", w}, {"before_gelu", before}},
           {{"dx", dx, for_sums(kOut, widened(dy), widened(w))}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              launch(mutants.kernel(number, "planted_backward_x"),
                     blocks_of(kRows, 64) * blocks_of(kIn, 64), 128, kProductBytes, nullptr, in[0],
                     in[1], in[2], out[0], kRows, kIn, kOut);
            };
          }};
}
NamedTrial backward_w_trial() {
  const auto dy = numbers(size_t(kRows) * kOut, 8), x = numbers(size_t(kRows) * kIn, 9),
             factor = numbers(kIn, 10), offset = numbers(kIn, 11);
  Array taken = widened(x);
  for (size_t i = 0; i < taken.size(); ++i)
    taken[i] = taken[i] * double(factor[i % kIn]) + double(offset[i % kIn]);
  const auto d =
      ref::linear_gradients(taken, Array(size_t(kOut) * kIn), widened(dy), kRows, kIn, kOut);
  return {{"gradients of weights",
           {{"dy", dy}, {"x", x}, {"factor", factor}, {"offset", offset}},
           {{"dw", d.w, for_sums(kRows, widened(dy), taken)},
            {"dbias", d.bias, for_sums(kRows, widened(dy), {1})}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              const int shares = int(blocks_of(kRows, 64));  // two slices each
              lab::DeviceArray<float> products(size_t(shares) * kOut * kIn, "products"),
                  sums(size_t(shares) * kOut, "sums");
              launch(mutants.kernel(number, "planted_backward_w"),
                     dim3(blocks_of(kOut, 64) * blocks_of(kIn, 64), shares), 128, kProductBytes,
                     nullptr, in[0], in[1], products.data(), sums.data(), kRows, kIn, kOut);
              launch(mutants.kernel(number, "planted_finish"), blocks_of(kOut * kIn + kOut, 256),
                     256, 0, nullptr, static_cast<const float*>(products.data()),
                     static_cast<const float*>(sums.data()), in[2], in[3], out[0], out[1], kIn,
                     kOut, shares);
              lab::check(cudaDeviceSynchronize());
            };
          }};
}

// ---- Embedding ----------------------------------------------------------------------------------

// 3 x 3 at stride 2 with padding 1: a map of 9 x 7 becomes one of 5 x 4.
const EmbedShape kEmbed{2, 9, 7, 8, 12, 3, 2, 1};
constexpr int kPositions = 40, kDepth = 72;
const std::string kEmbedKernels = R"(
__device__ inline Matrix whole_matrix(const float* array, int rows, int columns) {
  return {array, Rows{rows, rows, rows, 0}, columns, true};
}
__device__ inline Gathered planted_patches(const float* x) {
  return {x, 9, 7, 8, 2, 5, 4, 3, 3, -1, -1, 2, 1, true};
}
const auto planted_pack = &pack_weights_kernel;
__global__ void planted_forward(const float* x, const float* packed, const float* bias, float* y) {
  product_tile<SmallProduct, Along, Along>(
      planted_patches(x), whole_matrix(packed, 12, 72),
      LinearFinish{y, bias, nullptr, nullptr, nullptr, Rows{40, 40, 40, 0}, 12, true},
      ProductSize{40, 12, 3, 3});
}
__global__ void planted_weights(const float* x, const float* dy, float* products, float* sums) {
  product_tile<SmallProduct, Across, Across>(whole_matrix(dy, 40, 12), planted_patches(x),
                                             WeightShares{products, sums, 12, 72},
                                             ProductSize{12, 72, 2, 2});
}
__global__ void planted_finish(const float* products, const float* sums, float* dw, float* dbias) {
  finish_weights(
      WeightShares{const_cast<float*>(products), const_cast<float*>(sums), 12, 72},
      WeightFinish{dw, dbias, nullptr, nullptr, false, 8, 9}, 1);
}
// The taps `tap`, `tap` + 2, ... of rows first, first + 2, ..., and so of columns.
struct PlantedPhase {
  int first, count, tap, taps, from;
};
__global__ void planted_back(const float* dy, const float* packed, float* dx, PlantedPhase row,
                             PlantedPhase column) {
  const int slices = (row.taps * column.taps * 12 + 31) / 32;
  product_tile<SmallProduct, Along, Across>(
      Gathered{dy, 5, 4, 12, 2, row.count, column.count, row.taps, column.taps, row.from,
               column.from, 1, -1, true},
      TapWeights{packed, 8, 12, 3, 2, row.tap, column.tap, row.taps, column.taps, true},
      PhaseFinish{dx, 9, 7, 8, row.count, column.count, row.first, column.first, 2, true},
      ProductSize{2 * row.count * column.count, 8, slices, slices});
}
)";
struct PlantedPhase {
  int first, count, tap, taps, from;
};
// Even rows were reached by the middle tap of one output, odd ones by the last of one and the next
// one's first.
PlantedPhase phase(int first, int size) {
  return first == 0 ? PlantedPhase{0, (size + 1) / 2, 1, 1, 0} : PlantedPhase{1, size / 2, 0, 2, 1};
}
void pack(const Mutants& mutants, size_t number, const float* w, lab::DeviceArray<float>& packed) {
  launch(mutants.kernel(number, "pack_weights_kernel"), blocks_of(12 * kDepth, 256), 256, 0,
         nullptr, w, packed.data(), int64_t(12 * kDepth), 8, 9);
}

NamedTrial embed_trial() {
  const auto x = numbers(2 * 9 * 7 * 8, 60), w = numbers(12 * kDepth, 61, 0.2),
             bias = numbers(12, 62);
  return {{"embedding",
           {{"x", x}, {"w", w}, {"bias", bias}},
           {{"y", ref::embed(widened(x), widened(w), widened(bias), kEmbed),
             for_sums(kDepth, widened(x), widened(w))}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              lab::DeviceArray<float> packed(12 * kDepth, "packed");
              pack(mutants, number, in[1], packed);
              launch(mutants.kernel(number, "planted_forward"), 1, 128, kProductBytes, nullptr,
                     in[0], static_cast<const float*>(packed.data()), in[2], out[0]);
              lab::check(cudaDeviceSynchronize());
            };
          }};
}
NamedTrial embed_back_trial() {
  const auto x = numbers(2 * 9 * 7 * 8, 63), w = numbers(12 * kDepth, 64, 0.2),
             dy = numbers(size_t(kPositions) * 12, 65);
  const auto d = ref::embed_gradients(widened(x), widened(w), widened(dy), kEmbed);
  return {{"embedding, back",
           {{"x", x}, {"w", w}, {"dy", dy}},
           {{"dw", d.w, for_sums(kPositions, widened(x), widened(dy))},
            {"dbias", d.bias, for_sums(kPositions, {1}, widened(dy))},
            {"dx", d.x, for_sums(9 * 12, widened(w), widened(dy))}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              lab::DeviceArray<float> packed(12 * kDepth, "packed"),
                  products(12 * kDepth, "products"), sums(12, "sums");
              pack(mutants, number, in[1], packed);
              launch(mutants.kernel(number, "planted_weights"), dim3(blocks_of(kDepth, 64), 1), 128,
                     kProductBytes, nullptr, in[0], in[2], products.data(), sums.data());
              launch(mutants.kernel(number, "planted_finish"), blocks_of(12 * kDepth + 12, 256),
                     256, 0, nullptr, static_cast<const float*>(products.data()),
                     static_cast<const float*>(sums.data()), out[0], out[1]);
              for (const int i : {0, 1})
                for (const int j : {0, 1})
                  launch(mutants.kernel(number, "planted_back"), 1, 128, kProductBytes, nullptr,
                         in[2], static_cast<const float*>(packed.data()), out[2], phase(i, 9),
                         phase(j, 7));
              lab::check(cudaDeviceSynchronize());
            };
          }};
}

// ---- Attention ----------------------------------------------------------------------------------

// A tile of queries and of keys and a part of one; scores far below 0.
const CrossShape kShape{1, 81, 45, 2, 32, 0.125f};
constexpr size_t kAttentionBytes = 64 * 1024;
constexpr int kHeadDim = 32, kOwnRows = 64, kAttentionThreads = 128;
struct Scores {
  std::vector<float> q, k, v, d_o;
};
Scores scores() {
  const size_t of_q = size_t(kShape.queries) * 64, of_k = size_t(kShape.keys) * 64;
  Scores s{numbers(of_q, 20, 2), numbers(of_k, 21), numbers(of_k, 22), numbers(of_q, 23)};
  for (size_t i = 0; i < of_q; i += kHeadDim) s.q[i] = -1600;  // -200 behind scale
  for (size_t i = 0; i < of_k; i += kHeadDim) s.k[i] = 1;
  return s;
}
dim3 blocks_for(int rows) { return {blocks_of(rows, kOwnRows), 2, 1}; }

NamedTrial attention_trial() {
  const Scores s = scores();
  const auto expected = ref::attention(widened(s.q), widened(s.k), widened(s.v), kShape);
  return {{"attention",
           {{"q", s.q}, {"k", s.k}, {"v", s.v}},
           {{"o", expected.o, {4e-3 * lab::max_abs(widened(s.v)), 0, 3e-3}},
            {"log-sum-exp", expected.log_sum_exp, {1e-3, 0, 1e-5}}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              launch(mutants.kernel(number, "attention_forward_kernel", {kHeadDim}),
                     blocks_for(kShape.queries), kAttentionThreads, kAttentionBytes, nullptr, in[0],
                     in[1], in[2], out[0], out[1], kShape);
            };
          }};
}
NamedTrial attention_back_trial() {
  const Scores s = scores();
  const Array q = widened(s.q), k = widened(s.k), v = widened(s.v), d_o = widened(s.d_o);
  const auto forward = ref::attention(q, k, v, kShape);
  const auto d = ref::attention_gradients(q, k, v, d_o, kShape);
  const auto tolerance = [&](int which) {
    return lab::Tolerance{4e-3 * d.largest_terms[which], 0, 5e-3};
  };
  return {{"attention, back",
           {{"q", s.q},
            {"k", s.k},
            {"v", s.v},
            {"o", floats(forward.o)},
            {"log-sum-exp", floats(forward.log_sum_exp)},
            {"dO", s.d_o}},
           {{"dq", d.q, tolerance(0)}, {"dk", d.k, tolerance(1)}, {"dv", d.v, tolerance(2)}}},
          [](const Mutants& mutants, size_t number) -> Operation {
            return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
              const int rows = kShape.queries * kShape.heads;
              lab::DeviceArray<float> dots{size_t(rows), "dots"};
              launch(mutants.kernel(number, "dots_kernel", {kHeadDim}),
                     blocks_of(rows * kHeadDim / 4, kAttentionThreads), kAttentionThreads, 0,
                     nullptr, in[3], in[5], dots.data(), kShape);
              const float* const of_rows = dots.data();
              launch(mutants.kernel(number, "keys_kernel", {kHeadDim}), blocks_for(kShape.keys),
                     kAttentionThreads, kAttentionBytes, nullptr, in[0], in[1], in[2], in[5], in[4],
                     of_rows, out[1], out[2], kShape);
              launch(mutants.kernel(number, "queries_kernel", {kHeadDim}),
                     blocks_for(kShape.queries), kAttentionThreads, kAttentionBytes, nullptr, in[0],
                     in[1], in[2], in[5], in[4], of_rows, out[0], kShape);
              lab::check(cudaDeviceSynchronize());
            };
          }};
}

}  // namespace

TEST_CASE("planted bugs in linear layers: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in linear*")) return;
  const Mutants mutants(kFolder + "linear_layers/linear.cuh", "linear_layers",
                        planted_bugs("16_cvt", "linear"), kLinearKernels);
  check_bugs(mutants, planted_bugs("16_cvt", "linear"),
             {forward_trial(), backward_x_trial(), backward_w_trial()});
}

TEST_CASE("planted bugs in embedding: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in embedding*")) return;
  const Mutants mutants(kFolder + "token_embedding/embed.cuh", "token_embedding",
                        planted_bugs("16_cvt", "embedding"), kEmbedKernels);
  check_bugs(mutants, planted_bugs("16_cvt", "embedding"), {embed_trial(), embed_back_trial()});
}

TEST_CASE("planted bugs in attention: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in attention:*")) return;
  const Mutants mutants(
      kFolder + "fewer_keys/forward.cuh", "fewer_keys", planted_bugs("16_cvt", "attention"),
      "const auto instance = &attention_forward_kernel<32>;", Mutants::kKernelsOnly);
  check_bugs(mutants, planted_bugs("16_cvt", "attention"), {attention_trial()});
}

TEST_CASE("planted bugs in attention's gradients: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in attention's*")) return;
  const Mutants mutants(kFolder + "fewer_keys/backward.cuh", "fewer_keys",
                        planted_bugs("16_cvt", "attention, back"),
                        "const auto of_dots = &dots_kernel<32>; const auto of_keys = "
                        "&keys_kernel<32>; const auto of_queries = &queries_kernel<32>;",
                        Mutants::kKernelsOnly);
  check_bugs(mutants, planted_bugs("16_cvt", "attention, back"), {attention_back_trial()});
}

TEST_CASE("planted bugs in LayerNorm's gradients: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in LayerNorm*")) return;
  const Mutants mutants(
      kFolder + "token_norm/layer_norm.cuh", "token_norm", planted_bugs("16_cvt", "norm"),
      "const auto instance = &norm_backward_kernel<4, 1>;", Mutants::kKernelsOnly);
  constexpr int kNormRows = 19, kChannels = 64;
  const size_t count = size_t(kNormRows) * kChannels;
  const auto x = numbers(count, 30, 2, 1), scale = numbers(kChannels, 31, 0.5, 1),
             dy = numbers(count, 32);
  const auto forward =
      ref::layer_norm(widened(x), widened(scale), Array(kChannels, 0.0), kNormRows, kChannels);
  const auto d =
      ref::layer_norm_gradients(widened(x), widened(scale), widened(dy), kNormRows, kChannels);
  Array partials = d.scale;  // a block's: dscale, then dshift
  partials.insert(partials.end(), d.shift.begin(), d.shift.end());
  const lab::Tolerance tolerance{1e-4, 0, 1e-5};
  check_bugs(mutants, planted_bugs("16_cvt", "norm"),
             {{{"LayerNorm, back",
                {{"x", x},
                 {"scale", scale},
                 {"mean", floats(forward.mean)},
                 {"inverse deviation", floats(forward.inverse_deviation)},
                 {"dy", dy}},
                {{"dx", d.x, tolerance}, {"partials", partials, tolerance}}},
               [](const Mutants& mutants, size_t number) -> Operation {
                 return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
                   launch(mutants.kernel(number, "norm_backward_kernel", {4, 1}), 1, 256,
                          size_t(8 * kChannels) * sizeof(float), nullptr, in[0], in[1], in[2],
                          in[3], in[4], static_cast<const float*>(nullptr), out[0], out[1],
                          kNormRows, kChannels, kNormRows);
                 };
               }}});
}

TEST_CASE("planted bugs in cross entropy: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in cross*")) return;
  const Mutants mutants(kFolder + "losses/loss.cuh", "losses",
                        planted_bugs("16_cvt", "cross-entropy"),
                        "const auto of_rows = &cross_entropy_kernel; const auto mean = "
                        "&mean_kernel;",
                        Mutants::kKernelsOnly);
  // More rows than lanes and than a block's warps, more classes than lanes; logits up to 1000 in
  // size, which exp alone does not take.
  constexpr int kBatch = 37, kClasses = 70;
  constexpr float kSmoothing = 0.1f;
  auto logits = numbers(size_t(kBatch) * kClasses, 50, 3);
  for (int i = 0; i < kClasses; ++i) logits[size_t(5 * kClasses + i)] += 1000;
  logits[size_t(6 * kClasses + 60)] += 200;  // beyond the first 32
  std::vector<int> labels;
  for (int i = 0; i < kBatch; ++i) labels.push_back(i * 11 % kClasses);
  const auto expected = ref::cross_entropy(widened(logits), labels, kClasses, kSmoothing);
  // expf is good to two units of its last place.
  check_bugs(mutants, planted_bugs("16_cvt", "cross-entropy"),
             {{{"cross entropy",
                {{"logits", logits}},
                {{"dlogits", expected.dlogits, {1e-6 / kBatch, 1e-5, 1e-5}},
                 {"loss", {expected.loss}, {1e-6, 1e-5, 1e-5}}}},
               [labels](const Mutants& mutants, size_t number) -> Operation {
                 return [&mutants, number, labels](const auto& in, const auto& out, cudaStream_t) {
                   const lab::DeviceArray<int> of(labels, "labels");
                   lab::DeviceArray<float> rows(kBatch, "row losses");
                   launch(mutants.kernel(number, "cross_entropy_kernel"), blocks_of(kBatch, 8), 256,
                          0, nullptr, in[0], of.data(), rows.data(), out[0], int(kBatch),
                          int(kClasses), float(kSmoothing));
                   launch(mutants.kernel(number, "mean_kernel"), 1, 32, 0, nullptr,
                          static_cast<const float*>(rows.data()), out[1], int(kBatch));
                   lab::check(cudaDeviceSynchronize());
                 };
               }}});
}

TEST_CASE("planted bugs in AdamW: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in AdamW*")) return;
  const Mutants mutants(kFolder + "losses/loss.cuh", "losses", planted_bugs("16_cvt", "loss"), R"(
__global__ void planted_kernel(float* p, const float* g, float* m, float* v, int count,
                               float keep, float step_size, float root_correction) {
  const AdamWStep step{keep, 0.9f, 0.99f, step_size, root_correction, 1e-8f};
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) step.take(p[i], g[i], m[i], v[i]);
})");
  // The third step; moments as if there had been two.
  constexpr int kCount = 100, kStep = 3;
  const AdamW options{1e-2f, 0.9f, 0.99f, 1e-8f, 0.1f};
  const auto p = numbers(kCount, 40), g = numbers(kCount, 41), m = numbers(kCount, 42, 0.1);
  auto v = numbers(kCount, 43, 0.01);
  for (float& square : v) square = std::abs(square);
  Array after_p = widened(p), after_m = widened(m), after_v = widened(v);
  ref::adamw(after_p, widened(g), after_m, after_v, kStep, options);
  const lab::Tolerance tolerance{1e-6, 1e-5, 1e-5};
  check_bugs(mutants, planted_bugs("16_cvt", "loss"),
             {{{"AdamW",
                {{"gradients", g}},
                {{"parameters", after_p, tolerance, p},
                 {"m", after_m, tolerance, m},
                 {"v", after_v, tolerance, v}}},
               [](const Mutants& mutants, size_t number) -> Operation {
                 return [&mutants, number](const auto& in, const auto& out, cudaStream_t) {
                   launch(mutants.kernel(number, "planted_kernel"), blocks_of(kCount, 128), 128, 0,
                          nullptr, out[0], in[0], out[1], out[2], kCount, float(1 - 1e-2 * 0.1),
                          float(1e-2 / (1 - std::pow(0.9, kStep))),
                          float(std::sqrt(1 - std::pow(0.99, kStep))));
                 };
               }}});
}
