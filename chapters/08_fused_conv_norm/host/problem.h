// Problems of convolution + instance norm + ReLU, what must come out of them, and the steps that solve them.
#pragma once

#include <optional>
#include <variant>

#include "../../../common/lab.cuh"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/images.h"
#include "../shape.h"

namespace lab {

// ---- Problems -----------------------------------------------------------------------------------

struct ConvNormProblem {
  ConvNormShape shape;
  std::vector<float> x, weight, bias, gamma, beta, residual;  // as ConvNormShape says; bias and
                                                              // residual may be empty: none
  std::string source;                                         // "random, seed 1", for people
  Image photo;  // whose filters' answers y is; empty otherwise
};

// Seeded and normal, weights such that the convolution's values are of size 1; gamma around 1.
ConvNormProblem random_conv_norm(const ConvNormShape& shape, uint64_t seed,
                                 bool with_residual = false);

// A photo, size x size pixels, under 32 filters of 9 x 9: edges in 16 directions, one side of an
// edge as positive, and lines in 16. Padding by reflection: the photo's border is no edge.
ConvNormProblem photo_conv_norm(const Image& photo, int size);

// The photo, and beside it eight of its edges' y of photo_conv_norm(): bright is much of it.
Image draw_responses(const Image& photo, const ConvNormShape& shape, const std::vector<float>& y);

// The shapes that speed is measured on: "small", "deep", "wide", "point". Throws UsageError.
ConvNormShape preset_conv_norm(const std::string& name);

// What y must be and how near: fp32 rounds y by 1e-5 on average, or more where what the convolution
// rounds is large beside a plane's deviation: by 1e-6 of the mean over it, and where products cancel
// by 2^-24 sqrt(k) r, for k roundings of a sum of k products, with r = sqrt(sum of squared products
// over the variance), from mean squares of x and of the weights, channel by channel. r is near 1 for
// random tensors, large for a photo that is nearly flat. 16 times that is allowed to a single pixel.
// Planes whose variance is small beside eps have small y: over all elements the errors' squares are
// compared with those of y.
struct ConvNormExpected {
  std::vector<double> conv, y;  // [batch, out_channels, out_height, out_width]
  Tolerance tolerance;
  Tolerance rounded_products = {};  // where that was asked for, rounded_products_tolerance()
};
ConvNormExpected expected_conv_norm(const ConvNormProblem& problem);
// Throws UsageError where the input leads beyond fp32's range: sums of products, distances from the
// mean, or y. No kernel that computes in fp32 could be right there.
void require_fp32_range(const ConvNormProblem& problem, const ConvNormExpected& expected);
Tolerance conv_norm_tolerance(const ConvNormProblem& problem, const std::vector<double>& conv);

// The same where products are of operands rounded to 11 bits, tf32 or fp16 (normal numbers there):
// each operand by at most 2^-11 of itself, a product by sqrt(2) 2^-11 where the two roundings are
// independent, and a sum of independent roundings by that share of the root of the sum of squared
// products. Beside a plane's deviation that is sqrt(2) 2^-11 r, with r = sqrt(mean over the plane of
// sum (x w)^2 / (variance + eps)): near 1 for random tensors, larger where products cancel. r is
// worked out in double, for each plane; the worst counts.
Tolerance rounded_products_tolerance(const ConvNormProblem& problem,
                                     const ConvNormExpected& expected);

// Least traffic, whatever a step makes of it, of elements of that many bytes, and a multiply-add for
// each output and tap, by the units that a step's precision ("fp32", "tf32" or "fp16") asks for.
Cost conv_norm_cost(const ConvNormShape& shape, bool with_residual, const std::string& precision,
                    int element_bytes = 4);

// The problem with x, weight and residual rounded to fp16, as arrays of that type hold them. Throws
// UsageError for a number beyond 65504.
ConvNormProblem rounded_to_fp16(ConvNormProblem problem);

// The same as `of_fp32` where y is stored in fp16: rounded by up to 2^-11 of itself, below 2^-14 by
// 2^-25. Products of numbers in fp16 are exact in fp32, and sums stay in fp32: no more is allowed.
Tolerance fp16_storage_tolerance(const Tolerance& of_fp32);

// The type of every step.
using ConvNormFunction = void (*)(const float* x, const float* weight, const float* bias,
                                  const float* gamma, const float* beta, const float* residual,
                                  float* y, const ConvNormShape& shape, cudaStream_t stream);
// A step whose x, weight, residual and y are fp16; weights are packed beforehand.
struct HalfConvNorm {
  int64_t (*packed_elements)(const ConvNormShape& shape) = nullptr;
  void (*pack)(const half* weight, half* packed, const ConvNormShape& shape,
               cudaStream_t stream) = nullptr;
  void (*run)(const half* x, const half* packed, const float* gamma, const float* beta,
              const half* residual, half* y, const ConvNormShape& shape,
              cudaStream_t stream) = nullptr;
};
// The type of instance norm alone; x and y are [batch, channels, plane].
using NormFunction = void (*)(const float* x, const float* gamma, const float* beta, float* y,
                              const NormShape& shape, cudaStream_t stream);

// The arrays of such a step.
struct HalfArrays {
  DeviceArray<half> x, weight, packed, residual, y;
};
std::vector<half> to_half(const std::vector<float>& values);

// On the device, in as many copies as rotation needs; copy 0 is the checked one.
struct ConvNormArrays {
  DeviceArray<float> x, weight, bias, gamma, beta, residual, conv, y;
  bool has_bias = false, has_residual = false;
  std::optional<HalfArrays> in_fp16 = {};

