// What the grader says about a wrong output: its numbers tell how it is wrong, and each stage of the
// hint fits. Outputs that are made here first, then wrong solutions that are compiled and run.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "grader/attention_cases.h"
#include "grader/hints.h"
#include "grader/symptoms.h"
#include "support.h"
#include "testing/testing.h"

using namespace lab::grader;
using namespace lab::grader::testing;
using lab::testing::run_program;
using lab::testing::TemporaryFolder;

namespace {

constexpr int kBatch = 2, kHeads = 3, kTokens = 70, kDim = 32;
const AttentionTensors& tensors() {
  static const AttentionTensors t = random_tensors(kBatch, kHeads, kTokens, kTokens, kDim, 1);
  return t;
}
const Case& problem() {
  static const Case c = [] {
    Case result = attention_case(tensors(), expected(tensors()), {}, 64);
    result.hint = "the problem's own";
    result.hint_not_finite = "the one for NaN";
    return result;
  }();
  return c;
}
double infinity() { return std::numeric_limits<double>::infinity(); }

using Output = std::vector<double>;
// The right output after change(element, batch, head, query, d) for each element.
Output changed(const std::function<void(double&, int, int, int, int)>& change) {
  Output output = problem().expected;
  size_t i = 0;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h)
      for (int q = 0; q < kTokens; ++q)
        for (int d = 0; d < kDim; ++d) change(output[i++], b, h, q, d);
  return output;
}
double right(int b, int h, int q, int d) {
  return problem().expected[((size_t(b) * kHeads + h) * kTokens + q) * kDim + d];
}
Output left_out(int first_key) {
  return expected(tensors(), [=](int, int, int, int key, double score) {
    return key < first_key ? score : -infinity();
  });
}

struct Mistake {
  const char* what;
  Output output;
  Symptom::Kind kind;
  const char *seen, *cause;
};

}  // namespace

