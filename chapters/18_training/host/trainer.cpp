#include "trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/tensors.h"
#include "../../16_cvt/operations/operations.h"

namespace training {

using lab::format;
using lab::UsageError;

double Settings::rate_of(int64_t step) const {
  if (step < warm_up) return rate * double(step + 1) / warm_up;
  const double rest = std::max(1, steps - warm_up);
  return rate * 0.5 * (1 + std::cos(std::numbers::pi * double(step - warm_up) / rest));
}

Trainer::Trainer(const NetShape& shape, const Dataset& data, const Settings& settings)
    : data_(data),
      checksum_(checksum(data)),
      settings_(settings),
      net_(shape, settings.batch),
      m_(net_.layout().size, "AdamW's m"),
      v_(net_.layout().size, "AdamW's v") {
  net_.set_parameters(first_values(net_.layout(), settings.seed));
  net_.set_running(first_running(net_.layout()));
  m_.upload(std::vector<float>(m_.size()));
  v_.upload(std::vector<float>(v_.size()));
}

float Trainer::step() {
  const int64_t number = steps_done();
  const std::vector<int> images = batch_of_step(data_, settings_.batch, number, settings_.seed);
  std::vector<int> labels;
  for (const int image : images) labels.push_back(data_.labels[image]);
  const std::vector<int> answered =
      answers(net_.forward(augmented(data_, images, settings_.augmentation, number, settings_.seed),
                           settings_.batch, true),
              net_.shape().classes);
  right_ = count_right(answered, labels);
  const float loss = net_.loss(labels, settings_.smoothing);
  if (!std::isfinite(loss)) {
    const std::string where = net_.first_not_finite();
    throw NotFinite(
        format("step %lld: the loss is %g; the first array with such a number is %s; a "
               "smaller --lr than %g may help",
               static_cast<long long>(number + 1), double(loss),
               where.empty() ? "the loss itself" : where.c_str(), settings_.rate));
  }
  net_.backward();
  cvt::AdamW options{.rate = float(settings_.rate_of(number)), .decay = settings_.decay};
  const int64_t decayed = net_.layout().decayed;
  const float* gradients = net_.gradients_data();
  cvt::adamw(net_.parameters_data(), gradients, m_.data(), v_.data(), decayed, int(number) + 1,
             options, nullptr);
  options.decay = 0;
  cvt::adamw(net_.parameters_data() + decayed, gradients + decayed, m_.data() + decayed,
             v_.data() + decayed, net_.layout().size - decayed, int(number) + 1, options, nullptr);
  losses_.push_back(loss);
  return loss;
}

// ---- Checkpoints --------------------------------------------------------------------------------

namespace {

// 64 bits in four numbers that fp32 holds exactly.
void append_bits(std::vector<float>& values, uint64_t bits) {
  for (int i = 0; i < 4; ++i) values.push_back(float(bits >> (16 * i) & 0xffff));
}
uint64_t bits_at(const std::vector<float>& values, size_t at) {
  uint64_t bits = 0;
  for (size_t i = 0; i < 4; ++i) bits |= uint64_t(values[at + i]) << (16 * i);
  return bits;
}

uint64_t double_bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
double bits_double(uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr size_t kConfigNumbers = 6 * 4;

std::vector<float> config_of(const Settings& settings, uint64_t data) {
  std::vector<float> config;
  for (const uint64_t bits : {uint64_t(settings.steps), uint64_t(settings.batch), settings.seed,
                              data, double_bits(settings.rate), uint64_t(settings.warm_up)})
    append_bits(config, bits);
  return config;
}

uint64_t hash_of(const std::vector<lab::NamedTensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const auto& [name, tensor] : tensors)
    for (const float value : tensor.values) {
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      for (int i = 0; i < 4; ++i) hash = (hash ^ (bits >> (8 * i) & 0xff)) * 0x100000001b3;
    }
  return hash;
}

const std::vector<std::string> kFlat = {"adamw.m", "adamw.v", "config", "losses"};

// All but the checksum, in a fixed order: parameters, running statistics, kFlat.
struct Checkpoint {
  std::vector<float> parameters, running, m, v, config, losses;
  Settings settings;
  uint64_t data = 0;
};

std::vector<lab::NamedTensor> tensors_of(const Checkpoint& checkpoint, const Layout& layout) {
  std::vector<lab::NamedTensor> tensors;
  const auto add = [&](const std::vector<Parameter>& list, const std::vector<float>& values) {
    for (const Parameter& one : list) {
      const auto first = values.begin() + one.first;
      tensors.push_back({one.name, {one.shape, {first, first + one.count()}, "F32"}});
    }
  };
  add(layout.parameters, checkpoint.parameters);
  add(layout.running, checkpoint.running);
  const std::vector<float>* const flat[] = {&checkpoint.m, &checkpoint.v, &checkpoint.config,
                                            &checkpoint.losses};
  for (size_t i = 0; i < kFlat.size(); ++i)
    tensors.push_back({kFlat[i], {{int64_t(flat[i]->size())}, *flat[i], "F32"}});
  return tensors;
}

void read_config(const std::string& path, const lab::Tensor& config, Checkpoint& checkpoint) {
  bool whole = config.values.size() == kConfigNumbers;
  for (const float value : config.values)
    whole = whole && value >= 0 && value < 65536 && value == std::floor(value);
  if (!whole)
    throw UsageError(path + ": 'config' is not one of this chapter's checkpoints: damaged?");
  checkpoint.config = config.values;
  Settings& settings = checkpoint.settings;
  settings.steps = int(bits_at(config.values, 0));
  settings.batch = int(bits_at(config.values, 4));
  settings.seed = bits_at(config.values, 8);
  checkpoint.data = bits_at(config.values, 12);
  settings.rate = bits_double(bits_at(config.values, 16));
  settings.warm_up = int(bits_at(config.values, 20));
}

Checkpoint read_checkpoint(const std::string& path, const Layout& layout) {
  std::vector<const Parameter*> wanted;
  std::vector<std::string> names;
  for (const auto* list : {&layout.parameters, &layout.running})
    for (const Parameter& one : *list) wanted.push_back(&one), names.push_back(one.name);
  names.insert(names.end(), kFlat.begin(), kFlat.end());
  names.push_back("checksum");
  const std::vector<lab::Tensor> tensors = lab::read_safetensors(path, names);
  const auto flat = [&](size_t i) -> const lab::Tensor& { return tensors[wanted.size() + i]; };
  Checkpoint result;
  result.parameters.resize(layout.size);
  result.running.resize(layout.running_size);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (tensors[i].shape != wanted[i]->shape)
      throw UsageError(path + ": a checkpoint of another net: " + names[i] + " is " +
                       lab::shape_text(tensors[i].shape) + ", must be " +
                       lab::shape_text(wanted[i]->shape));
    std::vector<float>& target = i < layout.parameters.size() ? result.parameters : result.running;
    std::copy(tensors[i].values.begin(), tensors[i].values.end(),
              target.begin() + wanted[i]->first);
  }
  result.m = flat(0).values, result.v = flat(1).values, result.losses = flat(3).values;
  for (size_t i = 0; i < 2; ++i)
    if (flat(i).values.size() != size_t(layout.size))
      throw UsageError(format("%s: a checkpoint of another net: %s has %zu values, must have %lld",
                              path.c_str(), kFlat[i].c_str(), flat(i).values.size(),
                              static_cast<long long>(layout.size)));
  read_config(path, flat(2), result);
  std::vector<float> checksum;
  append_bits(checksum, hash_of(tensors_of(result, layout)));
  if (flat(4).values != checksum)
    throw UsageError(path + ": is damaged: its numbers are not those of its checksum");
  return result;
}

}  // namespace

