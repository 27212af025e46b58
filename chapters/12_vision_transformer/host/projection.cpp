#include "projection.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/program.h"
#include "../../../common/lab/random.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "../kernels/fp32_steps.h"
#include "run.h"

namespace vision_transformer {
namespace {

using lab::format;
using reference::Doubles;

using Sizes = std::vector<std::pair<std::string, int64_t>>;

// ---- The problem --------------------------------------------------------------------------------

std::vector<float> drawn(int64_t count, uint64_t seed, double deviation) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(deviation * lab::normal(seed, i));
  return values;
}

struct Layer {
  HeadsShape shape;
  bool bias;
  std::vector<float> x, qkv_weight, qkv_bias, out_weight, out_bias;

  int width() const { return shape.heads * shape.head_dim; }
};

// Weights of deviation 1 / sqrt(width): x, q, k, v and scores have about deviation 1.
Layer layer_of(const HeadsShape& shape, bool bias, uint64_t seed) {
  const int64_t width = int64_t(shape.heads) * shape.head_dim;
  const double of_weight = 1 / std::sqrt(double(width));
  return {shape,
          bias,
          drawn(shape.elements(), 5 * seed, 1),
          drawn(3 * width * width, 5 * seed + 1, of_weight),
          drawn(bias ? 3 * width : 0, 5 * seed + 2, 0.5),
          drawn(width * width, 5 * seed + 3, of_weight),
          drawn(bias ? width : 0, 5 * seed + 4, 0.5)};
}

struct LayerExpected {
  Doubles q, k, v, o, y;
  lab::Tolerance product, attention, inside, output;
};

// Each launch is compared with what follows in double from x, so that the errors of the launches
// before it are in its tolerance: `inside` and `apart` make the same ones.
LayerExpected expected_of(const Layer& layer) {
  const HeadsShape& shape = layer.shape;
  const int rows = shape.batch * shape.tokens, width = layer.width();
  const Doubles x(layer.x.begin(), layer.x.end());
  LayerExpected e;
  const Doubles qkv =
      reference::linear(x, layer.qkv_weight, layer.qkv_bias, {}, {rows, 3 * width, width, false});
  e.q = reference::split(qkv, 0, shape), e.k = reference::split(qkv, 1, shape);
  e.v = reference::split(qkv, 2, shape);
  e.o = reference::merge(reference::attention(e.q, e.k, e.v, shape, nullptr), shape);
  e.y = reference::linear(e.o, layer.out_weight, layer.out_bias, {}, {rows, width, width, false});
  const double of_product = product_error(x, layer.qkv_weight, width);
  const double of_head = inside_error(x, layer.qkv_weight, e.q, e.k, e.v, shape);
  // A row of o is off by the root of width times that, and a row of weights makes of it as much as
  // it is long.
  double longest = 0;
  for (int row = 0; row < width; ++row) {
    double squares = 0;
    for (int c = 0; c < width; ++c)
      squares += std::pow(double(layer.out_weight[size_t(row) * width + c]), 2);
    longest = std::max(longest, squares);
  }
  const double of_output =
      product_error(e.o, layer.out_weight, width) + std::sqrt(double(width) * longest) * of_head;
  // Twice each; the last rounding is 2^-24 of the element. Over all, roundings up and down.
  const auto bound = [](double error) {
    return lab::Tolerance{.atol = 2 * error, .rtol = 0x1p-22, .relative_l2 = 1e-5};
  };
  e.product = bound(of_product), e.attention = e.inside = bound(of_head);
  e.output = bound(of_output);
  return e;
}

// ---- Launches -----------------------------------------------------------------------------------

struct OnDevice {
  explicit OnDevice(const Layer& layer)
      : x(layer.x, "x"),
        qkv_weight(layer.qkv_weight, "qkv weight"),
        out_weight(layer.out_weight, "output weight"),
        q(layer.x.size(), "q"),
        k(layer.x.size(), "k"),
        v(layer.x.size(), "v"),
        o(layer.x.size(), "o"),
        y(layer.x.size(), "y") {
    if (!layer.bias) return;
    qkv_bias.emplace(layer.qkv_bias, "qkv bias");
    out_bias.emplace(layer.out_bias, "output bias");
  }
  const float* of_qkv() const { return qkv_bias ? qkv_bias->data() : nullptr; }
  const float* of_out() const { return out_bias ? out_bias->data() : nullptr; }

