// Flags: numbers out of range and what is none, words that are none of a list, flags that do not go
// together. All of it is exit status 2, with the flag and the value in words.
#include <doctest/doctest.h>

#include <regex>
#include <sstream>

#include "bad_input.h"

using namespace bad_input;

namespace {

struct Number {
  std::string flag, least, most;  // as the program says them
};

// The flags of a program that take a whole number: --help lists them with N or PIXELS, and an error names
// the range.
std::vector<Number> numbers_of(const std::string& program) {
  static const std::regex flag(R"(^  (--[a-z-]+) (?:N|PIXELS)\b)"),
      range(R"(: must be a whole number from (\d+) to (\d+))");
  std::vector<Number> found;
  std::istringstream help(Bench::get().run({program, {"--help"}}).output);
  for (std::string line; std::getline(help, line);) {
    std::smatch name, ends;
    if (!std::regex_search(line, name, flag)) continue;
    const std::string said = Bench::get().run({program, {name[1], "x"}}).errors;
    if (std::regex_search(said, ends, range)) found.push_back({name[1], ends[1], ends[2]});
  }
  return found;
}

// A number one less or one more.
std::string next_to(const std::string& number, int step) {
  return std::to_string(std::stoll(number) + step);
}

std::vector<std::string> out_of_range(const Number& number) {
  std::vector<std::string> texts;
  if (number.least != "0") texts.push_back(next_to(number.least, -1));
  if (number.most.size() < 19) texts.push_back(next_to(number.most, 1));  // else 2^64 - 1
  return texts;
}

// What a line of the terminal shows of it.
bool is_printable(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < ' ') return false;
  return true;
}

}  // namespace

TEST_CASE("bad input: numbers of flags") {
  Random random(1);
  for (int chapter = 0; chapter < 100; ++chapter) {
    const std::string program = "chapter" + std::to_string(chapter);
    if (!is_built(program)) continue;
    const std::vector<Number> numbers = numbers_of(program);
    CAPTURE(program);
    CHECK(numbers.size() >= 3);
    for (const Number& number : numbers) {
      std::vector<std::string> texts = out_of_range(number);
      // All programs read numbers with the same code: for most of them some values will do.
      for (const char* text : {"abc", "1e3", "0x10", "+5", "1.5", " 7", "7 ", "-1", "nan", "1,2",
                               "7\n8", "\xff", "--7", "99999999999999999999"})
        if (chapter == 1 || chapter == 7 || chapter == 18 || random.below(5) == 0)
          texts.push_back(text);
      for (const std::string& text : texts) {
        std::vector<std::string> words = {number.flag};
        if (is_printable(text)) words.push_back("'" + text + "'");
        const bool joined = random.below(2);
        expect({program,
                joined ? std::vector{number.flag + "=" + text} : std::vector{number.flag, text}},
               {2}, words);
      }
    }
  }
}

TEST_CASE("bad input: words of flags") {
  const std::vector<std::string> bad = {"none", "ZERO", "fp16,tf32", "fp8",
                                        "-",    "1",    "zero ",     "\xff"};
  struct Choice {
    std::string program, flag;
  };
  for (const auto& [program, flag] : {Choice{"chapter7", "--preset"},
                                      {"chapter3", "--step"},
                                      {"chapter0", "--step"},
                                      {"chapter7", "--step"},
                                      {"chapter7", "--distribution"},
                                      {"chapter8", "--preset"},
                                      {"chapter8", "--padding"},
                                      {"chapter8", "--precision"},
                                      {"chapter8", "--storage"},
                                      {"chapter16", "--component"},
                                      {"chapter16", "--step"},
                                      {"chapter16", "--preset"},
                                      {"chapter16", "--dtype"},
                                      {"chapter19", "--preset"},
                                      {"chapter19", "--step"},
                                      {"chapter19", "--distribution"},
                                      {"chapter20", "--step"}})
    for (const std::string& text : bad)
      if (!(text == "-" && flag == "none"))
        expect({program, {flag, text}}, {2}, {flag, "'" + text + "'"});
  for (const std::string program : {"chapter1", "chapter4", "chapter6"}) {
    for (const char* text : {"0", "16", "48", "256", "64.0", "abc", "-64"})
      expect({program, {"--head-dim", text}}, {2}, {"--head-dim", text, "32, 64 or 128"});
    for (const char* text : {"14,0", "0,14", "-1,0", "7", "7,", ",7", "7,7,7", "a,b", "classes"})
      expect({program, {"--patch", text}}, {2}, {"--patch"});
  }
  for (const char* text : {"225", "17", "1000"}) {
    if (std::string(text) != "1000")
      expect({"chapter1", {"--size", text}}, {2}, {"--size", text, "16"});
    if (std::string(text) != "1000")
      expect({"chapter7", {"--size", text}}, {2}, {"--size", text, "8"});
  }
}

