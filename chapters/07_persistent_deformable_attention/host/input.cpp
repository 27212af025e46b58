// A user's tensors, checked.
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/tensors.h"
#include "options.h"

namespace lab {
namespace {

std::vector<half> to_halves(const std::string& path, const char* name, const Tensor& tensor,
                            bool finite) {
  std::vector<half> halves(tensor.values.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = __float2half(tensor.values[i]);
    if (finite && !std::isfinite(__half2float(halves[i])))
      throw UsageError(
          format("%s: tensor '%s': element %zu is %g, fp16 holds finite values up to "
                 "65504",
                 path.c_str(), name, i, double(tensor.values[i])));
  }
  return halves;
}

}  // namespace

DeformableProblem input_deformable(const std::string& path) {
  const std::vector<Tensor> tensors =
      read_safetensors(path, {"value", "sampling_locations", "attention_weights"});
  const Tensor &value = tensors[0], &locations = tensors[1], &weights = tensors[2];
  const Numbers sizes = read_numbers(path, "spatial_shapes");
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  if (value.shape.size() != 4)
    fail("tensor 'value' has shape " + shape_text(value.shape) +
         ", [batch, pixels, heads, channels] is needed");
  if (sizes.shape.size() != 2 || sizes.shape[1] != 2 || sizes.shape[0] < 1 ||
      sizes.shape[0] > kMaxLevels)
    fail("tensor 'spatial_shapes' has shape " + shape_text(sizes.shape) +
         ", [levels, 2] with 1 to 5 levels is needed: height and width of each");
  if (locations.shape.size() != 6)
    fail("tensor 'sampling_locations' has shape " + shape_text(locations.shape) +
         ", [batch, queries, heads, levels, points, 2] is needed");
  for (const Tensor* tensor : {&value, &locations})
    for (const int64_t size : tensor->shape)
      if (size < 1 || size > 1'000'000'000)
        fail("a dimension of " + shape_text(tensor->shape) + " is out of range");
  DeformableProblem problem;
  DeformableShape& shape = problem.shape;
  shape = {int(value.shape[0]),
           int(locations.shape[1]),
           int(value.shape[2]),
           int(value.shape[3]),
           int(sizes.shape[0]),
           int(locations.shape[4]),
           {}};
  for (int l = 0; l < shape.levels; ++l)
    for (int axis = 0; axis < 2; ++axis) {
      const long double size = sizes.values[2 * l + axis];
      const bool whole = size == std::floor(size);
      if (!(size >= 1 && size <= 65536) || !whole)
        fail("tensor 'spatial_shapes': level " + std::to_string(l) + " has a size of " +
             format(whole ? "%.0Lf" : "%Lg", size) + ", a whole number from 1 to 65536 is needed");
      (axis ? shape.level[l].width : shape.level[l].height) = int(size);
    }
  try {
    require_deformable_shape(shape);
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
  const int64_t B = shape.batch, Q = shape.queries, H = shape.heads, L = shape.levels,
                P = shape.points;
  const auto require = [&](const char* name, const Tensor& tensor,
                           const std::vector<int64_t>& needed) {
    if (tensor.shape != needed)
      fail(std::string("tensor '") + name + "' has shape " + shape_text(tensor.shape) + ", " +
           shape_text(needed) + " is needed to go with the others");
  };
  require("value", value, {B, shape.pixels(), H, shape.channels});
  require("sampling_locations", locations, {B, Q, H, L, P, 2});
  require("attention_weights", weights, {B, Q, H, L, P});
  problem.value = to_halves(path, "value", value, true);
  problem.locations = to_halves(path, "sampling_locations", locations, false);
  problem.weights = to_halves(path, "attention_weights", weights, true);
  problem.source = file_name(path);
  return problem;
}

}  // namespace lab
