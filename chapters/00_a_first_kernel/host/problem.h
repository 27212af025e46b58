// Photos as the steps take them, what the steps must compute, and the program around them.
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
PhotoExpected expected_of(const PhotoProblem& problem);

// Whole numbers, each of which must be exactly right.
Comparison compare_bytes(const std::vector<unsigned char>& got,
                         const std::vector<unsigned char>& expected, const PhotoShape& shape);
Comparison compare_sum(unsigned got, double expected);

// Photo, grey and blurred, side by side.
Image draw_steps(const PhotoProblem& problem, const std::vector<unsigned char>& grey,
                 const std::vector<unsigned char>& blurred);

// ---- Program ------------------------------------------------------------------------------------

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
  bool asked = false;       // run only by --step
};
struct PhotoKernels {
  std::vector<PhotoStep> steps;
  // Grey again, from the host's memory and back to it.
  void (*whole_way)(const unsigned char* photo, unsigned char* grey,
                    const PhotoShape& shape) = nullptr;
};

// main() of chapter 0: flags, problem, the steps one after the other, picture; errors become one line
// on stderr and the exit code.
int first_kernel_main(int argc, char** argv, const char* chapter, const char* about,
                      const PhotoKernels& kernels);

}  // namespace lab
