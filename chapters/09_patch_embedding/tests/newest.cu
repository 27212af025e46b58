// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/testing/newest.h"
#include "../6_one_product.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;

TEST_CASE("chapter 9, one product: one problem") {
  const patch_embedding::Shape shape{.batch = 2, .height = 80, .width = 48, .channels = 72};
  const RandomArray<half> image("image", shape.image_values(), 1),
      weight("weight", shape.weight_values(), 2, 0.05), bias("bias", shape.channels, 3),
      class_token("class_token", shape.channels, 4),
      position("position", int64_t(shape.rows()) * shape.channels, 5);
  auto tokens = unwritten<half>("tokens", shape.token_values());
  patch_embedding::embed(image, weight, bias, class_token, position, tokens.data(), shape, nullptr);
  std::vector<double> expected(shape.token_values());
  reference::patch_embedding(image.wide.data(), weight.wide.data(), bias.wide.data(),
                             class_token.wide.data(), position.wide.data(), shape, whole(shape),
                             expected.data());
  check_written(tokens, expected, {.atol = 1e-3, .rtol = 2e-3, .relative_l2 = 1e-3});
}

}  // namespace
