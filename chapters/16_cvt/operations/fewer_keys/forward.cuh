// Attention with fewer keys than queries, forward: a block has 64 queries of a head, 16 a warp, and
// walks over the keys, 32 at a time; softmax as it goes, as in chapter 13, here in tf32.
#pragma once

#include "fragments.cuh"

namespace fewer_keys {

template <int kHeadDim>
struct ForwardTiles {
  static constexpr int kKeys = 32;
  struct {
    HeadTile<kKeys, kHeadDim> k, v;
  } stages[2];
  HeadTile<kOwnRows, kHeadDim> q;
};

template <int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward_kernel(const float* q,  // [batch, queries, heads, head_dim]
                             const float* k,  // [batch, keys, heads, head_dim]
                             const float* v,
                             float* o,            // as q
                             float* log_sum_exp,  // [batch, heads, queries]
                             const CrossShape shape) {
  using Tiles = ForwardTiles<kHeadDim>;
  constexpr int kBlocks = Tiles::kKeys / 8;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  Tiles& tiles = *reinterpret_cast<Tiles*>(shared_memory);
  const Head head(shape);
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
  const int first_query = blockIdx.x * kOwnRows;
  const bool works = first_query + warp_row < shape.queries;

  const auto copy_keys = [&](int first, int stage) {
    if (first < shape.keys) {
      copy_rows(tiles.stages[stage].k, k + head.first_key, head.pitch, first, shape.keys);
      copy_rows(tiles.stages[stage].v, v + head.first_key, head.pitch, first, shape.keys);
    }
    tile::end_copies();
  };
  copy_rows(tiles.q, q + head.first_query, head.pitch, first_query, shape.queries);
  copy_keys(0, 0);

  tile::LeftFragment<float> q_frag[kHeadDim / 8];
  tile::Sums o_sums[kHeadDim / 8];
  float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {};  // scores are taken times log2(e)
  const float scale_log2 = shape.scale * kLog2E;
  tile::Stages<2> stages;
  for (int first = 0; first < shape.keys; first += Tiles::kKeys, stages.next()) {
    stages.wait();
    copy_keys(first + Tiles::kKeys, stages.write);
    if (!works) continue;
    auto& stage = tiles.stages[stages.read];
    if (first == 0)
#pragma unroll
      for (int step = 0; step < kHeadDim / 8; ++step)
        tile::load_left(q_frag[step], tiles.q, warp_row, 2 * step);

    // Scores of 16 queries and 32 keys; keys past the end have none.
    tile::Sums s[kBlocks];
    multiply_along<kHeadDim>(s, q_frag, stage.k);
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool there = first + 8 * b + tile::Sums::column(lane, i) < shape.keys;
        float& score = s[b].value[i];
        score = there ? score * scale_log2 : -INFINITY;
        largest[i / 2] = fmaxf(largest[i / 2], score);
      }

#pragma unroll
    // What is there so far counts by the new largest score.
    for (int h = 0; h < 2; ++h) {
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 1));
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 2));
      largest[h] = fmaxf(largest[h], row_max[h]);
      const float rescale = flash_attention::power_of_2(row_max[h] - largest[h]);
      row_max[h] = largest[h];
      row_sum[h] *= rescale;
#pragma unroll
      for (tile::Sums& sums : o_sums)
        sums.value[2 * h] *= rescale, sums.value[2 * h + 1] *= rescale;
    }
#pragma unroll
    for (int b = 0; b < kBlocks; ++b)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& p = s[b].value[i];
        p = flash_attention::power_of_2(p - row_max[i / 2]);
        row_sum[i / 2] += p;
      }
    multiply_across<kHeadDim>(o_sums, s, stage.v);
  }
  tile::wait_for_copies<0>();
  if (!works) return;

  // Write o and the logarithm of each row's sum.
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    row_sum[h] += __shfl_xor_sync(0xffffffffu, row_sum[h], 1);
    row_sum[h] += __shfl_xor_sync(0xffffffffu, row_sum[h], 2);
    factor[h] = 1.0f / row_sum[h];
    const int query = first_query + warp_row + lane / 4 + 8 * h;
    if (lane % 4 == 0 && query < shape.queries)
      log_sum_exp[head.first_sum + query] = row_max[h] / kLog2E + logf(row_sum[h]);
  }
  store_rows<kHeadDim>(o_sums, factor, o + head.first_query, head.pitch, first_query + warp_row,
                       shape.queries);
}

}  // namespace fewer_keys
