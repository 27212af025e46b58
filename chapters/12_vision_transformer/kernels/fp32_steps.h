// The kernels of 3_inside.cuh in fp32, as ./run --projection compares them: a layer of attention on
// its own, from x to what the output projection makes of it.
#pragma once

#include <cuda_runtime.h>

#include "../shape.h"

namespace vision_transformer::fp32 {

// q, k, v [batch, heads, tokens, head_dim] = x weightᵀ + bias; x [batch, tokens, width], weight
// [3 width, width], bias [3 width] or null.
void by_heads(const float* x, const float* weight, const float* bias, float* q, float* k, float* v,
              const HeadsShape& shape, cudaStream_t stream);
// o [batch, tokens, heads, head_dim] = softmax(q kᵀ / sqrt(head_dim)) v.
void apart(const float* q, const float* k, const float* v, float* o, const HeadsShape& shape,
           cudaStream_t stream);
// The same from x, weight and bias; q, k and v are never stored.
void inside(const float* x, const float* weight, const float* bias, float* o,
            const HeadsShape& shape, cudaStream_t stream);
// y [batch, tokens, width] = o weightᵀ + bias; weight [width, width], bias [width] or null.
void output(const float* o, const float* weight, const float* bias, float* y,
            const HeadsShape& shape, cudaStream_t stream);

// Multiply-adds of x and the weights that `inside` makes, over the needed ones: each of its
// blocks has 64 queries and projects all keys and values of its head again.
inline double projected_times(const HeadsShape& shape) {
  const int tiles = (shape.tokens + 63) / 64;
  return (1 + 2.0 * tiles) / 3;
}

}  // namespace vision_transformer::fp32
