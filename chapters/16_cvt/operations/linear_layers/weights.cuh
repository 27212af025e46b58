// Gradients of weights: sums over all rows, in shares, which a second launch adds in their order.
// Linear layers and the embedding share it.
#pragma once

#include "product.cuh"

namespace linear_layers {

// What the shares of dw [out, in] and dbias [out] are kept as, and what the second launch makes of
// them.
struct WeightShares {
  static constexpr bool kSumsLeft = true;
  float* products;  // [shares, out, in]
  float* sums;      // [shares, out]
  int out, in;

  struct Nothing {};
  __device__ Nothing prepare(int) const { return {}; }
  __device__ void store(Nothing, int share, int row, int column, float4 sums_here) const {
    float* const to = products + (int64_t(share) * out + row) * in + column;
    if (in % 4 == 0)
      *reinterpret_cast<float4*>(to) = sums_here;
    else
      for (int i = 0; i < 4; ++i)
        if (column + i < in) to[i] = (&sums_here.x)[i];
  }
  __device__ void store_left_sum(int share, int row, float sum) const {
    sums[int64_t(share) * out + row] = sum;
  }
};

// Column i of a share is column i % channels * taps + i / channels of dw; with taps 1 it is i.
// Where x stands for x * factor + offset: Σ dy (x factor + offset) = factor Σ dy x + offset Σ dy.
struct WeightFinish {
  float *dw, *dbias;             // dbias may be null
  const float *factor, *offset;  // [in], or null
  bool add;
  int channels, taps;
};

__device__ inline void finish_weights(const WeightShares& from, const WeightFinish& to,
                                      int shares) {
  const int64_t element = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t count = int64_t(from.out) * from.in;
  if (element >= count + from.out) return;
  const auto bias_sum = [&](int row) {
    float sum = 0.0f;
    for (int s = 0; s < shares; ++s) sum += from.sums[int64_t(s) * from.out + row];
    return sum;
  };
  if (element >= count) {
    if (!to.dbias) return;
    float* const place = to.dbias + (element - count);
    const float sum = bias_sum(int(element - count));
    *place = to.add ? *place + sum : sum;
    return;
  }
  const int row = int(element / from.in), column = int(element % from.in);
  float sum = 0.0f;
  for (int s = 0; s < shares; ++s) sum += from.products[int64_t(s) * count + element];
  if (to.factor) sum = fmaf(sum, to.factor[column], to.offset[column] * bias_sum(row));
  float* const place =
      to.dw + int64_t(row) * from.in + column % to.channels * to.taps + column / to.channels;
  *place = to.add ? *place + sum : sum;
}
static __global__ void finish_weights_kernel(const __grid_constant__ WeightShares from,
                                             const __grid_constant__ WeightFinish to, int shares) {
  finish_weights(from, to, shares);
}

// dw [out, in] = leftᵀ right over `length` rows of both, as `to` says.
template <class Right>
void weight_gradient(const Matrix& left, const Right& right, int out, int in, int length,
                     const WeightFinish& to, const std::string& what, cudaStream_t stream) {
  const int shares = shares_of(out, in, length);
  const Scratch<float> products(int64_t(shares) * out * in, what, stream);
  const Scratch<float> sums(int64_t(shares) * out, what, stream);
  const WeightShares kept{products.data(), sums.data(), out, in};
  launch_product<Across, Across>(left, right, kept, out, in, length, shares, what, stream);
  constexpr int kThreads = 256;
  finish_weights_kernel<<<divide_up(int64_t(out) * in + out, kThreads), kThreads, 0, stream>>>(
      kept, to, shares);
  require_cuda(what);
}

}  // namespace linear_layers