  lab::DeviceArray<float> x, qkv_weight, out_weight, q, k, v, o, y;
  std::optional<lab::DeviceArray<float>> qkv_bias, out_bias;
};

struct Part {
  std::string name;
  std::function<void(cudaStream_t stream)> launch;
  double macs, floats;  // of multiply-adds that are needed; of arrays read and written, each once
  std::function<lab::Comparison()> compare;
};

lab::Comparison compared(const lab::DeviceArray<float>& got, const Doubles& expected,
                         const lab::Tolerance& tolerance, const Layer& layer) {
  return lab::compare(got.download(), expected, tolerance,
                      {layer.shape.batch, layer.shape.tokens, layer.width()});
}

std::vector<Part> parts_of(const Layer& layer, OnDevice& a, const LayerExpected& e, bool inside) {
  const double rows = double(layer.shape.batch) * layer.shape.tokens, width = layer.width();
  const double of_x = rows * width, of_weight = width * width;
  const double scores = 2.0 * rows * layer.shape.tokens * width;
  const HeadsShape& shape = layer.shape;
  const Part output{
      "output",
      [&](cudaStream_t stream) {
        fp32::output(a.o.data(), a.out_weight.data(), a.of_out(), a.y.data(), shape, stream);
      },
      of_x * width, 2 * of_x + of_weight, [&] { return compared(a.y, e.y, e.output, layer); }};
  if (inside)
    return {{"projection and attention",
             [&](cudaStream_t stream) {
               fp32::inside(a.x.data(), a.qkv_weight.data(), a.of_qkv(), a.o.data(), shape, stream);
             },
             3 * of_x * width + scores, 2 * of_x + 3 * of_weight,
             [&] { return compared(a.o, e.o, e.inside, layer); }},
            output};
  return {{"projection",
           [&](cudaStream_t stream) {
             fp32::by_heads(a.x.data(), a.qkv_weight.data(), a.of_qkv(), a.q.data(), a.k.data(),
                            a.v.data(), shape, stream);
           },
           3 * of_x * width, 4 * of_x + 3 * of_weight,
           [&] {
             for (const auto& [got, expected] : {std::pair(&a.q, &e.q), {&a.k, &e.k}, {&a.v, &e.v}})
               if (const auto one = compared(*got, *expected, e.product, layer); !one.pass)
                 return one;
             return compared(a.v, e.v, e.product, layer);
           }},
          {"attention",
           [&](cudaStream_t stream) {
             fp32::apart(a.q.data(), a.k.data(), a.v.data(), a.o.data(), shape, stream);
           },
           scores, 4 * of_x, [&] { return compared(a.o, e.o, e.attention, layer); }},
          output};
}

// Runs one way; its lines and their sum. `more`: behind each name.
void run_way(const lab::Device& device, const lab::Options& options, const Layer& layer,
             OnDevice& arrays, const LayerExpected& expected, bool inside, const std::string& more,
             lab::Report& report) {
  const std::string name = (inside ? "inside" : "apart") + more;
  const std::vector<Part> parts = parts_of(layer, arrays, expected, inside);
  std::vector<lab::Launch> launches;
  for (const Part& part : parts) launches.push_back([&part](int) { part.launch(nullptr); });
  for (lab::DeviceArray<float>* array : {&arrays.q, &arrays.k, &arrays.v, &arrays.o, &arrays.y})
    array->fill_nan();
  const std::vector<lab::Timing> timings =
      lab::time_stages(device, launches, options.warmup, options.iterations);
  const auto compare = [&](const Part& part) {
    return options.predict ? lab::Comparison::none() : part.compare();
  };
  lab::Cost all;
  for (size_t i = 0; i < parts.size(); ++i) {
    const lab::Cost cost{4 * parts[i].floats, 2 * parts[i].macs};
    all.flops += cost.flops;
    report.add_launch(name + ": " + parts[i].name, timings[i], cost, compare(parts[i]),
                      lab::Report::Errors::kOfLaunch);
  }
  const lab::StepLaunch whole = [&](int, cudaStream_t stream) {
    for (const Part& part : parts) part.launch(stream);
  };
  all.bytes = 4 * (2.0 * double(layer.shape.elements()) + 4.0 * layer.width() * layer.width());
  report.add_total(name,
                   lab::time_total(device, whole, 1, options.warmup, options.iterations, timings),
                   all, compare(parts.back()));
}

}  // namespace

lab::ExitCode compare_projection(const char* chapter, NetOptions& options) {
  const lab::Device device = lab::open_device(options);
  std::vector<HeadsShape> shapes = {
      {options.batch, options.tokens, options.heads, options.width / options.heads}};
  if (options.sizes) {
    shapes.clear();
    for (const int tokens : {64, 128, 256, 512})
      for (const int width : {128, 256, 512})
        shapes.push_back({options.batch, tokens, width / 64, 64});
  }
  double most = 0;
  for (const HeadsShape& shape : shapes) {
    const double width = double(shape.heads) * shape.head_dim;
    most = std::max(most, 6.0 * double(shape.elements()) + 4 * width * width);
  }
  lab::require_memory(device, 4 * most, 16 * most, "attention in fp32");
  const HeadsShape& first = shapes[0];
  const std::string sizes = options.sizes ? "several sizes"
                                          : format("%d tokens, width %d, %d heads", first.tokens,
                                                   options.width, options.heads);
  lab::Report report(lab::ReportHead{
      chapter,
      options,
      device,
      format("random numbers of seed %llu", static_cast<unsigned long long>(options.seed)),
      format("attention in fp32: batch %d, ", options.batch) + sizes +
          (options.no_bias ? ", no bias" : ""),
      options.sizes ? Sizes{{"batch", options.batch}, {"sizes", int64_t(shapes.size())}}
                    : Sizes{{"batch", options.batch},
                            {"tokens", first.tokens},
                            {"width", options.width},
                            {"heads", first.heads}},
      {}});
  for (const HeadsShape& shape : shapes) {
    const Layer layer = layer_of(shape, !options.no_bias, options.seed);
    const LayerExpected expected = options.predict ? LayerExpected{} : expected_of(layer);
    OnDevice arrays(layer);
    const std::string more =
        options.sizes ? format(" %d x %d", shape.tokens, shape.heads * shape.head_dim) : "";
    for (const bool inside : {false, true})
      run_way(device, options, layer, arrays, expected, inside, more, report);
    report.add_ratio("inside" + more, "apart" + more);
    if (!options.sizes)
      report.note(format("inside multiplies x with weights %.3g times as often as apart",
                         fp32::projected_times(shape)));
    if (!options.output.empty())
      lab::write_safetensors(
          options.output,
          {{"out", {{shape.batch, shape.tokens, layer.width()}, arrays.y.download(), "F32"}}});
  }
  return report.finish();
}

}  // namespace vision_transformer
