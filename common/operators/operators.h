/* The course's kernels as plain C functions, for other programs: libvision_operators.so, which
 * `make operators` builds.
 *
 * Every function returns a vision_status; vision_last_message() says what was wrong. No exception
 * leaves the library. A function only starts work on the stream that it is given, a cudaStream_t or
 * null, and does not wait for it; scratch memory is taken and given back on the same stream. Arrays
 * lie on the device, all of them on one; an output is memory of its own. Errors of every function:
 * VISION_BAD_ARGUMENT for a tensor of another shape or type, for one that is not contiguous, not
 * aligned or not on the device, and for what the kernel cannot do, by name and limit;
 * VISION_DEVICE_ERROR where CUDA refuses.
 *
 * Sums are in fp32, whatever the arrays hold. */
#ifndef VISION_OPERATORS_H
#define VISION_OPERATORS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface. It changes when a function or a struct does. */
#define VISION_INTERFACE 2
int vision_interface(void);

typedef enum vision_status {
  VISION_OK = 0,
  VISION_BAD_ARGUMENT = 2,
  VISION_DEVICE_ERROR = 3
} vision_status;

/* What was wrong in this thread's last call that returned another status than VISION_OK. */
const char* vision_last_message(void);

typedef enum vision_type {
  VISION_OTHER_TYPE = 0,
  VISION_FLOAT16 = 1,
  VISION_FLOAT32 = 2,
  VISION_FLOAT64 = 3,
  VISION_BFLOAT16 = 4,
  VISION_INT32 = 5,
  VISION_INT64 = 6
} vision_type;

enum { VISION_MAX_DIMENSIONS = 6 };

typedef struct vision_tensor {
  void* data;
  int32_t type;       /* a vision_type */
  int32_t dimensions; /* how many of shape and strides count */
  int64_t shape[VISION_MAX_DIMENSIONS];
  int64_t strides[VISION_MAX_DIMENSIONS]; /* in elements */
} vision_tensor;

/* ---- Attention (chapters 13 and 15) -------------------------------------------------------------
 *
 * o = softmax(scale q k^T) v. q, k, v, o, their gradients: float16 [batch, heads, tokens,
 * head_dim], from multiples of 16 bytes; head_dim 32, 64 or 128. log_sum_exp: float32 [batch,
 * heads, tokens], ln of the sum of exp of each row of scores; null where nobody needs it, as nobody
 * does without gradients. */
int vision_attention_forward(const vision_tensor* q, const vision_tensor* k, const vision_tensor* v,
                             const vision_tensor* o, const vision_tensor* log_sum_exp, float scale,
                             void* stream);
/* deterministic: not 0 for the same bits twice; else dq is added up by atomics. */
int vision_attention_backward(const vision_tensor* q, const vision_tensor* k,
                              const vision_tensor* v, const vision_tensor* o,
                              const vision_tensor* log_sum_exp, const vision_tensor* d_o,
                              const vision_tensor* dq, const vision_tensor* dk,
                              const vision_tensor* dv, float scale, int deterministic,
                              void* stream);

/* ---- Deformable attention (chapters 7 and 19) ---------------------------------------------------
 *
 * Each (image, query, head) adds up samples of each level, weighted. level_sizes: on the host,
 * height and width of each level, `levels` pairs. float16, from multiples of 16 bytes:
 *   value      [batch, pixels, heads, channels]             the levels one after the other
 *   locations  [batch, queries, heads, levels, points, 2]   x and y; 0 to 1 is the level's extent
 *   weights    [batch, queries, heads, levels, points]
 *   out        [batch, queries, heads * channels]
 * channels 16, 32 or 64; points 4 or 8; 1 to 5 levels. A sample lies at pixel location * size -
 * 0.5; outside are zeros. */
int vision_deformable_attention_forward(const vision_tensor* value, const int64_t* level_sizes,
                                        int levels, const vision_tensor* locations,
                                        const vision_tensor* weights, const vision_tensor* out,
                                        void* stream);
/* d_out as out; d_value, d_locations and d_weights: float32, as value, locations and weights. */
int vision_deformable_attention_backward(const vision_tensor* value, const int64_t* level_sizes,
                                         int levels, const vision_tensor* locations,
                                         const vision_tensor* weights, const vision_tensor* d_out,
                                         const vision_tensor* d_value,
                                         const vision_tensor* d_locations,
                                         const vision_tensor* d_weights, int deterministic,
                                         void* stream);

/* ---- Convolution, instance norm and ReLU (chapter 8) --------------------------------------------
 *
 * y = act(gamma (c - mean) / sqrt(variance + epsilon) + beta + residual), with c the convolution of
 * x, and mean and variance those of each (image, channel) of c. A bias of the convolution has no
 * effect: the mean takes it away again.
 *   x [batch, in_channels, height, width], weight [out_channels, in_channels, kernel, kernel],
 *   residual (or null) and y [batch, out_channels, out_height, out_width]: float16 or float32, all
 *   the same
 *   gamma, beta [out_channels]: float32
 * kernel 1, 3, 4, 5 or 9. */
typedef struct vision_conv_norm_options {
  int32_t stride;                   /* 1 or 2 */
  int32_t top, left, bottom, right; /* padding, 0 to kernel - 1 */
  int32_t reflect;                  /* not 0: the picture mirrored at its edge, instead of zeros */
  int32_t relu;                     /* not 0: negative values become 0 */
  float epsilon;                    /* usually 1e-5 */
} vision_conv_norm_options;
int vision_conv_norm(const vision_tensor* x, const vision_tensor* weight,
                     const vision_tensor* gamma, const vision_tensor* beta,
                     const vision_tensor* residual, const vision_tensor* y,
                     const vision_conv_norm_options* options, void* stream);

