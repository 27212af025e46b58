#include "net.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "../../16_cvt/operations/operations.h"

namespace training {

using namespace cvt;

namespace {

using Array = lab::DeviceArray<float>;

// One array each for q, k and v.
struct Three {
  float* pointer[3];
};

}  // namespace

// ---- What a step leaves for the way back --------------------------------------------------------

struct Net::Body {
  // The parameters and running statistics of one convolutional projection, and what belongs to it.
  struct Attention {
    ProjectionWeights weights;
    ProjectionGradients gradients;
    BatchNormSaved saved;
    Three running_mean, running_variance;
    const float *linear_w[3], *linear_b[3];
    float *linear_dw[3], *linear_db[3];
    float *maps[3], *qkv[3], *o, *log_sum_exp;
  };
  struct Norm {
    const float *scale, *shift;
    float *dscale, *dshift;
    float *y, *mean, *inverse_deviation;
  };
  struct Linear {
    const float *w, *bias;
    float *dw, *dbias;
    int in, out;
  };
  struct Block {
    int stage;
    const float* x;  // what comes in, [batch, tokens, width]
    Norm norm1, norm2;
    Attention attention;
    Linear out, fc1, fc2;
    float *middle, *before_gelu, *hidden, *y;
  };
  struct Stage {
    const float *w, *bias;
    float *dw, *dbias;
    const float* x;  // [batch, side, side, channels_into]
    float* embedded;
    Norm norm;
    float* y;  // the blocks' input: the norm's output, with class tokens in the last stage
    std::vector<Block> blocks;
  };

  Body(const NetShape& shape, int most);
  float* take(const std::string& name, int64_t count, bool watched = true);
  Norm norm(const std::string& name, int64_t rows, int channels);
  Linear linear(const std::string& name, int in, int out);
  Block block(int stage, const std::string& name, const float* x);
  Attention attention(int stage, const std::string& name);
  void take_scratch();

  void embed(const Stage& stage, int index);
  void attend(const Block& block, const float* x, bool training);
  void run(const Block& block, bool training);
  void run_head();
  void embed_back(const Stage& stage, int index, float* dy, float* dx);
  void attend_back(const Block& block, const float* d_o, float* dx);
  void back(const Block& block, float* dy, float* dx);
  Rows rows(int stage) const { return Rows::all(batch * shape.tokens(stage)); }
  CrossShape cross(int stage) const;
  ProjectionShape projection(int stage) const;

