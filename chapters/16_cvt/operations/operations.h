// The operations of a Convolutional vision Transformer (Wu et al. 2021, "CvT: Introducing
// Convolutions to Vision Transformers"), forward and backward, as functions of the host that launch
// on a stream.
//
// Arrays are fp32 on the device, contiguous, from multiples of 16 bytes; products on tensor cores
// take tf32 and add up in fp32. Maps are stored as tokens, [batch, height, width, channels], so
// that a map is a sequence of height * width tokens without being moved. No function keeps memory:
// scratch is allocated and freed on the stream. All give the same bits twice: no sum is made by
// atomics on floats.
//
// Each throws std::invalid_argument naming shape and limit for what it cannot do,
// std::runtime_error where CUDA refuses.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "shapes.h"

namespace cvt {

// ---- Convolutional token embedding --------------------------------------------------------------

// x [batch, height, width, in_channels], w [out_channels, in_channels, kernel, kernel], bias
// [out_channels] → y [batch, out_height, out_width, out_channels].
void embed_forward(const float* x, const float* w, const float* bias, float* y,
                   const EmbedShape& shape, cudaStream_t stream);
// dx may be null: nobody needs the gradient of a photo.
void embed_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                    float* dbias, const EmbedShape& shape, cudaStream_t stream);

// ---- Convolutional projection -------------------------------------------------------------------

// Depthwise 3x3 with padding 1 over a map, three times: q at stride 1, k and v at stride 2. In
// memory a sample's tokens may begin with class tokens, which no convolution sees: x is [batch,
// class_tokens + height * width, channels], a q like it, and k and v have class_tokens + out_height
// * out_width tokens.
struct ProjectionShape {
  int batch, height, width, channels;
  int class_tokens = 0;  // 0 or 1
  int out_height() const { return (height + 1) / 2; }
  int out_width() const { return (width + 1) / 2; }
  int queries() const { return class_tokens + height * width; }
  int keys() const { return class_tokens + out_height() * out_width(); }
};

enum Which { kQuery, kKey, kValue };

struct ProjectionWeights {
  const float* w[3];      // [channels, 3, 3] each, for q, k, v
  const float* scale[3];  // [channels] BatchNorm's weight ...
  const float* shift[3];  // ... and bias
};
struct ProjectionGradients {
  float *w[3], *scale[3], *shift[3];  // as ProjectionWeights
};

// What forward leaves for linear layers and for backward, per channel and for q, k, v:
// BatchNorm's output is map * factor + offset. [channels] each.
struct BatchNormSaved {
  float *mean[3], *inverse_deviation[3];  // over batch and positions, population variance, eps 1e-5
  float *factor[3], *offset[3];           // scale / deviation, and shift - mean * factor
};

// maps[i]: the raw convolutions, before BatchNorm: [batch, queries or keys, channels], class tokens
// copied. They are never normalized in memory: the linear layer behind takes factor and offset into
// its weights (fold_batch_norm). running_mean and running_variance (unbiased, momentum 0.1),
// [channels], are brought forward where they are not null.
void projection_forward(const float* x, const ProjectionWeights& weights, float* const maps[3],
                        const BatchNormSaved& saved, float* const running_mean[3],
                        float* const running_variance[3], const ProjectionShape& shape,
                        cudaStream_t stream);
// dmaps[i]: gradients of what BatchNorm gave, as maps[i] (class tokens: of what was copied).
// dx [batch, queries, channels] is written whole, class tokens with the sum of their three
// gradients.
void projection_backward(const float* x, const float* const maps[3],
                         const ProjectionWeights& weights, const BatchNormSaved& saved,
                         const float* const dmaps[3], float* dx,
                         const ProjectionGradients& gradients, const ProjectionShape& shape,
                         cudaStream_t stream);
// At inference: factor and offset from running statistics; then maps[i] * factor + offset as above.
void batch_norm_from_running(const ProjectionWeights& weights, const float* const running_mean[3],
                             const float* const running_variance[3], const BatchNormSaved& saved,
                             int channels, cudaStream_t stream);
