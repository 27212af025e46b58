// Each function once against the formula in double, on small ragged shapes. The kernels themselves
// are tested in their chapters; here it shows that arguments reach them as operators.h says.
#include <algorithm>

#include "support.h"

using namespace operators_tests;

extern "C" int vision_interface_seen_from_c(void);  // header_is_c.c

namespace {

struct Attended {
  std::vector<double> o, log_sum_exp, dq, dk, dv;
};
// [matrices, tokens, head_dim] each.
Attended attend(const std::vector<double>& q, const std::vector<double>& k,
                const std::vector<double>& v, const std::vector<double>& d_o, int matrices,
                int tokens, int head_dim, double scale) {
  Attended r;
  for (auto* a : {&r.o, &r.dq, &r.dk, &r.dv}) a->assign(q.size(), 0.0);
  for (int m = 0; m < matrices; ++m) {
    const size_t base = size_t(m) * tokens * head_dim;
    const auto at = [&](int token, int d) { return base + size_t(token) * head_dim + d; };
    const auto dot = [&](const auto& a, int i, const auto& b, int j) {
      double sum = 0;
      for (int d = 0; d < head_dim; ++d) sum += a[at(i, d)] * b[at(j, d)];
      return sum;
    };
    for (int i = 0; i < tokens; ++i) {
      std::vector<double> p(tokens);
      double sum = 0, mean = 0;
      for (int j = 0; j < tokens; ++j) sum += p[j] = std::exp(scale * dot(q, i, k, j));
      r.log_sum_exp.push_back(std::log(sum));
      for (int j = 0; j < tokens; ++j) {
        p[j] /= sum;
        mean += p[j] * dot(d_o, i, v, j);
        for (int d = 0; d < head_dim; ++d) r.o[at(i, d)] += p[j] * v[at(j, d)];
      }
      for (int j = 0; j < tokens; ++j) {
        const double ds = scale * p[j] * (dot(d_o, i, v, j) - mean);
        for (int d = 0; d < head_dim; ++d) {
          r.dq[at(i, d)] += ds * k[at(j, d)];
          r.dk[at(j, d)] += ds * q[at(i, d)];
          r.dv[at(j, d)] += p[j] * d_o[at(i, d)];
        }
      }
    }
  }
  return r;
}

double gelu(double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); }

// act(x weightᵀ + bias) + residual
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& weight,
                            const std::vector<double>& bias, const std::vector<double>& residual,
                            int rows, int in, int out, bool with_gelu) {
  std::vector<double> y;
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int i = 0; i < in; ++i) sum += x[size_t(r) * in + i] * weight[size_t(o) * in + i];
      y.push_back((with_gelu ? gelu(sum) : sum) + (residual.empty() ? 0 : residual[y.size()]));
    }
  return y;
}

}  // namespace

TEST_CASE("the interface has the header's number, and there is a device") {
  CHECK(vision_interface() == VISION_INTERFACE);
  CHECK(vision_interface_seen_from_c() == VISION_INTERFACE);
  REQUIRE_MESSAGE(vision_device() != nullptr, vision_last_message());
  CHECK(std::string(vision_device()) != "");
}

// P and dS are rounded to fp16, each result too: 2^-11 of each is 5e-4 of a summand. 1e-2 of the
// rms is a bound for the largest of some thousand such errors.
TEST_CASE("attention and its gradients") {
  const int batch = 1, heads = 2, tokens = 37, head_dim = 32;
  const std::vector<int64_t> shape = {batch, heads, tokens, head_dim},
                             rows = {batch, heads, tokens};
  const Array<half> q(shape, 1), k(shape, 2), v(shape, 3), d_o(shape, 4);
  const float scale = 0.25f;
  const Attended expected =
      attend(q.wide(), k.wide(), v.wide(), d_o.wide(), batch * heads, tokens, head_dim, scale);
  Array<half> alone(shape), o(shape);
  Array<float> log_sum_exp(rows);
  RUN(vision_attention_forward(q, k, v, alone, nullptr, scale, nullptr));
  check_near(alone.download(), expected.o, 1e-2);
  RUN(vision_attention_forward(q, k, v, o, log_sum_exp, scale, nullptr));
  check_near(o.download(), expected.o, 1e-2);
  check_near(log_sum_exp.download(), expected.log_sum_exp, 1e-4);
  for (const int deterministic : {0, 1}) {
    CAPTURE(deterministic);
    Array<half> dq(shape), dk(shape), dv(shape);
    RUN(vision_attention_backward(q, k, v, o, log_sum_exp, d_o, dq, dk, dv, scale, deterministic,
                                  nullptr));
    check_near(dq.download(), expected.dq, 1e-2);
    check_near(dk.download(), expected.dk, 1e-2);
    check_near(dv.download(), expected.dv, 1e-2);
  }
}

