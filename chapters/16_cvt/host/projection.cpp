// Problems of the convolutional projection and their tolerances.
#include "projection.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/compare.h"
#include "../../../common/lab/random.h"

namespace lab {
namespace {

double stored(double value, Storage storage) {
  return storage == Storage::kFp16 ? double(__half2float(__float2half(float(value))))
                                   : double(float(value));
}

}  // namespace

ProjectionProblem random_projection(const cvt::ProjectionShape& shape, Storage storage,
                                    uint64_t seed, double mean) {
  ProjectionProblem problem;
  problem.shape = shape;
  problem.storage = storage;
  const size_t C = size_t(shape.channels);
  uint64_t stream = seed * 64;
  const auto numbers = [&](size_t count, const auto& make) {
    std::vector<double> values(count);
    ++stream;
    for (size_t i = 0; i < count; ++i) values[i] = make(i, normal(stream, i));
    return values;
  };
  const auto as_single = [](double value) { return double(float(value)); };
  problem.in.x = numbers(size_t(shape.batch) * shape.queries() * C, [&](size_t i, double z) {
    const double channel = double(i % C % 7);
    return stored(mean + 0.3 * (channel - 3) + (0.5 + 0.25 * channel) * z, storage);
  });
  const double small = mean == 0 ? 0.4 : 0.1 / std::abs(mean);
  for (int which = 0; which < 3; ++which) {
    problem.in.w[which] = numbers(C * 9, [&](size_t i, double z) {
      return as_single(i % 9 == 4 ? 0.7 + 0.1 * z : small * z);
    });
    problem.in.scale[which] = numbers(C, [&](size_t, double z) { return as_single(1 + 0.2 * z); });
    problem.in.shift[which] = numbers(C, [&](size_t, double z) { return as_single(0.5 * z); });
    const int tokens = which == 0 ? shape.queries() : shape.keys();
    problem.dy[which] = numbers(size_t(shape.batch) * tokens * C, [&](size_t i, double z) {
      return stored(0.3 * double(i % C % 3) + z, storage);
    });
    problem.running_mean[which] = numbers(C, [&](size_t, double z) { return as_single(z); });
    problem.running_variance[which] =
        numbers(C, [&](size_t, double z) { return as_single(std::abs(z) + 0.1); });
  }
  return problem;
}

ExpectedProjection expected_projection(const ProjectionProblem& problem, OfStored of_stored) {
  ExpectedProjection e;
  const cvt::reference::ProjectionSizes sizes = problem.sizes();
  e.out = cvt::reference::project(problem.in, sizes);
  e.back = cvt::reference::project_back(problem.in, e.out, problem.dy, sizes);
  // u: roundings of fp32. A sum's terms meet at most that often: 64 rows and columns of a thread,
  // 32 threads, 64 tiles of a warp, 16 warps. s: what storing a number adds.
  constexpr double u = 0x1p-24, kMeetings = 176;
  const double s = problem.storage == Storage::kFp16 ? 0x1p-11 : u;
  // Over all numbers errors go up and down: half of what one may be off by is allowed.
  const auto near = [](double atol, double rtol, const std::vector<double>& expected) {
    const double size = std::max(l2_norm(expected), 1e-30);
    return Tolerance{atol, rtol, rtol + 0.5 * atol * std::sqrt(double(expected.size())) / size};
  };
  double dx_error = 0;
  for (int which = 0; which < 3; ++which) {
    const size_t C = size_t(sizes.channels);
    const double count = sizes.positions(which);
    ExpectedProjection::OfMap& n = e.near[which];
    const double map_size = std::max(max_abs(e.out.maps[which]), 1e-3);
    const double map_error = 10 * u * map_size + (of_stored.maps ? s * map_size : 0);
    double least_deviation = 1e30, factor_size = max_abs(e.out.factor[which]);
    e.inverse_deviation[which].resize(C);
    e.running_mean[which].resize(C);
    e.running_variance[which].resize(C);
    for (size_t i = 0; i < C; ++i) {
      const double variance = e.out.variance[which][i] + cvt::reference::kBatchNormEpsilon;
      e.inverse_deviation[which][i] = 1 / std::sqrt(variance);
      least_deviation = std::min(least_deviation, std::sqrt(variance));
      e.running_mean[which][i] = 0.9 * problem.running_mean[which][i] + 0.1 * e.out.mean[which][i];
      e.running_variance[which][i] = 0.9 * problem.running_variance[which][i] +
                                     0.1 * e.out.variance[which][i] * count / (count - 1);
    }
    // A deviation's relative error, and that of a mean, which may be off by all that the maps are.
    const double relative = kMeetings * u + 2 * map_error / least_deviation;
    const double mean_error = map_error + kMeetings * u * map_size;
    n.map = near(map_error + 0x1p-25, 2 * s, e.out.maps[which]);
    n.mean = near(mean_error, 4 * u, e.out.mean[which]);
    n.inverse_deviation = near(0, relative, e.inverse_deviation[which]);
    n.factor = near(0, relative, e.out.factor[which]);
    n.offset = near(
        max_abs(problem.in.shift[which]) * u + factor_size * (mean_error + relative * map_size),
        4 * u, e.out.offset[which]);
    n.running_mean = near(mean_error, 4 * u, e.running_mean[which]);
    n.running_variance = near(2 * relative * max_abs(e.out.variance[which]), 4 * u + 2 * relative,
                              e.running_variance[which]);

    // Back. n is off by what its map is stored with, at random from position to position, and by
    // what mean and deviation are off, everywhere alike. Of the first kind sums have 5 times the
    // root.
    const double stored_error = (s * map_size + map_error) / least_deviation,
                 alike_error = mean_error / least_deviation + relative, root = std::sqrt(count);
    const double dy_norm = l2_norm(problem.dy[which]), dy_size = max_abs(problem.dy[which]);
    double sum_size = 0;
    for (const double v : problem.dy[which]) sum_size += std::abs(v);
    sum_size = 2 * sum_size / double(C) + dy_size;  // a channel's
    const double dy_rms = dy_norm / std::sqrt(double(problem.dy[which].size()));
    const double dshift_error = sum_size * kMeetings * u;
    // A mean that is off adds its distance times the sum of dy; a deviation, its share of the sum.
    const double dscale_error = 5 * root * dy_rms * stored_error +
                                mean_error / least_deviation * max_abs(e.back.dshift[which]) +
                                relative * max_abs(e.back.dscale[which]) + 3 * dshift_error;
    n.dscale = near(dscale_error, 4 * u, e.back.dscale[which]);
    n.dshift = near(dshift_error, 4 * u, e.back.dshift[which]);
    const double dmap_size = max_abs(e.back.dmaps[which]);
    const double dscale_size = max_abs(e.back.dscale[which]);
    const double at_random = factor_size * (4 * u * dy_size + stored_error * dscale_size / count) +
                             4 * u * dmap_size + (of_stored.gradients ? s * dmap_size : 0);
    const double alike =
        factor_size * (dshift_error + alike_error * dscale_size + dscale_error) / count;
    // (x_norm is a channel's, of which the largest is at most 2.5 times the mean; n's is the root.)
    const double x_size = max_abs(problem.in.x),
                 x_norm = 2.5 * l2_norm(problem.in.x) / std::sqrt(double(C));
    n.dw = near(5 * root * x_size * at_random + root * x_norm * alike +
                    kMeetings * u * x_size * dmap_size * root,
                4 * u + relative, e.back.dw[which]);
    double w_sum = 0;
    for (size_t i = 0; i < C; ++i) {
      double sum = 0;
      for (int t = 0; t < 9; ++t) sum += std::abs(problem.in.w[which][i * 9 + t]);
      w_sum = std::max(w_sum, sum);
    }
    dx_error += w_sum * (at_random + 4 * alike + (relative + 10 * u) * dmap_size);
    // (Twice what the shares of q, k and v come to at most is stored before dx is whole.)
    if (of_stored.gradients) dx_error += 2 * s * (w_sum * dmap_size + dy_size);
  }
  e.dx = near(dx_error, 2 * s, e.back.dx);
  return e;
}

namespace {

// Keeps the first comparison that fails, otherwise the very first one.
struct Worst {
  NamedComparison result;
  void take(const std::string& name, const std::vector<double>& got,
            const std::vector<double>& expected, const Tolerance& tolerance,
            const std::vector<int64_t>& dims) {
    const Comparison c =
        compare(std::span<const double>(got), std::span<const double>(expected), tolerance, dims);
    if (result.first.empty() || (result.second.pass && !c.pass)) result = {name, c};
  }
};
const char* const kNames[3] = {"q", "k", "v"};

}  // namespace

NamedComparison compare_forward(const ProjectionResults& got, const ExpectedProjection& expected,
                                const cvt::ProjectionShape& shape) {
  Worst worst;
  const int64_t C = shape.channels;
  for (int i = 0; i < 3; ++i) {
    const std::string of = std::string(" of ") + kNames[i];
    const ExpectedProjection::OfMap& near = expected.near[i];
    worst.take("map" + of, got.maps[i], expected.out.maps[i], near.map,
               {shape.batch, i == 0 ? shape.queries() : shape.keys(), C});
    worst.take("mean" + of, got.mean[i], expected.out.mean[i], near.mean, {C});
    worst.take("inverse deviation" + of, got.inverse_deviation[i], expected.inverse_deviation[i],
               near.inverse_deviation, {C});
    worst.take("factor" + of, got.factor[i], expected.out.factor[i], near.factor, {C});
    worst.take("offset" + of, got.offset[i], expected.out.offset[i], near.offset, {C});
    if (got.running_mean[i].empty()) continue;
    worst.take("running mean" + of, got.running_mean[i], expected.running_mean[i],
               near.running_mean, {C});
    worst.take("running variance" + of, got.running_variance[i], expected.running_variance[i],
               near.running_variance, {C});
  }
  return worst.result;
}

NamedComparison compare_backward(const ProjectionResults& got, const ExpectedProjection& expected,
                                 const cvt::ProjectionShape& shape) {
  Worst worst;
  const int64_t C = shape.channels;
  worst.take("dx", got.dx, expected.back.dx, expected.dx, {shape.batch, shape.queries(), C});
  for (int i = 0; i < 3; ++i) {
    const std::string of = std::string(" of ") + kNames[i];
    const ExpectedProjection::OfMap& near = expected.near[i];
    worst.take("dscale" + of, got.dscale[i], expected.back.dscale[i], near.dscale, {C});
    worst.take("dshift" + of, got.dshift[i], expected.back.dshift[i], near.dshift, {C});
    worst.take("dw" + of, got.dw[i], expected.back.dw[i], near.dw, {C, 3, 3});
  }
  return worst.result;
}

// ---- Bytes --------------------------------------------------------------------------------------

namespace {
double numbers(const cvt::ProjectionShape& shape, double of_queries, double of_keys) {
  return double(shape.batch) * shape.channels *
         (of_queries * shape.queries() + of_keys * shape.keys());
}
double bytes_of(Storage storage) { return storage == Storage::kFp16 ? 2 : 4; }
}  // namespace

double forward_bytes(const cvt::ProjectionShape& shape, Storage storage) {
  return bytes_of(storage) * numbers(shape, 2, 2);
}
double backward_bytes(const cvt::ProjectionShape& shape, Storage storage) {
  return bytes_of(storage) * numbers(shape, 6, 8);
}
Cost forward_cost(const cvt::ProjectionShape& shape, Storage storage) {
  return {forward_bytes(shape, storage), 18 * numbers(shape, 1, 2)};
}
Cost backward_cost(const cvt::ProjectionShape& shape, Storage storage) {
  return {backward_bytes(shape, storage), 36 * numbers(shape, 1, 2)};
}

}  // namespace lab
