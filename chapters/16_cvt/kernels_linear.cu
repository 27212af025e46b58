// Linear layers and the convolutional token embedding, compiled once for the program, the tests and chapter 18.
#include "operations/token_embedding/embed.cuh"
#include "operations/token_embedding/patches.cuh"

namespace cvt {

using namespace linear_layers;
using namespace token_embedding;

void linear_forward(const float* x, const float* w, const float* bias, float* y, const Rows& rows,
                    int in, int out, const LinearOptions& options, cudaStream_t stream) {
  const std::string what = require_linear(rows, in, out, {x, w, y});
  const LinearFinish finish{y,
                            bias,
                            options.before_gelu,
                            nullptr,
                            options.added,
                            rows,
                            out,
                            all_whole(out, {bias, y, options.before_gelu, options.added})};
  launch_product<Along, Along>(matrix(x, rows, in), matrix(w, Rows::all(out), in), finish,
                               rows.count, out, in, 1, what, stream);
}

void linear_backward_x(const float* dy, const float* w, float* dx, const Rows& rows, int in,
                       int out, const LinearOptions& options, cudaStream_t stream) {
  const std::string what = require_linear(rows, in, out, {dy, w, dx});
  const LinearFinish finish{dx,
                            nullptr,
                            nullptr,
                            options.before_gelu,
                            options.added,
                            rows,
                            in,
                            all_whole(in, {dx, options.before_gelu, options.added})};
  launch_product<Along, Across>(matrix(dy, rows, out), matrix(w, Rows::all(out), in), finish,
                                rows.count, in, out, 1, what, stream);
}

void linear_backward_w(const float* dy, const float* x, float* dw, float* dbias, const Rows& rows,
                       int in, int out, const float* factor, const float* offset, bool add,
                       cudaStream_t stream) {
  const std::string what = require_linear(rows, in, out, {dy, x, dw});
  require_that(!factor == !offset, what, "factor and offset must be there or null together");
  weight_gradient(matrix(dy, rows, out), matrix(x, rows, in), out, in, rows.count,
                  {dw, dbias, factor, offset, add, in, 1}, what, stream);
}

void embed_forward(const float* x, const float* w, const float* bias, float* y,
                   const EmbedShape& shape, cudaStream_t stream) {
  const std::string what = require_embed(shape, {x, w, bias, y});
  const int depth = shape.in_channels * shape.kernel * shape.kernel, out = shape.out_channels;
  const Scratch<float> packed(int64_t(out) * depth, what, stream);
  pack_weights(w, packed.data(), shape, what, stream);
  const int positions = positions_of(shape);
  const LinearFinish finish{
      y, bias, nullptr, nullptr, nullptr, Rows::all(positions), out, all_whole(out, {bias, y})};
  launch_product<Along, Along>(patches(x, shape), matrix(packed.data(), Rows::all(out), depth),
                               finish, positions, out, depth, 1, what, stream);
}

void embed_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                    float* dbias, const EmbedShape& shape, cudaStream_t stream) {
  const std::string what = require_embed(shape, {x, w, dy, dw, dbias});
  const int taps = shape.kernel * shape.kernel, depth = shape.in_channels * taps;
  const int positions = positions_of(shape);
  weight_gradient(matrix(dy, Rows::all(positions), shape.out_channels), patches(x, shape),
                  shape.out_channels, depth, positions,
                  {dw, dbias, nullptr, nullptr, false, shape.in_channels, taps}, what, stream);
  if (!dx) return;
  const Scratch<float> packed(int64_t(shape.out_channels) * depth, what, stream);
  pack_weights(w, packed.data(), shape, what, stream);
  embed_backward_x(dy, packed.data(), dx, shape, what, stream);
}

}  // namespace cvt
