// Chapter 7's tests: each step right on every kind of shape and location, same bits twice, planted
// bugs found, what the counters say worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "../../../common/attention/inputs.h"
#include "../../../common/attention/test_cases.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "internals.h"
#include "test_support.h"

namespace steps = persistent_deformable_attention;
using namespace lab::testing;
using lab::Distribution;

namespace {

const std::vector<lab::DeformableStep> kSteps = steps::steps();
const lab::DeformableStep& step(const std::string& name) {
  for (const lab::DeformableStep& one : kSteps)
    if (one.name == name) return one;
  throw std::invalid_argument("there is no step " + name);
}
// Why the device cannot run that step: "" when it can.
std::string lack_of(const std::string& name) { return step(name).lacks(); }

// Those that the device can run.
std::vector<lab::DeformableStep> runnable() {
  std::vector<lab::DeformableStep> result;
  for (const lab::DeformableStep& step : kSteps)
    if (!step.lacks || step.lacks().empty()) result.push_back(step);
  return result;
}

void check_steps(const DeformableCase& problem) {
  for (const lab::DeformableStep& step : runnable()) {
    const Outcome outcome = run_deformable(step.function, problem);
    CAPTURE(step.name);
    CAPTURE(problem.name);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == "");
  }
}

}  // namespace

TEST_CASE("right: every number of channels, points and levels, on, beside and beyond borders") {
  if (skipped("right")) return;
  const LevelShape levels[] = {{9, 16}, {1, 1}, {5, 7}, {1, 13}, {11, 1}};
  uint64_t seed = 1;
  for (const int channels : {16, 32, 64})
    for (const int points : {4, 8})
      for (int count = 1; count <= kMaxLevels; ++count)
        for (const auto [batch, queries, heads] :
             {std::array{1, 1, 1}, std::array{3, 29, 2}, std::array{2, 131, 1}}) {
          DeformableShape shape{batch, queries, heads, channels, count, points, {}};
          // Each level comes first once.
          for (int l = 0; l < count; ++l) shape.level[l] = levels[(l + seed) % kMaxLevels];
          const auto where = seed % 2 ? Distribution::kLocal : Distribution::kUniform;
          check_steps(deformable_case(shape, where, seed++, true));
        }
}

TEST_CASE("right: more queries than any block takes at once, several images a block") {
  if (skipped("right")) return;
  DeformableShape shape{5, 389, 3, 32, 2, 4, {{12, 20}, {6, 10}}};
  check_steps(deformable_case(shape, Distribution::kLocal, 1));
  shape.heads = 1;
  shape.channels = 64;
  check_steps(deformable_case(shape, Distribution::kUniform, 2));
  // Levels of which only some fit in shared memory: 227 KiB, 113 KiB a block of step 3.
  shape = {1, 300, 1, 64, 3, 4, {{23, 40}, {46, 80}, {12, 20}}};
  check_steps(deformable_case(shape, Distribution::kUniform, 3));
}

TEST_CASE("right: sums in fp32, rounded once, exactly") {
  if (skipped("right: sums in fp32")) return;
  for (const int channels : {16, 32, 64}) {
    const DeformableShape shape{
        2, 21, 2, channels, 5, 8, {{8, 16}, {4, 8}, {2, 2}, {1, 4}, {16, 1}}};
    check_steps(exact_deformable_case(shape));
    check_steps(long_sum_case(shape));
  }
}

TEST_CASE("right: arrays from PyTorch") {
  if (skipped("arrays from PyTorch")) return;
  const std::vector<DeformableCase> cases = deformable_golden_cases();
  REQUIRE(cases.size() >= 6);
  for (const DeformableCase& problem : cases) check_steps(problem);
}

