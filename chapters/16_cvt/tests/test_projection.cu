// Tests of the convolutional projection: the reference against central differences, each step
// against the reference, counters by formula, bits, checks.
#include <doctest/doctest.h>

#include <cmath>

#include "../../../common/lab/device.h"
#include "../../../common/lab/random.h"
#include "../../../common/testing/checks.h"
#include "../conv_projection/parts/elements.cuh"
#include "../host/projection_arrays.h"

using namespace lab::testing;
using namespace lab;
using cvt::ProjectionShape;

namespace {

struct Outcome {
  NamedComparison forward, backward;
  ProjectionResults results;
};

// A forward step, then the backward step of that number on what it left.
template <class T>
Outcome run(size_t step, const ProjectionProblem& problem, const ExpectedProjection& expected,
            bool running = true) {
  ProjectionArrays<T> arrays(problem, running);
  conv_projection::forward_steps<T>()[step].run(arrays.forward(), problem.shape, nullptr);
  conv_projection::backward_steps<T>()[step].run(arrays.backward(), problem.shape, nullptr);
  lab::check(cudaDeviceSynchronize());
  Outcome outcome;
  outcome.results = arrays.download();
  outcome.forward = compare_forward(outcome.results, expected, problem.shape);
  outcome.backward = compare_backward(outcome.results, expected, problem.shape);
  return outcome;
}

std::string describe(const ProjectionShape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.height) + " x " +
         std::to_string(s.width) + " x " + std::to_string(s.channels) + ", class tokens " +
         std::to_string(s.class_tokens);
}

constexpr size_t kNaive = 0, kFused = 1;
template <class T>
void check_problem(const ProjectionProblem& problem) {
  CAPTURE(describe(problem.shape));
  const ProjectionShape& s = problem.shape;
  const bool running = s.batch * s.out_height() * s.out_width() > 1;
  for (const size_t step : {kNaive, kFused}) {
    const ExpectedProjection expected =
        expected_projection(problem, {.maps = step == kNaive, .gradients = step == kNaive});
    CAPTURE(conv_projection::forward_steps<T>()[step].name);
    const Outcome outcome = run<T>(step, problem, expected, running);
    CHECK_MESSAGE(outcome.forward.second.pass,
                  outcome.forward.first << ": " << outcome.forward.second.describe());
    CHECK_MESSAGE(outcome.backward.second.pass,
                  outcome.backward.first << ": " << outcome.backward.second.describe());
  }
}

void check_shape(const ProjectionShape& shape, uint64_t seed, double mean = 0) {
  check_problem<float>(random_projection(shape, Storage::kFp32, seed, mean));
  if (mean == 0) check_problem<half>(random_projection(shape, Storage::kFp16, seed));
}

// Ragged in all that is tiled: bands, strips, columns of a thread, groups of channels.
const std::vector<ProjectionShape> kShapes = {
    {2, 1, 1, 1, 0},    {3, 1, 1, 3, 1},   {3, 1, 7, 8, 0},    {1, 5, 3, 33, 1},
    {3, 5, 3, 64, 0},   {1, 13, 13, 3, 1}, {3, 13, 13, 33, 0}, {1, 14, 14, 200, 1},
    {1, 14, 14, 64, 0}, {1, 7, 61, 8, 1},  {1, 61, 30, 8, 0},  {1, 2, 17, 1, 1},
    {3, 28, 29, 33, 1},
};

}  // namespace

