#include "parameters.h"

#include <cmath>
#include <stdexcept>

#include "../../../common/lab/random.h"

namespace training {
namespace {

using Start = Parameter::Start;

// Parameters as they come; sorted into decayed and others later.
class Lister {
 public:
  void weight(const std::string& name, std::vector<int64_t> shape) {
    all.push_back({name, std::move(shape), 0, Start::kUniform});
  }
  void linear(const std::string& name, int in, int out) {
    weight(name + ".weight", {out, in});
    all.push_back({name + ".bias", {out}, 0, Start::kZeros});
  }
  void norm(const std::string& name, int channels) {
    all.push_back({name + ".weight", {channels}, 0, Start::kOnes});
    all.push_back({name + ".bias", {channels}, 0, Start::kZeros});
  }
  void block(const std::string& name, int width, int hidden) {
    norm(name + ".norm1", width);
    for (const char* which : {".query", ".key", ".value"}) {
      weight(name + which + ".conv.weight", {width, 3, 3});
      norm(name + which + ".bn", width);
      running.push_back({name + which + ".bn.running_mean", {width}, 0, Start::kZeros});
      running.push_back({name + which + ".bn.running_var", {width}, 0, Start::kOnes});
      linear(name + which + ".linear", width, width);
    }
    linear(name + ".out", width, width);
    norm(name + ".norm2", width);
    linear(name + ".fc1", width, hidden);
    linear(name + ".fc2", hidden, width);
  }

  std::vector<Parameter> all, running;
};

int64_t place(Parameter& parameter, int64_t at) {
  parameter.first = at;
  return at + (parameter.count() + 3) / 4 * 4;
}

int64_t find(const std::vector<Parameter>& list, const std::string& name) {
  for (const Parameter& one : list)
    if (one.name == name) return one.first;
  throw std::logic_error("the net has no parameter " + name);
}

std::vector<float> filled(const std::vector<Parameter>& list, int64_t size, uint64_t seed) {
  std::vector<float> values(size, 0.0f);
  for (size_t p = 0; p < list.size(); ++p) {
    const Parameter& one = list[p];
    float* out = values.data() + one.first;
    if (one.start == Start::kOnes)
      for (int64_t i = 0; i < one.count(); ++i) out[i] = 1;
    if (one.start != Start::kUniform && one.start != Start::kClassToken) continue;
    // Products, a division and a square root: all rounded alike everywhere.
    const double inputs = double(one.count()) / double(one.shape[0]);
    const double most = one.start == Start::kClassToken ? 0.03 : 1 / std::sqrt(inputs);
    for (int64_t i = 0; i < one.count(); ++i)
      out[i] = float((2 * lab::uniform(seed * 4096 + p, uint64_t(i)) - 1) * most);
  }
  return values;
}

}  // namespace

std::string describe(const NetShape& shape) {
  std::string widths, blocks;
  for (const StageShape& stage : shape.stages) {
    widths += (widths.empty() ? "" : ", ") + std::to_string(stage.width);
    blocks += (blocks.empty() ? "" : ", ") + std::to_string(stage.blocks);
  }
  const std::string size = std::to_string(shape.size);
  return size + " x " + size + " pixels, stages of " + widths + " channels and " + blocks +
         " blocks";
}

void require_net_shape(const NetShape& shape) {
  const auto require = [](bool ok, const std::string& where, const std::string& what) {
    if (!ok) throw std::invalid_argument("CvT" + where + ": " + what);
  };
  const auto text = [](int value) { return std::to_string(value); };
  require(shape.size >= 1 && shape.in_channels >= 1, "",
          text(shape.size) + " pixels a side of " + text(shape.in_channels) +
              " channels: both must be at least 1");
  require(shape.classes >= 2, "", text(shape.classes) + " classes, must be at least 2");
  require(shape.mlp_ratio >= 1, "",
          text(shape.mlp_ratio) + " hidden values of the MLP a channel, must be at least 1");
  for (int i = 0; i < kStages; ++i) {
    const StageShape& stage = shape.stages[i];
    const std::string where = ", stage " + text(i);
    require(stage.kernel >= 1 && stage.kernel <= 16, where,
            "an embedding's kernel of " + text(stage.kernel) + ", must be 1 to 16");
    require(stage.stride >= 1 && stage.stride <= 16, where,
            "an embedding's stride of " + text(stage.stride) + ", must be 1 to 16");
    require(stage.padding >= 0 && stage.padding < stage.kernel, where,
            "an embedding's padding of " + text(stage.padding) + ", must be 0 to " +
                text(stage.kernel - 1) + ", below its kernel");
    require(shape.side(i - 1) + 2 * stage.padding >= stage.kernel, where,
            "a map of " + text(shape.side(i - 1)) +
                " pixels a side is smaller than the embedding's kernel of " + text(stage.kernel));
    const int head_dim =
        stage.heads < 1 || stage.width % stage.heads != 0 ? 0 : stage.width / stage.heads;
    require(head_dim == 16 || head_dim == 32 || head_dim == 64, where,
            "width " + text(stage.width) + " with " + text(stage.heads) +
                " heads: a head must have 16, 32 or 64 channels");
    require(stage.width <= 1024, where,
            "width " + text(stage.width) + ", must be at most 1024, the LayerNorm's limit");
    require(stage.blocks >= 1, where, text(stage.blocks) + " blocks, must be at least 1");
  }
}

int64_t Layout::of(const std::string& name) const { return find(parameters, name); }
int64_t Layout::running_of(const std::string& name) const { return find(running, name); }

Layout layout_of(const NetShape& shape) {
  require_net_shape(shape);
  Lister lister;
  for (int i = 0; i < kStages; ++i) {
    const StageShape& stage = shape.stages[i];
    const std::string name = "stages." + std::to_string(i);
    lister.weight(name + ".embed.weight",
                  {stage.width, shape.channels_into(i), stage.kernel, stage.kernel});
    lister.all.push_back({name + ".embed.bias", {stage.width}, 0, Start::kZeros});
    lister.norm(name + ".norm", stage.width);
    for (int b = 0; b < stage.blocks; ++b)
      lister.block(name + ".blocks." + std::to_string(b), stage.width, shape.hidden(i));
  }
  const int width = shape.stages.back().width;
  lister.all.push_back({"class_token", {width}, 0, Start::kClassToken});
  lister.norm("norm", width);
  lister.linear("head", width, shape.classes);

  Layout layout;
  for (const bool decayed : {true, false}) {
    for (const Parameter& one : lister.all)
      if ((one.start == Start::kUniform) == decayed) layout.parameters.push_back(one);
    for (Parameter& one : layout.parameters)
      if ((one.start == Start::kUniform) == decayed) layout.size = place(one, layout.size);
    if (decayed) layout.decayed = layout.size;
  }
  for (const Parameter& one : layout.parameters) layout.numbers += one.count();
  layout.running = lister.running;
  for (Parameter& one : layout.running) layout.running_size = place(one, layout.running_size);
  return layout;
}

std::vector<float> first_values(const Layout& layout, uint64_t seed) {
  return filled(layout.parameters, layout.size, seed);
}

std::vector<float> first_running(const Layout& layout) {
  return filled(layout.running, layout.running_size, 0);
}

}  // namespace training
