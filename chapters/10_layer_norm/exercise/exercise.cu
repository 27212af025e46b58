// Grades exercise 10, gated RMS norm.
#include <cmath>

#include "../../../common/grader/grader.h"
#include "../../../common/lab/random.h"
#include "../shape.h"

namespace {

using namespace lab::grader;

// What a problem is made of; fp16 as the student gets it.
struct Tensors {
  LayerNormShape shape;
  std::vector<half> x, gate, weight;  // [rows, columns], [rows, columns], [columns]
};

// Rows of different size, from 1/4 to 4 times `size`, whose means are not 0.
Tensors random_problem(int rows, int columns, uint64_t seed, double size) {
  Tensors t;
  t.shape = {rows, columns, 1e-5f};
  for (int64_t i = 0; i < t.shape.elements(); ++i) {
    const double of_row = size * std::exp2(4 * lab::uniform(seed + 4000, i / columns) - 2);
    t.x.push_back(__float2half(float(of_row * (0.5 + lab::normal(seed, i)))));
    t.gate.push_back(__float2half(float(2 * lab::normal(seed + 1000, i))));
  }
  for (int c = 0; c < columns; ++c)
    t.weight.push_back(__float2half(float(1 + 0.3 * lab::normal(seed + 2000, c))));
  return t;
}

// Straight from the formula, in double precision.
std::vector<double> expected_of(const Tensors& t) {
  const int64_t columns = t.shape.columns;
  std::vector<double> y(t.shape.elements()), h(columns);
  for (int64_t row = 0; row < t.shape.rows; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) {
      const double z = double(t.gate[row * columns + i]);
      h[i] = double(t.x[row * columns + i]) * z / (1 + std::exp(-z));
      squares += h[i] * h[i];
    }
    const double factor = 1 / std::sqrt(squares / double(columns) + double(t.shape.epsilon));
    for (int64_t i = 0; i < columns; ++i)
      y[row * columns + i] = h[i] * factor * double(t.weight[i]);
  }
  return y;
}

Case gated(int rows, int columns, uint64_t seed, double size = 1) {
  const Tensors t = random_problem(rows, columns, seed, size);
  Case result;
  result.name = "[rows " + std::to_string(rows) + ", columns " + std::to_string(columns) + "]";
  if (size != 1) result.name += ", x around " + std::to_string(int(size));
  result.dims = {rows, columns};
  result.axes = {"row", "column"};
  result.sizes = {{"rows", rows}, {"columns", columns}};
  result.arguments = {input("x", t.x), input("gate", t.gate), input("weight", t.weight),
                      output("y"), value(t.shape)};
  // y is rounded to fp16 by up to 2^-11 of itself. Sums in fp32, the exponential and the root add some
  // 2^-17; twice all of it is allowed.
  result.tolerance = {.atol = 0x1p-24, .rtol = 0x1p-10, .relative_l2 = 5e-4};
  result.expected = expected_of(t);
  result.hint_not_finite =
      size > 1
          ? "NaN or infinity is computed, where x is large: squares beyond 65504 do not fit "
            "into fp16"
          : "NaN or infinity is computed: epsilon forgotten, or an element beyond the row's end "
            "in the sum?";
  result.hint = columns % 8 != 0
                    ? "columns are no multiple of 8 here: rows do not begin at multiples of 16 "
                      "bytes, and the last lanes have fewer elements"
                : columns < 256 ? "few columns: some lanes have no element of the row. Do they add "
                                  "nothing, and is the mean divided by columns?"
                : rows % 8 != 0 ? "rows are no multiple of 8: has the last block only those that "
                                  "are there?"
                                : "is the mean that of h² over the row, under the root with "
                                  "epsilon?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {gated(1, 64, 1),    gated(3, 65, 2),       gated(8, 256, 3),
                           gated(5, 100, 4),   gated(2, 768, 5),      gated(9, 1000, 6),
                           gated(17, 192, 7),  gated(4, 512, 8, 300), gated(3, 1023, 9),
                           gated(33, 768, 10), gated(6, 1024, 11),    gated(150, 384, 12)};
  return all;
}

// 64 rows of 768: three requests of 16 bytes a lane for each row.
constexpr double kRows = 64, kColumns = 768, kBytes = kRows * kColumns * 2;
Case measured() { return gated(int(kRows), int(kColumns), 13); }

const std::vector<Aim> kAims = {
    {"bytes of all stores: only y, once", 15, Aim::exactly, kBytes,
     [](const Counters& c) { return c.stored(); },
     "what is gated stays in registers until the row's sum is known", Aim::bytes},
    {"kernels that are launched: one", 5, Aim::exactly, 1,
     [](const Counters& c) { return c.launches(); },
     "a warp that has a row has all that its mean needs"},
    {"bytes of x that are loaded: once", 10, Aim::at_most, kBytes,
     [](const Counters& c) { return c.bytes("x", "load"); },
     "a lane can keep its part of the row until it stores", Aim::bytes, kBytes},
    {"bytes of gate that are loaded: once", 10, Aim::at_most, kBytes,
     [](const Counters& c) { return c.bytes("gate", "load"); }, "keep the product, not the factors",
     Aim::bytes, kBytes},
    {"requests for x", 10, Aim::at_most, kBytes / 512,
     [](const Counters& c) { return c.requests("x", "load"); },
     "a lane can load 8 elements at once: 16 bytes, as uint4 or a struct of that alignment",
     Aim::number, kBytes / 512},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 10, from an empty function: gated RMS norm",
        .folder = "chapters/10_layer_norm",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const half*, const half*, const half*, half*, const LayerNormShape&, "
                      "cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "gated_rms_norm",
        .unwritten_hint = "has each row a warp or a block that stores it, and each element a lane, "
                          "also where columns are no multiple of 8?"}});
}
