// Chapter 9's tests: each step right on every kind of shape and part, same bits twice, planted bugs
// found, what kernels do worked out by hand, and the machine code.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../ladder.cuh"
#include "test_support.h"

namespace steps = patch_embedding;
using namespace lab::testing;
using steps::Case;
using steps::Part;
using steps::Shape;

namespace {

void check_steps(const Case& problem, bool exact = false) {
  const bool all = problem.part.outputs() == whole(problem.problem.shape).outputs();
  for (const steps::Step& step : steps::steps_of(3)) {
    if (step.whole && !all) continue;  // has no parts
    CAPTURE(step.name);
    CAPTURE(problem.name);
    const Verdict verdict = run_step(step, problem, exact);
    CAPTURE(verdict.details);
    CHECK(verdict.caught_by == "");
  }
}

}  // namespace

TEST_CASE("right: images and channels that no tile divides") {
  if (skipped("right")) return;
  uint64_t seed = 1;
  for (const Shape& shape : {Shape{1, 16, 16, 1}, Shape{2, 32, 48, 3}, Shape{3, 16, 80, 2}})
    check_steps(steps::random_case(shape, whole(shape), seed++));
  // Of the product alone: several tiles both ways, tiles with patches of two and of many images.
  for (const Shape& shape : {Shape{1, 144, 128, 65}, Shape{5, 80, 80, 130}, Shape{67, 16, 16, 64},
                             Shape{33, 16, 32, 63}}) {
    const Case problem = steps::random_case(shape, whole(shape), seed++);
    CAPTURE(problem.name);
    const Verdict verdict = run_step(steps::steps_of(1).back(), problem);
    CHECK_MESSAGE(verdict.caught_by == "", verdict.details);
  }
}

TEST_CASE("right: a part and nothing beside it") {
  if (skipped("right: a part")) return;
  const Shape shape{2, 32, 48, 7};
  for (const Part& part : {Part{1, 1, 1}, Part{2, 4, 3}, Part{1, 6, 7}})
    check_steps(steps::random_case(shape, part, 5));
}

TEST_CASE("right: sums in fp32, rounded once, exactly") {
  if (skipped("right: rounded once")) return;
  check_steps(steps::exact_case({1, 32, 32, 3}), true);
  for (const Shape& shape : {Shape{2, 64, 48, 67}}) {
    const Verdict verdict = run_step(steps::steps_of(1).back(), steps::exact_case(shape), true);
    CHECK_MESSAGE(verdict.caught_by == "", verdict.details);
  }
}

TEST_CASE("right: arrays from PyTorch") {
  if (skipped("arrays from PyTorch")) return;
  const std::vector<Case> cases = steps::golden_cases();
  REQUIRE(cases.size() == 3);
  for (Case problem : cases) {
    const Verdict verdict = run_step(steps::steps_of(1).back(), problem);
    CHECK_MESSAGE(verdict.caught_by == "", verdict.details);
    problem.part = {1, 1, std::min(2, problem.problem.shape.channels)};
    problem.expected = expected_tokens(problem.problem, problem.part);
    check_steps(problem);
  }
}

TEST_CASE("the same bits twice, and a graph takes what the image holds now") {
  if (skipped("the same bits twice")) return;
  const Shape shape{1, 32, 32, 5};
  Case problem = steps::random_case(shape, whole(shape), 11);
  for (const steps::Step& step : steps::steps_of(2)) {
    CAPTURE(step.name);
    std::vector<half> first, second;
    run_step(step, problem, false, &first);
    run_step(step, problem, false, &second);
    REQUIRE(first.size() == second.size());
    CHECK(std::memcmp(first.data(), second.data(), first.size() * sizeof(half)) == 0);
  }
  // What is prepared once runs on another image.
  const Case other = steps::random_case(shape, whole(shape), 12);
  for (const steps::Step& step : steps::steps_of(2)) {
    CAPTURE(step.name);
    steps::HostArrays arrays(problem.problem, problem.part);
    const auto run = step.prepare(arrays, shape, problem.part);
    run();
    std::copy(other.problem.image.begin(), other.problem.image.end(), arrays.image.data());
    problem.problem.image = other.problem.image;
    problem.expected = expected_tokens(problem.problem, problem.part);
    arrays.tokens.fill_nan();
    run();
    const Verdict verdict = judge(arrays.tokens.data(), problem, false);
    CHECK_MESSAGE(verdict.caught_by == "", verdict.details);
    problem = steps::random_case(shape, whole(shape), 11);
  }
}

