// The problem of exercise 16 in double precision, plain C++: tokens learn where they are from a
// depthwise 3x3 convolution over their map, and the gradients of that.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace position_encoding {

constexpr int kTaps = 9;  // taps of a channel's filter, row by row

// Each sample is a class token and then a map's tokens, row by row.
struct Problem {
  int batch, height, width, channels;
  std::vector<double> x, dy;  // [batch, 1 + height * width, channels]
  std::vector<double> w;      // [3, 3, channels]
  std::vector<double> bias;   // [channels]
  // A mistake to be recognized: beyond a row's end the next row begins.
  bool rows_go_on = false;

  int tokens() const { return 1 + height * width; }
  int64_t rows() const { return int64_t(batch) * tokens(); }
  // The row of a map's token in x, y, dx and dy; -1 outside the map.
  int64_t row(int b, int y, int x_) const {
    const int place = y * width + x_;
    const bool inside = rows_go_on ? place >= 0 && place < height * width
                                   : y >= 0 && y < height && x_ >= 0 && x_ < width;
    return inside ? int64_t(b) * tokens() + 1 + place : -1;
  }
};

// Visits each product of a tap and a token that there is: output row `to` gets w[tap] * x[from].
using Visit = std::function<void(int batch, int tap, int64_t to, int64_t from)>;
inline void each_product(const Problem& p, const Visit& visit) {
  for (int b = 0; b < p.batch; ++b)
    for (int y = 0; y < p.height; ++y)
      for (int x = 0; x < p.width; ++x)
        for (int tap = 0; tap < kTaps; ++tap) {
          const int64_t from = p.row(b, y + tap / 3 - 1, x + tap % 3 - 1);
          if (from >= 0) visit(b, tap, p.row(b, y, x), from);
        }
}

// y = x + convolution(x) + bias on maps, y = x on class tokens: [batch, tokens, channels].
inline std::vector<double> forward(const Problem& p) {
  std::vector<double> y = p.x;
  const int64_t channels = p.channels;
  for (int b = 0; b < p.batch; ++b)
    for (int token = 1; token < p.tokens(); ++token)
      for (int64_t c = 0; c < channels; ++c)
        y[size_t((int64_t(b) * p.tokens() + token) * channels + c)] += p.bias[size_t(c)];
  each_product(p, [&](int, int tap, int64_t to, int64_t from) {
    for (int64_t c = 0; c < channels; ++c)
      y[size_t(to * channels + c)] +=
          p.w[size_t(tap * channels + c)] * p.x[size_t(from * channels + c)];
  });
  return y;
}

// The sum of dy · y, of which gradients() are the gradients.
inline double loss(const Problem& p) {
  const std::vector<double> y = forward(p);
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += p.dy[i] * y[i];
  return sum;
}

// dx, dw and dbias, one behind the other: [batch * tokens + 9 + 1, channels].
inline std::vector<double> gradients(const Problem& p) {
  const int64_t channels = p.channels, dw = p.rows(), dbias = p.rows() + kTaps;
  std::vector<double> all = p.dy;  // what is added to x comes back as it is
  all.resize(size_t((dbias + 1) * channels));
  each_product(p, [&](int, int tap, int64_t to, int64_t from) {
    for (int64_t c = 0; c < channels; ++c) {
      const double dy = p.dy[size_t(to * channels + c)];
      all[size_t(from * channels + c)] += p.w[size_t(tap * channels + c)] * dy;
      all[size_t((dw + tap) * channels + c)] += p.x[size_t(from * channels + c)] * dy;
    }
  });
  for (int b = 0; b < p.batch; ++b)
    for (int token = 1; token < p.tokens(); ++token)
      for (int64_t c = 0; c < channels; ++c)
        all[size_t(dbias * channels + c)] +=
            p.dy[size_t((int64_t(b) * p.tokens() + token) * channels + c)];
  return all;
}

}  // namespace position_encoding
