#include "photo.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"

namespace training {
namespace {

constexpr int kShown = 3;  // classes

// The photo's centre as the training images are: 28 x 28, a light garment on black. A light
// background is turned around; `turned` says so.
std::vector<float> as_garment(const lab::Image& photo, bool& turned) {
  const lab::Image small = lab::square(photo, kSide);
  std::vector<double> grey;
  double border = 0, count = 0;
  for (int i = 0; i < kSide * kSide; ++i) {
    const unsigned char* rgb = small.rgb.data() + 3 * size_t(i);
    grey.push_back(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]);
    const int x = i % kSide, y = i / kSide;
    if (x > 1 && x < kSide - 2 && y > 1 && y < kSide - 2) continue;
    border += grey.back(), ++count;
  }
  turned = border / count > 127.5;
  std::vector<float> pixels;
  for (const double value : grey) pixels.push_back(normalized(turned ? 255 - value : value));
  return pixels;
}

}  // namespace

lab::ExitCode read_photo(const TrainingOptions& options) {
  const lab::Image photo = lab::load_image(options.infer);
  lab::require_not_flat(photo);
  Net net(NetShape{}, 1);
  load_parameters(options.checkpoint, net);
  bool turned = false;
  const std::vector<float> logits = logits_of(net, as_garment(photo, turned), 1);
  const std::vector<double> p = probabilities(logits.data(), kClasses);
  std::vector<int> order(kClasses);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int one, int other) { return p[one] > p[other]; });
  std::printf("%s shows, with probability:\n", lab::file_name(options.infer).c_str());
  for (int i = 0; i < kShown; ++i)
    std::printf("  %5.1f%%  %s\n", 100 * p[order[i]], class_name(order[i]));
  if (turned) std::printf("Its light background was made dark, as in the training images.\n");
  std::printf("The net has these ten answers alone: it calls anything a garment, even a cat.\n");
  if (!options.json.empty()) {
    json::Value result;
    result["photo"] = options.infer;
    result["checkpoint"] = options.checkpoint;
    for (int i = 0; i < kClasses; ++i)
      result["probabilities"].push_back({{"class", class_name(i)}, {"probability", p[i]}});
    lab::write_file(options.json, result.dump() + "\n");
  }
  return lab::kCorrect;
}

}  // namespace training