TEST_CASE("projection reference: gradients are central differences") {
  for (const ProjectionShape shape :
       {ProjectionShape{2, 3, 4, 2, 1}, ProjectionShape{3, 1, 1, 1, 0},
        ProjectionShape{1, 5, 2, 1, 0}}) {
    ProjectionProblem problem = random_projection(shape, Storage::kFp32, 5);
    const cvt::reference::ProjectionSizes sizes = problem.sizes();
    const auto loss = [&] {
      const cvt::reference::ProjectionOutputs out = cvt::reference::project(problem.in, sizes);
      double sum = 0;
      const size_t C = size_t(shape.channels);
      for (int i = 0; i < 3; ++i)
        for (size_t at = 0; at < out.maps[i].size(); ++at) {
          const bool token = at / C % size_t(sizes.tokens(i)) < size_t(shape.class_tokens);
          sum += problem.dy[i][at] *
                 (token ? out.maps[i][at]
                        : out.maps[i][at] * out.factor[i][at % C] + out.offset[i][at % C]);
        }
      return sum;
    };
    const cvt::reference::ProjectionDerivatives back = cvt::reference::project_back(
        problem.in, cvt::reference::project(problem.in, sizes), problem.dy, sizes);
    const auto check = [&](std::vector<double>& values, const std::vector<double>& gradient) {
      for (size_t i = 0; i < values.size(); ++i) {
        const double middle = values[i], step = 1e-5;
        values[i] = middle + step;
        const double above = loss();
        values[i] = middle - step;
        const double slope = (above - loss()) / (2 * step);
        values[i] = middle;
        CHECK(std::abs(slope - gradient[i]) <= 1e-6 * (1 + std::abs(gradient[i])));
      }
    };
    check(problem.in.x, back.dx);
    for (int i = 0; i < 3; ++i) {
      check(problem.in.w[i], back.dw[i]);
      check(problem.in.scale[i], back.dscale[i]);
      check(problem.in.shift[i], back.dshift[i]);
    }
  }
}

TEST_CASE("projection: right on ragged shapes") {
  if (skipped("projection: shapes")) return;
  for (size_t i = 0; i < kShapes.size(); ++i) check_shape(kShapes[i], 10 + i);
}

namespace {

// A copy of an array that begins one number behind a multiple of 16 bytes.
template <class T>
class Moved {
 public:
  explicit Moved(lab::DeviceArray<T>& array) : array_(array), copy_(array.size() + 1, "moved") {
    lab::check(cudaMemcpy(data(), array.data(), bytes(), cudaMemcpyDefault));
  }
  T* data() { return copy_.data() + 1; }
  void bring_back() { lab::check(cudaMemcpy(array_.data(), data(), bytes(), cudaMemcpyDefault)); }

 private:
  size_t bytes() const { return array_.size() * sizeof(T); }
  lab::DeviceArray<T>& array_;
  lab::DeviceArray<T> copy_;
};

template <class T>
void check_moved(const ProjectionProblem& problem) {
  const ExpectedProjection expected = expected_projection(problem, {});
  const auto& forward = conv_projection::forward_steps<T>()[kFused];
  const auto& backward = conv_projection::backward_steps<T>()[kFused];
  for (int number = 0; number < 8; ++number) {  // x, three maps, three gradients of theirs, dx
    CAPTURE(number);
    ProjectionArrays<T> arrays(problem);
    lab::DeviceArray<T>& moved = number == 0   ? arrays.x
                                 : number <= 3 ? *arrays.map[number - 1]
                                 : number <= 6 ? *arrays.dmap[number - 4]
                                               : arrays.dx;
    if (number <= 3) {
      Moved<T> there(moved);
      conv_projection::ForwardArguments<T> a = arrays.forward();
      (number == 0 ? const_cast<T*&>(a.x) : a.maps[number - 1]) = there.data();
      forward.run(a, problem.shape, nullptr);
      there.bring_back();
    } else {
      forward.run(arrays.forward(), problem.shape, nullptr);
    }
    Moved<T> there(moved);
    conv_projection::BackwardArguments<T> a = arrays.backward();
    if (number == 7)
      a.dx = there.data();
    else
      (number == 0 ? a.x : number <= 3 ? a.maps[number - 1] : a.dmaps[number - 4]) = there.data();
    backward.run(a, problem.shape, nullptr);
    if (number == 7) there.bring_back();
    lab::check(cudaDeviceSynchronize());
    const ProjectionResults results = arrays.download();
    const NamedComparison there_and = compare_forward(results, expected, problem.shape),
                          back = compare_backward(results, expected, problem.shape);
    CHECK_MESSAGE(there_and.second.pass, there_and.first << ": " << there_and.second.describe());
    CHECK_MESSAGE(back.second.pass, back.first << ": " << back.second.describe());
  }
}

}  // namespace

