// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/testing/newest.h"
#include "../4_deterministic.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;

TEST_CASE("chapter 15, deterministic: one problem") {
  const AttentionShape shape{.heads = 2, .tokens = 83};
  const RandomArray<half> Q("Q", shape.elements(), 1), K("K", shape.elements(), 2),
      V("V", shape.elements(), 3), dO("dO", shape.elements(), 4);
  std::vector<double> dQ(shape.elements()), dK(dQ), dV(dQ), O(dQ), log_sum_exp(shape.rows());
  reference::attention_gradients(Q.wide.data(), K.wide.data(), V.wide.data(), dO.wide.data(), shape,
                                 {dQ.data(), dK.data(), dV.data(), O.data(), log_sum_exp.data(),
                                  nullptr, nullptr, nullptr, nullptr, nullptr});
  const lab::DeviceArray<half> kept_O({O.begin(), O.end()}, "O");
  const lab::DeviceArray<float> kept_sums({log_sum_exp.begin(), log_sum_exp.end()}, "log_sum_exp");
  auto got_dQ = unwritten<half>("dQ", shape.elements()),
       got_dK = unwritten<half>("dK", shape.elements()),
       got_dV = unwritten<half>("dV", shape.elements());
  lab::DeviceArray<float> workspace(gradients::dots_workspace(shape), "workspace");
  const GradientPointers pointers{Q,
                                  K,
                                  V,
                                  kept_O.data(),
                                  dO,
                                  kept_sums.data(),
                                  got_dQ.data(),
                                  got_dK.data(),
                                  got_dV.data(),
                                  workspace.data()};
  gradients::only_dots(pointers, shape, nullptr);
  gradients::columns_alone(pointers, shape, nullptr);
  gradients::rows(pointers, shape, nullptr);
  const lab::Tolerance tolerance{.atol = 4e-3, .rtol = 4e-3, .relative_l2 = 2e-3};
  check_written(got_dQ, dQ, tolerance);
  check_written(got_dK, dK, tolerance);
  check_written(got_dV, dV, tolerance);
}

}  // namespace
