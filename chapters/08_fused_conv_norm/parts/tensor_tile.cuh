// A tile of the convolution on tensor cores. Stages of x and weights lie in shared memory as
// convolve.cuh brings them, in fp32; only the products differ: warps read both sides of small
// matrix products straight from there, the pixels through a list of products (an implicit matrix:
// no matrix of taps and pixels is ever stored), and round them to tf32 or fp16 on the way.
#pragma once

#include <cuda_fp16.h>

#include "convolve.cuh"

namespace fused_conv_norm {

enum Precision { kTf32, kFp16 };  // what the operands are rounded to; sums are fp32

// The plan of such tiles. Channels lie channel_gap floats further apart than their rows need.
struct TensorPlan : Fp32Plan {
  int channel_gap;

  __device__ int skipped_before(int channel) const { return channel * channel_gap; }
};

// A warp reads eight pixels side by side of four channels at once: with channels 8 or 24 floats
// beyond a multiple of 32 apart, all of them are in different banks.
inline int channel_gap(int floats) {
  int gap = 0;
  while ((floats + gap) % 16 != 8) gap += 4;
  return gap;
}

// A tile whose warps take kWarpChannelsOf x kWarpPixelsOf outputs each; where that leaves warps
// over, they share a stage's products, and their sums are added at the end.
template <Precision kOperands, class Base, int kWarpChannelsOf, int kWarpPixelsOf>
struct TensorTileOf : Base {
  using Plan = TensorPlan;
  static constexpr int kBlocks = 256 / Base::kThreads;  // per SM: up to 255 registers a thread
  static constexpr Precision kPrecision = kOperands;
  static constexpr int kStep = kOperands == kTf32 ? 8 : 16;  // products that an instruction adds up
  static constexpr int kWarpChannels = kWarpChannelsOf, kWarpPixels = kWarpPixelsOf;
  static constexpr int kWarpsDown = Base::kTileChannels / kWarpChannels;
  static constexpr int kWarpsAcross = Base::kTilePixels / kWarpPixels;
  static constexpr int kShares = Base::kThreads / 32 / (kWarpsDown * kWarpsAcross);
  // Sums go through shared memory from the warps to the threads that own them. With this pitch a
  // warp's store, 8 rows of 4 pairs of sums, meets no bank twice.
  static constexpr int kExchangePitch = Base::kTilePixels + 8;
  static constexpr int kExchangeFloats = kShares * Base::kTileChannels * kExchangePitch;
  static_assert(kShares * kWarpsDown * kWarpsAcross * 32 == Base::kThreads);
  static_assert(kWarpPixels % Base::kColumns == 0 && kExchangePitch % 32 == 8);

  static int weight_pitch(int products) { return spread_rows(products + 4); }  // a zero at the end
  static int channel_floats(int of_rows) { return of_rows + channel_gap(of_rows); }
  static Plan plan(const ConvNormShape& shape, const void* x, const void* weight,
                   const DeviceLimits& limits) {
    Plan plan = in_stages<TensorTileOf>(shape, x, weight, limits);
    plan.channel_gap = channel_gap(plan.stage_rows * Base::pitch(shape.stride));
    return plan;
  }
  // Two stages and two lists, taps and products, with two numbers an entry; or sums on their way.
  static int bytes(const Plan& plan) {
    const int lists = 3 * plan.weight_pitch + 2 * kStep;
    return 4 * std::max(2 * plan.stage_floats + lists + kWindowFloats, kExchangeFloats);
  }
};
// A warp of the large one has 64 x 64 outputs: in a step a lane reads 32 registers of operands for
// 32 instructions. The small one spreads a small output over more blocks.
using LargeTensorBase = TileOf<16, 4, 8, 16, 2>;
using SmallTensorBase = TileOf<8, 4, 8, 8, 4>;
enum : TileName { kTf32Large = kTileNames, kTf32Small, kFp16Large, kFp16Small, kTensorTileNames };
template <>
struct Tile<kTf32Large> : TensorTileOf<kTf32, LargeTensorBase, 64, 64> {};
template <>
struct Tile<kTf32Small> : TensorTileOf<kTf32, SmallTensorBase, 32, 32> {};
template <>
struct Tile<kFp16Large> : TensorTileOf<kFp16, LargeTensorBase, 64, 64> {};
template <>
struct Tile<kFp16Small> : TensorTileOf<kFp16, SmallTensorBase, 32, 32> {};

// ---- One instruction ----------------------------------------------------------------------------

// Rounds what register r of an operand holds: number r of this lane's in tf32, numbers 2 r and 2 r
// + 1 in fp16, which load(0), load(1), ... give. The products of a step may be in any order, since
// they are added up, as long as weights and pixels have the same one.
template <Precision kPrecision, class Load>
__device__ inline unsigned operand(int r, const Load& load) {
  if constexpr (kPrecision == kTf32) {
    unsigned bits = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(load(r)));
#endif
    return bits;
  } else {
    const half2 pair = __floats2half2_rn(load(2 * r), load(2 * r + 1));
    return *reinterpret_cast<const unsigned*>(&pair);
  }
}

