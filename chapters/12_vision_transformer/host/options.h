// What the flags of chapter 12 say.
#pragma once

#include <string>

#include "../../../common/lab/program.h"
#include "../components.h"

namespace vision_transformer {

struct NetOptions : lab::Options {
  std::string model, weights, labels;
  Components components;
  int block = -1;  // whose attention is drawn; -1: the last
  bool graph = false;

  // One layer of attention in fp32 instead of the net, with q, k and v inside its kernel and apart.
  bool projection = false;
  int tokens = 256, width = 256, heads = 4;
  bool no_bias = false, sizes = false;
};

// Throws lab::UsageError; for --help prints the help, which begins with `about`, and exits with 0.
NetOptions net_options(int argc, char** argv, const char* about);

}  // namespace vision_transformer
