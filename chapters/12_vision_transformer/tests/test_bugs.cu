// Planted bugs of the simple components: each is caught by what it says.
#include <doctest/doctest.h>

#include <memory>

#include "../../../common/attention/test_ladder.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/random.h"
#include "../../../common/testing/testing.h"
#include "test_support.h"

using namespace vision_transformer;
using namespace lab::testing;
using reference::Doubles;

namespace {

constexpr int kThreads = 256;

std::vector<half> halves(size_t count, uint64_t seed, double deviation, double mean = 0) {
  std::vector<half> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = __float2half(float(mean + deviation * lab::normal(seed, i)));
  return values;
}

// One launch with that kernel; y must be the reference's.
struct Trial {
  std::string kernel;
  std::function<void(const void* kernel, half* y)> launch;
  Doubles expected;
  lab::Tolerance tolerance;
};

Verdict tried(const Trial& trial, const void* kernel) {
  Verdict verdict;
  GuardedOutput<half> y(trial.expected.size(), "y");
  if (!ran([&] { trial.launch(kernel, y.data()); }, verdict)) return verdict;
  std::vector<half> got;
  const bool untouched = y.download(got);
  verdict.comparison =
      lab::compare(in_double(got), trial.expected, trial.tolerance, {int64_t(got.size())});
  verdict.judge(untouched);
  return verdict;
}

// A ragged product with everything behind it.
Trial product_trial() {
  const LinearShape shape{67, 70, 40, true};
  const auto x = std::make_shared<lab::DeviceArray<half>>(halves(67 * 40, 1, 1), "x"),
             w = std::make_shared<lab::DeviceArray<half>>(halves(70 * 40, 2, 0.2), "w"),
             b = std::make_shared<lab::DeviceArray<half>>(halves(70, 3, 1), "b"),
             r = std::make_shared<lab::DeviceArray<half>>(halves(67 * 70, 4, 1), "r");
  return {"linear_kernel",
          [=](const void* kernel, half* y) {
            launch(kernel, dim3(2, 2), kThreads, 0, nullptr, (const half*)x->data(),
                   (const half*)w->data(), (const half*)b->data(), (const half*)r->data(), y,
                   shape);
          },
          reference::linear(in_double(x->download()), lab::to_float(w->download()),
                            lab::to_float(b->download()), in_double(r->download()), shape),
          {.atol = 1e-3, .rtol = 0x1p-10, .relative_l2 = 1e-3}};
}

Trial norm_trial() {
  const NormShape shape{9, 197, 1e-2f};
  const auto x = std::make_shared<lab::DeviceArray<half>>(halves(9 * 197, 1, 0.2, 5), "x"),
             scale = std::make_shared<lab::DeviceArray<half>>(halves(197, 2, 0.5, 1), "scale"),
             bias = std::make_shared<lab::DeviceArray<half>>(halves(197, 3, 1), "bias");
  return {"layer_norm_kernel",
          [=](const void* kernel, half* y) {
            launch(kernel, shape.rows, 128, 0, nullptr, (const half*)x->data(),
                   (const half*)scale->data(), (const half*)bias->data(), y, shape);
          },
          reference::layer_norm(in_double(x->download()), lab::to_float(scale->download()),
                                lab::to_float(bias->download()), shape),
          {.atol = 1e-3, .rtol = 0x1p-10, .relative_l2 = 1e-3}};
}

// Two images of 3 x 3 patches, 70 channels.
Trial embed_trial() {
  const NetShape net{.batch = 2, .size = 24, .patch = 8, .width = 70, .heads = 1, .classes = 1};
  const EmbedShape shape{2, 24, 8, 70};
  HostParameters parameters;
  const auto drawn = [](size_t count, uint64_t seed, double deviation) {
    return lab::to_float(halves(count, seed, deviation));
  };
  parameters.patch_weight = drawn(70 * 192, 1, 0.1), parameters.patch_bias = drawn(70, 2, 1);
  parameters.class_token = drawn(70, 3, 1), parameters.position = drawn(10 * 70, 4, 1);
  const auto on_device = [](const std::vector<float>& values, const char* name) {
    std::vector<half> rounded;
    for (const float value : values) rounded.push_back(__float2half(value));
    return std::make_shared<lab::DeviceArray<half>>(rounded, name);
  };
  const std::vector<half> image = halves(2 * 3 * 24 * 24, 5, 1);
  const auto pixels = std::make_shared<lab::DeviceArray<half>>(image, "image"),
             weight = on_device(parameters.patch_weight, "weight"),
             bias = on_device(parameters.patch_bias, "bias"),
             token = on_device(parameters.class_token, "class token"),
             position = on_device(parameters.position, "position");
  return {"embed_kernel",
          [=](const void* kernel, half* y) {
            launch(kernel, dim3(2, 1, 2), kThreads, 0, nullptr, (const half*)pixels->data(),
                   (const half*)weight->data(), (const half*)bias->data(),
                   (const half*)token->data(), (const half*)position->data(), y, shape);
          },
          reference::embed(in_double(image), parameters, net),
          {.atol = 1e-3, .rtol = 0x1p-10, .relative_l2 = 1e-3}};
}

Trial merge_trial() {
  const HeadsShape shape{2, 5, 3, 32};
  const auto x =
      std::make_shared<lab::DeviceArray<half>>(halves(size_t(shape.elements()), 1, 1), "o");
  return {"merge_kernel",
          [=](const void* kernel, half* y) {
            launch(kernel, 1, kThreads, 0, nullptr, (const half*)x->data(), y, shape);
          },
          reference::merge(in_double(x->download()), shape),
          {}};
}

// y is q, k and v one after the other.
Trial split_trial() {
  const HeadsShape shape{2, 5, 3, 32};
  const int64_t elements = shape.elements();
  const auto x =
      std::make_shared<lab::DeviceArray<half>>(halves(size_t(3 * elements), 1, 1), "qkv");
  Doubles expected;
  for (int part = 0; part < 3; ++part)
    for (const double value : reference::split(in_double(x->download()), part, shape))
      expected.push_back(value);
  return {"split_kernel",
          [=](const void* kernel, half* y) {
            launch(kernel, 1, kThreads, 0, nullptr, (const half*)x->data(), y, y + elements,
                   y + 2 * elements, shape);
          },
          expected,
          {}};
}

Trial class_tokens_trial() {
  const NetShape net{.batch = 3, .size = 32, .width = 64, .heads = 1, .classes = 1};
  const auto x =
      std::make_shared<lab::DeviceArray<half>>(halves(size_t(net.rows()) * 64, 1, 1), "x");
  return {"class_tokens_kernel",
          [=](const void* kernel, half* y) {
            launch(kernel, 1, kThreads, 0, nullptr, (const half*)x->data(), y, 3, net.tokens(), 64);
          },
          reference::class_tokens(in_double(x->download()), net),
          {}};
}

// What a kernel of 3_inside.cuh gets: x, weight and bias, or q, k and v.
struct Source {
  const half *first, *second, *third;
};

struct ProjectionArrays {
  HeadsShape shape{2, 83, 2, 40};
  lab::DeviceArray<half> x{halves(size_t(shape.elements()), 1, 1), "x"},
      weight{halves(3 * 80 * 80, 2, 0.11), "weight"}, bias{halves(3 * 80, 3, 0.5), "bias"};
  Doubles qkv = reference::linear(in_double(x.download()), lab::to_float(weight.download()),
                                  lab::to_float(bias.download()), {}, {2 * 83, 3 * 80, 80, false});
  Doubles part(int number) const { return reference::split(qkv, number, shape); }
};

constexpr size_t kTileBytes = 3 * 64 * 68 * sizeof(float);

// What the mutants' kernels are called, by their arguments as C++ mangles them.
struct ProjectionTrial {
  Trial trial;
  std::vector<int> arguments;
  std::string type;
};

std::vector<ProjectionTrial> projection_trials() {
  const auto a = std::make_shared<ProjectionArrays>();
  std::vector<half> parts[3];
  for (int part = 0; part < 3; ++part)
    for (const double value : a->part(part)) parts[part].push_back(__float2half(float(value)));
  const auto q = std::make_shared<lab::DeviceArray<half>>(parts[0], "q"),
             k = std::make_shared<lab::DeviceArray<half>>(parts[1], "k"),
             v = std::make_shared<lab::DeviceArray<half>>(parts[2], "v");
  const HeadsShape shape = a->shape;
  const auto heads = [=](const Doubles& of_q, const Doubles& of_k, const Doubles& of_v) {
    return reference::merge(reference::attention(of_q, of_k, of_v, shape, nullptr), shape);
  };
  const auto launched = [=](const Source& source) {
    return [=](const void* kernel, half* y) {
      launch(kernel, dim3(2, 2, 2), kThreads, kTileBytes, nullptr, source, y, shape,
             1.44269504f / std::sqrt(40.0f));
    };
  };
  const Source of_x{a->x.data(), a->weight.data(), a->bias.data()},
      of_q{q->data(), k->data(), v->data()};
  const lab::Tolerance tolerance{.atol = 1e-3, .rtol = 0x1p-10, .relative_l2 = 1e-3};
  Doubles by_heads;
  for (int part = 0; part < 3; ++part)
    for (const double value : a->part(part)) by_heads.push_back(value);
  const int64_t elements = shape.elements();
  return {
      {{"head_kernel", [=, keep = a](const void* kernel, half* y) { launched(of_x)(kernel, y); },
        heads(a->part(0), a->part(1), a->part(2)), tolerance},
       {1},
       "6__halfNS_9ProjectedIS1_EE"},
      {{"head_kernel",
        [=, keep = std::vector{q, k, v}](const void* kernel, half* y) {
          launched(of_q)(kernel, y);
        },
        heads(in_double(parts[0]), in_double(parts[1]), in_double(parts[2])), tolerance},
       {1},
       "6__halfNS_6StoredIS1_EE"},
      {{"by_heads_kernel",
        [=, keep = a](const void* kernel, half* y) {
          launch(kernel, dim3(4, 3), kThreads, 0, nullptr, of_x.first, of_x.second, of_x.third, y,
                 y + elements, y + 2 * elements, shape);
        },
        by_heads, tolerance},
       {},
       "6__half"}};
}

}  // namespace

