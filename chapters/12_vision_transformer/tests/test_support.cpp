#include "test_support.h"

#include <unistd.h>

#include <cstdlib>

#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"

namespace vision_transformer {

std::string golden(const std::string& name) { return lab::repository_path("data/golden/" + name); }

std::string trained_weights() {
  const char* path = std::getenv("DEIT_TINY");
  const std::string file =
      path
          ? path
          : lab::repository_path("../shared/data/deit_tiny/deit_tiny_patch16_224_fp16.safetensors");
  return access(file.c_str(), R_OK) == 0 ? file : "";
}

NetShape narrow_shape(int batch) {
  return {.batch = batch, .size = 64, .width = 64, .heads = 2, .blocks = 2, .classes = 10};
}

Weights narrow_weights() {
  return read_weights(golden("vit_narrow.safetensors"), narrow_shape(1), "narrow");
}

std::vector<float> narrow_image() {
  const lab::Array array = lab::read_npy(golden("vit_narrow_image.npy"));
  return {array.values.begin(), array.values.end()};
}

reference::Doubles narrow_expected(const std::string& name) {
  return lab::read_npy(golden("vit_narrow_" + name + ".npy")).values;
}

reference::Doubles in_double(const std::vector<half>& values) {
  reference::Doubles result;
  for (const half value : values) result.push_back(__half2float(value));
  return result;
}
reference::Doubles in_double(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

ReferenceLogits reference_logits(const std::vector<float>& image, const HostParameters& parameters,
                                 const NetShape& shape) {
  const reference::Doubles x = in_double(image);
  return {
      reference::net(x, parameters, shape, nullptr, {}),
      reference::net(x, parameters, shape, static_cast<reference::Rounding>(rounded_to_fp16), {})};
}

}  // namespace vision_transformer
