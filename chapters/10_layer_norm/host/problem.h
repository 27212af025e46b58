// Problems of LayerNorm, how near a result must be, and arrays and steps on the device.
#pragma once

#include "../../../common/lab.cuh"
#include "../../../common/lab/images.h"
#include "../shape.h"

namespace lab {

// ---- Problems -----------------------------------------------------------------------------------

// How arrays are stored; sums are in fp32 either way.
enum class Storage { kFp16, kFp32 };

struct LayerNormProblem {
  layer_norm::Shape shape;
  Storage storage = Storage::kFp16;
  // As layer_norm::Shape says, each number one that the storage holds; residual is what is added to
  // x, dy what arrives on the way back. Both [rows, columns].
  std::vector<double> x, residual, dy, scale, bias;
  std::string source;  // "random, seed 1", for people
  Image photo;         // whose patches x is; empty otherwise
  int grid = 0;        // its patches a side
};

// Seeded and normal, deviation 1; scale around 1, bias around 0. `mean` is added to x. Each row has
// its own deviation, from 1/4 to 4, so that a row's moments are no other row's.
LayerNormProblem random_layer_norm(const layer_norm::Shape& shape, Storage storage, uint64_t seed,
                                   double mean = 0);

// A photo, size x size pixels from -1 to 1, in patches of 16 x 16: each patch's 768 values are a row,
// and in front of them stands the class token, their mean. Images after the first are the photo shifted.
// Throws UsageError for a size that is no multiple of 16 pixels.
LayerNormProblem photo_layer_norm(const Image& photo, int size, int batch, Storage storage,
                                  uint64_t seed, double mean = 0);

// The photo, and beside it what normalizing does to its patches: y of the first image without scale
// and bias, -3 black and 3 white.
Image draw_normalized(const LayerNormProblem& problem, const std::vector<float>& y);

// The number that the storage has for it.
double stored(double value, Storage storage);

// ---- Expected -----------------------------------------------------------------------------------

// What the steps must compute, in double precision; and how near. See layer_norm_tolerance().
struct LayerNormExpected {
  std::vector<double> y;                  // of x
  std::vector<double> sum, y_of_sum;      // of x + residual, the sum as it is stored
  std::vector<double> dx, dscale, dbias;  // of x, with dy
  Tolerance for_y, for_sum, for_y_of_sum, for_dx, for_dscale, for_dbias;
};
LayerNormExpected expected_layer_norm(const LayerNormProblem& problem);
// Throws UsageError where numbers leave the storage's range.
void require_storage_range(const LayerNormProblem& problem, const LayerNormExpected& expected);
// Arrays of [rows, columns]. Where nothing is expected (--predict), nothing is compared.
Comparison compare_rows(const Values& got, const std::vector<double>& expected,
                        const Tolerance& tolerance, const layer_norm::Shape& shape);

// How near y must be, whichever step computes it. With u = 2^-24 and n = (x - mean) · factor: a number
// meets L = columns / 32 + 8 additions at most on its way into a sum, so the mean is off by up to
// L u max|x|, and n by that times the factor, and by (L + 8) u of itself, for the variance's sum, the
// root and the products. y rounds once more, in fp16 by 2^-11 of itself. Over all elements roundings
// are up and down: half of the sum of bounds is allowed for the relative L2 error.
Tolerance layer_norm_tolerance(const std::vector<double>& x, const std::vector<double>& scale,
                               const std::vector<double>& y, const layer_norm::Shape& shape,
                               Storage storage);

// Least traffic and operations; arrays: of [rows, columns] that are read or written once.
Cost layer_norm_cost(const layer_norm::Shape& shape, Storage storage, int arrays);

// ---- On the device ------------------------------------------------------------------------------

// The steps for one storage. T is half or float.
template <class T>
struct LayerNormStep {
  std::string name;
  void (*function)(const T* x, const T* scale, const T* bias, T* y, const layer_norm::Shape& shape,
                   cudaStream_t stream) = nullptr;
};
template <class T>
struct LayerNormKernels {
  using Shape = layer_norm::Shape;
  void (*copy)(const T* x, T* y, const Shape& shape, cudaStream_t stream) = nullptr;
  std::vector<LayerNormStep<T>> steps;
  LayerNormStep<T> naive_variance;
  void (*add)(const T* x, const T* r, T* sum, const Shape& shape, cudaStream_t stream) = nullptr;
  void (*residual)(const T* x, const T* r, const T* scale, const T* bias, T* sum, T* y,
                   const Shape& shape, cudaStream_t stream) = nullptr;
  bool (*residual_fits)(const Shape& shape) = nullptr;  // else it is add and norm
  void (*backward_dx)(const T* dy, const T* x, const T* scale, T* dx, layer_norm::Moments* moments,
                      const Shape& shape, cudaStream_t stream) = nullptr;
  int64_t (*partial_count)(const Shape& shape) = nullptr;  // floats
  void (*slab_sums)(const T* dy, const T* x, const layer_norm::Moments* moments, float* partials,
                    const Shape& shape, cudaStream_t stream) = nullptr;
  void (*column_sums)(const float* partials, float* dscale, float* dbias, const Shape& shape,
                      cudaStream_t stream) = nullptr;
  void (*atomics)(const T* dy, const T* x, const layer_norm::Moments* moments, float* dscale,
                  float* dbias, const Shape& shape, cudaStream_t stream) = nullptr;
};

// Numbers as arrays on the device hold them.
template <class T>
std::vector<T> stored_as(const std::vector<double>& values) {
  std::vector<T> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = T(float(values[i]));
  return result;
}

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
template <class T>
struct LayerNormArrays {
  DeviceArray<T> x, residual, dy, scale, bias, y, sum, dx;
  DeviceArray<layer_norm::Moments> moments;
  DeviceArray<float> partials, dscale, dbias;
};

template <class T>
std::vector<LayerNormArrays<T>> upload(const LayerNormProblem& problem, int copies,
                                       int64_t partials) {
  const size_t elements = size_t(problem.shape.elements()), columns = size_t(problem.shape.columns);
  std::vector<LayerNormArrays<T>> arrays;
  for (int i = 0; i < copies; ++i) {
    const std::string copy = i ? " (copy " + std::to_string(i + 1) + ")" : "";
    const auto input = [&](const std::vector<double>& values, const char* name) {
      return DeviceArray<T>(stored_as<T>(values), name + copy);
    };
    arrays.push_back(
        {input(problem.x, "x"), input(problem.residual, "residual"), input(problem.dy, "dy"),
         input(problem.scale, "scale"), input(problem.bias, "bias"),
         DeviceArray<T>(elements, "y" + copy), DeviceArray<T>(elements, "sum" + copy),
         DeviceArray<T>(elements, "dx" + copy),
         DeviceArray<layer_norm::Moments>(size_t(problem.shape.rows), "moments" + copy),
         DeviceArray<float>(size_t(partials), "partials" + copy),
         DeviceArray<float>(columns, "dscale" + copy),
         DeviceArray<float>(columns, "dbias" + copy)});
  }
  return arrays;
}

}  // namespace lab
