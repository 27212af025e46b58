// The program: flags, weights, photo, memory, the components one after the other, classes, picture.
// Longer than 600 lines: flags, memory and report of one program, in the order in which they run.
#include "program.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "../../../common/attention/inputs.h"
#include "../../../common/json/json.h"
#include "../../../common/lab/device.h"
#include "../../../common/lab/errors.h"
#include "../../../common/lab/files.h"
#include "../../../common/lab/flags.h"
#include "../../../common/lab/images.h"
#include "../../../common/lab/progress.h"
#include "../../../common/lab/report.h"
#include "../../../common/lab/tensors.h"
#include "../../../common/lab/timing.h"
#include "resample.h"
#include "run.h"
#include "weights.h"

namespace vision_transformer {
namespace {

using lab::format;
using lab::UsageError;
using reference::Doubles;

constexpr int kMaxBatch = 4096;
constexpr int kShown = 5;        // classes
constexpr int kShiftPixels = 8;  // of one image of the batch against the one before

// ---- What is asked for --------------------------------------------------------------------------

struct Asked {
  lab::Options common;
  std::string model, weights, labels;
  Components components;
  int block = -1;  // whose attention is drawn; -1: the last
  bool graph = false;
};

template <class Function>
std::string names_of(const std::vector<Choice<Function>>& choices) {
  std::string names;
  for (size_t i = 0; i < choices.size(); ++i)
    names += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + std::string(choices[i].name);
  return names;
}

// A flag that chooses one of those.
template <class Function>
void choice(lab::Flags& flags, const char* flag, Choice<Function>& chosen,
            const std::vector<Choice<Function>>& choices, const std::string& help) {
  flags.option(
      flag,
      [&chosen, &choices, flag](const std::string& text) {
        for (const Choice<Function>& one : choices)
          if (text == one.name) {
            chosen = one;
            return;
          }
        throw UsageError(std::string(flag) + " '" + text + "': must be " + names_of(choices));
      },
      "STEP", help + "\n(" + names_of(choices) + "; default " + chosen.name + ")");
}

Asked asked_for(int argc, char** argv) {
  Asked asked;
  lab::Options& options = asked.common;
  options.out = "attention.png";
  lab::Flags flags(
      "Chapter 12: a Vision Transformer on a photo.",
      "Weights are a safetensors file with timm's names; README.md in the chapter's folder says\n"
      "where to get one. Names of the classes are read from --labels, or from\n"
      "imagenet_synset_words.txt beside the weights. --projection: attention alone, in fp32, with\n"
      "its q, k and v computed inside its kernel or apart (./run --projection --help).");
  flags.text("--weights", asked.weights, "FILE", "trained net, safetensors (F16 or F32)");
  flags.option(
      "--model",
      [&](const std::string& text) {
        model_shape(text);
        asked.model = text;
      },
      "NAME", "tiny, small or base (as the weights are; else tiny)");
  flags.text("--image", options.image, "FILE", "photo, PNG or JPEG (data/images/chelsea.png)");
  flags.text("--labels", asked.labels, "FILE", "names of the classes, one a line");
  flags.option(
      "--size",
      [&](const std::string& text) {
        lab::require_one_of("--size", text, {"224", "384", "512"});
        options.size = lab::parse_number("--size", text, 224, 512);
      },
      "PIXELS", "side of the squared photo: 224, 384 or 512 (224)");
  flags.number("--batch", options.batch, 1, kMaxBatch, "N",
               "images at a time: the photo, and itself shifted (1)");
  choice(flags, "--embed", asked.components.embed, embed_choices(), "step of the patch embedding");
  choice(flags, "--norm", asked.components.norm, norm_choices(), "step of LayerNorm");
  choice(flags, "--mlp", asked.components.linear, linear_choices(),
         "step of all products with weights");
  choice(flags, "--qkv", asked.components.qkv, qkv_choices(),
         "how q, k and v reach attention: split after the product, stored by heads\n"
         "by the product, or computed inside attention's own kernel");
  choice(flags, "--attention", asked.components.attention, attention_choices(),
         "step of attention");
  flags.given("--graph", asked.graph, "also replays the net from a CUDA graph and compares bits");
  flags.number("--block", asked.block, 0, 1000, "N", "block whose attention is drawn (the last)");
  flags.text("--out", options.out, "FILE", "the class token's attention, .png or .jpg");
  flags.text("--output", options.output, "FILE", "logits [batch, classes] as 'out', safetensors");
  flags.run_flags(options, "of random weights (1)");
  flags.parse(argc, argv);
  if (asked.components.qkv.function.inside)
    flags.refuse({"--attention"},
                 "does not go with --qkv inside, whose kernel is its own attention");
  flags.refuse_with_predict(options);
  if (options.predict) flags.refuse({"--graph", "--block"}, "does not go with --predict");
  if (!asked.weights.empty()) flags.refuse({"--seed"}, "is of random weights: not with --weights");
  if (options.batch == 0) options.batch = 1;
  if (options.image.empty()) options.image = lab::repository_path("data/images/chelsea.png");
  lab::require_files(options);
  for (const std::string& written : {options.out, options.output, options.json, options.csv})
    for (const std::string& read : {asked.weights, asked.labels})
      if (!written.empty() && !read.empty() && lab::same_file(written, read))
        throw UsageError("an input and an output name the same file " + written);
  return asked;
}

// ---- The problem --------------------------------------------------------------------------------

struct Problem {
  NetShape shape;
  Weights weights;
  std::vector<std::string> labels;  // empty: not known
  lab::Image photo;                 // as the net sees it
  std::vector<float> image;         // [batch, 3, size, size], rounded to fp16
};

std::vector<std::string> labels_for(const Asked& asked, int classes) {
  if (!asked.labels.empty()) return read_labels(asked.labels, classes);
  if (asked.weights.empty()) return {};
  const size_t slash = asked.weights.rfind('/');
  const std::string beside =
      (slash == std::string::npos ? "" : asked.weights.substr(0, slash + 1)) +
      "imagenet_synset_words.txt";
  // Beside another net than one of ImageNet the file means nothing.
  return classes == 1000 && access(beside.c_str(), R_OK) == 0 ? read_labels(beside, classes)
                                                              : std::vector<std::string>();
}

// Image b is the photo shifted cyclically to the right by 8 b pixels, so that no two are alike.
std::vector<float> batch_of(const std::vector<float>& planes, int size, int batch) {
  std::vector<float> images;
  images.reserve(planes.size() * size_t(batch));
  for (int b = 0; b < batch; ++b)
    for (size_t row = 0; row < planes.size() / size_t(size); ++row)
      for (int column = 0; column < size; ++column) {
        const int from = ((column - kShiftPixels * b) % size + size) % size;
        images.push_back(rounded_to_fp16(planes[row * size_t(size) + size_t(from)]));
      }
  return images;
}

Problem problem_for(const Asked& asked) {
  Problem problem;
  const lab::Options& options = asked.common;
  const lab::Image photo = lab::load_image(options.image);
  problem.photo = crop_for_net(photo, options.size);
  if (asked.weights.empty()) {
    NetShape shape = model_shape(asked.model.empty() ? "tiny" : asked.model);
    shape.size = options.size;
    problem.weights.shape = shape;  // the numbers are drawn when there is memory for them
  } else {
    problem.weights = read_weights(asked.weights, asked.model, options.size);
  }
  problem.shape = problem.weights.shape;
  problem.shape.batch = options.batch;
  require_net_shape(problem.shape);
  problem.labels = labels_for(asked, problem.shape.classes);
  if (asked.block >= problem.shape.blocks)
    throw UsageError(format("--block '%d': must be from 0 to %d, the net has %d blocks",
                            asked.block, problem.shape.blocks - 1, problem.shape.blocks));
  return problem;
}

// Throws lab::LackError where there is not enough, before anything is taken.
void settle_memory(const Asked& asked, const Problem& problem, const lab::Device& device) {
  const NetShape& shape = problem.shape;
  const NetMemory needs = net_memory(shape, asked.components);
  const double rows = double(shape.rows());
  // References in double: the widest arrays, and those that go in and out.
  const double host = 4.0 * double(shape.image_elements()) + 3 * needs.weights +
                      8 * rows * (3 * shape.hidden() + 4 * shape.width);
  lab::require_memory(device, needs.all(), host,
                      "a Vision Transformer of shape " + describe(shape) +
                          (shape.batch > 1 ? " (fewer images: --batch N)" : ""));
}

std::string weights_text(const Asked& asked) {
  return asked.weights.empty() ? format("random weights of seed %llu",
                                        static_cast<unsigned long long>(asked.common.seed))
                               : "weights of " + lab::file_name(asked.weights);
}

lab::ReportHead report_head(const Asked& asked, const Problem& problem, const lab::Device& device) {
  const NetShape& shape = problem.shape;
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  lab::ReportHead head{"12_vision_transformer",
                       asked.common,
                       device,
                       format("%s, %d x %d pixels, %s", lab::file_name(asked.common.image).c_str(),
                              shape.size, shape.size, weights_text(asked).c_str()),
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
                        {"trained", asked.weights.empty() ? "false" : "true"},
                        {"embed", quoted(asked.components.embed.name)},
                        {"norm", quoted(asked.components.norm.name)},
                        {"mlp", quoted(asked.components.linear.name)},
                        {"qkv", quoted(asked.components.qkv.name)},
                        {"attention", quoted(asked.components.qkv.function.inside
                                                 ? "inside"
                                                 : asked.components.attention.name)}}};
  return head;
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

// ---- Components ---------------------------------------------------------------------------------

double macs_of(const NetRun& run, const Stage& stage) {
  const NetShape& shape = run.shape();
  using Kind = Stage::Kind;
  if (stage.kind == Kind::kEmbed)
    return double(shape.batch) * shape.patches() * shape.width * shape.patch_values();
  // What must be computed: what `inside` computes again is not in it.
  double macs = double(stage.linear.m) * stage.linear.n * stage.linear.k;
  if (stage.kind == Kind::kAttention || stage.kind == Kind::kInside)
    macs += 2.0 * double(run.attention_shape().scores()) * shape.head_dim();
  return macs;
}

// The steps of chapters 9 and 11, and attention's from chapter 4 on.
bool on_tensor_cores(const Components& components, const Stage& stage) {
  switch (stage.kind) {
    case Stage::Kind::kEmbed:
      return components.embed.chapter == 9;
    case Stage::Kind::kLinear:
      return components.linear.chapter == 11;
    case Stage::Kind::kQkv:
      return components.qkv.chapter == 11;
    case Stage::Kind::kAttention:
      return components.attention.chapter >= 4;
    default:
      return false;
  }
}

// Each array once: what is read, the parameters, what is written.
lab::Cost cost_of(const NetRun& run, const Stage& stage) {
  double bytes = 0;
  for (const int number : stage.reads) bytes += double(run.buffers()[number].bytes);
  for (const int number : stage.writes) bytes += double(run.buffers()[number].bytes);
  if (stage.host_weight) bytes += 2.0 * double(stage.host_weight->size() + stage.host_bias->size());
  const NetShape& shape = run.shape();
  if (stage.kind == Stage::Kind::kEmbed)
    bytes += 2.0 * shape.width * (shape.patch_values() + shape.tokens() + 1);
  if (stage.kind == Stage::Kind::kClassTokens)  // of each image one token
    bytes = 4.0 * shape.batch * shape.width;
  return {bytes, 2 * macs_of(run, stage), on_tensor_cores(run.components(), stage)};
}

// Of several stages the bound is that of the fastest units of any.
void add_cost(lab::Cost& sum, const lab::Cost& one) {
  sum.bytes += one.bytes, sum.flops += one.flops, sum.tensor_cores |= one.tensor_cores;
}

// The stages of one component, all blocks': a line of the table.
struct Line {
  std::string component;
  std::vector<size_t> stages;
  bool of_several = false;  // launches of a stage: one of them
  lab::Timing timing = {};
  lab::Cost cost = {};
  lab::Comparison comparison = lab::Comparison::none();
};

Line& line_of(std::vector<Line>& lines, const std::string& component) {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const Line& one) { return one.component == component; });
  return found != lines.end() ? *found
                              : lines.emplace_back(Line{.component = component, .stages = {}});
}

