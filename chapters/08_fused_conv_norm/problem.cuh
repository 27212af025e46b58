// What the steps of this chapter share on the host and on the device: the problem as kernels see
// it, and how its output is cut into tiles. A step's own file shows its idea.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "shape.h"

namespace fused_conv_norm {

// ConvNormShape as the kernels take it, by value, and how a block works on it.
struct Problem {
  int batch, in_channels, out_channels, height, width;  // of x
  int kernel, upsample, pad_top, pad_left;
  int out_height, out_width;
  bool reflect, relu;
  float eps;

  // Copies of 16 bytes, where rows of x and of the weights begin at multiples of that.
  bool wide_x, wide_weight;

  // Tiles: the output channels in groups, the pixels of a plane in parts (see Axis) and those in
  // rows and columns of tiles.
  int groups, tile_rows, tile_columns, plane_tiles, tiles;

  // Stages: so many input channels at once, of each so many rows of x; floats of a row of weights,
  // and of a stage in all.
  // For tensor cores channels lie channel_gap floats further apart than their rows need.
  // For fp16 storage weight_pitch is unused, two channels make one, and a stage's weights come to
  // stage_weights words.
  int stage_channels, stage_rows, weight_pitch, stage_floats, channel_gap, stage_weights;
  int row_share;  // of a row in its channel's: see channel_of_row()
};

// row / stage_rows for the rows of a stage, without a division, which takes some 20 instructions:
// with share = ceil(2^16 / stage_rows), row * share exceeds 2^16 * row / stage_rows by less than
// row, too little to reach the next whole number as long as row * stage_rows < 2^16.
__host__ __device__ inline int share_of_row(int stage_rows) {
  return (0x10000 + stage_rows - 1) / stage_rows;
}
__host__ __device__ inline int channel_of_row(int row, int share) { return row * share >> 16; }

// A convolution of x with zeros between its pixels (upsample 2) meets a pixel with every other tap
// only; which ones, depends on whether the output's row (column) is even or odd. So such outputs
// fall into 2 x 2 parts, and each part is an ordinary convolution of x itself with a smaller
// filter. Without upsampling there is one part. One axis of a part:
struct Axis {
  int first_tap, taps;  // taps of the filter: first_tap, first_tap + upsample, ...
  int pad;              // pixels in front of x; may be -1
  int first, outputs;   // outputs: first, first + upsample, ...
};
__host__ __device__ inline Axis axis_of(int part, int upsample, int kernel, int pad, int size) {
  if (upsample == 1) return {0, kernel, pad, 0, size};
  const int first_tap = (pad + part) & 1;
  return {first_tap, (kernel - first_tap + 1) / 2, (pad - part - first_tap) / 2, part,
          (size - part + 1) / 2};
}

// How a block's threads share a tile of the output: channels and pixels are the two sides of a
// matrix product over (input channel, tap). Lanes side by side have pixels side by side; a thread
// sums up kChannels x kPixels outputs, in kSplit shares that are added at the end.
template <int kThreadChannels, int kChannelGroups, int kTileRows, int kTileColumns, int kParts>
struct TileOf {
  static constexpr int kChannels = kThreadChannels;  // of a thread, kChannelGroups apart
  static constexpr int kGroups = kChannelGroups;
  static constexpr int kRows = kTileRows;  // of the tile: one pixel of a thread in each
  static constexpr int kColumns = kTileColumns;
  static constexpr int kSplit = kParts;  // of the products, over groups of threads
  static constexpr int kTileChannels = kChannels * kGroups;
  static constexpr int kTilePixels = kRows * kColumns;
  static constexpr int kTileFloats = kTileChannels * kTilePixels;
  static constexpr int kSplitThreads = kGroups * kColumns;
  static constexpr int kThreads = kSplitThreads * kSplit;
  static constexpr int kOwn = kChannels / kSplit;  // channels of a thread once shares are added
  static constexpr int kBlocks = 512 / kThreads;   // of an SM, at least: bounds the registers
  static constexpr bool kTensor = false;           // products on tensor cores, see tensor_tile.cuh
  using Element = float;                           // of x, weight, residual and y in memory
  // A row of x in a stage: its columns under the widest filter, and up to 3 more to begin at a
  // multiple of 16 bytes.
  __host__ __device__ static constexpr int pitch(int stride) {
    return ((kColumns - 1) * stride + 9 + 3 + 3) / 4 * 4;
  }
};
// The large one has most products for each load; the medium one spreads a small output over more
// blocks, and a tile's products over all of their warps; the narrow one is for few output channels.
enum TileName {
  kLarge,
  kMedium,
  kNarrow,
  kTileNames,  // above: those of fp32; below: tensor_tile.cuh
  kTf32Large = kTileNames,
  kTf32Small,
  kFp16Large,
  kFp16Small,
  kHalfHuge,  // half_tile.cuh
  kHalfLarge,
  kHalfSmall
};
template <int kName>
struct Tile;
template <>
struct Tile<kLarge> : TileOf<8, 8, 8, 16, 2> {};
template <>
struct Tile<kMedium> : TileOf<8, 4, 8, 8, 8> {};
template <>
struct Tile<kNarrow> : TileOf<4, 1, 8, 32, 4> {};

// Where a tile lies.
struct Place {
  int image, group;   // of output channels
  int tile_of_plane;  // 0 ... plane_tiles - 1
  int part_y, part_x;
  int row, column;  // of its first output, among those of its part
};
__device__ inline Place place_of(int tile, const Problem& problem, int rows, int columns) {
  Place place;
  place.tile_of_plane = tile % problem.plane_tiles;
  place.group = tile / problem.plane_tiles % problem.groups;
  place.image = tile / problem.plane_tiles / problem.groups;
  const int of_part = problem.tile_rows * problem.tile_columns;
  const int part = place.tile_of_plane / of_part, at = place.tile_of_plane % of_part;
  place.part_y = part / 2;
  place.part_x = part % 2;
  place.row = at / problem.tile_columns * rows;
  place.column = at % problem.tile_columns * columns;
  return place;
}
__device__ inline Axis rows_of(const Place& place, const Problem& problem) {
  return axis_of(place.part_y, problem.upsample, problem.kernel, problem.pad_top,
                 problem.out_height);
}
__device__ inline Axis columns_of(const Place& place, const Problem& problem) {
  return axis_of(place.part_x, problem.upsample, problem.kernel, problem.pad_left,
                 problem.out_width);
}

// Eight pixels side by side of four channels are a read of tensor cores' operands: 8 or 24 floats
// beyond a multiple of 32 apart, they are in different banks.
inline int channel_gap(int floats) {
  int gap = 0;
  while ((floats + gap) % 16 != 8) gap += 4;
  return gap;
}

// Shared memory that a block of this device can have, and its SMs.
struct DeviceLimits {
  int shared_bytes = 0, sm_count = 0;
};
inline DeviceLimits device_limits() {
  int device = 0;
  DeviceLimits limits;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&limits.sm_count, cudaDevAttrMultiProcessorCount, device);
  return limits;
}