TEST_CASE("bad input: flags that are none, lack a value, come twice or contradict each other") {
  const std::vector<std::vector<std::string>> of_all = {{"--token", "3"},
                                                        {"-x"},
                                                        {"photo.png"},
                                                        {"--", "x"},
                                                        {"--json"},
                                                        {"--json="},
                                                        {"--json", ""},
                                                        {"--profile=maybe"},
                                                        {"--profile=1"},
                                                        {"--predict=1"},
                                                        {"--predict", "--out", "a.png"},
                                                        {"--predict", "--output", "a"},
                                                        {"--predict", "--warmup", "2"},
                                                        {"--predict", "--iterations", "2"},
                                                        {"--seed"},
                                                        {"--seed", "1", "--seed", "2"},
                                                        {"--json", "a", "--json", "b"},
                                                        {"--out", "a.png", "--out", "b.png"}};
  for (const int chapter : {1, 2, 3, 4, 5, 6, 7, 8, 16, 18, 20})
    for (const std::vector<std::string>& arguments : of_all)
      expect({"chapter" + std::to_string(chapter), arguments}, {2}, {});
  const std::vector<std::vector<std::string>> of_ladder = {{"--tokens", "33", "--image", "x.png"},
                                                           {"--tokens", "33", "--size", "224"},
                                                           {"--tokens", "33", "--patch", "1,1"},
                                                           {"--heads", "3", "--out", "x.png"},
                                                           {"--input", "t", "--batch", "2"},
                                                           {"--input", "t", "--seed", "2"},
                                                           {"--input", "t", "--out", "x.png"},
                                                           {"--prefix", "block6."},
                                                           {"--all", "--csv", "x"},
                                                           {"--all", "--profile"},
                                                           {"--step", "wmma", "--all"},
                                                           {"--all=3"}};
  for (const std::string program : {"chapter1", "chapter5"})
    for (const std::vector<std::string>& arguments : of_ladder)
      expect({program, arguments}, {2}, {arguments[0].substr(0, 5)});
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--input", "t", "--preset", "small"},
                                             {"--input", "t", "--points", "4"},
                                             {"--channels", "48"},
                                             {"--points", "5"},
                                             {"--all"}})
    expect({"chapter7", arguments}, {2}, {});
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--input", "t", "--kernel", "3"},
           {"--input", "t", "--size", "64"},
           {"--height", "8", "--size", "64"},
           {"--kernel", "2"},
           {"--kernel", "7"},
           {"--residual=2"},
           {"--storage", "fp16", "--precision", "tf32"},
           {"--all"},
           {"--padding", "reflect", "--height", "1", "--width", "1"},
           {"--style", "x"}})
    expect({"chapter8", arguments}, {2}, {});
  for (const char* flag : {"--height", "--width", "--channels", "--class-tokens"})
    expect({"chapter16", {flag, "1", "--component", "linear"}}, {2},
           {flag, "goes only with --component projection"});
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--component", "attention", "--dtype", "fp16"},
                                             {"--component", "layer_norm", "--output", "o"},
                                             {"--component", "embedding", "--step", "fused"},
                                             {"--component", "linear", "--component", "linear"},
                                             {"--batch", "1", "--height", "2", "--width", "2"}})
    expect({"chapter16", arguments}, {2}, {});
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--held-out", "5"},
           {"--stop-after", "1"},
           {"--infer", "photo.png"},
           {"--infer", "photo.png", "--checkpoint", "c", "--steps", "1"},
           {"--resume", "none", "--seed", "1"},
           {"--batch", "401"},
           {"--component", "projection"}})
    expect({"chapter18", arguments}, {2}, {arguments[0]});
  expect({"chapter18", {"--resume", "none"}}, {2}, {"none: No such file"});
  expect({"chapter18", {"--data", "nowhere"}}, {2}, {"nowhere/train-images-idx3-ubyte"});
  for (const char* rate : {"0", "-1", "nan", "inf", "1e7", "fast", "1,5", ""})
    expect({"chapter18", {"--lr", rate}}, {2}, {"--lr"});
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--style"},
                                             {"--style", ""},
                                             {"--style", "x", "--storage", "fp16"},
                                             {"--style", "x", "--precision", "tf32"},
                                             {"--style", "x", "--seed", "1"},
                                             {"--predict", "--profile"}})
    expect({"chapter20", arguments}, {2}, {});
}

TEST_CASE("bad input: shapes beyond any memory are named before anything is taken") {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--batch", "65536", "--heads", "4096", "--tokens", "65536"},
           {"--heads", "4096", "--tokens", "65536", "--head-dim", "128"}})
    for (const std::string program : {"chapter1", "chapter6"})
      expect({program, arguments}, {3}, {"needs", "of shape"});
  expect({"chapter7", {"--batch", "4096", "--queries", "10000000"}}, {2, 3}, {"of shape"});
  expect({"chapter8", {"--in-channels", "65536", "--height", "65536", "--width", "65536"}}, {2, 3},
         {"of shape"});
  expect({"chapter16", {"--batch", "4096", "--height", "1024", "--width", "1024"}}, {2},
         {"--batch 4096", "fewer than 2^31 numbers"});
  expect(
      {"chapter16", {"--batch", "4096", "--height", "100", "--width", "100", "--channels", "50"}},
      {2, 3}, {"convolutional projection"});
  expect({"chapter20", {"--size", "8192"}}, {2, 3}, {"8192 x 8192 pixels"});
}
