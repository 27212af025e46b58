// Grades exercise 7, the gradient of the attention weights.
#include <cmath>
#include <limits>

#include "../../../common/grader/grader.h"
#include "../host/problem.h"
#include "../host/reference.h"
#include "../shape.h"

namespace {

using namespace lab::grader;

// Some locations moved onto borders, beside and far beyond them; some are NaN or infinite.
void add_edges(lab::DeformableProblem& problem) {
  const DeformableShape& shape = problem.shape;
  const float infinity = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < problem.locations.size(); i += 3) {
    const size_t sample = i / 2 % size_t(shape.levels * shape.points);
    const LevelShape level = shape.level[sample / shape.points];
    const float size = float(i % 2 ? level.height : level.width);
    const float pixels[] = {-infinity,   -60000,   -1,          -0.5, 0,   0.5,
                            size - 1.5f, size - 1, size - 0.5f, size, NAN, infinity};
    problem.locations[i] = __float2half((pixels[i / 3 % 12] + 0.5f) / size);
  }
}

Case gradient(const DeformableShape& shape, lab::Distribution where, uint64_t seed, bool edges) {
  lab::DeformableProblem problem = lab::random_deformable(shape, where, seed);
  if (edges) add_edges(problem);
  // As random as the values: those of another problem of the same rows.
  DeformableShape rows = shape;
  rows.levels = 1;
  rows.level[0] = {1, shape.queries};
  const std::vector<half> grad_out = lab::random_deformable(rows, where, seed + 100).value;

  Case result;
  result.name = describe(shape) + (edges ? ", points on and beyond borders" : "");
  result.dims = {shape.batch, shape.queries, shape.heads, int64_t(shape.levels) * shape.points};
  result.arguments = {input("value", problem.value), input("locations", problem.locations),
                      input("grad_out", grad_out), output("grad_weights"), value(shape)};
  result.hint = shape.levels * shape.points % 8 ? "the last samples are fewer than eight"
                : shape.batch * shape.heads > 1
                    ? "several images and heads: whose levels are staged, and until when are they?"
                : shape.queries > 128 ? "several blocks: has each query one that takes it?"
                                      : "one image and head: are all eight lanes in the sum?";
  result.hint_not_finite =
      "NaN is computed: are all pieces loaded that are summed up, and only such that have arrived?";
  if (edges)
    result.hint_not_finite =
        "some locations are NaN or infinite here, and 0 times infinity is NaN: their pixel must "
        "lie "
        "inside the level and their shares must be 0, as prepare() gives them";
  const std::vector<float> values = lab::to_float(problem.value), grads = lab::to_float(grad_out);
  result.expected.resize(shape.samples());
  reference::deformable_weight_gradient(values.data(), lab::to_float(problem.locations).data(),
                                        grads.data(), shape, result.expected.data());
  // The shares of a sample's four pixels are products of two fp16 numbers, the result is fp16:
  // three roundings of 2^-11 of what |grad_out| |value| allows.
  double most = 0;
  for (const double gradient : result.expected) most = std::fmax(most, std::abs(gradient));
  result.tolerance = {.atol = 3.0 / 2048 * most, .rtol = 1.0 / 2048, .relative_l2 = 1e-3};
  return result;
}

std::vector<Case> cases() {
  constexpr auto local = lab::Distribution::kLocal, uniform = lab::Distribution::kUniform;
  std::vector<Case> all = {
      gradient({1, 1, 1, 32, 1, 8, {{6, 9}}}, uniform, 1, false),
      gradient({1, 5, 1, 32, 1, 4, {{7, 4}}}, uniform, 2, false),
      gradient({1, 33, 1, 32, 2, 4, {{1, 6}, {5, 1}}}, uniform, 3, true),
      gradient({3, 7, 1, 32, 2, 8, {{4, 6}, {2, 3}}}, uniform, 4, false),
      gradient({1, 9, 3, 32, 2, 8, {{4, 6}, {2, 3}}}, local, 5, false),
      gradient({2, 61, 2, 32, 3, 4, {{3, 4}, {6, 8}, {1, 1}}}, local, 6, true),
      gradient({1, 300, 1, 32, 1, 4, {{5, 5}}}, uniform, 7, true),
      gradient({3, 131, 1, 32, 4, 4, {{2, 2}, {8, 4}, {4, 8}, {1, 3}}}, uniform, 8, true),
      // The first two levels are too large for shared memory.
      gradient({1, 40, 1, 32, 3, 8, {{60, 80}, {46, 80}, {12, 20}}}, uniform, 9, false),
      gradient({2, 389, 1, 32, 4, 8, {{12, 20}, {23, 40}, {6, 10}, {3, 5}}}, local, 10, true)};
  return all;
}

