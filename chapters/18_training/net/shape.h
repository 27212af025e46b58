// The shape of a small CvT: three stages, each an embedding and blocks of attention and MLP.
#pragma once

#include <array>
#include <string>

namespace training {

constexpr int kStages = 3;

struct StageShape {
  int kernel, stride, padding;  // the embedding's convolution
  int width;                    // channels of a token
  int heads, blocks;
};

// The class token joins in the last stage, as in the paper.
struct NetShape {
  int size = 28;  // side of a square image, in pixels
  int in_channels = 1;
  int classes = 10;
  int mlp_ratio = 2;  // hidden values of the MLP a channel
  std::array<StageShape, kStages> stages = {
      {{7, 4, 2, 32, 1, 1}, {3, 2, 1, 64, 2, 1}, {3, 2, 1, 96, 3, 1}}};

  // Side of the map of stage `stage`; -1: of the image.
  int side(int stage) const {
    int result = size;
    for (int i = 0; i <= stage; ++i)
      result = (result + 2 * stages[i].padding - stages[i].kernel) / stages[i].stride + 1;
    return result;
  }
  int class_tokens(int stage) const { return stage == kStages - 1 ? 1 : 0; }
  int tokens(int stage) const { return side(stage) * side(stage) + class_tokens(stage); }
  int keys(int stage) const {
    const int half = (side(stage) + 1) / 2;
    return half * half + class_tokens(stage);
  }
  int hidden(int stage) const { return stages[stage].width * mlp_ratio; }
  int channels_into(int stage) const { return stage == 0 ? in_channels : stages[stage - 1].width; }
};

// "28 x 28 pixels, stages of 32, 64, 96 channels and 1, 1, 1 blocks"
std::string describe(const NetShape& shape);

// Throws std::invalid_argument naming value and limit for what chapter 16's operations
// cannot do: kernels, strides and paddings of embeddings, channels of a head, a width, a map
// without pixels.
void require_net_shape(const NetShape& shape);

}  // namespace training
