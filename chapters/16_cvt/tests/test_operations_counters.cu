// Counters of linear layers, embedding, LayerNorm, attention, loss and optimizer: what the last
// launch of each asks of its arrays, by formula.
#include <doctest/doctest.h>

#include <array>

#include "../../../common/testing/checks.h"
#include "test_operations.h"

using namespace lab::testing;
using namespace cvt;
using namespace cvt::testing;

namespace {

double floats(double numbers) { return 4 * numbers; }
double tiles_of(int count, int of_tile) { return (count + of_tile - 1) / of_tile; }
// The bytes that the last launch asked of an array, or stored.
void check_loads(const char* array, double bytes) {
  CAPTURE(array);
  CHECK(counted(array, "load/bytes_asked") == bytes);
}
void check_stores(const char* array, double bytes) {
  CAPTURE(array);
  CHECK(counted(array, "store/bytes_asked") == bytes);
}
struct Layer {
  int rows, in, out;
};
}  // namespace

TEST_CASE("operations, counters: what a linear layer asks for, by formula") {
  if (skipped_without_counters("linear: counters")) return;
  // A block has 64 rows and 64 columns: it reads each operand once for each tile across the other
  // one.
  for (const Layer& c : {Layer{130, 36, 132}, {65, 31, 70}}) {
    CAPTURE(c.rows);
    const double rows = tiles_of(c.rows, 64), columns = tiles_of(c.out, 64);
    const auto dy = numbers(size_t(c.rows) * c.out, 31), w = numbers(size_t(c.out) * c.in, 32),
               x = numbers(size_t(c.rows) * c.in, 33);
    run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          linear_forward(in[0], in[1], nullptr, out[0], Rows::all(c.rows), c.in, c.out,
                         {out[1], in[2]}, stream);
        },
        {"",
         {{"x", x}, {"w", w}, {"added", dy}},
         {{"y", Array(dy.size()), {}}, {"before_gelu", Array(dy.size()), {}}}});
    check_loads("x", floats(c.rows * c.in * columns));
    check_loads("w", floats(c.out * c.in * rows));
    check_loads("added", floats(c.rows * c.out));
    check_stores("y", floats(c.rows * c.out));
    check_stores("before_gelu", floats(c.rows * c.out));
    run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          linear_backward_x(in[0], in[1], out[0], Rows::all(c.rows), c.in, c.out, {}, stream);
        },
        {"", {{"dy", dy}, {"w", w}}, {{"dx", Array(x.size()), {}}}});
    check_loads("dy", floats(c.rows * c.out * tiles_of(c.in, 64)));
    check_loads("w", floats(c.out * c.in * rows));
    check_stores("dx", floats(c.rows * c.in));
    // What is seen of the weights' gradients is the second launch, which adds up the shares.
    run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          linear_backward_w(in[0], in[1], out[0], out[1], Rows::all(c.rows), c.in, c.out, nullptr,
                            nullptr, false, stream);
        },
        {"", {{"dy", dy}, {"x", x}}, {{"dw", Array(w.size()), {}}, {"dbias", Array(c.out), {}}}});
    check_stores("dw", floats(c.out * c.in));
    check_stores("dbias", floats(c.out));
  }
}

TEST_CASE("operations, counters: what the embedding asks for, by formula") {
  if (skipped_without_counters("embedding: counters")) return;
  for (const EmbedShape& s : {EmbedShape{2, 13, 11, 3, 70, 7, 4, 2}, {1, 9, 7, 8, 12, 3, 2, 1}}) {
    const int positions = s.batch * s.out_height() * s.out_width();
    const int depth = s.in_channels * s.kernel * s.kernel;
    CAPTURE(s.kernel);
    // Rows times columns of a window that lie in the map, over all windows of a sample.
    const auto inside = [&](int size, int outputs) {
      double sum = 0;
      for (int o = 0; o < outputs; ++o)
        for (int t = 0; t < s.kernel; ++t) {
          const int at = o * s.stride - s.padding + t;
          sum += at >= 0 && at < size;
        }
      return sum;
    };
    const double read =
        s.batch * s.in_channels * inside(s.height, s.out_height()) * inside(s.width, s.out_width());
    const auto x = numbers(size_t(s.batch) * s.height * s.width * s.in_channels, 34),
               w = numbers(size_t(s.out_channels) * depth, 35),
               bias = numbers(size_t(s.out_channels), 36),
               dy = numbers(size_t(positions) * s.out_channels, 37);
    run_trial([&](const std::vector<const float*>& in, const std::vector<float*>& out,
                  cudaStream_t stream) { embed_forward(in[0], in[1], in[2], out[0], s, stream); },
              {"", {{"x", x}, {"w", w}, {"bias", bias}}, {{"y", Array(dy.size()), {}}}});
    check_loads("x", floats(read * tiles_of(s.out_channels, 64)));
    check_stores("y", floats(positions * s.out_channels));
    run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          embed_backward(in[0], in[1], in[2], out[2], out[0], out[1], s, stream);
        },
        {"",
         {{"x", x}, {"w", w}, {"dy", dy}},
         {{"dw", Array(w.size()), {}},
          {"dbias", Array(s.out_channels), {}},
          {"dx", Array(x.size()), {}}}});
    // The last launch has the last of `stride` kinds of rows, and of columns.
    const auto last = [&](int size) { return (size - (s.stride - 1) + s.stride - 1) / s.stride; };
    check_stores("dx", floats(s.batch * last(s.height) * last(s.width) * s.in_channels));
  }
}

