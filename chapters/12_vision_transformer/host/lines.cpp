#include "lines.h"

#include <algorithm>
#include <cmath>

namespace vision_transformer {
namespace {

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

Line& line_of(std::vector<Line>& lines, const std::string& component) {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const Line& one) { return one.component == component; });
  return found != lines.end() ? *found
                              : lines.emplace_back(Line{.component = component, .stages = {}});
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

}  // namespace

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

void keep_worst(lab::Comparison& worst, const lab::Comparison& one) {
  const bool worse = worst.skipped || (worst.pass && !one.pass);
  const double max_error = worst.skipped ? 0 : worst.max_abs_error,
               l2 = worst.skipped ? 0 : worst.relative_l2;
  if (worse) worst = one;
  // Not std::max: NaN stays.
  worst.max_abs_error = max_error > one.max_abs_error ? max_error : one.max_abs_error;
  worst.relative_l2 = l2 > one.relative_l2 ? l2 : one.relative_l2;
}

void Launches::add(const Launches& more) {
  launches.insert(launches.end(), more.launches.begin(), more.launches.end());
  lines.insert(lines.end(), more.lines.begin(), more.lines.end());
}

void Launches::add_timings(const std::vector<lab::Timing>& timings) const {
  for (size_t i = 0; i < lines.size(); ++i) add_timing(lines[i]->timing, timings[i]);
}

void Launches::run() const {
  for (const lab::Launch& launch : launches) launch(0);
  lab::check(cudaDeviceSynchronize());
}

Launches launches_of(NetRun& run, const Stage& stage, float* scores, std::vector<Line>& lines) {
  Launches own;
  for (const StagePart& part : run.parts(stage, scores)) {
    own.lines.push_back(&line_of(lines, part.line));
    own.launches.push_back([launch = part.launch](int) { launch(nullptr); });
  }
  own.first = own.lines[0]->stages.front() == size_t(&stage - run.stages().data());
  return own;
}

lab::Timing sum_of_timings(const std::vector<Line>& lines) {
  lab::Timing total;
  for (const Line& line : lines) add_timing(total, line.timing);
  total.counters.clear(), total.profile.clear();
  return total;
}

lab::Cost cost_of_net(const NetRun& run) {
  lab::Cost cost;
  for (const Stage& stage : run.stages()) add_cost(cost, cost_of(run, stage));
  return cost;
}

StageProgress::StageProgress(const NetRun& run)
    : run_(run), progress_("components", [this] { return done_ / all_; }) {
  double all = 0;
  for (const Stage& stage : run.stages()) all += macs_of(run, stage);
  all_ = all;
}

void StageProgress::done(const Stage& stage) { done_ = done_ + macs_of(run_, stage); }

}  // namespace vision_transformer