// Two levels, 3 x 5 and 2 x 2; the gradient of weights by its own formula, that of value by
// Σ d_value · value = Σ d_out · out, as out is linear in value.
TEST_CASE("deformable attention and its gradients") {
  const int queries = 5, heads = 2, channels = 16, levels = 2, points = 4, pixels = 19;
  const int64_t level_sizes[] = {3, 5, 2, 2};
  const Array<half> value({1, pixels, heads, channels}, 1),
      weights({1, queries, heads, levels, points}, 2, 0.3);
  Array<half> locations({1, queries, heads, levels, points, 2}, 3, 0.4);
  for (half& x : locations.host) x += half(0.5);  // most inside, some beyond a border
  locations.upload();
  const std::vector<double> w = weights.wide(), l = locations.wide(), v = value.wide();
  const Array<half> d_out({1, queries, heads * channels}, 4);
  const std::vector<double> g = d_out.wide();
  std::vector<double> expected(size_t(queries) * heads * channels), of_weights(w.size());
  for (size_t s = 0; s < w.size(); ++s) {
    const int level = int(s) / points % levels, row = int(s) / points / levels, head = row % heads;
    const int height = int(level_sizes[2 * level]), width = int(level_sizes[2 * level + 1]);
    const double x = l[2 * s] * width - 0.5, y = l[2 * s + 1] * height - 0.5;
    for (int corner = 0; corner < 4; ++corner) {
      const double column = std::floor(x) + corner % 2, line = std::floor(y) + corner / 2;
      if (column < 0 || column >= width || line < 0 || line >= height) continue;
      const double share = (1 - std::abs(x - column)) * (1 - std::abs(y - line));
      const size_t pixel = size_t(level == 0 ? 0 : 15) + size_t(line) * width + size_t(column);
      for (int c = 0; c < channels; ++c) {
        const double sample = share * v[(pixel * heads + head) * channels + c];
        expected[size_t(row) * channels + c] += w[s] * sample;
        of_weights[s] += g[size_t(row) * channels + c] * sample;
      }
    }
  }
  Array<half> out({1, queries, heads * channels});
  RUN(vision_deformable_attention_forward(value, level_sizes, levels, locations, weights, out,
                                          nullptr));
  check_near(out.download(), expected, 1e-2);
  for (const int deterministic : {0, 1}) {
    CAPTURE(deterministic);
    Array<float> d_value({1, pixels, heads, channels}),
        d_weights({1, queries, heads, levels, points}),
        d_locations({1, queries, heads, levels, points, 2});
    RUN(vision_deformable_attention_backward(value, level_sizes, levels, locations, weights, d_out,
                                             d_value, d_locations, d_weights, deterministic,
                                             nullptr));
    check_near(d_weights.download(), of_weights, 1e-3);
    double by_value = 0, by_out = 0, size = 0;
    d_value.download();
    for (size_t i = 0; i < v.size(); ++i) by_value += double(d_value.host[i]) * v[i];
    for (size_t i = 0; i < g.size(); ++i)
      by_out += g[i] * expected[i], size += std::abs(g[i] * expected[i]);
    CHECK(std::abs(by_value - by_out) <= 1e-4 * size);
    for (const float x : d_locations.download()) REQUIRE(std::isfinite(x));
  }
}

