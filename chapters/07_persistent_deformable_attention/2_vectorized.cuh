// Step 2, vectorized: 16 bytes a lane, both columns of a sample in one load of the warp, and what a
// sample needs worked out once instead of once a channel.
#pragma once

#include "parts/sampling.cuh"

namespace persistent_deformable_attention {

constexpr int kVectorizedThreads = 256;

template <int kChannels>
__global__ void __launch_bounds__(kVectorizedThreads, 4)
    vectorized_kernel(const half* value,      // [batch, pixels, heads, channels]
                      const half* locations,  // [batch, queries, heads, levels, points, (x, y)]
                      const half* weights,    // [batch, queries, heads, levels, points]
                      half* out,              // [batch, queries, heads, channels]
                      const __grid_constant__ Problem problem) {
  // A group of lanes has one row: an (image, query, head). Lanes past the last row do the last one
  // again and do not write it: shuffles need whole warps.
  using G = Group<kChannels>;
  const int rows = problem.batch * problem.queries * problem.heads;
  const int wanted_row = int((int64_t(blockIdx.x) * kVectorizedThreads + threadIdx.x) / G::kLanes);
  const int row = min(wanted_row, rows - 1);
  const int head = row % problem.heads, image = row / problem.heads / problem.queries;

  const int stride = problem.heads * kChannels;
  const half* image_value =
      value + int64_t(image) * problem.pixels * stride + head * kChannels + G::piece() * 8;
  const int fours = problem.levels << problem.four_shift;  // groups of four samples per row

  float sums[8] = {};
  for (int first = 0; first < fours; first += G::kPieces) {
    // Prepare: every lane four samples, for its own column.
    ColumnOfSample prepared[4] = {};
    const int own = first + G::piece();
    if (own < fours)
      prepare_four(locations, weights, int64_t(row) * fours + own,
                   problem.level[own >> problem.four_shift], G::column(), prepared);

#pragma unroll 1
    // Sample: the group's lanes together take what each of them has prepared.
    for (int owner = 0; owner < G::kPieces && first + owner < fours; ++owner) {
      const Level level = problem.level[(first + owner) >> problem.four_shift];
      const half* level_value = image_value + int64_t(level.start) * stride;
      const auto load = [=](int pixel) {
        return __ldg(reinterpret_cast<const uint4*>(level_value + int64_t(pixel) * stride));
      };
      add_four<G::kLanes>(prepared, G::column() * G::kPieces + owner,
                          level.height > 1 ? level.width : 0, load, sums);
    }
  }
  store_row<kChannels>(out + int64_t(row) * kChannels, wanted_row < rows, sums);
}

template <int kChannels>
void launch_vectorized(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream) {
  const unsigned blocks =
      blocks_for(shape.rows(), kVectorizedThreads / Group<kChannels>::kLanes, shape);
  vectorized_kernel<kChannels><<<blocks, kVectorizedThreads, 0, stream>>>(value, locations, weights,
                                                                          out, problem_of(shape));
  require_launched(cudaGetLastError(), shape);
}

// As simple(); two samples' products are added in fp16, all else in fp32.
inline void vectorized(const half* value, const half* locations, const half* weights, half* out,
                       const DeformableShape& shape, cudaStream_t stream) {
  require_arguments(value, locations, weights, out, shape);
  const auto launch = shape.channels == 16   ? launch_vectorized<16>
                      : shape.channels == 32 ? launch_vectorized<32>
                                             : launch_vectorized<64>;
  launch(value, locations, weights, out, shape, stream);
}

}  // namespace persistent_deformable_attention
