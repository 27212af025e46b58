// Chapter 1's tests: right on every shape, same bits twice, planted bugs found, what the counters
// say worked out by hand, and a program that says what is wrong with its input.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../../common/attention/inputs.h"
#include "../../../common/attention/reference.h"
#include "../../../common/attention/test_cases.h"
#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/testing/testing.h"
#include "../kernel.cuh"
#include "../variants/swapped_lanes.cuh"

using lab::testing::AttentionCase;
using lab::testing::check_machine_code;
using lab::testing::Outcome;

namespace {

// Kernels need a device; without one their tests say so and pass on the machine's behalf.
bool skipped(const std::string& what) {
  if (lab::testing::has_device()) return false;
  MESSAGE("skipped: " << what << ": there is no GPU, real or virtual");
  return true;
}

void check_right(const AttentionCase& problem) {
  const Outcome outcome = lab::testing::run_attention(naive_attention::attention, problem);
  CAPTURE(problem.name);
  CAPTURE(outcome.details);
  CHECK(outcome.caught_by == "");
}

}  // namespace

TEST_CASE("attention: every shape") {
  if (skipped("attention: every shape")) return;
  uint64_t seed = 1;
  for (const AttentionShape& s : lab::testing::attention_shapes())
    check_right(lab::testing::random_case(s.batch, s.heads, s.tokens, s.head_dim, seed++));
}

TEST_CASE("attention: scores far above and far below zero") {
  if (skipped("attention: scores far above and far below zero")) return;
  for (const double offset : {150.0, -150.0})
    check_right(lab::testing::offset_case(1, 2, 33, 64, offset));
}

TEST_CASE("attention: scores in steps, all equal ones, O rounded once") {
  if (skipped("attention: scores in steps")) return;
  for (const AttentionCase& problem : lab::testing::stepped_cases()) check_right(problem);
  for (const int head_dim : {32, 64, 128}) check_right(lab::testing::mean_case(2, 128, head_dim));
}

TEST_CASE("attention: arrays from PyTorch") {
  if (skipped("attention: arrays from PyTorch")) return;
  const std::vector<AttentionCase> cases = lab::testing::golden_cases();
  REQUIRE(cases.size() >= 6);
  for (const AttentionCase& problem : cases) check_right(problem);
}

TEST_CASE("attention: a trained DeiT-Tiny on a photo") {
  if (skipped("attention: a trained DeiT-Tiny on a photo")) return;
  const std::vector<AttentionCase> cases = lab::testing::deit_cases();
  if (cases.empty()) MESSAGE("skipped: DeiT-Tiny's q, k, v are not there (DEIT_TINY_ATTENTION)");
  for (const AttentionCase& problem : cases) check_right(problem);
}

TEST_CASE("attention: the same bits twice") {
  if (skipped("attention: the same bits twice")) return;
  const AttentionCase problem = lab::testing::random_case(1, 3, 127, 64);
  const Outcome first = lab::testing::run_attention(naive_attention::attention, problem);
  const Outcome second = lab::testing::run_attention(naive_attention::attention, problem);
  const Outcome in_a_graph =
      lab::testing::run_attention(lab::testing::in_a_graph(naive_attention::attention), problem);
  REQUIRE(first.output.size() == size_t(problem.problem.shape.elements()));
  for (const Outcome* other : {&second, &in_a_graph}) {
    REQUIRE(first.output.size() == other->output.size());
    CHECK(std::memcmp(first.output.data(), other->output.data(),
                      first.output.size() * sizeof(half)) == 0);
  }
}

TEST_CASE("attention: each of the three kernels by itself") {
  if (skipped("attention: each of the three kernels by itself")) return;
  for (const int tokens : {1, 33, 65}) {
    CAPTURE(tokens);
    const AttentionCase problem = lab::testing::random_case(1, 1, tokens, 64);
    const AttentionShape& shape = problem.problem.shape;
    std::vector<double> scores(shape.scores()), weights(shape.scores());
    reference::attention_head(lab::to_float(problem.problem.q).data(),
                              lab::to_float(problem.problem.k).data(),
                              lab::to_float(problem.problem.v).data(), tokens, 64, shape.scale,
                              scores.data(), weights.data(), nullptr);

    const lab::DeviceArray<half> Q(problem.problem.q, "Q"), K(problem.problem.k, "K");
    lab::DeviceArray<float> matrix(shape.scores(), "scores");
    matrix.fill_nan();
    naive_attention::launch_scores(Q.data(), K.data(), matrix.data(), shape, 0);
    const lab::Comparison scores_right =
        lab::compare(matrix.download(), scores, lab::Tolerance::fp32_sum(64, lab::max_abs(scores)),
                     {tokens, tokens});
    CHECK_MESSAGE(scores_right.pass, scores_right.describe());

    naive_attention::launch_softmax(matrix.data(), shape, 0);
    const lab::Comparison softmax_right =
        lab::compare(matrix.download(), weights,
                     lab::Tolerance::softmax(64, tokens, lab::max_abs(scores)), {tokens, tokens});
    CHECK_MESSAGE(softmax_right.pass, softmax_right.describe());
  }
}