TEST_CASE_TEMPLATE("convolution, instance norm, residual and ReLU", T, float, half) {
  const int in = 3, out = 5, height = 9, width = 7, kernel = 3;
  const Array<T> x({2, in, height, width}, 1), weight({out, in, kernel, kernel}, 2),
      added({2, out, 5, 4}, 3);
  const Array<float> gamma({out}, 4), beta({out}, 5);
  const std::vector<double> a = x.wide(), w = weight.wide(), r = added.wide();
  std::vector<double> expected;
  for (int image = 0; image < 2; ++image)
    for (int o = 0; o < out; ++o) {
      std::vector<double> plane;
      double mean = 0, squares = 0;
      for (int y = 0; y < 5; ++y)
        for (int z = 0; z < 4; ++z) {
          double sum = 0;
          for (int i = 0; i < in * kernel * kernel; ++i) {
            const int line = 2 * y + i / kernel % kernel - 1, column = 2 * z + i % kernel - 1;
            if (line < 0 || line >= height || column < 0 || column >= width) continue;
            sum += w[size_t(o) * in * kernel * kernel + i] *
                   a[((size_t(image) * in + i / kernel / kernel) * height + line) * width + column];
          }
          plane.push_back(sum);
          mean += sum / 20;
        }
      for (const double c : plane) squares += (c - mean) * (c - mean) / 20;
      for (const double c : plane)
        expected.push_back(
            std::max(0.0, double(gamma.host[o]) * (c - mean) / std::sqrt(squares + 1e-5) +
                              double(beta.host[o]) + r[expected.size()]));
    }
  const vision_conv_norm_options options = {2, 1, 1, 1, 1, 0, 1, 1e-5f};
  Array<T> y({2, out, 5, 4});
  RUN(vision_conv_norm(x, weight, gamma, beta, added, y, &options, nullptr));
  check_near(y.download(), expected, std::is_same_v<T, float> ? 1e-5 : 1e-2);
}

TEST_CASE_TEMPLATE("LayerNorm, with a residual, and its gradients", T, float, half) {
  const int rows = 5, columns = 72;
  const Array<T> x({rows, columns}, 1, 2), added({rows, columns}, 2), scale({columns}, 3),
      bias({columns}, 4), dy({rows, columns}, 5);
  const double bound = std::is_same_v<T, float> ? 1e-5 : 1e-2, epsilon = 1e-3;
  Array<T> sum({rows, columns}), y({rows, columns}), plain({rows, columns}), dx({rows, columns});
  Array<float> d_scale({columns}), d_bias({columns});
  RUN(vision_layer_norm_forward(x, added, scale, bias, sum, y, float(epsilon), nullptr));
  RUN(vision_layer_norm_forward(x, nullptr, scale, bias, nullptr, plain, float(epsilon), nullptr));
  const auto norm = [&](const std::vector<double>& from, std::vector<double>& factors) {
    std::vector<double> n(from.size());
    for (int r = 0; r < rows; ++r) {
      double mean = 0, variance = 0;
      for (int c = 0; c < columns; ++c) mean += from[r * columns + c] / columns;
      for (int c = 0; c < columns; ++c)
        variance += std::pow(from[r * columns + c] - mean, 2) / columns;
      factors.push_back(1 / std::sqrt(variance + epsilon));
      for (int c = 0; c < columns; ++c)
        n[r * columns + c] = (from[r * columns + c] - mean) * factors[r];
    }
    return n;
  };
  std::vector<double> total = x.wide(), factors, of_plain;
  for (size_t i = 0; i < total.size(); ++i) total[i] = double(T(total[i] + double(added.host[i])));
  std::vector<double> n = norm(total, factors), expected = n,
                      expected_plain = norm(x.wide(), of_plain);
  for (size_t i = 0; i < n.size(); ++i)
    for (auto* array : {&expected, &expected_plain})
      (*array)[i] = (*array)[i] * double(scale.host[i % columns]) + double(bias.host[i % columns]);
  check_near(sum.download(), total, bound);
  check_near(y.download(), expected, bound);
  check_near(plain.download(), expected_plain, bound);

  RUN(vision_layer_norm_backward(dy, sum, scale, dx, d_scale, d_bias, float(epsilon), nullptr));
  std::vector<double> of_scale(columns), of_bias(columns), of_x(n.size());
  for (int r = 0; r < rows; ++r) {
    double mean_g = 0, mean_gn = 0;
    for (int c = 0; c < columns; ++c) {
      const size_t i = size_t(r) * columns + c;
      of_x[i] = double(dy.host[i]) * double(scale.host[c]);
      mean_g += of_x[i] / columns, mean_gn += of_x[i] * n[i] / columns;
      of_scale[c] += double(dy.host[i]) * n[i], of_bias[c] += double(dy.host[i]);
    }
    for (int c = 0; c < columns; ++c) {
      double& value = of_x[size_t(r) * columns + c];
      value = factors[r] * (value - mean_g - n[size_t(r) * columns + c] * mean_gn);
    }
  }
  check_near(dx.download(), of_x, bound);
  check_near(d_scale.download(), of_scale, 1e-5);
  check_near(d_bias.download(), of_bias, 1e-5);
}

