// Chapter 12's tests on a device: each component and the whole net against PyTorch, with every
// choice of steps; memory that is shared, graphs, checks, planted bugs, counters by formula.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/testing.h"
#include "../host/resample.h"
#include "test_support.h"

using namespace vision_transformer;
using namespace lab::testing;
using reference::Doubles;

namespace {

// Each choice with the defaults for the other components.
std::vector<std::pair<std::string, Components>> all_choices() {
  std::vector<std::pair<std::string, Components>> all;
  const auto add = [&](const std::string& flag, const auto& choices, auto Components::*member) {
    for (const auto& choice : choices) {
      all.emplace_back(flag + " " + choice.name, Components());
      all.back().second.*member = choice;
    }
  };
  add("--embed", embed_choices(), &Components::embed);
  add("--norm", norm_choices(), &Components::norm);
  add("--mlp", linear_choices(), &Components::linear);
  add("--qkv", qkv_choices(), &Components::qkv);
  add("--attention", attention_choices(), &Components::attention);
  return all;
}

// Runs a net stage by stage; each result must be the reference's, made from what the stage read.
void check_stages(NetRun& run, const HostParameters& parameters) {
  for (const Stage& stage : run.stages()) {
    CAPTURE(stage.name());
    run.launch(stage, nullptr);
    lab::check(cudaDeviceSynchronize());
    const lab::Comparison comparison = compare_stage(run, parameters, stage);
    CAPTURE(comparison.describe());
    CHECK(comparison.pass);
  }
}

void check_logits(const std::vector<half>& logits, const Doubles& expected,
                  const ReferenceLogits& of_reference) {
  const lab::Comparison comparison = lab::compare(
      in_double(logits), expected, logits_tolerance(of_reference.exact, of_reference.rounded),
      {int64_t(logits.size())});
  CAPTURE(comparison.describe());
  CHECK(comparison.pass);
}

bool same_bits(const std::vector<half>& a, const std::vector<half>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(half)) == 0;
}

std::vector<half> halves(size_t count, uint64_t seed, double deviation, double mean = 0) {
  std::vector<half> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = __float2half(float(mean + deviation * lab::normal(seed, i)));
  return values;
}

}  // namespace

// ---- Right --------------------------------------------------------------------------------------

TEST_CASE("right: each choice, each component, and the logits are PyTorch's") {
  if (skipped("right")) return;
  const Weights weights = narrow_weights();
  const std::vector<float> image = narrow_image();
  const ReferenceLogits of_reference = reference_logits(image, weights.parameters, narrow_shape());
  for (const auto& [name, components] : all_choices()) {
    CAPTURE(name);
    NetRun run(narrow_shape(), weights.parameters, components);
    run.set_image(image);
    check_stages(run, weights.parameters);
    check_logits(run.logits(), narrow_expected("logits"), of_reference);
  }
}

TEST_CASE("right: components of the narrow net lie as PyTorch's do") {
  if (skipped("right")) return;
  const Weights weights = narrow_weights();
  NetRun run(narrow_shape(), weights.parameters, {});
  run.set_image(narrow_image());
  // Rounded where the net stores: one stage after the other is further off, but never far.
  int compared = 0;
  for (const Stage& stage : run.stages()) {
    run.launch(stage, nullptr);
    lab::check(cudaDeviceSynchronize());
    std::string name = stage.name();
    if (name == "embedding") name = "tokens";
    if (name == "head") name = "logits";
    if (stage.kind == Stage::Kind::kSplit || stage.kind == Stage::Kind::kMerge ||
        stage.kind == Stage::Kind::kClassTokens)
      continue;
    CAPTURE(name);
    const Doubles expected = narrow_expected(name);
    const lab::Comparison comparison =
        lab::compare(in_double(run.buffer(stage.writes[0])), expected,
                     {.atol = 0.03, .rtol = 0.01, .relative_l2 = 4e-3}, {int64_t(expected.size())});
    CAPTURE(comparison.describe());
    CHECK(comparison.pass);
    ++compared;
  }
  CHECK(compared == 1 + 2 * 7 + 2);
}