TEST_CASE("bugs of projection: each is caught by what it says" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("bugs of projection*")) return;
  const std::vector<Mutant> bugs = planted_bugs("12_vision_transformer", "inside");
  const Mutants mutants("chapters/12_vision_transformer/3_inside.cuh",
                        "vision_transformer::projection", bugs,
                        "template __global__ void head_kernel<half, Projected<half>, 1>("
                        "Projected<half>, half*, HeadsShape, float);\n"
                        "template __global__ void head_kernel<half, Stored<half>, 1>("
                        "Stored<half>, half*, HeadsShape, float);\n"
                        "template __global__ void by_heads_kernel<half>(const half*, const half*, "
                        "const half*, half*, half*, half*, HeadsShape);\n",
                        Mutants::kKernelsOnly);
  const std::vector<ProjectionTrial> trials = projection_trials();
  check_each_bug(bugs, trials.size(), [&](size_t number, size_t trial) {
    const ProjectionTrial& one = trials[trial];
    return named(one.type, tried(one.trial, mutants.kernel(number, one.trial.kernel, one.arguments,
                                                           one.type)));
  });
}

TEST_CASE("planted bugs: each is caught by what it says" * doctest::test_suite("toolkit")) {
  if (rerun_with_checks("planted bugs*")) return;
  const std::vector<Mutant> bugs = planted_bugs("12_vision_transformer", "simple");
  const Mutants mutants("chapters/12_vision_transformer/1_simple.cuh", "vision_transformer::simple",
                        bugs);
  const std::vector<Trial> trials = {product_trial(), embed_trial(), norm_trial(),
                                     merge_trial(),   split_trial(), class_tokens_trial()};
  check_each_bug(bugs, trials.size(), [&](size_t number, size_t trial) {
    const Trial& one = trials[trial];
    return named(one.kernel, tried(one, mutants.kernel(number, one.kernel)));
  });
}
