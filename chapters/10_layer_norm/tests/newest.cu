// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/testing/newest.h"
#include "../7_backward.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;

std::vector<double> doubles(const RandomArray<half>& array) {
  return {array.wide.begin(), array.wide.end()};
}

TEST_CASE("chapter 10, the gradient of x: one problem") {
  const layer_norm::Shape shape{.rows = 13, .columns = 200};
  const RandomArray<half> dy("dy", shape.elements(), 1), x("x", shape.elements(), 2),
      scale("scale", shape.columns, 3);
  auto dx = unwritten<half>("dx", shape.elements());
  lab::DeviceArray<LayerNormMoments> moments(shape.rows, "moments");
  layer_norm::backward_dx<half>(dy, x, scale, dx.data(), moments.data(), shape, nullptr);
  std::vector<double> expected(shape.elements()), of_scale(shape.columns), of_bias(shape.columns);
  reference::layer_norm_backward(doubles(dy).data(), doubles(x).data(), doubles(scale).data(),
                                 shape, expected.data(), of_scale.data(), of_bias.data());
  check_written(dx, expected, {.atol = 1e-3, .rtol = 2e-3, .relative_l2 = 1e-3});
}

}  // namespace