TEST_CASE("right: ragged sizes, several images, other widths and classes") {
  if (skipped("right")) return;
  const std::vector<NetShape> shapes = {
      {.batch = 1, .size = 16, .width = 64, .heads = 1, .blocks = 1, .classes = 1},
      {.batch = 3, .size = 48, .width = 96, .heads = 3, .blocks = 1, .classes = 37},
      {.batch = 2, .size = 144, .width = 128, .heads = 1, .blocks = 1, .classes = 1001},
      {.batch = 1, .size = 40, .patch = 8, .width = 128, .heads = 2, .blocks = 2, .classes = 5}};
  for (const NetShape& shape : shapes) {
    const std::string text = describe(shape);
    CAPTURE(text);
    const Weights weights = random_weights(shape, 3);
    std::vector<float> image(size_t(shape.image_elements()));
    for (size_t i = 0; i < image.size(); ++i) image[i] = rounded_to_fp16(float(lab::normal(4, i)));
    const ReferenceLogits expected = reference_logits(image, weights.parameters, shape);
    for (const Choice<Qkv>& choice : qkv_choices()) {
      const std::string name = choice.name;
      CAPTURE(name);
      NetRun run(shape, weights.parameters, {.qkv = choice});
      run.set_image(image);
      check_stages(run, weights.parameters);
      // The tolerance is a draw of the error: of a single logit it is no spread, and may be near zero.
      if (shape.classes > 1 || choice.name == qkv_choices()[0].name)
        check_logits(run.logits(), expected.exact, expected);
    }
  }
}

TEST_CASE("right: LayerNorm of rows whose mean is large against their deviation") {
  if (skipped("right")) return;
  const int rows = 5, columns = 197;
  const std::vector<half> x = halves(size_t(rows) * columns, 1, 1, 300),
                          scale = halves(columns, 2, 0.1, 1), bias = halves(columns, 3, 0.1);
  const lab::DeviceArray<half> from(x, "x"), by(scale, "scale"), more(bias, "bias");
  for (const Choice<NormFunction>& choice : norm_choices()) {
    CAPTURE(choice.name);
    GuardedOutput<half> y(x.size(), "y");
    choice.function(from.data(), by.data(), more.data(), y.data(), {rows, columns, 1e-6f}, nullptr);
    lab::check(cudaDeviceSynchronize());
    std::vector<half> got;
    CHECK(y.download(got));
    const Doubles expected = reference::layer_norm(in_double(x), lab::to_float(scale),
                                                   lab::to_float(bias), {rows, columns, 1e-6f});
    // The mean's error is a few roundings of 300, 2^-24 each: divided by the deviation 1 it is less
    // than that of rounding y. A variance by E[x²] - E[x]² would be off by some 1e-2.
    const lab::Comparison comparison =
        lab::compare(in_double(got), expected, {.atol = 1e-3, .rtol = 0x1p-10, .relative_l2 = 1e-3},
                     {rows, columns});
    CAPTURE(comparison.describe());
    CHECK(comparison.pass);
  }
}

TEST_CASE("right: LayerNorm of rows that are all one number is the bias") {
  if (skipped("right")) return;
  const int rows = 3, columns = 200;
  const std::vector<half> x(size_t(rows) * columns, __float2half(0.75f)),
      scale = halves(columns, 2, 0.1, 1), bias = halves(columns, 3, 0.1);
  const lab::DeviceArray<half> from(x, "x"), by(scale, "scale"), more(bias, "bias");
  for (const Choice<NormFunction>& choice : norm_choices()) {
    CAPTURE(choice.name);
    lab::DeviceArray<half> y(x.size(), "y");
    choice.function(from.data(), by.data(), more.data(), y.data(), {rows, columns, 1e-6f}, nullptr);
    const std::vector<half> got = y.download();
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(__half2float(got[i]) == __half2float(bias[i % columns]));
  }
}

