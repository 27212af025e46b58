// How the output is cut into tiles, a block's work at a time, and what all launches share: the
// problem as kernels take it, the choice of a tile for a shape, checks, memory, the launch itself.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "../shape.h"

namespace fused_conv_norm {

// ConvNormShape as kernels take it, by value, and how many tiles of which kind its output has.
struct Problem {
  int batch, in_channels, out_channels, height, width;  // height and width of x
  int kernel, upsample, pad_top, pad_left;
  int out_height, out_width;
  bool reflect, relu;
  float eps;

  int groups;                   // groups of output channels: a tile computes one
  int tile_rows, tile_columns;  // tiles of a part of a plane, down and across; parts: see Axis
  int plane_tiles;              // tiles of one plane, all parts together
  int tiles;                    // tiles of the whole output
};

// One axis, rows or columns, of a part of the output. Without upsampling the output is one part.
// With upsample 2 there are zeros between the pixels of x, so an output meets a pixel with every
// other tap only; with which ones depends on whether its row (column) is even or odd. Outputs alike
// in that are a part: 2 x 2 parts, each an ordinary convolution of x with a smaller filter.
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

// ---- Kinds of tile ------------------------------------------------------------------------------

// How a block's threads share a tile of the output: channels and pixels are the two sides of a
// matrix product over (input channel, tap). Lanes side by side have pixels side by side; a thread
// sums up kChannels x kPixels outputs, in kSplit shares that are added at the end.
template <int kThreadChannels, int kChannelGroups, int kTileRows, int kTileColumns, int kParts>
struct TileOf {
  static constexpr int kChannels = kThreadChannels;  // a thread's channels, kChannelGroups apart
  static constexpr int kGroups = kChannelGroups;
  static constexpr int kRows = kTileRows;  // the tile's rows: a thread has one pixel in each
  static constexpr int kColumns = kTileColumns;
  static constexpr int kSplit = kParts;  // groups of threads that share a sum's products
  static constexpr int kTileChannels = kChannels * kGroups;
  static constexpr int kTilePixels = kRows * kColumns;
  static constexpr int kTileFloats = kTileChannels * kTilePixels;
  static constexpr int kSplitThreads = kGroups * kColumns;
  static constexpr int kThreads = kSplitThreads * kSplit;
  static constexpr int kOwn = kChannels / kSplit;  // channels of a thread once shares are added
  static constexpr int kBlocks = 512 / kThreads;   // blocks per SM, at least: bounds the registers
  using Element = float;                           // x, weight, residual and y in memory
  // A row of x in a stage: its columns under the widest filter, and up to 3 more to begin at a
  // multiple of 16 bytes.
  __host__ __device__ static constexpr int pitch(int stride) {
    return ((kColumns - 1) * stride + 9 + 3 + 3) / 4 * 4;
  }
};

// A tile's number, Tile<kName> what it is. A tile brings its own plan:
//   Plan            the problem with what the tile's convolve() needs beside it, for the kernel
//   plan(...)       the shape's plan; addresses of x and weight decide how they are copied
//   bytes(plan)     shared memory that a block needs to compute tiles
using TileName = int;
template <TileName kName>
struct Tile;

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

// The shape cut into tiles T: the part of a plan that all kinds of tile have.
template <class T>
typename T::Plan in_tiles(const ConvNormShape& shape) {
  typename T::Plan p{};
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
    refuse_shape(shape, std::to_string(tiles) + " tiles, a grid has at most 2147483647");
  p.tiles = int(tiles);
  return p;
}

// ---- Tiles in fp32: their stages ----------------------------------------------------------------

// A stage is what a block has in shared memory of x and weights at a time, all rows of so many
// input channels; two stages take turns.
struct Fp32Plan : Problem {
  int stage_channels;        // input channels of a stage
  int stage_rows;            // rows of x, of each channel
  int weight_pitch;          // floats from one row of weights, of an output channel, to the next
  int stage_floats;          // floats of a stage's weights and x together
  int row_share;             // see channel_of_row()
  bool wide_weight, wide_x;  // copies of 16 bytes: rows begin at multiples of that