// A stage of several launches has a line for each.
std::vector<Line> lines_of(NetRun& run) {
  std::vector<Line> lines;
  for (size_t i = 0; i < run.stages().size(); ++i) {
    const Stage& stage = run.stages()[i];
    for (const StagePart& part : run.parts(stage, nullptr)) {
      Line& line = line_of(lines, part.line);
      line.stages.push_back(i);
      line.of_several = part.one_of_several;
      if (part.one_of_several) continue;
      add_cost(line.cost, cost_of(run, stage));
    }
  }
  return lines;
}

void add_timing(lab::Timing& sum, const lab::Timing& one) {
  if (sum.samples == 0) {
    sum = one;
    return;
  }
  sum.median_us += one.median_us, sum.min_us += one.min_us, sum.mean_us += one.mean_us;
  sum.scratch_bytes = std::max(sum.scratch_bytes, one.scratch_bytes);
  sum.spread = sum.std_us = std::nan("");  // of the sum: not known
}

void keep_worst(lab::Comparison& worst, const lab::Comparison& one) {
  const bool worse = worst.skipped || (worst.pass && !one.pass);
  const double max_error = worst.skipped ? 0 : worst.max_abs_error,
               l2 = worst.skipped ? 0 : worst.relative_l2;
  if (worse) worst = one;
  // Not std::max: NaN stays.
  worst.max_abs_error = max_error > one.max_abs_error ? max_error : one.max_abs_error;
  worst.relative_l2 = l2 > one.relative_l2 ? l2 : one.relative_l2;
}