  void run(ConvNormFunction step, const ConvNormShape& shape, cudaStream_t stream = nullptr);
  void run(const HalfConvNorm& step, const ConvNormShape& shape, cudaStream_t stream = nullptr);
  void pack(const HalfConvNorm& step, const ConvNormShape& shape);
};
// `half_step`: arrays in fp16, too, where it has a function.
std::vector<ConvNormArrays> upload(const ConvNormProblem& problem, int copies,
                                   const HalfConvNorm& half_step = {});

// ---- Steps --------------------------------------------------------------------------------------

struct ConvNormStep {
  std::string name;
  std::variant<ConvNormFunction, HalfConvNorm> function;  // the latter is run where --storage asks
  // The launches that it consists of on this shape, by name; none where it is one launch. They may leave
  // values in arrays.conv.
  using NamedLaunch = std::pair<std::string, std::function<void(ConvNormArrays&)>>;
  std::function<std::vector<NamedLaunch>(const ConvNormShape& shape)> launches;
  // What it does with this shape on the current device, in a line for people; may be null.
  std::function<std::string(const ConvNormShape& shape)> plan = nullptr;
  // What its products are in: a step in tf32 or fp16 is run where --precision asks for it.
  std::string precision = "fp32";
  // Why the current device cannot, in words; empty where it can. May be null: it always can.
  std::function<std::string()> lacking = nullptr;
  bool variant = false;  // tried and not kept: run only where --step asks for it

  bool half_storage() const { return std::holds_alternative<HalfConvNorm>(function); }
  HalfConvNorm in_fp16() const {
    return half_storage() ? std::get<HalfConvNorm>(function) : HalfConvNorm{};
  }
  void run(ConvNormArrays& arrays, const ConvNormShape& shape, cudaStream_t stream) const;
  void fill_result_with_nan(ConvNormArrays& arrays) const;
  std::vector<float> result(const ConvNormArrays& arrays) const;
};
struct NormStep {
  std::string name;
  NormFunction function;
};

// The step's y with what is expected; nothing is compared where nothing is expected.
Comparison compare_output(const ConvNormStep& step, const std::vector<float>& y,
                          const ConvNormExpected& expected, const ConvNormShape& shape);

// The same for instance norm alone, whose input is the convolution that is expected. Nothing is uploaded,
// expected or compared where no convolution is.
void upload_convolution(const ConvNormExpected& expected, ConvNormArrays& arrays);
std::vector<double> expected_norm(const ConvNormProblem& problem, const ConvNormExpected& expected);
Comparison compare_norm(const std::vector<float>& y, const std::vector<double>& normalized,
                        const Tolerance& tolerance, const NormShape& shape);
Cost norm_cost(const ConvNormShape& shape);

}  // namespace lab