TEST_CASE("hints: how an output is wrong") {
  AttentionTensors unscaled = tensors();
  unscaled.scale = 1;
  const std::vector<Mistake> all = {
      {"all zero", changed([](double& x, int, int, int, int) { x = 0; }), Symptom::zero,
       "all wrong elements are 0", "the problem's own"},
      {"a head of zeros", changed([](double& x, int, int h, int, int) { x = h == 1 ? 0 : x; }),
       Symptom::zero, "It concerns only head 1", "the problem's own"},
      {"a constant", changed([](double& x, int, int, int, int) { x = 0.25; }), Symptom::constant,
       "all wrong elements are 0.25", "the problem's own"},
      {"NaN in the last rows",
       changed([](double& x, int, int, int q, int) { x = q >= 64 ? NAN : x; }), Symptom::not_finite,
       "computed as NaN or infinite. It concerns only query 64 and more", "the one for NaN"},
      {"half of it", changed([](double& x, int, int, int, int) { x /= 2; }), Symptom::factor,
       "each wrong row is the right one times 0.5", "what it is divided by is not"},
      {"each row divided by another number",
       changed([](double& x, int, int, int q, int) { x /= 2 + q; }), Symptom::factor,
       "times a number, 0.5 in the first", "row_sum as well as O, rescaled"},
      {"rows of the second tile's queries are too large",
       changed([](double& x, int, int, int q, int) { x *= q >= 64 ? 3 : 1; }), Symptom::factor,
       "only query 64 and more", "what it is divided by is not"},
      {"two heads exchanged", changed([](double& x, int b, int h, int q, int d) {
         x = right(b, h < 2 ? 1 - h : h, q, d);
       }),
       Symptom::exchanged, "head 0 holds what belongs to head 1", "divided by the right sizes"},
      {"every image is the first",
       changed([](double& x, int, int h, int q, int d) { x = right(0, h, q, d); }),
       Symptom::exchanged, "batch 1 holds what belongs to batch 0", "divided by the right sizes"},
      {"rows shifted by one", changed([](double& x, int b, int h, int q, int d) {
         x = right(b, h, (q + kTokens - 1) % kTokens, d);
       }),
       Symptom::exchanged, "query 0 holds what belongs to query 69", "divided by the right sizes"},
      {"the last keys", left_out(64), Symptom::alternative, "",
       "the last 6 of 70 keys are left out"},
      {"the last key", left_out(69), Symptom::alternative, "",
       "the last 1 of 70 keys are left out"},
      {"all but a tile of 16", left_out(16), Symptom::alternative, "",
       "the last 54 of 70 keys are left out"},
      {"no scale", expected(unscaled), Symptom::alternative, "", "not multiplied by the scale"},
      {"no scale in some rows, which a kernel's one factor does not do",
       changed([other = expected(unscaled)](double& x, int b, int h, int q, int d) {
         if (q >= 64) x = other[((size_t(b) * kHeads + h) * kTokens + q) * kDim + d];
       }),
       Symptom::other, "wrong is only query 64 and more", "the problem's own"},
      {"the mean of V", expected(tensors(), [](int, int, int, int, double) { return 0.0; }),
       Symptom::alternative, "", "the mean of V"},
      {"a column", changed([](double& x, int, int, int, int d) { x += d == 31 ? 1 : 0; }),
       Symptom::other, "wrong is only d 31, and nothing else", "the problem's own"},
      {"columns from 16 on",
       changed([](double& x, int, int, int q, int d) { x += d >= 16 ? 0.1 * (q + d) : 0; }),
       Symptom::other, "wrong is only d 16 and more", "the problem's own"},
      {"noise", changed([](double& x, int b, int h, int q, int d) {
         x += 0.1 * std::sin(b + 3.0 * h + 7.0 * q + 11.0 * d);
       }),
       Symptom::other, "spread over all of the output", "the problem's own"},
      {"each a little", changed([](double& x, int, int, int, int) {
         x += x > 0 ? problem().tolerance.atol : -problem().tolerance.atol;
       }),
       Symptom::rounding, "each element is nearly right", "a sum rounded to fp16"},
  };
  for (const Mistake& wrong : all) {
    CAPTURE(wrong.what);
    const Symptom found =
        find_symptom(problem(), wrong.output, std::vector<bool>(wrong.output.size()));
    CAPTURE(found.words);
    CAPTURE(found.cause);
    CHECK(std::string(symptom_name(found.kind)) == symptom_name(wrong.kind));
    CHECK(contains(found.words, wrong.seen));
    CHECK(contains(found.cause, wrong.cause));
    CHECK_FALSE(found.words.empty());
  }
  std::vector<bool> untouched(problem().expected.size());
  const Output holes = changed([&](double& x, int b, int h, int q, int d) {
    if (q < 48) return;
    x = NAN;
    untouched[((size_t(b) * kHeads + h) * kTokens + q) * kDim + d] = true;
  });
  const Symptom found = find_symptom(problem(), holes, untouched);
  CHECK(std::string(symptom_name(found.kind)) == "unwritten");
  CHECK(contains(found.words, "never written. It concerns only query 48 and more"));
}

TEST_CASE("hints: a chapter without tiles hears of none") {
  Case plain = attention_case(tensors(), expected(tensors()));
  const Output half = changed([](double& x, int, int, int, int) { x /= 2; });
  const Symptom found = find_symptom(plain, half, std::vector<bool>(half.size()));
  CHECK(contains(found.cause, "the sum of all weights of this row"));
  CHECK_FALSE(contains(found.cause, "rescale"));
  for (const Case::Alternative& alternative : plain.alternatives())
    for (const char* word : {"tile", "rescale", "row_sum", "barrier"})
      CHECK_FALSE(contains(alternative.cause, word));
}

