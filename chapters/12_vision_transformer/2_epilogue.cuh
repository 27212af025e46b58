// The product qkv on tensor cores, as chapter 11's epilogue computes it, which stores q, k and v
// where attention wants them. A lane has eight neighbouring columns of a row of qkv: 16 bytes of one
// head, since head_dim is a multiple of 8. So a store needs another address and nothing else.
#pragma once

#include "../11_mlp/5_epilogue.cuh"
#include "shape.h"

namespace vision_transformer::qkv_epilogue {

using vision_transformer::HeadsShape;

// Where eight columns from `column` on of row `row` of qkv [batch, tokens, 3, heads, head_dim] go.
struct ByHeads {
  half *q, *k, *v;  // [batch, heads, tokens, head_dim]
  HeadsShape shape;

  __device__ half* place(int row, int column) const {
    const int width = shape.heads * shape.head_dim;
    half* const array = column < width ? q : column < 2 * width ? k : v;
    const int of_array = column % width;
    const int head = of_array / shape.head_dim, token = row % shape.tokens;
    return array +
           (int64_t(row / shape.tokens * shape.heads + head) * shape.tokens + token) *
               shape.head_dim +
           of_array % shape.head_dim;
  }
};

template <class T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    qkv_kernel(const half* __restrict__ x,       // [m, k]
               const half* __restrict__ weight,  // [n, k]
               const half* __restrict__ bias,    // [n], or null
               ByHeads to, int m, int n, int k) {
#if __CUDA_ARCH__ < 900
  if constexpr (T::kLefts * T::kRights > 32) return __trap();  // nobody launches it there
#endif
  extern __shared__ uint4 shared[];
  auto* const memory = reinterpret_cast<mlp::Stage<half, T, tile::Swizzled>*>(shared);
  const mlp::Place<T> place(n);
  mlp::WarpSums<T> sums;
  mlp::multiply_all<mlp::Grouped>(x, weight, m, n, k, memory, place, sums);

  const int lane = threadIdx.x % 32;
  const int first_row = place.first_row + int(place.warp_row) + lane / 4;
#pragma unroll
  for (int group = 0; group < T::kRights / 4; ++group) {
    const int column = place.first_column + int(place.warp_column) + 32 * group + lane % 4 * 8;
    if (column >= n) continue;
    mlp::Eight<half> biases{};
    if (bias) biases = mlp::load_eight<true>(bias + column, 8);
#pragma unroll
    for (int i = 0; i < 2 * T::kLefts; ++i) {
      const int row = first_row + 8 * i;
      mlp::Eight<half> result;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        result.value[e] =
            half(sums[i / 2][4 * group + e / 2].value[i % 2 * 2 + e % 2] + float(biases.value[e]));
      if (row < m) mlp::store_eight<true>(to.place(row, column), 8, result);
    }
  }
}

template <class T>
void launch(const half* x, const half* weight, const half* bias, const ByHeads& to,
            const mlp::Shape& shape, cudaStream_t stream) {
  constexpr int kBytes = mlp::kEpilogueBytes<half, T>;
  const auto kernel = qkv_kernel<T>;
  mlp::require_launched(
      shape, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<mlp::blocks_of<T>(shape), T::kThreads, kBytes, stream>>>(x, weight, bias, to, shape.m,
                                                                    shape.n, shape.k);
  mlp::require_launched(shape);
}

// q, k, v = x weightᵀ + bias, each [batch, heads, tokens, head_dim]; x [batch, tokens, width], weight
// [3 width, width], bias [3 width] or null. Throws std::invalid_argument naming what it cannot do.
inline void qkv(const half* x, const half* weight, const half* bias, half* q, half* k, half* v,
                const HeadsShape& heads, cudaStream_t stream) {
  const int width = heads.heads * heads.head_dim;
  const mlp::Shape shape{heads.batch * heads.tokens, 3 * width, width, false};
  mlp::require_product(shape, x, weight, q);
  require_pieces(shape, x, weight, 8);
  if (heads.head_dim % 8 != 0) refuse_shape(shape, "head_dim must be a multiple of 8");
  if (!mlp::in_pieces<half>(shape, bias, k, q) || !mlp::in_pieces<half>(shape, v, k, q))
    refuse_shape(shape, "bias, q, k and v must start at multiples of 16 bytes");
  const mlp::TileName tile =
      mlp::choose_tile<half>(shape, mlp::device_attribute(cudaDevAttrMultiProcessorCount),
                             mlp::shared_limit(), mlp::has_wide_tile<half>());
  const auto run = tile == mlp::TileName::kWide    ? launch<mlp::WideTile>
                   : tile == mlp::TileName::kLarge ? launch<mlp::LargeTile>
                                                   : launch<mlp::SmallTile>;
  run(x, weight, bias, {q, k, v, heads}, shape, stream);
}

}  // namespace vision_transformer::qkv_epilogue
