// A tile of the convolution with x and weights stored in fp16: in shared memory a word holds a
// pixel of two channels, which is a register of a tensor core's operand, loaded without conversion.
#pragma once

#include "packed_weights.cuh"
#include "tensor_tile.cuh"

namespace fused_conv_norm {

// Threads side by side load pieces of a row side by side. With a power of two of them a row, the
// rows that eight lanes store are in different banks. (Stride 2 has too many pieces for that.)
template <int kStride>
__host__ __device__ inline int row_threads(int pieces) {
  if (kStride == 2) return pieces;
  return pieces <= 2 ? 2 : pieces <= 4 ? 4 : 8;
}

// A thread loads up to kPiecesOf pieces of a stage; a piece is four pixels of two channels.
template <class Base, int kWarpChannelsOf, int kWarpPixelsOf, int kPiecesOf>
struct HalfTileOf : TensorTileOf<kFp16, Base, kWarpChannelsOf, kWarpPixelsOf> {
  using Element = half;
  using Plan = HalfPlan;
  static constexpr int kPieces = kPiecesOf;

  // Ignores the weights' address, since pack_weights() aligns them, and the device's limits.
  static Plan plan(const ConvNormShape& shape, const void* x, const void*, const DeviceLimits&) {
    Plan p = in_tiles<HalfTileOf>(shape);
    const int stride = shape.stride, taps = (p.kernel + p.upsample - 1) / p.upsample;
    p.stage_pairs = stage_pairs(shape);
    p.stage_rows = (Base::kRows - 1) * stride + taps;
    p.channel_gap = channel_gap(p.stage_rows * Base::pitch(stride));
    p.stage_weights = Base::kTileChannels / 16 * Packing::steps(p.stage_pairs, taps * taps) * 128;
    p.stage_words =
        p.stage_weights + p.stage_pairs * (p.stage_rows * Base::pitch(stride) + p.channel_gap);
    p.wide_x = p.width % 4 == 0 && is_aligned(x, 8);
    // Up to 3 columns are in front of the first, but without padding.
    const int columns = (taps == 1 ? 0 : 3) + (Base::kColumns - 1) * stride + taps;
    const int pieces = (columns + 3) / 4;
    const int threads = stride == 1 ? row_threads<1>(pieces) : row_threads<2>(pieces);
    if (p.stage_pairs * p.stage_rows * threads > kPieces * Base::kThreads)
      throw std::logic_error("a stage has more pieces than its threads load");
    return p;
  }
  // Two stages, two lists of pairs, the window; or sums on their way.
  static int bytes(const Plan& plan) {
    const int list = plan.stage_weights / (Base::kTileChannels / 16) / 32;
    return 4 * std::max(2 * (plan.stage_words + list) + kWindowFloats, HalfTileOf::kExchangeFloats);
  }
};
// The huge one's weights serve 256 pixels. A block of 8 warps fills an SM; its sums pass through
// 132 KiB of shared memory.
enum : TileName { kHalfHuge = kTensorTileNames, kHalfLarge, kHalfSmall };
template <>
struct Tile<kHalfHuge> : HalfTileOf<TileOf<16, 4, 16, 16, 4>, 64, 64, 5> {};
template <>
struct Tile<kHalfLarge> : HalfTileOf<LargeTensorBase, 64, 64, 5> {};
template <>
struct Tile<kHalfSmall> : HalfTileOf<SmallTensorBase, 32, 32, 3> {};

// ---- One stage ----------------------------------------------------------------------------------

// Where a thread loads four neighbouring pixels of two channels from, and where in a stage it
// stores them. It holds for every stage: only the stage's first channel moves.
struct Piece {
  enum Way { kNone, kZeros, kWhole, kEach };  // kWhole: by 8 bytes; kEach: pixel by pixel
  int from;  // index in the stage's part of x: the first pixel's, with kEach the row's
  unsigned to : 16, pair : 6, number : 5, way : 2;  // to: word of the stage's pixels
};

template <class T, int kStride>
__device__ void place_pieces(const Window& w, const HalfPlan& problem,
                             Piece (&pieces)[T::kPieces]) {
  constexpr int kPitch = T::pitch(kStride);
  const int count = (w.shift + (T::kColumns - 1) * kStride + w.columns.taps + 3) / 4;
  const int threads = row_threads<kStride>(count), pairs = problem.stage_pairs;
#pragma unroll
  for (int i = 0; i < T::kPieces; ++i) {
    const int item = thread_index() + i * T::kThreads;
    const int number = item % threads, row = item / threads / pairs;
    int pair = item / threads % pairs;
    // Pairs whose number differs by 2 are half of all banks apart.
    if (pairs >= 4) pair = (pair & ~3) | (pair & 1) << 1 | (pair >> 1 & 1);
    pieces[i] = {0, 0, 0, 0, Piece::kNone};
    if (number >= count || row >= problem.stage_rows) continue;
    int from_row = w.top + row;
    if (problem.reflect) from_row = reflected(from_row, problem.height);
    const int column = w.left + 4 * number;
    const bool whole = problem.wide_x && column >= 0 && column + 3 < problem.width;
    const bool nothing = from_row < 0 || from_row >= problem.height ||
                         (problem.wide_x && !whole && !problem.reflect);
    pieces[i].way = nothing ? Piece::kZeros : whole ? Piece::kWhole : Piece::kEach;
    pieces[i].from =
        int((int64_t(2 * pair) * problem.height + from_row) * problem.width + (whole ? column : 0));
    pieces[i].to =
        pair * (problem.stage_rows * kPitch + problem.channel_gap) + row * kPitch + 4 * number;
    pieces[i].pair = pair, pieces[i].number = number;
  }
}

// A piece's pixels of one channel.
__device__ inline uint2 four_pixels(const half* from, const Piece& piece, int left,
                                    const HalfPlan& problem) {
  if (piece.way == Piece::kWhole) return __ldg(reinterpret_cast<const uint2*>(from));
  unsigned bits[4] = {};
  if (piece.way == Piece::kEach) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      int at = left + 4 * int(piece.number) + c;
      if (problem.reflect) at = reflected(at, problem.width);
      if (at >= 0 && at < problem.width)
        bits[c] = __ldg(reinterpret_cast<const unsigned short*>(from) + at);
    }
  }
  return {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16};
}