TEST_CASE("projection: right where one array does not begin at a multiple of 16 bytes") {
  if (skipped("projection: moved arrays")) return;
  check_moved<half>(random_projection({2, 6, 5, 16, 1}, Storage::kFp16, 21));
  check_moved<float>(random_projection({2, 6, 5, 16, 1}, Storage::kFp32, 22));
}

TEST_CASE("projection: each step replayed from a graph") {
  if (skipped("projection: graph")) return;
  const ProjectionProblem problem = random_projection({2, 6, 5, 24, 1}, Storage::kFp32, 23);
  for (const size_t step : {kNaive, kFused}) {
    const ExpectedProjection expected =
        expected_projection(problem, {.maps = step == kNaive, .gradients = step == kNaive});
    ProjectionArrays<float> arrays(problem);
    replay_once([&](cudaStream_t stream) {
      conv_projection::forward_steps<float>()[step].run(arrays.forward(), problem.shape, stream);
    });
    replay_once([&](cudaStream_t stream) {
      conv_projection::backward_steps<float>()[step].run(arrays.backward(), problem.shape, stream);
    });
    const ProjectionResults results = arrays.download();
    const NamedComparison there = compare_forward(results, expected, problem.shape),
                          back = compare_backward(results, expected, problem.shape);
    CHECK_MESSAGE(there.second.pass, there.first << ": " << there.second.describe());
    CHECK_MESSAGE(back.second.pass, back.first << ": " << back.second.describe());
  }
}

TEST_CASE("projection: right where a channel's mean is a thousand deviations") {
  if (skipped("projection: large means")) return;
  check_shape({2, 9, 11, 8, 1}, 3, 1000);
  check_shape({1, 6, 5, 3, 0}, 4, -1000);
}

TEST_CASE(
    "projection: a single position has no variance and no gradients but those of its class token") {
  if (skipped("projection: one position")) return;
  const ProjectionProblem problem = random_projection({1, 1, 1, 3, 1}, Storage::kFp32, 6);
  const ExpectedProjection expected = expected_projection(problem);
  const Outcome outcome = run<float>(kFused, problem, expected, false);
  CHECK_MESSAGE(outcome.forward.second.pass, outcome.forward.first);
  const double near_zero =
      16 * 0x1p-24 / std::sqrt(1e-5);  // roundings of dy times BatchNorm's factor
  for (int i = 0; i < 3; ++i) {
    CHECK(outcome.results.mean[i][0] == outcome.results.maps[i][3]);
    for (const double v : outcome.results.dw[i]) CHECK(std::abs(v) <= near_zero);
    CHECK(outcome.results.dscale[i] == std::vector<double>(3));
  }
  for (size_t c = 0; c < 3; ++c) {
    CHECK(outcome.results.dx[c] ==
          doctest::Approx(problem.dy[0][c] + problem.dy[1][c] + problem.dy[2][c]));
    CHECK(std::abs(outcome.results.dx[3 + c]) <= near_zero);
  }
}

TEST_CASE("checked projection: without a finding") {
  if (rerun_with_checks("checked projection*")) return;
  const int findings = lab::vgpu::findings();
  for (const ProjectionShape& shape :
       {ProjectionShape{3, 5, 3, 33, 1}, ProjectionShape{1, 30, 29, 8, 0},
        ProjectionShape{1, 14, 14, 72, 1}})
    check_shape(shape, 7);
  CHECK(lab::vgpu::findings() == findings);
}

// ---- Bits and bytes -----------------------------------------------------------------------------

TEST_CASE("projection: the same bits twice") {
  if (skipped("projection: bits")) return;
  const ProjectionProblem problem = random_projection({3, 17, 30, 40, 1}, Storage::kFp32, 11);
  const ExpectedProjection expected = expected_projection(problem);
  const auto numbers = [&] {
    const ProjectionResults r = run<float>(kFused, problem, expected).results;
    std::vector<double> all = r.dx;
    for (int i = 0; i < 3; ++i)
      for (const std::vector<double>* array :
           {&r.maps[i], &r.mean[i], &r.inverse_deviation[i], &r.running_variance[i], &r.dw[i],
            &r.dscale[i], &r.dshift[i]})
        all.insert(all.end(), array->begin(), array->end());
    return all;
  };
  CHECK(numbers() == numbers());
}