TEST_CASE("attention: the weights of a query, read off by one-hot values") {
  if (skipped("attention: the weights of a query")) return;
  // 70 keys of head_dim 32 take three launches, the last for 6 keys.
  const AttentionCase problem = lab::testing::random_case(2, 3, 70, 32);
  const int query = 41;
  std::vector<double> expected(70, 0.0), weights(70 * 70);
  const std::vector<float> q = lab::to_float(problem.problem.q),
                           k = lab::to_float(problem.problem.k),
                           v = lab::to_float(problem.problem.v);
  for (int head = 0; head < 3; ++head) {
    const int base = head * 70 * 32;
    reference::attention_head(&q[base], &k[base], &v[base], 70, 32, problem.problem.shape.scale,
                              nullptr, weights.data(), nullptr);
    for (int key = 0; key < 70; ++key) expected[key] += weights[query * 70 + key] / 3;
  }
  const lab::Comparison right =
      lab::compare(lab::attention_weights(naive_attention::attention, problem.problem, query),
                   expected, lab::Tolerance::fp16_mean(1), {70});
  CHECK_MESSAGE(right.pass, right.describe());
}

TEST_CASE("swapped lanes: right, without a finding, the same flaw in Q and the stores") {
  if (skipped("swapped lanes")) return;
  lab::testing::check_every_shape(swapped_lanes::attention);
  if (!lab::vgpu::present()) return;
  // 64 tokens: 8192 scores are 256 full warps, each of one key.
  const AttentionCase problem = lab::testing::random_case(1, 2, 64, 64);
  const lab::DeviceArray<half> Q(problem.problem.q, "Q"), K(problem.problem.k, "K");
  lab::DeviceArray<float> matrix(problem.problem.shape.scores(), "scores");
  swapped_lanes::launch_scores(Q.data(), K.data(), matrix.data(), problem.problem.shape, 0);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::counter("/allocations/K/load/sectors") == 256 * 64);
  CHECK(lab::vgpu::counter("/allocations/Q/load/sectors") == 256 * 64 * 32);
  CHECK(lab::vgpu::counter("/allocations/scores/store/sectors") == 256 * 32);
}

TEST_CASE("program: a variant runs where --step names it and nowhere else") {
  lab::testing::check_variant("chapter1", "swapped lanes", "attention");
}

