// What the tests of the net share.
#pragma once

#include <string>
#include <vector>

#include "../host/run.h"
#include "../host/weights.h"

namespace vision_transformer {

// A file of data/golden; data/golden/make_vit.py made those of the net.
std::string golden(const std::string& name);
// Weights trained by others, not part of the repository: the environment's DEIT_TINY, or beside the
// repository; empty where there are none.
std::string trained_weights();

// The net that PyTorch computed: width 64, 2 heads, 2 blocks, images of 64 pixels.
NetShape narrow_shape(int batch = 2);
Weights narrow_weights();
std::vector<float> narrow_image();  // of batch 2
// PyTorch's result of a component, as a reference calls it: "blocks.0.qkv".
reference::Doubles narrow_expected(const std::string& name);

reference::Doubles in_double(const std::vector<half>& values);
reference::Doubles in_double(const std::vector<float>& values);

// Logits of the reference: exact, and with each number rounded where a device stores it.
struct ReferenceLogits {
  reference::Doubles exact, rounded;
};
ReferenceLogits reference_logits(const std::vector<float>& image, const HostParameters& parameters,
                                 const NetShape& shape);

}  // namespace vision_transformer
