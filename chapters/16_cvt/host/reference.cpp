#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace cvt::reference {

double gelu(double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); }
double gelu_derivative(double v) {
  const double pi = std::acos(-1.0);
  return 0.5 * std::erfc(-v / std::sqrt(2.0)) + v * std::exp(-v * v / 2) / std::sqrt(2 * pi);
}

// ---- Linear layers ------------------------------------------------------------------------------

Array linear(const Array& x, const Array& w, const Array& bias, int rows, int in, int out) {
  Array y(size_t(rows) * out);
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int i = 0; i < in; ++i) sum += x[size_t(r) * in + i] * w[size_t(o) * in + i];
      y[size_t(r) * out + o] = sum;
    }
  return y;
}

LinearGradients linear_gradients(const Array& x, const Array& w, const Array& dy, int rows, int in,
                                 int out) {
  LinearGradients d{Array(x.size()), Array(w.size()), Array(size_t(out))};
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < out; ++o) {
      const double grad = dy[size_t(r) * out + o];
      d.bias[o] += grad;
      for (int i = 0; i < in; ++i) {
        d.x[size_t(r) * in + i] += grad * w[size_t(o) * in + i];
        d.w[size_t(o) * in + i] += grad * x[size_t(r) * in + i];
      }
    }
  return d;
}

// ---- Embedding ----------------------------------------------------------------------------------

namespace {
// Calls use(index in x, in w, in y) for each product of the convolution.
template <class Use>
void for_each_product(const EmbedShape& s, const Use& use) {
  for (int b = 0; b < s.batch; ++b)
    for (int oy = 0; oy < s.out_height(); ++oy)
      for (int ox = 0; ox < s.out_width(); ++ox)
        for (int o = 0; o < s.out_channels; ++o)
          for (int ky = 0; ky < s.kernel; ++ky)
            for (int kx = 0; kx < s.kernel; ++kx) {
              const int iy = oy * s.stride - s.padding + ky, ix = ox * s.stride - s.padding + kx;
              if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
              for (int c = 0; c < s.in_channels; ++c)
                use(((size_t(b) * s.height + iy) * s.width + ix) * s.in_channels + c,
                    ((size_t(o) * s.in_channels + c) * s.kernel + ky) * s.kernel + kx,
                    ((size_t(b) * s.out_height() + oy) * s.out_width() + ox) * s.out_channels + o);
            }
}
}  // namespace

Array embed(const Array& x, const Array& w, const Array& bias, const EmbedShape& s) {
  Array y(size_t(s.batch) * s.out_height() * s.out_width() * s.out_channels);
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i % size_t(s.out_channels)];
  for_each_product(s, [&](size_t at_x, size_t at_w, size_t at_y) { y[at_y] += x[at_x] * w[at_w]; });
  return y;
}

LinearGradients embed_gradients(const Array& x, const Array& w, const Array& dy,
                                const EmbedShape& s) {
  LinearGradients d{Array(x.size()), Array(w.size()), Array(size_t(s.out_channels))};
  for (size_t i = 0; i < dy.size(); ++i) d.bias[i % size_t(s.out_channels)] += dy[i];
  for_each_product(s, [&](size_t at_x, size_t at_w, size_t at_y) {
    d.x[at_x] += dy[at_y] * w[at_w];
    d.w[at_w] += dy[at_y] * x[at_x];
  });
  return d;
}

// ---- LayerNorm ----------------------------------------------------------------------------------

LayerNorm layer_norm(const Array& x, const Array& scale, const Array& shift, int rows,
                     int channels) {
  LayerNorm result{Array(x.size()), Array(size_t(rows)), Array(size_t(rows))};
  for (int r = 0; r < rows; ++r) {
    const double* const from = x.data() + size_t(r) * channels;
    double mean = 0, variance = 0;
    for (int c = 0; c < channels; ++c) mean += from[c] / channels;
    for (int c = 0; c < channels; ++c) variance += (from[c] - mean) * (from[c] - mean) / channels;
    const double factor = 1 / std::sqrt(variance + 1e-5);
    result.mean[r] = mean, result.inverse_deviation[r] = factor;
    for (int c = 0; c < channels; ++c)
      result.y[size_t(r) * channels + c] = (from[c] - mean) * factor * scale[c] + shift[c];
  }
  return result;
}