TEST_CASE("right: no step reads another image's, head's or level's values") {
  if (skipped("another image's values")) return;
  // Everything but image 1, head 1 is NaN; its rows must come out as if it were alone. Queries are
  // no multiple of what any block takes.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int queries : {1, 31, 257, 1025}) {
    DeformableCase problem = deformable_case({3, queries, 3, 16, 3, 4, {{4, 6}, {1, 5}, {7, 1}}},
                                             Distribution::kUniform, 7, true);
    const DeformableShape& shape = problem.problem.shape;
    std::vector<half>& value = problem.problem.value;
    for (size_t i = 0; i < value.size(); ++i)
      if (i / 16 % 3 != 1 || int64_t(i) / (shape.pixels() * 48) != 1) value[i] = __float2half(nan);
    for (const lab::DeformableStep& step : runnable()) {
      CAPTURE(step.name);
      const Outcome outcome = run_deformable(step.function, problem);
      REQUIRE(outcome.output.size() == problem.expected.size());
      std::vector<half> got;
      std::vector<double> expected;
      for (int query = 0; query < queries; ++query)
        for (int c = 0; c < 16; ++c) {
          const size_t at = ((size_t(queries) + query) * 3 + 1) * 16 + c;
          got.push_back(outcome.output[at]);
          expected.push_back(problem.expected[at]);
        }
      const lab::Comparison right =
          lab::compare(got, expected, lab::Tolerance::fp16_mean(4), {queries, 16});
      CHECK_MESSAGE(right.pass, right.describe());
    }
  }
}

TEST_CASE("the same bits twice, and in steps 2 to 6") {
  if (skipped("the same bits twice")) return;
  const DeformableCase problem =
      deformable_case({2, 389, 1, 32, 2, 8, {{12, 20}, {6, 10}}}, Distribution::kLocal, 3, true);
  std::vector<half> vectorized;
  for (const lab::DeformableStep& step : runnable()) {
    CAPTURE(step.name);
    const Outcome first = run_deformable(step.function, problem);
    const Outcome second = run_deformable(step.function, problem);
    const Outcome in_a_graph = run_deformable(lab::testing::in_a_graph(step.function), problem);
    const size_t bytes = problem.expected.size() * sizeof(half);
    REQUIRE(first.output.size() == problem.expected.size());
    for (const Outcome* other : {&second, &in_a_graph}) {
      REQUIRE(other->output.size() == problem.expected.size());
      CHECK(std::memcmp(first.output.data(), other->output.data(), bytes) == 0);
    }
    // Who computes a row and from which memory changes nothing in how it is computed.
    if (step.name == "vectorized") vectorized = first.output;
    if (!vectorized.empty()) CHECK(std::memcmp(first.output.data(), vectorized.data(), bytes) == 0);
  }
}