// Whether an array begins at a multiple of that many bytes.
inline bool is_aligned(const void* array, int bytes) {
  return reinterpret_cast<uintptr_t>(array) % bytes == 0;
}

// Stages of tiles in fp16 storage; in half_tile.cuh.
template <class T>
void set_half_stages(Problem& problem, const ConvNormShape& shape, const void* x);

// The shape in tiles of that kind, with addresses of x and weight that decide how they are copied.
// Stages are at most a fifth of a block's shared memory: two of them, for two blocks on an SM.
template <int kName>
Problem problem_of(const ConvNormShape& shape, const void* x, const void* weight,
                   const DeviceLimits& limits) {
  using T = Tile<kName>;
  Problem p{};
  p.batch = shape.batch, p.in_channels = shape.in_channels, p.out_channels = shape.out_channels;
  p.height = shape.height, p.width = shape.width, p.kernel = shape.kernel;
  p.upsample = shape.upsample, p.pad_top = shape.pad_top, p.pad_left = shape.pad_left;
  p.out_height = shape.out_height(), p.out_width = shape.out_width();
  p.reflect = shape.padding == Padding::kReflect;
  p.relu = shape.relu, p.eps = shape.eps;

  const auto up = [](int value, int unit) { return (value + unit - 1) / unit; };
  p.groups = up(p.out_channels, T::kTileChannels);
  p.tile_rows = up(up(p.out_height, p.upsample), T::kRows);
  p.tile_columns = up(up(p.out_width, p.upsample), T::kColumns);
  p.plane_tiles = p.tile_rows * p.tile_columns * p.upsample * p.upsample;
  const int64_t tiles = int64_t(p.batch) * p.groups * p.plane_tiles;
  if (tiles > INT32_MAX)
    throw std::invalid_argument("convolution of shape " + describe(shape) + ": " +
                                std::to_string(tiles) + " tiles, a grid has at most 2147483647");
  p.tiles = int(tiles);
  if constexpr (sizeof(typename T::Element) == 2) {
    set_half_stages<T>(p, shape, x);
    return p;
  }

  // As many channels a stage as give a few dozen products, fewer where that is too large.
  const int taps = up(p.kernel, p.upsample);
  const int pitch = T::pitch(shape.stride);
  p.stage_channels = taps == 1 ? 32 : taps <= 3 ? 8 : taps <= 5 ? 4 : 3;
  p.stage_rows = (T::kRows - 1) * shape.stride + taps;
  for (;; p.stage_channels /= 2) {
    // Rows of weights begin at multiples of 16 bytes, and lie so that eight of them side by side
    // are in different banks.
    p.weight_pitch = up(p.stage_channels * taps * taps, 4) * 4;
    if (T::kTensor) p.weight_pitch += 4;  // room for a zero at the end
    if (p.weight_pitch % 8 == 0) p.weight_pitch += 4;
    if (T::kTensor) p.channel_gap = channel_gap(p.stage_rows * pitch);
    p.stage_floats = T::kTileChannels * p.weight_pitch +
                     p.stage_channels * (p.stage_rows * pitch + p.channel_gap);
    if (p.stage_channels == 1 || p.stage_floats * 4 <= limits.shared_bytes / 5) break;
  }
  p.row_share = share_of_row(p.stage_rows);
  p.wide_x = p.width % 4 == 0 && is_aligned(x, 16);
  p.wide_weight = p.upsample == 1 && p.in_channels * p.kernel * p.kernel % 4 == 0 &&
                  p.stage_channels * p.kernel * p.kernel % 4 == 0 && is_aligned(weight, 16);
  return p;
}