  NetShape shape;
  Layout layout;
  int most, batch = 0;
  bool trained = false;  // the last forward pass was one of training
  std::vector<Array> arrays;
  struct Watched {
    std::string name;
    const float* data;
    int64_t count;  // an image
  };
  std::vector<Watched> watched;
  float *parameters, *gradients, *running, *images;
  std::vector<Stage> stages;
  Norm last_norm;
  Linear head;
  float *class_tokens, *logits, *dlogits, *loss;
  lab::DeviceArray<int> labels;
  // Gradients on their way, and folded weights; wide enough for every stage.
  float *way[2], *dmiddle, *dwide, *dnorm, *d_o, *dqkv[3], *dmaps[3], *dclass[2];
  float *folded_w[3], *folded_b[3];
};

float* Net::Body::take(const std::string& name, int64_t count, bool is_watched) {
  arrays.emplace_back(size_t(count) * most, name);
  if (is_watched) watched.push_back({name, arrays.back().data(), count});
  return arrays.back().data();
}

Net::Body::Norm Net::Body::norm(const std::string& name, int64_t rows, int channels) {
  const int64_t weight = layout.of(name + ".weight"), bias = layout.of(name + ".bias");
  return {parameters + weight,
          parameters + bias,
          gradients + weight,
          gradients + bias,
          take(name, rows * channels),
          take(name + ".mean", rows, false),
          take(name + ".inverse_deviation", rows, false)};
}

Net::Body::Linear Net::Body::linear(const std::string& name, int in, int out) {
  const int64_t weight = layout.of(name + ".weight"), bias = layout.of(name + ".bias");
  return {parameters + weight, parameters + bias, gradients + weight, gradients + bias, in, out};
}

Net::Body::Attention Net::Body::attention(int stage, const std::string& name) {
  Attention result;
  const int width = shape.stages[stage].width;
  const char* const which[] = {".query", ".key", ".value"};
  for (int i = 0; i < 3; ++i) {
    const std::string own = name + which[i];
    const int64_t conv = layout.of(own + ".conv.weight"), scale = layout.of(own + ".bn.weight"),
                  shift = layout.of(own + ".bn.bias");
    result.weights.w[i] = parameters + conv, result.gradients.w[i] = gradients + conv;
    result.weights.scale[i] = parameters + scale, result.gradients.scale[i] = gradients + scale;
    result.weights.shift[i] = parameters + shift, result.gradients.shift[i] = gradients + shift;
    result.running_mean.pointer[i] = running + layout.running_of(own + ".bn.running_mean");
    result.running_variance.pointer[i] = running + layout.running_of(own + ".bn.running_var");
    const Linear layer = linear(own + ".linear", width, width);
    result.linear_w[i] = layer.w, result.linear_b[i] = layer.bias;
    result.linear_dw[i] = layer.dw, result.linear_db[i] = layer.dbias;
    const int64_t tokens = i == 0 ? shape.tokens(stage) : shape.keys(stage);
    result.maps[i] = take(own + ".conv", tokens * width);
    for (float** one : {&result.saved.mean[i], &result.saved.inverse_deviation[i],
                        &result.saved.factor[i], &result.saved.offset[i]})
      *one = take(own + ".bn", width, false);
    result.qkv[i] = take(own + ".linear", tokens * width);
  }
  result.o = take(name + ".attention", int64_t(shape.tokens(stage)) * width);
  result.log_sum_exp =
      take(name + ".log_sum_exp", int64_t(shape.stages[stage].heads) * shape.tokens(stage), false);
  return result;
}

Net::Body::Block Net::Body::block(int stage, const std::string& name, const float* x) {
  Block result;
  const int width = shape.stages[stage].width, hidden = shape.hidden(stage);
  const int64_t tokens = shape.tokens(stage);
  result.stage = stage;
  result.x = x;
  result.norm1 = norm(name + ".norm1", tokens, width);
  result.attention = attention(stage, name);
  result.out = linear(name + ".out", width, width);
  result.middle = take(name + ".out", tokens * width);
  result.norm2 = norm(name + ".norm2", tokens, width);
  result.fc1 = linear(name + ".fc1", width, hidden);
  result.before_gelu = take(name + ".fc1", tokens * hidden);
  result.hidden = take(name + ".gelu", tokens * hidden);
  result.fc2 = linear(name + ".fc2", hidden, width);
  result.y = take(name + ".fc2", tokens * width);
  return result;
}

Net::Body::Body(const NetShape& net_shape, int most_images)
    : shape(net_shape), layout(layout_of(net_shape)), most(most_images), labels(most, "labels") {
  for (float** flat : {&parameters, &gradients}) {
    arrays.emplace_back(layout.size, flat == &parameters ? "parameters" : "gradients");
    *flat = arrays.back().data();
    lab::check(cudaMemset(*flat, 0, layout.size * sizeof(float)));
  }
  arrays.emplace_back(layout.running_size, "running statistics");
  running = arrays.back().data();
  images = take("images", int64_t(shape.size) * shape.size * shape.in_channels);
  const float* x = images;
  for (int i = 0; i < kStages; ++i) {
    const StageShape& own = shape.stages[i];
    const std::string name = "stages." + std::to_string(i);
    const int64_t positions = int64_t(shape.side(i)) * shape.side(i);
    Stage stage;
    const Linear conv = linear(name + ".embed", 0, 0);
    stage.w = conv.w, stage.bias = conv.bias, stage.dw = conv.dw, stage.dbias = conv.dbias;
    stage.x = x;
    stage.embedded = take(name + ".embed", positions * own.width);
    stage.norm = norm(name + ".norm", positions, own.width);
    stage.y = shape.class_tokens(i) ? take(name + ".class_token", (positions + 1) * own.width)
                                    : stage.norm.y;
    x = stage.y;
    for (int b = 0; b < own.blocks; ++b) {
      stage.blocks.push_back(block(i, name + ".blocks." + std::to_string(b), x));
      x = stage.blocks.back().y;
    }
    stages.push_back(std::move(stage));
  }
  const int width = shape.stages.back().width;
  class_tokens = take("class_tokens", width);
  last_norm = norm("norm", 1, width);
  head = linear("head", width, shape.classes);
  logits = take("head", shape.classes);
  take_scratch();
}

void Net::Body::take_scratch() {
  int64_t wide = 0, hidden = 0, weights = 0, width = 0;
  for (int i = 0; i < kStages; ++i) {
    const int64_t own = shape.stages[i].width;
    wide = std::max({wide, shape.tokens(i) * own,
                     int64_t(shape.side(i - 1)) * shape.side(i - 1) * shape.channels_into(i)});
    hidden = std::max(hidden, int64_t(shape.tokens(i)) * shape.hidden(i));
    weights = std::max(weights, own * own);
    width = std::max(width, own);
  }
  dlogits = take("dlogits", shape.classes, false);
  for (float*& one : way) one = take("gradients on their way", wide, false);
  dmiddle = take("dmiddle", wide, false);
  dwide = take("dhidden", hidden, false);
  dnorm = take("dnorm", wide, false);
  d_o = take("do", wide, false);
  for (float*& one : dqkv) one = take("dqkv", wide, false);
  for (float*& one : dmaps) one = take("dmaps", wide, false);
  for (float*& one : dclass) one = take("dclass", width, false);
  arrays.emplace_back(4, "loss");
  loss = arrays.back().data();
  for (int i = 0; i < 3; ++i) {
    arrays.emplace_back(weights, "folded weights");
    folded_w[i] = arrays.back().data();
    arrays.emplace_back(width, "folded bias");
    folded_b[i] = arrays.back().data();
  }
}

// ---- Forward ------------------------------------------------------------------------------------

CrossShape Net::Body::cross(int stage) const {
  const StageShape& own = shape.stages[stage];
  // The scale is of the whole width, not of a head's.
  return {batch,     shape.tokens(stage),   shape.keys(stage),
          own.heads, own.width / own.heads, 1 / std::sqrt(float(own.width))};
}

ProjectionShape Net::Body::projection(int stage) const {
  return {batch, shape.side(stage), shape.side(stage), shape.stages[stage].width,
          shape.class_tokens(stage)};
}

namespace {

EmbedShape embed_shape(const NetShape& shape, int stage, int batch) {
  const StageShape& own = shape.stages[stage];
  const int side = shape.side(stage - 1);
  return {batch,     side,       side,       shape.channels_into(stage),
          own.width, own.kernel, own.stride, own.padding};
}

// The tokens of a sample behind the class token, and the class tokens alone.
Rows map_rows(int batch, int tokens, int class_tokens) {
  const int positions = tokens - class_tokens;
  return {batch * positions, positions, tokens, class_tokens};
}
Rows class_rows(int batch, int tokens) { return {batch, 1, tokens, 0}; }

void normalize(const float* x, const auto& norm, int rows, int channels) {
  layer_norm_forward(x, norm.scale, norm.shift, norm.y, norm.mean, norm.inverse_deviation, rows,
                     channels, nullptr);
}
void normalize_back(const float* x, const auto& norm, const float* dy, const float* added,
                    float* dx, int rows, int channels) {
  layer_norm_backward(x, norm.scale, norm.mean, norm.inverse_deviation, dy, added, dx, norm.dscale,
                      norm.dshift, rows, channels, nullptr);
}

}  // namespace

void Net::Body::embed(const Stage& stage, int index) {
  const EmbedShape conv = embed_shape(shape, index, batch);
  const int positions = conv.out_height() * conv.out_width(), width = conv.out_channels;
  embed_forward(stage.x, stage.w, stage.bias, stage.embedded, conv, nullptr);
  normalize(stage.embedded, stage.norm, batch * positions, width);
  if (shape.class_tokens(index))
    prepend_token(stage.norm.y, parameters + layout.of("class_token"), stage.y, batch, positions,
                  width, nullptr);
}

// block.attention.o of x, which is behind the first norm.
void Net::Body::attend(const Block& block, const float* x, bool training) {
  const Attention& own = block.attention;
  const ProjectionShape map = projection(block.stage);
  float* const none[3] = {};
  // (Outside training the batch's own statistics are computed, too, and then written over.)
  projection_forward(x, own.weights, own.maps, own.saved,
                     training ? own.running_mean.pointer : none,
                     training ? own.running_variance.pointer : none, map, nullptr);
  if (!training)
    batch_norm_from_running(own.weights, own.running_mean.pointer, own.running_variance.pointer,
                            own.saved, map.channels, nullptr);
  for (int i = 0; i < 3; ++i) {
    const int tokens = i == 0 ? map.queries() : map.keys(), width = map.channels;
    fold_batch_norm(own.linear_w[i], own.linear_b[i], own.saved.factor[i], own.saved.offset[i],
                    folded_w[i], folded_b[i], width, width, nullptr);
    linear_forward(own.maps[i], folded_w[i], folded_b[i], own.qkv[i],
                   map_rows(batch, tokens, map.class_tokens), width, width, {}, nullptr);
    // BatchNorm does not see class tokens: their layer is the one that is not folded.
    if (map.class_tokens)
      linear_forward(own.maps[i], own.linear_w[i], own.linear_b[i], own.qkv[i],
                     class_rows(batch, tokens), width, width, {}, nullptr);
  }
  cross_attention_forward(own.qkv[0], own.qkv[1], own.qkv[2], own.o, own.log_sum_exp,
                          cross(block.stage), nullptr);
}

void Net::Body::run(const Block& block, bool training) {
  const int width = block.out.in, count = rows(block.stage).count;
  normalize(block.x, block.norm1, count, width);
  attend(block, block.norm1.y, training);
  linear_forward(block.attention.o, block.out.w, block.out.bias, block.middle, rows(block.stage),
                 width, width, {nullptr, block.x}, nullptr);
  normalize(block.middle, block.norm2, count, width);
  linear_forward(block.norm2.y, block.fc1.w, block.fc1.bias, block.hidden, rows(block.stage),
                 block.fc1.in, block.fc1.out, {block.before_gelu, nullptr}, nullptr);
  linear_forward(block.hidden, block.fc2.w, block.fc2.bias, block.y, rows(block.stage),
                 block.fc2.in, block.fc2.out, {nullptr, block.middle}, nullptr);
}

// The class tokens alone reach the head.
void Net::Body::run_head() {
  const int tokens = shape.tokens(kStages - 1);
  const size_t row = sizeof(float) * head.in;
  lab::check(cudaMemcpy2DAsync(class_tokens, row, stages.back().blocks.back().y, row * tokens, row,
                               batch, cudaMemcpyDeviceToDevice, nullptr));
  normalize(class_tokens, last_norm, batch, head.in);
  linear_forward(last_norm.y, head.w, head.bias, logits, Rows::all(batch), head.in, head.out, {},
                 nullptr);
}

// ---- Backward -----------------------------------------------------------------------------------

namespace {

// Gradients of a layer whose input is x; dx may be null.
void linear_back(const float* dy, const float* x, const auto& layer, const Rows& rows, float* dx,
                 const float* before_gelu) {
  linear_backward_w(dy, x, layer.dw, layer.dbias, rows, layer.in, layer.out, nullptr, nullptr,
                    false, nullptr);
  LinearOptions options;
  options.before_gelu = const_cast<float*>(before_gelu);
  if (dx) linear_backward_x(dy, layer.w, dx, rows, layer.in, layer.out, options, nullptr);
}

}  // namespace

void Net::Body::attend_back(const Block& block, const float* gradient, float* dx) {
  const Attention& own = block.attention;
  const ProjectionShape map = projection(block.stage);
  const int width = map.channels;
  cross_attention_backward(own.qkv[0], own.qkv[1], own.qkv[2], own.o, own.log_sum_exp, gradient,
                           dqkv[0], dqkv[1], dqkv[2], cross(block.stage), nullptr);
  for (int i = 0; i < 3; ++i) {
    const int tokens = i == 0 ? map.queries() : map.keys();
    linear_backward_w(dqkv[i], own.maps[i], own.linear_dw[i], own.linear_db[i],
                      map_rows(batch, tokens, map.class_tokens), width, width, own.saved.factor[i],
                      own.saved.offset[i], false, nullptr);
    if (map.class_tokens)
      linear_backward_w(dqkv[i], own.maps[i], own.linear_dw[i], own.linear_db[i],
                        class_rows(batch, tokens), width, width, nullptr, nullptr, true, nullptr);
    linear_backward_x(dqkv[i], own.linear_w[i], dmaps[i], Rows::all(batch * tokens), width, width,
                      {}, nullptr);
  }
  projection_backward(block.norm1.y, own.maps, own.weights, own.saved, dmaps, dx, own.gradients,
                      map, nullptr);
}

void Net::Body::back(const Block& block, float* dy, float* dx) {
  const int width = block.out.in, count = rows(block.stage).count;
  linear_back(dy, block.hidden, block.fc2, rows(block.stage), dwide, block.before_gelu);
  linear_back(dwide, block.norm2.y, block.fc1, rows(block.stage), dnorm, nullptr);
  normalize_back(block.middle, block.norm2, dnorm, dy, dmiddle, count, width);
  linear_back(dmiddle, block.attention.o, block.out, rows(block.stage), d_o, nullptr);
  attend_back(block, d_o, dnorm);
  normalize_back(block.x, block.norm1, dnorm, dmiddle, dx, count, width);
}

// dy of the blocks' input → dx of the stage's; dx null: of the images.
void Net::Body::embed_back(const Stage& stage, int index, float* dy, float* dx) {
  const EmbedShape conv = embed_shape(shape, index, batch);
  const int positions = conv.out_height() * conv.out_width(), width = conv.out_channels;
  const float* dnormed = dy;
  if (shape.class_tokens(index)) {
    prepend_token_backward(dy, dmiddle, gradients + layout.of("class_token"), batch, positions,
                           width, nullptr);
    dnormed = dmiddle;
  }
  normalize_back(stage.embedded, stage.norm, dnormed, nullptr, dnorm, batch * positions, width);
  embed_backward(stage.x, stage.w, dnorm, dx, stage.dw, stage.dbias, conv, nullptr);
}

// ---- The net ------------------------------------------------------------------------------------

Net::Net(const NetShape& shape, int most) {
  if (most < 1) throw std::invalid_argument("CvT: must be made for at least one image");
  body_ = std::make_unique<Body>(shape, most);
}
Net::~Net() = default;

const NetShape& Net::shape() const { return body_->shape; }
const Layout& Net::layout() const { return body_->layout; }
int Net::most() const { return body_->most; }
double Net::bytes() const {
  double sum = 0;
  for (const Array& array : body_->arrays) sum += sizeof(float) * double(array.size());
  return sum;
}

namespace {

std::vector<float> fetched(const float* data, int64_t count) {
  std::vector<float> values(count);
  lab::check(cudaMemcpy(values.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost));
  return values;
}
void put(float* data, const std::vector<float>& values, int64_t count) {
  if (int64_t(values.size()) != count)
    throw std::invalid_argument("CvT: " + std::to_string(values.size()) + " values, not " +
                                std::to_string(count));
  lab::check(cudaMemcpy(data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice));
}

}  // namespace

void Net::set_parameters(const std::vector<float>& values) {
  put(body_->parameters, values, body_->layout.size);
}
void Net::set_running(const std::vector<float>& values) {
  put(body_->running, values, body_->layout.running_size);
}
std::vector<float> Net::parameters() const {
  return fetched(body_->parameters, body_->layout.size);
}
std::vector<float> Net::running() const {
  return fetched(body_->running, body_->layout.running_size);
}
std::vector<float> Net::gradients() const { return fetched(body_->gradients, body_->layout.size); }
float* Net::parameters_data() { return body_->parameters; }
const float* Net::gradients_data() { return body_->gradients; }

std::vector<float> Net::forward(const std::vector<float>& images, int batch, bool training) {
  Body& body = *body_;
  if (batch < 1 || batch > body.most)
    throw std::invalid_argument("CvT: a batch of " + std::to_string(batch) + ", made for 1 to " +
                                std::to_string(body.most));
  body.batch = batch;
  body.trained = training;
  put(body.images, images,
      int64_t(batch) * body.shape.size * body.shape.size * body.shape.in_channels);
  for (int i = 0; i < kStages; ++i) {
    body.embed(body.stages[i], i);
    for (const Body::Block& block : body.stages[i].blocks) body.run(block, training);
  }
  body.run_head();
  return fetched(body.logits, int64_t(batch) * body.shape.classes);
}

float Net::loss(const std::vector<int>& labels, float smoothing) {
  Body& body = *body_;
  if (int(labels.size()) != body.batch)
    throw std::invalid_argument("CvT: " + std::to_string(labels.size()) +
                                " labels for a batch of " + std::to_string(body.batch));
  for (const int label : labels)
    if (label < 0 || label >= body.shape.classes)
      throw std::invalid_argument("CvT: label " + std::to_string(label) + ", must be from 0 to " +
                                  std::to_string(body.shape.classes - 1));
  lab::check(cudaMemcpy(body.labels.data(), labels.data(), labels.size() * sizeof(int),
                        cudaMemcpyHostToDevice));
  cross_entropy(body.logits, body.labels.data(), body.loss, body.dlogits, body.batch,
                body.shape.classes, smoothing, nullptr);
  return fetched(body.loss, 1)[0];
}

void Net::backward() {
  Body& body = *body_;
  if (!body.trained) throw std::logic_error("CvT: backward without a forward pass in training");
  const int tokens = body.shape.tokens(kStages - 1);
  const size_t row = sizeof(float) * body.head.in;
  linear_back(body.dlogits, body.last_norm.y, body.head, Rows::all(body.batch), body.dclass[0],
              nullptr);
  normalize_back(body.class_tokens, body.last_norm, body.dclass[0], nullptr, body.dclass[1],
                 body.batch, body.head.in);
  float *dy = body.way[0], *dx = body.way[1];
  lab::check(cudaMemsetAsync(dy, 0, row * tokens * body.batch, nullptr));
  lab::check(cudaMemcpy2DAsync(dy, row * tokens, body.dclass[1], row, row, body.batch,
                               cudaMemcpyDeviceToDevice, nullptr));
  for (int i = kStages - 1; i >= 0; --i) {
    const Body::Stage& stage = body.stages[i];
    for (auto block = stage.blocks.rbegin(); block != stage.blocks.rend(); ++block) {
      body.back(*block, dy, dx);
      std::swap(dy, dx);
    }
    body.embed_back(stage, i, dy, i == 0 ? nullptr : dx);
    std::swap(dy, dx);
  }
}

std::string Net::first_not_finite() const {
  const Body& body = *body_;
  const auto is_finite = [](const float* data, int64_t count) {
    for (const float value : fetched(data, count))
      if (!std::isfinite(value)) return false;
    return true;
  };
  for (const Parameter& one : body.layout.parameters)
    if (!is_finite(body.parameters + one.first, one.count())) return "parameter " + one.name;
  for (const Body::Watched& one : body.watched)
    if (!is_finite(one.data, one.count * body.batch)) return one.name;
  return "";
}

}  // namespace training
