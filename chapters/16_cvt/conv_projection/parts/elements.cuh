// What all steps of the convolutional projection share: elements in fp16 and fp32, the arrays of q,
// k and v, what a launch is checked for, and how a map is cut into tiles.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "../../operations/operations.h"

namespace conv_projection {

// cvt::ProjectionShape, for kernels too.
struct Shape {
  int batch, height, width, channels, class_tokens;
  Shape(const cvt::ProjectionShape& s)
      : batch(s.batch),
        height(s.height),
        width(s.width),
        channels(s.channels),
        class_tokens(s.class_tokens) {}
  __host__ __device__ int out_height() const { return (height + 1) / 2; }
  __host__ __device__ int out_width() const { return (width + 1) / 2; }
  __host__ __device__ int queries() const { return class_tokens + height * width; }
  __host__ __device__ int keys() const { return class_tokens + out_height() * out_width(); }
};
using Weights = cvt::ProjectionWeights;
using Saved = cvt::BatchNormSaved;
using Gradients = cvt::ProjectionGradients;
using cvt::kKey;
using cvt::kQuery;
using cvt::kValue;

constexpr float kEpsilon = 1e-5f, kMomentum = 0.1f;  // BatchNorm's

// Three arrays: of q, k and v.
template <class Pointer>
struct Three {
  Pointer of[3];
};

// ---- Elements -----------------------------------------------------------------------------------

__device__ inline float widened(half value) { return __half2float(value); }
__device__ inline float widened(float value) { return value; }
template <class T>
__device__ T rounded(float value) {
  if constexpr (std::is_same_v<T, half>)
    return __float2half(value);
  else
    return value;
}

// What a lane moves at a time: kWidth elements, which lie at a multiple of their size.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Piece {
  T element[kWidth];
};
template <class T>
constexpr int kOfPiece = 16 / int(sizeof(T));  // elements of 16 bytes, the widest access there is

// ---- Launches -----------------------------------------------------------------------------------

// "[batch 32, height 56, width 56, channels 64, class tokens 0]"
inline std::string describe(const Shape& shape) {
  return "[batch " + std::to_string(shape.batch) + ", height " + std::to_string(shape.height) +
         ", width " + std::to_string(shape.width) + ", channels " + std::to_string(shape.channels) +
         ", class tokens " + std::to_string(shape.class_tokens) + "]";
}

// Throws std::invalid_argument naming the shape and the limit.
inline void require_shape(const Shape& shape) {
  const auto require = [&](bool ok, const char* limit) {
    if (!ok)
      throw std::invalid_argument("convolutional projection of shape " + describe(shape) + ": " +
                                  limit);
  };
  require(shape.batch >= 1 && shape.height >= 1 && shape.width >= 1 && shape.channels >= 1,
          "batch, height, width and channels must be at least 1");
  require(shape.class_tokens == 0 || shape.class_tokens == 1, "class tokens must be 0 or 1");
  require(shape.height <= 4096 && shape.width <= 4096, "height and width must be at most 4096");
  require(int64_t(shape.batch) * shape.queries() < INT32_MAX / int64_t(shape.channels),
          "a map must have fewer than 2^31 elements");
}
inline void require_pointers(const Shape& shape, std::initializer_list<const void*> arrays) {
  require_shape(shape);
  for (const void* array : arrays)
    if (array == nullptr)
      throw std::invalid_argument("convolutional projection of shape " + describe(shape) +
                                  ": no array may be null");
}
// Throws std::runtime_error when CUDA refused.
inline void require_launched(cudaError_t error, const Shape& shape) {
  if (error != cudaSuccess)
    throw std::runtime_error("convolutional projection of shape " + describe(shape) + ": " +
                             cudaGetErrorString(error));
}

inline unsigned blocks_of(int64_t count, int64_t a_block) {
  return unsigned((count + a_block - 1) / a_block);
}