TEST_CASE("operations, counters: what LayerNorm asks for, by formula") {
  if (skipped_without_counters("layer norm: counters")) return;
  for (const auto& [rows, channels] : {std::array{33, 32}, std::array{9, 384}, std::array{5, 7}}) {
    CAPTURE(channels);
    const double all = rows * channels;
    const auto x = numbers(size_t(all), 38), scale = numbers(size_t(channels), 39, 0.5, 1),
               shift = numbers(size_t(channels), 40);
    run_trial(
        [&, rows = rows, channels = channels](const std::vector<const float*>& in,
                                              const std::vector<float*>& out, cudaStream_t stream) {
          layer_norm_forward(in[0], in[1], in[2], out[0], out[1], out[2], rows, channels, stream);
        },
        {"",
         {{"x", x}, {"scale", scale}, {"shift", shift}},
         {{"y", Array(x.size()), {}}, {"mean", Array(rows), {}}, {"deviation", Array(rows), {}}}});
    // x once: a warp keeps its row. Each warp reads scale and shift for its row.
    for (const char* const array : {"x", "scale", "shift"}) check_loads(array, floats(all));
    check_stores("y", floats(all));
    for (const char* const array : {"mean", "deviation"}) check_stores(array, floats(rows));
  }
}

TEST_CASE("operations, counters: what attention asks for, by formula") {
  if (skipped_without_counters("attention: counters")) return;
  for (const CrossShape& s : {CrossShape{2, 81, 45, 2, 32, 0.1f}, {1, 130, 70, 1, 64, 0.1f}}) {
    CAPTURE(s.queries);
    const int width = s.heads * s.head_dim;
    const double of_q = floats(s.batch * s.queries * width),
                 of_k = floats(s.batch * s.keys * width),
                 rows = floats(s.batch * s.heads * s.queries), blocks = tiles_of(s.queries, 64);
    const auto q = numbers(size_t(s.batch) * s.queries * width, 46),
               k = numbers(size_t(s.batch) * s.keys * width, 47), d_o = numbers(q.size(), 48),
               sums = numbers(size_t(s.batch) * s.heads * s.queries, 49);
    run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          cross_attention_forward(in[0], in[1], in[2], out[0], out[1], s, stream);
        },
        {"",
         {{"q", q}, {"k", k}, {"v", k}},
         {{"o", Array(q.size()), {}}, {"log_sum_exp", Array(sums.size()), {}}}});
    // A block has 64 queries, and reads all keys.
    check_loads("q", of_q);
    check_loads("k", of_k * blocks);
    check_loads("v", of_k * blocks);
    check_stores("o", of_q);
    check_stores("log_sum_exp", rows);
    // What is seen of the way back is the last launch, that of dq.
    run_trial(
        [&](const std::vector<const float*>& in, const std::vector<float*>& out,
            cudaStream_t stream) {
          cross_attention_backward(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2],
                                   s, stream);
        },
        {"",
         {{"q", q}, {"k", k}, {"v", k}, {"o", q}, {"log_sum_exp", sums}, {"d_o", d_o}},
         {{"dq", Array(q.size()), {}}, {"dk", Array(k.size()), {}}, {"dv", Array(k.size()), {}}}});
    check_loads("q", of_q);
    check_loads("d_o", of_q);
    check_loads("k", of_k * blocks);
    check_loads("v", of_k * blocks);
    check_stores("dq", of_q);
  }
}

TEST_CASE("operations, counters: what loss, optimizer and class token ask for, by formula") {
  if (skipped_without_counters("loss: counters")) return;
  const int batch = 37, classes = 10;
  const lab::DeviceArray<float> logits(numbers(size_t(batch) * classes, 41), "logits");
  const lab::DeviceArray<int> labels(std::vector<int>(batch, 3), "labels");
  lab::DeviceArray<float> loss(1, "loss"), dlogits(logits.size(), "dlogits");
  cross_entropy(logits.data(), labels.data(), loss.data(), dlogits.data(), batch, classes, 0.1f,
                nullptr);
  lab::check(cudaDeviceSynchronize());
  check_stores("loss", floats(1));        // the last launch has the mean of the rows' losses
  for (const int count : {1000, 1003}) {  // in pieces of 16 bytes, and not
    lab::DeviceArray<float> p(numbers(size_t(count), 42), "parameters"),
        g(numbers(size_t(count), 43), "gradients"), m(std::vector<float>(size_t(count)), "m"),
        v(std::vector<float>(size_t(count)), "v");
    adamw(p.data(), g.data(), m.data(), v.data(), count, 1, {1e-2f}, nullptr);
    lab::check(cudaDeviceSynchronize());
    for (const char* const array : {"parameters", "gradients", "m", "v"})
      check_loads(array, floats(count));
    for (const char* const array : {"parameters", "m", "v"}) check_stores(array, floats(count));
    check_stores("gradients", 0);
  }
  const int tokens = 5, channels = 12;
  run_trial(
      [&](const std::vector<const float*>& in, const std::vector<float*>& out,
          cudaStream_t stream) {
        prepend_token(in[0], in[1], out[0], 3, tokens, channels, stream);
      },
      {"",
       {{"x", numbers(size_t(3 * tokens * channels), 44)}, {"token", numbers(channels, 45)}},
       {{"y", Array(size_t(3 * (tokens + 1) * channels)), {}}}});
  check_loads("x", floats(3 * tokens * channels));
  check_loads("token", floats(3 * channels));
  check_stores("y", floats(3 * (tokens + 1) * channels));
}
