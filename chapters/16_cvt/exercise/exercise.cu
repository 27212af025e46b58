// Grades exercise 16, the gradients of a position encoding.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "../../../common/grader/grader.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "position_encoding.h"

namespace {

using namespace lab::grader;
using position_encoding::Problem;

// Numbers of fp32 whose mean is not 0: a sum over too few or too many of them shows.
std::vector<float> random_floats(int64_t count, uint64_t stream, double mean) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = float(mean + lab::normal(stream, uint64_t(i)));
  return values;
}

// What comes out of likely mistakes.
std::vector<Case::Alternative> wrong_gradients(const Problem& p, const std::vector<double>& right) {
  std::vector<Case::Alternative> all;
  const size_t elements = p.dy.size();
  // dx of one problem, dw and dbias of another.
  const auto composed = [&](const std::vector<double>& dx, const std::vector<double>& sums) {
    std::vector<double> both(dx.begin(), dx.begin() + int64_t(elements));
    both.insert(both.end(), sums.begin() + int64_t(elements), sums.end());
    return both;
  };
  Problem turned = p;
  for (int tap = 0; tap < position_encoding::kTaps; ++tap)
    for (int64_t c = 0; c < p.channels; ++c)
      turned.w[size_t(tap * p.channels + c)] = p.w[size_t((8 - tap) * p.channels + c)];
  all.push_back({composed(gradients(turned), right),
                 "dx comes out so when dy is convolved with w as it is: y at p - (ty - 1, tx - 1) "
                 "has x[p] with tap (ty, tx), not y at p + (ty - 1, tx - 1)"});
  Problem wrapped = p;
  wrapped.rows_go_on = true;
  all.push_back(
      {gradients(wrapped),
       "beyond the last column comes the next row's first token here: a neighbour outside "
       "the map must count as 0, on all four sides"});
  std::vector<double> alone = right;
  for (size_t i = 0; i < elements; ++i) alone[i] -= p.dy[i];
  all.push_back({alone, "dx lacks dy itself: y is x and what the convolution adds to it"});
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t c = 0; c < p.channels; ++c)
      alone[size_t(b * p.tokens() * p.channels + c)] =
          right[size_t(b * p.tokens() * p.channels + c)];
  all.push_back({alone, "dx lacks dy itself: y is x and what the convolution adds to it"});
  std::vector<double> with_class = right;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t c = 0; c < p.channels; ++c)
      with_class[size_t((p.rows() + 9) * p.channels + c)] +=
          p.dy[size_t(b * p.tokens() * p.channels + c)];
  all.push_back({with_class, "dbias has the class tokens' dy, too: they get no bias"});
  for (const int image : {0, p.batch - 1})
    if (p.batch > 1) {
      Problem one = p;
      for (int64_t i = 0; i < int64_t(elements); ++i)
        if (i / p.channels / p.tokens() != image) one.dy[size_t(i)] = 0;
      all.push_back(
          {composed(right, gradients(one)),
           "dw and dbias are the sums over one image alone: all of them have the same w"});
    }
  for (const int strip : {4, 7, 8, 14, 16, 28, 32}) {
    const int whole = p.height / strip * strip;
    if (whole == 0 || whole == p.height) continue;
    Problem cut = p;
    for (int b = 0; b < p.batch; ++b)
      for (int64_t i = p.row(b, whole, 0) * p.channels;
           i < int64_t(b + 1) * p.tokens() * p.channels; ++i)
        cut.x[size_t(i)] = 0;
    std::vector<double> sums = gradients(cut);
    for (int64_t c = 0; c < p.channels; ++c)
      sums[size_t((p.rows() + 9) * p.channels + c)] =
          right[size_t((p.rows() + 9) * p.channels + c)];
    all.push_back({composed(right, sums),
                   "this comes out when the last rows of a map are left out of dw, those that fill "
                   "no strip: is each division rounded up?"});
  }
  return all;
}