void Trainer::save(const std::string& path) const {
  Checkpoint checkpoint;
  checkpoint.parameters = net_.parameters(), checkpoint.running = net_.running();
  checkpoint.m = m_.download(), checkpoint.v = v_.download();
  checkpoint.losses = losses_;
  for (const auto* all :
       {&checkpoint.parameters, &checkpoint.running, &checkpoint.m, &checkpoint.v})
    for (const float value : *all)
      if (!std::isfinite(value))
        throw NotFinite(format(
            "behind step %lld a parameter, running statistic or average of AdamW is %g, so "
            "%s is not written; a smaller --lr than %g may help",
            static_cast<long long>(steps_done()), double(value), path.c_str(), settings_.rate));
  checkpoint.config = config_of(settings_, checksum_);
  std::vector<lab::NamedTensor> tensors = tensors_of(checkpoint, net_.layout());
  std::vector<float> hash;
  append_bits(hash, hash_of(tensors));
  tensors.push_back({"checksum", {{int64_t(hash.size())}, hash, "F32"}});
  lab::write_safetensors(path, tensors);
}

void Trainer::resume(const std::string& path) {
  const Checkpoint checkpoint = read_checkpoint(path, net_.layout());
  if (checkpoint.data != checksum_)
    throw UsageError(
        format("%s: was trained on other images (checksum %016llx, these have %016llx); --data "
               "names their folder",
               path.c_str(), static_cast<unsigned long long>(checkpoint.data),
               static_cast<unsigned long long>(checksum_)));
  if (checkpoint.settings.batch != settings_.batch)
    throw UsageError(format("%s: was trained with a batch of %d, not %d", path.c_str(),
                            checkpoint.settings.batch, settings_.batch));
  Settings settings = checkpoint.settings;  // what the file does not hold stays as it was
  settings.decay = settings_.decay, settings.smoothing = settings_.smoothing;
  settings.augmentation = settings_.augmentation;
  settings_ = settings;
  net_.set_parameters(checkpoint.parameters);
  net_.set_running(checkpoint.running);
  m_.upload(checkpoint.m), v_.upload(checkpoint.v);
  losses_ = checkpoint.losses;
}

