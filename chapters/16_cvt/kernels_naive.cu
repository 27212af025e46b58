// The simple steps beside the operations, compiled once for the program and all tests.
#include "dense/naive.cuh"

namespace naive_steps {

void linear_forward(const float* x, const float* w, const float* bias, float* y, int rows, int in,
                    int out, cudaStream_t stream) {
  product(x, {in, 1, 0, 0}, w, {in, 1, 0, 0}, y, {out, 1, 0, 0}, {rows, out, in, 1}, stream, 1,
          bias);
}
void linear_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                     float* dbias, int rows, int in, int out, cudaStream_t stream) {
  product(dy, {out, 1, 0, 0}, w, {1, in, 0, 0}, dx, {in, 1, 0, 0}, {rows, in, out, 1}, stream);
  product(dy, {1, out, 0, 0}, x, {1, in, 0, 0}, dw, {in, 1, 0, 0}, {out, in, rows, 1}, stream);
  column_sums(dy, nullptr, nullptr, nullptr, dbias, rows, out, stream);
}

void layer_norm_forward(const float* x, const float* scale, const float* shift, float* y,
                        float* mean, float* inverse_deviation, int rows, int channels,
                        cudaStream_t stream) {
  norm_kernel<<<divide_up(rows, kThreads), kThreads, 0, stream>>>(
      x, scale, shift, y, mean, inverse_deviation, rows, channels);
  require_cuda("naive layer norm");
}
void layer_norm_backward(const float* x, const float* scale, const float* mean,
                         const float* inverse_deviation, const float* dy, float* dx, float* dscale,
                         float* dshift, int rows, int channels, cudaStream_t stream) {
  norm_back_kernel<<<divide_up(rows, kThreads), kThreads, 0, stream>>>(
      x, scale, mean, inverse_deviation, dy, dx, rows, channels);
  require_cuda("naive layer norm, back");
  column_sums(dy, x, mean, inverse_deviation, dscale, rows, channels, stream);
  column_sums(dy, nullptr, nullptr, nullptr, dshift, rows, channels, stream);
}

namespace {
// How q and k lie as operands along head_dim or across it, and scores.
struct AttentionStrides {
  Strides q, k, across_q, across_k, scores, transposed;
  explicit AttentionStrides(const CrossShape& s) {
    const int64_t width = int64_t(s.heads) * s.head_dim, of_head = int64_t(s.queries) * s.keys;
    q = {width, 1, s.queries * width, s.head_dim};
    k = {width, 1, s.keys * width, s.head_dim};
    across_q = {1, width, q.sample, q.head}, across_k = {1, width, k.sample, k.head};
    scores = {s.keys, 1, s.heads * of_head, of_head};
    transposed = {1, s.keys, scores.sample, scores.head};
  }
};
}  // namespace

void attention_forward(const float* q, const float* k, const float* v, float* o, float* log_sum_exp,
                       const CrossShape& s, cudaStream_t stream) {
  const AttentionStrides strides(s);
  const int64_t rows = int64_t(s.batch) * s.heads * s.queries;
  const Scratch<float> scores(rows * s.keys, "naive attention", stream);
  product(q, strides.q, k, strides.k, scores.data(), strides.scores,
          {s.queries, s.keys, s.head_dim, s.heads}, stream, s.batch, nullptr, s.scale);
  softmax_kernel<<<divide_up(rows, kThreads), kThreads, 0, stream>>>(scores.data(), log_sum_exp,
                                                                     rows, s.keys);
  require_cuda("naive attention");
  product(scores.data(), strides.scores, v, strides.across_k, o, strides.q,
          {s.queries, s.head_dim, s.keys, s.heads}, stream, s.batch);
}

