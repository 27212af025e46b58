// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include "../../../common/testing/newest.h"
#include "../2_epilogue.cuh"
#include "../host/reference.h"

namespace {

using namespace lab::testing;
using namespace vision_transformer;
namespace reference = vision_transformer::reference;

TEST_CASE("chapter 12, q, k and v of one product: one problem") {
  const HeadsShape heads{.batch = 2, .tokens = 29, .heads = 2, .head_dim = 32};
  const int width = heads.heads * heads.head_dim, rows = heads.batch * heads.tokens;
  const RandomArray<half> x("x", int64_t(rows) * width, 1),
      weight("weight", 3 * int64_t(width) * width, 2, 0.1), bias("bias", 3 * width, 3);
  lab::DeviceArray<half> parts[] = {unwritten<half>("q", int64_t(rows) * width),
                                    unwritten<half>("k", int64_t(rows) * width),
                                    unwritten<half>("v", int64_t(rows) * width)};
  qkv_epilogue::launch<mlp::SmallTile>(x, weight, bias,
                                       {parts[0].data(), parts[1].data(), parts[2].data(), heads},
                                       {rows, 3 * width, width, false}, nullptr);
  const auto qkv = reference::linear({x.wide.begin(), x.wide.end()}, weight.wide, bias.wide, {},
                                     {rows, 3 * width, width, false});
  for (int part = 0; part < 3; ++part) {
    CAPTURE(part);
    check_written(parts[part], reference::split(qkv, part, heads),
                  {.atol = 1e-3, .rtol = 2e-3, .relative_l2 = 1e-3});
  }
}

}  // namespace
