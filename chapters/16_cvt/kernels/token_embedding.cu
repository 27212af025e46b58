// The convolutional token embedding, for the program, the tests and chapter 18.
#include "../operations/token_embedding/embed.cuh"
#include "../operations/token_embedding/patches.cuh"

namespace cvt {

using namespace linear_layers;
using namespace token_embedding;

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
