// Exercise 16: ours gets all points, others what they deserve; and its reference is the loss's
// gradient.
#include <doctest/doctest.h>

#include <cmath>

#include "../../../common/grader/tests/support.h"
#include "../../../common/lab/random.h"
#include "../exercise/position_encoding.h"

using namespace lab::grader::testing;
using position_encoding::Problem;

namespace {

Problem random_problem(int batch, int height, int width, int channels) {
  Problem p{batch, height, width, channels, {}, {}, {}, {}, false};
  const auto fill = [](std::vector<double>& to, int64_t count, uint64_t seed) {
    for (int64_t i = 0; i < count; ++i) to.push_back(lab::normal(seed, uint64_t(i)));
  };
  fill(p.x, p.rows() * channels, 1), fill(p.dy, p.rows() * channels, 2);
  fill(p.w, 9 * channels, 3), fill(p.bias, channels, 4);
  return p;
}

}  // namespace

TEST_CASE("exercise 16: the expected gradients are those of the loss, by central differences") {
  for (const auto& [batch, height, width] : {std::tuple{2, 3, 4}, {1, 1, 1}, {1, 4, 1}}) {
    Problem p = random_problem(batch, height, width, 2);
    const std::vector<double> found = gradients(p);
    REQUIRE(found.size() == p.x.size() + p.w.size() + p.bias.size());
    constexpr double kStep = 1e-3;  // the loss is linear in each number: no error but rounding
    size_t i = 0;
    for (std::vector<double>* of : {&p.x, &p.w, &p.bias})
      for (double& number : *of) {
        const double before = number;
        number = before + kStep;
        const double above = loss(p);
        number = before - kStep;
        const double below = loss(p);
        number = before;
        CAPTURE(i);
        CHECK(std::abs(found[i++] - (above - below) / (2 * kStep)) < 1e-10);
      }
  }
}

TEST_CASE(
    "exercise 16: a class token gets back what it is given, a corner what four tokens hand it") {
  Problem p = random_problem(2, 3, 3, 1);
  p.w.assign(9, 1.0), p.dy.assign(p.dy.size(), 1.0);
  const std::vector<double> found = gradients(p);
  CHECK(found[0] == 1);
  CHECK(found[1] == 1 + 4);
  CHECK(found[2] == 1 + 6);
  CHECK(found[5] == 1 + 9);
  CHECK(found[10] == 1);
  CHECK(found.back() == 2 * 9);
}

TEST_CASE("exercise 16: points") {
  const std::string folder = "chapters/16_cvt/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  const std::string product = "gradient += taps[tap] * around[8 - tap];";
  const std::string term = "sums[tap] += value * around[8 - tap];";
  const std::string store = "dx[token] = gradient;";
  const std::string share =
      "partial[(int64_t(blockIdx.x) * kSums + i) * map.channels + channel] = sum;";
  const std::string beside = "beside >= 0 && beside < map.width";
  const std::string of_tile = "tile[(tile_row * map.width + beside) * kChannels + lane]";
  const std::string launch = "  const dim3 grid(";
  const std::string clear =
      "  cudaMemsetAsync(gradients, 0, sizeof(float) * (int64_t(batch) * map.tokens() + kSums) * "
      "channels, stream);\n";
  // The neighbour of a token that a tap names, of y where the token is x and the other way round.
  const std::string neighbour =
      "const int y_ = first_row + row + tap / 3 - 1, x_ = column + tap % 3 - 1;\n"
      "        const bool inside = y_ >= 0 && y_ < map.height && x_ >= 0 && x_ < map.width;\n"
      "        const int64_t other = first + int64_t(y_ * map.width + x_) * map.channels;\n";
  // Each block adds its shares to dw and dbias, and nothing is added up behind it.
  const std::string never_cleared = planted(
      planted(planted(solution, share, "atomicAdd(&partial[i * map.channels + channel], sum);"),
              "(x, w, dy, gradients, partial, map);",
              "(x, w, dy, gradients, gradients + int64_t(batch) * map.tokens() * channels, map);"),
      "strips, count);\n  cudaFree", "0, 0);\n  cudaFree");
  const std::string scattered =
      planted(planted(planted(never_cleared, launch, clear + launch), product,
                      neighbour + "if (inside) atomicAdd(&dx[other], taps[tap] * around[4]);"),
              store, "atomicAdd(&dx[token], gradient);");
  check_points(
      "exercise16", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 10, 10, 10, 5}},
       {"starter", source(folder + "exercise.cuh"), none, "are all holes filled"},
       // Right where a map is one token.
       {"dx is dy convolved with w as it is",
        planted(solution, product, "gradient += taps[8 - tap] * around[8 - tap];"),
        {3, 20, 0, 0, 0, 0, 0},
        "convolved with w as it is"},
       {"dw's taps are turned",
        planted(solution, term, "sums[8 - tap] += value * around[8 - tap];"),
        {3, 20, 0, 0, 0, 0, 0},
        "turned by half a turn"},
       {"dx lacks dy", planted(solution, "float gradient = around[4];", "float gradient = 0;"),
        none, "dx lacks dy itself"},
       {"class tokens get no gradient",
        planted(solution, "dx[class_token] = dy[class_token];", "(void)class_token;"), none,
        "does each have somebody who stores it?"},
       {"class tokens add to dbias",
        planted(solution, "dx[class_token] = dy[class_token];",
                "sums[9] += dx[class_token] = dy[class_token];"),
        none, "they get no bias"},
       {"beyond the last column stands the next row",
        planted(solution, beside,
                "tile_row * map.width + beside >= 0 &&\n"
                "                                    tile_row * map.width + beside < (kRows + 2) * "
                "map.width"),
        none, "the next row's first token"},
       // Right where there is one image.
       {"images are not added up",
        planted(solution, "channels, strips, count);", "channels, map.strips(), count);"),
        {21, 20, 0, 0, 0, 0, 0},
        "the sums over one image alone"},
       // Right where rows fill the strips, or there is one.
       {"the last strip is left out of dw",
        planted(solution, "const float value = x[token];",
                "const float value = strip > 0 && rows < kRows ? 0.0f : x[token];"),
        {21, 20, 0, 0, 0, 0, 0},
        "the last rows of a map are left out of dw"},
       {"dw and dbias are not cleared before they are added to", never_cleared, none,
        "set to 0 before"},
       {"blocks add to dw by atomics",
        planted(never_cleared, launch, clear + launch),
        {30, 20, 15, 0, 10, 10, 5}},
       {"dx is scattered by atomics", scattered, {30, 20, 0, 0, 10, 10, 5}},
       {"dw goes over y, with nine x each",
        planted(solution, term,
                neighbour +
                    "        if (inside) sums[tap] += x[other] * around[4];\n        (void)value;"),
        {30, 20, 15, 10, 0, 10, 5}},
       {"dy comes from global memory, for each neighbour",
        planted(
            planted(solution, beside,
                    beside + " && first_row + tile_row > 0 && first_row + tile_row <= map.height"),
            of_tile,
            "dy[first + int64_t((first_row + tile_row - 1) * map.width + beside) * "
            "map.channels]"),
        {30, 20, 15, 10, 10, 0, 5}},
       {"lanes take every second channel",
        planted(solution, "blockIdx.y * kChannels + lane", "lane * gridDim.y + blockIdx.y"),
        {30, 20, 15, 10, 10, 10, 0}},
       {"sums lie where others still read dy",
        planted(solution, "__syncthreads();  // nobody reads dy any more", ""),
        {6, 0, 0, 0, 0, 0, 0},
        "is a barrier missing?"}});
}