LayerNormGradients layer_norm_gradients(const Array& x, const Array& scale, const Array& dy,
                                        int rows, int channels) {
  const LayerNorm forward =
      layer_norm(x, Array(size_t(channels), 1), Array(size_t(channels)), rows, channels);
  LayerNormGradients d{Array(x.size()), Array(size_t(channels)), Array(size_t(channels))};
  for (int r = 0; r < rows; ++r) {
    const size_t first = size_t(r) * channels;
    double mean_g = 0, mean_gn = 0;
    for (int c = 0; c < channels; ++c) {
      const double n = forward.y[first + c], g = dy[first + c] * scale[c];
      mean_g += g / channels, mean_gn += g * n / channels;
      d.scale[c] += dy[first + c] * n, d.shift[c] += dy[first + c];
    }
    for (int c = 0; c < channels; ++c)
      d.x[first + c] = forward.inverse_deviation[r] *
                       (dy[first + c] * scale[c] - mean_g - forward.y[first + c] * mean_gn);
  }
  return d;
}

// ---- Attention ----------------------------------------------------------------------------------

namespace {
// Calls use(log-sum-exp, weights, first number of each query, of each key, number of the row) for
// each query of each head; rows of q and k are `pitch` apart.
template <class Use>
void for_each_row(const Array& q, const Array& k, const CrossShape& s, const Use& use) {
  const size_t pitch = size_t(s.heads) * s.head_dim;
  Array weights(size_t(s.keys));
  for (int b = 0; b < s.batch; ++b)
    for (int h = 0; h < s.heads; ++h)
      for (int i = 0; i < s.queries; ++i) {
        const size_t query = (size_t(b) * s.queries + i) * pitch + size_t(h) * s.head_dim;
        const size_t first_key = size_t(b) * s.keys * pitch + size_t(h) * s.head_dim;
        for (int j = 0; j < s.keys; ++j) {
          double score = 0;
          for (int d = 0; d < s.head_dim; ++d) score += q[query + d] * k[first_key + j * pitch + d];
          weights[j] = score * double(s.scale);
        }
        const double largest = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (const double score : weights) sum += std::exp(score - largest);
        const double log_sum_exp = largest + std::log(sum);
        for (double& weight : weights) weight = std::exp(weight - log_sum_exp);
        use(log_sum_exp, weights, query, first_key,
            (size_t(b) * s.heads + h) * size_t(s.queries) + i);
      }
}
}  // namespace

Attention attention(const Array& q, const Array& k, const Array& v, const CrossShape& s) {
  const size_t pitch = size_t(s.heads) * s.head_dim;
  Attention result{Array(q.size()), Array(size_t(s.batch) * s.heads * s.queries)};
  for_each_row(q, k, s,
               [&](double log_sum_exp, const Array& weights, size_t query, size_t key, size_t row) {
                 result.log_sum_exp[row] = log_sum_exp;
                 for (int j = 0; j < s.keys; ++j)
                   for (int d = 0; d < s.head_dim; ++d)
                     result.o[query + d] += weights[j] * v[key + j * pitch + d];
               });
  return result;
}

