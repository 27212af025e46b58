#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "../../../common/attention/inputs.h"
#include "../../../common/json/json.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/tensors.h"

namespace vision_transformer {
namespace {

using lab::format;
using reference::Doubles;

constexpr int kShown = 5;  // classes

std::string weights_text(const NetOptions& options) {
  return options.weights.empty()
             ? format("random weights of seed %llu", static_cast<unsigned long long>(options.seed))
             : "weights of " + lab::file_name(options.weights);
}

// Which array lies where, from which stage to which.
std::string plan_json(const NetRun& run) {
  json::Value plan;
  plan["bytes"] = run.plan().bytes;
  plan["separate_bytes"] = run.plan().separate_bytes;
  for (const Stage& stage : run.stages()) plan["stages"].push_back(stage.name());
  for (const Buffer& buffer : run.buffers())
    plan["buffers"].push_back({{"name", buffer.name},
                               {"offset", buffer.offset},
                               {"bytes", buffer.bytes},
                               {"first", buffer.first},
                               {"last", buffer.last}});
  return plan.dump();
}

// Probabilities of the classes of an image.
Doubles softmax(const Doubles& logits, int image, int classes) {
  Doubles p(logits.begin() + int64_t(image) * classes,
            logits.begin() + int64_t(image + 1) * classes);
  const double most = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - most);
  for (double& value : p) value /= sum;
  return p;
}

std::vector<int> largest_first(const Doubles& p, int count) {
  std::vector<int> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min<size_t>(count, order.size());
  std::partial_sort(order.begin(), end, order.end(),
                    [&](int a, int b) { return p[a] != p[b] ? p[a] > p[b] : a < b; });
  order.erase(end, order.end());
  return order;
}

std::string class_name(const NetProblem& problem, int number) {
  return problem.labels.empty() ? format("class %d", number) : problem.labels[number];
}

}  // namespace

lab::ReportHead report_head(const char* chapter, const NetOptions& options,
                            const lab::Device& device, const NetProblem& problem,
                            const NetRun& run) {
  const NetShape& shape = problem.shape;
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  lab::ReportHead head{chapter,
                       options,
                       device,
                       format("%s, %d x %d pixels, %s", lab::file_name(options.image).c_str(),
                              shape.size, shape.size, weights_text(options).c_str()),
                       format("ViT %s: batch %d, %d tokens, width %d, %d heads, %d blocks",
                              model_of_width(shape.width).c_str(), shape.batch, shape.tokens(),
                              shape.width, shape.heads, shape.blocks),
                       {{"batch", shape.batch},
                        {"size", shape.size},
                        {"tokens", shape.tokens()},
                        {"width", shape.width},
                        {"heads", shape.heads},
                        {"blocks", shape.blocks},
                        {"classes", shape.classes}},
                       {{"model", quoted(model_of_width(shape.width))},
                        {"trained", options.weights.empty() ? "false" : "true"},
                        {"embed", quoted(options.components.embed.name)},
                        {"norm", quoted(options.components.norm.name)},
                        {"mlp", quoted(options.components.linear.name)},
                        {"qkv", quoted(options.components.qkv.name)},
                        {"attention", quoted(options.components.qkv.function.inside
                                                 ? "inside"
                                                 : options.components.attention.name)}}};
  head.data = {{"memory_plan", plan_json(run)}};
  return head;
}

void see_block(const NetRun& run, const Stage& stage, DrawnBlock& drawn) {
  if (stage.block != drawn.block) return;
  if (stage.kind == Stage::Kind::kAttention)
    drawn.q = run.buffer(stage.reads[0]), drawn.k = run.buffer(stage.reads[1]);
  if (stage.kind != Stage::Kind::kInside) return;
  const Doubles qkv = reference::linear(as_doubles(run.buffer(stage.reads[0])), *stage.host_weight,
                                        *stage.host_bias, {}, stage.linear);
  std::vector<half>* const parts[] = {&drawn.q, &drawn.k};
  for (int part = 0; part < 2; ++part) {
    parts[part]->clear();
    for (const double value : reference::split(qkv, part, run.heads_shape()))
      parts[part]->push_back(__float2half(float(value)));
  }
}

