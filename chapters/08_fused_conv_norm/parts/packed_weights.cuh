// Weights in fp16 as tensor cores take them: a lane's four registers of an instruction side by
// side, so that it loads them by 16 bytes. Packed once for a network, not at each call.
#pragma once

#include <cuda_fp16.h>

#include "tiles.cuh"

namespace fused_conv_norm {

// A pair is a tap's weights for input channels 2 c and 2 c + 1, in one word; where the number of
// channels is odd, the last one's partner is zero. An instruction multiplies 16 products, so eight
// pairs are a step; the pairs of a stage are counted with channels fastest, and its last step is
// filled up with zeros. The packed weights are
//   [part of the filter (see Axis), stage, out_channels / 16, step, lane] of 16 bytes:
// lane 4 g + t has output channels g and g + 8 of the 16, of each pairs t and t + 4 of the step. So
// the weights that a tile needs for a stage lie in one piece without gaps.
constexpr int kStepPairs = 8;

// Pairs of channels in a stage. It depends on nothing but the filter, so that packed weights do for
// every tile, picture and device.
inline int stage_pairs(const ConvNormShape& shape) {
  const int taps = (shape.kernel + shape.upsample - 1) / shape.upsample;
  if (shape.stride == 2) return taps <= 3 ? 4 : taps <= 5 ? 2 : 1;
  return taps == 1 ? 16 : taps <= 3 ? 8 : taps <= 5 ? 4 : 1;
}

// The plan of tiles in fp16 storage. Their stages count in pairs of channels, a pixel of which is a
// word of shared memory.
struct HalfPlan : Problem {
  bool wide_x;        // rows of x begin at multiples of 8 bytes: four pixels a load
  int stage_pairs;    // pairs of input channels of a stage
  int stage_rows;     // rows of x, of each pair
  int channel_gap;    // words between a pair's last row and the next pair's first
  int stage_weights;  // words of a stage's weights
  int stage_words;    // words of a stage's weights and x together
};

// How a problem's weights are divided into stages, steps and groups of output channels.
struct Packing {
  int stages, last_pairs;  // stages, and the pairs in the last one
  int channel_groups;      // groups of 16 output channels

  __host__ __device__ explicit Packing(const HalfPlan& problem) {
    const int pairs = (problem.in_channels + 1) / 2;
    stages = (pairs - 1) / problem.stage_pairs + 1;
    last_pairs = pairs - (stages - 1) * problem.stage_pairs;
    channel_groups = (problem.out_channels + 15) / 16;
  }
  __host__ __device__ static int steps(int pairs, int area) {
    return (pairs * area + kStepPairs - 1) / kStepPairs;
  }
  __host__ __device__ static int area(int part, const Problem& p) {
    return axis_of(part / 2, p.upsample, p.kernel, p.pad_top, p.out_height).taps *
           axis_of(part % 2, p.upsample, p.kernel, p.pad_left, p.out_width).taps;
  }
  // Fragments of 16 bytes of a part, and of all parts before one; parts are upsample x upsample, by
  // rows of two.
  __host__ __device__ int64_t fragments(int part, const HalfPlan& p) const {
    const int of_part = area(part, p);
    return (int64_t(stages - 1) * steps(p.stage_pairs, of_part) + steps(last_pairs, of_part)) *
           channel_groups * 32;
  }
  __host__ __device__ int64_t before(int part, const HalfPlan& p) const {
    int64_t sum = 0;
    for (int other = 0; other < part; ++other) sum += fragments(other, p);
    return sum;
  }
};

constexpr int kPackThreads = 256;

// A thread for each fragment.
static __global__ void __launch_bounds__(kPackThreads)
    pack_kernel(const half* weight,  // [out_channels, in_channels, kernel, kernel]
                uint4* packed, int64_t fragments, const __grid_constant__ HalfPlan p) {
  int64_t at = int64_t(blockIdx.x) * kPackThreads + threadIdx.x;
  if (at >= fragments) return;
  uint4* const to = packed + at;

  // Which part, stage, 16 channels, step and lane.
  const Packing packing(p);
  int part = 0;
  for (; at >= packing.fragments(part, p); ++part) at -= packing.fragments(part, p);
  const int area = Packing::area(part, p);
  const int64_t full = int64_t(Packing::steps(p.stage_pairs, area)) * packing.channel_groups * 32;
  const int stage = int(min(at / full, int64_t(packing.stages - 1)));
  at -= stage * full;
  const int pairs = stage + 1 < packing.stages ? p.stage_pairs : packing.last_pairs;
  const int steps = Packing::steps(pairs, area);
  const int lane = int(at % 32), step = int(at / 32 % steps), group = int(at / 32 / steps);

  const Axis rows = axis_of(part / 2, p.upsample, p.kernel, p.pad_top, p.out_height),
             columns = axis_of(part % 2, p.upsample, p.kernel, p.pad_left, p.out_width);
  unsigned words[4];
  for (int r = 0; r < 4; ++r) {
    const int output = group * 16 + lane / 4 + r % 2 * 8;
    const int pair = step * kStepPairs + lane % 4 + r / 2 * 4, tap = pair / pairs;
    const int channel = 2 * (stage * p.stage_pairs + pair % pairs);
    const int row = rows.first_tap + tap / columns.taps * p.upsample,
              column = columns.first_tap + tap % columns.taps * p.upsample;
    const auto of_channel = [&](int c) {
      if (tap >= area || output >= p.out_channels || c >= p.in_channels) return half(0);
      return weight[((int64_t(output) * p.in_channels + c) * p.kernel + row) * p.kernel + column];
    };
    const half2 word = __halves2half2(of_channel(channel), of_channel(channel + 1));
    words[r] = *reinterpret_cast<const unsigned*>(&word);
  }
  *to = {words[0], words[1], words[2], words[3]};
}

}  // namespace fused_conv_norm
