// The program: what it prints and writes, and what it refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../../../common/testing/testing.h"
#include "../../../common/testing/text.h"
#include "test_support.h"

using namespace vision_transformer;
using lab::testing::contains;
using lab::testing::ProgramResult;
using lab::testing::skipped;
using lab::testing::TemporaryFolder;

namespace {

ProgramResult ran(const std::vector<std::string>& arguments, const TemporaryFolder& folder) {
  return lab::testing::run_program("chapter12", arguments, folder.folder());
}

void check_narrow_lines(const std::string& output) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(line.size() <= 100);
  }
}

}  // namespace

TEST_CASE("program: a random net on the photo says that it is random, and writes all its files") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  const ProgramResult result = ran({"--json", "r.json", "--csv", "r.csv", "--output",
                                    "l.safetensors", "--graph", "--attention", "naive"},
                                   folder);
  CAPTURE(result.output);
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  check_narrow_lines(result.output);
  for (const char* part :
       {"chelsea.png, 224 x 224 pixels, random weights of seed 1",
        "ViT tiny: batch 1, 197 tokens, width 192, 3 heads, 12 blocks",
        "The net is random, and so are its classes:", "CUDA graph: replayed, the same bits",
        "attention.png: the class token's attention in block 11:", "arrays)", "  softmax  "})
    CHECK(contains(result.output, part));
  const lab::Image picture = lab::load_image(folder.path("attention.png"));
  CHECK(picture.width == 2 * 448 + 8);
  const lab::Tensor logits = lab::read_safetensors(folder.path("l.safetensors"), {"out"})[0];
  CHECK(logits.shape == std::vector<int64_t>{1, 1000});

  const json::Value written = json::parse(lab::testing::file_content(folder.path("r.json")));
  CHECK(written["chapter"].get<std::string>() == "12_vision_transformer");
  CHECK_FALSE(written["problem"]["trained"].get<bool>());
  CHECK(written["problem"]["attention"].get<std::string>() == "naive");
  const bool is_virtual = written["device"]["virtual"].get<bool>();
  const json::Value& kernels = written["kernels"];
  CHECK(kernels.size() == 13 + 2 + 1);  // attention is three launches here
  double sum = 0, launches = 0;
  for (const json::Value& line : kernels) {
    CHECK(line["pass"].get<bool>());
    if (line["name"].get<std::string>() == "net") continue;
    launches += line.contains("launches") ? line["launches"].get<int>() : 1;
    if (is_virtual && line["predicted_us"].is_number()) sum += line["predicted_us"].get<double>();
  }
  CHECK(launches == 1 + 12 * 11 + 3);
  if (sum > 0) CHECK(kernels.back()["images_per_s"].get<double>() == doctest::Approx(1e6 / sum));
}

TEST_CASE("program: a trained net knows the photos, and any step of attention gives the same") {
  if (skipped("program")) return;
  const std::string weights = trained_weights();
  if (weights.empty()) {
    MESSAGE("skipped: a trained net: no weights (DEIT_TINY)");
    return;
  }
  const TemporaryFolder folder;
  std::string names;
  for (int i = 0; i < 1000; ++i)
    names += i == 285 ? "n02124075 Egyptian cat\n" : i == 967 ? "espresso\n" : "other\n";
  folder.write("names.txt", names);
  const ProgramResult cat =
      ran({"--weights", weights, "--labels", "names.txt", "--attention", "tiling"}, folder);
  CAPTURE(cat.output);
  CAPTURE(cat.errors);
  CHECK(cat.exit_code == 0);
  CHECK(contains(cat.output, "    35.1%  Egyptian cat\n"));
  check_narrow_lines(cat.output);
  const ProgramResult coffee =
      ran({"--weights", weights, "--labels", "names.txt", "--image",
           lab::repository_path("data/images/coffee_360x240.png"), "--block", "6", "--mlp",
           "epilogue", "--norm", "rows", "--embed", "one_product", "--qkv", "epilogue"},
          folder);
  CHECK(coffee.exit_code == 0);
  CHECK(contains(coffee.output, "    83.0%  espresso\n"));
  CHECK(contains(coffee.output, "attention in block 6:"));
  CHECK(!contains(coffee.output, "  split "));
  // The picture is of the same q and k, whoever computes them.
  const auto drawn = [](const std::string& output) {
    const size_t at = output.find("attention in block");
    return at == std::string::npos ? output : output.substr(at, output.find('\n', at) - at);
  };
  const ProgramResult inside =
      ran({"--weights", weights, "--labels", "names.txt", "--qkv", "inside"}, folder);
  CHECK(inside.exit_code == 0);
  CHECK(contains(inside.output, "Egyptian cat\n"));
  CHECK(drawn(inside.output) == drawn(cat.output));
}