TEST_CASE("attention: what it cannot do it refuses, naming shape and limit") {
  const auto message = [](const AttentionShape& shape) -> std::string {
    try {
      naive_attention::attention(nullptr, nullptr, nullptr, nullptr, shape, 0);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message({1, 1, 16, 48}) ==
        "attention of shape [batch 1, heads 1, tokens 16, head_dim 48]: head_dim must be 32, 64 or "
        "128");
  CHECK(message({1, 0, 16, 64}).find("must be at least 1") != std::string::npos);
  CHECK(message({-1, 1, 16, 64}).find("batch -1") != std::string::npos);
  CHECK(message({1, 1, 0, 64}).find("tokens 0") != std::string::npos);
  // 16 * 2^18 * 2^18 are 2^40 scores, 2^32 blocks.
  CHECK(message({16, 1, 1 << 18, 64}).find("a grid has at most 2147483647") != std::string::npos);
}

// ---- Planted bugs -------------------------------------------------------------------------------

namespace {

// attention() with the kernels of one mutant; grids and arguments as in kernel.cuh.
lab::testing::AnyAttention mutant_attention(const lab::testing::Mutants& mutants, size_t number) {
  return [&mutants, number](const half* Q, const half* K, const half* V, half* O,
                            const AttentionShape& shape, cudaStream_t stream) {
    using naive_attention::blocks_for, naive_attention::kThreads, lab::testing::launch;
    lab::DeviceArray<float> scores(shape.scores(), "scores");
    launch(mutants.kernel(number, "scores_kernel"), blocks_for(shape.scores(), shape), kThreads, 0,
           stream, Q, K, scores.data(), shape.scores(), shape.tokens, shape.head_dim, shape.scale);
    launch(mutants.kernel(number, "softmax_kernel"), blocks_for(shape.rows(), shape), kThreads, 0,
           stream, scores.data(), shape.rows(), shape.tokens);
    launch(mutants.kernel(number, "values_kernel"), blocks_for(shape.elements(), shape), kThreads,
           0, stream, static_cast<const float*>(scores.data()), V, O, shape.elements(),
           shape.tokens, shape.head_dim);
    lab::check(cudaStreamSynchronize(stream));
  };
}

}  // namespace

TEST_CASE("planted bugs: each is caught, and by what" * doctest::test_suite("toolkit")) {
  if (skipped("planted bugs")) return;
  const std::vector<AttentionCase> cases = {
      lab::testing::random_case(1, 1, 1, 32),        lab::testing::random_case(3, 3, 33, 64),
      lab::testing::random_case(1, 2, 65, 128),      lab::testing::offset_case(1, 1, 17, 64, 150),
      lab::testing::offset_case(1, 1, 17, 64, -150), lab::testing::mean_case(1, 16, 32)};
  const std::vector<lab::testing::Mutant> bugs =
      lab::testing::planted_bugs("01_naive_attention", "attention");
  const lab::testing::Mutants mutants("chapters/01_naive_attention/kernel.cuh", "naive_attention",
                                      bugs);

  // Without a bug the same machinery finds nothing.
  for (const AttentionCase& problem : cases) {
    const Outcome outcome = lab::testing::run_attention(mutant_attention(mutants, 0), problem);
    CAPTURE(problem.name);
    CHECK_MESSAGE(outcome.caught_by == "", outcome.details);
  }
  for (size_t i = 0; i < bugs.size(); ++i) {
    Outcome outcome;
    for (const AttentionCase& problem : cases) {
      if (!outcome.caught_by.empty()) break;
      outcome = lab::testing::run_attention(mutant_attention(mutants, i + 1), problem);
    }
    CAPTURE(bugs[i].name);
    CAPTURE(outcome.details);
    CHECK(outcome.caught_by == bugs[i].caught_by);
  }
}

// ---- Counters, by hand --------------------------------------------------------------------------

TEST_CASE("counters: what the lesson says about the loads") {
  if (skipped("counters")) return;
  if (!lab::vgpu::present()) {
    MESSAGE("skipped: counters: only the virtual GPU has them");
    return;
  }
  // 2 heads of 64 tokens of 64: 2 * 64 * 64 = 8192 scores are 256 full warps, each of one query.
  const AttentionCase problem = lab::testing::random_case(1, 2, 64, 64);
  const AttentionShape& shape = problem.problem.shape;
  const double scores = 8192, warps = scores / 32, rows = 128, elements = 8192;
  lab::DeviceArray<half> Q(problem.problem.q, "Q"), K(problem.problem.k, "K"),
      V(problem.problem.v, "V"), O(problem.problem.v.size(), "O");
  lab::DeviceArray<float> matrix(shape.scores(), "scores");
  const auto counted = [](const char* array, const char* what) {
    return lab::vgpu::counter(std::string("/allocations/") + array + "/" + what);
  };

  naive_attention::launch_scores(Q.data(), K.data(), matrix.data(), shape, 0);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::counter("/grid/0") == scores / 256);
  // One request a warp and element of head_dim. The lanes' keys are 128 bytes apart: 32 sectors.
  CHECK(counted("K", "load/requests") == warps * 64);
  CHECK(counted("K", "load/sectors") == warps * 64 * 32);
  CHECK(counted("K", "load/bytes_asked") == scores * 64 * 2);
  // All lanes read the same element of Q: 1 sector.
  CHECK(counted("Q", "load/requests") == warps * 64);
  CHECK(counted("Q", "load/sectors") == warps * 64);
  // 32 fp32 scores side by side: 128 bytes, 4 sectors.
  CHECK(counted("scores", "store/requests") == warps);
  CHECK(counted("scores", "store/sectors") == warps * 4);

  naive_attention::launch_softmax(matrix.data(), shape, 0);
  lab::check(cudaDeviceSynchronize());
  // One thread a row of 256 bytes, so every lane's access is a sector of its own. Three passes read
  // (maximum, exponential, division), two write.
  CHECK(counted("scores", "load/sectors") == 3 * rows * 64);
  CHECK(counted("scores", "load/requests") == 3 * rows * 64 / 32);
  CHECK(counted("scores", "store/sectors") == 2 * rows * 64);

  naive_attention::launch_values(matrix.data(), V.data(), O.data(), shape, 0);
  lab::check(cudaDeviceSynchronize());
  // Each of 64 keys: 32 lanes read 64 bytes of V's row, 2 sectors, and one weight, 1 sector.
  CHECK(counted("V", "load/requests") == elements / 32 * 64);
  CHECK(counted("V", "load/sectors") == elements / 32 * 64 * 2);
  CHECK(counted("scores", "load/sectors") == elements / 32 * 64);
  CHECK(counted("O", "store/sectors") == elements / 32 * 2);
}

