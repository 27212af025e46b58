#include "symptoms.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "lab/files.h"

namespace lab::grader {
namespace {

constexpr int64_t kLeastRow = 4;       // elements; fewer are a multiple of each other by chance
constexpr double kLeastFactor = 1e-3;  // less cannot be told from zero in fp16

// An output beside the right one.
class Difference {
 public:
  Difference(const Case& problem, const std::vector<double>& got)
      : problem_(problem), got_(got), first_(got.size()) {
    for (size_t i = 0; i < got.size(); ++i) {
      bad_.push_back(!near(got[i], problem.expected[i]));
      if (bad_.back() && first_ == got.size()) first_ = i;
    }
    row_ = problem.dims.empty() ? 1 : size_t(problem.dims.back());
  }
  // Numbered by got_.size() where there is none.
  size_t first() const { return first_; }
  bool any() const { return first_ < got_.size(); }

  bool all(const std::function<bool(double got)>& what) const {
    for (size_t i = 0; i < got_.size(); ++i)
      if (bad_[i] && !what(got_[i])) return false;
    return true;
  }

  // By which number each wrong row is the right one's multiple; empty where one is none.
  std::vector<double> factors() const {
    std::vector<double> result;
    if (int64_t(row_) < kLeastRow) return {};
    for (size_t row = 0; row < got_.size(); row += row_) {
      if (!bad_row(row)) continue;
      double product = 0, square = 0;
      for (size_t i = row; i < row + row_; ++i) {
        product += got_[i] * problem_.expected[i];
        square += problem_.expected[i] * problem_.expected[i];
      }
      const double factor = product / square;
      if (!(std::abs(factor) > kLeastFactor)) return {};
      const Tolerance& t = problem_.tolerance;
      for (size_t i = row; i < row + row_; ++i) {
        const double scaled = factor * problem_.expected[i];
        // What is rounded to fp16 after a division by a wrong number is off by the factor, too.
        const double allowed = t.atol * std::fmax(1, std::abs(factor)) + t.rtol * std::abs(scaled);
        if (!(std::abs(got_[i] - scaled) <= allowed)) return {};
      }
      result.push_back(factor);
    }
    return result;
  }

  // Whether each row is the right one or another output's, and one is the latter; everywhere:
  // whether each is the latter.
  bool is(const std::vector<double>& other, bool everywhere) const {
    if (other.size() != got_.size()) return false;
    for (size_t row = 0; row < got_.size(); row += row_) {
      if (!everywhere && !bad_row(row)) continue;
      for (size_t i = row; i < row + row_; ++i)
        if (!near(got_[i], other[i])) return false;
    }
    return any();
  }

  // Whether each wrong part along that axis is the right part of another index: the first pair.
  bool exchanged(size_t axis, int64_t& here, int64_t& there) const {
    const int64_t count = problem_.dims[axis];
    here = -1;
    for (int64_t i = 0; i < count; ++i) {
      if (!bad_part(axis, i)) continue;
      int64_t j = 0;
      while (j < count && (j == i || !same_part(axis, i, j))) ++j;
      if (j == count) return false;
      if (here < 0) here = i, there = j;
    }
    return here >= 0;
  }

  // "query 16 and more, head 1": which indices alone have such elements; "" where all have.
  std::string where(const std::function<bool(size_t)>& chosen) const {
    std::string text;
    for (size_t axis = 0; axis < problem_.dims.size(); ++axis) {
      std::vector<bool> has(size_t(problem_.dims[axis]));
      for (size_t i = 0; i < got_.size(); ++i)
        if (chosen(i)) has[size_t(index(i, axis))] = true;
      const std::string which = index_range(has);
      if (!which.empty()) text += (text.empty() ? "" : ", ") + axis_name(axis) + " " + which;
    }
    return text;
  }
  std::string where_bad() const {
    return where([&](size_t i) { return bool(bad_[i]); });
  }

  std::string axis_name(size_t axis) const {
    return axis < problem_.axes.size() ? problem_.axes[axis] : "index " + std::to_string(axis);
  }

 private:
  bool near(double got, double expected) const {
    return std::isfinite(got) &&
           std::abs(got - expected) <=
               problem_.tolerance.atol + problem_.tolerance.rtol * std::abs(expected);
  }
  bool bad_row(size_t first) const {
    return std::find(bad_.begin() + long(first), bad_.begin() + long(first + row_), true) !=
           bad_.begin() + long(first + row_);
  }
  // Elements from one index of an axis to the next, and of all its indices.
  size_t step(size_t axis) const {
    size_t elements = 1;
    for (size_t a = axis + 1; a < problem_.dims.size(); ++a) elements *= size_t(problem_.dims[a]);
    return elements;
  }
  int64_t index(size_t element, size_t axis) const {
    return int64_t(element / step(axis)) % problem_.dims[axis];
  }
  // Calls f(element) for all elements of an index until it returns false; whether it never did.
  template <class F>
  bool part(size_t axis, int64_t i, F&& f) const {
    const size_t inner = step(axis), outer = inner * size_t(problem_.dims[axis]);
    for (size_t block = size_t(i) * inner; block < got_.size(); block += outer)
      for (size_t element = block; element < block + inner; ++element)
        if (!f(element)) return false;
    return true;
  }
  bool bad_part(size_t axis, int64_t i) const {
    return !part(axis, i, [&](size_t element) { return !bad_[element]; });
  }
  bool same_part(size_t axis, int64_t i, int64_t j) const {
    const size_t inner = step(axis);
    return part(axis, i, [&](size_t element) {
      return near(got_[element],
                  problem_.expected[element + size_t(j) * inner - size_t(i) * inner]);
    });
  }
  static std::string index_range(const std::vector<bool>& has) {
    const auto number = [](size_t i) { return std::to_string(i); };
    const size_t first = size_t(std::find(has.begin(), has.end(), true) - has.begin());
    size_t last = first, count = 0;
    for (size_t i = first; i < has.size(); ++i)
      if (has[i]) last = i, ++count;
    if (count == 0 || count == has.size() || count != last - first + 1) return "";
    if (first == last) return number(first);
    return last + 1 == has.size() ? number(first) + " and more"
                                  : number(first) + " to " + number(last);
  }

