// A tile of the convolution, as every step computes it: an implicit matrix product. Rows of x and
// weights come in stages by asynchronous copies; the products of a stage need no matrix of taps and
// pixels, only a list that says how far from an output's corner each tap finds its pixel.
#pragma once

#include "tiles.cuh"

namespace fused_conv_norm {

// ---- Asynchronous copies (sm_80 and newer; before, plain ones) ----------------------------------

// Copies kBytes, 4 or 16, to shared memory, or writes zeros there and reads nothing.
template <int kBytes>
__device__ inline void copy_async(float* to, const float* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = unsigned(__cvta_generic_to_shared(to));
  const int bytes = inside ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
#else
  if constexpr (kBytes == 16)
    *reinterpret_cast<float4*>(to) =
        inside ? *reinterpret_cast<const float4*>(from) : float4{0, 0, 0, 0};
  else
    *to = inside ? *from : 0.0f;
#endif
}
__device__ inline void end_stage() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for this thread's copies of all stages but the newest.
__device__ inline void wait_for_older_stages() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

// This thread's number, asked for anew: what the compiler works out from it is not kept in
// registers from one tile to the next.
__device__ inline int thread_index() {
  int index = threadIdx.x;
  asm volatile("" : "+r"(index));
  return index;
}

// ---- One stage ----------------------------------------------------------------------------------

// The pixel that padding by reflection finds in place `at` of an axis. A place further out than the
// picture is long still lies outside afterwards.
__device__ inline int reflected(int at, int size) {
  if (at < 0) at = -at;
  return at >= size ? 2 * (size - 1) - at : at;
}

// Where a block's tile lies in x. It stands in shared memory, and is read there each time it is
// needed: in registers it would take the place of sums.
struct Window {
  int image, group;
  Axis rows, columns;
  int top, left;  // where the tile's stage begins in x; negative in the padding
  int shift;      // columns between a multiple of 4 and left, where copies are of 16 bytes
};
template <class T, int kStride>
__device__ Window window_of(const Place& place, const typename T::Plan& problem) {
  Window w{place.image, place.group, rows_of(place, problem), columns_of(place, problem), 0, 0, 0};
  w.top = place.row * kStride - w.rows.pad;
  w.left = place.column * kStride - w.columns.pad;
  if (problem.wide_x) w.shift = w.left & 3, w.left -= w.shift;
  return w;
}

// Rows of x: 4 columns a thread and copy.
template <class T, int kStride>
__device__ void stage_x(const float* x,  // [batch, in_channels, height, width]
                        float* rows,     // [stage_channels, stage_rows, pitch] (shared)
                        int first_channel, const Window& w, const typename T::Plan& problem) {
  constexpr int kPitch = T::pitch(kStride), kPieces = kPitch / 4;
  constexpr int kLanes = kPieces <= 8 ? 8 : kPieces <= 16 ? 16 : 32;  // lanes that share a row
  const int pieces = (w.shift + (T::kColumns - 1) * kStride + w.columns.taps + 3) / 4;
  const int thread = thread_index();
  const int piece = thread % kLanes;
  if (piece >= pieces) return;
  const int column = w.left + 4 * piece;
  const int all_rows = problem.stage_channels * problem.stage_rows;
  for (int i = thread / kLanes; i < all_rows; i += T::kThreads / kLanes) {
    const int of_stage = channel_of_row(i, problem.row_share), channel = first_channel + of_stage;
    int row = w.top + i - of_stage * problem.stage_rows;
    if (problem.reflect) row = reflected(row, problem.height);
    // Below the tile's last output nothing is needed, and nothing may be there.
    const bool row_inside = channel < problem.in_channels && row >= 0 && row < problem.height;
    const float* from =
        x +
        ((int64_t(w.image) * problem.in_channels + channel) * problem.height + row) * problem.width;
    float* to = rows + i * kPitch + 4 * piece;
    to += problem.skipped_before(of_stage);
    const bool inside = column >= 0 && column + 3 < problem.width;
    if (problem.wide_x && (inside || !problem.reflect)) {
      copy_async<16>(to, row_inside && inside ? from + column : x, row_inside && inside);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        int at = column + c;
        if (problem.reflect) at = reflected(at, problem.width);
        const bool pixel = row_inside && at >= 0 && at < problem.width;
        copy_async<4>(to + c, pixel ? from + at : x, pixel);
      }
    }
  }
}

