// What the net is compared with: a linear classifier of pixels, on the CPU.
#pragma once

#include <vector>

namespace training {

// Softmax regression of images [count, pixels] with labels [count] by stochastic gradients with
// momentum, in batches of 20: as many draws as in `passes` over the images, a rate that falls to 0.
// decay: L2's factor on the weights. Returns weights [classes, pixels + 1], the bias last.
std::vector<float> train_linear(const std::vector<float>& images, const std::vector<int>& labels,
                                int classes, int passes, double decay);
// The class with the largest value for each image.
std::vector<int> linear_answers(const std::vector<float>& weights, const std::vector<float>& images,
                                int count, int classes);

}  // namespace training
