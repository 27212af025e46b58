// Exercise 12: ours gets all points, others what they deserve.
#include <doctest/doctest.h>

#include <cstdint>

#include "../../../common/grader/tests/support.h"

using namespace lab::grader::testing;

TEST_CASE("exercise 12: points") {
  const std::string folder = "chapters/12_vision_transformer/exercise/";
  const std::string solution = source(folder + "solution.cuh");
  const std::vector<int> none = {0, 0, 0, 0, 0, 0};
  check_points("exercise12", "exercise.cuh",
               {{"solution", solution, {30, 20, 15, 10, 15, 10}},
                {"starter", source(folder + "exercise.cuh"), none},
                // Right, but two bytes a load: eight times the requests.
                {"a load for each number",
                 planted(solution, "const Piece one = from[int64_t(patch) * pieces + piece];",
                         "struct { half value[kPiece]; } one;\n"
                         "      for (int e = 0; e < kPiece; ++e)\n"
                         "        one.value[e] = reinterpret_cast<const volatile half*>(\n"
                         "            from + int64_t(patch) * pieces + piece)[e];"),
                 {30, 20, 15, 10, 15, 0}},
                // The sums of other threads may not be there yet.
                {"no wait for the sums",
                 planted(solution, "  __syncthreads();\n\n  // The means", "\n  // The means"),
                 {3, 0, 0, 0, 0, 0}},
                {"the class token is a patch, too",
                 planted(planted(solution, "* tokens + 1) * width", "* tokens) * width"),
                         "patches = tokens - 1", "patches = tokens"),
                 none},
                // LayerNorm hides a factor but for epsilon, which shows where there is one patch.
                {"divided by the number of tokens",
                 planted(solution, "sum / patches", "sum / tokens"),
                 {26, 20, 0, 0, 0, 0},
                 "the number of patches, not of tokens"},
                {"means are stored in y on their way",
                 planted(solution, "    mean += sums[c];",
                         "    mean += sums[c];\n"
                         "    y[int64_t(blockIdx.x) * width + c] = __float2half(sums[c]);"),
                 {30, 20, 0, 10, 15, 10}},
                {"x is read twice",
                 planted(solution, "sum[e] += __half2float(one.value[e]);",
                         "sum[e] += 0.5f * __half2float(one.value[e]) +\n"
                         "          0.5f * __half2float(reinterpret_cast<const volatile half*>(\n"
                         "              from + int64_t(patch) * pieces + piece)[e]);"),
                 {30, 20, 15, 10, 0, 0}},
                // Right where there is one image.
                {"every image is the first",
                 planted(solution, "(int64_t(blockIdx.x) * tokens + 1)", "int64_t(1)"),
                 {10, 20, 0, 0, 0, 0},
                 "its own first patch"}});
}
