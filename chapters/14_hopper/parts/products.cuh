// Both products of attention by a warpgroup, four warps that multiply 64 rows together: what steps 2 to
// 4 compute with. Nothing waits here; the caller's fence stands before, its wait behind.
#pragma once

#include <type_traits>

#include "../../13_flash_attention/parts/fragments.cuh"
#include "maps.cuh"

namespace hopper {

using namespace flash_attention;  // what a warp computes with: fragments.cuh

constexpr int kGroupRows = 64, kGroupThreads = 128;  // per warpgroup

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Asks for the scores of 64 queries from `row` on and the first kKeys of a tile of keys, both where the
// copy engine has put them. s_frag: blocks of 8 keys, as the tensor cores leave them to a warp's 16 rows.
template <int kKeys, class QueryTile, class KeyTile>
__device__ void ask_for_scores(tile::Sums* s_frag, const QueryTile& q, int row, const KeyTile& k) {
  tile::multiply_async<kKeys>(s_frag, tile::operand(q, row, 0), tile::operand(k, 0, 0));
#pragma unroll
  for (int d = 16; d < QueryTile::kColumns; d += 16)
    tile::multiply_add_async<kKeys>(s_frag, tile::operand(q, row, d), tile::operand(k, 0, d));
}

// Asks for O += weights times the first 16 kSteps rows of a tile of V. The weights stay in registers.
template <int kSteps, int kValueBlocks, class ValueTile>
__device__ void ask_for_values(tile::Sums (&o_frag)[kValueBlocks],
                               const tile::LeftFragment<half>* weights, const ValueTile& v) {
#pragma unroll
  for (int j = 0; j < kSteps; ++j)
    tile::multiply_add_async<8 * kValueBlocks>(o_frag, weights[j], tile::operand(v, 16 * j, 0));
}

// Calls f with the width of the narrowest product that has so many keys, 1 to 64, as a constant.
template <class F>
__device__ void with_width(int keys, const F& f) {
  if (keys > 48)
    f(std::integral_constant<int, 64>{});
  else if (keys > 32)
    f(std::integral_constant<int, 48>{});
  else if (keys > 16)
    f(std::integral_constant<int, 32>{});
  else
    f(std::integral_constant<int, 16>{});
}

// Gives a warpgroup's 64 queries from `row` on the sign of the scale, as load_queries() does. A
// scale is seldom anything but positive; then nothing is written. `barrier` is the warpgroup's own.
template <class QueryTile>
__device__ void sign_queries(QueryTile& q, int row, float scale_log2, int barrier) {
  if (scale_log2 > 0) return;
  const half sign = scale_log2 < 0 ? -1 : 0;
  const int thread = threadIdx.x % kGroupThreads;
  for (int i = thread; i < kGroupRows * QueryTile::kColumns / 2; i += kGroupThreads) {
    const int r = row + i / (QueryTile::kColumns / 2), d = i % (QueryTile::kColumns / 2) * 2;
    reinterpret_cast<half2&>(q.at(r, d)) *= half2{sign, sign};
  }
  // Tensor cores read these rows next, by another way than the one they were written on.
  tile::fence_async();
  tile::meet<kGroupThreads>(barrier);
}
#endif

}  // namespace hopper
