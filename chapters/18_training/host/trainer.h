// Training: schedule, steps, accuracy, checkpoints.
#pragma once

#include <string>
#include <vector>

#include "../net/net.h"
#include "data.h"

namespace training {

// What determines a run: the same settings on the same data and device give the same bits.
struct Settings {
  int steps = 6, batch = 32;
  double rate = 0.003;  // AdamW's, at its highest
  uint64_t seed = 1;
  float decay = 0.05f, smoothing = 0.1f;
  int warm_up = 20;  // steps in which the rate grows evenly; then it falls as half a cosine
  Augmentation augmentation;

  double rate_of(int64_t step) const;  // step from 0
};

// A loss, or a number on the way to it, is not finite. What: step, value, first array with such a
// number.
struct NotFinite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Trainer {
 public:
  Trainer(const NetShape& shape, const Dataset& data, const Settings& settings);

  // The loss of the next step, before it changes the parameters. Throws NotFinite.
  float step();
  // Images of the last step's batch, as augmented, that were read right.
  int right_in_batch() const { return right_; }
  int64_t steps_done() const { return int64_t(losses_.size()); }
  const std::vector<float>& losses() const { return losses_; }
  const Settings& settings() const { return settings_; }
  Net& net() { return net_; }
  const Net& net() const { return net_; }

  // A checkpoint is a safetensors file: parameters and running statistics by name, AdamW's
  // averages, settings, losses, a checksum. An older one stays until the new one is whole.
  void save(const std::string& path) const;
  // Continues where that run was. Throws lab::UsageError for a damaged checkpoint, one of another
  // net, of other data.
  void resume(const std::string& path);

 private:
  const Dataset& data_;
  const uint64_t checksum_;  // data_'s
  Settings settings_;
  Net net_;
  lab::DeviceArray<float> m_, v_;
  std::vector<float> losses_;
  int right_ = 0;
};

// Settings of a checkpoint, as resume() will continue with.
Settings settings_of(const std::string& path);
// A net with a checkpoint's parameters. Throws as Trainer::resume().
void load_parameters(const std::string& path, Net& net);

// Logits of images [count, 28, 28], as many at a time as the net can.
std::vector<float> logits_of(Net& net, const std::vector<float>& images, int count);
// The largest of each row of logits.
std::vector<int> answers(const std::vector<float>& logits, int classes);
// Softmax of one row.
std::vector<double> probabilities(const float* logits, int classes);
int count_right(const std::vector<int>& answered, const std::vector<int>& labels);

// Bounds of an accuracy of `right` in `count`: Wilson's interval, 95 %.
struct Interval {
  double low, high;
};
Interval interval_of(int right, int count);

}  // namespace training
