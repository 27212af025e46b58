// A net's weights, the photo that it sees, and what the whole net should say of it.
#pragma once

#include <string>
#include <vector>

#include "../../../common/lab.cuh"
#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "options.h"
#include "reference.h"
#include "weights.h"

namespace vision_transformer {

struct NetProblem {
  NetShape shape;
  Weights weights;
  std::vector<std::string> labels;  // empty: not known
  lab::Image photo;                 // as the net sees it
  std::vector<float> image;         // [batch, 3, size, size], rounded to fp16
};

// The trained net, or the shape of a random one; labels; the photo. Throws lab::UsageError naming file or
// flag.
NetProblem net_problem(const NetOptions& options);
// Throws lab::LackError where there is not enough memory for weights, arrays and references, before
// anything is taken.
void require_net_memory(const NetOptions& options, const NetProblem& problem,
                        const lab::Device& device);
// The numbers for which there must be memory: random weights, and the images of the batch.
void fill(NetProblem& problem, const NetOptions& options);

// What the reference computes of the whole net; nothing with --predict.
struct ExpectedLogits {
  reference::Doubles logits;  // [batch, classes]
  lab::Tolerance tolerance;
};
ExpectedLogits expected_logits(const NetProblem& problem);
// Where nothing is expected, nothing is compared.
lab::Comparison compare_logits(const std::vector<half>& logits, const ExpectedLogits& expected,
                               const NetShape& shape);

}  // namespace vision_transformer