AttentionGradients attention_gradients(const Array& q, const Array& k, const Array& v,
                                       const Array& d_o, const CrossShape& s) {
  const size_t pitch = size_t(s.heads) * s.head_dim;
  AttentionGradients d{Array(q.size()), Array(k.size()), Array(v.size()), {}};
  AttentionGradients sizes = d;
  for_each_row(q, k, s, [&](double, const Array& weights, size_t query, size_t key, size_t) {
    Array dp(weights.size());
    double dot = 0;
    for (int j = 0; j < s.keys; ++j) {
      for (int c = 0; c < s.head_dim; ++c) dp[j] += d_o[query + c] * v[key + j * pitch + c];
      dot += weights[j] * dp[j];
    }
    for (int j = 0; j < s.keys; ++j) {
      const double ds = weights[j] * (dp[j] - dot) * double(s.scale);
      for (int c = 0; c < s.head_dim; ++c) {
        const size_t at_query = query + c, at_key = key + j * pitch + c;
        d.v[at_key] += weights[j] * d_o[at_query];
        d.k[at_key] += ds * q[at_query];
        d.q[at_query] += ds * k[at_key];
        sizes.v[at_key] += std::abs(weights[j] * d_o[at_query]);
        sizes.k[at_key] += std::abs(ds * q[at_query]);
        sizes.q[at_query] += std::abs(ds * k[at_key]);
      }
    }
  });
  const auto largest = [](const Array& array) {
    return *std::max_element(array.begin(), array.end());
  };
  d.largest_terms[0] = largest(sizes.q);
  d.largest_terms[1] = largest(sizes.k);
  d.largest_terms[2] = largest(sizes.v);
  return d;
}

// ---- Loss and optimizer -------------------------------------------------------------------------

CrossEntropy cross_entropy(const Array& logits, const std::vector<int>& labels, int classes,
                           double smoothing) {
  CrossEntropy result{0, Array(logits.size())};
  const size_t batch = labels.size();
  for (size_t r = 0; r < batch; ++r) {
    const double* const from = logits.data() + r * classes;
    const double largest = *std::max_element(from, from + classes);
    double sum = 0;
    for (int c = 0; c < classes; ++c) sum += std::exp(from[c] - largest);
    for (int c = 0; c < classes; ++c) {
      const double target = smoothing / classes + (c == labels[r] ? 1 - smoothing : 0);
      const double log_p = from[c] - largest - std::log(sum);
      if (target > 0) result.loss -= target * log_p / double(batch);
      result.dlogits[r * classes + c] = (std::exp(log_p) - target) / double(batch);
    }
  }
  return result;
}

void adamw(Array& parameters, const Array& gradients, Array& m, Array& v, int step,
           const AdamW& options) {
  const double rate = double(options.rate), beta1 = double(options.beta1),
               beta2 = double(options.beta2);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double g = gradients[i];
    parameters[i] *= 1 - rate * double(options.decay);
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    const double unbiased_m = m[i] / (1 - std::pow(beta1, step));
    const double unbiased_v = v[i] / (1 - std::pow(beta2, step));
    parameters[i] -= rate * unbiased_m / (std::sqrt(unbiased_v) + double(options.eps));
  }
}

// ---- The convolutional projection, with BatchNorm -----------------------------------------------

namespace {

// Calls use(sample, row, column of the output, its place in [batch, tokens, channels]).
template <class Use>
void for_each_position(const ProjectionSizes& sizes, int which, const Use& use) {
  for (int n = 0; n < sizes.batch; ++n)
    for (int r = 0; r < sizes.rows(which); ++r)
      for (int c = 0; c < sizes.columns(which); ++c)
        use(n, r, c,
            (size_t(n) * sizes.tokens(which) + sizes.class_tokens + r * sizes.columns(which) + c) *
                sizes.channels);
}
// Calls use(tap, place in x) for the taps of that output that lie in the map.
template <class Use>
void for_each_tap(const ProjectionSizes& sizes, int which, int n, int r, int c, const Use& use) {
  for (int t = 0; t < 9; ++t) {
    const int row = r * sizes.stride(which) + t / 3 - 1,
              column = c * sizes.stride(which) + t % 3 - 1;
    if (row < 0 || row >= sizes.height || column < 0 || column >= sizes.width) continue;
    use(t, (size_t(n) * sizes.tokens(0) + sizes.class_tokens + row * sizes.width + column) *
               sizes.channels);
  }
}

}  // namespace

