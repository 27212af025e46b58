// Exercise 10: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 10: points") {
  const std::string solution = source("chapters/10_layer_norm/exercise/solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0, 0};
  check_points(
      "exercise10", "exercise.cuh",
      {{"solution", solution, {30, 20, 15, 5, 10, 10, 10}},
       {"starter", source("chapters/10_layer_norm/exercise/exercise.cuh"), none},
       // Right, but an element a lane: eight times the requests.
       {"two bytes a lane",
        planted(solution, "shape.columns % 8 != 0     ?", "true ?"),
        {30, 20, 15, 5, 10, 10, 0}},
       // What is gated is computed once more for the store.
       {"gate is read twice",
        planted(solution, "gated[p][e] * factor",
                "__half2float(values[p].element[e]) *\n"
                "    __half2float(gate[(first + i) * kWidth + e]) /\n"
                "    (1.0f + expf(-__half2float(gate[(first + i) * kWidth + e]))) * factor"),
        {30, 20, 15, 5, 10, 0, 10}},
       // Right where the row fills all lanes' room: the problems of 256, 768 (two) and 1024 columns.
       {"the mean over what lanes have room for",
        planted(solution, "squares / float(columns)", "squares / float(32 * kWidth * kPieces)"),
        {10, 20, 0, 0, 0, 0, 0}},
       {"the mean is subtracted, as layer norm does",
        planted(solution, "  const float factor = rsqrtf(",
                "  float sum = 0.0f;\n"
                "  for (int p = 0; p < kPieces; ++p)\n"
                "    for (int e = 0; e < kWidth; ++e) sum += gated[p][e];\n"
                "  for (int distance = 16; distance > 0; distance /= 2)\n"
                "    sum += __shfl_xor_sync(0xffffffffu, sum, distance);\n"
                "  squares -= sum * sum / float(columns);\n"
                "  const float factor = rsqrtf("),
        none},
       {"the gate without its sigmoid", planted(solution, "(z / (1.0f + expf(-z)))", "z"), none},
       // Right where rows are a multiple of four warps: 8 and 4 of them.
       {"rows past the end",
        planted(solution, "  if (row >= rows) return;\n", ""),
        {5, 0, 0, 0, 0, 0, 0}}});
}