// sum += a b, layouts as in the PTX ISA, "Matrix fragments for mma.m16n8k8" (tf32) and "m16n8k16":
// lane 4 g + t has of a rows g and g + 8, of b column g, of sums columns 2 t and 2 t + 1.
template <Precision kPrecision>
__device__ inline void multiply_add(float (&sum)[4], const unsigned (&a)[4],
                                    const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kPrecision == kTf32)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
  if constexpr (kPrecision == kTf32) {
    __trap();  // no tf32 here: the launch function has refused
  } else {
#pragma unroll
    for (int half_step = 0; half_step < 2; ++half_step)  // eight products an instruction
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
          "{%0,%1,%2,%3};"
          : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
          : "r"(a[2 * half_step]), "r"(a[2 * half_step + 1]), "r"(b[half_step]));
  }
#endif
}

// ---- One stage ----------------------------------------------------------------------------------

// Who a warp and a lane are.
template <class T>
struct Warp {
  int lane = thread_index() % 32, warp = thread_index() / 32;
  int share = warp / (T::kWarpsDown * T::kWarpsAcross);
  int first_channel = warp % T::kWarpsDown * T::kWarpChannels;  // within the tile
  int first_pixel = warp / T::kWarpsDown % T::kWarpsAcross * T::kWarpPixels;
  int group = lane / 4, third = lane % 4;  // g and t of the layouts
};

// Lists where each product of a stage finds its weight in a row and its pixel: channels fastest, so
// that four products side by side are of four channels, in different banks. The last step is filled
// up with the first pixel, and a zero at the end of the row of weights.
template <class T, int kStride>
__device__ void list_products(int2* list, int channels, const Window& w,
                              const TensorPlan& problem) {
  constexpr int kPitch = T::pitch(kStride);
  const int area = w.rows.taps * w.columns.taps, products = channels * area;
  const int channel_floats = problem.stage_rows * kPitch + problem.channel_gap;
  const int all = (products + T::kStep - 1) / T::kStep * T::kStep;
  for (int k = thread_index(); k < all; k += T::kThreads) {
    const int channel = k % channels, tap = k / channels;
    const int row = tap / w.columns.taps, column = tap % w.columns.taps;
    list[k] = k < products
                  ? int2{channel * area + tap, channel * channel_floats + row * kPitch + column}
                  : int2{problem.weight_pitch - 1, 0};
  }
}

// A warp's part of a stage's products. weights and pixels are this lane's first: row g, column g.
template <class T, int kStride>
__device__ void multiply_stage(const float* weights, const float* pixels, const int2* list,
                               int steps, const Warp<T>& me, int weight_pitch,
                               float (&sum)[T::kWarpChannels / 16][T::kWarpPixels / 8][4]) {
  constexpr int kNumbers = T::kStep / 4;  // operands of a step in each row or column of this lane
#pragma unroll 1
  for (int step = me.share; step < steps; step += T::kShares) {
    int2 at[kNumbers];
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) at[i] = list[step * T::kStep + 4 * i + me.third];

    unsigned b[T::kWarpPixels / 8][2];
#pragma unroll
    for (int n = 0; n < T::kWarpPixels / 8; ++n) {
      const int row = 8 * n / T::kColumns, column = 8 * n % T::kColumns;
      const float* from = pixels + row * kStride * T::pitch(kStride) + column * kStride;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        b[n][r] = operand<T::kPrecision>(r, [&](int i) { return from[at[i].y]; });
    }
#pragma unroll
    for (int m = 0; m < T::kWarpChannels / 16; ++m) {
      unsigned a[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float* row = weights + (16 * m + r % 2 * 8) * weight_pitch;
        a[r] = operand<T::kPrecision>(r / 2, [&](int i) { return row[at[i].x]; });
      }
#pragma unroll
      for (int n = 0; n < T::kWarpPixels / 8; ++n) multiply_add<T::kPrecision>(sum[m][n], a, b[n]);
    }
  }
}

// ---- A tile -------------------------------------------------------------------------------------

// The row of shared memory in which a channel's sums are handed over. A warp reads two neighbouring
// channels at once where a tile's row has 16 pixels: their rows are two apart, that is half of all
// banks.
__device__ inline int exchange_row(int channel) {
  return (channel & ~3) | (channel & 1) << 1 | (channel >> 1 & 1);
}

