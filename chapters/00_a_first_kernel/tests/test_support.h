// What the tests of chapter 0 share: problems with their expected results, and steps run under
// suspicion. Plain declarations around problem.h; no test framework.
#pragma once

#include "../../../common/testing/testing.h"
#include "../host/problem.h"

namespace lab::testing {

struct PhotoCase {
  std::string name;
  PhotoProblem problem;
  PhotoExpected expected;
};
// Random pixels with the reference's results.
PhotoCase photo_case(const PhotoShape& shape, uint64_t seed = 1);

// A pixel, rows and columns of one, whole blocks, and shapes that fill none.
std::vector<PhotoShape> photo_shapes();

using Launched = std::function<void(const unsigned char* from, unsigned char* to,
                                    const PhotoShape& shape, cudaStream_t stream)>;
using LaunchedSum = std::function<void(const unsigned char* from, unsigned* sum,
                                       const PhotoShape& shape, cudaStream_t stream)>;

// Runs a step with its output filled with 255 (no result is) between guard areas, and compares.
Verdict run_grey(const Launched& step, const PhotoCase& problem);
Verdict run_blur(const Launched& step, const PhotoCase& problem);
Verdict run_sum(const LaunchedSum& step, const PhotoCase& problem);

}  // namespace lab::testing
