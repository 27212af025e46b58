// A user's tensors, checked.
#include <cmath>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/tensors.h"
#include "options.h"

namespace lab {

ConvNormProblem input_conv_norm(const std::string& path, const ConvNormShape& filter) {
  std::vector<Tensor> tensors =
      read_safetensors(path, {"x", "weight", "gamma", "beta"}, {"bias", "residual"});
  const std::vector<int64_t>&x = tensors[0].shape, &weight = tensors[1].shape;
  const auto fail = [&](const std::string& why) { throw UsageError(path + ": " + why); };
  if (x.size() != 4)
    fail("tensor 'x' has shape " + shape_text(x) +
         ", [batch, in_channels, height, width] is needed");
  if (weight.size() != 4 || weight[2] != weight[3] || weight[1] != x[1])
    fail("tensor 'weight' has shape " + shape_text(weight) + ", [out_channels, " +
         std::to_string(x[1]) + ", kernel, kernel] is needed to go with x");
  for (const auto* shape : {&x, &weight})
    for (const int64_t size : *shape)
      if (size < 1 || size > INT32_MAX)
        fail("a dimension of " + shape_text(*shape) + " is out of range");
  ConvNormProblem p;
  p.shape = filter;
  p.shape.batch = int(x[0]), p.shape.in_channels = int(x[1]), p.shape.height = int(x[2]);
  p.shape.width = int(x[3]), p.shape.out_channels = int(weight[0]);
  p.shape.kernel = int(weight[2]);
  p.shape = same_padded(p.shape);
  try {
    require_conv_norm_shape(p.shape);
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
  const auto require = [&](const char* name, const Tensor& tensor,
                           const std::vector<int64_t>& needed) {
    if (tensor.shape != needed)
      fail(std::string("tensor '") + name + "' has shape " + shape_text(tensor.shape) + ", " +
           shape_text(needed) + " is needed to go with the others");
  };
  require("gamma", tensors[2], {weight[0]});
  require("beta", tensors[3], {weight[0]});
  if (is_there(tensors[4])) require("bias", tensors[4], {weight[0]});
  if (is_there(tensors[5]))
    require("residual", tensors[5], {x[0], weight[0], p.shape.out_height(), p.shape.out_width()});
  const char* names[] = {"x", "weight", "gamma", "beta", "bias", "residual"};
  std::vector<float>* const into[] = {&p.x, &p.weight, &p.gamma, &p.beta, &p.bias, &p.residual};
  for (int t = 0; t < 6; ++t) {
    for (size_t i = 0; i < tensors[t].values.size(); ++i)
      if (!std::isfinite(tensors[t].values[i]))
        fail(format("tensor '%s': element %zu is %g, a finite number is needed", names[t], i,
                    double(tensors[t].values[i])));
    *into[t] = std::move(tensors[t].values);
  }
  p.source = file_name(path);
  return p;
}

}  // namespace lab
