// CvT's convolutional projection, forward and back, and BatchNorm folded into the layer behind it:
// chapter 16's fused steps.
#include "../../chapters/16_cvt/kernels/conv_projection.h"
#include "call.h"

namespace operators {
namespace {

cvt::ProjectionShape shape_of(Call& call, const vision_tensor* x, int height, int width) {
  const Sizes any = {{"batch"}, {"tokens"}, {"channels"}};
  const int batch = call.size("x", x, any, 0), tokens = call.size("x", x, any, 1);
  if (height < 1 || width < 1 || height > 4096 || width > 4096)
    call.refuse("height " + std::to_string(height) + " and width " + std::to_string(width) +
                " must be 1 to 4096");
  if (tokens != height * width && tokens != height * width + 1)
    call.refuse("x has " + std::to_string(tokens) + " tokens, must have " +
                std::to_string(height * width) + " for a map of " + std::to_string(height) + " x " +
                std::to_string(width) + ", or one more with a class token");
  return {batch, height, width, call.size("x", x, any, 2), tokens - height * width};
}
Sizes tokens_of(const cvt::ProjectionShape& s, int which) {
  return {{"batch", s.batch},
          {"tokens", which == cvt::kQuery ? s.queries() : s.keys()},
          {"channels", s.channels}};
}

// The three arrays [...] of one [3, ...].
template <class T>
void split(T* all, int64_t of_each, T* (&parts)[3]) {
  for (int i = 0; i < 3; ++i) parts[i] = all ? all + i * of_each : nullptr;
}

template <class T>
void forward(Call& call, const vision_tensor* x, const vision_tensor* w, const vision_tensor* scale,
             const vision_tensor* shift, const vision_tensor* running_mean,
             const vision_tensor* running_variance, const vision_tensor* const (&maps)[3],
             const vision_tensor* const (&statistics)[4], const cvt::ProjectionShape& s,
             bool training, cudaStream_t stream) {
  const Sizes of_w = {{"projections", 3}, {"channels", s.channels}, {"kernel", 3}, {"kernel", 3}};
  const Sizes each = {{"projections", 3}, {"channels", s.channels}};
  conv_projection::ForwardArguments<T> a{};
  a.x = call.input<T>("x", x, tokens_of(s, cvt::kQuery));
  split(call.input<float>("w", w, of_w), 9 * s.channels, a.weights.w);
  split(call.input<float>("scale", scale, each), s.channels, a.weights.scale);
  split(call.input<float>("shift", shift, each), s.channels, a.weights.shift);
  const char* const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) a.maps[i] = call.output<T>(names[i], maps[i], tokens_of(s, i));
  split(call.output<float>("mean", statistics[0], each), s.channels, a.saved.mean);
  split(call.output<float>("inverse_deviation", statistics[1], each), s.channels,
        a.saved.inverse_deviation);
  split(call.output<float>("factor", statistics[2], each), s.channels, a.saved.factor);
  split(call.output<float>("offset", statistics[3], each), s.channels, a.saved.offset);
  const auto& step = conv_projection::forward_steps<T>().back();
  if (training) {
    split(call.optional_output<float>("running_mean", running_mean, each), s.channels,
          a.running_mean);
    split(call.optional_output<float>("running_variance", running_variance, each), s.channels,
          a.running_variance);
    step.run(a, s, stream);
    return;
  }
  const float *mean[3], *variance[3];
  split(call.input<float>("running_mean", running_mean, each), s.channels, mean);
  split(call.input<float>("running_variance", running_variance, each), s.channels, variance);
  // (The batch's own statistics are computed, too, and then written over.)
  step.run(a, s, stream);
  cvt::batch_norm_from_running(a.weights, mean, variance, a.saved, s.channels, stream);
}

struct BackwardTensors {
  const vision_tensor *x, *w, *maps[3], *mean, *inverse_deviation, *factor, *d_maps[3], *dx, *d_w,
      *d_scale, *d_shift;
};
template <class T>
void backward(Call& call, const BackwardTensors& t, const cvt::ProjectionShape& s, bool training,
              cudaStream_t stream) {
  const Sizes of_w = {{"projections", 3}, {"channels", s.channels}, {"kernel", 3}, {"kernel", 3}};
  const Sizes each = {{"projections", 3}, {"channels", s.channels}};
  conv_projection::BackwardArguments<T> a{};
  a.constant = !training;
  a.x = call.input<T>("x", t.x, tokens_of(s, cvt::kQuery));
  split(call.input<float>("w", t.w, of_w), 9 * s.channels, a.weights.w);
  const char* const names[] = {"q", "k", "v"};
  const char* const gradients[] = {"d_q", "d_k", "d_v"};
  for (int i = 0; i < 3; ++i) {
    a.maps[i] = call.input<T>(names[i], t.maps[i], tokens_of(s, i));
    a.dmaps[i] = call.input<T>(gradients[i], t.d_maps[i], tokens_of(s, i));
  }
  // (What forward wrote, which backward only reads.)
  const auto saved = [&](const char* name, const vision_tensor* tensor) {
    return const_cast<float*>(call.input<float>(name, tensor, each));
  };
  split(saved("mean", t.mean), s.channels, a.saved.mean);
  split(saved("inverse_deviation", t.inverse_deviation), s.channels, a.saved.inverse_deviation);
  split(saved("factor", t.factor), s.channels, a.saved.factor);
  a.dx = call.output<T>("dx", t.dx, tokens_of(s, cvt::kQuery));
  split(call.output<float>("d_w", t.d_w, of_w), 9 * s.channels, a.gradients.w);
  split(call.output<float>("d_scale", t.d_scale, each), s.channels, a.gradients.scale);
  split(call.output<float>("d_shift", t.d_shift, each), s.channels, a.gradients.shift);
  conv_projection::backward_steps<T>().back().run(a, s, stream);
}

}  // namespace
}  // namespace operators

