// The comparison of what a kernel gave with what it should.
#include "compare.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "files.h"

namespace lab {

namespace {

constexpr double kFp32Rounding = 0x1p-24;
constexpr double kFp16Rounding = 0x1p-11;

// By its bits, so that no compiler flag can reason a NaN away.
bool is_finite(double value) {
  constexpr uint64_t exponent = 0x7ff0000000000000;
  return (std::bit_cast<uint64_t>(value) & exponent) != exponent;
}

}  // namespace

Tolerance Tolerance::fp32_sum(int64_t length, double magnitude) {
  const double rounding = double(length) * kFp32Rounding;
  return {.atol = rounding * magnitude, .rtol = rounding, .relative_l2 = 1e-5};
}

Tolerance Tolerance::softmax(int64_t head_dim, int64_t tokens, double max_score) {
  const double relative = (double(head_dim) * max_score + double(tokens)) * kFp32Rounding;
  return {.atol = 1e-30, .rtol = relative, .relative_l2 = relative};
}

Tolerance Tolerance::fp16_mean(double max_value) {
  return {.atol = 2 * kFp16Rounding * max_value, .rtol = 2 * kFp16Rounding, .relative_l2 = 1e-3};
}

Comparer::Comparer(const Tolerance& tolerance, std::vector<int64_t> dims)
    : tolerance_(tolerance), dims_(std::move(dims)) {}

void Comparer::add(const double* got, const double* expected, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const bool finite = is_finite(got[i]);
    const double error = std::abs(got[i] - expected[i]);
    const double allowed = tolerance_.atol + tolerance_.rtol * std::abs(expected[i]);
    // "<=" is false for NaN on either side.
    if (!finite || !(error <= allowed)) {
      if (first_bad_ < 0) {
        first_bad_ = so_far_.count + int64_t(i);
        so_far_.expected = expected[i];
        so_far_.got = got[i];
      }
      ++so_far_.bad;
      so_far_.not_finite += !finite;
    }
    if (!(error <= so_far_.max_abs_error)) so_far_.max_abs_error = error;  // a NaN stays
    error_squared_ += error * error;
    expected_squared_ += expected[i] * expected[i];
  }
  so_far_.count += int64_t(count);
}

Comparison Comparer::result() const {
  int64_t elements = 1;
  for (const int64_t dim : dims_) elements *= dim;
  if (elements != so_far_.count)
    throw std::invalid_argument(format("compare: %lld elements, the shape has %lld",
                                       static_cast<long long>(so_far_.count),
                                       static_cast<long long>(elements)));
  Comparison result = so_far_;
  const double error = std::sqrt(error_squared_), expected = std::sqrt(expected_squared_);
  result.relative_l2 = error == 0 ? 0 : error / expected;  // infinite where all should be zero
  if (first_bad_ >= 0) {
    result.first_bad.resize(dims_.size());
    int64_t rest = first_bad_;
    for (size_t axis = dims_.size(); axis-- > 0; rest /= dims_[axis])
      result.first_bad[axis] = rest % dims_[axis];
  }
  result.pass = result.count > 0 && result.bad == 0 && result.relative_l2 <= tolerance_.relative_l2;
  return result;
}

Comparison Comparison::none() {
  Comparison nothing;
  nothing.pass = nothing.skipped = true;
  nothing.max_abs_error = nothing.relative_l2 = std::nan("");
  return nothing;
}

std::string Comparison::describe() const {
  if (skipped) return "not compared";
  std::string text =
      format("%lld of %lld wrong", static_cast<long long>(bad), static_cast<long long>(count));
  if (not_finite) text += format(" (%lld not finite)", static_cast<long long>(not_finite));
  if (!first_bad.empty()) {
    text += ", first at [";
    for (size_t axis = 0; axis < first_bad.size(); ++axis)
      text += (axis ? ", " : "") + std::to_string(first_bad[axis]);
    text += format("]: expected %.6g, got %.6g", expected, got);
  }
  if (is_finite(relative_l2)) text += format("; relative L2 error %.2e", relative_l2);
  return text;
}

double max_abs(const Values& values) {
  double most = 0;
  std::visit(
      [&](const auto& span) {
        for (const auto value : span) most = std::max(most, std::abs(double(value)));
      },
      values);
  return most;
}

double l2_norm(const Values& values) {
  double squares = 0;
  std::visit(
      [&](const auto& span) {
        for (const auto value : span) squares += double(value) * double(value);
      },
      values);
  return std::sqrt(squares);
}

Comparison compare(const Values& got, const Values& expected, const Tolerance& tolerance,
                   const std::vector<int64_t>& dims) {
  const auto size = [](const Values& values) {
    return std::visit([](const auto& span) { return span.size(); }, values);
  };
  if (size(got) != size(expected))
    throw std::invalid_argument("compare: " + std::to_string(size(got)) + " elements with " +
                                std::to_string(size(expected)));
  const auto read = [](const Values& values, size_t first, size_t count, double* into) {
    std::visit(
        [&](const auto& span) {
          for (size_t i = 0; i < count; ++i) into[i] = double(span[first + i]);
        },
        values);
  };
  Comparer comparer(tolerance, dims);
  std::array<double, 1024> g, e;
  for (size_t first = 0; first < size(got); first += g.size()) {
    const size_t count = std::min(g.size(), size(got) - first);
    read(got, first, count, g.data());
    read(expected, first, count, e.data());
    comparer.add(g.data(), e.data(), count);
  }
  return comparer.result();
}

}  // namespace lab