void attention_backward(const float* q, const float* k, const float* v, const float*,
                        const float* log_sum_exp, const float* d_o, float* dq, float* dk, float* dv,
                        const CrossShape& s, cudaStream_t stream) {
  const AttentionStrides strides(s);
  const int64_t rows = int64_t(s.batch) * s.heads * s.queries;
  const Scratch<float> weights(rows * s.keys, "naive attention, back", stream);
  const Scratch<float> gradients(rows * s.keys, "naive attention, back", stream);
  float *const p = weights.data(), *const ds = gradients.data();
  const NaiveSize of_scores{s.queries, s.keys, s.head_dim, s.heads};
  const NaiveSize of_keys{s.keys, s.head_dim, s.queries, s.heads};
  product(q, strides.q, k, strides.k, p, strides.scores, of_scores, stream, s.batch, nullptr,
          s.scale);
  weights_kernel<<<divide_up(rows * s.keys, kThreads), kThreads, 0, stream>>>(
      p, log_sum_exp, rows * s.keys, s.keys);
  product(d_o, strides.q, v, strides.k, ds, strides.scores, of_scores, stream, s.batch);
  product(p, strides.transposed, d_o, strides.across_q, dv, strides.k, of_keys, stream, s.batch);
  score_gradients_kernel<<<divide_up(rows, kThreads), kThreads, 0, stream>>>(p, ds, rows, s.keys);
  require_cuda("naive attention, back");
  product(ds, strides.transposed, q, strides.across_q, dk, strides.k, of_keys, stream, s.batch,
          nullptr, s.scale);
  product(ds, strides.scores, k, strides.across_k, dq, strides.q,
          {s.queries, s.head_dim, s.keys, s.heads}, stream, s.batch, nullptr, s.scale);
}

namespace {
using token_embedding::positions_of;

void gather_patches(const float* x, float* patches, const EmbedShape& s, cudaStream_t stream) {
  const int depth = s.kernel * s.kernel * s.in_channels;
  const int64_t count = int64_t(positions_of(s)) * depth;
  patches_kernel<<<divide_up(count, kThreads), kThreads, 0, stream>>>(
      token_embedding::patches(x, s), patches, count, depth);
  require_cuda("patches");
}
}  // namespace

void embed_forward(const float* x, const float* w, const float* bias, float* y, const EmbedShape& s,
                   cudaStream_t stream) {
  const int depth = s.kernel * s.kernel * s.in_channels, positions = positions_of(s);
  const Scratch<float> patches(int64_t(positions) * depth, "patches", stream);
  const Scratch<float> packed(int64_t(s.out_channels) * depth, "packed weights", stream);
  token_embedding::pack_weights(w, packed.data(), s, "packed weights", stream);
  gather_patches(x, patches.data(), s, stream);
  cvt::linear_forward(patches.data(), packed.data(), bias, y, Rows::all(positions), depth,
                      s.out_channels, {}, stream);
}

void embed_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                    float* dbias, const EmbedShape& s, cudaStream_t stream) {
  const int taps = s.kernel * s.kernel, depth = taps * s.in_channels, positions = positions_of(s);
  const Scratch<float> patches(int64_t(positions) * depth, "patches", stream);
  const Scratch<float> packed(int64_t(s.out_channels) * depth, "packed weights", stream);
  gather_patches(x, patches.data(), s, stream);
  const Rows rows = Rows::all(positions);
  cvt::linear_backward_w(dy, patches.data(), packed.data(), dbias, rows, depth, s.out_channels,
                         nullptr, nullptr, false, stream);
  // Back to [out, in, taps]: what packs weights, with taps and channels in each other's place.
  token_embedding::pack_weights_kernel<<<divide_up(int64_t(s.out_channels) * depth, kThreads),
                                         kThreads, 0, stream>>>(
      packed.data(), dw, int64_t(s.out_channels) * depth, taps, s.in_channels);
  if (!dx) return;
  token_embedding::pack_weights(w, packed.data(), s, "packed weights", stream);
  cvt::linear_backward_x(dy, packed.data(), patches.data(), rows, depth, s.out_channels, {},
                         stream);
  const int64_t count = int64_t(s.batch) * s.height * s.width * s.in_channels;
  unfold_kernel<<<divide_up(count, kThreads), kThreads, 0, stream>>>(patches.data(), dx, count, s,
                                                                     s.out_height(), s.out_width());
  require_cuda("gradients of patches");
}

}  // namespace naive_steps
