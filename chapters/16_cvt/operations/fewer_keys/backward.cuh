// Attention with fewer keys than queries, backward, without atomics, as chapter 15's last step: p
// is computed anew from the log-sum-exp, once by blocks that own keys (dk, dv) and once by blocks
// that own queries (dq).
//
//   D  = rowsum(dO ∘ O)        dS = P ∘ (dP - D)        P = exp(scale q kᵀ - log_sum_exp)
//   dv = Pᵀ dO     dk = scale dSᵀ q     dq = scale dS k     dP = dO vᵀ
#pragma once

#include "fragments.cuh"

namespace fewer_keys {

// D of each query and head: [batch, heads, queries]. kHeadDim / 4 lanes a row.
template <int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads)
    dots_kernel(const float* o, const float* d_o, float* dots, const CrossShape shape) {
  constexpr int kLanes = kHeadDim / 4;
  const int64_t piece = int64_t(blockIdx.x) * kAttentionThreads + threadIdx.x;
  const int64_t row = piece / kLanes;  // [batch, queries, heads]
  const bool there = row < int64_t(shape.batch) * shape.queries * shape.heads;
  float sum = 0.0f;
  if (there) {
    const float4 a = reinterpret_cast<const float4*>(o)[piece];
    const float4 b = reinterpret_cast<const float4*>(d_o)[piece];
    sum = a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (!there || piece % kLanes != 0) return;
  const int64_t of_batch = row / shape.heads;  // [batch, queries]
  dots[(of_batch / shape.queries * shape.heads + row % shape.heads) * shape.queries +
       of_batch % shape.queries] = sum;
}

// A block's own rows, and two stages of those it walks over.
template <int kHeadDim>
struct BackwardTiles {
  static constexpr int kWalked = 32;
  HeadTile<kOwnRows, kHeadDim> own[2];
  struct {
    HeadTile<kWalked, kHeadDim> walked[2];
    float log2_sum[kWalked], dots[kWalked];
  } stages[2];
};

// Scores and dP, of a warp's 16 own rows and kWalked others, become P and dS.
template <int kBlocks, class OfNumber>
__device__ void score_gradients(tile::Sums (&s)[kBlocks], tile::Sums (&dp)[kBlocks],
                                float scale_log2, const OfNumber& of_number) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto [log2_sum, dot] = of_number(b, i);
      const float p = flash_attention::power_of_2(fmaf(s[b].value[i], scale_log2, -log2_sum));
      s[b].value[i] = p;
      dp[b].value[i] = p * (dp[b].value[i] - dot);
    }
}
struct SumAndDot {
  float log2_sum, dot;
};

// dk and dv of 64 keys, 16 a warp: Sᵀ = k qᵀ and dPᵀ = v dOᵀ, then dv += Pᵀ dO and dk += dSᵀ q.
template <int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads)
    keys_kernel(const float* q, const float* k, const float* v, const float* d_o,
                const float* log_sum_exp, const float* dots, float* dk, float* dv,
                const CrossShape shape) {
  using Tiles = BackwardTiles<kHeadDim>;
  constexpr int kBlocks = Tiles::kWalked / 8, kSteps = kHeadDim / 8;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const Head head(shape);
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int first_key = blockIdx.x * kOwnRows;
  const bool works = first_key + warp_row < shape.keys;

  // Queries past the end have a sum of 2^inf: weights of 0.
  const auto copy_queries = [&](int first, int stage) {
    auto& to = tiles.stages[stage];
    if (first < shape.queries) {
      copy_rows(to.walked[0], q + head.first_query, head.pitch, first, shape.queries);
      copy_rows(to.walked[1], d_o + head.first_query, head.pitch, first, shape.queries);
      if (threadIdx.x < Tiles::kWalked) {
        const int query = first + threadIdx.x;
        const bool there = query < shape.queries;
        to.log2_sum[threadIdx.x] = there ? log_sum_exp[head.first_sum + query] * kLog2E : INFINITY;
        to.dots[threadIdx.x] = there ? dots[head.first_sum + query] : 0.0f;
      }
    }
    tile::end_copies();
  };
  copy_rows(tiles.own[0], k + head.first_key, head.pitch, first_key, shape.keys);
  copy_rows(tiles.own[1], v + head.first_key, head.pitch, first_key, shape.keys);
  copy_queries(0, 0);

  tile::LeftFragment<float> k_frag[kSteps], v_frag[kSteps];
  tile::Sums dk_sums[kSteps], dv_sums[kSteps];
  tile::Stages<2> stages;
  for (int first = 0; first < shape.queries; first += Tiles::kWalked, stages.next()) {
    stages.wait();
    copy_queries(first + Tiles::kWalked, stages.write);
    if (!works) continue;
    auto& stage = tiles.stages[stages.read];
    if (first == 0)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        tile::load_left(k_frag[step], tiles.own[0], warp_row, 2 * step);
        tile::load_left(v_frag[step], tiles.own[1], warp_row, 2 * step);
      }
    // A key past the end has whatever weights: what they make stays in its row, which nobody
    // stores.
    tile::Sums s[kBlocks], dp[kBlocks];
    multiply_along<kHeadDim>(s, k_frag, stage.walked[0]);
    multiply_along<kHeadDim>(dp, v_frag, stage.walked[1]);
    score_gradients(s, dp, shape.scale * kLog2E, [&](int b, int i) {
      const int query = 8 * b + tile::Sums::column(lane, i);
      return SumAndDot{stage.log2_sum[query], stage.dots[query]};
    });
    multiply_across<kHeadDim>(dv_sums, s, stage.walked[1]);
    multiply_across<kHeadDim>(dk_sums, dp, stage.walked[0]);
  }
  tile::wait_for_copies<0>();
  if (!works) return;
  store_rows<kHeadDim>(dk_sums, {shape.scale, shape.scale}, dk + head.first_key, head.pitch,
                       first_key + warp_row, shape.keys);
  store_rows<kHeadDim>(dv_sums, {1.0f, 1.0f}, dv + head.first_key, head.pitch, first_key + warp_row,
                       shape.keys);
}

