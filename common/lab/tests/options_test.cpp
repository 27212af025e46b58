// Flags: defaults, every flag's value, combinations that make no sense.
#include <doctest/doctest.h>

#include <cstdlib>

#include "attention/program.h"
#include "lab.cuh"
#include "lab/device.h"
#include "lab/errors.h"
#include "lab/flags.h"
#include "lab/program.h"
#include "testing/testing.h"
#include "testing/text.h"

using lab::testing::contains;

namespace {

lab::AttentionOptions parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"program"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return lab::attention_options(int(argv.size()), argv.data(), "test", {});
}

// The message of the refusal; "" when the flags are taken.
std::string flags_refusal(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const lab::UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("options: defaults are a photo") {
  const lab::AttentionOptions options = parse({});
  CHECK_FALSE(options.random);
  CHECK(contains(options.image, "data/images/chelsea.png"));
  CHECK(options.size == 224);
  CHECK(options.seed == 1);
  CHECK(options.out == "attention.png");
  CHECK(options.batch == 0);  // the device decides
  CHECK(options.warmup == -1);
  CHECK(options.iterations == 0);
  CHECK_FALSE(options.profile);
}

TEST_CASE("options: every flag arrives") {
  const lab::testing::TemporaryFolder folder;
  lab::AttentionOptions options = parse({"--batch",      "3",
                                         "--size",       "384",
                                         "--image",      "x.png",
                                         "--patch",      "3,4",
                                         "--out",        folder.path("m.jpg"),
                                         "--warmup",     "0",
                                         "--iterations", "7",
                                         "--seed",       "18446744073709551615",
                                         "--json",       folder.path("j"),
                                         "--csv",        folder.path("c"),
                                         "--output",     folder.path("o"),
                                         "--profile"});
  CHECK(options.batch == 3);
  CHECK(options.size == 384);
  CHECK(options.image == "x.png");
  CHECK(options.patch == "3,4");
  CHECK(options.out == folder.path("m.jpg"));
  CHECK(options.warmup == 0);
  CHECK(options.iterations == 7);
  CHECK(options.seed == 18446744073709551615u);
  CHECK(options.json == folder.path("j"));
  CHECK(options.csv == folder.path("c"));
  CHECK(options.output == folder.path("o"));
  CHECK(options.profile);
  CHECK(folder.names().empty());  // the probes left nothing

  options = parse({"--tokens=33", "--heads", "3", "--head-dim", "128", "--seed", "0"});
  CHECK(options.random);
  CHECK(options.tokens == 33);
  CHECK(options.heads == 3);
  CHECK(options.head_dim == 128);
  CHECK(options.out.empty());

  options = parse({"--input", "t"});
  CHECK(options.input == "t");
  CHECK(options.out.empty());
  options = parse({"--input", "t", "--image", "x.png", "--out", folder.path("m.png")});
  CHECK(options.out == folder.path("m.png"));
  CHECK(flags_refusal({"--patch", "class"}) == "");
  CHECK(flags_refusal({"--patch", "13,13"}) == "");
}

TEST_CASE("options: values out of range are named with the range") {
  CHECK(flags_refusal({"--tokens", "0"}) == "--tokens '0': must be a whole number from 1 to 65536");
  for (const std::string flag : {"--batch", "--heads", "--tokens", "--size", "--iterations"})
    for (const std::string text :
         {"0", "-1", "1e3", "0x10", "+5", " 5", "5 ", "", "99999999999", "nan"}) {
      CAPTURE(flag);
      CAPTURE(text);
      CHECK(contains(flags_refusal({flag, text}), flag));
    }
  CHECK(contains(flags_refusal({"--warmup", "-1"}), "--warmup '-1'"));
  CHECK(contains(flags_refusal({"--seed", "18446744073709551616"}), "--seed"));
  CHECK(contains(flags_refusal({"--seed", "-1"}), "--seed"));
  CHECK(contains(flags_refusal({"--head-dim", "48"}), "must be 32, 64 or 128"));
  CHECK(contains(flags_refusal({"--size", "225"}), "multiple of 16"));
  for (const char* patch : {"14,0", "0,14", "-1,0", "7", "7,", ",7", "7,7,7", "a,b", ""})
    CHECK(contains(flags_refusal({"--patch", patch}), "--patch"));
}

TEST_CASE("options: what does not go together is refused in words") {
  for (const std::string flag : {"--image", "--size", "--patch", "--out"})
    CHECK(contains(flags_refusal({"--tokens", "33", flag, flag == "--size" ? "224" : "x.png"}),
                   flag + " belongs to a photo"));
  for (const std::string flag :
       {"--batch", "--heads", "--tokens", "--head-dim", "--size", "--seed"})
    CHECK(contains(flags_refusal({"--input", "t", flag, flag == "--size" ? "224" : "32"}),
                   flag + " does not go with --input"));
  CHECK(contains(flags_refusal({"--input", "t", "--out", "x.png"}), "--input needs --image"));
  CHECK(contains(flags_refusal({"--prefix", "block6."}), "it needs --input"));
  CHECK(contains(flags_refusal({"--image", "attention.png"}), "name the same file"));
  CHECK(contains(flags_refusal({"--json", "a", "--csv", "a"}), "name the same file"));
  CHECK(contains(flags_refusal({"--input", "t", "--output", "./t"}), "name the same file"));
  CHECK(contains(flags_refusal({"--json", "a", "--json", "b"}), "--json"));
}

TEST_CASE("options: --predict goes with no result and runs nothing twice") {
  CHECK_FALSE(parse({}).predict);
  lab::AttentionOptions options = parse({"--predict"});
  CHECK(options.predict);
  CHECK(options.out.empty());  // there is no picture
  CHECK(parse({"--predict", "--batch", "32", "--tokens", "577", "--profile"}).predict);
  for (const std::string flag : {"--out", "--output"})
    CHECK(contains(flags_refusal({"--predict", flag, "x.png"}),
                   flag + " does not go with --predict"));
  for (const std::string flag : {"--warmup", "--iterations"})
    CHECK(contains(flags_refusal({"--predict", flag, "2"}), flag + " does not go with --predict"));
  CHECK(contains(flags_refusal({"--predict", "--patch", "1,1"}), "--patch belongs to a picture"));
  CHECK(contains(flags_refusal({"--predict=1"}), "takes no value"));
}

TEST_CASE("--predict: what the device or the environment cannot do is refused in words") {
  lab::Device device;
  lab::Options options;
  options.predict = true;
  CHECK_THROWS_WITH_AS(lab::complete_for(device, options),
                       doctest::Contains("--predict needs the virtual GPU"), lab::LackError);
  if (!lab::vgpu::present()) return;
  device.is_virtual = true;
  const auto with = [&](const char* name, const char* value, const char* words) {
    CAPTURE(name);
    const char* const before = std::getenv(name);
    const std::string kept = before ? before : "";
    setenv(name, value, 1);
    CHECK_THROWS_WITH_AS(lab::complete_for(device, options), doctest::Contains(words),
                         lab::UsageError);
    before ? setenv(name, kept.c_str(), 1) : unsetenv(name);
  };
  with("VGPU_TIME", "0", "does not go with VGPU_TIME=0");
  with("VGPU_CHECK", "all", "does not go with VGPU_CHECK=all");
  options.predict = false;
  with("VGPU_TIME", "sample", "say --predict");
}

TEST_CASE("options: --look is for the virtual GPU, in words") {
  lab::Device device;
  lab::Options options;
  options.look = "page.html";
  CHECK_THROWS_WITH_AS(lab::complete_for(device, options),
                       doctest::Contains("--look needs the virtual GPU"), lab::LackError);
  const lab::testing::TemporaryFolder folder;
  CHECK(parse({"--look", folder.path("page.html")}).look == folder.path("page.html"));
  CHECK(contains(flags_refusal({"--look", folder.path("none/x")}), "cannot be written"));
  CHECK(contains(flags_refusal({"--look", folder.path("x"), "--json", folder.path("x")}),
                 "name the same file"));
  CHECK(contains(flags_refusal({"--look", ""}), "--look"));
  CHECK(folder.names().empty());
}

TEST_CASE("options: --step names one step, of which a variant runs only so") {
  std::vector<lab::AttentionStep> steps(3);
  steps[0].name = "two words";
  steps[1].name = "kept";
  steps[2].name = "failed";
  steps[2].variant = true;
  const auto chosen = [&](const std::string& name) {
    std::string names;
    for (const lab::AttentionStep& step : lab::chosen_steps(name, steps)) names += step.name + ";";
    return names;
  };
  CHECK(chosen("") == "two words;kept;");
  CHECK(chosen("two words") == "two words;");
  CHECK(chosen("failed") == "failed;");
  for (const std::string name : {"keep", "Kept", "two", "two words;kept"})
    CHECK_THROWS_WITH_AS(chosen(name),
                         ("--step '" + name + "': must be two words, kept or failed").c_str(),
                         lab::UsageError);

  CHECK(parse({}).step == "");
  CHECK(parse({"--step", "two words", "--predict"}).step == "two words");
  CHECK(contains(flags_refusal({"--step", ""}), "--step"));
  CHECK(contains(flags_refusal({"--all", "--step", "kept"}), "--step names a step of one chapter"));
}

TEST_CASE("options: unknown flags and stray words") {
  CHECK(contains(flags_refusal({"--token", "3"}), "--token"));
  CHECK(contains(flags_refusal({"-x"}), "-x"));
  CHECK(contains(flags_refusal({"photo.png"}), "photo.png"));
  CHECK(contains(flags_refusal({"--profile=maybe"}), "profile"));
}

TEST_CASE("options: outputs are tried before any work") {
  const lab::testing::TemporaryFolder folder;
  CHECK(contains(flags_refusal({"--json", folder.path("none/x")}), "cannot be written"));
  CHECK(contains(flags_refusal({"--json", folder.folder()}), "is a folder"));
  CHECK(contains(flags_refusal({"--csv", "/dev/null"}), "is not a regular file"));
  CHECK(contains(flags_refusal({"--out", folder.path("x.bmp")}), ".png, .jpg or .jpeg"));
  CHECK(contains(flags_refusal({"--json", ""}), "--json"));
  folder.write("old", "old");
  CHECK(flags_refusal({"--json", folder.path("old")}) == "");
  CHECK(lab::testing::file_content(folder.path("old")) == "old");
  CHECK(folder.names() == std::vector<std::string>{"old"});
}

TEST_CASE("help: long lines go on below their begin, a flag's where its explanation begins") {
  CHECK(lab::in_columns("short\n\nlines\n") == "short\n\nlines\n");
  CHECK(lab::in_columns("Steps: one, two, three\nnext", 14) == "Steps: one,\ntwo, three\nnext");
  CHECK(lab::in_columns("  of a list, long", 12) == "  of a list,\n  long");
  const std::string flag = "  --flag N                        words of which not all fit here";
  CHECK(lab::in_columns(flag, 50) == "  --flag N                        words of which\n" +
                                         std::string(34, ' ') + "not all fit here");
  CHECK(lab::in_columns("--one_word_that_is_longer", 10) == "--one_word_that_is_longer");
  CHECK(lab::in_columns("") == "");
}
