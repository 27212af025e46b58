#include "reference.h"

#include <cmath>

namespace reference {
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
    Doubles& map = out.maps[which];
    map.assign(size_t(sizes.batch) * sizes.tokens(which) * C, 0.0);
    for (int n = 0; n < sizes.batch && sizes.class_tokens; ++n)
      for (size_t i = 0; i < C; ++i)
        map[size_t(n) * sizes.tokens(which) * C + i] = in.x[size_t(n) * sizes.tokens(0) * C + i];
    Doubles mean(C), variance(C), factor(C), offset(C);
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
                                   const std::array<Doubles, 3>& dy, const ProjectionSizes& sizes) {
  ProjectionDerivatives back;
  const size_t C = size_t(sizes.channels);
  back.dx.assign(in.x.size(), 0.0);
  for (int which = 0; which < 3; ++which) {
    const double count = sizes.positions(which);
    Doubles dscale(C), dshift(C), dw(C * 9), dmap = dy[which];
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

}  // namespace reference