namespace {

// A map of 5 x 4 with a class token, of 2 photos.
constexpr int kHeight = 5, kWidth = 4, kChannels = 8, kQueries = 21, kKeys = 7;
struct Projected {
  std::vector<double> maps[3], factor, offset, mean, variance;  // the last four: [3, channels]
  std::vector<double> dx, dw, dscale, dshift;
};
int keys_of(int which) { return which == 0 ? kQueries : kKeys; }
// By the formula; constant statistics are `running`'s.
Projected project(const std::vector<double>& x, const std::vector<double>& w,
                  const std::vector<double>& scale, const std::vector<double>& shift,
                  const std::vector<double> (&dy)[3], const std::vector<double>* running) {
  Projected r;
  r.dx.assign(x.size(), 0), r.dw.assign(w.size(), 0);
  for (int which = 0; which < 3; ++which)
    for (int c = 0; c < kChannels; ++c) {
      const int stride = which == 0 ? 1 : 2, columns = (kWidth - 1) / stride + 1;
      const int positions = keys_of(which) - 1, at = which * kChannels + c;
      const auto place = [&](int photo, int token) {
        return (size_t(photo) * keys_of(which) + token) * kChannels + c;
      };
      // Each pair of an output and a place of x that a tap joins.
      const auto each_tap = [&](int p, const auto& run) {
        for (int t = 0; t < 9; ++t) {
          const int row = p / columns * stride + t / 3 - 1,
                    column = p % columns * stride + t % 3 - 1;
          if (row < 0 || row >= kHeight || column < 0 || column >= kWidth) continue;
          run(size_t(at) * 9 + t, size_t(1 + row * kWidth + column) * kChannels + c);
        }
      };
      if (c == 0) r.maps[which].resize(size_t(2) * keys_of(which) * kChannels);
      double mean = 0, variance = 0, sum_dy = 0, sum_dyn = 0;
      for (int photo = 0; photo < 2; ++photo) {
        const size_t own = size_t(photo) * kQueries * kChannels;
        r.maps[which][place(photo, 0)] = x[own + c];
        r.dx[own + c] += dy[which][place(photo, 0)];
        for (int p = 0; p < positions; ++p) {
          double& sum = r.maps[which][place(photo, 1 + p)];
          each_tap(p, [&](size_t tap, size_t from) { sum += w[tap] * x[own + from]; });
          mean += sum / (2 * positions);
        }
      }
      for (int i = 0; i < 2 * positions; ++i)
        variance += std::pow(r.maps[which][place(i / positions, 1 + i % positions)] - mean, 2) /
                    (2 * positions);
      if (running) mean = running[0][at], variance = running[1][at];
      const double inverse = 1 / std::sqrt(variance + 1e-5), factor = scale[at] * inverse;
      const auto normal = [&](int i) {
        return (r.maps[which][place(i / positions, 1 + i % positions)] - mean) * inverse;
      };
      const auto gradient = [&](int i) {
        return dy[which][place(i / positions, 1 + i % positions)];
      };
      for (int i = 0; i < 2 * positions; ++i)
        sum_dy += gradient(i), sum_dyn += gradient(i) * normal(i);
      const double share = running ? 0 : 1.0 / (2 * positions);
      for (int i = 0; i < 2 * positions; ++i) {
        const double dmap = factor * (gradient(i) - share * (sum_dy + normal(i) * sum_dyn));
        const size_t own = size_t(i / positions) * kQueries * kChannels;
        each_tap(i % positions, [&](size_t tap, size_t from) {
          r.dw[tap] += dmap * x[own + from];
          r.dx[own + from] += dmap * w[tap];
        });
      }
      r.mean.push_back(mean), r.variance.push_back(variance);
      r.factor.push_back(factor), r.offset.push_back(shift[at] - mean * factor);
      r.dscale.push_back(sum_dyn), r.dshift.push_back(sum_dy);
    }
  return r;
}

}  // namespace

