// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include <numeric>

#include "../../../common/testing/newest.h"
#include "../5_epilogue.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;

TEST_CASE("chapter 11, epilogue: one problem") {
  const mlp::Shape shape{.m = 77, .n = 88, .k = 136, .gelu = false};
  const RandomArray<half> x("x", int64_t(shape.m) * shape.k, 1),
      weight("weight", int64_t(shape.n) * shape.k, 2, 0.1), bias("bias", shape.n, 3),
      residual("residual", int64_t(shape.m) * shape.n, 4);
  auto y = unwritten<half>("y", int64_t(shape.m) * shape.n);
  mlp::launch_epilogue<half, mlp::SmallTile>(x, weight, bias, residual, y.data(), shape, nullptr);
  std::vector<int> rows(shape.m);
  std::iota(rows.begin(), rows.end(), 0);
  check_written(
      y,
      reference::product(
          {x.wide.data(), weight.wide.data(), bias.wide.data(), residual.wide.data()}, shape, rows),
      {.atol = 1e-3, .rtol = 2e-3, .relative_l2 = 1e-3});
}

}  // namespace
