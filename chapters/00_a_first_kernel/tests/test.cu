// Chapter 0's tests: each step exactly right on every kind of shape, same bits twice, planted bugs, and
// counters by formula.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "../../../common/lab/device.h"
#include "../../../common/testing/checks.h"
#include "../1_whole_way.cuh"
#include "../2_grey_columns.cuh"
#include "../3_grey_rows.cuh"
#include "../4_race.cuh"
#include "../5_sum_threads.cuh"
#include "../6_sum_blocks.cuh"
#include "../7_blur.cuh"
#include "../8_blur_tile.cuh"
#include "../variants/sum_serial.cuh"
#include "test_support.h"

namespace steps = first_kernel;
using namespace lab::testing;

namespace {

struct Named {
  std::string name;
  Launched step;
};
const std::vector<Named> kGreys = {{"grey columns", steps::grey_columns},
                                   {"grey rows", steps::grey_rows}};
const std::vector<Named> kBlurs = {{"blur", steps::blur}, {"blur tile", steps::blur_tile}};
struct NamedSum {
  std::string name;
  LaunchedSum step;
};
const std::vector<NamedSum> kSums = {{"sum threads", steps::sum_threads},
                                     {"sum blocks", steps::sum_blocks},
                                     {"sum serial", steps::sum_serial}};

void check_right(const std::string& step, const Verdict& verdict) {
  CAPTURE(step);
  CAPTURE(verdict.details);
  CHECK(verdict.caught_by == "");
}

void check_steps(const PhotoCase& problem) {
  CAPTURE(problem.name);
  for (const Named& grey : kGreys) check_right(grey.name, run_grey(grey.step, problem));
  for (const NamedSum& sum : kSums) check_right(sum.name, run_sum(sum.step, problem));
  for (const Named& blur : kBlurs) check_right(blur.name, run_blur(blur.step, problem));
}

}  // namespace

// ---- Right --------------------------------------------------------------------------------------

TEST_CASE("right: photos of every shape") {
  if (skipped("right: shapes")) return;
  for (const PhotoShape& shape : photo_shapes()) check_steps(photo_case(shape));
}

TEST_CASE("right: black, white, and the largest sum that fits into 32 bits") {
  if (skipped("right: white")) return;
  PhotoCase problem = photo_case({33, 70});
  for (const unsigned char value : {0, 254}) {
    std::fill(problem.problem.photo.begin(), problem.problem.photo.end(), value);
    problem.expected = lab::expected_results(problem.problem);
    CHECK(problem.expected.blurred == std::vector<unsigned char>(33 * 70, value));
    check_steps(problem);
  }
  constexpr PhotoShape kLargest{1024, 16384};
  const lab::DeviceArray<unsigned char> white(std::vector<unsigned char>(kLargest.pixels(), 255),
                                              "white");
  lab::DeviceArray<unsigned> sum(1, "sum");
  lab::vgpu::set_counters(false);
  steps::sum_blocks(white.data(), sum.data(), kLargest, nullptr);
  lab::vgpu::set_counters(true);
  CHECK(sum.download()[0] == 4278190080u);
}

TEST_CASE("right: a photo's whole way from the host and back") {
  if (skipped("right: whole way")) return;
  const PhotoCase problem = photo_case({31, 45});
  std::vector<unsigned char> grey(problem.expected.grey.size(), 255);
  steps::grey_of_host(problem.problem.photo.data(), grey.data(), problem.problem.shape);
  CHECK(grey == problem.expected.grey);
  CHECK_THROWS_AS(steps::grey_of_host(nullptr, grey.data(), {0, 5}), std::invalid_argument);
}

TEST_CASE("right: the same when replayed from a graph, which sets a sum to 0 again") {
  if (skipped("right: graph")) return;
  const PhotoCase problem = photo_case({50, 60});
  for (const Named& grey : kGreys) check_right(grey.name, run_grey(in_a_graph(grey.step), problem));
  for (const NamedSum& sum : kSums) check_right(sum.name, run_sum(in_a_graph(sum.step), problem));
  for (const Named& blur : kBlurs) check_right(blur.name, run_blur(in_a_graph(blur.step), problem));
}