TEST_CASE("counters: 32 sectors a request on K on ragged tokens too") {
  if (skipped("counters") || !lab::vgpu::present()) return;
  // 33 tokens in 1 head: 1089 scores are 34 full warps and one lane. Lanes of two queries share a
  // warp, but 32 neighbouring scores never share a key: each lane's read is its own sector.
  const AttentionCase problem = lab::testing::random_case(1, 1, 33, 32);
  const lab::DeviceArray<half> Q(problem.problem.q, "Q"), K(problem.problem.k, "K");
  lab::DeviceArray<float> matrix(33 * 33, "scores");
  naive_attention::launch_scores(Q.data(), K.data(), matrix.data(), problem.problem.shape, 0);
  lab::check(cudaDeviceSynchronize());
  CHECK(lab::vgpu::counter("/allocations/K/load/requests") == 35 * 32);
  CHECK(lab::vgpu::counter("/allocations/K/load/sectors") == 1089 * 32);
}

// ---- The program --------------------------------------------------------------------------------

namespace {

using lab::testing::ProgramResult;
using lab::testing::run_program;

int lines(const std::string& text) { return int(std::count(text.begin(), text.end(), '\n')); }

size_t longest_line(const std::string& text) {
  size_t longest = 0, length = 0;
  for (const char c : text) longest = std::max(longest, length = c == '\n' ? 0 : length + 1);
  return longest;
}

// Bad usage or input: exit 2, one line on stderr that contains `named`, nothing else, no new file.
void check_refused(const lab::testing::TemporaryFolder& folder,
                   const std::vector<std::string>& arguments, const std::string& named) {
  std::string text;
  for (const std::string& argument : arguments) text += argument + " ";
  CAPTURE(text);
  const std::vector<std::string> before = folder.names();
  const ProgramResult result = run_program("chapter1", arguments, folder.folder());
  CAPTURE(result.errors);
  CHECK(result.exit_code == 2);
  CHECK(result.output == "");
  CHECK(lines(result.errors) == 1);
  CHECK(result.errors.find(named) != std::string::npos);
  CHECK(folder.names() == before);
}

// A safetensors file: the length of a header, the header, data of so many bytes.
std::string safetensors(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  return file + header + std::string(data_bytes, '\0');
}

}  // namespace

TEST_CASE("machine code: no spills") { check_machine_code("chapters/01_naive_attention"); }

TEST_CASE("program: flags that are not right") {
  const lab::testing::TemporaryFolder folder;
  for (const char* tokens : {"0", "-5", "99999999999999999999", "65537", "abc", "1.5", "7x"})
    check_refused(folder, {"--tokens", tokens}, tokens);
  check_refused(folder, {"--tokens", ""}, "--tokens");
  check_refused(folder, {"--tokens=-5"}, "-5");
  check_refused(folder, {"--tokens"}, "--tokens");
  check_refused(folder, {"--head-dim", "48"}, "'48': must be 32, 64 or 128");
  check_refused(folder, {"--batch", "0"}, "--batch '0'");
  check_refused(folder, {"--heads", "nan"}, "--heads 'nan'");
  check_refused(folder, {"--size", "100"}, "multiple of 16");
  check_refused(folder, {"--size", "8"}, "--size '8'");
  check_refused(folder, {"--iterations", "0"}, "--iterations '0'");
  check_refused(folder, {"--warmup", "-1"}, "--warmup '-1'");
  check_refused(folder, {"--seed", "x"}, "--seed 'x'");
  check_refused(folder, {"--patch", "14,0"}, "'14'");
  check_refused(folder, {"--patch", "middle"}, "'middle'");
  check_refused(folder, {"--unknown"}, "--unknown");
  check_refused(folder, {"stray"}, "stray");
  check_refused(folder, {"--tokens", "33", "--image", "photo.png"}, "--image");
  check_refused(folder, {"--tokens", "33", "--patch", "1,1"}, "--patch");
}