TEST_CASE("right: a trained net's logits of two photos") {
  if (skipped("right")) return;
  const std::string file = trained_weights();
  if (file.empty()) {
    MESSAGE("skipped: a trained net: no weights (DEIT_TINY)");
    return;
  }
  const Weights weights = read_weights(file, "", 224);
  NetRun run(weights.shape, weights.parameters, {});
  for (const auto& [photo, name] : {std::pair("data/images/chelsea.png", "chelsea"),
                                    {"data/images/coffee_360x240.png", "coffee"}}) {
    CAPTURE(name);
    std::vector<float> image =
        normalized(crop_for_net(lab::load_image(lab::repository_path(photo)), 224));
    for (float& value : image) value = rounded_to_fp16(value);
    run.set_image(image);
    run.forward(nullptr);
    lab::check(cudaDeviceSynchronize());
    check_logits(run.logits(),
                 lab::read_npy(golden("vit_" + std::string(name) + "_logits.npy")).values,
                 reference_logits(image, weights.parameters, weights.shape));
  }
}

// ---- Memory, graphs, order ----------------------------------------------------------------------

TEST_CASE("memory: arrays that share a place do not disturb each other, and the plan is tight") {
  if (skipped("memory")) return;
  const Weights weights = narrow_weights();
  NetRun run(narrow_shape(), weights.parameters, {});
  run.set_image(narrow_image());
  run.forward(nullptr);
  lab::check(cudaDeviceSynchronize());
  const std::vector<half> logits = run.logits();
  // NaN in every array that nothing needs any more.
  run.forward_and_spoil();
  CHECK(same_bits(run.logits(), logits));
  // Who reads an array after its end does see the NaN: the same once more, qkv spoiled too early.
  for (const Stage& stage : run.stages()) {
    run.launch(stage, nullptr);
    if (stage.component == "qkv") run.spoil(stage.writes[0]);
  }
  lab::check(cudaDeviceSynchronize());
  CHECK(std::isnan(__half2float(run.logits()[0])));

  for (const Buffer& a : run.buffers())
    for (const Buffer& b : run.buffers())
      if (&a != &b && a.lives_with(b))
        CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
  CHECK(run.plan().bytes <= 5 * run.plan().most_alive / 4);
  // Six arrays of DeiT-Tiny's hidden width do for 137.
  NetShape tiny;
  const double separate = [&] {
    NetRun of_tiny(tiny, random_weights(tiny, 1).parameters, {});
    CHECK(of_tiny.plan().bytes <= 6 * 2 * tiny.rows() * tiny.hidden());
    return double(of_tiny.plan().separate_bytes) / double(of_tiny.plan().bytes);
  }();
  CHECK(separate > 10);
}

TEST_CASE("determinism: the same bits again, and from a CUDA graph") {
  if (skipped("determinism")) return;
  const Weights weights = narrow_weights();
  for (const auto& [name, components] : all_choices()) {
    CAPTURE(name);
    NetRun run(narrow_shape(), weights.parameters, components);
    run.set_image(narrow_image());
    run.forward(nullptr);
    lab::check(cudaDeviceSynchronize());
    const std::vector<half> logits = run.logits();
    run.forward_and_spoil();
    CHECK(same_bits(run.logits(), logits));
    for (int i = 1; i < int(run.buffers().size()); ++i) run.spoil(i);
    replay_once([&](cudaStream_t stream) { run.forward(stream); });
    CHECK(same_bits(run.logits(), logits));
  }
}

TEST_CASE("checked: no race, no read of what nobody wrote, no missed barrier") {
  if (rerun_with_checks("checked*")) return;
  const int findings = lab::vgpu::findings();
  const Weights weights = narrow_weights();
  NetRun run(narrow_shape(), weights.parameters, {});
  run.set_image(narrow_image());
  run.forward(nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::findings() == findings);
}

