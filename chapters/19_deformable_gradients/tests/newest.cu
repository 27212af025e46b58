// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/testing/newest.h"
#include "../4_sorted.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;

TEST_CASE("chapter 19, sorted: one problem") {
  const DeformableShape shape{2, 13, 3, 16, 2, 4, {{5, 4}, {1, 3}}};
  const RandomArray<half> value("value", shape.value_elements(), 1),
      locations("locations", 2 * shape.samples(), 2, 0.5), weights("weights", shape.samples(), 3),
      grad_out("grad_out", shape.out_elements(), 4);
  const reference::DeformableGradients expected = reference::deformable_gradients(
      value.wide.data(), locations.wide.data(), weights.wide.data(), grad_out.wide.data(), shape);
  auto grad_value = unwritten<float>("grad_value", shape.value_elements()),
       grad_locations = unwritten<float>("grad_locations", 2 * shape.samples()),
       grad_weights = unwritten<float>("grad_weights", shape.samples());
  deformable_gradients::sorted(value, locations, weights, grad_out, grad_value.data(),
                               grad_locations.data(), grad_weights.data(), shape, nullptr);
  const lab::Tolerance tolerance{.atol = 1e-4, .rtol = 1e-4, .relative_l2 = 1e-5};
  check_written(grad_value, expected.value, tolerance);
  check_written(grad_locations, expected.locations, tolerance);
  check_written(grad_weights, expected.weights, tolerance);
}

}  // namespace
