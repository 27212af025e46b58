// The numbers of a net, in the order and with the names of timm's files.
#pragma once

#include <string>
#include <vector>

#include "../shape.h"

namespace vision_transformer {

template <class Array>
struct BlockParameters {
  Array norm1_scale, norm1_bias;  // [width]
  Array qkv_weight, qkv_bias;     // [3 width, width], [3 width]
  Array proj_weight, proj_bias;   // [width, width], [width]
  Array norm2_scale, norm2_bias;  // [width]
  Array fc1_weight, fc1_bias;     // [hidden, width], [hidden]
  Array fc2_weight, fc2_bias;     // [width, hidden], [width]
};

// Array: std::vector<float> on the host, const half* on the device.
template <class Array>
struct Parameters {
  Array class_token, position;     // [width], [tokens, width]
  Array patch_weight, patch_bias;  // [width, 3, patch, patch], [width]
  std::vector<BlockParameters<Array>> blocks;
  Array norm_scale, norm_bias;   // [width]
  Array head_weight, head_bias;  // [classes, width], [classes]
};
using HostParameters = Parameters<std::vector<float>>;

// Calls visit(name, dims, array) for each, in the order of timm's files. `parameters` has as many
// blocks as the shape.
template <class AnyParameters, class Visit>
void for_each_parameter(AnyParameters& parameters, const NetShape& shape, const Visit& visit) {
  using Dims = std::vector<int64_t>;
  const int64_t width = shape.width, hidden = shape.hidden();
  visit("cls_token", Dims{1, 1, width}, parameters.class_token);
  visit("pos_embed", Dims{1, shape.tokens(), width}, parameters.position);
  visit("patch_embed.proj.weight", Dims{width, 3, shape.patch, shape.patch},
        parameters.patch_weight);
  visit("patch_embed.proj.bias", Dims{width}, parameters.patch_bias);
  for (size_t i = 0; i < parameters.blocks.size(); ++i) {
    auto& block = parameters.blocks[i];
    const std::string name = "blocks." + std::to_string(i) + ".";
    visit(name + "norm1.weight", Dims{width}, block.norm1_scale);
    visit(name + "norm1.bias", Dims{width}, block.norm1_bias);
    visit(name + "attn.qkv.weight", Dims{3 * width, width}, block.qkv_weight);
    visit(name + "attn.qkv.bias", Dims{3 * width}, block.qkv_bias);
    visit(name + "attn.proj.weight", Dims{width, width}, block.proj_weight);
    visit(name + "attn.proj.bias", Dims{width}, block.proj_bias);
    visit(name + "norm2.weight", Dims{width}, block.norm2_scale);
    visit(name + "norm2.bias", Dims{width}, block.norm2_bias);
    visit(name + "mlp.fc1.weight", Dims{hidden, width}, block.fc1_weight);
    visit(name + "mlp.fc1.bias", Dims{hidden}, block.fc1_bias);
    visit(name + "mlp.fc2.weight", Dims{width, hidden}, block.fc2_weight);
    visit(name + "mlp.fc2.bias", Dims{width}, block.fc2_bias);
  }
  visit("norm.weight", Dims{width}, parameters.norm_scale);
  visit("norm.bias", Dims{width}, parameters.norm_bias);
  visit("head.weight", Dims{shape.classes, width}, parameters.head_weight);
  visit("head.bias", Dims{shape.classes}, parameters.head_bias);
}

}  // namespace vision_transformer