TEST_CASE("what they cannot do they refuse") {
  for (const lab::DeformableStep& step : kSteps) {
    CAPTURE(step.name);
    const auto message = [&](const DeformableShape& shape, size_t address = 0) -> std::string {
      try {
        step.function(nullptr, reinterpret_cast<const half*>(address), nullptr, nullptr, shape,
                      nullptr);
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "";
    };
    const auto refused = [&](const DeformableShape& shape, const char* named) {
      return message(shape).find(named) != std::string::npos;
    };
    CHECK(message({1, 5, 1, 48, 1, 4, {{2, 3}}}) ==
          "deformable attention of shape [batch 1, queries 5, heads 1, channels 48, levels 2x3, "
          "points 4]: channels must be 16, 32 or 64");
    CHECK(refused({1, 5, 1, 32, 1, 5, {{2, 3}}}, "points must be 4 or 8"));
    CHECK(refused({1, 5, 1, 32, 0, 4, {}}, "levels must be 1 to 5"));
    CHECK(refused({1, 5, 1, 32, 6, 4, {}}, "levels must be 1 to 5"));
    CHECK(refused({1, 0, 1, 32, 1, 4, {{2, 3}}}, "must be at least 1"));
    CHECK(refused({1, 5, 1, 32, 2, 4, {{2, 3}, {0, 4}}}, "at least 1 x 1 pixels"));
    CHECK(refused({1, 5, 1, 32, 1, 4, {{65536, 65536}}}, "fewer than 2^31"));
    CHECK(refused({65536, 65536, 1, 32, 1, 4, {{2, 3}}}, "fewer than 2^31"));
    CHECK(message({1, 5, 1, 32, 1, 4, {{2, 3}}}, 8).find("multiple of 16 bytes") !=
          std::string::npos);
  }
}

TEST_CASE("staging: the smallest levels that fit") {
  const DeformableShape course = lab::course_deformable_shape(1, 1);
  // 23 x 40 and 12 x 20 pixels of 64 bytes: 58880 + 15360 bytes.
  const steps::StagedLevels h200 = steps::staged_levels(course, 227 * 1024);
  CHECK(h200.bytes == 58880 + 15360);
  CHECK(h200.first_pixel[0] == -1);
  CHECK(h200.first_pixel[1] == -1);
  CHECK(h200.first_pixel[2] == 240);
  CHECK(h200.first_pixel[3] == 0);
  const steps::StagedLevels t4 = steps::staged_levels(course, 64 * 1024);
  CHECK(t4.bytes == 15360);
  CHECK(t4.first_pixel[2] == -1);
  CHECK(steps::staged_levels(course, 1024).bytes == 0);
}

TEST_CASE("staging: clusters of blocks hold larger levels, in runs of 16 pixels") {
  // Each of 2 blocks has half of 46 x 80, 23 x 40 and 12 x 20 pixels, in whole runs: 115,
  // 29 and 8 of them. Level 0 alone would be 460.
  const DeformableShape course = lab::course_deformable_shape(1, 1);
  const steps::StagedLevels two = steps::staged_levels(course, 227 * 1024, 2);
  CHECK(two.levels == 3);
  CHECK(two.bytes == (115 + 29 + 8) * 16 * 64);
  CHECK(two.first_pixel[0] == -1);
  CHECK(two.first_pixel[1] == (29 + 8) * 16);
  // 8 blocks have 115, 29, 8 and 2 runs.
  const steps::StagedLevels eight = steps::staged_levels(course, 227 * 1024, 8);
  CHECK(eight.levels == 4);
  CHECK(eight.bytes == (115 + 29 + 8 + 2) * 16 * 64);
  CHECK(eight.first_pixel[0] == (29 + 8 + 2) * 16);
  CHECK(steps::staged_levels(course, 227 * 1024, 4).levels == 3);

  if (skipped("plan_clusters") || !lack_of("cluster").empty()) return;
  const steps::Clusters plan = steps::planned_clusters(course);
  CHECK(plan.blocks == 8);
  CHECK(plan.clusters >= 1);
  // All levels of a small image fit into the smallest cluster.
  CHECK(steps::planned_clusters({1, 9, 1, 32, 1, 4, {{9, 9}}}).blocks == 2);
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

// Leaves the counters of one launch as those of the last one.
void run_for_counters(lab::DeformableFunction step, const DeformableShape& shape,
                      Distribution where) {
  std::vector<lab::DeformableArrays> arrays =
      lab::upload(lab::random_deformable(shape, where, 1), 1);
  lab::DeformableArrays& a = arrays[0];
  step(a.value.data(), a.locations.data(), a.weights.data(), a.out.data(), shape, nullptr);
  lab::check(cudaDeviceSynchronize());
}

// How often a plane is staged: 15 of 16 rows are dealt out evenly to `shares`, the planes' rows one
// after the other, and each share stages every plane of which it has rows.
double planes_of_shares(const DeformableShape& shape, int shares) {
  const int64_t fixed = shape.rows() * 15 / 16;
  double planes = 0;
  for (int64_t share = 0; share < shares; ++share) {
    const int64_t first = fixed * share / shares, last = fixed * (share + 1) / shares - 1;
    planes += double(last / shape.queries - first / shape.queries + 1);
  }
  return planes;
}

}  // namespace

TEST_CASE("counters: vectorized asks for values eight times less often") {
  if (skipped_without_counters("counters")) return;
  for (const int channels : {16, 32, 64}) {
    CAPTURE(channels);
    DeformableShape shape = lab::course_deformable_shape(1, 320);
    shape.channels = channels;
    const double samples = double(shape.samples());
    run_for_counters(step("simple").function, shape, Distribution::kLocal);
    // Four loads a sample and channel, 32 channels a request.
    const double simple = counted("value", "load/requests");
    CHECK(simple == samples * 4 * channels / 32);
    run_for_counters(step("vectorized").function, shape, Distribution::kLocal);
    // Upper and lower pixel of both columns: two loads of 16 bytes for channels / 4 lanes.
    const double vectorized = counted("value", "load/requests");
    CHECK(vectorized == samples * 2 * (channels / 4) / 32);
    CHECK(vectorized <= simple / 8);
    // Locations and weights once: 4 and 2 bytes a sample, for both columns; out once.
    CHECK(counted("locations", "load/bytes_asked") == samples * 4 * 2);
    CHECK(counted("locations", "load/sectors") == samples * 4 / 32);
    CHECK(counted("weights", "load/bytes_asked") == samples * 2 * 2);
    CHECK(counted("out", "store/bytes_asked") == double(shape.out_elements()) * 2);
    CHECK(counted("out", "store/sectors") == double(shape.out_elements()) * 2 / 32);
    CHECK(lab::vgpu::counter("/local/store/requests") == 0);
  }
}

TEST_CASE("counters: simple reads neighbouring channels, every step stores each output once") {
  if (skipped_without_counters("counters")) return;
  for (const int channels : {16, 32, 64}) {
    CAPTURE(channels);
    DeformableShape shape = lab::course_deformable_shape(1, 320);
    shape.channels = channels;
    const double out_bytes = 2.0 * double(shape.out_elements());
    for (const lab::DeformableStep& step : runnable()) {
      CAPTURE(step.name);
      run_for_counters(step.function, shape, Distribution::kLocal);
      CHECK(counted("out", "store/bytes_asked") == out_bytes);
      CHECK(counted("out", "store/sectors") == out_bytes / 32);
      CHECK(lab::vgpu::counter("/local/store/requests") == 0);
    }
    run_for_counters(step("simple").function, shape, Distribution::kLocal);
    CHECK(counted("out", "store/requests") == out_bytes / 64);
    // A warp has 32 channels of one pixel, two sectors of 32 bytes. (Of 16 channels it has those of
    // two queries, whose pixels may be the same.)
    if (channels >= 32)
      CHECK(counted("value", "load/sectors") == double(shape.samples()) * 4 * channels * 2 / 32);
  }
}

TEST_CASE("locations and weights, read once, pass by the L1") {
  if (skipped("locations and weights")) return;
  const Mutants none("chapters/07_persistent_deformable_attention/2_vectorized.cuh",
                     "persistent_deformable_attention", {}, "", Mutants::kWholeFile,
                     Mutants::kAsShipped);
  const auto loads = [&](const std::string& text) {
    int count = 0;
    for (size_t at = 0; (at = none.ptx().find(text, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  // Of three kernels, one for each number of channels, four locations and four weights each.
  CHECK(loads("ld.global.nc.L1::no_allocate.v4.u32") == 3);
  CHECK(loads("ld.global.nc.L1::no_allocate.v2.u32") == 3);
  CHECK(loads("ld.global") == 3 + 3 + loads("ld.global.nc.v4.u32"));
}

TEST_CASE("counters: what persistent blocks stage, and no bank conflicts") {
  if (skipped_without_counters("counters")) return;
  const DeformableShape shape = lab::course_deformable_shape(5, 3000);
  const steps::StagedLevels staging = steps::staged_levels(shape);
  REQUIRE(staging.bytes > 0);
  run_for_counters(step("persistent").function, shape, Distribution::kUniform);
  // Each store to shared memory is a staged byte.
  const double blocks = steps::blocks_of_persistent(shape, staging.bytes);
  CHECK(lab::vgpu::counter("/grid/0") == blocks);
  CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
        planes_of_shares(shape, int(blocks)) * staging.bytes);
  CHECK(shared_conflicts() == 0);
  run_for_counters(step("shared").function, shape, Distribution::kUniform);
  // Each block of step 3 stages for its 256 queries.
  const double chunks = (shape.queries + 255) / 256;
  CHECK(lab::vgpu::counter("/shared/store/bytes_asked") == chunks * shape.batch * staging.bytes);
  CHECK(shared_conflicts() == 0);
}

TEST_CASE("counters: the bulk copy engine brings the levels, one copy each") {
  if (skipped_without_counters("counters") || !lack_of("bulk").empty()) return;
  DeformableShape shape = lab::course_deformable_shape(5, 3000);
  run_for_counters(step("single copies").function, shape, Distribution::kUniform);
  const double blocks = lab::vgpu::counter("/grid/0"), staged = 58880 + 15360;  // levels 2 and 3
  const double copied = lab::vgpu::counter("/async_copied_bytes");
  CHECK(copied == planes_of_shares(shape, int(blocks)) * staged);
  // A copy for each level; nothing but the mbarrier is stored to
  // shared memory, and the load/store unit loads the rest of what persistent's does.
  CHECK(counted("value", "copy_engine/load/bytes") == copied);
  CHECK(counted("value", "copy_engine/load/l2_sectors") == copied / 32);
  CHECK(counted("value", "copy_engine/load/copies") * staged == 2 * copied);
  const double loaded = counted("value", "load/bytes_asked") + copied;
  CHECK(lab::vgpu::counter("/shared/store/bytes_asked") == blocks * 8);
  CHECK(shared_conflicts() == 0);
  run_for_counters(step("persistent").function, shape, Distribution::kUniform);
  const double plain = counted("value", "load/bytes_asked");
  CHECK(loaded / plain == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("counters: with several heads a tensor map makes a few copies of them") {
  if (skipped_without_counters("counters") || !lack_of("bulk").empty()) return;
  struct Case {
    int heads, channels;
    double copies;  // a plane's
  };
  // Of a plane levels 2 and 3, 920 and 240 pixels, are 4 and 1 copies of up to 256 pixels; with 16
  // channels level 1, too, whose 3,680 pixels are 15. Without a map each pixel is a copy of its own.
  for (const auto& [heads, channels, copies] : {Case{2, 16, 20}, {8, 32, 5}, {3, 64, 5}}) {
    CAPTURE(heads);
    DeformableShape shape = lab::course_deformable_shape(2, 60);
    shape.heads = heads;
    shape.channels = channels;
    const double pixels = 23 * 40 + 12 * 20 + (channels == 16 ? 46 * 80 : 0);
    for (const bool boxes : {true, false}) {
      run_for_counters(step(boxes ? "bulk" : "single copies").function, shape,
                       Distribution::kUniform);
      const double planes = planes_of_shares(shape, int(lab::vgpu::counter("/grid/0")));
      CHECK(counted("value", "copy_engine/load/copies") == planes * (boxes ? copies : pixels));
      // What lies beyond a level is not read, though it takes room in shared memory.
      CHECK(counted("value", "copy_engine/load/bytes") == planes * pixels * channels * 2);
      CHECK(lab::vgpu::counter("/async_copied_bytes") >= planes * pixels * channels * 2);
      CHECK(lab::vgpu::counter("/async_copied_bytes") < 1.1 * planes * pixels * channels * 2);
    }
  }
}

TEST_CASE("boxes: as few as there can be, each a multiple of 8 pixels, at most 256") {
  for (int pixels = 1; pixels <= 3000; ++pixels) {
    const auto [box, room] = steps::box_and_room(pixels);
    REQUIRE(box >= 8);
    REQUIRE(box <= 256);
    REQUIRE(box % 8 == 0);
    REQUIRE(room >= pixels);
    REQUIRE(room / box == (pixels + 255) / 256);
    REQUIRE(room - pixels < 8 * room / box);
  }
}

TEST_CASE("counters: rows that are not there are not stored") {
  if (skipped_without_counters("counters")) return;
  // Numbers of queries that are no multiple of a warp's rows, in steps' shares and chunks neither.
  for (const int queries : {1, 33, 323}) {
    CAPTURE(queries);
    const DeformableShape shape = lab::course_deformable_shape(1, queries);
    for (const lab::DeformableStep& step : runnable()) {
      CAPTURE(step.name);
      run_for_counters(step.function, shape, Distribution::kLocal);
      CHECK(counted("out", "store/bytes_asked") == 2.0 * double(shape.out_elements()));
    }
  }
}

TEST_CASE("counters: clusters read staged levels from each other") {
  if (skipped_without_counters("counters") || !lack_of("cluster").empty()) return;
  const DeformableShape shape = lab::course_deformable_shape(3, 3000);
  run_for_counters(step("cluster").function, shape, Distribution::kUniform);
  // Clusters of 8 hold all 19560 pixels of 64 bytes, and stage them together.
  const double clusters = lab::vgpu::counter("/grid/0") / 8, levels = 19560 * 64;
  CHECK(lab::vgpu::counter("/shared/store/bytes_asked") ==
        planes_of_shares(shape, int(clusters)) * levels);
  // Of what the dealt out queries read, 4 pixels of 64 bytes a sample, 7 of 8 lie in another block:
  // runs are dealt out in turn, and uniform points meet all alike. The last block's last round may
  // take a query again.
  const double samples = double(shape.samples()) * 15 / 16;
  const double remote = lab::vgpu::counter("/distributed_shared/load/bytes");
  CHECK(remote / (samples * 4 * 64) == doctest::Approx(7 / 8.0).epsilon(0.02));
  // That is what takes longest.
  CHECK(lab::vgpu::counter("/limits/distributed shared memory") == lab::vgpu::counter("/limit/us"));
}

TEST_CASE("a step that the device lacks the means for is refused by name") {
  if (skipped("refusals")) return;
  const DeformableCase problem =
      deformable_case({1, 5, 1, 16, 1, 4, {{2, 3}}}, Distribution::kUniform, 1);
  for (const lab::DeformableStep& step : kSteps) {
    if (!step.lacks) continue;
    const std::string lack = step.lacks();
    MESSAGE(step.name << " " << (lack.empty() ? "can run" : lack));
    const Outcome outcome = run_deformable(step.function, problem);
    CHECK(outcome.caught_by == (lack.empty() ? "" : "error"));
    if (lack.empty()) continue;
    int major = 0;
    lab::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK(lack.find(major < 9 ? "needs compute capability 9.0 or newer, this device has "
                              : "needs a build for sm_90 or newer") == 0);
    // (*single copies* is the function that *bulk* falls back to, and says so.)
    const std::string name = step.name == "single copies" ? "bulk" : step.name;
    CHECK(outcome.details == "deformable attention, step " + name + ": " + lack);
  }
}

TEST_CASE("counters: hit rates of both distributions, arithmetic intensity") {
  if (skipped_without_counters("counters")) return;
  const DeformableShape shape = lab::course_deformable_shape(1, 1984);
  lab::vgpu::set_cache_model(true);
  for (const lab::DeformableStep& step : runnable()) {
    double hits[2];
    for (const auto where : {Distribution::kLocal, Distribution::kUniform}) {
      run_for_counters(step.function, shape, where);
      hits[int(where)] = counted("value", "cache/l1/hit_rate");
      MESSAGE(step.name << ", " << std::string(lab::distribution_name(where)) << ": L1 hits "
                        << 100 * hits[int(where)] << "% of value's sectors");
    }
    // Samples near each other share pixels; uniform ones only by chance.
    CHECK(hits[0] > hits[1]);
    CHECK(hits[0] < 1);
  }
  lab::vgpu::set_cache_model(false);

  // A multiply-add for each 2 bytes of values: 1 FLOP a byte, less with locations and weights that
  // both columns ask for: 12 bytes a sample beside 4 pixels of 64.
  run_for_counters(step("vectorized").function, shape, Distribution::kLocal);
  const double intensity = 8.0 * double(shape.samples()) * shape.channels /
                           lab::vgpu::counter("/global/load/bytes_asked");
  MESSAGE("arithmetic intensity: " << intensity << " FLOP a byte asked for");
  CHECK(intensity == doctest::Approx(4 * 64 / (4 * 64 + 12.0)));
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

void check_bugs(const std::string& step, const std::vector<Mutant>& bugs) {
  // With one number of channels, so that a template is compiled once a bug.
  const std::vector<DeformableCase> cases = {
      deformable_case({1, 3, 1, 32, 1, 4, {{1, 1}}}, Distribution::kUniform, 1),
      deformable_case({2, 67, 2, 32, 3, 8, {{5, 6}, {1, 4}, {6, 1}}}, Distribution::kUniform, 2,
                      true),
      deformable_case({2, 149, 1, 32, 2, 4, {{8, 9}, {3, 3}}}, Distribution::kLocal, 3, true),
      exact_deformable_case({1, 9, 2, 32, 3, 8, {{4, 8}, {1, 4}, {8, 1}}}),
      long_sum_case({1, 9, 1, 32, 5, 8, {{4, 8}, {1, 4}, {8, 1}, {2, 2}, {4, 2}}})};
  Mutants loaded(step_file("chapters/07_persistent_deformable_attention", step),
                 "persistent_deformable_attention", bugs,
                 step == "simple" ? "" : "const auto instance = &" + step + "_kernel<32>;",
                 Mutants::kKernelsOnly);
  CAPTURE(step);
  const auto run = [&](size_t number, size_t trial) {
    const auto launched = [&](const half* value, const half* locations, const half* weights,
                              half* out, const DeformableShape& shape, cudaStream_t) {
      const void* const kernel = step == "simple"
                                     ? loaded.kernel(number, "simple_kernel")
                                     : loaded.kernel(number, step + "_kernel", {shape.channels});
      steps::launch_mutant(step, kernel, value, locations, weights, out, shape);
    };
    return named(cases[trial].name, run_deformable(launched, cases[trial]));
  };
  check_each_bug(bugs, cases.size(), run, [&] { loaded.reset(); });
}

}  // namespace

TEST_CASE("planted bugs in simple: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in simple*")) return;
  check_bugs("simple", planted_bugs("07_persistent_deformable_attention", "simple"));
}

TEST_CASE("planted bugs in vectorized: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in vectorized*")) return;
  check_bugs("vectorized", planted_bugs("07_persistent_deformable_attention", "vectorized"));
}

TEST_CASE("planted bugs in persistent: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in persistent*")) return;
  check_bugs("persistent", planted_bugs("07_persistent_deformable_attention", "persistent"));
}