TEST_CASE("what they cannot do they refuse") {
  const auto message = [](const PhotoShape& shape, bool null) -> std::string {
    const unsigned char* const some = reinterpret_cast<const unsigned char*>(256);
    std::string said;
    const auto try_one = [&](const auto& call) {
      try {
        call();
      } catch (const std::invalid_argument& error) {
        said += (said.empty() || said == error.what()) ? "" : " and " + said;
        said = error.what();
      }
    };
    for (const Named& any : kGreys)
      try_one([&] { any.step(some, null ? nullptr : const_cast<unsigned char*>(some), shape, 0); });
    for (const Named& any : kBlurs)
      try_one([&] { any.step(some, null ? nullptr : const_cast<unsigned char*>(some), shape, 0); });
    for (const NamedSum& any : kSums) try_one([&] { any.step(some, nullptr, shape, 0); });
    return said;
  };
  CHECK(message({0, 5}, false) == "photo of shape [height 0, width 5]: height must be 1 to 16384");
  CHECK(message({5, 16385}, false) ==
        "photo of shape [height 5, width 16385]: width must be 1 to 16384");
  CHECK(message({4097, 4096}, false) ==
        "photo of shape [height 4097, width 4096]: at most 16777216 pixels, since their sum must "
        "fit into 32 bits");
  CHECK(message({5, 5}, true) == "photo of shape [height 5, width 5]: no array may be null");
}

// ---- Counters -----------------------------------------------------------------------------------

namespace {

struct Arrays {
  lab::DeviceArray<unsigned char> photo, grey, blurred;
  lab::DeviceArray<unsigned> sum;
  explicit Arrays(const PhotoShape& shape)
      : photo(std::vector<unsigned char>(3 * shape.pixels(), 7), "photo"),
        grey(std::vector<unsigned char>(shape.pixels(), 9), "grey"),
        blurred(size_t(shape.pixels()), "blurred"),
        sum(1, "sum") {}
};

}  // namespace

TEST_CASE("counters: grey moves 32 bytes in one sector by rows, and in 32 by columns") {
  if (skipped_without_counters("counters: grey")) return;
  for (const PhotoShape& shape : {PhotoShape{64, 96}, PhotoShape{224, 224}}) {
    CAPTURE(describe(shape));
    Arrays a(shape);
    const double pixels = double(shape.pixels());
    for (const auto& [step, sectors] :
         {std::pair{Launched(steps::grey_columns), 32.0}, {Launched(steps::grey_rows), 1.0}}) {
      step(a.photo.data(), a.grey.data(), shape, nullptr);
      CHECK(counted("photo", "load/bytes_asked") == 3 * pixels);
      CHECK(counted("photo", "load/requests") == 3 * pixels / 32);
      CHECK(counted("photo", "load/sectors") == 3 * pixels / 32 * sectors);
      CHECK(counted("grey", "store/bytes_asked") == pixels);
      CHECK(counted("grey", "store/requests") == pixels / 32);
      CHECK(counted("grey", "store/sectors") == pixels / 32 * sectors);
    }
  }
}

TEST_CASE("counters: an atomic operation a warp, or one a block") {
  if (skipped_without_counters("counters: sum")) return;
  for (const PhotoShape& shape : {PhotoShape{64, 96}, PhotoShape{31, 45}}) {
    CAPTURE(describe(shape));
    Arrays a(shape);
    const double pixels = double(shape.pixels()), warps = std::ceil(pixels / 32),
                 blocks = std::ceil(pixels / 256);
    for (const NamedSum& sum : kSums) {
      CAPTURE(sum.name);
      sum.step(a.grey.data(), a.sum.data(), shape, nullptr);
      const bool by_threads = sum.name == "sum threads";
      CHECK(counted("grey", "load/requests") == warps);
      CHECK(counted("grey", "load/bytes_asked") == pixels);
      CHECK(counted("sum", "atomic/requests") == (by_threads ? warps : blocks));
      CHECK(counted("sum", "atomic/bytes_asked") == 4 * (by_threads ? pixels : blocks));
      // A tree: 8 warps store; then 4, 2 and 1 warps, and one warp five times more, load two values
      // and store one; one thread loads the sum.
      if (sum.name == "sum blocks")
        CHECK(shared_wavefronts() == blocks * (8 + 3 * (4 + 2 + 1 + 5) + 1));
      CHECK(shared_conflicts() == 0);
    }
  }
}