// Rows of weights, products of one output channel: as they lie in memory where there are no parts,
// else gathered by the list of taps. Zeros beyond the last channels.
template <class T>
__device__ void stage_weights(const float* weight,  // [out_channels, in_channels, kernel, kernel]
                              float* rows,          // [tile channels, weight_pitch] (shared)
                              const int* taps,      // weights from a channel's first (shared)
                              int group, int first_channel, int products,
                              const typename T::Plan& problem) {
  const int taps_of_channel = problem.kernel * problem.kernel;
  const int row_length = problem.in_channels * taps_of_channel;
  const float* from = weight + first_channel * taps_of_channel;
  // 16 lanes a row.
  const int thread = thread_index();
  for (int m = thread / 16; m < T::kTileChannels; m += T::kThreads / 16) {
    const int channel = group * T::kTileChannels + m;
    const bool exists = channel < problem.out_channels;
    const float* from_row = from + int64_t(channel) * row_length;
    float* to = rows + m * problem.weight_pitch;
    if (problem.wide_weight)
      for (int k = thread % 16 * 4; k < products; k += 64)
        copy_async<16>(to + k, exists ? from_row + k : weight, exists);
    else
      for (int k = thread % 16; k < (products + 3) / 4 * 4; k += 16) {
        const bool inside = exists && k < products;
        copy_async<4>(to + k, inside ? from_row + taps[k] : weight, inside);
      }
  }
}

// Adds this thread's share of a stage's products: pairs split, split + kSplit, ... of neighbouring
// ones. Of each product a thread multiplies the weights of all its channels with all its pixels.
// More than two products at a time would leave no registers for the sums.
template <class T, int kStride>
__device__ void multiply(const float* weights, const float* pixels, const int2* offsets, int twos,
                         int split, int weight_pitch, float (&sum)[T::kChannels][T::kRows]) {
  constexpr int kRowStep = T::pitch(kStride) * kStride;
#pragma unroll 1
  for (int two = split; two < twos; two += T::kSplit) {
    const int2 offset = offsets[two];
    float pixel[2][T::kRows];
#pragma unroll
    for (int j = 0; j < T::kRows; ++j) {
      pixel[0][j] = pixels[offset.x + j * kRowStep];
      pixel[1][j] = pixels[offset.y + j * kRowStep];
    }
    const float* row = weights + 2 * two;
#pragma unroll
    for (int i = 0; i < T::kChannels; ++i, row += T::kGroups * weight_pitch) {
      const float2 w = *reinterpret_cast<const float2*>(row);
#pragma unroll
      for (int j = 0; j < T::kRows; ++j) {
        sum[i][j] = fmaf(w.x, pixel[0][j], sum[i][j]);
        sum[i][j] = fmaf(w.y, pixel[1][j], sum[i][j]);
      }
    }
  }
}

// The same for stride 1 and filters of kTaps rows, a column of a channel's filter at a time. A
// thread's pixels stand below each other, so the taps of a column meet almost the same ones: kRows
// + kTaps - 1 pixels are loaded for kRows * kTaps products.
template <class T, int kTaps>
__device__ void multiply_columns(const float* weights, const float* pixels, int channels,
                                 int columns, int split, const Fp32Plan& problem,
                                 float (&sum)[T::kChannels][T::kRows]) {
  constexpr int kPitch = T::pitch(1);
  int channel = 0, column = split;
#pragma unroll 1
  for (;; column += T::kSplit) {
    while (column >= columns) column -= columns, ++channel;
    if (channel >= channels) return;
    float pixel[T::kRows + kTaps - 1];
#pragma unroll
    for (int j = 0; j < T::kRows + kTaps - 1; ++j)
      pixel[j] = pixels[(channel * problem.stage_rows + j) * kPitch + column];
    const float* const filter = weights + channel * kTaps * columns + column;
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      const float* row = filter + tap * columns;
#pragma unroll
      for (int i = 0; i < T::kChannels; ++i, row += T::kGroups * problem.weight_pitch) {
        const float w = *row;
#pragma unroll
        for (int j = 0; j < T::kRows; ++j) sum[i][j] = fmaf(w, pixel[j + tap], sum[i][j]);
      }
    }
  }
}

// ---- A tile -------------------------------------------------------------------------------------

// Who a thread is within its tile.
template <class T>
struct Thread {
  int index = thread_index();
  int split = index / T::kSplitThreads;
  int group = index % T::kSplitThreads / T::kColumns;
  int column = index % T::kColumns;
  // Its own output channels of the tile's, once shares are added.
  __device__ int channel(int own) const { return (split * T::kOwn + own) * T::kGroups + group; }
};

// Adds up the shares that kSplit groups of threads have of each sum; each group keeps the sums of
// kOwn channels. The order of additions is fixed: two runs give the same bits.
template <class T>
__device__ void add_shares(const float (&sum)[T::kChannels][T::kRows], const Thread<T>& me,
                           float* exchange,  // [kSplit - 1, kTileFloats] (shared)
                           float (&value)[T::kOwn][T::kRows]) {
  const int lane = me.index % T::kSplitThreads;
  const auto place = [&](int from, int owner, int i, int j) {
    const int slot = from < owner ? from : from - 1;
    return exchange +
           (((slot * T::kSplit + owner) * T::kOwn + i) * T::kRows + j) * T::kSplitThreads + lane;
  };
#pragma unroll
  for (int owner = 0; owner < T::kSplit; ++owner) {
    if (owner == me.split) continue;
#pragma unroll
    for (int i = 0; i < T::kOwn; ++i)
#pragma unroll
      for (int j = 0; j < T::kRows; ++j)
        *place(me.split, owner, i, j) = sum[owner * T::kOwn + i][j];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i)
#pragma unroll
    for (int j = 0; j < T::kRows; ++j) {
      float all = 0;
#pragma unroll
      for (int from = 0; from < T::kSplit; ++from)
        all += from == me.split ? sum[from * T::kOwn + i][j] : *place(from, me.split, i, j);
      value[i][j] = all;
    }
  __syncthreads();
}

