// What the flags of chapter 20 say, and the network and the photo that they name.
#pragma once

#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "network.h"

namespace lab {

struct StyleOptions : Options {
  std::string network;   // the file; empty: random weights
  std::string step;      // a step of chapter 8; empty: fused
  bool squared = false;  // the photo, to `size`
};

// Throws UsageError; for --help prints the help, which begins with `about`, and exits with 0.
StyleOptions style_options(int argc, char** argv, const char* about);

// The file's network, or one with random weights. Throws UsageError for what is wrong with the file.
std::vector<StyleLayer> chosen_network(const StyleOptions& options);
// The photo as it is, or the largest square of its middle at `size`.
Image style_photo(const StyleOptions& options);
// style_stages() on the photo. Throws UsageError where it has too many pixels.
std::vector<StyleStage> style_stages(const std::vector<StyleLayer>& network, const Image& photo);

// Elements of the arrays that all layers share.
struct SharedArrays {
  int64_t elements = 1;  // the larger one of x and y
  int64_t between = 1;   // between the two layers of a residual block
};
// Throws LackError, before anything is taken, where device or host have not enough memory.
SharedArrays arrays_in_memory(const Device& device, const std::vector<StyleLayer>& network,
                              const std::vector<StyleStage>& stages, const Image& photo);

}  // namespace lab