void note_rate(const std::vector<Line>& lines, int batch, const lab::Device& device,
               const lab::Timing& total, lab::Report& report) {
  double us = 0;
  if (device.is_virtual)
    us = report.predicted_us("net");
  else
    us = std::isfinite(total.graph_us) ? total.graph_us : total.median_us;
  if (!std::isfinite(us) || us <= 0) return;
  size_t launches = 0;
  for (const Line& line : lines) launches += line.stages.size();
  report.add_number("net", "images_per_s", 1e6 * batch / us);
  report.note(format("%.0f images a second%s, %zu launches", 1e6 * batch / us,
                     device.is_virtual ? ", predicted" : "", launches));
}

void note_memory(const NetRun& run, const NetOptions& options, lab::Report& report) {
  const NetMemory needs = net_memory(run.shape(), options.components);
  const MemoryPlan& plan = run.plan();
  report.note(format("memory: weights %s; activations %s, or %s without shared places (%zu arrays)",
                     lab::human_bytes(needs.weights).c_str(),
                     lab::human_bytes(double(plan.bytes)).c_str(),
                     lab::human_bytes(double(plan.separate_bytes)).c_str(), run.buffers().size()));
  if (needs.scratch > 0)
    report.note("attention's own memory, for scores: " + lab::human_bytes(needs.scratch));
  report.add_number("net", "weights_bytes", needs.weights);
  report.add_number("net", "activations_bytes", double(plan.bytes));
  report.add_number("net", "separate_bytes", double(plan.separate_bytes));
  report.add_number("net", "attention_bytes", needs.scratch);
}

void check_graph(NetRun& run, const std::vector<half>& logits, lab::Report& report) {
  const lab::Progress progress("CUDA graph");
  lab::StepGraph graph([&](int, cudaStream_t stream) { run.forward(stream); }, 1);
  if (!graph.refusal().empty())
    throw std::runtime_error("--graph: the net cannot be captured: " + graph.refusal());
  for (int i = 1; i < int(run.buffers().size()); ++i) run.spoil(i);
  graph.replay();
  lab::check(cudaDeviceSynchronize());
  const std::vector<half> replayed = run.logits();
  const bool same = std::memcmp(replayed.data(), logits.data(), logits.size() * sizeof(half)) == 0;
  report.require(same, "the CUDA graph's logits are other bits than the stream's");
  if (same) report.note("CUDA graph: replayed, the same bits as from the stream");
}

void draw_attention(const NetOptions& options, const NetProblem& problem, const DrawnBlock& drawn,
                    const NetRun& run, lab::Report& report) {
  lab::AttentionProblem attention;
  attention.shape = run.attention_shape();
  attention.q = drawn.q, attention.k = drawn.k;
  lab::vgpu::set_counters(false);
  const std::vector<double> weights =
      lab::attention_weights(options.components.attention.function, attention, 0);
  lab::vgpu::set_counters(true);
  const int grid = problem.shape.grid();
  lab::save_image(options.out, lab::draw_heat_map(problem.photo, grid, 0, weights));
  const int next = int(std::max_element(weights.begin() + 1, weights.end()) - weights.begin());
  report.note(
      format("%s: the class token's attention in block %d: %.1f%% of it to itself, %.1f%% "
             "to patch %d,%d",
             options.out.c_str(), drawn.block, 100 * weights[0], 100 * weights[next],
             (next - 1) / grid, (next - 1) % grid));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  // Each weight is rounded to fp16, relatively 2^-11; twice that is allowed. False for NaN.
  report.require(std::abs(sum - 1) <= 0x1p-10,
                 format("the weights of the class token add up to %.6f, not 1", sum));
}

void note_classes(const NetOptions& options, const NetProblem& problem,
                  const std::vector<half>& logits, lab::Report& report) {
  const Doubles p = softmax(as_doubles(logits), 0, problem.shape.classes);
  report.note(options.weights.empty() ? "The net is random, and so are its classes:"
                                      : "The photo shows, with probability:");
  for (const int number : largest_first(p, kShown))
    report.note(format("  %6.1f%%  %s", 100 * p[number], class_name(problem, number).c_str()));
}

void write_output(const NetOptions& options, const NetShape& shape,
                  const std::vector<half>& logits) {
  if (options.output.empty()) return;
  lab::write_safetensors(options.output,
                         {{"out", {{shape.batch, shape.classes}, lab::to_float(logits), "F16"}}});
}

}  // namespace vision_transformer