namespace {

// A plan that takes the buffer for free one stage early; the buffer itself keeps its end.
NetRun::Planner ends_early(const std::string& name, int stages) {
  return [=](std::vector<Buffer>& buffers) {
    std::vector<Buffer> right = buffers;
    for (Buffer& buffer : buffers)
      if (buffer.name == name) buffer.last -= stages;
    const MemoryPlan plan = plan_memory(buffers);
    for (size_t i = 0; i < buffers.size(); ++i) right[i].offset = buffers[i].offset;
    buffers = right;
    return plan;
  };
}

}  // namespace

TEST_CASE("memory: a plan that ends a buffer too early is caught, by NaN or by other logits") {
  if (skipped("memory")) return;
  const Weights weights = narrow_weights();
  const auto logits = [&](const NetRun::Planner& plan) {
    NetRun run(narrow_shape(), weights.parameters, {}, plan);
    run.set_image(narrow_image());
    run.forward_and_spoil();
    return run.logits();
  };
  const std::vector<half> right = logits(plan_memory);
  CHECK(same_bits(logits(ends_early("blocks.0.norm1", 0)), right));
  // Read by the last stage that the plan forgets: as a residual, as a product's rows, as values.
  CHECK(!same_bits(logits(ends_early("tokens", 4)), right));
  CHECK(!same_bits(logits(ends_early("blocks.0.proj", 2)), right));
  CHECK(!same_bits(logits(ends_early("blocks.1.qkv", 1)), right));
  CHECK(!same_bits(logits(ends_early("blocks.1.fc1", 1)), right));
}

TEST_CASE("checked plan: two buffers of one launch in one place are a race") {
  if (skipped_without_counters("checked plan") || rerun_with_checks("checked plan*")) return;
  const Weights weights = narrow_weights();
  const auto findings = [&](const NetRun::Planner& plan) {
    NetRun run(narrow_shape(), weights.parameters, {}, plan);
    run.set_image(narrow_image());
    const int before = lab::vgpu::findings();
    run.forward(nullptr);
    lab::check(cudaDeviceSynchronize());
    return lab::vgpu::findings() - before;
  };
  CHECK(findings(plan_memory) == 0);
  // What a stage writes lies where it reads: a block stores what another has not loaded yet.
  CHECK(findings(ends_early("blocks.0.norm2", 1)) > 0);
  CHECK(findings(ends_early("blocks.0.qkv", 1)) > 0);
}

TEST_CASE("shuffled: the narrow net passes all checks in other orders of warps and blocks") {
  check_in_other_orders("checked: no race*");
}

TEST_CASE("on a T4: the narrow net is PyTorch's, and the same bits come again") {
  check_twin_on_t4("right: components*,memory: arrays*,projection: counters*,counters: LayerNorm*");
}

TEST_CASE("machine code: no spills") { check_machine_code("chapters/12_vision_transformer"); }

TEST_CASE("memory: who stores q, k and v by heads has no array qkv; inside has none of them") {
  if (skipped("memory")) return;
  const Weights weights = narrow_weights();
  const auto names = [&](const Choice<Qkv>& choice) {
    NetRun run(narrow_shape(), weights.parameters, {.qkv = choice});
    std::string found;
    for (const Buffer& buffer : run.buffers())
      if (buffer.name.starts_with("blocks.0.")) found += buffer.name.substr(9) + " ";
    return found + std::to_string(run.stages().size());
  };
  const std::string rest = "merged proj norm2 fc1 fc2 ";
  CHECK(names(qkv_choices()[0]) == "norm1 qkv q k v attention " + rest + "22");
  CHECK(names(qkv_choices()[1]) == "norm1 q k v attention " + rest + "20");
  CHECK(names(qkv_choices()[2]) == "norm1 q k v attention " + rest + "20");
  CHECK(names(qkv_choices()[3]) == "norm1 " + rest + "16");
}

