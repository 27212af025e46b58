// Linear layers and the MLP of two of them: chapter 11's epilogue step, in fp16.
#include "../../chapters/11_mlp/5_epilogue.cuh"
#include "call.h"

namespace operators {
namespace {

constexpr int kAlignment = 16;

}  // namespace
}  // namespace operators

int vision_linear(const vision_tensor* x, const vision_tensor* weight, const vision_tensor* bias,
                  const vision_tensor* residual, const vision_tensor* y, int gelu, void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("linear");
    const Sizes of_x = {{"rows"}, {"in"}}, of_weight = {{"out"}, {"in"}};
    const ProductShape shape{call.size("x", x, of_x, 0), call.size("weight", weight, of_weight, 0),
                             call.size("x", x, of_x, 1), gelu != 0};
    const Sizes of_y = {{"rows", shape.m}, {"out", shape.n}};
    const half* x_ = call.input<half>("x", x, {{"rows", shape.m}, {"in", shape.k}}, kAlignment);
    const half* weight_ =
        call.input<half>("weight", weight, {{"out", shape.n}, {"in", shape.k}}, kAlignment);
    const half* bias_ = call.optional_input<half>("bias", bias, {{"out", shape.n}});
    const half* residual_ = call.optional_input<half>("residual", residual, of_y);
    half* y_ = call.output<half>("y", y, of_y);
    mlp::epilogue<half>(x_, weight_, bias_, residual_, y_, shape,
                        static_cast<cudaStream_t>(stream));
  });
}

int vision_mlp(const vision_tensor* x, const vision_tensor* w1, const vision_tensor* b1,
               const vision_tensor* w2, const vision_tensor* b2, const vision_tensor* residual,
               const vision_tensor* y, void* stream) {
  using namespace operators;
  return guarded([&] {
    Call call("mlp");
    const Sizes of_x = {{"rows"}, {"in"}}, of_w1 = {{"hidden"}, {"in"}},
                of_w2 = {{"out"}, {"hidden"}};
    const int rows = call.size("x", x, of_x, 0), in = call.size("x", x, of_x, 1);
    const int hidden = call.size("w1", w1, of_w1, 0), out = call.size("w2", w2, of_w2, 0);
    const Sizes of_y = {{"rows", rows}, {"out", out}};
    const half* x_ = call.input<half>("x", x, {{"rows", rows}, {"in", in}}, kAlignment);
    const half* w1_ = call.input<half>("w1", w1, {{"hidden", hidden}, {"in", in}}, kAlignment);
    const half* b1_ = call.optional_input<half>("b1", b1, {{"hidden", hidden}});
    const half* w2_ = call.input<half>("w2", w2, {{"out", out}, {"hidden", hidden}}, kAlignment);
    const half* b2_ = call.optional_input<half>("b2", b2, {{"out", out}});
    const half* residual_ = call.optional_input<half>("residual", residual, of_y);
    half* y_ = call.output<half>("y", y, of_y);
    const auto on = static_cast<cudaStream_t>(stream);
    const ProductShape first{rows, hidden, in, true}, second{rows, out, hidden, false};
    require_shape(first);
    require_shape(second);
    require_pieces(first, x_, w1_, 8);
    require_pieces(second, x_, w2_, 8);
    const Scratch scratch(first.y_elements() * int64_t(sizeof(half)), on);
    half* const hidden_ = scratch.as<half>();
    mlp::epilogue<half>(x_, w1_, b1_, nullptr, hidden_, first, on);
    mlp::epilogue<half>(hidden_, w2_, b2_, residual_, y_, second, on);
  });
}
