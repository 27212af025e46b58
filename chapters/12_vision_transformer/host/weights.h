// Where a net's numbers come from: a trained net's file, or a seed.
#pragma once

#include <cstdint>
#include <string>

#include "parameters.h"

namespace vision_transformer {

// The sizes of a timm model by its name: tiny, small or base. Throws lab::UsageError for another.
NetShape model_shape(const std::string& model);
// "tiny" for 3 heads of 64, and so on; "" for no size that has a name.
std::string model_of_width(int64_t width);

// The numbers of a net as the device holds them: each one rounded to fp16.
struct Weights {
  NetShape shape;  // batch 1, the size asked for
  HostParameters parameters;
  int64_t count = 0;  // of the file's numbers
};

// A safetensors file with timm's names, F16 or F32: patch 16, any number of classes, positions for any
// squared number of patches, which are interpolated where the size is another (resample.h). `model`
// is tiny, small or base, or empty where the file's width shall say it. Throws lab::UsageError that
// names file, tensors and what would be right: missing, truncated, of another net, of another type,
// not finite in fp16.
Weights read_weights(const std::string& path, const std::string& model, int size);
// The same for a net whose sizes are known but for classes and the size of images.
Weights read_weights(const std::string& path, NetShape shape, const std::string& model);

// Seeded numbers of the spread that training begins with: weights, positions and class token of
// deviation 0.02, the patches' weights of 1 / sqrt(their number), scales around 1, biases around 0.
Weights random_weights(const NetShape& shape, uint64_t seed);

// position [1 + from², width] for images of to² patches, as timm's resample_abs_pos_embed: the class
// token's stays, the others are resampled.
std::vector<float> resampled_positions(const std::vector<float>& position, int from, int to,
                                       int width);

// x as fp16 holds it.
float rounded_to_fp16(float x);
double rounded_to_fp16(double x);

// One name a line, as in a file of WordNet's synsets ("n02124075 Egyptian cat") or without the
// number. Throws lab::UsageError unless there are that many.
std::vector<std::string> read_labels(const std::string& path, int classes);

}  // namespace vision_transformer