TEST_CASE("refused: shapes and arrays that the simple components cannot do") {
  if (skipped("refused")) return;
  lab::DeviceArray<half> array(1024, "array");
  half* const p = array.data();
  CHECK_THROWS_WITH_AS(
      linear_choices().front().function(p, p, nullptr, nullptr, p, {1, 1, 12, false}, nullptr),
      doctest::Contains("k 12: all must be at least 1, k a multiple of 8"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      linear_choices().front().function(p + 1, p, nullptr, nullptr, p, {1, 1, 8, false}, nullptr),
      doctest::Contains("multiple of 16 bytes"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(norm_choices().front().function(p, p, p, p, {0, 8, 0}, nullptr),
                       doctest::Contains("0 rows of 8"), std::invalid_argument);
  CHECK_THROWS_WITH_AS(split_heads(p, p, p, p, {1, 1, 1, 12}, nullptr),
                       doctest::Contains("12 numbers a row"), std::invalid_argument);
  CHECK_THROWS_AS(NetRun({.width = 100, .heads = 3}, {}, {}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      linear_choices().front().function(p, p, nullptr, nullptr, p, {4194241, 1, 8, false}, nullptr),
      doctest::Contains("at most 4194240 rows"), std::invalid_argument);
  // x, weight, q, k and v, one after the other, begin in the middle of 16 bytes.
  for (const Choice<Qkv>& choice : qkv_choices())
    for (int moved = 0; choice.function.by_heads && moved < 5; ++moved) {
      CAPTURE(choice.name);
      CAPTURE(moved);
      const auto at = [&](int array) { return array == moved ? p + 4 : p; };
      CHECK_THROWS_WITH_AS(choice.function.by_heads(at(0), at(1), nullptr, at(2), at(3), at(4),
                                                    {1, 1, 1, 8}, nullptr),
                           doctest::Contains("of 16 bytes"), std::invalid_argument);
    }
}

// ---- Counters -----------------------------------------------------------------------------------

TEST_CASE("counters: a product reads each operand once a tile of the other, and stores y once") {
  if (skipped_without_counters("counters")) return;
  const LinearShape shape{197, 192, 768, false};
  const lab::DeviceArray<half> x(halves(size_t(shape.m) * shape.k, 1, 1), "x"),
      weight(halves(size_t(shape.n) * shape.k, 2, 0.05), "w"), bias(halves(shape.n, 3, 1), "b");
  lab::DeviceArray<half> y(size_t(shape.m) * shape.n, "y");
  linear_choices().front().function(x.data(), weight.data(), bias.data(), nullptr, y.data(), shape,
                                    nullptr);
  lab::check(cudaDeviceSynchronize());
  const int row_tiles = (shape.m + 63) / 64, column_tiles = (shape.n + 63) / 64;
  CHECK(counted("x", "load/bytes_asked") == 2.0 * shape.m * shape.k * column_tiles);
  CHECK(counted("w", "load/bytes_asked") == 2.0 * shape.n * shape.k * row_tiles);
  CHECK(counted("y", "store/bytes_asked") == 2.0 * shape.m * shape.n);
  CHECK(lab::vgpu::counter("/tensor_macs") == 0);
}

TEST_CASE("counters: the embedding stores each token once, class tokens too") {
  if (skipped_without_counters("counters")) return;
  const EmbedShape shape{2, 144, 16, 72};  // 81 patches: two tiles of 64
  const size_t width = size_t(shape.width), tokens = 2 * 82 * width;
  const lab::DeviceArray<half> image(halves(2 * 3 * 144 * 144, 1, 1), "image"),
      weight(halves(width * 768, 2, 0.05), "w"), bias(halves(width, 3, 1), "b"),
      class_token(halves(width, 4, 1), "class_token"), position(halves(82 * width, 5, 1), "p");
  for (const Choice<EmbedFunction>& choice : embed_choices()) {
    CAPTURE(choice.name);
    lab::DeviceArray<half> out(tokens, "tokens");
    choice.function(image.data(), weight.data(), bias.data(), class_token.data(), position.data(),
                    out.data(), shape, nullptr);
    lab::check(cudaDeviceSynchronize());
    CHECK(counted("tokens", "store/bytes_asked") == 2.0 * double(tokens));
    CHECK(counted("class_token", "load/bytes_asked") == 2.0 * 2 * double(width));
  }
}

TEST_CASE("counters: LayerNorm reads a row three times; moving heads reads and writes once") {
  if (skipped_without_counters("counters")) return;
  const int rows = 7, columns = 192;
  const lab::DeviceArray<half> x(halves(size_t(rows) * columns, 1, 1), "x"),
      scale(halves(columns, 2, 1), "s"), bias(halves(columns, 3, 1), "b");
  lab::DeviceArray<half> y(size_t(rows) * columns, "y");
  norm_choices().front().function(x.data(), scale.data(), bias.data(), y.data(),
                                  {rows, columns, 1e-6f}, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(counted("x", "load/bytes_asked") == 3.0 * 2 * rows * columns);
  CHECK(counted("y", "store/bytes_asked") == 2.0 * rows * columns);

  const HeadsShape heads{2, 5, 3, 64};
  const lab::DeviceArray<half> o(halves(size_t(heads.elements()), 4, 1), "o");
  lab::DeviceArray<half> merged(size_t(heads.elements()), "merged");
  merge_heads(o.data(), merged.data(), heads, nullptr);
  lab::check(cudaDeviceSynchronize());
  CHECK(counted("o", "load/bytes_asked") == 2.0 * double(heads.elements()));
  CHECK(counted("o", "load/sectors") == double(heads.elements()) / 16);
  CHECK(counted("merged", "store/bytes_asked") == 2.0 * double(heads.elements()));
}

TEST_CASE(
    "counters: q, k and v are stored once by the product; inside, each block projects again") {
  if (skipped_without_counters("counters")) return;
  const HeadsShape heads{2, 83, 3, 64};
  const double width = 192, rows = 2 * 83, tiles = (83 + 63) / 64;
  const lab::DeviceArray<half> x(halves(size_t(rows * width), 1, 1), "x"),
      weight(halves(size_t(3 * width * width), 2, 0.05), "w"),
      bias(halves(size_t(3 * width), 3, 1), "b");
  lab::DeviceArray<half> q(size_t(rows * width), "q"), k(q.size(), "k"), v(q.size(), "v"),
      o(q.size(), "o");
  for (const Choice<Qkv>& choice : qkv_choices()) {
    if (!choice.function.by_heads) continue;
    CAPTURE(choice.name);
    choice.function.by_heads(x.data(), weight.data(), bias.data(), q.data(), k.data(), v.data(),
                             heads, nullptr);
    lab::check(cudaDeviceSynchronize());
    for (const char* array : {"q", "k", "v"}) {
      CHECK(counted(array, "store/bytes_asked") == 2 * rows * width);
      CHECK(counted(array, "load/bytes_asked") == 0);
    }
    const bool tensor = choice.name == std::string("epilogue");
    CHECK((lab::vgpu::counter("/tensor_macs") > 0) == tensor);
    if (tensor) {  // a lane's eight columns are one piece
      CHECK(counted("q", "store/sectors") == rows * width / 16);
      continue;
    }
    CHECK(counted("x", "load/bytes_asked") == 2 * rows * width * std::ceil(3 * width / 64));
    CHECK(counted("w", "load/bytes_asked") == 2 * 3 * width * width * std::ceil(rows / 64));
  }
  qkv_choices().back().function.inside(x.data(), weight.data(), bias.data(), o.data(), heads,
                                       0.125f, nullptr);
  lab::check(cudaDeviceSynchronize());
  // For its q once and for keys and values of each tile.
  CHECK(counted("x", "load/bytes_asked") == 2 * rows * width * 3 * (1 + 2 * tiles));
  CHECK(counted("w", "load/bytes_asked") ==
        2 * 3 * tiles * (1 + 2 * tiles) * heads.head_dim * width * heads.batch);
  CHECK(counted("o", "store/bytes_asked") == 2 * rows * width);
}
