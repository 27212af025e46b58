// Exercise 15: ours gets all points, others what they deserve; and its reference is the loss's gradient.
#include <doctest/doctest.h>

#include "../../../common/grader/tests/support.h"
#include "../../../common/lab/random.h"
#include "../exercise/bias_table.h"

using namespace lab::grader::testing;

namespace {

bias_table::Problem random_problem(int batch, int heads, int height, int width, int head_dim) {
  bias_table::Problem p{batch, heads, height, width, head_dim, 0.4, {}, {}, {}, {}, {}};
  const auto fill = [](std::vector<double>& to, int64_t count, uint64_t seed) {
    for (int64_t i = 0; i < count; ++i) to.push_back(lab::normal(seed, uint64_t(i)));
  };
  const int64_t elements = int64_t(batch) * heads * p.tokens() * head_dim;
  fill(p.Q, elements, 1), fill(p.K, elements, 2), fill(p.V, elements, 3), fill(p.dO, elements, 4);
  fill(p.bias, heads * p.cells(), 5);
  return p;
}

// The text from `first` to `last`, without the latter.
std::string text_between(const std::string& text, const std::string& first,
                         const std::string& last) {
  const size_t begin = text.find(first), end = text.find(last);
  REQUIRE(begin < end);
  REQUIRE(end != std::string::npos);
  return text.substr(begin, end - begin);
}

}  // namespace

TEST_CASE("exercise 15: the expected gradient is that of the loss, by central differences") {
  bias_table::Problem p = random_problem(2, 2, 2, 3, 4);
  const std::vector<double> gradient = bias_table::gradient(p);
  REQUIRE(gradient.size() == 2 * 3 * 5);
  constexpr double kStep = 1e-5;
  for (size_t cell = 0; cell < gradient.size(); ++cell) {
    const double bias = p.bias[cell];
    p.bias[cell] = bias + kStep;
    const double above = bias_table::loss(p);
    p.bias[cell] = bias - kStep;
    const double below = bias_table::loss(p);
    p.bias[cell] = bias;
    CAPTURE(cell);
    CHECK(gradient[cell] == doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-7));
    CHECK(gradient[cell] != 0);
  }
}

TEST_CASE("exercise 15: what all rows' weights get adds up to nothing") {
  const bias_table::Problem p = random_problem(1, 3, 4, 2, 8);
  const std::vector<double> gradient = bias_table::gradient(p);
  for (int head = 0; head < p.heads; ++head) {
    double sum = 0;
    for (int64_t cell = 0; cell < p.cells(); ++cell)
      sum += gradient[size_t(head * p.cells() + cell)];
    CHECK(std::abs(sum) < 1e-12);
  }
}

