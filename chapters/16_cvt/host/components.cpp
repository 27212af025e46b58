// A linear layer, LayerNorm, attention and embedding: problems as large as in a stage of CvT-13, their steps,
// and what these must give.
#include <cmath>
#include <map>
#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/random.h"
#include "../operations/operations.h"
#include "../operations/token_embedding/patches.h"
#include "options.h"
#include "reference.h"

namespace lab {
namespace {

namespace ref = cvt::reference;
using ref::Array;

// By name: each begins with random numbers or, where there are none, with NaN.
using Arrays = std::map<std::string, DeviceArray<float>>;

struct Expected {
  std::string name;
  Array values;
  Tolerance tolerance;
};
struct Step {
  std::string name;
  std::function<void(Arrays& arrays, cudaStream_t stream)> run;
  Cost cost;
};
// The forward pass or the gradients.
struct Way {
  std::vector<Step> steps;
  std::function<std::vector<Expected>()> expected;  // what each of them must write, by the CPU
};
struct Component {
  std::string shape;                                   // for people
  std::vector<std::pair<std::string, int64_t>> sizes;  // the problem's
  std::map<std::string, std::vector<float>> inputs;
  std::map<std::string, size_t> outputs;
  Way forward, back;
};

Array doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Sums of `length` products of normal numbers of that size, rounded to tf32: each product is wrong
// by up to 2^-10 of itself, most by less, up and down. Eight times the deviation of such a sum.
Tolerance of_products(double length, double size = 1) {
  const double deviation = 0x1p-11 * std::sqrt(length) * size;
  return {8 * deviation + 1e-5, 0, 1e-3};
}
Tolerance of_norm(double length) {
  const double error = 1e-5 * std::sqrt(length);
  return {error, error, 1e-5};
}

// Stages of CvT-13 at 224 pixels: the map behind the stage's embedding.
struct Stage {
  int batch, size, channels, heads, class_tokens;
};
Stage stage_of(const std::string& preset, int batch) {
  Stage stage = preset == "small"     ? Stage{2, 14, 64, 1, 0}
                : preset == "cvt13-1" ? Stage{32, 56, 64, 1, 0}
                : preset == "cvt13-2" ? Stage{32, 28, 192, 3, 0}
                                      : Stage{32, 14, 384, 6, 1};
  if (batch > 0) stage.batch = batch;
  return stage;
}

constexpr double kTf32 = 0.5;  // its share of the tensor cores' rate for fp16
Cost cost_of(double floats, double multiply_adds, bool tensor_cores = true) {
  return {4 * floats, 2 * multiply_adds, tensor_cores, tensor_cores ? kTf32 : 1};
}

Component linear_problem(const std::string& preset, int batch, uint64_t seed) {
  const Stage stage = stage_of(preset, batch);
  const int rows = stage.batch * (stage.class_tokens + stage.size * stage.size);
  const int in = stage.channels, out = 4 * in;  // an MLP's first layer
  Component p;
  p.shape = format("[rows %d, in %d, out %d], fp32 in tf32", rows, in, out);
  p.sizes = {{"rows", rows}, {"in", in}, {"out", out}};
  const double weight = 1 / std::sqrt(double(in));
  p.inputs = {{"x", normals(size_t(rows) * in, seed)},
              {"w", normals(size_t(out) * in, seed + 1, weight)},
              {"bias", normals(size_t(out), seed + 2)},
              {"dy", normals(size_t(rows) * out, seed + 3)}};
  p.outputs = {{"y", size_t(rows) * out},
               {"dx", size_t(rows) * in},
               {"dw", size_t(out) * in},
               {"dbias", size_t(out)}};
  const double adds = double(rows) * in * out, of_x = double(rows) * in,
               of_w = double(in) * out + out, of_y = double(rows) * out;
  const cvt::Rows all = cvt::Rows::all(rows);
  p.forward.steps = {{"tiled",
                      [=](Arrays& a, cudaStream_t stream) {
                        cvt::linear_forward(a.at("x").data(), a.at("w").data(), a.at("bias").data(),
                                            a.at("y").data(), all, in, out, {}, stream);
                      },
                      cost_of(of_x + of_w + of_y, adds)}};
  p.back.steps = {{"tiled, back",
                   [=](Arrays& a, cudaStream_t stream) {
                     cvt::linear_backward_x(a.at("dy").data(), a.at("w").data(), a.at("dx").data(),
                                            all, in, out, {}, stream);
                     cvt::linear_backward_w(a.at("dy").data(), a.at("x").data(), a.at("dw").data(),
                                            a.at("dbias").data(), all, in, out, nullptr, nullptr,
                                            false, stream);
                   },
                   cost_of(2 * of_x + 2 * of_w + of_y, 2 * adds)}};
  const auto inputs = p.inputs;
  p.forward.expected = [=]() -> std::vector<Expected> {
    return {{"y",
             ref::linear(doubles(inputs.at("x")), doubles(inputs.at("w")),
                         doubles(inputs.at("bias")), rows, in, out),
             of_products(in, weight)}};
  };
  p.back.expected = [=]() -> std::vector<Expected> {
    const auto d = ref::linear_gradients(doubles(inputs.at("x")), doubles(inputs.at("w")),
                                         doubles(inputs.at("dy")), rows, in, out);
    return {{"dx", d.x, of_products(out, weight)},
            {"dw", d.w, of_products(rows)},
            {"dbias", d.bias, of_norm(rows)}};
  };
  return p;
}

Component layer_norm_problem(const std::string& preset, int batch, uint64_t seed) {
  const Stage stage = stage_of(preset, batch);
  const int rows = stage.batch * (stage.class_tokens + stage.size * stage.size);
  const int channels = stage.channels;
  const size_t count = size_t(rows) * channels;
  Component p;
  p.shape = format("[rows %d, channels %d], fp32", rows, channels);
  p.sizes = {{"rows", rows}, {"channels", channels}};
  p.inputs = {{"x", normals(count, seed, 1, 0.5)},
              {"scale", normals(size_t(channels), seed + 1, 0.5, 1)},
              {"shift", normals(size_t(channels), seed + 2)},
              {"dy", normals(count, seed + 3)}};
  const auto forward = ref::layer_norm(doubles(p.inputs["x"]), doubles(p.inputs["scale"]),
                                       doubles(p.inputs["shift"]), rows, channels);
  p.inputs["mean"].assign(forward.mean.begin(), forward.mean.end());
  p.inputs["inverse"].assign(forward.inverse_deviation.begin(), forward.inverse_deviation.end());
  p.outputs = {{"y", count},  {"y_mean", size_t(rows)},     {"y_inverse", size_t(rows)},
               {"dx", count}, {"dscale", size_t(channels)}, {"dshift", size_t(channels)}};
  const double of_row = 2.0 * rows, of_channel = 2.0 * channels;
  p.forward.steps = {
      {"rows",
       [=](Arrays& a, cudaStream_t stream) {
         cvt::layer_norm_forward(a.at("x").data(), a.at("scale").data(), a.at("shift").data(),
                                 a.at("y").data(), a.at("y_mean").data(), a.at("y_inverse").data(),
                                 rows, channels, stream);
       },
       cost_of(2.0 * double(count) + of_row + of_channel, 4.0 * double(count), false)}};
  p.back.steps = {
      {"rows, back",
       [=](Arrays& a, cudaStream_t stream) {
         cvt::layer_norm_backward(a.at("x").data(), a.at("scale").data(), a.at("mean").data(),
                                  a.at("inverse").data(), a.at("dy").data(), nullptr,
                                  a.at("dx").data(), a.at("dscale").data(), a.at("dshift").data(),
                                  rows, channels, stream);
       },
       cost_of(3.0 * double(count) + of_row + 1.5 * of_channel, 6.0 * double(count), false)}};
  const auto inputs = p.inputs;
  p.forward.expected = [=]() -> std::vector<Expected> {
    return {{"y", forward.y, of_norm(1)},
            {"y_mean", forward.mean, of_norm(1)},
            {"y_inverse", forward.inverse_deviation, of_norm(1)}};
  };
  p.back.expected = [=]() -> std::vector<Expected> {
    const auto d = ref::layer_norm_gradients(doubles(inputs.at("x")), doubles(inputs.at("scale")),
                                             doubles(inputs.at("dy")), rows, channels);
    return {{"dx", d.x, of_norm(4)},
            {"dscale", d.scale, of_norm(rows)},
            {"dshift", d.shift, of_norm(rows)}};
  };
  return p;
}

Component attention_problem(const std::string& preset, int batch, uint64_t seed) {
  const Stage stage = stage_of(preset, batch);
  const int half = (stage.size + 1) / 2;
  const cvt::CrossShape shape{stage.batch,
                              stage.class_tokens + stage.size * stage.size,
                              stage.class_tokens + half * half,
                              stage.heads,
                              stage.channels / stage.heads,
                              float(1 / std::sqrt(double(stage.channels)))};
  const size_t of_q = size_t(shape.batch) * shape.queries * stage.channels,
               of_k = size_t(shape.batch) * shape.keys * stage.channels,
               rows = size_t(shape.batch) * shape.heads * shape.queries;
  Component p;
  p.shape = format("[batch %d, queries %d, keys %d, heads %d, head_dim %d], fp32 in tf32",
                   shape.batch, shape.queries, shape.keys, shape.heads, shape.head_dim);
  p.sizes = {{"batch", shape.batch},
             {"queries", shape.queries},
             {"keys", shape.keys},
             {"heads", shape.heads},
             {"head_dim", shape.head_dim}};
  p.inputs = {{"q", normals(of_q, seed, 2)},
              {"k", normals(of_k, seed + 1)},
              {"v", normals(of_k, seed + 2)},
              {"dO", normals(of_q, seed + 3)}};
  // (The gradients begin with what the forward pass has left in o and log_sum_exp.)
  p.outputs = {{"o", of_q}, {"log_sum_exp", rows}, {"dq", of_q}, {"dk", of_k}, {"dv", of_k}};
  const double adds = double(rows) * shape.keys * shape.head_dim;
  p.forward.steps = {{"fused",
                      [=](Arrays& a, cudaStream_t stream) {
                        cvt::cross_attention_forward(a.at("q").data(), a.at("k").data(),
                                                     a.at("v").data(), a.at("o").data(),
                                                     a.at("log_sum_exp").data(), shape, stream);
                      },
                      cost_of(2.0 * double(of_q + of_k) + double(rows), 2 * adds)}};
  p.back.steps = {{"fused, back",
                   [=](Arrays& a, cudaStream_t stream) {
                     cvt::cross_attention_backward(
                         a.at("q").data(), a.at("k").data(), a.at("v").data(), a.at("o").data(),
                         a.at("log_sum_exp").data(), a.at("dO").data(), a.at("dq").data(),
                         a.at("dk").data(), a.at("dv").data(), shape, stream);
                   },
                   cost_of(4.0 * double(of_q + of_k) + double(rows), 5 * adds)}};
  const auto inputs = p.inputs;
  // q and k are rounded by 2^-11 of themselves: a score, of a size up to 8, is wrong by some 2^-10,
  // and so are weights, which are rounded once more.
  p.forward.expected = [=]() -> std::vector<Expected> {
    const auto a = ref::attention(doubles(inputs.at("q")), doubles(inputs.at("k")),
                                  doubles(inputs.at("v")), shape);
    return {{"o", a.o, {2e-2, 0, 2e-3}}, {"log_sum_exp", a.log_sum_exp, {1e-2, 0, 1e-3}}};
  };
  p.back.expected = [=]() -> std::vector<Expected> {
    const auto d =
        ref::attention_gradients(doubles(inputs.at("q")), doubles(inputs.at("k")),
                                 doubles(inputs.at("v")), doubles(inputs.at("dO")), shape);
    const auto tolerance = [&](int which) {
      return Tolerance{8e-3 * d.largest_terms[which], 0, 4e-3};
    };
    return {{"dq", d.q, tolerance(0)}, {"dk", d.k, tolerance(1)}, {"dv", d.v, tolerance(2)}};
  };
  return p;
}

Component embedding_problem(const std::string& preset, int batch, uint64_t seed) {
  cvt::EmbedShape shape = preset == "small"     ? cvt::EmbedShape{2, 28, 28, 3, 64, 7, 4, 2}
                          : preset == "cvt13-1" ? cvt::EmbedShape{32, 224, 224, 3, 64, 7, 4, 2}
                          : preset == "cvt13-2" ? cvt::EmbedShape{32, 56, 56, 64, 192, 3, 2, 1}
                                                : cvt::EmbedShape{32, 28, 28, 192, 384, 3, 2, 1};
  if (batch > 0) shape.batch = batch;
  const int taps = shape.kernel * shape.kernel, depth = taps * shape.in_channels;
  const size_t of_x = size_t(shape.batch) * shape.height * shape.width * shape.in_channels,
               of_w = size_t(shape.out_channels) * depth,
               positions = size_t(shape.batch) * shape.out_height() * shape.out_width(),
               of_y = positions * shape.out_channels;
  Component p;
  p.shape = format("[batch %d, height %d, width %d, channels %d to %d], kernel %d, stride %d, tf32",
                   shape.batch, shape.height, shape.width, shape.in_channels, shape.out_channels,
                   shape.kernel, shape.stride);
  p.sizes = {{"batch", shape.batch},
             {"height", shape.height},
             {"width", shape.width},
             {"in_channels", shape.in_channels},
             {"out_channels", shape.out_channels},
             {"kernel", shape.kernel},
             {"stride", shape.stride}};
  const double weight = 1 / std::sqrt(double(depth));
  p.inputs = {{"x", normals(of_x, seed)},
              {"w", normals(of_w, seed + 1, weight)},
              {"bias", normals(size_t(shape.out_channels), seed + 2)},
              {"dy", normals(of_y, seed + 3)}};
  p.outputs = {{"y", of_y}, {"dw", of_w}, {"dbias", size_t(shape.out_channels)}};
  const bool photo = shape.in_channels == 3;  // whose gradient nobody needs
  if (!photo) p.outputs["dx"] = of_x;
  const double adds = double(positions) * shape.out_channels * depth;
  const Cost there = cost_of(double(of_x + of_w + of_y), adds);
  const Cost back = photo ? there : cost_of(double(2 * of_x + 2 * of_w + of_y), 2 * adds);
  const auto run_forward = [=](auto function) {
    return [=](Arrays& a, cudaStream_t stream) {
      function(a.at("x").data(), a.at("w").data(), a.at("bias").data(), a.at("y").data(), shape,
               stream);
    };
  };
  const auto run_back = [=](auto function) {
    return [=](Arrays& a, cudaStream_t stream) {
      function(a.at("x").data(), a.at("w").data(), a.at("dy").data(),
               photo ? nullptr : a.at("dx").data(), a.at("dw").data(), a.at("dbias").data(), shape,
               stream);
    };
  };
  p.forward.steps = {{"patches", run_forward(token_embedding::patches_forward), there},
                     {"implicit", run_forward(cvt::embed_forward), there}};
  p.back.steps = {{"patches, back", run_back(token_embedding::patches_backward), back},
                  {"implicit, back", run_back(cvt::embed_backward), back}};
  const auto inputs = p.inputs;
  p.forward.expected = [=]() -> std::vector<Expected> {
    return {{"y",
             ref::embed(doubles(inputs.at("x")), doubles(inputs.at("w")),
                        doubles(inputs.at("bias")), shape),
             of_products(depth, weight)}};
  };
  p.back.expected = [=]() -> std::vector<Expected> {
    const auto d = ref::embed_gradients(doubles(inputs.at("x")), doubles(inputs.at("w")),
                                        doubles(inputs.at("dy")), shape);
    std::vector<Expected> all = {{"dw", d.w, of_products(double(positions))},
                                 {"dbias", d.bias, of_norm(double(positions))}};
    if (!photo) all.push_back({"dx", d.x, of_products(double(taps) * shape.out_channels, weight)});
    return all;
  };
  return p;
}

// ---- On the device ------------------------------------------------------------------------------

Arrays arrays_of(const Component& component, const std::string& copy) {
  Arrays arrays;
  for (const auto& [name, values] : component.inputs)
    arrays.emplace(name, DeviceArray<float>(values, name + copy));
  for (const auto& [name, count] : component.outputs) {
    const auto at = arrays.emplace(name, DeviceArray<float>(count, name + copy)).first;
    at->second.fill_nan();
  }
  return arrays;
}

// The worst of what a step must give.
NamedComparison worst_comparison(const std::vector<Expected>& expected, const Arrays& arrays) {
  std::optional<NamedComparison> worst;
  for (const Expected& e : expected) {
    const Comparison c =
        compare(arrays.at(e.name).download(), e.values, e.tolerance, {int64_t(e.values.size())});
    if (!worst || (worst->second.pass && (!c.pass || c.relative_l2 > worst->second.relative_l2)))
      worst = {e.name, c};
  }
  return *worst;
}

class ComponentOperation : public Operation {
 public:
  ComponentOperation(const CvtOptions& options, const Device& device, Component&& of)
      : component_(std::move(of)) {
    shape = component_.shape, sizes = component_.sizes;
    details = {{"component", "\"" + options.component + "\""},
               {"preset", "\"" + options.preset + "\""}};
    double bytes = 0;
    for (const auto& [array, values] : component_.inputs) bytes += 4.0 * double(values.size());
    for (const auto& [array, count] : component_.outputs) bytes += 4.0 * double(count);
    copies = rotation_copies(device, bytes);
    require_memory(device, 2 * bytes * copies, 4 * bytes, shape);
    for (int i = 0; i < copies; ++i)
      arrays_.push_back(arrays_of(component_, i ? format(" (copy %d)", i + 1) : ""));
    for (const bool back : {false, true}) {
      for (const Step& step : (back ? component_.back : component_.forward).steps) {
        OperationStep& added = steps.emplace_back();
        added.name = step.name, added.back = back, added.cost = step.cost;
        added.run = [this, &step](int i, cudaStream_t stream) {
          step.run(arrays_[size_t(i % copies)], stream);
        };
        added.compare = [this, back] { return worst_comparison(expected_[back], arrays_[0]); };
      }
    }
  }

  void compute_reference() override {
    expected_[false] = component_.forward.expected();
    expected_[true] = component_.back.expected();
  }
  void clear(const OperationStep& step) override {
    for (const Expected& e : expected_[step.back]) arrays_[0].at(e.name).fill_nan();
  }
  void write_output(const std::string&) const override {
    throw UsageError("--output goes only with --component projection");
  }

 private:
  Component component_;
  std::vector<Arrays> arrays_;
  std::vector<Expected> expected_[2];  // forward and back
};

}  // namespace

std::unique_ptr<Operation> component_operation(const CvtOptions& options, const Device& device) {
  const std::map<std::string, Component (*)(const std::string&, int, uint64_t)> components = {
      {"linear", linear_problem},
      {"layer_norm", layer_norm_problem},
      {"attention", attention_problem},
      {"embedding", embedding_problem}};
  Component component = [&] {
    const Progress progress("making the problem");
    return components.at(options.component)(options.preset, options.batch, options.seed);
  }();
  return std::make_unique<ComponentOperation>(options, device, std::move(component));
}

}  // namespace lab