TEST_CASE("program: --predict runs one launch of each component, of large problems too") {
  if (skipped("program")) return;
  if (!lab::vgpu::can_predict()) return;
  const TemporaryFolder folder;
  const ProgramResult result = ran({"--predict", "--batch", "32", "--json", "r.json"}, folder);
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.output, "images a second, predicted, 112 launches"));
  CHECK(contains(result.output, "not compared"));
  CHECK(!contains(result.output, "classes:"));
  CHECK(folder.names() == std::vector<std::string>{"r.json"});  // no picture
  // No launch is without a prediction, or the net would have none.
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--mlp", "wmma"},
                                                {"--mlp", "swizzle", "--qkv", "by_heads"},
                                                {"--embed", "one_product", "--qkv", "inside"}}) {
    std::vector<std::string> arguments = {"--predict"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult other = ran(arguments, folder);
    CAPTURE(other.output);
    CHECK(other.exit_code == 0);
    CHECK(contains(other.output, " images a second, predicted, "));
  }

  const json::Value written = json::parse(lab::testing::file_content(folder.path("r.json")));
  const json::Value& plan = written["memory_plan"];
  const int64_t stages = int64_t(plan["stages"].size());
  CHECK(stages == 112);
  CHECK(plan["stages"].item(1).get<std::string>() == "blocks.0.norm1");
  const auto number = [](const json::Value& of, const char* name) {
    return of[name].get<int64_t>();
  };
  struct Buffer {
    int64_t offset, bytes, first, last;
  };
  std::vector<Buffer> buffers;
  for (const json::Value& buffer : plan["buffers"])
    buffers.push_back({number(buffer, "offset"), number(buffer, "bytes"), number(buffer, "first"),
                       number(buffer, "last")});
  int64_t end = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& a = buffers[i];
    end = std::max(end, a.offset + a.bytes);
    CHECK(a.last < stages);
    for (size_t j = 0; j < i; ++j) {  // one in the place of the other: not at the same time
      const Buffer& b = buffers[j];
      if (a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes)
        CHECK((a.first > b.last || b.first > a.last));
    }
  }
  CHECK(buffers.size() == 137);
  CHECK(number(plan, "bytes") - end < 256);
  const json::Value& net = written["kernels"].back();
  CHECK(number(net, "activations_bytes") == number(plan, "bytes"));
  CHECK(number(net, "separate_bytes") == number(plan, "separate_bytes"));
}

TEST_CASE("program: bad usage and input are named, before anything is written") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  const std::string narrow = golden("vit_narrow.safetensors");
  folder.write("empty.safetensors", "");
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> cases = {
      {{"--attention", "flash"}, 2, "--attention 'flash': must be naive, tiling, "},
      {{"--norm", "x"}, 2, "--norm 'x': must be simple, "},
      {{"--mlp", "x"}, 2, "--mlp 'x': must be simple, "},
      {{"--qkv", "x"}, 2, "--qkv 'x': must be split, by_heads, epilogue or inside"},
      {{"--qkv", "inside", "--attention", "naive"}, 2, "--attention does not go with --qkv inside"},
      {{"--embed", "x"}, 2, "--embed 'x': must be simple or "},
      {{"--model", "huge"}, 2, "--model 'huge': must be tiny, small or base"},
      {{"--size", "225"}, 2, "--size '225': must be 224, 384 or 512"},
      {{"--block", "12"}, 2, "--block '12': must be from 0 to 11, the net has 12 blocks"},
      {{"--weights", "none"}, 2, "none: No such file"},
      {{"--weights", "empty.safetensors"}, 2, "empty"},
      {{"--weights", narrow}, 2, "'cls_token' is [1, 1, 64]"},
      {{"--weights", narrow, "--model", "tiny"}, 2, "is not a Vision Transformer tiny"},
      {{"--weights", narrow, "--seed", "2"}, 2, "--seed is of random weights"},
      {{"--labels", narrow}, 2, "the net has 1000 classes"},
      {{"--tokens", "64"}, 2, "--tokens belongs to the layer of --projection"},
      {{"--predict", "--graph"}, 2, "--graph does not go with --predict"},
      {{"--predict", "--block", "1"}, 2, "--block does not go with --predict"},
      {{"--batch", "4096", "--model", "base", "--size", "512"},
       3,
       "(fewer images: --batch N) needs"}};
  for (const auto& [arguments, code, words] : cases) {
    const ProgramResult result = ran(arguments, folder);
    CAPTURE(words);
    CAPTURE(result.errors);
    CHECK(result.exit_code == code);
    CHECK(contains(result.errors, words));
    CHECK(std::count(result.errors.begin(), result.errors.end(), '\n') == 1);
  }
  CHECK(folder.names() == std::vector<std::string>{"empty.safetensors"});
}
