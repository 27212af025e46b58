// Chapter 7's program as its users run it: a photo, their own tensors, flags and environment.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/checks.h"
#include "../host/options.h"
#include "test_support.h"

using namespace lab::testing;
using lab::Distribution;

TEST_CASE("program: the whole way, with a photo") {
  const std::vector<std::string> lines = {"simple",     "vectorized", "shared",
                                          "persistent", "cluster",    "bulk"};
  const auto run =
      check_photo_run("chapter7", 32, {"--batch", "1", "--queries", "200"}, {1, 200, 32}, lines);
  if (!run) return;
  CHECK(json_at(run->json, "/problem/queries") == "200");
  CHECK(json_at(run->json, "/problem/distribution") == "\"local\"");
}

TEST_CASE("program: cluster has a ratio where its limit is known, and else a sentence") {
  if (skipped("program") || skipped_without_counters("program")) return;
  const TemporaryFolder folder;
  // An RTX 5090 has clusters too, but nobody knows how fast they read each other's memory.
  for (const std::string name : {"h200", "rtx5090"}) {
    CAPTURE(name);
    setenv("VGPU_DEVICE", name.c_str(), 1);
    const ProgramResult result = run_program(
        "chapter7", {"--batch", "1", "--queries", "300", "--json", "out.json"}, folder.folder());
    unsetenv("VGPU_DEVICE");
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    const std::string json = file_content(folder.path("out.json"));
    const bool known = name == "h200";
    CHECK((json.find("\"after\": \"cluster\"") != std::string::npos) == known);
    CHECK((json.find("cluster: its bound leaves out") == std::string::npos) == known);
    CHECK(json.find("\"after\": \"bulk\"") != std::string::npos);
  }
}

TEST_CASE("program: a user's tensors in, the right output out") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  const DeformableCase problem =
      deformable_case({2, 9, 2, 16, 2, 4, {{5, 4}, {1, 3}}}, Distribution::kUniform, 5, true);
  const lab::DeformableProblem& p = problem.problem;
  const auto write = [&](const std::vector<int64_t>& weights_shape,
                         const std::vector<float>& sizes) {
    lab::write_safetensors(
        folder.path("in"),
        {{"value", {{2, 23, 2, 16}, lab::to_float(p.value), "F16"}},
         {"spatial_shapes", {{2, 2}, sizes, "F32"}},
         {"sampling_locations", {{2, 9, 2, 2, 4, 2}, lab::to_float(p.locations), "F32"}},
         {"attention_weights", {weights_shape, lab::to_float(p.weights), "F16"}}});
    return run_program("chapter7", {"--input", "in", "--output", "out"}, folder.folder());
  };
  const ProgramResult result = write({2, 9, 2, 2, 4}, {5, 4, 1, 3});
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const std::vector<lab::Tensor> output = lab::read_safetensors(folder.path("out"), {"out"});
  REQUIRE(output[0].shape == std::vector<int64_t>{2, 9, 32});
  const std::vector<double> got(output[0].values.begin(), output[0].values.end());
  const lab::Comparison right =
      lab::compare(got, problem.expected, lab::Tolerance::fp16_mean(4), {2, 9, 2, 16});
  CHECK_MESSAGE(right.pass, right.describe());

  const auto refused = [&](const ProgramResult& refusal, const char* named) {
    CAPTURE(refusal.errors);
    CHECK(refusal.exit_code == 2);
    CHECK(refusal.errors.find(named) != std::string::npos);
  };
  refused(write({2, 9, 2, 8}, {5, 4, 1, 3}), "'attention_weights' has shape [2, 9, 2, 8]");
  refused(write({2, 9, 2, 2, 4}, {5, 4, 1, 4}), "'value' has shape [2, 23, 2, 16], [2, 24, 2, 16]");
  refused(write({2, 9, 2, 2, 4}, {5, 4, 1, 2.5}), "level 1 has a size of 2.5");
}