TEST_CASE("program: images that are none") {
  const lab::testing::TemporaryFolder folder;
  folder.write("text.png", "no picture\n");
  folder.write("empty.png", "");
  const std::string photo =
      lab::testing::file_content(lab::repository_path("data/images/chelsea.png"));
  folder.write("half.png", photo.substr(0, photo.size() / 2));
  const std::string jpeg =
      lab::testing::file_content(lab::repository_path("data/images/rocket.jpg"));
  folder.write("half.jpg", jpeg.substr(0, jpeg.size() / 2));
  check_refused(folder, {"--image", "missing.png"}, "missing.png: No such file");
  check_refused(folder, {"--image", folder.folder()}, "is a folder");
  check_refused(folder, {"--image", "text.png"}, "text.png: is no PNG or JPEG");
  check_refused(folder, {"--image", "empty.png"}, "empty.png: is empty");
  check_refused(folder, {"--image", "half.png"}, "half.png: is truncated");
  check_refused(folder, {"--image", "half.jpg"}, "half.jpg: is truncated");
}

TEST_CASE("program: outputs that cannot be written") {
  const lab::testing::TemporaryFolder folder;
  for (const char* flag : {"--json", "--csv", "--output"}) {
    check_refused(folder, {flag, "missing/file"}, "missing/file");
    check_refused(folder, {flag, folder.folder()}, "is a folder");
    check_refused(folder, {flag, "/dev/null"}, "is not a regular file");
  }
  check_refused(folder, {"--out", "missing/map.png"}, "missing/map.png");
  check_refused(folder, {"--out", "map.txt"}, ".png, .jpg or .jpeg");
  check_refused(folder, {"--json", "same", "--csv", "./same"}, "name the same file");
}

TEST_CASE("program: tensor files that are malformed") {
  const lab::testing::TemporaryFolder folder;
  const auto tensor = [](const char* name, const char* dtype, const char* shape, int begin,
                         int end) {
    return std::string("\"") + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": " + shape +
           ", \"data_offsets\": [" + std::to_string(begin) + ", " + std::to_string(end) + "]}";
  };
  const char* shape = "[1, 1, 2, 32]";  // 128 bytes in F16
  const std::string q = tensor("q", "F16", shape, 0, 128), k = tensor("k", "F16", shape, 128, 256);
  const auto refused = [&](const std::string& content, const std::string& named) {
    folder.write("input", content);
    check_refused(folder, {"--input", "input", "--output", "out"}, named);
  };
  refused("abc", "3 bytes");
  refused(std::string(8, '\xff'), "bad header length");
  refused(safetensors("{" + q + "}", 128).substr(0, 40), "bad header length");
  refused(safetensors("not json", 0), "does not begin with '{'");
  refused(safetensors("{" + q + ", " + k + "}", 256), "tensor 'v' is missing");
  refused(safetensors("{" + q + ", " + k + ", " + tensor("v", "F16", shape, 200, 328) + "}", 328),
          "overlap");
  refused(safetensors("{" + q + ", " + k + ", " + tensor("v", "F16", shape, 256, 384) + "}", 300),
          "out of range");
  refused(safetensors("{" + q + ", " + k + ", " + tensor("v", "BF16", shape, 256, 384) + "}", 384),
          "'v' is BF16");
  refused(
      safetensors("{" + q + ", " + k + ", " + tensor("v", "F16", "[2, 32]", 256, 384) + "}", 384),
      "'v' has 2 dimensions");
  refused(safetensors(
              "{" + q + ", " + k + ", " + tensor("v", "F16", "[1, 2, 1, 32]", 256, 384) + "}", 384),
          "'v' has another shape");
  refused(safetensors(
              "{" + q + ", " + k + ", " + tensor("v", "F16", "[1, 1, 2, 64]", 256, 384) + "}", 384),
          "takes 256 bytes");
  check_refused(folder, {"--input", "input", "--tokens", "3"}, "--tokens");
  check_refused(folder, {"--input", "missing"}, "missing: No such file");

  // Well-formed, but of a head_dim that no kernel of the ladder takes.
  lab::Tensor odd{{1, 1, 2, 48}, std::vector<float>(96, 1.0f), "F16"};
  lab::write_safetensors(folder.path("odd"), {{"q", odd}, {"k", odd}, {"v", odd}});
  check_refused(folder, {"--input", "odd"}, "head_dim 48");
}