// Bytes that a block needs to compute tiles: two stages and the list of taps, or the shares of the
// sums on their way between threads.
constexpr int kWindowFloats = 16;  // the place of a tile, see Window
template <int kName>
int tile_bytes(const Problem& problem) {
  using T = Tile<kName>;
  if constexpr (sizeof(typename T::Element) == 2) return T::bytes(problem);
  const int stages = 2 * problem.stage_floats + 2 * problem.weight_pitch + kWindowFloats;
  if constexpr (T::kTensor)  // their list of products is longer
    return 4 * std::max(stages + problem.weight_pitch + 2 * T::kStep, T::kExchangeFloats);
  return 4 * std::max(stages, (T::kSplit - 1) * T::kTileFloats);
}

// How long the busiest SM is busy with tiles of that kind, where a product takes `each`.
template <int kName>
double cost_of(const ConvNormShape& shape, int sm_count, double each) {
  using T = Tile<kName>;
  const auto up = [](int64_t value, int64_t unit) { return (value + unit - 1) / unit; };
  const int64_t tiles = shape.batch * up(shape.out_channels, T::kTileChannels) * shape.upsample *
                        shape.upsample * up(up(shape.out_height(), shape.upsample), T::kRows) *
                        up(up(shape.out_width(), shape.upsample), T::kColumns);
  return double(up(tiles, sm_count)) * T::kTileFloats * each;
}

// The kinds of tile, the quickest first; a product costs more in the smaller ones, which do less
// with each load.
inline std::array<TileName, kTileNames> tiles_by_cost(const ConvNormShape& shape, int sm_count) {
  const double costs[] = {cost_of<kLarge>(shape, sm_count, 1),
                          cost_of<kMedium>(shape, sm_count, 1.25),
                          cost_of<kNarrow>(shape, sm_count, 3)};
  std::array<TileName, kTileNames> names = {kLarge, kMedium, kNarrow};
  std::stable_sort(names.begin(), names.end(),
                   [&](TileName a, TileName b) { return costs[a] < costs[b]; });
  return names;
}
inline TileName choose_tile(const ConvNormShape& shape, int sm_count) {
  return tiles_by_cost(shape, sm_count)[0];
}

// Throws std::invalid_argument for a shape that no step takes, or arrays that are not there.
inline void require_arguments(const void* x, const void* weight, const float* gamma,
                              const float* beta, const void* y, const ConvNormShape& shape) {
  require_conv_norm_shape(shape);
  for (const void* array : {x, weight, static_cast<const void*>(gamma),
                            static_cast<const void*>(beta), y})
    if (!array)
      throw std::invalid_argument("convolution of shape " + describe(shape) +
                                  ": x, weight, gamma, beta and y must not be null");
}

// Throws std::runtime_error when CUDA refused.
inline void require_done(cudaError_t error, const ConvNormShape& shape) {
  if (error != cudaSuccess)
    throw std::runtime_error("convolution of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

// Floats for the time of a launch, taken and given back in the stream's order.
class Workspace {
 public:
  Workspace(int64_t floats, const ConvNormShape& shape, cudaStream_t stream) : stream_(stream) {
    require_done(cudaMallocAsync(reinterpret_cast<void**>(&data_), size_t(floats) * 4, stream),
                 shape);
  }
  ~Workspace() { cudaFreeAsync(data_, stream_); }  // an error is the next call's, too
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  float* data() { return data_; }

 private:
  float* data_ = nullptr;
  cudaStream_t stream_;
};

}  // namespace fused_conv_norm