// y = W (map * factor + offset) + bias as a layer on `map`: folded_w [out, in] = W * factor,
// folded_bias [out] = bias + W offset.
void fold_batch_norm(const float* w, const float* bias, const float* factor, const float* offset,
                     float* folded_w, float* folded_bias, int in, int out, cudaStream_t stream);

// ---- Linear layers ------------------------------------------------------------------------------

// Which rows of an array in memory are the rows of a product: groups of `of_group` rows, `pitch`
// rows apart from group to group, the first one at row `first`. {count, count, count, 0}: all of
// `count` rows.
struct Rows {
  int count, of_group, pitch, first;
  static Rows all(int count) { return {count, count, count, 0}; }
};

// y = x wᵀ + bias, then GELU (that of erf, within 4.8e-7) where before_gelu is not null: it gets
// what is before GELU, which backward needs; then + added where that is not null. x [rows, in], w
// [out, in], bias [out] or null, y, added and before_gelu [rows, out]. x, y, added and before_gelu
// are all addressed by `rows`.
struct LinearOptions {
  float* before_gelu = nullptr;
  const float* added = nullptr;
};
void linear_forward(const float* x, const float* w, const float* bias, float* y, const Rows& rows,
                    int in, int out, const LinearOptions& options, cudaStream_t stream);
// dx [rows, in] = dy w, times GELU's derivative at before_gelu [rows, in] where that is not null; +
// added [rows, in] where that is not null.
void linear_backward_x(const float* dy, const float* w, float* dx, const Rows& rows, int in,
                       int out, const LinearOptions& options, cudaStream_t stream);
// dw [out, in] = dyᵀ x, dbias [out] = sums of dy (or null). Where factor is not null, x stands for
// x * factor + offset, [in] each. add: to what is there.
void linear_backward_w(const float* dy, const float* x, float* dw, float* dbias, const Rows& rows,
                       int in, int out, const float* factor, const float* offset, bool add,
                       cudaStream_t stream);

// ---- LayerNorm ----------------------------------------------------------------------------------

// Rows of `channels`, eps 1e-5. mean and inverse_deviation [rows] are for backward.
void layer_norm_forward(const float* x, const float* scale, const float* shift, float* y,
                        float* mean, float* inverse_deviation, int rows, int channels,
                        cudaStream_t stream);
// dx = the gradient, + added [rows, channels] where that is not null (a residual's).
void layer_norm_backward(const float* x, const float* scale, const float* mean,
                         const float* inverse_deviation, const float* dy, const float* added,
                         float* dx, float* dscale, float* dshift, int rows, int channels,
                         cudaStream_t stream);

// ---- Attention with fewer keys than queries -----------------------------------------------------

void cross_attention_forward(const float* q, const float* k, const float* v, float* o,
                             float* log_sum_exp /* [batch, heads, queries] */,
                             const CrossShape& shape, cudaStream_t stream);
void cross_attention_backward(const float* q, const float* k, const float* v, const float* o,
                              const float* log_sum_exp, const float* d_o, float* dq, float* dk,
                              float* dv, const CrossShape& shape, cudaStream_t stream);

// ---- Loss and optimizer -------------------------------------------------------------------------

// loss [1] = mean over the batch of -log softmax(logits)[label], logits and dlogits [batch,
// classes], labels [batch] below classes (checked by whoever reads them). smoothing: 0 to 1,
// PyTorch's label_smoothing.
void cross_entropy(const float* logits, const int* labels, float* loss, float* dlogits, int batch,
                   int classes, float smoothing, cudaStream_t stream);

// One step (counted from 1) on `count` numbers, in the order of torch.optim.AdamW.
void adamw(float* parameters, const float* gradients, float* m, float* v, int64_t count, int step,
           const AdamW& options, cudaStream_t stream);

// ---- Small moves --------------------------------------------------------------------------------

// A class token [channels] in front of each sample: x [batch, tokens, channels] → y [batch, 1 +
// tokens, ...].
void prepend_token(const float* x, const float* token, float* y, int batch, int tokens,
                   int channels, cudaStream_t stream);
// Back: dy [batch, 1 + tokens, channels] → dx [batch, tokens, channels] and dtoken [channels].
void prepend_token_backward(const float* dy, float* dx, float* dtoken, int batch, int tokens,
                            int channels, cudaStream_t stream);

}  // namespace cvt
