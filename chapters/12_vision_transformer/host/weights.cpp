#include "weights.h"

#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "resample.h"

namespace vision_transformer {
namespace {

constexpr size_t kListed = 4;  // of names in a message

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

// "a, b, c, d and 8 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kListed; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kListed) text += lab::format(" and %zu more", names.size() - kListed);
  return text;
}

int64_t product_of(const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t size : dims) product *= size;
  return product;
}

// Patches a side of positions [1, 1 + n², width]; 0 for another shape.
int grid_of_positions(const std::vector<int64_t>& dims, int width) {
  if (dims.size() != 3 || dims[0] != 1 || dims[1] < 2 || dims[2] != width) return 0;
  const int64_t grid = std::llround(std::sqrt(double(dims[1] - 1)));
  return grid * grid == dims[1] - 1 && grid <= 4096 ? int(grid) : 0;
}

}  // namespace

float rounded_to_fp16(float x) { return __half2float(__float2half(x)); }
double rounded_to_fp16(double x) { return __half2float(__double2half(x)); }

NetShape model_shape(const std::string& model) {
  lab::require_one_of("--model", model, {"tiny", "small", "base"});
  NetShape shape;
  shape.heads = model == "tiny" ? 3 : model == "small" ? 6 : 12;
  shape.width = 64 * shape.heads;
  return shape;
}

std::string model_of_width(int64_t width) {
  for (const char* model : {"tiny", "small", "base"})
    if (model_shape(model).width == width) return model;
  return "";
}

Weights read_weights(const std::string& path, NetShape shape, const std::string& model) {
  // The file says how many classes and positions there are; sizes of all else follow.
  const std::vector<lab::Tensor> leading =
      lab::read_safetensors(path, {}, {"head.weight", "pos_embed"});
  const std::vector<int64_t>&head_dims = leading[0].shape, &position_dims = leading[1].shape;
  if (head_dims.size() == 2 && head_dims[0] >= 1 && head_dims[0] <= 1'000'000)
    shape.classes = int(head_dims[0]);
  const int grid = grid_of_positions(position_dims, shape.width);
  NetShape in_file = shape;
  if (grid > 0) in_file.size = grid * shape.patch;

  Weights weights{shape, {}, 0};
  weights.parameters.blocks.resize(shape.blocks);
  std::vector<std::string> names, missing, differing;
  for_each_parameter(weights.parameters, in_file,
                     [&](const std::string& name, const std::vector<int64_t>&,
                         std::vector<float>&) { names.push_back(name); });
  std::vector<lab::Tensor> tensors = lab::read_safetensors(path, {}, names);
  size_t next = 0;
  for_each_parameter(
      weights.parameters, in_file,
      [&](const std::string& name, const std::vector<int64_t>& dims, std::vector<float>& values) {
        lab::Tensor& tensor = tensors[next++];
        if (!lab::is_there(tensor))
          missing.push_back(name);
        else if (tensor.shape != dims)
          differing.push_back(name + " is " + dims_text(tensor.shape) + ", " + dims_text(dims) +
                              " is needed");
        else
          values = std::move(tensor.values);
      });
  if (missing.size() == names.size())
    lab::read_safetensors(path, {"cls_token"});  // says what is there
  if (!missing.empty() || !differing.empty())
    throw lab::UsageError(
        path + ": is not a Vision Transformer " + model + " with timm's names:" +
        (missing.empty()
             ? ""
             : lab::format(" %zu tensors are missing (", missing.size()) + listed(missing) + ")") +
        (missing.empty() || differing.empty() ? "" : ";") +
        (differing.empty()
             ? ""
             : lab::format(" %zu of another shape (", differing.size()) + listed(differing) + ")"));
  for_each_parameter(
      weights.parameters, in_file,
      [&](const std::string& name, const std::vector<int64_t>& dims, std::vector<float>& values) {
        weights.count += product_of(dims);
        for (size_t i = 0; i < values.size(); ++i) {
          const float rounded = rounded_to_fp16(values[i]);
          if (!std::isfinite(rounded))
            throw lab::UsageError(
                path + ": tensor '" + name + "': " +
                lab::format("element %zu is %g, fp16 has finite numbers up to 65504", i,
                            double(values[i])));
          values[i] = rounded;
        }
      });
  if (in_file.size != shape.size) {
    weights.parameters.position =
        resampled_positions(weights.parameters.position, grid, shape.grid(), shape.width);
  }
  return weights;
}

Weights read_weights(const std::string& path, const std::string& model, int size) {
  std::string named = model;
  if (named.empty()) {
    const std::vector<int64_t> dims = lab::read_safetensors(path, {"cls_token"})[0].shape;
    if (!dims.empty()) named = model_of_width(dims.back());
    if (named.empty())
      throw lab::UsageError(path + ": tensor 'cls_token' is " + dims_text(dims) +
                            ": the last number must be 192 (tiny), 384 (small) or 768 (base)");
  }
  NetShape shape = model_shape(named);
  shape.size = size;
  return read_weights(path, shape, named);
}

Weights random_weights(const NetShape& shape, uint64_t seed) {
  require_net_shape(shape);
  Weights weights{shape, {}, 0};
  weights.shape.batch = 1;
  weights.parameters.blocks.resize(shape.blocks);
  uint64_t stream = 0;
  for_each_parameter(
      weights.parameters, shape,
      [&](const std::string& name, const std::vector<int64_t>& dims, std::vector<float>& values) {
        ++stream;
        const bool is_scale = name.find("norm") != std::string::npos && name.ends_with(".weight");
        const double deviation =
            name == "patch_embed.proj.weight" ? 1 / std::sqrt(double(shape.patch_values())) : 0.02;
        values.resize(size_t(product_of(dims)));
        weights.count += int64_t(values.size());
        const uint64_t own = lab::random_bits(seed, stream);
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = rounded_to_fp16(float((is_scale ? 1 : 0) + deviation * lab::normal(own, i)));
      });
  return weights;
}

std::vector<float> resampled_positions(const std::vector<float>& position, int from, int to,
                                       int width) {
  const std::vector<double> grid(position.begin() + width, position.end());
  std::vector<float> result(position.begin(), position.begin() + width);
  for (const double value : resample_grid(grid, from, to, width))
    result.push_back(rounded_to_fp16(float(value)));
  return result;
}

std::vector<std::string> read_labels(const std::string& path, int classes) {
  std::vector<std::string> names;
  std::istringstream lines(lab::read_file(path, 16 << 20));
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    const bool has_synset = line.size() > 10 && line[0] == 'n' && line[9] == ' ' &&
                            std::strspn(line.c_str() + 1, "0123456789") == 8;
    names.push_back(has_synset ? line.substr(10) : line);
  }
  if (int(names.size()) != classes)
    throw lab::UsageError(lab::format("%s: has %zu names, the net has %d classes: one name a line",
                                      path.c_str(), names.size(), classes));
  return names;
}

}  // namespace vision_transformer