ProjectionOutputs project(const ProjectionInputs& in, const ProjectionSizes& sizes) {
  ProjectionOutputs out;
  const size_t C = size_t(sizes.channels);
  for (int which = 0; which < 3; ++which) {
    Array& map = out.maps[which];
    map.assign(size_t(sizes.batch) * sizes.tokens(which) * C, 0.0);
    for (int n = 0; n < sizes.batch && sizes.class_tokens; ++n)
      for (size_t i = 0; i < C; ++i)
        map[size_t(n) * sizes.tokens(which) * C + i] = in.x[size_t(n) * sizes.tokens(0) * C + i];
    Array mean(C), variance(C), factor(C), offset(C);
    const double count = sizes.positions(which);
    for_each_position(sizes, which, [&](int n, int r, int c, size_t at) {
      for_each_tap(sizes, which, n, r, c, [&](int t, size_t from) {
        for (size_t i = 0; i < C; ++i) map[at + i] += in.w[which][i * 9 + t] * in.x[from + i];
      });
      for (size_t i = 0; i < C; ++i) mean[i] += map[at + i] / count;
    });
    for_each_position(sizes, which, [&](int, int, int, size_t at) {
      for (size_t i = 0; i < C; ++i)
        variance[i] += (map[at + i] - mean[i]) * (map[at + i] - mean[i]) / count;
    });
    for (size_t i = 0; i < C; ++i) {
      factor[i] = in.scale[which][i] / std::sqrt(variance[i] + kBatchNormEpsilon);
      offset[i] = in.shift[which][i] - mean[i] * factor[i];
    }
    out.mean[which] = mean;
    out.variance[which] = variance;
    out.factor[which] = factor;
    out.offset[which] = offset;
  }
  return out;
}

ProjectionDerivatives project_back(const ProjectionInputs& in, const ProjectionOutputs& out,
                                   const std::array<Array, 3>& dy, const ProjectionSizes& sizes) {
  ProjectionDerivatives back;
  const size_t C = size_t(sizes.channels);
  back.dx.assign(in.x.size(), 0.0);
  for (int which = 0; which < 3; ++which) {
    const double count = sizes.positions(which);
    Array dscale(C), dshift(C), dw(C * 9), dmap = dy[which];
    const auto normalized = [&](size_t at, size_t i) {
      return (out.maps[which][at + i] - out.mean[which][i]) /
             std::sqrt(out.variance[which][i] + kBatchNormEpsilon);
    };
    for_each_position(sizes, which, [&](int, int, int, size_t at) {
      for (size_t i = 0; i < C; ++i) {
        dshift[i] += dy[which][at + i];
        dscale[i] += dy[which][at + i] * normalized(at, i);
      }
    });
    for_each_position(sizes, which, [&](int n, int r, int c, size_t at) {
      for (size_t i = 0; i < C; ++i)
        dmap[at + i] = out.factor[which][i] * (dy[which][at + i] - dshift[i] / count -
                                               normalized(at, i) * dscale[i] / count);
      for_each_tap(sizes, which, n, r, c, [&](int t, size_t from) {
        for (size_t i = 0; i < C; ++i) {
          dw[i * 9 + t] += dmap[at + i] * in.x[from + i];
          back.dx[from + i] += dmap[at + i] * in.w[which][i * 9 + t];
        }
      });
    });
    for (int n = 0; n < sizes.batch && sizes.class_tokens; ++n)
      for (size_t i = 0; i < C; ++i)
        back.dx[size_t(n) * sizes.tokens(0) * C + i] +=
            dy[which][size_t(n) * sizes.tokens(which) * C + i];
    back.dscale[which] = dscale;
    back.dshift[which] = dshift;
    back.dw[which] = dw;
    back.dmaps[which] = dmap;
  }
  return back;
}

}  // namespace cvt::reference
