// Grades exercise 11, a gated product.
#include <cmath>

#include "../../../common/grader/grader.h"
#include "../../../common/lab/random.h"
#include "../host/reference.h"
#include "../shape.h"

namespace {

using namespace lab::grader;

std::vector<half> random_half(int64_t count, uint64_t stream, double size) {
  std::vector<half> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = __float2half(float(size * lab::normal(stream, uint64_t(i))));
  return values;
}

Case gated(int m, int n, int k, uint64_t seed) {
  const ProductShape shape{m, n, k, false};
  const double of_weight = 1 / std::sqrt(double(k));
  const std::vector<half> x = random_half(shape.x_elements(), seed * 3, 1),
                          gate = random_half(shape.weight_elements(), seed * 3 + 1, of_weight),
                          up = random_half(shape.weight_elements(), seed * 3 + 2, of_weight);
  Case result;
  result.name =
      std::to_string(m) + " rows, " + std::to_string(n) + " columns, k " + std::to_string(k);
  result.axes = {"row", "column"};
  result.dims = {m, n};
  result.sizes = {{"rows", m}, {"columns", n}, {"k", k}};
  result.arguments = {input("x", x), input("gate", gate), input("up", up), output("y"),
                      value(shape)};
  result.hint = k > 64
                    ? "several slices: is up's slice copied with each group, and added to its sums?"
                : m > 64 || n > 64
                    ? "several blocks: are the rows of up those of the block's columns?"
                    : "one block and slice: what is multiplied with what, and when is GELU taken?";
  result.hint_not_finite = "NaN is computed: has up's slice arrived when it is multiplied?";

  std::vector<int> rows(m);
  for (int row = 0; row < m; ++row) rows[row] = row;
  const std::vector<float> xs = lab::to_float(x), gates = lab::to_float(gate),
                           ups = lab::to_float(up);
  const std::vector<double> of_gate = reference::product({xs.data(), gates.data()}, shape, rows);
  result.expected = reference::product({xs.data(), ups.data()}, shape, rows);
  double most = 0;
  for (size_t i = 0; i < of_gate.size(); ++i) {
    result.expected[i] *= reference::gelu(of_gate[i]);
    most = std::fmax(most, std::abs(result.expected[i]));
  }
  // y is rounded by 2^-11 of itself; sums of up to 1000 products in fp32 are off by less than that.
  result.tolerance = {.atol = 0x1p-12 * most, .rtol = 0x1p-11, .relative_l2 = 1e-3};
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {gated(16, 8, 16, 1),   gated(64, 64, 64, 2),  gated(33, 17, 40, 3),
                           gated(64, 64, 328, 4), gated(70, 43, 200, 5), gated(129, 65, 72, 6),
                           gated(1, 1, 8, 7),     gated(197, 96, 256, 8)};
  return all;
}

// 8 x 6 tiles of 64 x 64; k is a whole number of slices.
constexpr double kM = 512, kN = 384, kK = 256, kTiles = (kM / 64) * (kN / 64);
Case measured() { return gated(int(kM), int(kN), int(kK), 9); }

const std::vector<Aim> kAims = {
    {"launches", 5, Aim::exactly, 1, [](const Counters& c) { return c.launches(); },
     "one kernel computes both products", Aim::number, 1},
    {"bytes of x: each tile asks for its rows once", 15, Aim::at_most, kTiles * 64 * kK * 2,
     [](const Counters& c) { return c.bytes("x", "load"); },
     "a slice of x is multiplied with slices of gate and up while it is in shared memory",
     Aim::bytes, kM* kK * 2},
    {"bytes of gate and up: each tile asks for its rows once", 10, Aim::at_most,
     2 * kTiles * 64 * kK * 2,
     [](const Counters& c) { return c.bytes("gate", "load") + c.bytes("up", "load"); },
     "a slice of either weight is copied once a tile", Aim::bytes, 2 * kN* kK * 2},
    {"multiply-adds on tensor cores: those of both products", 5, Aim::exactly, 2 * kM* kN* kK,
     [](const Counters& c) { return c.on_tensor_cores(2 * kM * kN * kK); },
     "each product is one multiply_slice() a slice", Aim::number},
    {"bytes of all stores: y, once", 10, Aim::exactly, kM* kN * 2,
     [](const Counters& c) { return c.stored(); },
     "both sums are in the same lane: multiply them before y is stored", Aim::bytes},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.02,
     [](const Counters& c) { return c.bank_conflict_share(2 * kM * kN * kK); },
     "up's tile has the same layout as gate's", Aim::share},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(argc, argv,
                     {{.title = "Exercise 11: a gated product",
                       .folder = "chapters/11_mlp",
                       .file = "exercise.cuh",
                       .solution = "solution.cuh",
                       .name_space = "exercise",
                       .parameters = "const half*, const half*, const half*, half*, const "
                                     "ProductShape&, cudaStream_t",
                       .cases = cases,
                       .measured = measured,
                       .aims = kAims,
                       .function = "gated",
                       .unwritten_hint = "has each row and column a block that takes it, the last "
                                         "ones too?"}});
}
