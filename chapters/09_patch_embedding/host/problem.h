// Problems of patch embedding, their memory, and a step's type.
#pragma once

#include <functional>

#include "../../../common/lab.cuh"
#include "../../../common/lab/images.h"
#include "../shape.h"

namespace patch_embedding {

// ---- Problems -----------------------------------------------------------------------------------

struct Problem {
  Shape shape;
  std::vector<half> image, weight, bias, class_token, position;  // as Shape has them
  std::string source;                                            // for people
  lab::Image photo;                                              // image 0, as it looks
};

// The photo's centred square as image 0, its mirror image as image 1, and so on in turn, each colour
// standardized as networks trained on ImageNet have it. Weights are seeded and normal, so that tokens
// are about 1 in size; biases and positions are small beside them.
Problem photo_problem(const lab::Image& photo, int size, int batch, int channels, uint64_t seed);

// Seeded normal pixels in place of a photo's, height x width.
Problem random_problem(const Shape& shape, uint64_t seed);

// The tokens of a part by the reference, [images, 1 + patches, channels] of it.
std::vector<double> expected_tokens(const Problem& problem, const Part& part);
// What a step wrote of that part, in the same order. tokens: all of Shape.
std::vector<half> tokens_in_part(const half* tokens, const Shape& shape, const Part& part);
// The rounding of a sum of 769 terms in fp32, and of its result to fp16.
lab::Tolerance tokens_tolerance(const std::vector<double>& expected);
std::vector<int64_t> part_dims(const Part& part);

// Beside the photo, how much each patch's token is like that of one patch (cosine, positions taken off):
// white is the same. Random filters keep what is alike alike.
lab::Image draw_likeness(const Problem& problem, const half* tokens, int patch);

// ---- Memory that copies reach by themselves -----------------------------------------------------

// Pinned host memory. Throws LackError where there is not enough.
class Pinned {
 public:
  explicit Pinned(size_t values);
  explicit Pinned(const std::vector<half>& values);
  Pinned(Pinned&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Pinned& operator=(Pinned&&) = delete;
  ~Pinned();
  half* data() { return data_; }
  const half* data() const { return data_; }
  size_t size() const { return size_; }
  void fill_nan();

 private:
  half* data_ = nullptr;
  size_t size_ = 0;
};

// What all steps use. `patches` and `answers` have room for the largest part that is computed.
struct HostArrays {
  Pinned image, weight, bias, class_token, position, tokens, patches, answers;
  HostArrays(const Problem& problem, const Part& largest);
};

// ---- Steps --------------------------------------------------------------------------------------

// prepare() takes what a step needs on the device and returns what runs it on that part, from host
// memory to host memory; all is over when that returns.
struct Step {
  std::string name;
  std::function<std::function<void()>(HostArrays&, const Shape&, const Part&)> prepare;
  std::function<Traffic(const Shape&, const Part&)> traffic;
  bool whole = false;  // computes all tokens; else a part is run
};

}  // namespace patch_embedding