  const Case& problem_;
  const std::vector<double>& got_;
  std::vector<bool> bad_;
  size_t first_, row_ = 1;
};

// What to think about, as the case says it for this kind, or in general.
std::string likely_cause(const Case& problem, Symptom::Kind kind) {
  const auto own = problem.causes.find(symptom_name(kind));
  return own == problem.causes.end() ? problem.hint : own->second;
}

std::string only(const std::string& where) {
  return where.empty() ? "" : ". It concerns only " + where;
}

}  // namespace

const char* symptom_name(Symptom::Kind kind) {
  const char* const names[] = {"unwritten", "not finite",  "zero",     "constant", "factor",
                               "exchanged", "alternative", "rounding", "other"};
  return names[kind];
}

Symptom find_symptom(const Case& problem, const std::vector<double>& got,
                     const std::vector<bool>& untouched) {
  const Difference difference(problem, got);
  const auto found = [&](Symptom::Kind kind, const std::string& words) {
    return Symptom{kind, words, likely_cause(problem, kind)};
  };
  if (!difference.any())
    return found(Symptom::rounding,
                 "each element is nearly right, and all of them together are too far off");
  const size_t first = difference.first();
  if (untouched[first])
    return found(Symptom::unwritten,
                 "the first wrong element is never written" +
                     only(difference.where([&](size_t i) { return bool(untouched[i]); })));
  if (!std::isfinite(got[first])) {
    Symptom symptom =
        found(Symptom::not_finite, "the first wrong element is computed as NaN or infinite" +
                                       only(difference.where([&](size_t i) {
                                         return !std::isfinite(got[i]) && !untouched[i];
                                       })));
    if (!problem.hint_not_finite.empty()) symptom.cause = problem.hint_not_finite;
    return symptom;
  }
  const std::string where = only(difference.where_bad());
  if (difference.all([](double x) { return x == 0; }))
    return found(Symptom::zero, "all wrong elements are 0" + where);
  if (const double value = got[first]; difference.all([&](double x) { return x == value; }))
    if (size_t(std::count(got.begin(), got.end(), value)) > 1)
      return found(Symptom::constant, format("all wrong elements are %g", value) + where);
  if (const std::vector<double> factors = difference.factors(); !factors.empty()) {
    const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
    const bool same = *most - *least <= 0.01 * std::abs(*most);
    return found(
        Symptom::factor,
        format(factors.size() == 1 ? "the wrong row is the right one times %.3g"
               : same              ? "each wrong row is the right one times %.3g"
                      : "each wrong row is the right one times a number, %.3g in the first",
               factors[0]) +
            where);
  }
  for (const bool rows : {false, true})  // heads and images before rows within them
    for (size_t axis = 0; axis + 1 < problem.dims.size(); ++axis) {
      int64_t here = 0, there = 0;
      if ((axis + 2 == problem.dims.size()) != rows || !difference.exchanged(axis, here, there))
        continue;
      const std::string name = difference.axis_name(axis);
      return found(Symptom::exchanged, format("%s %d holds what belongs to %s %d", name.c_str(),
                                              int(here), name.c_str(), int(there)));
    }
  const std::string wrong = where.empty()
                                ? "wrong elements are spread over all of the output"
                                : "wrong is only " + difference.where_bad() + ", and nothing else";
  if (problem.alternatives)
    for (const Case::Alternative& other : problem.alternatives())
      if (difference.is(other.output, other.everywhere))
        return {Symptom::alternative, wrong, other.cause};
  return found(Symptom::other, wrong);
}

std::string find_pattern(const std::vector<Case>& cases, const std::set<size_t>& right) {
  if (right.size() < 2 || cases.size() - right.size() < 2) return "";
  for (size_t s = 0; s < cases[0].sizes.size(); ++s) {
    const std::string& name = cases[0].sizes[s].first;
    std::vector<int64_t> good, bad;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].sizes.size() <= s || cases[i].sizes[s].first != name) return "";
      (right.contains(i) ? good : bad).push_back(cases[i].sizes[s].second);
    }
    for (const int64_t m : {128, 64, 32, 16, 8, 4, 2}) {
      const auto multiple = [m](int64_t n) { return n % m == 0; };
      if (std::all_of(good.begin(), good.end(), multiple) &&
          std::none_of(bad.begin(), bad.end(), multiple))
        return format("right are the problems whose %s are a multiple of %d, and no others",
                      name.c_str(), int(m));
    }
    const auto [low_good, high_good] = std::minmax_element(good.begin(), good.end());
    const auto [low_bad, high_bad] = std::minmax_element(bad.begin(), bad.end());
    const auto text = [&](const char* words, int64_t a, int64_t b) {
      return format(words, int(a), name.c_str(), int(b));
    };
    if (*high_good < *low_bad)
      return text("right are the problems with up to %d %s, wrong those with %d and more",
                  *high_good, *low_bad);
    if (*high_bad < *low_good)
      return text("wrong are the problems with up to %d %s, right those with %d and more",
                  *high_bad, *low_good);
  }
  return "";
}

}  // namespace lab::grader
