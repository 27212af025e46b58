// One case of the newest step, for `make test` without ALL=1: one problem of a ragged shape.
#include <doctest/doctest.h>

#include <cmath>

#include "../../../common/testing/newest.h"
#include "../host/reference.h"
#include "../operations/fewer_keys/forward.cuh"

namespace {

using namespace lab::testing;
using namespace cvt;

TEST_CASE("chapter 16, attention with fewer keys than queries: one problem") {
  const CrossShape shape{2, 50, 17, 2, 64, float(1 / std::sqrt(128.0))};
  const int64_t width = 128, queries = 2 * 50 * width, keys = 2 * 17 * width;
  const RandomArray<float> q("q", queries, 1), k("k", keys, 2), v("v", keys, 3);
  auto o = unwritten<float>("o", queries);
  auto log_sum_exp = unwritten<float>("log_sum_exp", 2 * 2 * 50);
  fewer_keys::launch_attention(fewer_keys::attention_forward_kernel<64>, shape.queries,
                               int(sizeof(fewer_keys::ForwardTiles<64>)), shape, "attention",
                               nullptr, (const float*)q, (const float*)k, (const float*)v, o.data(),
                               log_sum_exp.data());
  const auto expected =
      reference::attention({q.wide.begin(), q.wide.end()}, {k.wide.begin(), k.wide.end()},
                           {v.wide.begin(), v.wide.end()}, shape);
  check_written(o, expected.o, {.atol = 2e-3, .relative_l2 = 1e-3});
  // Scores are sums of products in tf32.
  check_written(log_sum_exp, expected.log_sum_exp, {.atol = 2e-3, .relative_l2 = 1e-3});
}

}  // namespace