Case map_case(int batch, int height, int width, int channels, uint64_t seed) {
  Problem p{batch, height, width, channels, {}, {}, {}, {}, false};
  const int64_t elements = p.rows() * channels;
  const std::vector<float> x = random_floats(elements, 8 * seed + 1, 0.3),
                           w = random_floats(9 * channels, 8 * seed + 2, 0),
                           dy = random_floats(elements, 8 * seed + 3, 0.2);
  p.x.assign(x.begin(), x.end()), p.w.assign(w.begin(), w.end()), p.dy.assign(dy.begin(), dy.end());

  Case result;
  result.name = lab::format("batch %d, map %d x %d, channels %d", batch, height, width, channels);
  result.axes = {"row", "channel"};
  result.dims = {p.rows() + position_encoding::kTaps + 1, channels};
  result.sizes = {
      {"rows of a map", height}, {"columns", width}, {"channels", channels}, {"batch", batch}};
  result.expected = gradients(p);
  // A sum in fp32 is off by some roundings of the sum of its terms' sizes, each 2^-24 of it at
  // most: 16 in a row are allowed. dx has ten terms. Of the hundreds of dw roundings cancel, or
  // blocks add up few each.
  Problem sizes = p;
  for (std::vector<double>* of : {&sizes.x, &sizes.w, &sizes.dy})
    for (double& number : *of) number = std::abs(number);
  const std::vector<double> terms = gradients(sizes);
  result.tolerance = {.atol = 0x1p-20 * *std::max_element(terms.begin(), terms.end()),
                      .rtol = 0x1p-20,
                      .relative_l2 = 0x1p-20};

  result.arguments = {input("x", x), input("w", w), input("dy", dy), float_output("gradients"),
                      value(batch),  value(height), value(width),    value(channels)};
  result.alternatives = [p, right = result.expected] { return wrong_gradients(p, right); };
  result.causes["zero"] =
      "dw and dbias are the last ten rows. Does each block bring what it has "
      "added up to them, and before anybody reads it?";
  result.causes["exchanged"] =
      "rows behind dx are dw's taps, (0, 0) to (2, 2). If they come out turned by half a turn: tap "
      "(ty, tx) belongs to dy[p] and x[p + (ty - 1, tx - 1)]";
  result.hint_not_finite =
      "gradients hold NaN before the call: are the last ten rows, dw and dbias, set to 0 before "
      "anything is added to them? And outside its map a token has no neighbour";
  result.hint =
      height == 1 && width == 1 ? "one token: only the middle tap has a product. And the class "
                                  "token is the first of its sample"
      : channels % 32 != 0 ? "channels are no multiple of 32: do lanes without a channel leave "
                             "memory alone, and does a row begin where the last one ends?"
      : batch > 1          ? "several samples: each begins with a class token, all add to one dw"
                           : "does a neighbour beyond the last column count as 0, and not as "
                             "the first token of the next row?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {map_case(1, 1, 1, 32, 1),  map_case(1, 1, 5, 8, 2),
                           map_case(1, 6, 1, 40, 3),  map_case(3, 4, 4, 32, 4),
                           map_case(1, 7, 7, 64, 5),  map_case(2, 9, 5, 33, 6),
                           map_case(1, 3, 17, 1, 7),  map_case(2, 14, 14, 32, 8),
                           map_case(1, 16, 33, 7, 9), map_case(1, 64, 64, 4, 10)};
  return all;
}

// 4 samples of 14 x 14 tokens, 64 channels: 8 strips of 7 rows.
constexpr double kBatch = 4, kSide = 14, kChannels = 64, kStrips = 2 * kBatch;
constexpr double kRow = kChannels * 4;  // bytes of a token
constexpr double kMaps = kBatch * kSide * kSide * kRow, kClassTokens = kBatch * kRow;
constexpr double kSums = 10 * kRow;  // sums of a strip, or of all
Case measured() { return map_case(int(kBatch), int(kSide), int(kSide), int(kChannels), 11); }

double atomics(const Counters& c) {
  double requests = c.sum("/copy_engine/atomic/bytes");
  for (const char* memory : {"/global", "/shared", "/distributed_shared"})
    requests += c.sum(memory + std::string("/atomic/requests"));
  // Without gradients there is nothing to add up.
  return c.stored() < kMaps + kClassTokens + kSums ? NAN : requests;
}

const std::vector<Aim> kAims = {
    {"bytes of stores and atomics: the gradients, and the sums of each 7 rows", 15, Aim::at_most,
     kMaps + kClassTokens + kSums + kStrips* kSums, [](const Counters& c) { return c.stored(); },
     "dx[p] has one owner if it is gathered from dy; dw and dbias are added up in registers and in "
     "shared memory first",
     Aim::bytes, kMaps + kClassTokens + kSums},
    {"atomics, in global and shared memory: none", 10, Aim::exactly, 0, atomics,
     "each block's sums can have a place of their own, and a second launch adds them up"},
    {"bytes of x that are loaded: each token of a map once", 10, Aim::at_most, kMaps,
     [](const Counters& c) { return c.bytes("x", "load"); },
     "a token of x meets nine dy in dw; the same nine make its dx", Aim::bytes, kMaps},
    {"bytes of dy and of memory of your own that are loaded: a row more for each strip", 10,
     Aim::at_most, kMaps + kClassTokens + kStrips* kSide* kRow + kStrips* kSums,
     [](const Counters& c) { return c.bytes("dy", "load") + c.bytes(kScratch, "load"); },
     "neighbours share dy: in shared memory it can be read nine times", Aim::bytes,
     kMaps + kClassTokens},
    {"sectors of x and dy that are moved, over those that are needed", 5, Aim::at_most, 1,
     [](const Counters& c) {
       // Each of nine taps may load them itself, for dx and for dw.
       const double of_x = c.moved_over_needed("x", "load", 2 * 9 * kMaps),
                    of_dy = c.moved_over_needed("dy", "load", 2 * 9 * kMaps);
       return std::isnan(of_x) ? of_x : std::isnan(of_dy) ? of_dy : std::max(of_x, of_dy);
     },
     "channels lie side by side: neighbouring lanes, neighbouring channels", Aim::number, 1},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 16, from an empty function: the gradients of a position encoding",
        .folder = "chapters/16_cvt",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const float*, const float*, const float*, float*, int, int, int, int, "
                      "cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "position_gradients",
        .unwritten_hint = "rows are those of dx, class tokens among them, then nine of dw and one "
                          "of dbias: does each have somebody who stores it?"}});
}