// Pieces of the stage that begins at x and has that many channels; zeros beyond the last one.
template <class T>
__device__ void load_pixels(const half* x, int channels, const Piece (&pieces)[T::kPieces],
                            const Window& w, const HalfPlan& problem,
                            uint2 (&loaded)[T::kPieces][2]) {
#pragma unroll
  for (int i = 0; i < T::kPieces; ++i)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const bool exists = 2 * int(pieces[i].pair) + c < channels;
      const half* from = x + pieces[i].from + (c ? int64_t(problem.height) * problem.width : 0);
      loaded[i][c] = exists ? four_pixels(from, pieces[i], w.left, problem) : uint2{0, 0};
    }
}

// To shared memory, a pixel's two channels in a word.
template <class T>
__device__ void store_pixels(const uint2 (&loaded)[T::kPieces][2],
                             const Piece (&pieces)[T::kPieces],
                             unsigned* pixels) {  // [pairs, stage_rows, pitch] (shared)
#pragma unroll
  for (int i = 0; i < T::kPieces; ++i) {
    const uint2 even = loaded[i][0], odd = loaded[i][1];
    if (pieces[i].way != Piece::kNone)
      *reinterpret_cast<uint4*>(pixels + pieces[i].to) = {
          __byte_perm(even.x, odd.x, 0x5410), __byte_perm(even.x, odd.x, 0x7632),
          __byte_perm(even.y, odd.y, 0x5410), __byte_perm(even.y, odd.y, 0x7632)};
  }
}

// Lists where the pairs of a stage find their pixels: t and t + 4 of each step in one word. A last
// step is filled up with the first pixel, whose weight is zero.
template <class T, int kStride>
__device__ void list_pairs(unsigned* list, int pairs, const Window& w, const HalfPlan& problem) {
  constexpr int kPitch = T::pitch(kStride);
  const int area = w.rows.taps * w.columns.taps;
  const auto offset = [&](int pair) {
    const int tap = pair / pairs;
    return tap < area ? pair % pairs * (problem.stage_rows * kPitch + problem.channel_gap) +
                            tap / w.columns.taps * kPitch + tap % w.columns.taps
                      : 0;
  };
  for (int k = thread_index(); k < 4 * Packing::steps(pairs, area); k += T::kThreads) {
    const int pair = k / 4 * kStepPairs + k % 4;
    list[k] = offset(pair) | offset(pair + 4) << 16;
  }
}

// Adds a warp's share of a stage's products: steps me.share, me.share + kShares, ... weights,
// pixels and list point to what this lane reads first.
template <class T, int kStride>
__device__ void multiply_pairs(const uint4* weights, const unsigned* pixels, const unsigned* list,
                               int steps, const Warp<T>& me,
                               float (&sum)[T::kWarpChannels / 16][T::kWarpPixels / 8][4]) {
#pragma unroll 1
  for (int step = me.share; step < steps; step += T::kShares) {
    const unsigned at = list[4 * step];
    unsigned b[T::kWarpPixels / 8][2];
#pragma unroll
    for (int n = 0; n < T::kWarpPixels / 8; ++n) {
      const int row = 8 * n / T::kColumns, column = 8 * n % T::kColumns;
      const unsigned* from = pixels + row * kStride * T::pitch(kStride) + column * kStride;
      b[n][0] = from[at & 0xffff];
      b[n][1] = from[at >> 16];
    }
#pragma unroll
    for (int m = 0; m < T::kWarpChannels / 16; ++m) {
      const uint4 four = weights[(m * steps + step) * 32];
      const unsigned a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int n = 0; n < T::kWarpPixels / 8; ++n) multiply_add<kFp16>(sum[m][n], a, b[n]);
    }
  }
}

