// What the steps of this chapter share and none of them changes: the problem as a kernel sees it,
// and how a group of lanes takes a sample with 16-byte loads. A step's own file shows its idea.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "../shape.h"

namespace persistent_deformable_attention {

struct Level {
  int height, width;  // pixels
  int start;          // its first pixel among an image's pixels
};

// DeformableShape as the kernels take it, by value.
struct Problem {
  int batch, queries, heads, levels, points;
  int pixels;      // pixels of an image, all levels together
  int four_shift;  // a level has 1 << four_shift times four points
  Level level[kMaxLevels];
};

inline Problem problem_of(const DeformableShape& shape) {
  Problem problem{shape.batch,
                  shape.queries,
                  shape.heads,
                  shape.levels,
                  shape.points,
                  int(shape.pixels()),
                  shape.points == 8 ? 1 : 0,
                  {}};
  int start = 0;
  for (int l = 0; l < shape.levels; ++l) {
    problem.level[l] = {shape.level[l].height, shape.level[l].width, start};
    start += shape.level[l].height * shape.level[l].width;
  }
  return problem;
}

// 1 at distance 0, 0 from distance 1 on; also 0 for a distance that is infinite or NaN, since
// saturating makes 0 of a NaN. The weight of a pixel at that distance from a sample.
__device__ inline float tent(float distance) { return __saturatef(1.0f - fabsf(distance)); }

// The first of the two pixels between which x lies, moved inside 0 .. size-2 so that both can be
// loaded (0 where there is only one). For NaN 0, as fmaxf prefers a number.
__device__ inline float first_pixel(float x, int size) {
  return fminf(fmaxf(floorf(x), 0.0f), float(max(size - 2, 0)));
}

// Lanes that work on one row of the output, for one (image, query, head). A corner's `channels`
// values are `pieces` of 16 bytes; the pixels left and right of a sample lie side by side in
// memory, so that twice as many lanes load both at once. A lane has its column, 0 or 1, and its
// piece. Samples come in fours (points is a multiple of 4), prepared by one lane for its column.
template <int kChannels>
struct Group {
  static constexpr int kPieces = kChannels / 8;
  static constexpr int kLanes = 2 * kPieces;
  static constexpr int kRowsPerWarp = 32 / kLanes;

  __device__ static int row() { return threadIdx.x % 32 / kLanes; }  // among the warp's rows
  __device__ static int column() { return threadIdx.x % kLanes / kPieces; }
  __device__ static int piece() { return threadIdx.x % kPieces; }
};

// A sample's two pixels in one column: the upper one, counted from the level's first, and the
// weights of the upper and the lower one, attention weight included.
struct ColumnOfSample {
  int pixel;
  half2 weights;
};

__device__ inline ColumnOfSample prepare(half2 location, half attention_weight, const Level& level,
                                         int column) {
  const float x = fmaf(__low2float(location), float(level.width), -0.5f);
  const float y = fmaf(__high2float(location), float(level.height), -0.5f);
  const float left = first_pixel(x, level.width), top = first_pixel(y, level.height);
  const bool exists = column < level.width;
  const float along_x = exists ? tent(x - left - float(column)) : 0.0f;
  const float weight = __half2float(attention_weight) * along_x;
  const float lower = level.height > 1 ? tent(y - top - 1.0f) : 0.0f;
  return {int(top) * level.width + int(left) + (exists ? column : 0),
          __floats2half2_rn(weight * tent(y - top), weight * lower)};
}

// Reads what is read once, past the L1, which belongs to the values.
__device__ inline uint4 load_once(const uint4* address) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(address));
  return v;
}
__device__ inline uint2 load_once(const uint2* address) {
  uint2 v;
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
  return v;
}

