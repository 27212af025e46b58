#include "test_golden.h"
#include "../../common/lab/errors.h"
#include "../../common/lab/program.h"
#include "../../common/lab/tensors.h"

#include <nlohmann/json.hpp>

#include "../../common/lab.cuh"
#include "../../common/lab/files.h"

namespace lab::testing {
namespace {

// Hands out a file's values one piece after the other.
class Values {
 public:
  explicit Values(const std::string& path) : path_(path), array_(read_npy(path)) {}
  template <class T>
  void take(int64_t count, std::vector<T>& to) {
    if (count > int64_t(array_.values.size()) - at_)
      throw UsageError(path_ + ": the manifest lists more values than it has");
    to.assign(array_.values.begin() + at_, array_.values.begin() + at_ + count);
    at_ += count;
  }
  void require_end() const {
    if (at_ != int64_t(array_.values.size()))
      throw UsageError(path_ + ": the manifest lists fewer values than it has");
  }

 private:
  std::string path_;
  Array array_;
  int64_t at_ = 0;
};

ConvNormShape shape_of(const nlohmann::json& entry) {
  const auto& pads = entry.at("pads");
  return {.batch = entry.at("batch"),
          .in_channels = entry.at("in_channels"),
          .out_channels = entry.at("out_channels"),
          .height = entry.at("height"),
          .width = entry.at("width"),
          .kernel = entry.at("kernel"),
          .stride = entry.at("stride"),
          .upsample = entry.at("upsample"),
          .pad_top = pads.at(0),
          .pad_left = pads.at(2),
          .pad_bottom = pads.at(1),
          .pad_right = pads.at(3),
          .padding = entry.at("padding") == "reflect" ? Padding::kReflect : Padding::kZero,
          .eps = entry.at("eps"),
          .relu = entry.at("relu")};
}

}  // namespace

std::vector<ConvNormCase> conv_norm_golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const auto manifest = nlohmann::json::parse(read_file(folder + "conv_norm.json"));
  Values inputs(folder + manifest.at("inputs").at("file").get<std::string>());
  Values outputs(folder + manifest.at("outputs").at("file").get<std::string>());
  std::vector<ConvNormCase> cases;
  for (const auto& entry : manifest.at("cases")) {
    ConvNormCase result;
    result.name = entry.at("name");
    result.values = entry.at("values");
    const ConvNormShape shape = result.shape = shape_of(entry);
    inputs.take(shape.x_elements(), result.x);
    inputs.take(shape.weight_elements(), result.weight);
    if (entry.at("bias")) inputs.take(shape.out_channels, result.bias);
    inputs.take(shape.out_channels, result.gamma);
    inputs.take(shape.out_channels, result.beta);
    if (entry.at("residual")) inputs.take(shape.y_elements(), result.residual);
    outputs.take(shape.y_elements(), result.conv);
    outputs.take(shape.y_elements(), result.y);
    cases.push_back(std::move(result));
  }
  inputs.require_end();
  outputs.require_end();
  return cases;
}

}  // namespace lab::testing
