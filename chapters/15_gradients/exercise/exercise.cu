// Grades exercise 15, the gradient of a bias table.
#include <cmath>
#include <initializer_list>

#include "../../../common/grader/attention_cases.h"
#include "../../../common/grader/grader.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/random.h"
#include "bias_table.h"

namespace {

using namespace lab::grader;
using bias_table::Row;

std::vector<double> to_double(const std::vector<half>& values) {
  return std::vector<double>(values.begin(), values.end());
}

std::vector<half> random_half(int64_t count, uint64_t stream, double size) {
  std::vector<half> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = __float2half(float(size * lab::normal(stream, uint64_t(i))));
  return values;
}

// What comes out of likely mistakes.
std::vector<Case::Alternative> wrong_tables(const bias_table::Problem& p,
                                            const std::vector<double>& right) {
  std::vector<Case::Alternative> all;
  const auto add = [&](const bias_table::Term& term, const char* cause, bool everywhere = true) {
    all.push_back({summed(p, term), cause, everywhere});
  };
  std::vector<double> turned;
  for (size_t head = 0; head < size_t(p.heads); ++head)
    for (size_t cell = size_t(p.cells()); cell-- > 0;)
      turned.push_back(right[head * size_t(p.cells()) + cell]);
  all.push_back({turned,
                 "this comes out when key and query change places in the offset: row yi - yj and "
                 "column xi - xj, each from the middle of the table, i is the query",
                 true});
  for (const int image : {0, p.batch - 1})
    if (p.batch > 1)
      add([image](const Row& row, int key) { return row.batch == image ? d_score(row, key) : 0.0; },
          "this is the sum over one image alone: all of them have the same table");
  add([](const Row& row, int key) { return row.weights[size_t(key)] * row.d_weights[size_t(key)]; },
      "this is the sum of P dP: D, the row's sum of dO times O, must be subtracted from dP");
  add([](const Row& row, int key) { return row.weights[size_t(key)]; },
      "this is the sum of P itself, not that of its gradient dS");
  for (const int tile : {8, 16, 32, 64}) {
    const int whole = p.tokens() / tile * tile;
    if (whole == 0 || whole == p.tokens()) continue;
    for (const bool keys : {true, false})
      add([=](const Row& row,
              int key) { return (keys ? key : row.query) < whole ? d_score(row, key) : 0.0; },
          keys ? "this comes out when the last keys are left out, those that fill no tile: is "
                 "each division rounded up?"
               : "this comes out when the last queries are left out, those that fill no tile: is "
                 "each division rounded up?");
  }
  add(
      [&](const Row& row, int key) {
        const double bias = p.bias[size_t(row.head * p.cells() + p.cell(row.query, key))];
        return d_score(row, key) * std::exp(-bias);
      },
      "this comes out when P is computed again without the bias: log_sum_exp is that of the scores "
      "with it");
  return all;
}

Case table_case(int batch, int heads, int height, int width, int head_dim, uint64_t seed,
                double offset = 0) {
  const int tokens = height * width;
  AttentionTensors t = random_tensors(batch, heads, tokens, tokens, head_dim, seed);
  if (offset != 0) t = moved(std::move(t), offset);
  bias_table::Problem p{batch, heads, height, width, head_dim, double(t.scale), {}, {}, {}, {}, {}};
  const std::vector<half> d_o = random_half(int64_t(t.Q.size()), 8 * seed + 5, 1),
                          bias = random_half(heads * p.cells(), 8 * seed + 6, 1);
  p.Q = to_double(t.Q), p.K = to_double(t.K), p.V = to_double(t.V);
  p.dO = to_double(d_o), p.bias = to_double(bias);

  Case result;
  result.name = lab::format("batch %d, heads %d, grid %d x %d, head_dim %d", batch, heads, height,
                            width, head_dim);
  if (offset != 0) result.name += ", large scores";
  result.axes = {"head", "row of offsets", "column of offsets"};
  result.dims = {heads, 2 * height - 1, 2 * width - 1};
  result.sizes = {{"patches", tokens}, {"batch", batch}};
  // A weight is off by the error of its exponent, which is rounded to fp32 as large as the score is. D is
  // off by up to 2^-11 of the sum of |dO O|, since O is rounded to fp16: each pair by P times that. Sums in
  // fp32 add less.
  std::vector<half> O;
  std::vector<float> log_sum_exp;
  std::vector<double> errors(size_t(heads * p.cells()));
  result.expected.assign(errors.size(), 0.0);
  each_row(p, [&](const Row& row) {
    double products = 0, score = std::abs(row.log_sum_exp) + 8;
    for (int d = 0; d < head_dim; ++d) {
      const double of_loss = double(d_o[O.size()]) * row.output[size_t(d)];
      O.push_back(__float2half(float(row.output[size_t(d)])));
      products += std::abs(of_loss);
    }
    log_sum_exp.push_back(float(row.log_sum_exp));
    for (int key = 0; key < tokens; ++key) {
      const size_t cell = size_t(row.head * p.cells() + p.cell(row.query, key));
      result.expected[cell] += d_score(row, key);
      errors[cell] += row.weights[size_t(key)] * products * 0x1p-11 +
                      std::abs(d_score(row, key)) * score * 0x1p-22;
    }
  });
  result.tolerance = {.atol = *std::max_element(errors.begin(), errors.end()),
                      .rtol = 0x1p-14,
                      .relative_l2 = 1e-3};

  result.arguments = {input("Q", t.Q),     input("K", t.K),       input("V", t.V),
                      input("bias", bias), input("O", O),         input("log_sum_exp", log_sum_exp),
                      input("dO", d_o),    float_output("dBias"), value(t.query_shape()),
                      value(height),       value(width)};
  result.alternatives = [p, right = result.expected] { return wrong_tables(p, right); };
  result.causes["factor"] =
      "the factor is shape.scale where it is the same in each row: the bias is added to the score "
      "behind the product with scale, and its gradient is dS itself";
  result.causes["constant"] = result.causes["zero"] =
      "does each block bring what it has added up to dBias, and before anybody reads it?";
  result.hint_not_finite =
      offset != 0
          ? "scores are large here: exp(S) alone is infinite, exp(S - log_sum_exp) is not"
          : "dBias holds NaN before the call: is it set to 0 before anything is added to it? "
            "And a key past the last one has no score";
  result.hint = tokens <= 64
                    ? "all pairs fit into one tile here: is dS = P (dP - D), and which cell "
                      "of the table has a pair?"
                : batch > 1 ? "several tiles and images: which of them add to one table?"
                            : "several tiles: do queries and keys count from the start of the grid "
                              "where the offset is computed?";
  return result;
}

std::vector<Case> cases() {
  std::vector<Case> all = {table_case(1, 1, 1, 3, 64, 1),  table_case(1, 2, 3, 5, 32, 2),
                           table_case(3, 2, 7, 7, 64, 3),  table_case(1, 1, 8, 8, 32, 4),
                           table_case(2, 1, 5, 13, 64, 5), table_case(2, 1, 6, 6, 64, 6, 150),
                           table_case(1, 3, 32, 2, 64, 7), table_case(1, 1, 3, 32, 32, 8),
                           table_case(2, 2, 9, 11, 32, 9), table_case(1, 2, 14, 10, 64, 10)};
  return all;
}

// 3 images, 2 heads, windows of 14 x 14: 4 tiles of 64 rows, 729 offsets.
constexpr double kBatch = 3, kHeads = 2, kGrid = 14, kHeadDim = 64;
constexpr double kTokens = kGrid * kGrid, kTiles = 4;
constexpr double kTable = (2 * kGrid - 1) * (2 * kGrid - 1) * 4;      // bytes, of a head
constexpr double kMatrix = kBatch * kHeads * kTokens * kHeadDim * 2;  // bytes of Q, K, V or dO
Case measured() {
  return table_case(int(kBatch), int(kHeads), int(kGrid), int(kGrid), int(kHeadDim), 11);
}

// Each of the two products, of the pairs that there are.
constexpr double kPairMacs = kBatch * kHeads * 2 * kTokens * kTokens * kHeadDim;
double multiply_adds(const Counters& c) { return c.on_tensor_cores(kPairMacs); }

double loaded(const Counters& c) {
  double bytes = c.loaded_tiles();
  for (const char* array : {"Q", "dO"}) bytes += c.bytes(array, "load");
  return bytes;
}

double atomics(const Counters& c) {
  double requests = c.sum("/copy_engine/atomic/bytes");
  for (const char* memory : {"/global", "/shared", "/distributed_shared"})
    requests += c.sum(memory + std::string("/atomic/requests"));
  // Without a table there is nothing to add up.
  return c.stored() < kHeads * kTable ? NAN : requests;
}

const std::vector<Aim> kAims = {
    {"bytes of stores and atomics: a table for each 64 rows, D, and dBias", 20, Aim::at_most,
     (kBatch * kTiles + 1) * kHeads* kTable + kBatch* kHeads* kTokens * 4,
     [](const Counters& c) { return c.stored(); },
     "many pairs have the same offset: let a block add them up in shared memory, and bring its "
     "table to global memory at its end",
     Aim::bytes, kHeads* kTable},
    {"atomics, in global and shared memory: none", 10, Aim::exactly, 0, atomics,
     "a thread that has an offset, and not a pair, is the only one that adds to its sum"},
    {"multiply-adds on tensor cores: Q Kᵀ and dO Vᵀ, tiles of 64", 10, Aim::at_most,
     kBatch* kHeads * 2 * (kTiles * 64) * (kTiles * 64) * kHeadDim, multiply_adds,
     "two products are enough: what else does dS need?", Aim::number, kPairMacs},
    // D may come from a pass of its own over dO.
    {"bytes of Q, K, V and dO that are loaded: a pair once, the other for each 64 rows", 10,
     Aim::at_most, (2 + 2 * kTiles + 1) * kMatrix + (kBatch * kTiles + 1) * kHeads* kTable,
     [](const Counters& c) { return multiply_adds(c) >= kPairMacs ? loaded(c) : NAN; },
     "four warps can share each tile of the other pair", Aim::bytes, 4 * kMatrix},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 15, from an empty function: the gradient of a bias table",
        .folder = "chapters/15_gradients",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const half*, const half*, const half*, const half*, const "
                      "half*, const float*, const half*, float*, const "
                      "AttentionShape&, int, int, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .function = "bias_gradient",
        .unwritten_hint = "has each offset of each head somebody who stores its sum, "
                          "those that few pairs have, too?"}});
}