namespace {

// Numbers of a map that lie in the tiles of one sample, each with so many rows and columns around
// it that its windows have them; stride 2: of k and v.
double in_windows(const ProjectionShape& shape, const conv_projection::Tiling& t, int which,
                  int before, int behind) {
  const int stride = which == cvt::kQuery ? 1 : 2;
  const int rows = which == cvt::kQuery ? shape.height : shape.out_height();
  const int columns = which == cvt::kQuery ? shape.width : shape.out_width();
  const auto length = [&](int begin, int tile, int all, int map) {
    const int first = begin / stride - before,
              end = stride == 1 ? std::min(begin + tile, all) + behind
                                : (std::min(begin + tile, all) + (behind ? 2 : 1)) / 2;
    return double(std::min(end, map) - std::max(first, 0));
  };
  double sum = 0;
  for (int band = 0; band < t.bands; ++band)
    for (int strip = 0; strip < t.strips; ++strip)
      sum += length(band * t.rows, t.rows, shape.height, rows) *
             length(strip * t.columns, t.columns, shape.width, columns);
  return sum;
}

struct Traffic {
  double x, map[3], dmap[3], partials;  // numbers read; partials: bytes written
};
Traffic forward_traffic(const ProjectionShape& shape) {
  const conv_projection::Tiling t = conv_projection::forward_tiling(shape);
  const double columns = double(shape.batch) * shape.channels;
  return {columns * (in_windows(shape, t, cvt::kQuery, 1, 1) + shape.class_tokens),
          {},
          {},
          columns * t.of_sample() * 3 * 8};
}
Traffic spread_traffic(const ProjectionShape& shape) {
  const conv_projection::Tiling t = conv_projection::backward_tiling(shape);
  const double columns = double(shape.batch) * shape.channels;
  Traffic traffic{columns * shape.height * shape.width, {}, {}, columns * t.of_sample() * 27 * 4};
  for (int i = 0; i < 3; ++i) {
    const double windows = in_windows(shape, t, i, i == cvt::kQuery, 1);
    traffic.map[i] = columns * windows;
    traffic.dmap[i] = columns * (windows + shape.class_tokens);
  }
  return traffic;
}
double tokens(const ProjectionShape& shape, int which) {
  return double(shape.batch) * shape.channels *
         (which == cvt::kQuery ? shape.queries() : shape.keys());
}
std::string named(const char* array, int which) { return std::string(array) + "_" + "qkv"[which]; }

template <class T>
void check_traffic(const ProjectionShape& shape) {
  CAPTURE(describe(shape));
  const double bytes = sizeof(T);
  ProjectionArrays<T> arrays(
      random_projection(shape, bytes == 2 ? Storage::kFp16 : Storage::kFp32, 12));
  const auto& forward = conv_projection::forward_steps<T>()[kFused];
  lab::DeviceArray<char> scratch(forward.scratch_bytes(shape), "scratch");
  for (const auto& launch : forward.launches(arrays.forward(), scratch.data(), shape)) {
    launch.run(nullptr);
    lab::check(cudaDeviceSynchronize());
    if (launch.name != "convolutions") continue;
    const Traffic t = forward_traffic(shape);
    CHECK(counted("x", "load/bytes_asked") == bytes * t.x);
    CHECK(counted("scratch", "store/bytes_asked") == t.partials);
    for (int i = 0; i < 3; ++i)
      CHECK(counted(named("map", i), "store/bytes_asked") == bytes * tokens(shape, i));
  }
  const auto& back = conv_projection::backward_steps<T>()[kFused];
  lab::DeviceArray<char> more(back.scratch_bytes(shape), "more_scratch");
  for (const auto& launch : back.launches(arrays.backward(), more.data(), shape)) {
    launch.run(nullptr);
    lab::check(cudaDeviceSynchronize());
    const Traffic t = spread_traffic(shape);
    for (int i = 0; i < 3; ++i) {
      const double positions =
          tokens(shape, i) - double(shape.batch) * shape.channels * shape.class_tokens;
      for (const char* array : {"map", "dmap"}) {
        if (launch.name == "sums")
          CHECK(counted(named(array, i), "load/bytes_asked") == bytes * positions);
        if (launch.name == "gather dx")
          CHECK(counted(named(array, i), "load/bytes_asked") ==
                bytes * (array[0] == 'm' ? t.map[i] : t.dmap[i]));
      }
    }
    if (launch.name != "gather dx") continue;
    CHECK(counted("x", "load/bytes_asked") == bytes * t.x);
    CHECK(counted("dx", "store/bytes_asked") == bytes * tokens(shape, 0));
    CHECK(counted("more_scratch", "store/bytes_asked") == t.partials);
  }
}

}  // namespace