/* ---- LayerNorm (chapter 10) ---------------------------------------------------------------------
 *
 * y = scale (s - mean) / sqrt(variance + epsilon) + bias, where s is x, or x + residual where
 * residual is not null; then s is stored in sum.
 *   x, residual, sum, y [rows, columns], scale, bias [columns]: float16 or float32, all the same
 * columns 64 to 4096. */
int vision_layer_norm_forward(const vision_tensor* x, const vision_tensor* residual,
                              const vision_tensor* scale, const vision_tensor* bias,
                              const vision_tensor* sum, const vision_tensor* y, float epsilon,
                              void* stream);
/* x: what was normalized (sum, where there was a residual). dy and dx as x; d_scale, d_bias:
 * float32 [columns]. The same bits every time. */
int vision_layer_norm_backward(const vision_tensor* dy, const vision_tensor* x,
                               const vision_tensor* scale, const vision_tensor* dx,
                               const vision_tensor* d_scale, const vision_tensor* d_bias,
                               float epsilon, void* stream);

/* ---- Linear layers (chapter 11) -----------------------------------------------------------------
 *
 * y = act(x weight^T + bias) + residual, where act is GELU (the exact one) or nothing. float16:
 *   x [rows, in], weight [out, in], bias [out] or null, residual (or null) and y [rows, out]
 * `in` is a multiple of 8; x and weight start at multiples of 16 bytes. */
int vision_linear(const vision_tensor* x, const vision_tensor* weight, const vision_tensor* bias,
                  const vision_tensor* residual, const vision_tensor* y, int gelu, void* stream);
/* y = w2 gelu(w1 x + b1) + b2 + residual. x [rows, in], w1 [hidden, in], b1 [hidden], w2
 * [out, hidden], b2 [out]; biases and residual may be null. The hidden array is scratch. */
int vision_mlp(const vision_tensor* x, const vision_tensor* w1, const vision_tensor* b1,
               const vision_tensor* w2, const vision_tensor* b2, const vision_tensor* residual,
               const vision_tensor* y, void* stream);

/* ---- Convolutional projection (chapter 16) ------------------------------------------------------
 *
 * CvT's way to queries, keys and values: three depthwise 3 x 3 convolutions with padding 1 over one
 * map, at stride 1 for q and 2 for k and v, and BatchNorm behind each (epsilon 1e-5). One launch
 * reads x once.
 *   x [batch, tokens, channels]: height * width tokens, or one class token more in front of them
 *   q as x, k and v [batch, keys, channels]: (height + 1) / 2 rows and (width + 1) / 2 columns; a
 *     class token is copied
 *   x, q, k, v: float16 or float32, all the same
 *   w [3, channels, 3, 3], scale, shift and all statistics [3, channels]: float32, for q, k and v
 * q, k and v are not normalized: BatchNorm gives q * factor[0] + offset[0] for all but the class
 * token, and vision_fold_batch_norm takes both into the linear layer that follows.
 * training: not 0 for statistics of the batch; running_mean and running_variance (or null) are
 * brought forward then (momentum 0.1, unbiased). 0: those two are the statistics. */
int vision_projection_forward(const vision_tensor* x, const vision_tensor* w,
                              const vision_tensor* scale, const vision_tensor* shift,
                              const vision_tensor* running_mean,
                              const vision_tensor* running_variance, const vision_tensor* q,
                              const vision_tensor* k, const vision_tensor* v,
                              const vision_tensor* mean, const vision_tensor* inverse_deviation,
                              const vision_tensor* factor, const vision_tensor* offset, int height,
                              int width, int training, void* stream);
/* d_q, d_k, d_v: gradients of what BatchNorm gave, as q, k and v; all else as forward took and left
 * it. dx as x; d_w, d_scale, d_shift: float32. The same bits every time. */
int vision_projection_backward(const vision_tensor* x, const vision_tensor* w,
                               const vision_tensor* q, const vision_tensor* k,
                               const vision_tensor* v, const vision_tensor* mean,
                               const vision_tensor* inverse_deviation, const vision_tensor* factor,
                               const vision_tensor* d_q, const vision_tensor* d_k,
                               const vision_tensor* d_v, const vision_tensor* dx,
                               const vision_tensor* d_w, const vision_tensor* d_scale,
                               const vision_tensor* d_shift, int height, int width, int training,
                               void* stream);
/* weight (map * factor + offset) + bias = folded_weight map + folded_bias: weight [out, in], bias
 * [out] or null, factor and offset [in]; float32. */
int vision_fold_batch_norm(const vision_tensor* weight, const vision_tensor* bias,
                           const vision_tensor* factor, const vision_tensor* offset,
                           const vision_tensor* folded_weight, const vision_tensor* folded_bias,
                           void* stream);

/* ---- Memory of the device, for callers without a CUDA of their own --------------------------- */

/* The current device in words, "virtual NVIDIA H200", until the next call; null where there is none
 * (vision_last_message()). */
const char* vision_device(void);
int vision_allocate(int64_t bytes, void** address);
int vision_free(void* address);
/* Between host and device, either way; returns when it is done. What was started on other streams
 * than `stream` is not waited for. */
int vision_copy(void* to, const void* from, int64_t bytes, void* stream);
/* Waits; errors of what was started before come out here. */
int vision_synchronize(void* stream);

#ifdef __cplusplus
}
#endif
#endif