// Prepares four samples of one level for this lane's column: number `four` of all fours there are.
__device__ inline void prepare_four(const half* locations, const half* weights, int64_t four,
                                    const Level& level, int column, ColumnOfSample (&samples)[4]) {
  const uint4 four_locations = load_once(reinterpret_cast<const uint4*>(locations) + four);
  const uint2 four_weights = load_once(reinterpret_cast<const uint2*>(weights) + four);
  const half2* location = reinterpret_cast<const half2*>(&four_locations);
  const half* weight = reinterpret_cast<const half*>(&four_weights);
#pragma unroll
  for (int i = 0; i < 4; ++i) samples[i] = prepare(location[i], weight[i], level, column);
}

// Adds four samples, prepared by lane `source` of the group, to this lane's eight channels. load
// brings 16 bytes of a pixel; lower_pixel is how many pixels further the lower one is. Two
// samples' four products are added in fp16, the rest in fp32.
template <int kLanes, class Load>
__device__ void add_four(const ColumnOfSample (&prepared)[4], int source, int lower_pixel,
                         Load load, float (&sums)[8]) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    uint4 upper[2], lower[2];
    half2 weights[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int pixel = __shfl_sync(0xffffffffu, prepared[i + j].pixel, source, kLanes);
      weights[j] = __shfl_sync(0xffffffffu, prepared[i + j].weights, source, kLanes);
      upper[j] = load(pixel);
      lower[j] = load(pixel + lower_pixel);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const auto pair = [c](const uint4& v) { return reinterpret_cast<const half2*>(&v)[c]; };
      half2 sum = __hmul2(__low2half2(weights[0]), pair(upper[0]));
      sum = __hfma2(__high2half2(weights[0]), pair(lower[0]), sum);
      sum = __hfma2(__low2half2(weights[1]), pair(upper[1]), sum);
      sum = __hfma2(__high2half2(weights[1]), pair(lower[1]), sum);
      const float2 wide = __half22float2(sum);
      sums[2 * c] += wide.x;
      sums[2 * c + 1] += wide.y;
    }
  }
}

// Adds the two columns and writes the row, eight bytes a lane: of its piece, the first or the
// second four channels. Written as what goes first from the caches: nobody reads it again.
template <int kChannels>
__device__ void store_row(half* out_row, bool valid, const float (&sums)[8]) {
  using G = Group<kChannels>;
  float mine[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float given = G::column() ? sums[i] : sums[i + 4];
    mine[i] =
        (G::column() ? sums[i + 4] : sums[i]) + __shfl_xor_sync(0xffffffffu, given, G::kPieces);
  }
  const half2 pairs[2] = {__floats2half2_rn(mine[0], mine[1]), __floats2half2_rn(mine[2], mine[3])};
  if (valid)
    __stcs(reinterpret_cast<uint2*>(out_row + G::piece() * 8 + G::column() * 4),
           *reinterpret_cast<const uint2*>(pairs));
}

// Throws std::invalid_argument for a shape that no step takes, or addresses that wide loads refuse.
inline void require_arguments(const half* value, const half* locations, const half* weights,
                              const half* out, const DeformableShape& shape) {
  require_deformable_shape(shape);
  for (const half* array : {value, locations, weights, static_cast<const half*>(out)})
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0)
      throw std::invalid_argument(
          "deformable attention: value, locations, weights and out must start at a multiple of 16 "
          "bytes");
}

// Blocks for `work` items, `each` of them a block. Throws std::invalid_argument beyond a grid's
// limit.
inline unsigned blocks_for(int64_t work, int64_t each, const DeformableShape& shape) {
  const int64_t blocks = (work + each - 1) / each;
  if (blocks > INT32_MAX)
    throw std::invalid_argument("deformable attention of shape " + describe(shape) + ": " +
                                std::to_string(blocks) + " blocks, a grid has at most 2147483647");
  return unsigned(blocks);
}

// Throws std::runtime_error when the launch was refused.
inline void require_launched(cudaError_t error, const DeformableShape& shape) {
  if (error != cudaSuccess)
    throw std::runtime_error("deformable attention of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

}  // namespace persistent_deformable_attention