TEST_CASE_TEMPLATE("the convolutional projection in training and behind it, and its gradients", T,
                   float, half) {
  const std::vector<int64_t> of_q = {2, kQueries, kChannels}, of_k = {2, kKeys, kChannels},
                             each = {3, kChannels}, of_w = {3, kChannels, 3, 3};
  const Array<T> x(of_q, 1), dq(of_q, 2), dk(of_k, 3), dv(of_k, 4);
  const Array<float> w(of_w, 5, 0.4), scale(each, 6), shift(each, 7);
  const double bound = std::is_same_v<T, float> ? 1e-5 : 1e-2;
  for (const int training : {1, 0}) {
    CAPTURE(training);
    Array<float> running_mean(each, 8), running_variance(each, 9);
    for (float& value : running_variance.host) value = std::abs(value) + 0.1f;
    running_variance.upload();
    const std::vector<double> running[] = {running_mean.wide(), running_variance.wide()};
    const Projected expected =
        project(x.wide(), w.wide(), scale.wide(), shift.wide(), {dq.wide(), dk.wide(), dv.wide()},
                training ? nullptr : running);
    Array<T> q(of_q), k(of_k), v(of_k), dx(of_q);
    Array<float> mean(each), inverse(each), factor(each), offset(each), dw(of_w), dscale(each),
        dshift(each);
    RUN(vision_projection_forward(x, w, scale, shift, running_mean, running_variance, q, k, v, mean,
                                  inverse, factor, offset, kHeight, kWidth, training, nullptr));
    check_near(q.download(), expected.maps[0], bound);
    check_near(k.download(), expected.maps[1], bound);
    check_near(v.download(), expected.maps[2], bound);
    check_near(factor.download(), expected.factor, bound);
    check_near(offset.download(), expected.offset, bound);
    std::vector<double> mean_after = running[0], variance_after = running[1];
    for (size_t i = 0; training && i < mean_after.size(); ++i) {
      const double count = 2 * (i < kChannels ? kQueries - 1 : kKeys - 1);
      mean_after[i] = 0.9 * mean_after[i] + 0.1 * expected.mean[i];
      variance_after[i] =
          0.9 * variance_after[i] + 0.1 * expected.variance[i] * count / (count - 1);
    }
    check_near(running_mean.download(), mean_after, bound);
    check_near(running_variance.download(), variance_after, bound);
    RUN(vision_projection_backward(x, w, q, k, v, mean, inverse, factor, dq, dk, dv, dx, dw, dscale,
                                   dshift, kHeight, kWidth, training, nullptr));
    check_near(dx.download(), expected.dx, bound);
    check_near(dw.download(), expected.dw, bound);
    check_near(dscale.download(), expected.dscale, bound);
    check_near(dshift.download(), expected.dshift, bound);
  }
}

TEST_CASE("BatchNorm in the weights of a linear layer") {
  const int in = 9, out = 5;
  const Array<float> w({out, in}, 1), bias({out}, 2), factor({in}, 3), offset({in}, 4);
  Array<float> folded_w({out, in}), folded_bias({out});
  RUN(vision_fold_batch_norm(w, bias, factor, offset, folded_w, folded_bias, nullptr));
  std::vector<double> of_w = w.wide(), of_bias = bias.wide();
  for (int o = 0; o < out; ++o)
    for (int i = 0; i < in; ++i) {
      of_bias[o] += of_w[o * in + i] * double(offset.host[i]);
      of_w[o * in + i] *= double(factor.host[i]);
    }
  check_near(folded_w.download(), of_w, 1e-5);
  check_near(folded_bias.download(), of_bias, 1e-5);
}

TEST_CASE("a linear layer, and the MLP of two") {
  const int rows = 19, in = 24, hidden = 40, out = 21;
  const Array<half> x({rows, in}, 1), w1({hidden, in}, 2, 0.2), b1({hidden}, 3),
      w2({out, hidden}, 4, 0.2), b2({out}, 5), added({rows, out}, 6);
  Array<half> first({rows, hidden}), bare({rows, hidden}), y({rows, out}), without({rows, out});
  const std::vector<double> h = product(x.wide(), w1.wide(), b1.wide(), {}, rows, in, hidden, true);
  RUN(vision_linear(x, w1, b1, nullptr, first, 1, nullptr));
  check_near(first.download(), h, 1e-2);
  RUN(vision_linear(x, w1, nullptr, nullptr, bare, 0, nullptr));
  check_near(bare.download(), product(x.wide(), w1.wide(), {}, {}, rows, in, hidden, false), 1e-2);
  RUN(vision_mlp(x, w1, b1, w2, b2, added, y, nullptr));
  check_near(y.download(), product(h, w2.wide(), b2.wide(), added.wide(), rows, hidden, out, false),
             1e-2);
  RUN(vision_mlp(x, w1, b1, w2, nullptr, nullptr, without, nullptr));
  check_near(without.download(), product(h, w2.wide(), {}, {}, rows, hidden, out, false), 1e-2);
}
