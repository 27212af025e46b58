// Problems of an MLP, y = x + w2 gelu(w1 x + b1) + b2, how near a result must be, and arrays and steps on
// the device.
#pragma once

#include <optional>

#include "../../../common/lab.cuh"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/images.h"
#include "../shape.h"

namespace lab {

// ---- Problems -----------------------------------------------------------------------------------

struct MlpSizes {
  int batch = 1, tokens = 197;  // x has batch * tokens rows
  int width = 768, hidden = 3072;

  int rows() const { return batch * tokens; }
  mlp::Shape first() const { return {rows(), hidden, width, true}; }    // x → hidden
  mlp::Shape second() const { return {rows(), width, hidden, false}; }  // hidden → y
};
std::string describe(const MlpSizes& sizes);

struct MlpProblem {
  MlpSizes sizes;
  std::vector<float> x, w1, b1, w2, b2;  // [rows, width], [hidden, width], [hidden],
                                         // [width, hidden], [width]
  std::string source;                    // "random, seed 1", for people
  Image photo;                           // whose patches x is; empty otherwise
};

// Seeded and normal; weights of deviation 1 / sqrt(what is added up), biases of 0.25.
MlpProblem random_mlp(const MlpSizes& sizes, uint64_t seed);

// A photo as Vision Transformers see it, squared to size (a multiple of 16) pixels: patches of 16 x
// 16 pixels are tokens of 768 values, the class token (the patches' mean) first, each with mean 0
// and deviation 1 as behind a LayerNorm. Image b > 0 of the batch is the photo shifted cyclically.
// Weights are random ones of that seed.
MlpProblem photo_mlp(const Image& photo, int size, int batch, uint64_t seed);

// The sizes that speed is measured on: "tiny", "base", "ffn512", "ffn768", "ffn1024". Throws
// UsageError.
MlpSizes preset_mlp(const std::string& name);

// The problem with all arrays rounded to fp16, as a step's are. Throws UsageError beyond 65504.
MlpProblem rounded_to_fp16(MlpProblem problem);

// The photo's patches, and beside it eight hidden units' answers to them: bright is much of it.
// hidden: [1 + grid * grid, hidden width] of image 0.
Image draw_hidden(const Image& photo, const MlpSizes& sizes, const std::vector<float>& hidden);

// ---- What is expected ---------------------------------------------------------------------------

// Of which rows: all, or where these are many, some of them over all tiles: the first, the last,
// and seeded ones between.
std::vector<int> compared_rows(const MlpSizes& sizes);

enum class Storage { kFp16, kFp32 };  // all arrays'; fp32 is multiplied in tf32

struct MlpExpected {
  std::vector<int> rows;
  std::vector<double> hidden, y;  // [rows, hidden], [rows, width]
  // A single product's numbers, of the first and of the second; and y's of both together.
  Tolerance first, second, y_tolerance;
};
MlpExpected expected_mlp(const MlpProblem& problem, Storage storage);
// y in the expected rows. Where none are expected (--predict), nothing is compared.
Comparison compare_output(const std::vector<float>& y, const MlpExpected& expected, int width);

// What a product y = act(x weightᵀ + bias) + residual may be off by. sizes: the largest sum of |x|
// |weight|; largest: of |sum|, |y| and what is stored between.
//   sums: a tensor core adds some products at a time to a sum of fp32 and cuts what is beyond its
//         24 bits: at most k/4 of them, 2^-23 of a sum that is never larger than `sizes`
//   tf32: x and weight are rounded by 2^-11 of themselves, the products by 2^-10
//   fp16: y is rounded by 2^-11 of itself; a step that stores the sums before it adds the bias rounds
//         them, too; GELU makes an error larger by at most 1.13
Tolerance product_tolerance(const mlp::Shape& shape, Storage storage, double sizes, double largest);

// Least traffic, and a multiply-add for each weight and token.
Cost mlp_cost(const MlpSizes& sizes, Storage storage);

// ---- On the device ------------------------------------------------------------------------------

template <class Element>
struct MlpOf {
  DeviceArray<Element> x, w1, b1, w2, b2, hidden, y;
};
// In as many copies as rotation needs; copy 0 is the checked one. Arrays of one of the two types.
struct MlpOnDevice {
  std::optional<MlpOf<half>> fp16;
  std::optional<MlpOf<float>> fp32;

  std::vector<float> hidden() const;
  std::vector<float> y() const;
  void fill_results_with_nan();  // hidden and y
};
std::vector<MlpOnDevice> upload(const MlpProblem& problem, Storage storage, int copies);

// ---- Steps --------------------------------------------------------------------------------------

struct MlpStep {
  std::string name;
  // Everything that it launches, into that stream.
  std::function<void(MlpOnDevice& arrays, const MlpSizes& sizes, cudaStream_t stream)> run;
  // Its launches one by one, by name.
  using Stage = std::pair<std::string, std::function<void(MlpOnDevice& arrays)>>;
  std::function<std::vector<Stage>(const MlpSizes& sizes)> stages;
  Storage storage = Storage::kFp16;
  // Why the current device cannot, in words; empty where it can. May be null: it always can.
  std::function<std::string()> lacking = nullptr;
  bool variant = false;  // run only where --step asks for it
};

}  // namespace lab