TEST_CASE("program: spatial_shapes as PyTorch has them, in I64, and in other types") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  const DeformableCase problem =
      deformable_case({2, 9, 2, 16, 2, 4, {{5, 4}, {1, 3}}}, Distribution::kUniform, 5, true);
  const lab::DeformableProblem& p = problem.problem;
  const auto run = [&](const std::string& dtype, const auto& sizes) {
    std::string header, data;
    const auto add = [&](const char* name, const std::string& type, const char* shape,
                         const auto& values) {
      const size_t bytes = std::size(values) * sizeof *std::data(values);
      header += (header.empty() ? "{\"" : ", \"") + std::string(name) + "\": {\"dtype\": \"" +
                type + "\", \"shape\": " + shape + ", \"data_offsets\": [" +
                std::to_string(data.size()) + ", " + std::to_string(data.size() + bytes) + "]}";
      data.append(reinterpret_cast<const char*>(std::data(values)), bytes);
    };
    add("value", "F16", "[2, 23, 2, 16]", p.value);
    add("sampling_locations", "F16", "[2, 9, 2, 2, 4, 2]", p.locations);
    add("attention_weights", "F16", "[2, 9, 2, 2, 4]", p.weights);
    add("spatial_shapes", dtype, "[2, 2]", sizes);
    header += "}";
    const uint64_t length = header.size();
    folder.write("in", std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
    return run_program("chapter7", {"--input", "in", "--output", "out"}, folder.folder());
  };
  const auto right = [&](const ProgramResult& result) {
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    const std::vector<lab::Tensor> output = lab::read_safetensors(folder.path("out"), {"out"});
    const std::vector<double> got(output[0].values.begin(), output[0].values.end());
    CHECK(lab::compare(got, problem.expected, lab::Tolerance::fp16_mean(4), {2, 9, 2, 16}).pass);
  };
  right(run("I64", std::vector<int64_t>{5, 4, 1, 3}));
  right(run("I32", std::vector<int32_t>{5, 4, 1, 3}));
  right(run("F32", std::vector<float>{5, 4, 1, 3}));
  right(run("F16", std::vector<half>{5.0f, 4.0f, 1.0f, 3.0f}));

  const auto refused = [&](const ProgramResult& refusal, const std::string& named) {
    CAPTURE(named);
    CAPTURE(refusal.errors);
    CHECK(refusal.exit_code == 2);
    CHECK(refusal.errors.find(named) != std::string::npos);
  };
  const auto refused_size = [&](int64_t size) {
    refused(run("I64", std::vector<int64_t>{5, 4, size, 3}),
            "tensor 'spatial_shapes': level 1 has a size of " + std::to_string(size) +
                ", a whole number from 1 to 65536 is needed");
  };
  refused_size(0);
  refused_size(-1);
  refused_size((int64_t(1) << 32) + 1);  // not 1 in 32 bits
  refused_size((int64_t(1) << 24) + 1);  // not another number in fp32
  refused_size(INT64_MAX);
  refused_size(INT64_MIN);
  refused(run("I32", std::vector<int32_t>{5, 4, -2, 3}), "level 1 has a size of -2, a whole");
  refused(run("I64", std::vector<int64_t>{5, 4, 1, 4}),
          "'value' has shape [2, 23, 2, 16], [2, 24, 2, 16]");
  refused(run("I64", std::vector<int64_t>{65536, 65536, 1, 3}), "must be fewer than 2^31");
  refused(run("U8", std::vector<unsigned char>{5, 4, 1, 3}),
          "tensor 'spatial_shapes' is U8, I64, I32, F32 or F16 is needed");
  refused(run("F32", std::vector<float>{5, 4, NAN, 3}), "level 1 has a size of nan");
}

TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  if (skipped("a variant")) return;
  const TemporaryFolder folder;
  const auto has_line = [&](std::vector<std::string> arguments, const std::string& step) {
    for (const char* more : {"--batch", "1", "--queries", "20"}) arguments.push_back(more);
    const ProgramResult result = run_program("chapter7", arguments, folder.folder());
    CAPTURE(result.output);
    CAPTURE(result.errors);
    REQUIRE(result.exit_code == 0);
    return result.output.find("\n" + step + " ") != std::string::npos;
  };
  CHECK(has_line({"--step", "even shares"}, "even shares"));
  CHECK_FALSE(has_line({"--step", "even shares"}, "persistent"));
  CHECK_FALSE(has_line({}, "even shares"));
  CHECK_FALSE(has_line({}, "single copies"));
}

TEST_CASE("program: flags and environment that are not right") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& named) {
    const ProgramResult result = run_program("chapter7", arguments, folder.folder());
    CAPTURE(named);
    CAPTURE(result.errors);
    CHECK(result.exit_code == 2);
    CHECK(result.output == "");
    CHECK(result.errors.find(named) != std::string::npos);
    CHECK(folder.names().empty());
  };
  refused({"--preset", "huge"}, "--preset 'huge': must be small, medium or full");
  refused({"--distribution", "normal"}, "must be local or uniform");
  refused({"--channels", "48"}, "channels must be 16, 32 or 64");
  refused({"--points", "5"}, "points must be 4 or 8");
  refused({"--queries", "0"}, "--queries '0'");
  refused({"--size", "100"}, "multiple of 8");
  refused({"--out", "map.txt"}, ".png, .jpg or .jpeg");
  refused({"--json", "missing/file"}, "missing/file");
  setenv("NUM_QUERY", "many", 1);
  refused({}, "environment variable NUM_QUERY 'many'");
  unsetenv("NUM_QUERY");
}

