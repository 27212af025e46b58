// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include <array>

#include "../../../common/testing/newest.h"
#include "../host/reference.h"
#include "../kernels/instances.cuh"

namespace {

using namespace lab::testing;
using namespace fused_conv_norm;

// One of the step's tiles, with one of its strides: all of them take half a minute to compile.
struct SmallTiles {
  using Element = half;
  static std::array<TileName, 1> by_cost(const ConvNormShape&, const DeviceLimits&) {
    return {kHalfSmall};
  }
  template <class Use>
  static void with(TileName, int, const Use& use) {
    use.template operator()<kHalfSmall, 1>();
  }
};

TEST_CASE("chapter 8, one launch in fp16: one problem") {
  const ConvNormShape shape =
      same_padded({.batch = 1, .in_channels = 24, .out_channels = 40, .height = 13, .width = 11});
  const RandomArray<half> x("x", shape.x_elements(), 1),
      residual("residual", shape.y_elements(), 2),
      weight("weight", shape.weight_elements(), 3, 0.1);
  const RandomArray<float> gamma("gamma", shape.out_channels, 4),
      beta("beta", shape.out_channels, 5);
  lab::DeviceArray<half> packed(packed_elements(shape), "packed");
  auto y = unwritten<half>("y", shape.y_elements());
  pack_weights(weight, packed.data(), shape, nullptr);
  REQUIRE(fused_in_one_launch<SmallTiles>(x, packed.data(), gamma, beta, residual, y.data(), shape,
                                          nullptr));
  std::vector<double> expected(shape.y_elements());
  reference::conv_norm(x.wide.data(), weight.wide.data(), nullptr, gamma.wide.data(),
                       beta.wide.data(), residual.wide.data(), shape, expected.data());
  check_written(y, expected, {.atol = 1e-3, .rtol = 2e-3, .relative_l2 = 1e-3});
}

}  // namespace