TEST_CASE("program: the whole way on a photo") {
  if (skipped("program: the whole way on a photo")) return;
  const lab::testing::TemporaryFolder folder;
  const ProgramResult result =
      run_program("chapter1",
                  {"--size", "64", "--batch", "2", "--patch", "1,2", "--json", "a.json", "--csv",
                   "a.csv", "--out", "map.png", "--output", "out.safetensors"},
                  folder.folder());
  CAPTURE(result.output);
  CAPTURE(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(folder.names() ==
        std::vector<std::string>{"a.csv", "a.json", "map.png", "out.safetensors"});
  for (const char* name : {"  scores ", "  softmax ", "  values ", "attention "})
    CHECK(result.output.find(std::string("\n") + name) != std::string::npos);
  CHECK(result.output.find("FAIL") == std::string::npos);
  CHECK(longest_line(result.output) <= 100);

  // The heat map has two panels of the photo; the output is attention's, [2, 12, 17, 64].
  CHECK(lab::load_image(folder.path("map.png")).width > 2 * 64);
  const std::vector<lab::Tensor> output =
      lab::read_safetensors(folder.path("out.safetensors"), {"out"});
  CHECK(output[0].shape == std::vector<int64_t>{2, 12, 17, 64});
}

TEST_CASE("program: a user's tensors in, the right output out") {
  if (skipped("program: a user's tensors in, the right output out")) return;
  const lab::testing::TemporaryFolder folder;
  AttentionCase problem = lab::testing::random_case(2, 3, 17, 32);
  const AttentionShape& shape = problem.problem.shape;
  const std::vector<int64_t> dims = {shape.batch, shape.heads, shape.tokens, shape.head_dim};
  // q in F32, and a scale of its own: 0.25 on half of q is the same problem up to rounding.
  const float scale = 0.25f;
  problem.problem.shape.scale = scale;
  problem.expected.resize(shape.elements());
  reference::attention(lab::to_float(problem.problem.q).data(),
                       lab::to_float(problem.problem.k).data(),
                       lab::to_float(problem.problem.v).data(), shape, problem.expected.data());
  lab::write_safetensors(folder.path("in"), {{"q", {dims, lab::to_float(problem.problem.q), "F32"}},
                                             {"k", {dims, lab::to_float(problem.problem.k), "F16"}},
                                             {"v", {dims, lab::to_float(problem.problem.v), "F16"}},
                                             {"scale", {{}, {scale}, "F32"}}});
  const ProgramResult result =
      run_program("chapter1", {"--input", "in", "--output", "out"}, folder.folder());
  CAPTURE(result.errors);
  REQUIRE(result.exit_code == 0);
  CHECK(folder.names() == std::vector<std::string>{"in", "out"});
  const std::vector<lab::Tensor> output = lab::read_safetensors(folder.path("out"), {"out"});
  REQUIRE(output[0].shape == dims);
  const std::vector<double> got(output[0].values.begin(), output[0].values.end());
  const lab::Comparison right =
      lab::compare(got, problem.expected, lab::Tolerance::fp16_mean(4), {2, 3, 17, 32});
  CHECK_MESSAGE(right.pass, right.describe());
}

TEST_CASE("program: more memory than there is") {
  if (skipped("program: more memory than there is")) return;
  const lab::testing::TemporaryFolder folder;
  // 65536 x 12 heads of 65536 tokens: 3.4e15 scores.
  const ProgramResult result =
      run_program("chapter1", {"--batch", "65536", "--tokens", "65536"}, folder.folder());
  CAPTURE(result.errors);
  CHECK(result.exit_code == 3);
  CHECK(lines(result.errors) == 1);
  CHECK(result.errors.find("batch 65536, heads 12, tokens 65536") != std::string::npos);
  CHECK(folder.names().empty());
}

TEST_CASE("program: help") {
  const lab::testing::TemporaryFolder folder;
  const ProgramResult result = run_program("chapter1", {"--help"}, folder.folder());
  CHECK(result.exit_code == 0);
  CHECK(result.errors == "");
  CHECK(longest_line(result.output) <= 100);
  for (const char* flag : {"--batch", "--heads", "--tokens", "--head-dim", "--size", "--image",
                           "--patch", "--out ", "--input", "--output", "--warmup", "--iterations",
                           "--seed", "--json", "--csv", "--profile"})
    CHECK(result.output.find(flag) != std::string::npos);
}
