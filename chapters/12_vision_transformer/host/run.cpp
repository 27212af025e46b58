#include "run.h"

#include <algorithm>
#include <cmath>

#include "../../../common/lab/errors.h"
#include "weights.h"

namespace vision_transformer {
namespace {

using Kind = Stage::Kind;
using reference::Doubles;

constexpr size_t kWeightAlignment = 128;  // halves
constexpr double kReferenceMacs = 3e8;    // of a stage; beyond it some of its rows are compared

size_t aligned(size_t halves) {
  return (halves + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

// Halves of all parameters, each array aligned.
size_t weight_halves(const NetShape& shape) {
  Parameters<int> nothing;
  nothing.blocks.resize(shape.blocks);
  size_t all = 0;
  for_each_parameter(nothing, shape,
                     [&](const std::string&, const std::vector<int64_t>& dims, int&) {
                       size_t elements = 1;
                       for (const int64_t size : dims) elements *= size_t(size);
                       all += aligned(elements);
                     });
  return all;
}

// The stages of a net in order, without weights, and the arrays between them.
class StageList {
 public:
  StageList(const NetShape& shape, const Components& components)
      : shape_(shape), qkv_(components.qkv.function) {
    const int64_t rows = shape.rows(), width = shape.width;
    const int image = array("image", shape.image_elements());
    int x = array("tokens", rows * width);
    add({Kind::kEmbed, "embedding", -1, {image}, {x}});
    for (int block = 0; block < shape.blocks; ++block) x = add_block(block, x);
    const int first = array("class tokens", shape.batch * width),
              normalized = array("normalized class tokens", shape.batch * width),
              logits = array("logits", int64_t(shape.batch) * shape.classes);
    add({Kind::kClassTokens, "class token", -1, {x}, {first}});
    add({Kind::kNorm, "norm", -1, {first}, {normalized}});
    add_linear("head", -1, {normalized}, logits, shape.batch, shape.classes, shape.width, false);
    // What comes in and goes out stays: the net can be run again, and read.
    buffers[image].first = buffers[logits].first = 0;
    buffers[image].last = buffers[logits].last = int(stages.size()) - 1;
  }

  std::vector<Stage> stages;
  std::vector<Buffer> buffers;

 private:
  int array(const std::string& name, int64_t elements) {
    buffers.push_back({name, int64_t(sizeof(half)) * elements, -1, 0, 0});
    return int(buffers.size()) - 1;
  }

  void add(Stage stage) {
    const int number = int(stages.size());
    for (const int written : stage.writes) buffers[written].first = buffers[written].last = number;
    for (const int read : stage.reads) buffers[read].last = number;
    stages.push_back(std::move(stage));
  }

  void add_linear(const char* component, int block, const std::vector<int>& reads, int written,
                  int64_t m, int n, int k, bool gelu) {
    Stage stage{Kind::kLinear, component, block, reads, {written}};
    stage.linear = {int(m), n, k, gelu};
    add(std::move(stage));
  }

  // Returns the buffer with the block's result.
  int add_block(int block, int x) {
    const int64_t rows = shape_.rows(), width = shape_.width, hidden = shape_.hidden();
    const auto own = [&](const std::string& name, int64_t elements) {
      return array("blocks." + std::to_string(block) + "." + name, elements);
    };
    const int y1 = own("norm1", rows * width);
    add({Kind::kNorm, "norm1", block, {x}, {y1}});
    const int merged = add_attention(block, y1, own);
    const int between = own("proj", rows * width), y2 = own("norm2", rows * width),
              h = own("fc1", rows * hidden), result = own("fc2", rows * width);
    add_linear("proj", block, {merged, x}, between, rows, int(width), int(width), false);
    add({Kind::kNorm, "norm2", block, {between}, {y2}});
    add_linear("fc1", block, {y2}, h, rows, int(hidden), int(width), true);
    add_linear("fc2", block, {h, between}, result, rows, int(width), int(hidden), false);
    return result;
  }

  // From norm1's result to what the output projection reads: a buffer [batch, tokens, width].
  template <class Own>
  int add_attention(int block, int y1, const Own& own) {
    const int64_t elements = shape_.rows() * shape_.width;
    const LinearShape product{int(shape_.rows()), 3 * shape_.width, shape_.width, false};
    if (qkv_.inside) {
      const int merged = own("merged", elements);
      add({Kind::kInside, "qkv+attention", block, {y1}, {merged}, product});
      return merged;
    }
    const int qkv = qkv_.by_heads ? -1 : own("qkv", 3 * elements);
    const int q = own("q", elements), k = own("k", elements), v = own("v", elements),
              o = own("attention", elements), merged = own("merged", elements);
    if (qkv_.by_heads) {
      add({Kind::kQkv, "qkv", block, {y1}, {q, k, v}, product});
    } else {
      add({Kind::kLinear, "qkv", block, {y1}, {qkv}, product});
      add({Kind::kSplit, "split", block, {qkv}, {q, k, v}});
    }
    add({Kind::kAttention, "attention", block, {q, k, v}, {o}});
    add({Kind::kMerge, "merge", block, {o}, {merged}});
    return merged;
  }

  NetShape shape_;
  Qkv qkv_;
};

// The parameters of a stage that has some, by the component's name.
template <class Array>
std::pair<const Array*, const Array*> parameters_of(const Stage& stage,
                                                    const Parameters<Array>& all) {
  if (stage.component == "norm") return {&all.norm_scale, &all.norm_bias};
  if (stage.component == "head") return {&all.head_weight, &all.head_bias};
  if (stage.block < 0) return {nullptr, nullptr};
  const BlockParameters<Array>& block = all.blocks[stage.block];
  if (stage.component == "norm1") return {&block.norm1_scale, &block.norm1_bias};
  if (stage.component == "qkv" || stage.component == "qkv+attention")
    return {&block.qkv_weight, &block.qkv_bias};
  if (stage.component == "proj") return {&block.proj_weight, &block.proj_bias};
  if (stage.component == "norm2") return {&block.norm2_scale, &block.norm2_bias};
  if (stage.component == "fc1") return {&block.fc1_weight, &block.fc1_bias};
  if (stage.component == "fc2") return {&block.fc2_weight, &block.fc2_bias};
  return {nullptr, nullptr};
}

AttentionShape attention_shape_of(const NetShape& shape) {
  return {shape.batch, shape.heads, shape.tokens(), shape.head_dim(),
          1 / std::sqrt(float(shape.head_dim()))};
}

// The largest Euclidean norm of a row.
template <class Array>
double longest_row(const Array& values, int64_t columns) {
  double most = 0;
  for (size_t first = 0; first < values.size(); first += size_t(columns)) {
    double squares = 0;
    for (int64_t c = 0; c < columns; ++c)
      squares += double(values[first + c]) * double(values[first + c]);
    most = std::max(most, squares);
  }
  return std::sqrt(most);
}

// Every n-th of the parts of that many elements.
Doubles thinned(const Doubles& values, int64_t part, int every) {
  if (every == 1 || values.empty()) return values;
  Doubles some;
  for (int64_t first = 0; first < int64_t(values.size()); first += part * every)
    some.insert(some.end(), values.begin() + first, values.begin() + first + part);
  return some;
}

int every_of(double macs) { return std::max(1, int(std::ceil(macs / kReferenceMacs))); }

// Tolerances: sums of k products in fp32, each rounding relatively 2^-24 of the sum of magnitudes,
// which the rows' lengths bound (Cauchy and Schwarz); then one rounding to fp16, 2^-11, and 2^-25 for
// the smallest numbers. Twice that is allowed. Roundings up and down make a relative L2 error of
// about 2e-4; 1e-3 is allowed.
lab::Tolerance stored_sum(double sums_error) {
  return {.atol = 2 * sums_error + 0x1p-24, .rtol = 0x1p-10, .relative_l2 = 1e-3};
}

// qkv [batch, tokens, 3, heads, head_dim] of q, k and v [batch, heads, tokens, head_dim].
Doubles joined_by_tokens(const std::vector<Doubles>& by_heads, const HeadsShape& shape) {
  std::vector<Doubles> merged;
  for (const Doubles& one : by_heads) merged.push_back(reference::merge(one, shape));
  Doubles result;
  const int64_t width = int64_t(shape.heads) * shape.head_dim;
  for (int64_t first = 0; first < int64_t(merged[0].size()); first += width)
    for (const Doubles& one : merged)
      result.insert(result.end(), one.begin() + first, one.begin() + first + width);
  return result;
}

// Product and attention in one launch: nothing in between is rounded to fp16.
void expect_inside(const NetRun& run, const Stage& stage, const Doubles& x,
                   StageExpected& expected) {
  HeadsShape heads = run.heads_shape();
  const int width = stage.linear.k;
  const int64_t image = int64_t(heads.tokens) * width;
  const double macs = double(image) * (3.0 * width + 2.0 * heads.tokens);
  expected.every = std::min(heads.batch, every_of(macs * heads.batch));
  expected.part = image;
  heads.batch = (heads.batch + expected.every - 1) / expected.every;
  const Doubles some = thinned(x, image, expected.every);
  const Doubles qkv = reference::linear(some, *stage.host_weight, *stage.host_bias, {},
                                        {heads.batch * heads.tokens, 3 * width, width, false});
  const Doubles q = reference::split(qkv, 0, heads), k = reference::split(qkv, 1, heads),
                v = reference::split(qkv, 2, heads);
  expected.arrays = {reference::merge(reference::attention(q, k, v, heads, nullptr), heads)};
  expected.tolerance = stored_sum(inside_error(some, *stage.host_weight, q, k, v, heads));
}

}  // namespace

Doubles as_doubles(const std::vector<half>& values) {
  Doubles result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = __half2float(values[i]);
  return result;
}

double product_error(const Doubles& x, const std::vector<float>& weight, int k) {
  return (k + 2) * 0x1p-24 * longest_row(x, k) * longest_row(weight, k);
}

double inside_error(const Doubles& x, const std::vector<float>& weight, const Doubles& q,
                    const Doubles& k, const Doubles& v, const HeadsShape& heads) {
  const int width = heads.heads * heads.head_dim;
  const double of_product = product_error(x, weight, width);
  const double longest_q = longest_row(q, heads.head_dim),
               longest_k = longest_row(k, heads.head_dim), most = lab::max_abs(v);
  const lab::Tolerance softmax = lab::Tolerance::softmax(
      heads.head_dim, heads.tokens, longest_q * longest_k / std::sqrt(double(heads.head_dim)));
  // A row of q or k is off by the root of head_dim times that at most, a score by `of_score`, and a
  // weight relatively by twice as much: the sum of the weights has the error, too.
  const double of_score = of_product * (longest_q + longest_k);
  return of_product + (softmax.rtol + 2 * of_score) * most;
}

NetMemory net_memory(const NetShape& shape, const Components& components) {
  require_net_shape(shape);
  StageList list(shape, components);
  return {2.0 * double(weight_halves(shape)), double(plan_memory(list.buffers).bytes),
          components.qkv.function.inside
              ? 0
              : attention_scratch(components.attention, attention_shape_of(shape))};
}

NetRun::NetRun(const NetShape& shape, const HostParameters& parameters,
               const Components& components, const Planner& plan)
    : shape_(shape),
      components_(components),
      weights_((require_net_shape(shape), weight_halves(shape)), "weights"),
      arena_(
          [&] {
            StageList list(shape, components);
            stages_ = std::move(list.stages);
            plan_ = plan(list.buffers);
            buffers_ = std::move(list.buffers);
            return size_t(plan_.bytes) / sizeof(half);
          }(),
          "activations") {
  parameters_.blocks.resize(shape.blocks);
  std::vector<half> all(weights_.size(), __float2half(0.0f));
  std::vector<const std::vector<float>*> arrays;
  for_each_parameter(parameters, shape,
                     [&](const std::string& name, const std::vector<int64_t>& dims,
                         const std::vector<float>& values) {
                       size_t elements = 1;
                       for (const int64_t size : dims) elements *= size_t(size);
                       if (values.size() != elements)
                         throw std::invalid_argument("parameter '" + name + "' has " +
                                                     std::to_string(values.size()) + " values, " +
                                                     std::to_string(elements) + " are needed");
                       arrays.push_back(&values);
                     });
  size_t next = 0, at = 0;
  for_each_parameter(parameters_, shape,
                     [&](const std::string&, const std::vector<int64_t>&, const half*& array) {
                       const std::vector<float>& values = *arrays[next++];
                       for (size_t i = 0; i < values.size(); ++i)
                         all[at + i] = __float2half(values[i]);
                       array = weights_.data() + at;
                       at += aligned(values.size());
                     });
  weights_.upload(all);
  arena_.fill_nan();
  for (Stage& stage : stages_) {
    const auto device = parameters_of(stage, parameters_);
    const auto host = parameters_of(stage, parameters);
    if (!host.first) continue;
    stage.weight = *device.first, stage.bias = *device.second;
    stage.host_weight = host.first, stage.host_bias = host.second;
  }
}

AttentionShape NetRun::attention_shape() const { return attention_shape_of(shape_); }
HeadsShape NetRun::heads_shape() const {
  return {shape_.batch, shape_.tokens(), shape_.heads, shape_.head_dim()};
}

void NetRun::set_image(const std::vector<float>& image) {
  if (int64_t(image.size()) != shape_.image_elements())
    throw std::invalid_argument("set_image: " + std::to_string(image.size()) + " values, " +
                                std::to_string(shape_.image_elements()) + " are needed");
  std::vector<half> halves(image.size());
  for (size_t i = 0; i < image.size(); ++i) halves[i] = __float2half(image[i]);
  lab::check(
      cudaMemcpy(data(0), halves.data(), halves.size() * sizeof(half), cudaMemcpyHostToDevice));
}

void NetRun::launch(const Stage& stage, cudaStream_t stream) {
  const auto in = [&](size_t i) -> const half* { return data(stage.reads[i]); };
  const auto out = [&](size_t i) { return data(stage.writes[i]); };
  switch (stage.kind) {
    case Kind::kEmbed:
      components_.embed.function(in(0), parameters_.patch_weight, parameters_.patch_bias,
                                 parameters_.class_token, parameters_.position, out(0),
                                 {shape_.batch, shape_.size, shape_.patch, shape_.width}, stream);
      break;
    case Kind::kNorm: {
      const int rows = stage.block < 0 ? shape_.batch : int(shape_.rows());
      components_.norm.function(in(0), stage.weight, stage.bias, out(0),
                                {rows, shape_.width, shape_.epsilon}, stream);
      break;
    }
    case Kind::kLinear:
      launch_linear(components_.linear.function, stage, stream);
      break;
    case Kind::kQkv:
      components_.qkv.function.by_heads(in(0), stage.weight, stage.bias, out(0), out(1), out(2),
                                        heads_shape(), stream);
      break;
    case Kind::kInside:
      components_.qkv.function.inside(in(0), stage.weight, stage.bias, out(0), heads_shape(),
                                      attention_shape().scale, stream);
      break;
    case Kind::kSplit:
      split_heads(in(0), out(0), out(1), out(2), heads_shape(), stream);
      break;
    case Kind::kAttention:
      components_.attention.function(in(0), in(1), in(2), out(0), attention_shape(), stream);
      break;
    case Kind::kMerge:
      merge_heads(in(0), out(0), heads_shape(), stream);
      break;
    case Kind::kClassTokens:
      take_class_tokens(in(0), out(0), shape_, stream);
      break;
  }
}

std::vector<StagePart> NetRun::parts(const Stage& stage, float* scores) {
  std::vector<StagePart> parts;
  if (stage.kind == Kind::kAttention)
    for (const AttentionPart& part : attention_parts(components_.attention))
      parts.push_back({part.name,
                       [this, &stage, part, scores](cudaStream_t stream) {
                         part.function(data(stage.reads[0]), data(stage.reads[1]),
                                       data(stage.reads[2]), scores, data(stage.writes[0]),
                                       attention_shape(), stream);
                       },
                       true});
  if (stage.kind == Kind::kLinear)
    for (const LinearPart& part : linear_parts(components_.linear))
      parts.push_back({stage.component + ": " + part.name,
                       [this, &stage, part](cudaStream_t stream) {
                         launch_linear(part.function, stage, stream);
                       },
                       true});
  if (parts.empty())
    parts.push_back(
        {stage.component, [this, &stage](cudaStream_t stream) { launch(stage, stream); }});
  return parts;
}

size_t NetRun::stored_scores() const {
  const bool stores =
      !attention_parts(components_.attention).empty() && !components_.qkv.function.inside;
  return stores ? size_t(attention_shape().scores()) : 1;
}

void NetRun::launch_linear(LinearFunction function, const Stage& stage, cudaStream_t stream) {
  function(data(stage.reads[0]), stage.weight, stage.bias,
           stage.reads.size() > 1 ? data(stage.reads[1]) : nullptr, data(stage.writes[0]),
           stage.linear, stream);
}

void NetRun::forward(cudaStream_t stream) {
  for (const Stage& stage : stages_) launch(stage, stream);
}

void NetRun::spoil(int number) {
  lab::check(cudaMemset(data(number), 0xff, size_t(buffers_[number].bytes)));
}

void NetRun::forward_and_spoil() {
  for (int number = 0; number < int(stages_.size()); ++number) {
    launch(stages_[number], nullptr);
    for (int i = 0; i < int(buffers_.size()); ++i)
      if (buffers_[i].last == number && i != 0 && i + 1 != int(buffers_.size())) spoil(i);
  }
  lab::check(cudaDeviceSynchronize());
}

std::vector<half> NetRun::buffer(int number) const {
  return arena_.download(size_t(buffers_[number].offset) / sizeof(half),
                         size_t(buffers_[number].bytes) / sizeof(half));
}

StageExpected expected_stage(const NetRun& run, const HostParameters& parameters,
                             const Stage& stage, const std::vector<std::vector<half>>& inputs) {
  const NetShape& shape = run.shape();
  StageExpected expected;
  std::vector<Doubles> x;
  for (const std::vector<half>& input : inputs) x.push_back(as_doubles(input));
  switch (stage.kind) {
    case Kind::kEmbed: {
      expected.arrays = {reference::embed(x[0], parameters, shape)};
      const int values = shape.patch_values();
      // A patch is no row of the image: the root of its values times the largest one is longer.
      expected.tolerance =
          stored_sum((values + 2) * 0x1p-24 * std::sqrt(values) * lab::max_abs(x[0]) *
                     longest_row(parameters.patch_weight, values));
      break;
    }
    case Kind::kNorm: {
      const int rows = int(int64_t(x[0].size()) / shape.width);
      expected.arrays = {reference::layer_norm(x[0], *stage.host_weight, *stage.host_bias,
                                               {rows, shape.width, shape.epsilon})};
      // The mean's error, of up to width roundings of the largest number, is divided by the
      // deviation: that of the flattest row.
      double steepest = 0;
      for (int row = 0; row < rows; ++row) {
        double mean = 0, variance = 0;
        const double* const from = &x[0][size_t(row) * shape.width];
        for (int c = 0; c < shape.width; ++c) mean += from[c] / shape.width;
        for (int c = 0; c < shape.width; ++c)
          variance += (from[c] - mean) * (from[c] - mean) / shape.width;
        double most = 0;
        for (int c = 0; c < shape.width; ++c) most = std::max(most, std::abs(from[c]));
        steepest = std::max(steepest, most / std::sqrt(variance + double(shape.epsilon)));
      }
      expected.tolerance =
          stored_sum(shape.width * 0x1p-24 * steepest * lab::max_abs(*stage.host_weight));
      break;
    }
    case Kind::kLinear: {
      LinearShape linear = stage.linear;
      expected.every = every_of(double(linear.m) * linear.n * linear.k);
      expected.part = linear.n;
      linear.m = (linear.m + expected.every - 1) / expected.every;
      expected.arrays = {reference::linear(
          thinned(x[0], linear.k, expected.every), *stage.host_weight, *stage.host_bias,
          x.size() > 1 ? thinned(x[1], linear.n, expected.every) : Doubles(), linear)};
      const double longest =
          longest_row(x[0], linear.k) * longest_row(*stage.host_weight, linear.k);
      expected.tolerance = stored_sum(kSteepestGelu * (linear.k + 2) * 0x1p-24 * longest);
      // Several launches store the product in between, rounded to fp16: no element is longer.
      if (!linear_parts(run.components().linear).empty())
        expected.tolerance.atol += 2 * kSteepestGelu * 0x1p-11 * longest;
      break;
    }
    case Kind::kQkv: {
      // As the product qkv, whose rows compare_stage() makes of q, k and v.
      LinearShape linear = stage.linear;
      expected.every = every_of(double(linear.m) * linear.n * linear.k);
      expected.part = linear.n;
      linear.m = (linear.m + expected.every - 1) / expected.every;
      expected.arrays = {reference::linear(thinned(x[0], linear.k, expected.every),
                                           *stage.host_weight, *stage.host_bias, {}, linear)};
      expected.tolerance = stored_sum(product_error(x[0], *stage.host_weight, linear.k));
      break;
    }
    case Kind::kInside:
      expect_inside(run, stage, x[0], expected);
      break;
    case Kind::kSplit:
      for (int part = 0; part < 3; ++part)
        expected.arrays.push_back(reference::split(x[0], part, run.heads_shape()));
      break;
    case Kind::kAttention: {
      HeadsShape heads = run.heads_shape();
      const int64_t matrix = int64_t(heads.tokens) * heads.head_dim;
      expected.every = every_of(2.0 * double(heads.elements()) * heads.tokens);
      expected.part = matrix;
      const int64_t matrices = int64_t(heads.batch) * heads.heads;
      heads.batch = 1, heads.heads = int((matrices + expected.every - 1) / expected.every);
      expected.arrays = {reference::attention(
          thinned(x[0], matrix, expected.every), thinned(x[1], matrix, expected.every),
          thinned(x[2], matrix, expected.every), heads, nullptr)};
      const double most = lab::max_abs(x[2]);
      const lab::Tolerance softmax = lab::Tolerance::softmax(heads.head_dim, heads.tokens,
                                                             longest_row(x[0], heads.head_dim) *
                                                                 longest_row(x[1], heads.head_dim) /
                                                                 std::sqrt(double(heads.head_dim)));
      expected.tolerance = lab::Tolerance::fp16_mean(most);
      expected.tolerance.atol += softmax.rtol * most;
      break;
    }
    case Kind::kMerge:
      expected.arrays = {reference::merge(x[0], run.heads_shape())};
      break;
    case Kind::kClassTokens:
      expected.arrays = {reference::class_tokens(x[0], shape)};
      break;
  }
  return expected;
}

lab::Comparison compare_stage(const NetRun& run, const HostParameters& parameters,
                              const Stage& stage) {
  std::vector<std::vector<half>> inputs;
  for (const int number : stage.reads) inputs.push_back(run.buffer(number));
  const StageExpected expected = expected_stage(run, parameters, stage, inputs);
  std::vector<Doubles> written;
  for (const int number : stage.writes) written.push_back(as_doubles(run.buffer(number)));
  if (stage.kind == Kind::kQkv) written = {joined_by_tokens(written, run.heads_shape())};
  lab::Comparison worst;
  for (size_t i = 0; i < written.size(); ++i) {
    const Doubles got = thinned(written[i], expected.part, expected.every);
    const lab::Comparison one =
        lab::compare(got, expected.arrays[i], expected.tolerance, {int64_t(got.size())});
    if (i == 0 || (worst.pass && !one.pass)) worst = one;
  }
  return worst;
}

lab::Tolerance logits_tolerance(const Doubles& exact, const Doubles& rounded) {
  double squares = 0, all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    squares += (exact[i] - rounded[i]) * (exact[i] - rounded[i]);
    all += exact[i] * exact[i];
  }
  return {.atol = 8 * std::sqrt(squares / double(exact.size())),
          .rtol = 0,
          .relative_l2 = 3 * std::sqrt(squares / all)};
}

}  // namespace vision_transformer