TEST_CASE("exercise 15: points") {
  const std::string folder = "chapters/15_gradients/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0};
  const std::string sums_to_global = "partial[int64_t(blockIdx.x) * cells + cell] = sums[cell];";
  const std::string add_offsets =
      "add_offsets(shared, sums, grid, min(kTile, tokens - block_row), keys);";
  const std::string to_shared = "shared.d_scores[row * kPitch + column] = d_score;";
  const std::string weight = "exp2f(score - log2_sum[i / 2])";
  // An addition for each pair, to an array in shared or global memory.
  const auto by_pair = [&](const std::string& first_cell) {
    return planted(planted(solution, to_shared,
                           "if (block_row + row < tokens && column < keys)\n"
                           "            atomicAdd(&" +
                               first_cell +
                               " + grid.middle() +\n"
                               "                shared.query_numbers[row] - "
                               "shared.key_numbers[column]], d_score);"),
                   add_offsets, "");
  };
  const std::string in_shared = by_pair("sums[0");
  const std::string table_launch =
      text_between(solution, "  const unsigned adders", "  cudaFreeAsync(partial, stream);");
  // Straight to dBias, which is called partial then.
  const std::string never_cleared = planted(
      planted(planted(by_pair("partial[matrix % heads * cells"), sums_to_global, "(void)sums;"),
              "log_sum_exp, dO, partial,", "log_sum_exp, dO, dBias,"),
      table_launch, "");
  const std::string in_global =
      planted(never_cleared, "  const auto kernel =",
              "  cudaMemsetAsync(dBias, 0, sizeof(float) * shape.heads * cells, stream);\n"
              "  const auto kernel =");
  // Tiles of dS are in global memory, behind the tables.
  const std::string stored = planted(
      planted(planted(planted(solution, to_shared,
                              "partial[int64_t(gridDim.x) * cells +\n"
                              "                  (int64_t(blockIdx.x) * kTile + row) * tokens + "
                              "first_key + column] = d_score;"),
                      "if (block_row + row < tokens && column < keys) {",
                      "if (column >= keys) continue;\n          if (block_row + row < tokens) {"),
              "shared.d_scores[row * kPitch + column];",
              "d_scores[int64_t(row) * pitch + column];"),
      "sizeof(float) * blocks * cells", "sizeof(float) * blocks * (cells + kTile * shape.tokens)");
  const std::string all_scores = planted(
      planted(
          stored, "int queries,\n                            int keys) {",
          "int queries,\n                            int keys, const float* d_scores, int pitch) "
          "{"),
      "tokens - block_row), keys);",
      "tokens - block_row), keys,\n                partial + int64_t(gridDim.x) * cells +\n"
      "                    int64_t(blockIdx.x) * kTile * tokens + first_key, tokens);");
  // dP from shared memory, without tensor cores.
  const std::string one_product =
      planted(planted(solution, "      multiply<kHeadDim>(d_p, d_o, shared.v);\n", ""),
              "float d_score = 0;",
              "float d_score = 0;\n"
              "          for (int d = 0; d < kHeadDim; ++d)\n"
              "            d_p[j].value[i] += __half2float(shared.d_o.at(row, d)) *\n"
              "                               __half2float(shared.v.at(column, d));");
  check_points(
      "exercise15", "exercise.cuh",
      {{"solution", solution, {30, 20, 20, 10, 10, 10}},
       {"starter", source(folder + "exercise.cuh"), none, "are all holes filled"},
       {"the offset's sign is swapped",
        planted(solution, "sums[grid.middle() + offset]", "sums[grid.middle() - offset]"), none,
        "key and query change places"},
       // Right where there is one image.
       {"images are not added up",
        planted(solution, "b < batch", "b < 1"),
        {18, 20, 0, 0, 0, 0},
        "the sum over one image alone"},
       {"the bias has the product's scale",
        planted(solution, weight, "0.6931472f * scale_log2 * " + weight), none,
        "the factor is shape.scale"},
       {"D is forgotten", planted(solution, "- dot[i / 2]", ""), none, "the sum of P dP"},
       {"the bias is forgotten where P is computed again",
        planted(solution, "+ biases[grid.middle() + offset]", ""), none, "without the bias"},
       // In units of log2, 2^127 is the most that fp32 holds.
       {"exponentials of the score itself",
        planted(solution, weight, "exp2f(score) / exp2f(log2_sum[i / 2])"),
        {27, 20, 0, 0, 0, 0},
        "exp(S) alone is infinite"},
       {"the last keys are forgotten where they fill no tile",
        planted(solution, "first_key < tokens;", "first_key == 0 || first_key + kTile <= tokens;"),
        {18, 20, 0, 0, 0, 0},
        "the last keys are left out"},
       {"dBias is not cleared before it is added to", never_cleared, none, "set to 0 before"},
       {"an atomic in global memory for each pair", in_global, {30, 20, 0, 0, 10, 10}},
       {"an atomic in shared memory for each pair", in_shared, {30, 20, 20, 0, 10, 10}},
       {"dS of all pairs goes through global memory", all_scores, {30, 20, 0, 10, 10, 0}},
       {"one product without tensor cores", one_product, {30, 20, 20, 10, 0, 0}},
       // Right where there is one tile of keys.
       {"the next tile's keys are numbered while the last one's are read",
        planted(solution, add_offsets + "\n    __syncthreads();", add_offsets),
        {18, 0, 0, 0, 0, 0},
        "is a barrier missing?"}});
}
