// Deformable attention: chapter 7's vectorized step, which keeps nothing from one launch to the
// next and is predicted to be faster than the persistent one where there are several heads; and
// chapter 19's gradients.
#include <source_location>

#include "../../chapters/07_persistent_deformable_attention/2_vectorized.cuh"
#include "../../chapters/19_deformable_gradients/kernels.h"
#include "call.h"

// The chapter's kernels.cu reports errors of its own checks by this function of the lab,
// which is no part of this library.
void lab::check(cudaError_t error, std::source_location) {
  operators::require(error, "gradients of deformable attention");
}

namespace operators {
namespace {

constexpr int kAlignment = 16;

DeformableShape shape_of(Call& call, const vision_tensor* value, const int64_t* level_sizes,
                         int levels, const vision_tensor* locations) {
  const Sizes of_value = {{"batch"}, {"pixels"}, {"heads"}, {"channels"}};
  const Sizes of_locations = {{"batch"},  {"queries"}, {"heads"},
                              {"levels"}, {"points"},  {"x and y", 2}};
  if (levels < 1 || levels > kMaxLevels || !level_sizes)
    call.refuse("level_sizes has " + std::to_string(levels) + " pairs, must be 1 to 5");
  DeformableShape shape;
  shape.batch = call.size("value", value, of_value, 0);
  shape.heads = call.size("value", value, of_value, 2);
  shape.channels = call.size("value", value, of_value, 3);
  shape.queries = call.size("locations", locations, of_locations, 1);
  shape.points = call.size("locations", locations, of_locations, 4);
  shape.levels = levels;
  for (int l = 0; l < levels; ++l) {
    const int64_t height = level_sizes[2 * l], width = level_sizes[2 * l + 1];
    if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX)
      call.refuse("level_sizes has " + std::to_string(height) + " x " + std::to_string(width) +
                  " as level " + std::to_string(l) + ", must be 1 to 2147483647 each");
    shape.level[l] = {int(height), int(width)};
  }
  require_deformable_shape(shape);
  return shape;
}
Sizes value_sizes(const DeformableShape& s) {
  return {{"batch", s.batch}, {"pixels", s.pixels()}, {"heads", s.heads}, {"channels", s.channels}};
}
Sizes weight_sizes(const DeformableShape& s) {
  return {{"batch", s.batch},
          {"queries", s.queries},
          {"heads", s.heads},
          {"levels", s.levels},
          {"points", s.points}};
}
Sizes location_sizes(const DeformableShape& s) {
  Sizes sizes = weight_sizes(s);
  sizes.push_back({"x and y", 2});
  return sizes;
}
Sizes out_sizes(const DeformableShape& s) {
  return {{"batch", s.batch},
          {"queries", s.queries},
          {"heads x channels", int64_t(s.heads) * s.channels}};
}

}  // namespace
}  // namespace operators

int vision_deformable_attention_forward(const vision_tensor* value, const int64_t* level_sizes,
                                        int levels, const vision_tensor* locations,
                                        const vision_tensor* weights, const vision_tensor* out,
                                        void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("deformable_attention_forward");
    const DeformableShape shape = shape_of(call, value, level_sizes, levels, locations);
    const half* v = call.input<half>("value", value, value_sizes(shape), kAlignment);
    const half* l = call.input<half>("locations", locations, location_sizes(shape), kAlignment);
    const half* w = call.input<half>("weights", weights, weight_sizes(shape), kAlignment);
    half* o = call.output<half>("out", out, out_sizes(shape), kAlignment);
    persistent_deformable_attention::vectorized(v, l, w, o, shape,
                                                static_cast<cudaStream_t>(stream));
  });
}

int vision_deformable_attention_backward(const vision_tensor* value, const int64_t* level_sizes,
                                         int levels, const vision_tensor* locations,
                                         const vision_tensor* weights, const vision_tensor* d_out,
                                         const vision_tensor* d_value,
                                         const vision_tensor* d_locations,
                                         const vision_tensor* d_weights, int deterministic,
                                         void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("deformable_attention_backward");
    const DeformableShape shape = shape_of(call, value, level_sizes, levels, locations);
    const half* v = call.input<half>("value", value, value_sizes(shape), kAlignment);
    const half* l = call.input<half>("locations", locations, location_sizes(shape), kAlignment);
    const half* w = call.input<half>("weights", weights, weight_sizes(shape), kAlignment);
    const half* g = call.input<half>("d_out", d_out, out_sizes(shape), kAlignment);
    float* dv = call.output<float>("d_value", d_value, value_sizes(shape), kAlignment);
    float* dl = call.output<float>("d_locations", d_locations, location_sizes(shape), kAlignment);
    float* dw = call.output<float>("d_weights", d_weights, weight_sizes(shape), kAlignment);
    const std::string wanted = deterministic ? "sorted" : "privatized";
    for (const lab::deformable::GradientStep& step : lab::deformable::gradient_steps())
      if (step.name == wanted)
        return step.function(v, l, w, g, dv, dl, dw, shape, static_cast<cudaStream_t>(stream));
    throw std::runtime_error("deformable_attention_backward: chapter 19 has no step " + wanted);
  });
}