// Hands the sums of warps over to the threads that own them, as value[i][j]. Where several warps
// have shares of a sum these are added, in a fixed order.
template <class T>
__device__ void hand_over(const float (&sum)[T::kWarpChannels / 16][T::kWarpPixels / 8][4],
                          const Warp<T>& warp,
                          float* exchange,  // [shares, tile channels, exchange pitch] (shared)
                          float (&value)[T::kOwn][T::kRows]) {
  constexpr int kShareFloats = T::kTileChannels * T::kExchangePitch;
  float* const to = exchange + warp.share * kShareFloats +
                    exchange_row(warp.first_channel + warp.group) * T::kExchangePitch +
                    warp.first_pixel + 2 * warp.third;
#pragma unroll
  for (int m = 0; m < T::kWarpChannels / 16; ++m)
#pragma unroll
    for (int n = 0; n < T::kWarpPixels / 8; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<float2*>(to + (16 * m + 8 * r) * T::kExchangePitch + 8 * n) = {
            sum[m][n][2 * r], sum[m][n][2 * r + 1]};
  __syncthreads();
  const Thread<T> me;
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i)
#pragma unroll
    for (int j = 0; j < T::kRows; ++j) {
      const float* from =
          exchange + exchange_row(me.channel(i)) * T::kExchangePitch + j * T::kColumns + me.column;
      float all = from[0];
#pragma unroll
      for (int share = 1; share < T::kShares; ++share) all += from[share * kShareFloats];
      value[i][j] = all;
    }
  __syncthreads();
}

// The convolution's values of one tile, as convolve() in fp32 gives them.
template <class T, int kStride>
__device__ void convolve(const float* x, const float* weight, const Place& place,
                         const TensorPlan& problem, float* memory,
                         float (&value)[T::kOwn][T::kRows]) {
  const Warp<T> me;
  int* const taps = reinterpret_cast<int*>(memory + 2 * problem.stage_floats);
  Window& w = *reinterpret_cast<Window*>(taps + problem.weight_pitch);
  int2* const list = reinterpret_cast<int2*>(reinterpret_cast<float*>(&w) + kWindowFloats);
  if (threadIdx.x == 0) w = window_of<T, kStride>(place, problem);
  __syncthreads();
  const int area = w.rows.taps * w.columns.taps;
  for (int k = thread_index(); k < problem.stage_channels * area; k += T::kThreads) {
    const int channel = k / area, y = k % area / w.columns.taps, column = k % w.columns.taps;
    taps[k] =
        (channel * problem.kernel + w.rows.first_tap + y * problem.upsample) * problem.kernel +
        w.columns.first_tap + column * problem.upsample;
  }
  // A zero ends each row of weights.
  for (int m = thread_index(); m < 2 * T::kTileChannels; m += T::kThreads)
    memory[m / T::kTileChannels * problem.stage_floats +
           (m % T::kTileChannels + 1) * problem.weight_pitch - 1] = 0;
  __syncthreads();

  float sum[T::kWarpChannels / 16][T::kWarpPixels / 8][4] = {};
  const int stages =
      area > 0 ? (problem.in_channels + problem.stage_channels - 1) / problem.stage_channels : 0;
  const auto channels_of = [&](int stage) {
    return min(problem.stage_channels, problem.in_channels - stage * problem.stage_channels);
  };
  const auto load_stage = [&](int stage) {
    float* const to = memory + stage % 2 * problem.stage_floats;
    const int first_channel = stage * problem.stage_channels;
    stage_weights<T>(weight, to, taps, w.group, first_channel, channels_of(stage) * area, problem);
    stage_x<T, kStride>(x, to + T::kTileChannels * problem.weight_pitch, first_channel, w, problem);
  };

  // Load the next stage while this one is multiplied.
  if (stages > 0) load_stage(0);
  end_stage();
  int listed = 0;  // channels that the list is made for: the last stage may have fewer
  for (int stage = 0; stage < stages; ++stage) {
    if (stage + 1 < stages) load_stage(stage + 1);
    end_stage();
    const int channels = channels_of(stage);
    if (channels != listed) list_products<T, kStride>(list, listed = channels, w, problem);
    wait_for_older_stages();
    __syncthreads();
    const float* const from = memory + stage % 2 * problem.stage_floats;
    const float* const weights = from + (me.first_channel + me.group) * problem.weight_pitch;
    const float* const pixels = from + T::kTileChannels * problem.weight_pitch + w.shift +
                                me.first_pixel / T::kColumns * kStride * T::pitch(kStride) +
                                me.group * kStride;
    multiply_stage<T, kStride>(weights, pixels, list, (channels * area + T::kStep - 1) / T::kStep,
                               me, problem.weight_pitch, sum);
    __syncthreads();
  }
  hand_over<T>(sum, me, memory, value);
}

}  // namespace fused_conv_norm