  // Floats that no row uses in front of a channel's rows of x: rows follow one another without
  // gaps.
  __device__ int skipped_before(int) const { return 0; }
};

// channel_of_row(row, share_of_row(stage_rows)) is row / stage_rows, rounded down. It takes a
// multiplication and a shift where a division takes some 20 instructions. The share is 2^16 / stage_rows
// rounded up, by less than 1; so row * share is too large by less than row. That changes no result
// while row * stage_rows < 2^16, as in every stage.
__host__ __device__ inline int share_of_row(int stage_rows) {
  return (0x10000 + stage_rows - 1) / stage_rows;
}
__host__ __device__ inline int channel_of_row(int row, int share) { return row * share >> 16; }

constexpr int kWindowFloats = 16;  // shared memory for a Window, which says where a tile lies

// Floats from a row of weights to the next, for rows of at least `floats`: rows begin at multiples
// of 16 bytes, and eight of them one below the other are in different banks.
inline int spread_rows(int floats) {
  const int pitch = (floats + 3) / 4 * 4;
  return pitch % 8 == 0 ? pitch + 4 : pitch;
}

// The plan of a tile whose stages are in fp32; T says how long a row of weights and a channel's
// rows of x are. A stage takes at most a fifth of a block's shared memory: an SM holds two blocks
// of two stages each.
template <class T>
typename T::Plan in_stages(const ConvNormShape& shape, const void* x, const void* weight,
                           const DeviceLimits& limits) {
  typename T::Plan p = in_tiles<T>(shape);
  // As many channels as give a few dozen products, fewer where that is too large.
  const int taps = (p.kernel + p.upsample - 1) / p.upsample;
  p.stage_channels = taps == 1 ? 32 : taps <= 3 ? 8 : taps <= 5 ? 4 : 3;
  p.stage_rows = (T::kRows - 1) * shape.stride + taps;
  const int channel_floats = T::channel_floats(p.stage_rows * T::pitch(shape.stride));
  for (;; p.stage_channels /= 2) {
    p.weight_pitch = T::weight_pitch(p.stage_channels * taps * taps);
    p.stage_floats = T::kTileChannels * p.weight_pitch + p.stage_channels * channel_floats;
    if (p.stage_channels == 1 || p.stage_floats * 4 <= limits.shared_bytes / 5) break;
  }
  p.row_share = share_of_row(p.stage_rows);
  p.wide_x = p.width % 4 == 0 && is_aligned(x, 16);
  p.wide_weight = p.upsample == 1 && p.in_channels * p.kernel * p.kernel % 4 == 0 &&
                  p.stage_channels * p.kernel * p.kernel % 4 == 0 && is_aligned(weight, 16);
  return p;
}

template <int... kSizes>
struct Fp32Tile : TileOf<kSizes...> {
  using Plan = Fp32Plan;
  static int weight_pitch(int products) { return spread_rows(products); }
  static int channel_floats(int of_rows) { return of_rows; }
  static Plan plan(const ConvNormShape& shape, const void* x, const void* weight,
                   const DeviceLimits& limits) {
    return in_stages<Fp32Tile>(shape, x, weight, limits);
  }
  // Two stages and the list of taps; or the shares of the sums on their way between threads.
  static int bytes(const Plan& plan) {
    return 4 * std::max(2 * plan.stage_floats + 2 * plan.weight_pitch + kWindowFloats,
                        (Fp32Tile::kSplit - 1) * Fp32Tile::kTileFloats);
  }
};

// The large one has most products for each load; the medium one spreads a small output over more
// blocks, and a tile's products over all of their warps; the narrow one is for few output channels.
enum : TileName { kLarge, kMedium, kNarrow, kTileNames };
template <>
struct Tile<kLarge> : Fp32Tile<8, 8, 8, 16, 2> {};
template <>
struct Tile<kMedium> : Fp32Tile<8, 4, 8, 8, 8> {};
template <>
struct Tile<kNarrow> : Fp32Tile<4, 1, 8, 32, 4> {};

// ---- Where a tile lies --------------------------------------------------------------------------

struct Place {
  int image, group;   // group: which group of output channels
  int tile_of_plane;  // 0 ... plane_tiles - 1
  int part_y, part_x;
  int row, column;  // where its first output is within its part
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

// The type of x, weight, residual and y for this kind of tile.
template <TileName kName>
using Element = typename Tile<kName>::Element;

// ---- The tile for a shape -----------------------------------------------------------------------

// How long the busiest SM is busy with tiles of that kind, where a product takes `each`.
template <TileName kName>
double cost_of(const ConvNormShape& shape, int sm_count, double each) {
  using T = Tile<kName>;
  const auto up = [](int64_t value, int64_t unit) { return (value + unit - 1) / unit; };
  const int64_t tiles = shape.batch * up(shape.out_channels, T::kTileChannels) * shape.upsample *
                        shape.upsample * up(up(shape.out_height(), shape.upsample), T::kRows) *
                        up(up(shape.out_width(), shape.upsample), T::kColumns);
  return double(up(tiles, sm_count)) * T::kTileFloats * each;
}

// The names, cheapest first; names of equal cost keep their order.
using TileCost = std::pair<double, TileName>;
inline std::array<TileName, 3> cheapest_first(std::array<TileCost, 3> costs) {
  std::stable_sort(costs.begin(), costs.end(),
                   [](const TileCost& a, const TileCost& b) { return a.first < b.first; });
  return {costs[0].second, costs[1].second, costs[2].second};
}

// Calls use.operator()<kName, kStride>() for that one of kNames and that stride.
template <TileName... kNames, class Use>
void with_tile(TileName name, int stride, const Use& use) {
  const auto with_stride = [&]<TileName kName>() {
    if (name != kName) return;
    stride == 1 ? use.template operator()<kName, 1>() : use.template operator()<kName, 2>();
  };
  (with_stride.template operator()<kNames>(), ...);
}

// The kinds of tile that a step may choose from, best first.
struct Fp32Tiles {
  using Element = float;
  // A product costs more in the smaller ones, which do less with each load.
  static std::array<TileName, 3> by_cost(const ConvNormShape& shape, const DeviceLimits& limits) {
    return cheapest_first({TileCost{cost_of<kLarge>(shape, limits.sm_count, 1), kLarge},
                           TileCost{cost_of<kMedium>(shape, limits.sm_count, 1.25), kMedium},
                           TileCost{cost_of<kNarrow>(shape, limits.sm_count, 3), kNarrow}});
  }
  template <class Use>
  static void with(TileName name, int stride, const Use& use) {
    with_tile<kLarge, kMedium, kNarrow>(name, stride, use);
  }
};

// Calls use.operator()<kName, kStride>(plan) with the tile that suits the shape best, and its plan.
template <class Tiles, class Use>
void with_best_tile(const void* x, const void* weight, const ConvNormShape& shape, const Use& use) {
  const DeviceLimits limits = device_limits();
  Tiles::with(Tiles::by_cost(shape, limits)[0], shape.stride, [&]<TileName kName, int kStride>() {
    use.template operator()<kName, kStride>(Tile<kName>::plan(shape, x, weight, limits));
  });
}

// ---- Launches -----------------------------------------------------------------------------------

// Throws std::invalid_argument for a shape that no step takes, or arrays that are not there.
inline void require_arguments(const void* x, const void* weight, const float* gamma,
                              const float* beta, const void* y, const ConvNormShape& shape) {
  require_conv_norm_shape(shape);
  for (const void* array :
       {x, weight, static_cast<const void*>(gamma), static_cast<const void*>(beta), y})
    if (!array) refuse_shape(shape, "x, weight, gamma, beta and y must not be null");
}

// Throws std::runtime_error when CUDA refused.
inline void require_done(cudaError_t error, const ConvNormShape& shape) {
  if (error != cudaSuccess)
    throw std::runtime_error("convolution of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

// Allows the kernel that much shared memory; each time, since a reset of the device takes it back.
template <class Kernel>
void allow_shared_memory(Kernel* kernel, int bytes, const ConvNormShape& shape) {
  require_done(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               shape);
}

// Throws std::runtime_error when CUDA refuses the launch.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), int64_t blocks, int threads, int shared_bytes,
            const ConvNormShape& shape, cudaStream_t stream,
            const std::type_identity_t<Parameters>&... arguments) {
  if (shared_bytes > 0) allow_shared_memory(kernel, shared_bytes, shape);
  kernel<<<unsigned(blocks), threads, shared_bytes, stream>>>(arguments...);
  require_done(cudaGetLastError(), shape);
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