TEST_CASE("hints: what wrong problems have in common") {
  const auto of = [](const std::vector<int64_t>& keys) {
    std::vector<Case> cases(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) cases[i].sizes = {{"keys", keys[i]}};
    return cases;
  };
  const std::vector<Case> cases = of({1, 16, 33, 64, 65, 128});
  CHECK(find_pattern(cases, {1, 3, 5}) ==
        "right are the problems whose keys are a multiple of 16, and no others");
  CHECK(find_pattern(cases, {0, 1, 2, 3}) ==
        "right are the problems with up to 64 keys, wrong those with 65 and more");
  CHECK(find_pattern(cases, {3, 4, 5}) ==
        "wrong are the problems with up to 33 keys, right those with 64 and more");
  CHECK(find_pattern(cases, {0, 5, 2}) == "");
  CHECK(find_pattern(cases, {0}) == "");              // one is no pattern
  CHECK(find_pattern(cases, {0, 1, 2, 3, 4}) == "");  // neither is one that is wrong
  CHECK(find_pattern(of({4, 4, 4, 4}), {0, 1}) == "");
}

TEST_CASE("hints: the cause of a race that is none of barriers comes first") {
  const std::string text =
      "__global__ void k() {\n  __shared__ alignas(16) half k_tile[64][72];\n"
      "  __shared__ float s_tile[16], m_tile[16];\n  s_tile[i] = x;\n  y = k_tile[j][d];\n"
      "  tile[i] = z;\n  k_tile[i][d] = z;\n}\n";
  const auto race = [](int reader, int writer) {
    return "a.cuh:" + std::to_string(reader) +
           ": error: race: read of 2 bytes from shared memory at offset 8 by thread (1,0,0) and "
           "write by thread (0,0,0) at a.cuh:" +
           std::to_string(writer) + " without a barrier between, in block (0,0,0) of k";
  };
  CHECK(hint_for(race(5, 4), text)
            .cause.starts_with("the two lines of the finding name different arrays, 'k_tile' and "
                               "'s_tile'"));
  CHECK(hint_for(race(5, 7), text).cause.starts_with("is a barrier missing?"));  // the same array
  CHECK(hint_for(race(5, 6), text).cause.starts_with("is a barrier missing?"));  // nobody knows
  CHECK(hint_for(race(5, 4) + "\n" + race(5, 7), text).cause.starts_with("is a barrier missing?"));
  CHECK(hint_for(race(5, 99), text).cause.starts_with("is a barrier missing?"));
  CHECK(contains(hint_for(race(5, 4)).seen, "The finding names both lines"));
  CHECK_FALSE(contains(hint_for(race(5, 4)).seen, "barrier"));
}

namespace {

struct Planted {
  std::string chapter, program, what;
  const char *find, *replace;
  const char *seen, *cause;  // both stages of the first item's hint
  const char* never = "tile";
};

}  // namespace

