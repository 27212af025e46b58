// The formulas that chapter 16's kernels are held against: gradients are central differences of the forward
// ones.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "test_operations.h"

namespace cvt::testing {

namespace ref = cvt::reference;

namespace {
// Numbers of any size for formulas in double.
Array doubles(size_t count, uint64_t seed) { return widened(numbers(count, seed)); }
double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
// Each element of `gradient` is the slope of loss(array) there.
void check_slopes(const char* name, const std::function<double(const Array&)>& loss, Array array,
                  const Array& gradient) {
  CAPTURE(name);
  REQUIRE(array.size() == gradient.size());
  const double step = 1e-5;
  for (size_t i = 0; i < array.size(); ++i) {
    const double middle = array[i];
    array[i] = middle + step;
    const double above = loss(array);
    array[i] = middle - step;
    const double slope = (above - loss(array)) / (2 * step);
    array[i] = middle;
    CAPTURE(i);
    CHECK(std::abs(slope - gradient[i]) <= 1e-7 * (1 + std::abs(slope)));
  }
}
}  // namespace

TEST_CASE("operations: gradients' formulas are central differences of the forward ones") {
  for (double v = -4; v <= 4; v += 0.5)
    check_slopes("GELU", [](const Array& x) { return ref::gelu(x[0]); }, {v},
                 {ref::gelu_derivative(v)});
  {
    const Array x = doubles(6, 1), w = doubles(8, 2), bias = doubles(4, 3), dy = doubles(12, 4);
    const auto d = ref::linear_gradients(x, w, dy, 3, 2, 4);
    const auto loss = [&](const Array& x, const Array& w, const Array& bias) {
      return dot(dy, ref::linear(x, w, bias, 3, 2, 4));
    };
    check_slopes(
        "x", [&](const Array& a) { return loss(a, w, bias); }, x, d.x);
    check_slopes(
        "w", [&](const Array& a) { return loss(x, a, bias); }, w, d.w);
    check_slopes(
        "bias", [&](const Array& a) { return loss(x, w, a); }, bias, d.bias);
  }
  for (const EmbedShape& s : {EmbedShape{1, 5, 4, 2, 3, 3, 2, 1}, {2, 7, 6, 1, 2, 7, 4, 2}}) {
    const size_t outputs = size_t(s.batch) * s.out_height() * s.out_width() * s.out_channels;
    const Array x = doubles(size_t(s.batch) * s.height * s.width * s.in_channels, 5),
                w = doubles(size_t(s.out_channels) * s.in_channels * s.kernel * s.kernel, 6),
                bias = doubles(size_t(s.out_channels), 7), dy = doubles(outputs, 8);
    const auto d = ref::embed_gradients(x, w, dy, s);
    const auto loss = [&](const Array& x, const Array& w, const Array& bias) {
      return dot(dy, ref::embed(x, w, bias, s));
    };
    check_slopes(
        "map", [&](const Array& a) { return loss(a, w, bias); }, x, d.x);
    check_slopes(
        "kernel", [&](const Array& a) { return loss(x, a, bias); }, w, d.w);
    check_slopes(
        "bias", [&](const Array& a) { return loss(x, w, a); }, bias, d.bias);
  }
  {
    const Array x = doubles(10, 9), scale = doubles(5, 10), shift = doubles(5, 11),
                dy = doubles(10, 12);
    const auto d = ref::layer_norm_gradients(x, scale, dy, 2, 5);
    const auto loss = [&](const Array& x, const Array& scale, const Array& shift) {
      return dot(dy, ref::layer_norm(x, scale, shift, 2, 5).y);
    };
    check_slopes(
        "x", [&](const Array& a) { return loss(a, scale, shift); }, x, d.x);
    check_slopes(
        "scale", [&](const Array& a) { return loss(x, a, shift); }, scale, d.scale);
    check_slopes(
        "shift", [&](const Array& a) { return loss(x, scale, a); }, shift, d.shift);
  }
  {
    const CrossShape s{2, 3, 2, 2, 4, 0.7f};
    const Array q = doubles(48, 13), k = doubles(32, 14), v = doubles(32, 15),
                d_o = doubles(48, 16);
    const auto d = ref::attention_gradients(q, k, v, d_o, s);
    const auto loss = [&](const Array& q, const Array& k, const Array& v) {
      return dot(d_o, ref::attention(q, k, v, s).o);
    };
    check_slopes(
        "q", [&](const Array& a) { return loss(a, k, v); }, q, d.q);
    check_slopes(
        "k", [&](const Array& a) { return loss(q, a, v); }, k, d.k);
    check_slopes(
        "v", [&](const Array& a) { return loss(q, k, a); }, v, d.v);
  }
  for (const double smoothing : {0.0, 0.2}) {
    const std::vector<int> labels = {2, 0, 4};
    const Array logits = doubles(15, 17);
    check_slopes(
        "logits", [&](const Array& a) { return ref::cross_entropy(a, labels, 5, smoothing).loss; },
        logits, ref::cross_entropy(logits, labels, 5, smoothing).dlogits);
  }
}

}  // namespace cvt::testing