TEST_CASE("program: environment in place of flags, and more memory than there is") {
  if (skipped("program")) return;
  const TemporaryFolder folder;
  setenv("BATCH_SIZE", "4", 1);
  setenv("NUM_QUERY", "33", 1);
  setenv("CHANNELS", "16", 1);
  setenv("NUM_ITERATIONS", "2", 1);
  const ProgramResult result =
      run_program("chapter7", {"--batch", "1", "--json", "a.json"}, folder.folder());
  for (const char* name : {"BATCH_SIZE", "NUM_QUERY", "CHANNELS", "NUM_ITERATIONS"}) unsetenv(name);
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  const std::string json = file_content(folder.path("a.json"));
  CHECK(json_at(json, "/problem/batch") == "1");  // the flag wins
  CHECK(json_at(json, "/problem/queries") == "33");
  CHECK(json_at(json, "/problem/channels") == "16");
  CHECK(json_at(json, "/iterations") == "2");

  const ProgramResult huge =
      run_program("chapter7", {"--batch", "100", "--queries", "10000000"}, folder.folder());
  CAPTURE(huge.errors);
  CHECK(huge.exit_code == 3);
  CHECK(huge.errors.find("queries 10000000") != std::string::npos);
}

TEST_CASE("program: --predict has times and no results, and refuses what needs them") {
  if (skipped("program") || skipped_without_counters("program")) return;
  const TemporaryFolder folder;
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--predict", "--batch", "1", "--queries", "300"});
    return run_program("chapter7", more, folder.folder());
  };
  const ProgramResult result = run({"--json", "out.json"});
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(result.output.find("not compared") != std::string::npos);
  CHECK(result.output.find("arithmetic intensity") == std::string::npos);  // of all blocks
  CHECK(folder.names() == std::vector<std::string>{"out.json"});           // no picture
  const std::string json = file_content(folder.path("out.json"));
  CHECK(json_at(json, "/kernels/0/pass") == "null");
  CHECK(std::stod(json_at(json, "/kernels/0/predicted_us")) > 0);
  // With several heads bulk's boxes are loops in machine code that PTX has not.
  const ProgramResult heads = run({"--step", "bulk", "--heads", "2", "--json", "heads.json"});
  CAPTURE(heads.output);
  CHECK(heads.exit_code == 0);
  CHECK((heads.output + heads.errors).find("No predicted times") == std::string::npos);
  for (const std::string flag : {"--out", "--output", "--image", "--iterations", "--warmup"}) {
    const ProgramResult refused =
        run({flag, flag == "--out" || flag == "--output" ? "x.png" : "1"});
    CAPTURE(flag);
    CHECK(refused.exit_code == 2);
    CHECK(refused.errors.find(flag) != std::string::npos);
    CHECK(refused.errors.find("--predict") != std::string::npos);
  }
}

TEST_CASE("program: a step that lacks something is left out, and refused where it is asked for") {
  const std::vector<lab::DeformableStep> steps = {
      {"simple", nullptr},
      {"warped", nullptr, [] { return std::string("needs a warp"); }},
      {"wide", nullptr, [] { return std::string(); }},
      {.name = "tried", .function = nullptr, .variant = true}};
  const auto runnable = [&](const std::string& name, const std::string& left_out) {
    std::vector<std::string> why;
    std::string names;
    for (const lab::DeformableStep& step : lab::runnable_steps(name, steps, why))
      names += step.name + ";";
    CHECK(why == (left_out.empty() ? std::vector<std::string>{} : std::vector{left_out}));
    return names;
  };
  CHECK(runnable("", "warped is left out: it needs a warp") == "simple;wide;");
  CHECK(runnable("simple", "") == "simple;");
  CHECK(runnable("tried", "") == "tried;");
  CHECK_THROWS_WITH_AS(runnable("warped", ""), "--step warped: it needs a warp", lab::LackError);
  CHECK_THROWS_WITH_AS(runnable("fast", ""), "--step 'fast': must be simple, warped, wide or tried",
                       lab::UsageError);
}