TEST_CASE("hints: wrong solutions, and what each stage says") {
  const std::vector<Planted> all = {
      {"01_naive_attention", "exercise1", "divided by the number of keys",
       "row_scores[key] /= row_sum", "row_scores[key] /= keys",
       "each wrong row is the right one times a number", "the sum of all weights of this row"},
      {"01_naive_attention", "exercise1", "the sum is that of one lane",
       "row_sum = warp_sum(row_sum);", "row_sum = __shfl_sync(0xffffffffu, row_sum, 0);",
       "each wrong row is the right one times", "the sum of all weights of this row"},
      {"01_naive_attention", "exercise1", "twice the sum", "row_scores[key] /= row_sum",
       "row_scores[key] /= 2 * row_sum", "the wrong row is the right one times 0.5",
       "the sum of all weights of this row"},
      {"01_naive_attention", "exercise1", "the last key is dropped",
       "for (int key = 0; key < keys; ++key)",
       "for (int key = 0; key < keys - 1 || key == 0; ++key)", "",
       "the last 1 of 16 keys count in the sum of the weights, but their rows of V are not added "
       "up"},
      {"01_naive_attention", "exercise1", "no scale", "scores[index] = score * scale",
       "scores[index] = score", "", "not multiplied by the scale"},
      {"01_naive_attention", "exercise1", "every matrix is the first",
       "const int64_t key_row = matrix * keys + key;", "const int64_t key_row = key;", "", "",
       "barrier"},
      {"02_tiling", "exercise2", "no mask", "key <= query ? score", "key < tokens ? score", "",
       "not changed as the exercise asks for", "barrier"},
      {"02_tiling", "exercise2", "the sum is not rescaled", "    row_sum *= factor;\n", "",
       "right are the problems with up to 65 keys, wrong those with 100 and more",
       "row_sum as well as O, rescaled", "barrier"},
      {"03_coalescing", "exercise3", "O is not rescaled",
       "      for (float& x : output[r]) x *= factor;\n", "",
       "right are the problems with up to 64 keys, wrong those with 65 and more",
       "is not rescaled in each row whose maximum grows", "barrier"},
      {"03_coalescing", "exercise3", "columns from 64 on are not written",
       "if (lane + 32 * c < kHeadDim)", "if (lane + 32 * c < 64)",
       "never written. It concerns only d 64 and more", "each element of the row a lane",
       "barrier"},
  };
  for (size_t from = 0; from < all.size();) {
    size_t to = from;
    const TemporaryFolder folder;
    for (; to < all.size() && all[to].program == all[from].program; ++to)
      folder.write(std::to_string(to - from) + ".cuh",
                   planted(source("chapters/" + all[to].chapter + "/exercise/solution.cuh"),
                           all[to].find, all[to].replace));
    // Two stages, and one: an autograder that does not ask for more.
    run_program(all[from].program,
                {"--batch", ".", "--together", "--seconds", kPatient, "--hint", "2"},
                folder.folder());
    for (size_t i = from; i < to; ++i) {
      CAPTURE(all[i].what);
      const auto report = nlohmann::json::parse(
          lab::testing::file_content(folder.path(std::to_string(i - from) + ".json")));
      REQUIRE(report.at("items").size() > 1);
      const auto item = report.at("items")[0];
      const std::string seen = item.at("hint"), cause = item.at("cause");
      CAPTURE(report.dump(1));
      CHECK(item.at("points") < 30);
      CHECK(contains(seen, all[i].seen));
      CHECK(contains(cause, all[i].cause));
      CHECK_FALSE(seen.empty());
      CHECK_FALSE(cause.empty());
      CHECK_FALSE(contains(seen, cause));
      CHECK_FALSE(contains(seen + cause, all[i].never));
    }
    from = to;
  }
}

TEST_CASE("hints: one stage unless the second is asked for") {
  const TemporaryFolder folder;
  folder.write("a.cuh", planted(source("chapters/01_naive_attention/exercise/solution.cuh"),
                                "row_scores[key] /= row_sum", "row_scores[key] /= 2 * row_sum"));
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--file", "a.cuh", "--seconds", kPatient, "--json", "a.json",
                                       "--gradescope", "b.json"});
    return run_program("exercise1", arguments, folder.folder()).output;
  };
  const std::string cause = "the sum of all weights";
  const std::string one = run({});
  CAPTURE(one);
  CHECK(contains(one, "the wrong row is the"));
  CHECK(contains(one, "Stuck? The same command with --hint 2 says what this"));
  for (const std::string& text : {one, lab::testing::file_content(folder.path("a.json")),
                                  lab::testing::file_content(folder.path("b.json"))})
    CHECK_FALSE(contains(text, cause));
  const std::string two = run({"--hint", "2"});
  CAPTURE(two);
  CHECK(contains(two, "hint 2: the sum over V is right"));
  CHECK_FALSE(contains(two, "Stuck?"));
  for (const char* file : {"a.json", "b.json"})
    CHECK(contains(lab::testing::file_content(folder.path(file)), cause));
  CHECK(contains(run({"--hint", "2", "--tap"}), "# hint 2: the sum over V is right"));
  CHECK(run_program("exercise1", {"--hint", "3"}, folder.folder()).exit_code == 2);
}
