// Tests of data files, batches, augmentation, training, checkpoints, and of the program.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/images.h"
#include "../../../common/testing/checks.h"
#include "../host/reference.h"
#include "../host/trainer.h"

using namespace lab::testing;

namespace {

std::string big_endian(uint32_t value) {
  return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
}
std::string images_file(uint32_t count, uint32_t side, size_t bytes) {
  return big_endian(0x803) + big_endian(count) + big_endian(side) + big_endian(side) +
         std::string(bytes, 'x');
}
std::string labels_file(const std::string& labels) {
  return big_endian(0x801) + big_endian(uint32_t(labels.size())) + labels;
}

// What reading these two files says, behind the folder's name.
std::string refusal(const std::string& images, const std::string& labels) {
  TemporaryFolder folder;
  folder.write("images", images);
  folder.write("labels", labels);
  try {
    training::read_idx(folder.path("images"), folder.path("labels"));
  } catch (const lab::UsageError& error) {
    return std::string(error.what()).substr(folder.folder().size() + 1);
  }
  return "";
}

training::NetShape narrow_shape() {
  return {28, 1, 10, 1, {{{7, 4, 2, 32, 1, 1}, {3, 2, 1, 32, 1, 1}, {3, 2, 1, 32, 1, 1}}}};
}
training::Settings few_steps() {
  training::Settings settings;
  settings.steps = 4, settings.batch = 3, settings.warm_up = 2;
  return settings;
}

std::string message_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("IDX files: what is wrong is named with its value") {
  const std::string two = images_file(2, 28, 2 * 784), labels = labels_file({1, 9});
  CHECK(refusal(two, labels) == "");
  CHECK(refusal(images_file(2, 28, 2 * 784 - 1), labels) ==
        "images: is truncated: 1583 bytes, its header says 1584");
  CHECK(refusal(images_file(2, 28, 2 * 784 + 1), labels) ==
        "images: is too long: 1585 bytes, its header says 1584");
  CHECK(refusal(images_file(2, 32, 2 * 1024), labels) ==
        "images: has images of 32 x 32 pixels, must be 28 x 28");
  CHECK(refusal(two.substr(0, 15), labels) ==
        "images: is truncated: 15 bytes, the header alone has 16");
  CHECK(has(refusal(labels_file(std::string(20, 1)), two), "begins with the bytes 00 00 08 01"));
  CHECK(has(refusal("\x1f\x8b" + two, labels), "gunzip"));
  CHECK(has(refusal(two, labels_file({1, 2, 3})), "has 3 labels, must have 2"));
  CHECK(refusal(two, labels_file({1, 10})) == "labels: label 10 of image 1, must be from 0 to 9");
  CHECK(has(refusal(images_file(0, 28, 0), labels_file("")), "must have at least 1"));
}

TEST_CASE(
    "batches: each epoch every image once, in another order; augmentation of 0 changes nothing") {
  const training::Split split = training::read_excerpt();
  REQUIRE(split.training.count == 400);
  REQUIRE(split.held_out.count == 100);
  CHECK(training::checksum(split.training) != training::checksum(split.held_out));
  std::vector<std::vector<int>> epochs(2);
  for (int step = 0; step < 20; ++step)
    for (const int image : training::batch_of_step(split.training, 40, step, 1))
      epochs[step / 10].push_back(image);
  for (const auto& epoch : epochs) CHECK(std::set<int>(epoch.begin(), epoch.end()).size() == 400);
  CHECK(epochs[0] != epochs[1]);
  CHECK(training::batch_of_step(split.training, 40, 3, 2) !=
        training::batch_of_step(split.training, 40, 3, 1));
  CHECK_THROWS_AS(training::batch_of_step(split.training, 401, 0, 1), std::invalid_argument);
  const std::vector<int> numbers = {5, 17};
  const training::Augmentation none{0, 0, 0, false};
  CHECK(training::augmented(split.training, numbers, none, 9, 1) ==
        training::pixels(split.training, numbers));
  CHECK(training::augmented(split.training, numbers, {}, 9, 1) !=
        training::augmented(split.training, numbers, {}, 8, 1));
}

TEST_CASE("linear classifier: finds a line that separates; accuracies have Wilson's interval") {
  std::vector<float> images;
  std::vector<int> labels;
  for (int i = 0; i < 60; ++i) {
    const int label = i % 3;
    for (int p = 0; p < 20; ++p) images.push_back(p % 3 == label ? 2.0f : float(i % 7) / 7);
    labels.push_back(label);
  }
  const std::vector<float> weights = training::train_linear(images, labels, 3, 50, 0.01);
  CHECK(training::count_right(training::linear_answers(weights, images, 60, 3), labels) == 60);
  const training::Interval bounds = training::interval_of(80, 100);
  CHECK(bounds.low == doctest::Approx(0.711).epsilon(0.001));
  CHECK(bounds.high == doctest::Approx(0.867).epsilon(0.001));
}

TEST_CASE("training: resumed, it ends with the bits of an uninterrupted run") {
  if (!has_device()) return;
  const training::Split split = training::read_excerpt();
  TemporaryFolder folder;
  const std::string path = folder.path("half.safetensors");
  training::Trainer whole(narrow_shape(), split.training, few_steps()),
      first(narrow_shape(), split.training, few_steps()),
      second(narrow_shape(), split.training, few_steps());
  for (int i = 0; i < 4; ++i) whole.step();
  for (int i = 0; i < 2; ++i) first.step();
  first.save(path);
  CHECK(folder.names() == std::vector<std::string>{"half.safetensors"});
  second.resume(path);
  CHECK(second.steps_done() == 2);
  for (int i = 0; i < 2; ++i) second.step();
  CHECK(second.losses() == whole.losses());
  CHECK(second.net().parameters() == whole.net().parameters());
  CHECK(second.net().running() == whole.net().running());
  CHECK(whole.net().running() != training::first_running(whole.net().layout()));

  SUBCASE("a checkpoint that is damaged, of another net or of other images is refused") {
    const std::string content = file_content(path);
    const auto refused = [&](const std::string& text) {
      folder.write("bad.safetensors", text);
      return message_of([&] { second.resume(folder.path("bad.safetensors")); });
    };
    std::string damaged = content;
    damaged[content.size() / 2] ^= 1;
    CHECK(has(refused(damaged), "is damaged: its numbers are not those of its checksum"));
    CHECK(has(refused(content.substr(0, content.size() - 8)), "bad.safetensors"));
    training::NetShape wider = narrow_shape();
    wider.stages[2].width = 64;
    training::Trainer other(wider, split.training, few_steps());
    CHECK(has(message_of([&] { other.resume(path); }), "a checkpoint of another net"));
    training::Trainer other_data(narrow_shape(), split.held_out, few_steps());
    CHECK(has(message_of([&] { other_data.resume(path); }), "was trained on other images"));
    // Nothing of them was taken.
    CHECK(second.net().parameters() == whole.net().parameters());
  }
  SUBCASE("a loss that is not finite is named with step and array") {
    std::vector<float> values = second.net().parameters();
    values[second.net().layout().of("stages.2.norm.bias")] = std::nanf("");
    second.net().set_parameters(values);
    const std::string message = message_of([&] { second.step(); });
    CHECK(has(message, "step 5: the loss is"));
    CHECK(has(message, "parameter stages.2.norm.bias"));
    CHECK(second.losses().size() == 4);
    const std::string before = file_content(path);
    CHECK(has(message_of([&] { second.save(path); }), "is not written"));
    CHECK(file_content(path) == before);
    CHECK(has(message_of([&] {
                training::logits_of(second.net(), training::pixels(split.held_out, {0}), 1);
              }),
              "a logit is"));
  }
}

TEST_CASE("program: trains in two runs, then reads a photo") {
  if (!has_device()) return;
  TemporaryFolder folder;
  const auto run = [&](const std::vector<std::string>& arguments) {
    return run_program("chapter18", arguments, folder.folder());
  };
  const ProgramResult first =
      run({"--steps", "2", "--batch", "10", "--stop-after", "1", "--checkpoint", "a.safetensors"});
  CAPTURE(first.errors);
  REQUIRE(first.exit_code == 0);
  CHECK(has(first.output, "1 of 2 steps are done"));
  const ProgramResult again = run({"--checkpoint", "a.safetensors"});
  CHECK(again.exit_code == 2);
  CHECK(has(again.errors, "is there already"));
  const ProgramResult second =
      run({"--resume", "a.safetensors", "--json", "a.json", "--out", "b.png"});
  CAPTURE(second.errors);
  REQUIRE(second.exit_code == 0);
  CHECK(has(second.output, "goes on behind step 1 of 2"));
  CHECK(has(second.output, "linear classifier"));
  CHECK(std::stod(json_at(file_content(folder.path("a.json")), "/kernels/0/linear_right")) > 70);
  CHECK(lab::load_image(folder.path("b.png")).width == 720);
  CHECK(lab::load_image(folder.path("b_misread.png")).height > 100);
  lab::Image photo{40, 40, std::vector<unsigned char>(40 * 40 * 3, 250)};
  for (int i = 0; i < 40 * 40 * 3; ++i)
    if (i / 3 % 40 > 12 && i / 3 % 40 < 28) photo.rgb[i] = 40;
  lab::save_image(folder.path("photo.png"), photo);
  const ProgramResult infer = run({"--infer", "photo.png", "--checkpoint", "a.safetensors"});
  CAPTURE(infer.errors);
  CHECK(infer.exit_code == 0);
  CHECK(has(infer.output, "photo.png shows, with probability:"));
  CHECK(has(infer.output, "light background"));
}

TEST_CASE("training, counters: AdamW, a step's last launch, reads four numbers and writes three") {
  if (skipped_without_counters("training: counters")) return;
  const training::Split split = training::read_excerpt();
  training::Trainer trainer(narrow_shape(), split.training, few_steps());
  trainer.step();
  lab::check(cudaDeviceSynchronize());
  const training::Layout& layout = trainer.net().layout();
  const double bytes = 4.0 * double(layout.size - layout.decayed);  // the numbers without decay
  for (const char* const array : {"parameters", "gradients", "AdamW's m", "AdamW's v"}) {
    CAPTURE(array);
    CHECK(counted(array, "load/bytes_asked") == bytes);
    CHECK(counted(array, "store/bytes_asked") == (std::string(array) == "gradients" ? 0.0 : bytes));
  }
}

TEST_CASE("checked training: a step without a finding") {
  if (rerun_with_checks("checked training*")) return;
  const int findings = lab::vgpu::findings();
  const training::Split split = training::read_excerpt();
  training::Trainer trainer(narrow_shape(), split.training, few_steps());
  const float first = trainer.step();
  CHECK(first == doctest::Approx(std::log(10.0)).epsilon(0.3));  // it knows nothing yet
  CHECK(trainer.step() != first);
  CHECK(lab::vgpu::findings() == findings);
}
TEST_CASE("checked training in other orders") {
  check_in_other_orders("checked training: a step*");
}

TEST_CASE("training: a device without tf32 is refused, with exit code 3") {
  if (skipped_without_counters("training on a T4")) return;
  const Environment older("VGPU_DEVICE", "t4");
  TemporaryFolder folder;
  const ProgramResult result = run_program("chapter18", {"--steps", "1"}, folder.folder());
  CAPTURE(result.errors);
  CHECK(result.exit_code == 3);
  CHECK(has(result.errors, "products in tf32 need sm_80 or newer"));
}

TEST_CASE("program: bad usage ends with 2 and says what is right") {
  TemporaryFolder folder;
  const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
      {{"--steps", "0"}, "--steps '0'"},
      {{"--lr", "fast"}, "--lr 'fast': must be a number above 0"},
      {{"--infer", "x.png"}, "--infer needs --checkpoint"},
      {{"--resume", "none.safetensors"}, "none.safetensors"},
      {{"--resume", "x", "--lr", "1"}, "does not go with --resume"},
      {{"--held-out", "5"}, "goes only with --data"},
      {{"--data", "nowhere"}, "nowhere/train-images-idx3-ubyte"},
      {{"--batch", "401"}, "--batch '401': must be at most 400"},
      {{"--stop-after", "1"}, "--stop-after goes only with --checkpoint FILE or --resume FILE"},
      {{"--checkpoint", "a", "--json", "a"}, "--checkpoint and --json name the same file a"},
      {{"--infer", "p.png", "--checkpoint", "c", "--json", "c"}, "name the same file c"}};
  for (const auto& [arguments, part] : bad) {
    const ProgramResult result = run_program("chapter18", arguments, folder.folder());
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(has(result.errors, part));
  }
}