Doubles as_doubles(const std::vector<half>& values) {
  Doubles result;
  for (const half value : values) result.push_back(__half2float(value));
  return result;
}

// What is kept of the run for the picture.
struct DrawnBlock {
  std::vector<half> q, k;  // [batch, heads, tokens, head_dim]
};

// q and k of the block where the stage has just read them; `inside` stores none, so that the
// reference computes them.
void see_block(const NetRun& run, const Stage& stage, DrawnBlock& drawn) {
  if (stage.kind == Stage::Kind::kAttention)
    drawn = {run.buffer(stage.reads[0]), run.buffer(stage.reads[1])};
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

// Runs the stages in order, times each and compares it. On the virtual GPU the first launch of each
// component is predicted: the others are like it. With --predict nothing else is launched.
std::vector<Line> run_components(NetRun& run, const Asked& asked, const Problem& problem,
                                 const lab::Device& device, int drawn_block, DrawnBlock& drawn) {
  const lab::Options& options = asked.common;
  const bool stores_scores =
      !attention_parts(asked.components.attention).empty() && !asked.components.qkv.function.inside;
  lab::DeviceArray<float> scores(stores_scores ? size_t(run.attention_shape().scores()) : 1,
                                 "scores");
  std::vector<Line> lines = lines_of(run);
  double all_macs = 0;
  for (const Stage& stage : run.stages()) all_macs += macs_of(run, stage);
  std::atomic<double> done = 0;
  const lab::Progress progress("components", [&] { return done / all_macs; });
  std::vector<lab::Launch> all;  // launches, and the line of each
  std::vector<Line*> line_of_launch;
  for (size_t i = 0; i < run.stages().size(); ++i) {
    const Stage& stage = run.stages()[i];
    std::vector<Line*> own;
    std::vector<lab::Launch> launches;
    for (const StagePart& part : run.parts(stage, scores.data())) {
      own.push_back(&line_of(lines, part.line));
      launches.push_back([launch = part.launch](int) { launch(nullptr); });
    }
    const bool first = own[0]->stages.front() == i;
    if (options.predict && !first) continue;
    all.insert(all.end(), launches.begin(), launches.end());
    line_of_launch.insert(line_of_launch.end(), own.begin(), own.end());
    if (device.is_virtual) {
      const std::vector<lab::Timing> timings =
          lab::time_stages(device, launches, options.warmup, options.iterations, first);
      for (size_t l = 0; l < own.size(); ++l) add_timing(own[l]->timing, timings[l]);
    } else {
      for (const lab::Launch& launch : launches) launch(0);
      lab::check(cudaDeviceSynchronize());
    }
    if (!options.predict)
      for (Line* line : own)
        keep_worst(line->comparison, compare_stage(run, problem.weights.parameters, stage));
    if (stage.block == drawn_block && !options.predict) see_block(run, stage, drawn);
    done = done + macs_of(run, stage);
  }
  if (device.is_virtual) return lines;
  const std::vector<lab::Timing> timings =
      lab::time_stages(device, all, options.warmup, options.iterations);
  for (size_t l = 0; l < all.size(); ++l) add_timing(line_of_launch[l]->timing, timings[l]);
  return lines;
}

// ---- Classes ------------------------------------------------------------------------------------

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

std::string class_name(const Problem& problem, int number) {
  return problem.labels.empty() ? format("class %d", number) : problem.labels[number];
}

void note_classes(const Asked& asked, const Problem& problem, const Doubles& logits,
                  lab::Report& report) {
  const Doubles p = softmax(logits, 0, problem.shape.classes);
  report.note(asked.weights.empty() ? "The net is random, and so are its classes:"
                                    : "The photo shows, with probability:");
  for (const int number : largest_first(p, kShown))
    report.note(format("  %6.1f%%  %s", 100 * p[number], class_name(problem, number).c_str()));
}

// The net's logits with those of the reference for the whole net.
lab::Comparison compare_logits(const Problem& problem, const Doubles& logits) {
  const lab::Progress progress("reference of the whole net");
  const Doubles image(problem.image.begin(), problem.image.end());
  const HostParameters& parameters = problem.weights.parameters;
  const Doubles exact = reference::net(image, parameters, problem.shape, nullptr, {}),
                rounded = reference::net(image, parameters, problem.shape,
                                         static_cast<reference::Rounding>(rounded_to_fp16), {});
  return lab::compare(logits, exact, logits_tolerance(exact, rounded),
                      {problem.shape.batch, problem.shape.classes});
}

// ---- The picture --------------------------------------------------------------------------------

void draw_attention(const Asked& asked, const Problem& problem, int block, const DrawnBlock& drawn,
                    const NetRun& run, lab::Report& report) {
  lab::AttentionProblem attention;
  attention.shape = run.attention_shape();
  attention.q = drawn.q, attention.k = drawn.k;
  lab::vgpu::set_counters(false);
  const std::vector<double> weights =
      lab::attention_weights(asked.components.attention.function, attention, 0);
  lab::vgpu::set_counters(true);
  const int grid = problem.shape.grid();
  lab::save_image(asked.common.out, lab::draw_heat_map(problem.photo, grid, 0, weights));
  const int next = int(std::max_element(weights.begin() + 1, weights.end()) - weights.begin());
  report.note(
      format("%s: the class token's attention in block %d: %.1f%% of it to itself, %.1f%% "
             "to patch %d,%d",
             asked.common.out.c_str(), block, 100 * weights[0], 100 * weights[next],
             (next - 1) / grid, (next - 1) % grid));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  // Each weight is rounded to fp16, relatively 2^-11; twice that is allowed. False for NaN.
  report.require(std::abs(sum - 1) <= 0x1p-10,
                 format("the weights of the class token add up to %.6f, not 1", sum));
}

// ---- The program --------------------------------------------------------------------------------

void note_memory(const NetRun& run, const Asked& asked, lab::Report& report) {
  const NetMemory needs = net_memory(run.shape(), asked.components);
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

// Images a second: on the virtual GPU as predicted.
void note_rate(const std::vector<Line>& lines, const Asked& asked, const lab::Device& device,
               const lab::Timing& total, lab::Report& report) {
  double us = 0;
  if (device.is_virtual)
    us = report.predicted_us("net");
  else
    us = std::isfinite(total.graph_us) ? total.graph_us : total.median_us;
  if (!std::isfinite(us) || us <= 0) return;
  size_t launches = 0;
  for (const Line& line : lines) launches += line.stages.size();
  report.add_number("net", "images_per_s", 1e6 * asked.common.batch / us);
  report.note(format("%.0f images a second%s, %zu launches", 1e6 * asked.common.batch / us,
                     device.is_virtual ? ", predicted" : "", launches));
}

// Replays the net from a CUDA graph: the same bits as from the stream.
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

lab::ExitCode vit_program(int argc, char** argv) {
  Asked asked = asked_for(argc, argv);
  Problem problem = problem_for(asked);
  const lab::Device device = lab::open_device();
  lab::complete_for(device, asked.common);
  const lab::Options& options = asked.common;
  settle_memory(asked, problem, device);
  if (asked.weights.empty()) problem.weights = random_weights(problem.weights.shape, options.seed);
  problem.image = batch_of(normalized(problem.photo), options.size, options.batch);

  NetRun run(problem.shape, problem.weights.parameters, asked.components);
  lab::ReportHead head = report_head(asked, problem, device);
  head.data = {{"memory_plan", plan_json(run)}};
  lab::Report report(std::move(head));
  run.set_image(problem.image);
  const int drawn_block = asked.block < 0 ? problem.shape.blocks - 1 : asked.block;
  DrawnBlock drawn;
  const std::vector<Line> lines = run_components(run, asked, problem, device, drawn_block, drawn);
  const std::vector<half> logits = run.logits();
  for (const Line& line : lines)
    report.add_launch(
        line.component, line.timing, line.cost, line.comparison,
        !line.of_several ? lab::Report::Errors::kOfLaunch : lab::Report::Errors::kOfStep,
        int(line.stages.size()));

  lab::Timing total;
  lab::Cost cost;
  for (const Line& line : lines) add_timing(total, line.timing);
  for (const Stage& stage : run.stages()) add_cost(cost, cost_of(run, stage));
  total.counters.clear(), total.profile.clear();
  if (!device.is_virtual)
    total = lab::time_step(
        device, [&](int, cudaStream_t stream) { run.forward(stream); }, 1, options.warmup,
        options.iterations);
  report.add_total(
      "net", total, cost,
      options.predict ? lab::Comparison::none() : compare_logits(problem, as_doubles(logits)));
  note_rate(lines, asked, device, total, report);
  note_memory(run, asked, report);
  if (!options.predict) {
    if (asked.graph) check_graph(run, logits, report);
    draw_attention(asked, problem, drawn_block, drawn, run, report);
    note_classes(asked, problem, as_doubles(logits), report);
    if (!options.output.empty())
      lab::write_safetensors(
          options.output,
          {{"out", {{problem.shape.batch, problem.shape.classes}, lab::to_float(logits), "F16"}}});
  }
  return report.finish();
}

}  // namespace

int vit_main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--projection") == 0) return projection_main(argc, argv);
  return lab::guarded_main("12_vision_transformer", [&] { return vit_program(argc, argv); });
}

}  // namespace vision_transformer