TEST_CASE("what they cannot do they refuse") {
  if (skipped("refusals")) return;
  const auto refused = [](const Shape& shape, const Part& part, const char* why) {
    const std::string text = [&] {
      try {
        require_shape(shape, part);
      } catch (const std::invalid_argument& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    }();
    CAPTURE(text);
    CHECK(text.find(why) != std::string::npos);
  };
  refused({1, 24, 32, 4}, {1, 1, 1},
          "[batch 1, 24 x 32 pixels, 4 channels]: height and width must");
  refused({1, 16, 0, 4}, {1, 1, 1}, "multiples of 16 pixels, at least 16");
  refused({0, 16, 16, 4}, {1, 1, 1}, "at least 1");
  refused({1, 16, 16, 4}, {1, 2, 4}, "not 1, 2 and 4");
  refused({4096, 2048, 2048, 4}, {1, 1, 1}, "2147483647");
  CHECK_THROWS_WITH_AS(steps::embed(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                    {1, 16, 16, 4194241}, nullptr),
                       doctest::Contains("at most 4194240 channels"), std::invalid_argument);
  const lab::DeviceArray<half> some(1 << 14, "some");
  const Shape shape{1, 16, 16, 4};
  half* const p = const_cast<half*>(some.data());
  CHECK_THROWS_AS(steps::embed(p + 1, p, p, p, p, p, shape, nullptr), std::invalid_argument);
  CHECK_THROWS_AS(steps::embed(p, p + 1, p, p, p, p, shape, nullptr), std::invalid_argument);
  steps::HostArrays arrays(steps::random_case(shape, whole(shape), 1).problem, whole(shape));
  CHECK_THROWS_AS(steps::streams({}, nullptr, shape, whole(shape), nullptr, nullptr, {}),
                  std::invalid_argument);
}

TEST_CASE("counters: what a launch of each step asks for") {
  if (skipped_without_counters("counters")) return;
  const Shape shape{1, 160, 144, 100};  // 90 patches: 2 tiles by 2 tiles
  const auto count = [&](size_t step, const Part& part) {
    const Case problem = steps::random_case(shape, part, 3);
    const Verdict verdict = run_step(steps::steps_of(1)[step], problem);
    REQUIRE_MESSAGE(verdict.caught_by == "", verdict.details);
  };
  count(0, {1, 1, 1});  // 16 pixels, 16 weights, the sum read and written
  CHECK(lab::vgpu::counter("/global/load/bytes_asked") == 2 * 16 * 2 + 4);
  CHECK(lab::vgpu::counter("/global/store/bytes_asked") == 4);
  count(1, {1, 1, 1});  // a patch and a filter, the token
  CHECK(lab::vgpu::counter("/global/load/bytes_asked") == 2 * 768 * 2);
  CHECK(lab::vgpu::counter("/global/load/sectors") == 2 * 768 * 2 / 32);
  CHECK(lab::vgpu::counter("/global/store/bytes_asked") == 2);
  count(steps::steps_of(1).size() - 1, whole(shape));
  const double tiles = 2 * 2;
  CHECK(lab::vgpu::counter("/tensor_macs") == tiles * 64 * 64 * 768);
  // Each column of tiles reads all patches, each row of tiles all filters; bias and position go with
  // each token, the class token with its row, once.
  const double patches = 90, channels = 100;
  const double read = 2 * (patches * 768 + channels * 768) * 2;
  const double added = 2 * (2 * patches * channels + 2 * channels);
  CHECK(lab::vgpu::counter("/global/load/bytes_asked") == read + added);
  CHECK(lab::vgpu::counter("/global/store/bytes_asked") == 2 * 91 * channels);
  // A request for 16-byte pieces brings whole sectors, none twice.
  CHECK(lab::vgpu::counter("/allocations/patch embedding's memory/store/sectors") >=
        2 * 91 * channels / 32);
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

using Run = std::function<void(const void* kernel, const Case&, half* tokens)>;

// All cases with each kernel of the mutants; run() fills the tokens of a case in host memory.
void check_bugs(const std::string& file, const std::string& kernel, const std::vector<Mutant>& bugs,
                const std::vector<Case>& cases, const Run& run) {
  Mutants loaded("chapters/09_patch_embedding/" + file, "patch_embedding", bugs);
  const auto tried = [&](size_t number, size_t trial) {
    const Case& problem = cases[trial];
    std::vector<half> tokens(problem.problem.shape.token_values(), __float2half(NAN));
    Verdict verdict;
    if (ran([&] { run(loaded.kernel(number, kernel), problem, tokens.data()); }, verdict))
      verdict = judge(tokens.data(), problem, problem.name.rfind("exact", 0) == 0);
    return named(problem.name, verdict);
  };
  check_each_bug(bugs, cases.size(), tried, [&] { loaded.reset(); });
}

steps::Inputs inputs_of(const Case& problem) {
  const steps::Problem& p = problem.problem;
  return {p.image.data(), p.weight.data(), p.bias.data(), p.class_token.data(), p.position.data()};
}

// Tokens of a part by a kernel that computes one of them: compute(patch, filter, patch's number,
// channel), with both on the device.
using OneToken =
    std::function<half(const half* patch, const half* filter, int number, int channel)>;
void by_single_tokens(const Case& problem, half* tokens, const OneToken& compute) {
  const Shape& shape = problem.problem.shape;
  const steps::Inputs in = inputs_of(problem);
  steps::write_class_rows(in, tokens, shape, problem.part);
  std::vector<half> patches(problem.part.patches * steps::kPatchValues);
  steps::sort_by_patches(in.image, patches.data(), shape, 1, problem.part.patches);
  const lab::DeviceArray<half> pixels(patches, "pixels"),
      weights(problem.problem.weight, "weights");
  steps::for_each_output(problem.part, [&](int, int patch, int channel) {
    tokens[steps::token_at(shape, 0, 1 + patch, channel)] =
        compute(pixels.data() + patch * steps::kPatchValues,
                weights.data() + channel * steps::kPatchValues, patch, channel);
  });
}

std::vector<Case> small_cases() {
  const Shape shape{1, 32, 32, 3};
  return {steps::random_case(shape, {1, 2, 2}, 21), steps::exact_case({1, 16, 32, 2})};
}

}  // namespace

TEST_CASE("planted bugs in channel launches: each is caught, and by what" *
          doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs in channel*")) return;
  check_bugs(
      "1_channel_launches.cuh", "add_row_kernel",
      planted_bugs("09_patch_embedding", "channel launches"), small_cases(),
      [](const void* kernel, const Case& problem, half* tokens) {
        lab::DeviceArray<float> sum(1, "sum");
        by_single_tokens(
            problem, tokens, [&](const half* patch, const half* filter, int number, int channel) {
              sum.upload({offset_of(inputs_of(problem), problem.problem.shape, number, channel)});
              for (int row = 0; row < steps::kRowsOfPatch; ++row)
                launch(kernel, 1, steps::kSide, 0, nullptr, patch + row * steps::kSide,
                       filter + row * steps::kSide, sum.data());
              return __float2half(sum.download()[0]);
            });
      });
}

TEST_CASE("planted bugs in unified: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in unified*")) return;
  check_bugs("2_unified.cuh", "dot_kernel", planted_bugs("09_patch_embedding", "unified"),
             small_cases(), [](const void* kernel, const Case& problem, half* tokens) {
               lab::DeviceArray<half> token(1, "token");
               by_single_tokens(
                   problem, tokens,
                   [&](const half* patch, const half* filter, int number, int channel) {
                     launch(kernel, 1, steps::kDotThreads, 0, nullptr, patch, filter,
                            offset_of(inputs_of(problem), problem.problem.shape, number, channel),
                            token.data());
                     return token.download()[0];
                   });
             });
}