Settings settings_of(const std::string& path) {
  Checkpoint checkpoint;
  read_config(path, lab::read_safetensors(path, {"config"})[0], checkpoint);
  return checkpoint.settings;
}

void load_parameters(const std::string& path, Net& net) {
  const Checkpoint checkpoint = read_checkpoint(path, net.layout());
  net.set_parameters(checkpoint.parameters);
  net.set_running(checkpoint.running);
}

// ---- Answers ------------------------------------------------------------------------------------

std::vector<float> logits_of(Net& net, const std::vector<float>& images, int count) {
  const int64_t pixels = int64_t(images.size()) / count;
  std::vector<float> result;
  for (int first = 0; first < count; first += net.most()) {
    const int batch = std::min(net.most(), count - first);
    const auto begin = images.begin() + first * pixels;
    const std::vector<float> part = net.forward({begin, begin + batch * pixels}, batch, false);
    for (const float value : part)
      if (!std::isfinite(value))
        throw NotFinite(format("a logit is %g; the first array with such a number is %s",
                               double(value), net.first_not_finite().c_str()));
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

std::vector<int> answers(const std::vector<float>& logits, int classes) {
  std::vector<int> result;
  for (auto row = logits.begin(); row != logits.end(); row += classes)
    result.push_back(int(std::max_element(row, row + classes) - row));
  return result;
}

std::vector<double> probabilities(const float* logits, int classes) {
  std::vector<double> p(logits, logits + classes);
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - most);
  for (double& value : p) value /= sum;
  return p;
}

int count_right(const std::vector<int>& answered, const std::vector<int>& labels) {
  int right = 0;
  for (size_t i = 0; i < labels.size(); ++i) right += answered[i] == labels[i];
  return right;
}

Interval interval_of(int right, int count) {
  constexpr double z = 1.96;
  const double p = double(right) / count, n = count, centre = p + z * z / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n)), whole = 1 + z * z / n;
  return {(centre - half) / whole, (centre + half) / whole};
}

}  // namespace training
