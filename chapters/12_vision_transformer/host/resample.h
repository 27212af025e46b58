// Pictures and tables of numbers in another size, as Pillow and PyTorch do it: cubic convolution,
// stretched where the result is smaller so that no pixel is left out.
#pragma once

#include <vector>

#include "../../../common/lab/images.h"

namespace vision_transformer {

// Which `count` numbers from `first` on make one of the result, and their weights, of sum 1.
struct Taps {
  int first = 0;
  std::vector<double> weights;
};
// For a row of `from` numbers that becomes one of `to`. (R. Keys: Cubic Convolution Interpolation
// for Digital Image Processing, 1981, with a = -0.5.)
std::vector<Taps> bicubic_taps(int from, int to);

// x [from, from, channels] to [to, to, channels], in double.
std::vector<double> resample_grid(const std::vector<double>& x, int from, int to, int channels);

// A photo of width x height pixels; each pass, along the rows and then along the columns, rounds to
// whole levels as Pillow's does.
lab::Image resize_photo(const lab::Image& photo, int width, int height);

// What a net for `size` pixels sees of a photo: the shorter side becomes size · 256 / 224, rounded
// down, the longer one keeps the ratio, then the central square is cut out. Throws lab::UsageError for a photo whose shorter side has less than 8
// pixels, of which nothing could be recognized.
lab::Image crop_for_net(const lab::Image& photo, int size);

// [3, size, size]: levels / 255, less ImageNet's mean, over its deviation.
std::vector<float> normalized(const lab::Image& photo);

}  // namespace vision_transformer
