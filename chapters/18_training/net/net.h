// A CvT that runs forward and backward, made of chapter 16's functions (operations/operations.h). All memory is taken
// when it is made; no step takes more, but for what the operations need for themselves.
#pragma once

#include <memory>
#include <vector>

#include "../../../common/lab.cuh"
#include "parameters.h"

namespace training {

class Net {
 public:
  // For up to `most` images at a time. Throws lab::LackError where there is not enough memory.
  Net(const NetShape& shape, int most);
  ~Net();
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;

  const NetShape& shape() const;
  const Layout& layout() const;
  int most() const;

  // Flat arrays as layout() says, and back.
  void set_parameters(const std::vector<float>& values);
  void set_running(const std::vector<float>& values);
  std::vector<float> parameters() const;
  std::vector<float> running() const;
  std::vector<float> gradients() const;
  float* parameters_data();       // on the device
  const float* gradients_data();  // on the device

  // images [batch, size, size, in_channels] on the host. In training BatchNorm takes its statistics
  // from the batch and brings the running ones forward; else it takes the running ones. Returns
  // logits [batch, classes].
  std::vector<float> forward(const std::vector<float>& images, int batch, bool training);
  // Behind a forward in training: mean cross entropy with these labels [batch]; gradients of the
  // logits stay.
  float loss(const std::vector<int>& labels, float smoothing);
  // Behind loss(): the gradients of all parameters.
  void backward();

  // The first array of the last forward pass with a number that is not finite, parameters in front:
  // "stages.1.blocks.0.fc1"; empty: none.
  std::string first_not_finite() const;
  // Bytes that it holds on the device.
  double bytes() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace training