// Waits for all of this thread's copies.
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// ---- A tile -------------------------------------------------------------------------------------

// The convolution's values of one tile, as convolve() in fp32 gives them.
template <class T, int kStride>
__device__ void convolve(const half* x,
                         const half* packed,  // weights, see Packing
                         const Place& place, const HalfPlan& problem, float* memory,
                         float (&value)[T::kOwn][T::kRows]) {
  const Warp<T> me;
  const Packing packing(problem);
  constexpr int kGroups = T::kTileChannels / 16;
  const int list_words = problem.stage_weights / kGroups / 32;
  unsigned* const lists = reinterpret_cast<unsigned*>(memory + 2 * problem.stage_words);
  Window& w = *reinterpret_cast<Window*>(lists + 2 * list_words);
  if (threadIdx.x == 0) w = window_of<T, kStride>(place, problem);
  __syncthreads();
  const int area = w.rows.taps * w.columns.taps, stages = area > 0 ? packing.stages : 0;
  const auto pairs_of = [&](int stage) {
    return stage + 1 < packing.stages ? problem.stage_pairs : packing.last_pairs;
  };
  const auto list_of = [&](int stage) {
    return lists + (stage + 1 < packing.stages ? 0 : list_words);
  };
  list_pairs<T, kStride>(list_of(0), pairs_of(0), w, problem);
  if (stages > 1) list_pairs<T, kStride>(list_of(stages - 1), pairs_of(stages - 1), w, problem);

  Piece pieces[T::kPieces];
  uint2 loaded[T::kPieces][2];
  place_pieces<T, kStride>(w, problem, pieces);
  const auto load_stage = [&](int stage) {
    // Weights: a piece of the packed ones, zeros beyond the last channels.
    const int steps = Packing::steps(pairs_of(stage), area), first_group = w.group * kGroups;
    const uint4* from =
        reinterpret_cast<const uint4*>(packed) +
        packing.before(2 * place.part_y + place.part_x, problem) +
        (int64_t(stage) * Packing::steps(problem.stage_pairs, area) * packing.channel_groups +
         int64_t(first_group) * steps) *
            32;
    const int there = (packing.channel_groups - first_group) * steps * 32;
    float* const to = memory + stage % 2 * problem.stage_words;
    for (int i = thread_index(); i < kGroups * steps * 32; i += T::kThreads)
      copy_async<16>(to + 4 * i, reinterpret_cast<const float*>(i < there ? from + i : from),
                     i < there);
    const int first_channel = 2 * stage * problem.stage_pairs;
    load_pixels<T>(x + (int64_t(w.image) * problem.in_channels + first_channel) * problem.height *
                           problem.width,
                   problem.in_channels - first_channel, pieces, w, problem, loaded);
  };
  const auto pixels_of = [&](int stage) {
    return reinterpret_cast<unsigned*>(memory + stage % 2 * problem.stage_words +
                                       problem.stage_weights);
  };

  // While a stage is multiplied, the next one's weights come, and its pixels, in registers: only
  // there can two channels be put into one word.
  float sum[T::kWarpChannels / 16][T::kWarpPixels / 8][4] = {};
  if (stages > 0) {
    load_stage(0);
    store_pixels<T>(loaded, pieces, pixels_of(0));
  }
  for (int stage = 0; stage < stages; ++stage) {
    wait_for_copies();
    __syncthreads();  // this stage has come, and nobody reads the one before any more
    if (stage + 1 < stages) load_stage(stage + 1);
    const uint4* const weights =
        reinterpret_cast<const uint4*>(memory + stage % 2 * problem.stage_words) + me.lane;
    const int steps = Packing::steps(pairs_of(stage), area);
    const unsigned* const pixels = pixels_of(stage) + w.shift +
                                   me.first_pixel / T::kColumns * kStride * T::pitch(kStride) +
                                   me.group * kStride;
    multiply_pairs<T, kStride>(weights + me.first_channel / 16 * steps * 32, pixels,
                               list_of(stage) + me.third, steps, me, sum);
    if (stage + 1 < stages) store_pixels<T>(loaded, pieces, pixels_of(stage + 1));
  }
  __syncthreads();
  hand_over<T>(sum, me, memory, value);
}

}  // namespace fused_conv_norm