TEST_CASE("planted bugs in one product: each is caught, and by what") {
  if (rerun_with_checks("planted bugs in one product*")) return;
  const Shape small{1, 32, 32, 3}, large{3, 48, 112, 70};
  check_bugs(
      "6_one_product.cuh", "product_kernel", planted_bugs("09_patch_embedding", "one product"),
      {steps::random_case(small, whole(small), 31), steps::random_case(large, whole(large), 32)},
      [](const void* kernel, const Case& problem, half* tokens) {
        const steps::Problem& p = problem.problem;
        const lab::DeviceArray<half> image(p.image, "image"), weight(p.weight, "weight"),
            bias(p.bias, "bias"), class_token(p.class_token, "class_token"),
            position(p.position, "position");
        GuardedOutput<half> out(size_t(p.shape.token_values()), "tokens");
        const int patches = p.shape.batch * p.shape.patches();
        launch(kernel,
               dim3((patches - 1) / steps::kTile + 1, (p.shape.channels - 1) / steps::kTile + 1),
               steps::kProductThreads, 0, nullptr, image.data(), weight.data(), bias.data(),
               class_token.data(), position.data(), out.data(), p.shape);
        lab::check(cudaDeviceSynchronize());
        std::vector<half> written;
        if (!out.download(written)) throw std::runtime_error("wrote beyond the tokens");
        std::copy(written.begin(), written.end(), tokens);
      });
}

