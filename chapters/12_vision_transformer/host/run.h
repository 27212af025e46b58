// A net on the device: its stages in order, each a launch of one component, and the arrays between
// them in one planned allocation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../../common/lab.cuh"
#include "../components.h"
#include "parameters.h"
#include "plan.h"
#include "reference.h"

namespace vision_transformer {

struct Stage {
  enum class Kind {
    kEmbed,
    kNorm,
    kLinear,
    kQkv,
    kSplit,
    kAttention,
    kInside,
    kMerge,
    kClassTokens
  };
  Kind kind;
  std::string component;           // "qkv": the table's line
  int block;                       // -1: none
  std::vector<int> reads, writes;  // numbers of buffers
  // Of products, those of kQkv and kInside too: the shape. Of kLinear a second buffer that is read is a
  // residual.
  LinearShape linear = {};
  // Of norms and products, on the device and on the host.
  const half *weight = nullptr, *bias = nullptr;
  const std::vector<float>*host_weight = nullptr, *host_bias = nullptr;

  // "blocks.0.qkv"
  std::string name() const {
    return (block < 0 ? "" : "blocks." + std::to_string(block) + ".") + component;
  }
};

// One launch of a stage: the table's line that it belongs to, and whether the stage has others.
struct StagePart {
  std::string line;  // "qkv", "fc1: product", "softmax"
  std::function<void(cudaStream_t stream)> launch;
  bool one_of_several = false;
};

// Bytes of device memory that a net needs, before anything is taken.
struct NetMemory {
  double weights = 0, activations = 0, scratch = 0;
  double all() const { return weights + activations + scratch; }
};
NetMemory net_memory(const NetShape& shape, const Components& components);

class NetRun {
 public:
  using Planner = std::function<MemoryPlan(std::vector<Buffer>& buffers)>;
  // The parameters must outlive this. Takes device memory; throws lab::LackError where there is not
  // enough. plan: tests plant mistakes in it.
  NetRun(const NetShape& shape, const HostParameters& parameters, const Components& components,
         const Planner& plan = plan_memory);

  const NetShape& shape() const { return shape_; }
  const std::vector<Stage>& stages() const { return stages_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  const MemoryPlan& plan() const { return plan_; }
  const Components& components() const { return components_; }

  // image: [batch, 3, size, size], rounded to fp16 here.
  void set_image(const std::vector<float>& image);
  void launch(const Stage& stage, cudaStream_t stream);
  // What a stage launches, one part after the other; scores as AttentionPart has them. The run and
  // the stage must outlive it.
  std::vector<StagePart> parts(const Stage& stage, float* scores);
  // How many scores that are; 1 where no launch needs them.
  size_t stored_scores() const;
  void forward(cudaStream_t stream);
  // forward(), and each array is filled with NaN as soon as nothing needs it any more: who reads it
  // after that has NaN in the result.
  void forward_and_spoil();
  std::vector<half> buffer(int number) const;
  std::vector<half> logits() const { return buffer(int(buffers_.size()) - 1); }
  void spoil(int number);  // that buffer becomes NaN

  AttentionShape attention_shape() const;
  HeadsShape heads_shape() const;

 private:
  void launch_linear(LinearFunction function, const Stage& stage, cudaStream_t stream);
  half* data(int number) { return arena_.data() + buffers_[number].offset / sizeof(half); }

  NetShape shape_;
  Components components_;
  lab::DeviceArray<half> weights_;
  Parameters<const half*> parameters_;
  std::vector<Stage> stages_;
  std::vector<Buffer> buffers_;
  MemoryPlan plan_;
  lab::DeviceArray<half> arena_;
};

reference::Doubles as_doubles(const std::vector<half>& values);

// What a stage must have written, from what it read, and how far off it may be. Of large products
// and attentions every n-th row or matrix is computed: `every`.
struct StageExpected {
  // As many as the stage writes; of kQkv one, [batch, tokens, 3, heads, head_dim].
  std::vector<reference::Doubles> arrays;
  lab::Tolerance tolerance;
  int every = 1;     // of parts, the first one computed
  int64_t part = 0;  // elements of a part; 0: all at once
};
StageExpected expected_stage(const NetRun& run, const HostParameters& parameters,
                             const Stage& stage, const std::vector<std::vector<half>>& inputs);
// The stage's arrays on the device with what is expected of them.
lab::Comparison compare_stage(const NetRun& run, const HostParameters& parameters,
                              const Stage& stage);

// How far off an element of x weightᵀ + bias, in fp32, may be before it is rounded: x [rows, k],
// weight [n, k].
double product_error(const reference::Doubles& x, const std::vector<float>& weight, int k);
// How far off an element of attention may be whose q, k and v are products of x in fp32 (before it is
// rounded): x [rows, width], weight [3 width, width]; q, k, v by heads, as they should be.
double inside_error(const reference::Doubles& x, const std::vector<float>& weight,
                    const reference::Doubles& q, const reference::Doubles& k,
                    const reference::Doubles& v, const HeadsShape& heads);

// How far logits may be off: rounding each stored number to fp16 makes the difference between two
// references, and a device's is another draw of the same errors. 8 times the difference's root mean
// square is allowed of one element, 3 times its norm of all.
lab::Tolerance logits_tolerance(const reference::Doubles& exact, const reference::Doubles& rounded);

}  // namespace vision_transformer