TEST_CASE("counters: a blur asks for up to 81 bytes a pixel, its tile for what the block needs") {
  if (skipped_without_counters("counters: blur")) return;
  for (const PhotoShape& shape : {PhotoShape{64, 96}, PhotoShape{224, 224}}) {
    CAPTURE(describe(shape));
    Arrays a(shape);
    const double height = shape.height, width = shape.width;
    // At an edge windows of 9 pixels are 4, 3, 2 and 1 pixel shorter.
    steps::blur(a.grey.data(), a.blurred.data(), shape, nullptr);
    CHECK(counted("grey", "load/bytes_asked") == (9 * height - 20) * (9 * width - 20));
    CHECK(counted("blurred", "store/sectors") == height * width / 32);
    // Tiles of 16 x 40 pixels for 8 x 32, without the 4 beyond each edge.
    steps::blur_tile(a.grey.data(), a.blurred.data(), shape, nullptr);
    CHECK(counted("grey", "load/bytes_asked") == (height / 8 * 16 - 8) * (width / 32 * 40 - 8));
    CHECK(counted("blurred", "store/sectors") == height * width / 32);
  }
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// The kernel as a launch function has it.
Launched with_pixels(const void* kernel, dim3 block, bool lanes_along_y) {
  return [=](const unsigned char* from, unsigned char* to, const PhotoShape& shape,
             cudaStream_t stream) {
    const int across = int(lanes_along_y ? block.y : block.x),
              down = int(lanes_along_y ? block.x : block.y);
    const dim3 grid(steps::blocks_for(shape.width, across), steps::blocks_for(shape.height, down));
    launch(kernel, grid, block, 0, stream, from, to, shape.height, shape.width);
  };
}
LaunchedSum with_sum(const void* kernel) {
  return
      [=](const unsigned char* from, unsigned* sum, const PhotoShape& shape, cudaStream_t stream) {
        lab::check(cudaMemsetAsync(sum, 0, sizeof(unsigned), stream));
        launch(kernel, steps::blocks_for(shape.pixels(), 256), 256, 0, stream, from, sum,
               int(shape.pixels()));
      };
}

void check_bugs(const std::string& step, const std::vector<Mutant>& bugs,
                const std::function<Verdict(const void*, const PhotoCase&)>& run) {
  const std::vector<PhotoCase> cases = {photo_case({9, 33}), photo_case({20, 40}, 2)};
  Mutants mutants(step_file("chapters/00_a_first_kernel", step), "first_kernel", bugs, "",
                  Mutants::kKernelsOnly);
  check_each_bug(
      bugs, cases.size(),
      [&](size_t number, size_t trial) {
        return named(cases[trial].name,
                     run(mutants.kernel(number, step + "_kernel"), cases[trial]));
      },
      [&] { mutants.reset(); });
}

}  // namespace

TEST_CASE("planted bugs in both greys: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in both*")) return;
  std::vector<Mutant> bugs = planted_bugs("00_a_first_kernel", "grey");
  check_bugs("grey_rows", bugs, [](const void* kernel, const PhotoCase& problem) {
    return run_grey(with_pixels(kernel, steps::kRowBlock, false), problem);
  });
  const std::vector<Mutant> of_columns = planted_bugs("00_a_first_kernel", "grey columns");
  bugs.insert(bugs.end(), of_columns.begin(), of_columns.end());
  check_bugs("grey_columns", bugs, [](const void* kernel, const PhotoCase& problem) {
    return run_grey(with_pixels(kernel, steps::kColumnBlock, true), problem);
  });
}

TEST_CASE("planted bugs in sums: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in sums*")) return;
  const auto run = [](const void* kernel, const PhotoCase& problem) {
    return run_sum(with_sum(kernel), problem);
  };
  check_bugs("sum_threads", planted_bugs("00_a_first_kernel", "sum threads"), run);
  check_bugs("sum_blocks", planted_bugs("00_a_first_kernel", "sum blocks"), run);
}

TEST_CASE("planted bugs in blurs: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in blurs*")) return;
  check_bugs("blur", planted_bugs("00_a_first_kernel", "blur"),
             [](const void* kernel, const PhotoCase& problem) {
               return run_blur(with_pixels(kernel, steps::kBlurBlock, false), problem);
             });
  check_bugs("blur_tile", planted_bugs("00_a_first_kernel", "blur tile"),
             [](const void* kernel, const PhotoCase& problem) {
               return run_blur(
                   with_pixels(kernel, dim3(steps::kTileWidth, steps::kTileHeight), false),
                   problem);
             });
}

TEST_CASE("the race is found, by its result and by the check") {
  if (rerun_with_checks("the race is found*")) return;
  if (skipped_without_counters("the race")) return;
  const int findings = lab::vgpu::findings();
  CHECK(run_sum(steps::race, photo_case({9, 33})).caught_by == "element");
  CHECK(lab::vgpu::findings() > findings);
}

// ---- Checks -------------------------------------------------------------------------------------

TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;
  const int findings = lab::vgpu::findings();
  for (const PhotoShape& shape : {PhotoShape{1, 1}, PhotoShape{31, 33}, PhotoShape{40, 64}})
    check_steps(photo_case(shape));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("the program under all checks, in several orders") {
  check_all_checks("chapter0", {{"--height", "31", "--width", "45"}, {"--size", "40"}});
}

TEST_CASE("machine code: no spills") { check_machine_code("chapters/00_a_first_kernel"); }

TEST_CASE("on a T4") { check_on_t4("right: photos*,right: the same*,counters: grey*"); }
