#include "test_golden.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"

#include "../../../common/json/json.h"
#include "../../../common/lab.cuh"
#include "../../../common/lab/files.h"

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

ConvNormShape shape_of(const json::Value& entry) {
  const json::Value& pads = entry.at("pads");
  return {.batch = entry.at("batch").get<int>(),
          .in_channels = entry.at("in_channels").get<int>(),
          .out_channels = entry.at("out_channels").get<int>(),
          .height = entry.at("height").get<int>(),
          .width = entry.at("width").get<int>(),
          .kernel = entry.at("kernel").get<int>(),
          .stride = entry.at("stride").get<int>(),
          .upsample = entry.at("upsample").get<int>(),
          .pad_top = pads.item(0).get<int>(),
          .pad_left = pads.item(2).get<int>(),
          .pad_bottom = pads.item(1).get<int>(),
          .pad_right = pads.item(3).get<int>(),
          .padding = entry.at("padding").get<std::string>() == "reflect" ? Padding::kReflect
                                                                         : Padding::kZero,
          .eps = float(entry.at("eps").get<double>()),
          .relu = entry.at("relu").get<bool>()};
}

}  // namespace

std::vector<ConvNormCase> conv_norm_golden_cases() {
  const std::string folder = repository_path("data/golden/");
  const json::Value manifest = json::parse(read_file(folder + "conv_norm.json"));
  Values inputs(folder + manifest.at("inputs").at("file").get<std::string>());
  Values outputs(folder + manifest.at("outputs").at("file").get<std::string>());
  std::vector<ConvNormCase> cases;
  for (const json::Value& entry : manifest.at("cases")) {
    ConvNormCase result;
    result.name = entry.at("name").get<std::string>();
    result.values = entry.at("values").get<std::string>();
    const ConvNormShape shape = result.shape = shape_of(entry);
    inputs.take(shape.x_elements(), result.x);
    inputs.take(shape.weight_elements(), result.weight);
    if (entry.at("bias").get<bool>()) inputs.take(shape.out_channels, result.bias);
    inputs.take(shape.out_channels, result.gamma);
    inputs.take(shape.out_channels, result.beta);
    if (entry.at("residual").get<bool>()) inputs.take(shape.y_elements(), result.residual);
    outputs.take(shape.y_elements(), result.conv);
    outputs.take(shape.y_elements(), result.y);
    cases.push_back(std::move(result));
  }
  inputs.require_end();
  outputs.require_end();
  return cases;
}

}  // namespace lab::testing