int vision_projection_forward(const vision_tensor* x, const vision_tensor* w,
                              const vision_tensor* scale, const vision_tensor* shift,
                              const vision_tensor* running_mean,
                              const vision_tensor* running_variance, const vision_tensor* q,
                              const vision_tensor* k, const vision_tensor* v,
                              const vision_tensor* mean, const vision_tensor* inverse_deviation,
                              const vision_tensor* factor, const vision_tensor* offset, int height,
                              int width, int training, void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("projection_forward");
    const auto run = call.float_type("x", x) == VISION_FLOAT16 ? forward<half> : forward<float>;
    run(call, x, w, scale, shift, running_mean, running_variance, {q, k, v},
        {mean, inverse_deviation, factor, offset}, shape_of(call, x, height, width), training != 0,
        static_cast<cudaStream_t>(stream));
  });
}

int vision_projection_backward(const vision_tensor* x, const vision_tensor* w,
                               const vision_tensor* q, const vision_tensor* k,
                               const vision_tensor* v, const vision_tensor* mean,
                               const vision_tensor* inverse_deviation, const vision_tensor* factor,
                               const vision_tensor* d_q, const vision_tensor* d_k,
                               const vision_tensor* d_v, const vision_tensor* dx,
                               const vision_tensor* d_w, const vision_tensor* d_scale,
                               const vision_tensor* d_shift, int height, int width, int training,
                               void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("projection_backward");
    const auto run = call.float_type("x", x) == VISION_FLOAT16 ? backward<half> : backward<float>;
    run(call,
        {x,
         w,
         {q, k, v},
         mean,
         inverse_deviation,
         factor,
         {d_q, d_k, d_v},
         dx,
         d_w,
         d_scale,
         d_shift},
        shape_of(call, x, height, width), training != 0, static_cast<cudaStream_t>(stream));
  });
}

int vision_fold_batch_norm(const vision_tensor* weight, const vision_tensor* bias,
                           const vision_tensor* factor, const vision_tensor* offset,
                           const vision_tensor* folded_weight, const vision_tensor* folded_bias,
                           void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("fold_batch_norm");
    const Sizes any = {{"out"}, {"in"}};
    const int out = call.size("weight", weight, any, 0), in = call.size("weight", weight, any, 1);
    const Sizes of_weight = {{"out", out}, {"in", in}}, of_out = {{"out", out}},
                of_in = {{"in", in}};
    const float* const w = call.input<float>("weight", weight, of_weight);
    const float* const b = call.optional_input<float>("bias", bias, of_out);
    const float* const f = call.input<float>("factor", factor, of_in);
    const float* const o = call.input<float>("offset", offset, of_in);
    cvt::fold_batch_norm(w, b, f, o, call.output<float>("folded_weight", folded_weight, of_weight),
                         call.output<float>("folded_bias", folded_bias, of_out), in, out,
                         static_cast<cudaStream_t>(stream));
  });
}