TEST_CASE("planted bugs in bulk: each is caught, and by what") {
  if (skipped("planted bugs in bulk") || !lack_of("bulk").empty()) return;
  if (rerun_with_checks("planted bugs in bulk*")) return;
  check_bugs("bulk", planted_bugs("07_persistent_deformable_attention", "bulk"));
}

TEST_CASE("planted bugs in cluster: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (skipped("planted bugs in cluster") || !lack_of("cluster").empty()) return;
  if (rerun_with_checks("planted bugs in cluster*")) return;
  check_bugs("cluster", planted_bugs("07_persistent_deformable_attention", "cluster"));
}

TEST_CASE("bulk: what never ends is caught") {
  if (skipped_without_counters("bulk: what never ends") || !lack_of("bulk").empty()) return;
  check_bugs("bulk", planted_bugs("07_persistent_deformable_attention", "bulk, hangs"));
}

// ---- Checks, other devices, machine code --------------------------------------------------------

TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;
  const int findings = lab::vgpu::findings();
  check_steps(deformable_case({2, 67, 2, 32, 3, 8, {{5, 6}, {1, 4}, {6, 1}}},
                              Distribution::kUniform, 2, true));
  check_steps(deformable_case({3, 149, 1, 64, 2, 4, {{8, 9}, {3, 3}}}, Distribution::kLocal, 3));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("checked: before the copy engine overwrites what threads have read stands a fence") {
  if (skipped("checked: fence") || !lack_of("bulk").empty()) return;
  // PTX's memory model asks for it. The virtual GPU's checks do not: on a GPU a barrier does as well.
  const Mutants none("chapters/07_persistent_deformable_attention/6_bulk.cuh",
                     "persistent_deformable_attention", {}, "", Mutants::kWholeFile,
                     Mutants::kAsShipped);
  const std::string& text = none.ptx();
  int kernels = 0;
  for (size_t at = 0; (at = text.find(".visible .entry", at)) != std::string::npos; ++kernels) {
    const size_t fence = text.find("fence.proxy.async", ++at),
                 copy = text.find("cp.async.bulk", at), next = text.find(".visible .entry", at);
    CHECK(fence < copy);
    CHECK(copy < next);
  }
  CHECK(kernels == 6);  // bulk's and those with tensor maps
}

TEST_CASE("all checks, six schedules") {
  check_all_checks("chapter7", {{"--batch", "3", "--queries", "83", "--channels", "16"},
                                {"--batch", "2", "--queries", "61", "--heads", "2"},
                                {"--batch", "1", "--queries", "70", "--points", "4",
                                 "--distribution", "uniform", "--channels", "64"}});
}

TEST_CASE("on a T4") {
  check_twin_on_t4("right: arrays*,right: more*,the same bits*,counters: vec*,a step that*");
}

TEST_CASE("machine code: no spills") {
  check_machine_code("chapters/07_persistent_deformable_attention");
}