// Whether tokens can be moved 16 bytes at a time: their channels fill whole pieces, and each array
// begins at a multiple of 16 bytes.
template <class T>
bool takes_pieces(const Shape& shape, std::initializer_list<const void*> arrays) {
  return shape.channels % kOfPiece<T> == 0 &&
         std::all_of(arrays.begin(), arrays.end(),
                     [](const void* a) { return reinterpret_cast<uintptr_t>(a) % 16 == 0; });
}

// Scratch of the stream, freed behind what was launched in between.
template <class T>
class Scratch {
 public:
  Scratch(size_t count, const Shape& shape, cudaStream_t stream) : stream_(stream) {
    require_launched(cudaMallocAsync(&data_, count * sizeof(T), stream), shape);
  }
  ~Scratch() { cudaFreeAsync(data_, stream_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
};

// ---- Tiles --------------------------------------------------------------------------------------

// A block has a tile of one sample: a band of rows, a strip of columns, a group of channels. A
// thread has one channel of it and walks down some columns side by side. Bands and strips begin at
// even rows and columns: there k and v have theirs.
constexpr int kGroup = 32;  // channels

struct Tiling {
  int rows, bands;      // rows of a band; the last one may have fewer
  int columns, strips;  // columns of a strip, likewise
  int groups, lanes;    // lanes: channels of a group, kGroup unless there are fewer in all
  __host__ __device__ int of_sample() const { return bands * strips; }
};
// Strips of at most most_columns, a multiple of `of_thread`, the columns that a thread has.
inline Tiling tiling_of(const Shape& shape, int most_columns, int of_thread) {
  const auto up_to = [](int n, int multiple) { return (n + multiple - 1) / multiple * multiple; };
  Tiling t{};
  t.groups = (shape.channels + kGroup - 1) / kGroup;
  t.lanes = std::min(shape.channels, kGroup);
  t.strips = (shape.width + most_columns - 1) / most_columns;
  t.columns = up_to((shape.width + t.strips - 1) / t.strips, of_thread);
  t.strips = (shape.width + t.columns - 1) / t.columns;
  // Bands of fewer than 14 rows would read more than a seventh of all rows twice.
  t.rows = up_to(shape.height, 2);
  while (t.rows >= 28 &&
         int64_t(shape.batch) * t.strips * t.groups * ((shape.height + t.rows - 1) / t.rows) < 256)
    t.rows = up_to((t.rows + 1) / 2, 2);
  t.bands = (shape.height + t.rows - 1) / t.rows;
  return t;
}

// Strips of the fused steps have at most 28 columns. A thread of the convolutions has 4 of them, or
// 2 where the map is so small that there would be few threads; on the way back it has 4.
constexpr int kMostColumns = 28, kColumnsBack = 4;
inline bool takes_four_columns(const Shape& shape) { return shape.width > 16; }
inline Tiling forward_tiling(const Shape& shape) {
  return tiling_of(shape, kMostColumns, takes_four_columns(shape) ? 4 : 2);
}
inline Tiling backward_tiling(const Shape& shape) {
  return tiling_of(shape, kMostColumns, kColumnsBack);
}

struct Tile {
  int sample, top, bottom, left, right;  // rows [top, bottom), columns [left, right)
  int channel;                           // the tile's first one
  int number;                            // the tile's number among those with its channels
};
__device__ inline Tile tile_of(unsigned block, const Tiling& tiling, const Shape& shape) {
  Tile tile;
  tile.channel = block % tiling.groups * kGroup;
  block /= tiling.groups;
  tile.number = block;
  tile.left = block % tiling.strips * tiling.columns;
  tile.right = min(tile.left + tiling.columns, shape.width);
  block /= tiling.strips;
  tile.top = block % tiling.bands * tiling.rows;
  tile.bottom = min(tile.top + tiling.rows, shape.height);
  tile.sample = block / tiling.bands;
  return tile;
}

}  // namespace conv_projection