// dq of 64 queries, 16 a warp: S = q kᵀ and dP = dO vᵀ, then dq += dS k.
template <int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads)
    queries_kernel(const float* q, const float* k, const float* v, const float* d_o,
                   const float* log_sum_exp, const float* dots, float* dq, const CrossShape shape) {
  using Tiles = BackwardTiles<kHeadDim>;
  constexpr int kBlocks = Tiles::kWalked / 8, kSteps = kHeadDim / 8;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const Head head(shape);
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int first_query = blockIdx.x * kOwnRows;
  const bool works = first_query + warp_row < shape.queries;

  const auto copy_keys = [&](int first, int stage) {
    if (first < shape.keys) {
      copy_rows(tiles.stages[stage].walked[0], k + head.first_key, head.pitch, first, shape.keys);
      copy_rows(tiles.stages[stage].walked[1], v + head.first_key, head.pitch, first, shape.keys);
    }
    tile::end_copies();
  };
  copy_rows(tiles.own[0], q + head.first_query, head.pitch, first_query, shape.queries);
  copy_rows(tiles.own[1], d_o + head.first_query, head.pitch, first_query, shape.queries);
  copy_keys(0, 0);
  SumAndDot of_row[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = first_query + warp_row + lane / 4 + 8 * h;
    const bool there = query < shape.queries;
    of_row[h].log2_sum = there ? log_sum_exp[head.first_sum + query] * kLog2E : INFINITY;
    of_row[h].dot = there ? dots[head.first_sum + query] : 0.0f;
  }

  tile::LeftFragment<float> q_frag[kSteps], d_o_frag[kSteps];
  tile::Sums dq_sums[kSteps];
  tile::Stages<2> stages;
  for (int first = 0; first < shape.keys; first += Tiles::kWalked, stages.next()) {
    stages.wait();
    copy_keys(first + Tiles::kWalked, stages.write);
    if (!works) continue;
    auto& stage = tiles.stages[stages.read];
    if (first == 0)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        tile::load_left(q_frag[step], tiles.own[0], warp_row, 2 * step);
        tile::load_left(d_o_frag[step], tiles.own[1], warp_row, 2 * step);
      }
    // Keys past the end have no weight: with a score of 0, where all others lie far below, it would
    // be an infinite one, and that times a row of zeros is no number.
    tile::Sums s[kBlocks], dp[kBlocks];
    multiply_along<kHeadDim>(s, q_frag, stage.walked[0]);
    multiply_along<kHeadDim>(dp, d_o_frag, stage.walked[1]);
    score_gradients(s, dp, shape.scale * kLog2E, [&](int b, int i) {
      const bool there = first + 8 * b + tile::Sums::column(lane, i) < shape.keys;
      return SumAndDot{there ? of_row[i / 2].log2_sum : INFINITY, of_row[i / 2].dot};
    });
    multiply_across<kHeadDim>(dq_sums, dp, stage.walked[0]);
  }
  tile::wait_for_copies<0>();
  if (!works) return;
  store_rows<kHeadDim>(dq_sums, {shape.scale, shape.scale}, dq + head.first_query, head.pitch,
                       first_query + warp_row, shape.queries);
}

}  // namespace fewer_keys
