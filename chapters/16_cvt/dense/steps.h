// Simple steps beside the operations of operations.h, for tables: the same arrays and results.
// Their kernels are compiled once, in kernels_naive.cu. They throw std::runtime_error where CUDA
// refuses.
#pragma once

#include "../operations.h"

namespace naive_steps {

// A thread an output, fp32: arrays as in operations.h, without options.
void linear_forward(const float* x, const float* w, const float* bias, float* y, int rows, int in,
                    int out, cudaStream_t stream);
void linear_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                     float* dbias, int rows, int in, int out, cudaStream_t stream);

// A thread a row; backward a thread a row and then a thread a column.
void layer_norm_forward(const float* x, const float* scale, const float* shift, float* y,
                        float* mean, float* inverse_deviation, int rows, int channels,
                        cudaStream_t stream);
void layer_norm_backward(const float* x, const float* scale, const float* mean,
                         const float* inverse_deviation, const float* dy, float* dx, float* dscale,
                         float* dshift, int rows, int channels, cudaStream_t stream);

// Scores and their gradients go to memory, [batch, heads, queries, keys]; a thread an output, fp32.
void attention_forward(const float* q, const float* k, const float* v, float* o, float* log_sum_exp,
                       const cvt::CrossShape& shape, cudaStream_t stream);
void attention_backward(const float* q, const float* k, const float* v, const float* o,
                        const float* log_sum_exp, const float* d_o, float* dq, float* dk, float* dv,
                        const cvt::CrossShape& shape, cudaStream_t stream);

// Patches go to memory, [positions, taps, in_channels]; products as linear layers have them. Back,
// patches are gathered again, and dx, unless it is null, is gathered from those of dx.
void embed_forward(const float* x, const float* w, const float* bias, float* y,
                   const cvt::EmbedShape& shape, cudaStream_t stream);
void embed_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                    float* dbias, const cvt::EmbedShape& shape, cudaStream_t stream);

}  // namespace naive_steps
