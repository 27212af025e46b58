#include "judge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/tensors.h"
#include "pictures.h"
#include "reference.h"

namespace training {

using lab::format;
using lab::UsageError;

namespace {

constexpr int kGoldenSteps = 20;  // whose losses PyTorch computed
constexpr int kLinearImages =
    60'000;  // that the linear classifier sees, each as often as that needs

std::vector<float> all_pixels(const Dataset& data) {
  std::vector<int> numbers(data.count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return pixels(data, numbers);
}

}  // namespace

lab::Comparison compare_losses(const TrainingOptions& options, const Trainer& trainer) {
  const Settings &run = trainer.settings(), usual;
  if (!options.data.empty() || run.seed != usual.seed || run.batch != usual.batch ||
      run.rate != usual.rate || run.warm_up != usual.warm_up)
    return lab::Comparison::none();
  const lab::Array golden = lab::read_npy(lab::repository_path("data/golden/cvt_losses.npy"));
  if (golden.values.size() < 4 * kGoldenSteps)
    throw UsageError(format("data/golden/cvt_losses.npy has %zu numbers, must have 4 rows of %d",
                            golden.values.size(), int(kGoldenSteps)));
  const size_t count = std::min<size_t>(kGoldenSteps, trainer.losses().size());
  const auto loss = [&](size_t row, size_t step) {
    return golden.values[row * kGoldenSteps + step];
  };
  std::vector<double> expected;
  lab::Tolerance tolerance;
  for (size_t i = 0; i < count; ++i) {
    expected.push_back(loss(0, i));
    for (const size_t row : {2, 3})
      tolerance.atol = std::max(tolerance.atol, 4 * std::abs(loss(row, i) - loss(0, i)));
  }
  tolerance.relative_l2 = tolerance.atol / *std::min_element(expected.begin(), expected.end());
  const std::vector<float> got(trainer.losses().begin(), trainer.losses().begin() + int64_t(count));
  return lab::compare(got, expected, tolerance, {int64_t(count)});
}

int right_answers(Net& net, const Dataset& data) {
  return count_right(answers(logits_of(net, all_pixels(data), data.count), net.shape().classes),
                     data.labels);
}

Linear best_linear(const Split& split) {
  const Dataset &training = split.training, &held_out = split.held_out;
  const std::vector<float> images = all_pixels(training), others = all_pixels(held_out);
  const int passes = std::max(1, kLinearImages / training.count);
  Linear best;
  for (const double decay : {0.01, 0.03, 0.1, 0.3}) {
    const std::vector<float> weights =
        train_linear(images, training.labels, kClasses, passes, decay);
    const int right =
        count_right(linear_answers(weights, others, held_out.count, kClasses), held_out.labels);
    if (right > best.right) best = {right, decay};
  }
  return best;
}

int judge_held_out(const TrainingOptions& options, Net& net, const Dataset& data) {
  const std::vector<float> logits = logits_of(net, all_pixels(data), data.count);
  const int classes = net.shape().classes;
  const std::vector<int> answered = answers(logits, classes);
  std::vector<Misread> misread;
  for (int i = 0; i < data.count; ++i)
    if (answered[i] != data.labels[i])
      misread.push_back(
          {i, data.labels[i], answered[i],
           probabilities(&logits[size_t(i) * size_t(classes)], classes)[answered[i]]});
  std::stable_sort(misread.begin(), misread.end(), [](const Misread& one, const Misread& other) {
    return one.probability > other.probability;
  });
  const std::string shown = misread.size() > 24 ? ", the 24 most certain:" : ":";
  lab::save_image(
      misread_path(options.out),
      misread_sheet(data, misread,
                    format("%zu of %d held-out images misread", misread.size(), data.count) +
                        (misread.empty() ? "" : shown)));
  return data.count - int(misread.size());
}

}  // namespace training
