// Photos as the steps take them, what the steps must compute, and their arrays on the device.
#pragma once

#include "../../../common/lab.cuh"
#include "../../../common/lab/images.h"
#include "../shape.h"

namespace lab {

// ---- Problems -----------------------------------------------------------------------------------

struct PhotoProblem {
  PhotoShape shape;
  std::vector<unsigned char> photo;  // [3, height, width]
  std::string source;                // "random, seed 1", for people
};

// The photo as size x size pixels.
PhotoProblem photo_problem(const Image& photo, int size);
// Seeded pixels, dark ones and bright ones in patches. Throws as require_shape() does.
PhotoProblem random_photo(const PhotoShape& shape, uint64_t seed);

struct PhotoExpected {
  std::vector<unsigned char> grey, blurred;  // [height, width]
  double sum = 0;
};
PhotoExpected expected_results(const PhotoProblem& problem);

// Whole numbers, each of which must be exactly right.
Comparison compare_bytes(const std::vector<unsigned char>& got,
                         const std::vector<unsigned char>& expected, const PhotoShape& shape);
Comparison compare_sum(unsigned got, double expected);

// Photo, grey and blurred, side by side.
Image draw_steps(const PhotoProblem& problem, const std::vector<unsigned char>& grey,
                 const std::vector<unsigned char>& blurred);

// ---- On the device ------------------------------------------------------------------------------

// In as many copies as rotation needs; copy 0 is the checked one.
struct PhotoArrays {
  DeviceArray<unsigned char> photo, grey, blurred;
  DeviceArray<unsigned> sum;
};
std::vector<PhotoArrays> upload(const PhotoProblem& problem, int copies);
double photo_bytes(const PhotoShape& shape);  // of photo, grey and blurred

// A step by name. It makes one of the three results.
struct PhotoStep {
  std::string name;
  void (*grey)(const unsigned char* photo, unsigned char* grey, const PhotoShape& shape,
               cudaStream_t stream) = nullptr;
  void (*sum)(const unsigned char* grey, unsigned* sum, const PhotoShape& shape,
              cudaStream_t stream) = nullptr;
  void (*blur)(const unsigned char* grey, unsigned char* blurred, const PhotoShape& shape,
               cudaStream_t stream) = nullptr;
  std::string before = "";  // the step that it is held against
  bool variant = false;     // run only by --step
};

// What the step made. Where nothing is expected (--predict), nothing is compared.
Comparison compare_result(const PhotoStep& step, const PhotoArrays& arrays,
                          const PhotoExpected& expected, const PhotoShape& shape);
// The least that has to move: each input and each output once.
Cost step_cost(const PhotoStep& step, const PhotoShape& shape);

}  // namespace lab