// ---- Checks, other devices, machine code, program -----------------------------------------------

TEST_CASE("checked: without a finding") {
  if (rerun_with_checks("checked*")) return;
  const int findings = lab::vgpu::findings();
  const Shape shape{2, 32, 48, 3};
  check_steps(steps::random_case(shape, whole(shape), 2));
  CHECK(lab::vgpu::findings() == findings);
}

TEST_CASE("checked: streams that share their memory are found") {
  if (rerun_with_checks("checked: streams*") || skipped_without_counters("checked")) return;
  // Two streams that are given one place for patch, filter and token: the second one's copy may come
  // before the first one's kernel has read. The host waits for neither.
  const Shape shape{1, 32, 32, 2};
  const Case problem = steps::random_case(shape, whole(shape), 2);
  steps::HostArrays a(problem.problem, problem.part);
  lab::DeviceArray<uint4> memory(2 * steps::kDotBytes / sizeof(uint4), "memory");
  const auto both = steps::streams_of(2);
  const int findings = lab::vgpu::findings();
  const steps::DotMemory device(memory.data());
  for (int i = 0; i < 2; ++i) {
    steps::copy_to_device(device.patch, a.image.data(), 1536, (*both)[i]);
    steps::copy_to_device(device.filter, a.weight.data(), 1536, (*both)[i]);
    steps::dot_kernel<<<1, steps::kDotThreads, 0, (*both)[i]>>>(device.patch, device.filter, 0.0f,
                                                                device.token);
  }
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::findings() > findings);
}

TEST_CASE("checked: a step that returns has waited for all that it has submitted") {
  if (rerun_with_checks("checked: a step*") || skipped_without_counters("checked")) return;
  // Twice on the same arrays, by streams of its own each time. If the host has not waited for the first
  // ones, nothing orders what both write.
  const Shape shape{1, 32, 32, 2};
  const Case problem = steps::random_case(shape, whole(shape), 2);
  for (const steps::Step& step : steps::steps_of(3)) {
    CAPTURE(step.name);
    steps::HostArrays arrays(problem.problem, problem.part);
    const auto first = step.prepare(arrays, shape, problem.part),
               second = step.prepare(arrays, shape, problem.part);
    const int findings = lab::vgpu::findings();
    first();
    second();
    CHECK(lab::vgpu::findings() == findings);
  }
}

TEST_CASE("all checks, six schedules") {
  check_all_checks("chapter9",
                   {{"--size", "32", "--channels", "5", "--part", "2x3", "--batch", "2"},
                    {"--size", "160", "--channels", "70", "--part", "1x1"}});
}

TEST_CASE("on a T4") { check_on_t4("right: arrays*,right: images*,the same bits*"); }

TEST_CASE("machine code: no spills") { check_machine_code("chapters/09_patch_embedding"); }