// The convolution's values of one tile: value[i][j] is the pixel in row j, column `column` of the
// tile, of its channel Thread::channel(i). All threads of the block call it; memory has
// T::bytes().
template <class T, int kStride>
__device__ void convolve(const float* x, const float* weight, const Place& place,
                         const Fp32Plan& problem, float* memory,
                         float (&value)[T::kOwn][T::kRows]) {
  const Thread<T> me;
  constexpr int kPitch = T::pitch(kStride);

  // List the taps: where each product of a stage finds its pixel and its weight. The last two is
  // filled up with the first pixel, which is there, and gets weights of zero.
  int* const offsets = reinterpret_cast<int*>(memory + 2 * problem.stage_floats);
  int* const taps = offsets + problem.weight_pitch;
  Window& w = *reinterpret_cast<Window*>(taps + problem.weight_pitch);
  if (threadIdx.x == 0) w = window_of<T, kStride>(place, problem);
  __syncthreads();
  const int area = w.rows.taps * w.columns.taps;
  const int products_of_stage = problem.stage_channels * area;
  for (int k = me.index; k < problem.weight_pitch; k += T::kThreads) {
    int offset = 0, tap = 0;
    if (k < products_of_stage) {
      const int channel = k / area, y = k % area / w.columns.taps, column = k % w.columns.taps;
      offset = (channel * problem.stage_rows + y) * kPitch + column;
      tap = (channel * problem.kernel + w.rows.first_tap + y * problem.upsample) * problem.kernel +
            w.columns.first_tap + column * problem.upsample;
    }
    offsets[k] = offset;
    taps[k] = tap;
  }
  __syncthreads();

  float sum[T::kChannels][T::kRows] = {};
  const int stages =
      area > 0 ? (problem.in_channels + problem.stage_channels - 1) / problem.stage_channels : 0;
  const auto load_stage = [&](int stage) {
    float* const to = memory + stage % 2 * problem.stage_floats;
    const int first_channel = stage * problem.stage_channels;
    const int channels = min(problem.stage_channels, problem.in_channels - first_channel);
    stage_weights<T>(weight, to, taps, w.group, first_channel, channels * area, problem);
    stage_x<T, kStride>(x, to + T::kTileChannels * problem.weight_pitch, first_channel, w, problem);
  };

  // Load the next stage while this one is multiplied.
  if (stages > 0) load_stage(0);
  end_stage();
  for (int stage = 0; stage < stages; ++stage) {
    if (stage + 1 < stages) load_stage(stage + 1);
    end_stage();
    wait_for_older_stages();
    __syncthreads();
    const float* const from = memory + stage % 2 * problem.stage_floats;
    const float* const weights = from + me.group * problem.weight_pitch;
    const float* const pixels =
        from + T::kTileChannels * problem.weight_pitch + w.shift + me.column * kStride;
    const int channels =
        min(problem.stage_channels, problem.in_channels - stage * problem.stage_channels);
    if (kStride == 1 && w.rows.taps == 3)
      multiply_columns<T, 3>(weights, pixels, channels, w.columns.taps, me.split, problem, sum);
    else if (kStride == 1 && w.rows.taps == 9)
      multiply_columns<T, 9>(weights, pixels, channels, w.columns.taps, me.split, problem, sum);
    else
      multiply<T, kStride>(weights, pixels, reinterpret_cast<const int2*>(offsets),
                           (channels * area + 1) / 2, me.split, problem.weight_pitch, sum);
    __syncthreads();
  }
  add_shares<T>(sum, me, memory, value);
}

// Calls use(i, j, channel, index) for each output of the tile that this thread owns and that
// exists: its value[i][j], of that output channel, belongs to element `index` of y.
template <class T, class Use>
__device__ void for_each_output(const Place& place, const Problem& problem, const Use& use) {
  const Thread<T> me;
  const Axis rows = rows_of(place, problem), columns = columns_of(place, problem);
  const int column = place.column + me.column;
#pragma unroll
  for (int i = 0; i < T::kOwn; ++i) {
    const int channel = place.group * T::kTileChannels + me.channel(i);
#pragma unroll
    for (int j = 0; j < T::kRows; ++j) {
      const int row = place.row + j;
      if (channel >= problem.out_channels || row >= rows.outputs || column >= columns.outputs)
        continue;
      const int64_t plane = int64_t(place.image) * problem.out_channels + channel;
      const int64_t index =
          (plane * problem.out_height + rows.first + row * problem.upsample) * problem.out_width +
          columns.first + column * problem.upsample;
      use(i, j, channel, index);
    }
  }
}

}  // namespace fused_conv_norm