TEST_CASE("projection, counters: what each launch of the naive way back asks for, by formula") {
  if (skipped_without_counters("projection: naive back")) return;
  for (const ProjectionShape& shape :
       {ProjectionShape{2, 13, 10, 40, 1}, ProjectionShape{1, 7, 8, 32, 0}}) {
    CAPTURE(describe(shape));
    ProjectionArrays<half> arrays(random_projection(shape, Storage::kFp16, 14));
    const auto& back = conv_projection::backward_steps<half>()[kNaive];
    lab::DeviceArray<char> scratch(back.scratch_bytes(shape), "scratch");
    // How often a place of x is read: by which taps of which outputs, row by row and column by
    // column.
    const auto inside = [](int size, int stride) {
      double sum = 0;
      for (int o = 0; o < (size - 1) / stride + 1; ++o)
        for (int t = -1; t <= 1; ++t) sum += o * stride + t >= 0 && o * stride + t < size;
      return sum;
    };
    for (const auto& launch : back.launches(arrays.backward(), scratch.data(), shape)) {
      launch.run(nullptr);
      lab::check(cudaDeviceSynchronize());
      CAPTURE(launch.name);
      const int which = launch.name.back() == 'q' ? 0 : launch.name.back() == 'k' ? 1 : 2;
      const std::string what = launch.name.substr(0, launch.name.size() - 2);
      const double columns = double(shape.batch) * shape.channels;
      const double positions = tokens(shape, which) - columns * shape.class_tokens;
      const double reads =
          columns * inside(shape.height, which ? 2 : 1) * inside(shape.width, which ? 2 : 1);
      if (what == "sums" || what == "dmap")
        CHECK(counted(named("dmap", which), "load/bytes_asked") == 2 * positions);
      if (what == "dmap") CHECK(counted("scratch", "store/bytes_asked") == 2 * positions);
      if (what == "dw") CHECK(counted("x", "load/bytes_asked") == 2 * reads);
      if (what != "dx") continue;
      CHECK(counted("scratch", "load/bytes_asked") == 2 * reads);
      // (The last launch of the two leaves class tokens to the first.)
      const double places = columns * shape.height * shape.width;
      CHECK(counted("dx", "store/bytes_asked") == 2 * places);
      if (which) CHECK(counted("dx", "load/bytes_asked") == 2 * places);
    }
  }
}

TEST_CASE("projection, counters: what each launch asks for, by formula") {
  if (skipped_without_counters("projection: counters")) return;
  check_traffic<half>({2, 30, 57, 40, 1});
  check_traffic<half>({2, 28, 28, 33, 0});
  check_traffic<float>({1, 13, 14, 8, 1});
}

TEST_CASE(
    "projection: at most 1.1 times the bytes that must move, at CvT-13's stages, forward and "
    "back") {
  for (const ProjectionShape& shape :
       {ProjectionShape{32, 56, 56, 64, 0}, ProjectionShape{32, 28, 28, 192, 0},
        ProjectionShape{32, 14, 14, 384, 1}}) {
    CAPTURE(describe(shape));
    const Traffic there = forward_traffic(shape), back = spread_traffic(shape);
    const double maps = tokens(shape, 0) + tokens(shape, 1) + tokens(shape, 2);
    // Partial sums are written once and read once.
    const double forward = 2 * (there.x + maps) + 2 * there.partials;
    CHECK(forward <= 1.1 * forward_bytes(shape, Storage::kFp16));
    CHECK(forward >= forward_bytes(shape, Storage::kFp16));
    double backward = 2 * (2 * maps + back.x + tokens(shape, 0)) + 2 * back.partials;
    for (int i = 0; i < 3; ++i) backward += 2 * (back.map[i] + back.dmap[i]);
    CHECK(backward <= 1.1 * backward_bytes(shape, Storage::kFp16));
  }
}

