// Flags of chapter 18, and the images that they name.
#pragma once

#include <string>

#include "../../../common/lab/program.h"
#include "trainer.h"

namespace training {

constexpr int kMaxSteps = 1'000'000;

struct TrainingOptions : lab::Options {
  Settings settings;
  std::string data, checkpoint, resume, infer;
  int held_out = 500, stop_after = kMaxSteps;
};

// Reads the flags; `about` is the first line of --help. Throws lab::UsageError for flags that are wrong or do
// not go together.
TrainingOptions training_options(int argc, char** argv, const char* about);

// The device, with the look inside begun where it is asked for. Throws lab::LackError for one without tf32.
lab::Device open_device(const TrainingOptions& options);

// The excerpt in data/fashion_mnist, or what --data names. Throws lab::UsageError where a batch has more images than
// there are to train.
Split read_images(const TrainingOptions& options);

// The pictures' paths: "training.png" → "training_misread.png"
std::string misread_path(const std::string& out);

}  // namespace training