// 2 images of 20000 queries, 4 points in a level of 46 x 80 pixels, which stays in global memory,
// and 4 in one of 23 x 40 (58880 bytes), which is staged. 132 blocks on an H200; there are at most
// two blocks, or a block twice, that have queries of both images. A block's last round may have up
// to 3 queries more than it needs: shuffles need whole warps.
constexpr double kBlocks = 132, kStagings = kBlocks + 2, kQueries = 2 * 20000;
constexpr double kTaken = kQueries + 3 * kStagings, kStagedBytes = 23 * 40 * 64;
constexpr double kSamples = 4;  // a query's in a level
Case measured() {
  return gradient({2, 20000, 1, 32, 2, 4, {{46, 80}, {23, 40}}}, lab::Distribution::kLocal, 11,
                  false);
}

const std::vector<Aim> kAims = {
    {"bytes of values: the small level is staged once a block and image", 15, Aim::at_most,
     kTaken* kSamples * 4 * 64 + kStagings* kStagedBytes,
     [](const Counters& c) { return c.bytes("value", "load"); },
     "the small level is sampled from shared memory; stage it when a block comes to an image, not "
     "for each of its rounds",
     Aim::bytes, kStagedBytes},
    // Two loads for four queries' samples, and 512 bytes a request of staging.
    {"load requests for values: 16 bytes a lane, both columns at once", 15, Aim::at_most,
     (kTaken / 4 + kStagings) * kSamples * 2 + kStagings* kStagedBytes / 512,
     [](const Counters& c) { return c.requests("value", "load"); },
     "a lane loads 16 bytes of the upper and 16 of the lower pixel of its column", Aim::number,
     kStagedBytes / 512},
    {"blocks: as many as the device holds", 5, Aim::at_most, kBlocks,
     [](const Counters& c) { return c.sum("/grid/0"); },
     "persistent: a block takes as many queries as it takes, not a fixed number", Aim::number, 1},
    {"bytes of locations and grad_out: once a query", 5, Aim::at_most,
     kTaken*(2 * kSamples * 4 + 2 * 64),
     [](const Counters& c) { return c.bytes("locations", "load") + c.bytes("grad_out", "load"); },
     "grad_out stays in registers; each lane prepares one sample, the others get it by shuffles",
     Aim::bytes, kQueries*(2 * kSamples * 4 + 64)},
    {"bytes of all stores: only the gradients, once", 5, Aim::exactly, kQueries * 2 * kSamples * 2,
     [](const Counters& c) { return c.stored(); },
     "one lane writes each gradient; rows past the last query are not written", Aim::bytes},
    {"bank conflicts, share of the least number of wavefronts", 5, Aim::at_most, 0.02,
     [](const Counters& c) { return c.bank_conflict_share(kQueries * 2 * kSamples * 4 * 32); },
     "eight lanes read two neighbouring pixels of 64 bytes: leave them side by side", Aim::share},
};

}  // namespace

int main(int argc, char** argv) {
  return grader_main(
      argc, argv,
      {{.title = "Exercise 7: the gradient of the attention weights",
        .folder = "chapters/07_persistent_deformable_attention",
        .file = "exercise.cuh",
        .solution = "solution.cuh",
        .name_space = "exercise",
        .parameters = "const half*, const half*, const half*, half*, const "
                      "DeformableShape&, cudaStream_t",
        .cases = cases,
        .measured = measured,
        .aims = kAims,
        .unwritten_hint = "has each query a block that takes it, those too that are left over when "
                          "queries are no multiple of the blocks, and each sample a lane that "
                          "stores its gradient?"}});
}