// ---- Inference ----------------------------------------------------------------------------------

TEST_CASE("projection: BatchNorm folded into the linear layer behind it") {
  if (skipped("projection: folded")) return;
  const int in = 37, out = 50;
  const ProjectionProblem problem = random_projection({1, 2, 3, in, 0}, Storage::kFp32, 13);
  ProjectionArrays<float> arrays(problem);
  const float *means[3], *variances[3];
  for (int i = 0; i < 3; ++i)
    means[i] = arrays.running_mean[i]->data(), variances[i] = arrays.running_variance[i]->data();
  cvt::batch_norm_from_running(arrays.weights(), means, variances, arrays.saved(), in, nullptr);
  std::vector<float> w(size_t(out) * in), bias(out);
  for (size_t i = 0; i < w.size(); ++i) w[i] = float(lab::normal(14, i));
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = float(lab::normal(15, i));
  const lab::DeviceArray<float> w_device(w, "w"), bias_device(bias, "bias");
  for (int which = 0; which < 3; ++which)
    for (const bool biased : {true, false}) {
      lab::DeviceArray<float> folded_w(w.size(), "folded_w"),
          folded_bias(bias.size(), "folded_bias");
      folded_w.fill_nan(), folded_bias.fill_nan();
      cvt::fold_batch_norm(w_device.data(), biased ? bias_device.data() : nullptr,
                           arrays.factor[which]->data(), arrays.offset[which]->data(),
                           folded_w.data(), folded_bias.data(), in, out, nullptr);
      // Beside BatchNorm and the layer one after the other, in double.
      const std::vector<float> got_w = folded_w.download(), got_bias = folded_bias.download();
      std::vector<double> got, expected;
      for (int o = 0; o < out; ++o) {
        double y = got_bias[size_t(o)], normalized = biased ? bias[size_t(o)] : 0;
        for (int i = 0; i < in; ++i) {
          const size_t c = size_t(i);
          const double map = lab::normal(16, uint64_t(i));
          y += got_w[size_t(o * in + i)] * map;
          normalized +=
              w[size_t(o * in + i)] * ((map - problem.running_mean[which][c]) /
                                           std::sqrt(problem.running_variance[which][c] + 1e-5) *
                                           problem.in.scale[which][c] +
                                       problem.in.shift[which][c]);
        }
        got.push_back(y), expected.push_back(normalized);
      }
      const lab::Comparison right =
          lab::compare(std::span<const double>(got), std::span<const double>(expected),
                       lab::Tolerance::fp32_sum(in + 6, 40), {out});
      CHECK_MESSAGE(right.pass, right.describe());
    }
}

TEST_CASE("projection: what it cannot do is refused by name") {
  if (skipped("projection: refusals")) return;
  const ProjectionProblem problem = random_projection({1, 2, 2, 4, 0}, Storage::kFp32, 17);
  ProjectionArrays<float> arrays(problem);
  const auto refused = [&](const ProjectionShape& shape, const char* words) {
    CAPTURE(words);
    std::string said;
    try {
      conv_projection::forward_steps<float>()[kFused].run(arrays.forward(), shape, nullptr);
    } catch (const std::invalid_argument& error) {
      said = error.what();
    }
    CHECK(said.find(words) != std::string::npos);
  };
  refused({1, 2, 2, 4, 0}, "a running variance needs at least 2 positions");
  refused({1, 2, 2, 4, 2}, "class tokens must be 0 or 1");
  refused({1, 0, 2, 4, 0}, "height 0, width 2, channels 4");
  refused({1 << 20, 64, 64, 64, 0}, "fewer than 2^31");
  refused({1, 5000, 2, 4, 0}, "at most 4096");
}

TEST_CASE("projection on a T4") { check_twin_on_t4("projection: right*"); }
TEST_CASE("checked projection in other orders") {
  check_in_other_orders("checked projection: without*");
}
