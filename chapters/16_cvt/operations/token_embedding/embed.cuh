// Convolutional token embedding as products whose operands are gathered while they are copied: no
// array of patches is ever written. A product's numbers are in the order row of the kernel, column,
// channel, since channels are neighbours in memory; weights are brought into that order first.
#pragma once

#include "../linear_layers/linear.cuh"

namespace token_embedding {

using namespace cvt;
using namespace linear_layers;

// As a product's operand: a row is a position of a grid over a map, its columns are the numbers
// that the kernel's taps read there, [tap row, tap column, channel]. Tap (i, j) of position (r, c)
// reads row first_row + r step + i sign of the map, and its columns likewise; zeros outside.
struct Gathered {
  const float* map;  // [batch, height, width, channels]
  int height, width, channels;
  int batch, grid_height, grid_width;
  int tap_rows, tap_columns;
  int first_row, first_column, step, sign;
  bool whole;

  struct Place {
    const float* sample;  // null where there is no such position
    int row, column;      // where tap (0, 0) lies
  };
  __device__ Place row(int position) const {
    const int of_grid = grid_height * grid_width, sample = position / of_grid;
    if (sample >= batch) return {nullptr, 0, 0};
    const int in_grid = position % of_grid;
    return {map + int64_t(sample) * height * width * channels,
            first_row + in_grid / grid_width * step, first_column + in_grid % grid_width * step};
  }
  // Where number `column` of a position lies; null outside of the map.
  __device__ const float* number(const Place& place, int column) const {
    const int tap = column / channels;
    const int r = place.row + tap / tap_columns * sign;
    const int c = place.column + tap % tap_columns * sign;
    const bool inside = place.sample && tap < tap_rows * tap_columns &&
                        unsigned(r) < unsigned(height) && unsigned(c) < unsigned(width);
    return inside ? place.sample + (int64_t(r) * width + c) * channels + column % channels
                  : nullptr;
  }
  __device__ void copy(uint32_t to_shared, const Place& place, int column) const {
    if (whole) {
      const float* const from = number(place, column);
      return tile::copy_async(to_shared, from ? from : map, from != nullptr);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* const from = number(place, column + i);
      copy_number(to_shared + 4 * i, from ? from : map, from != nullptr);
    }
  }
};

// Packed weights [out, kernel, kernel, in] as rows [(tap row, tap column, out), in], of taps
// first + stride i alone.
struct TapWeights {
  const float* packed;
  int in, out, kernel, stride, first_row, first_column, tap_rows, tap_columns;
  bool whole;

  using Place = const float*;
  __device__ Place row(int row) const {
    const int tap = row / out;
    if (tap >= tap_rows * tap_columns) return nullptr;
    const int r = first_row + tap / tap_columns * stride;
    const int c = first_column + tap % tap_columns * stride;
    return packed + ((int64_t(row % out) * kernel + r) * kernel + c) * in;
  }
  __device__ void copy(uint32_t to_shared, Place row, int column) const {
    copy_four(to_shared, row + column, row ? in - column : 0, whole);
  }
};

// w [out, in, taps] → packed [out, taps, in].
static __global__ void pack_weights_kernel(const float* w, float* packed, int64_t count, int in,
                                           int taps) {
  const int64_t element = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (element >= count) return;
  const int channel = int(element % in), tap = int(element / in % taps);
  packed[element] = w[(element / in / taps * in + channel) * taps + tap];
}
inline void pack_weights(const float* w, float* packed, const EmbedShape& shape,
                         const std::string& what, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const int taps = shape.kernel * shape.kernel;
  const int64_t count = int64_t(shape.out_channels) * shape.in_channels * taps;
  pack_weights_kernel<<<divide_up(count, kThreads), kThreads, 0, stream>>>(w, packed, count,
                                                                           shape.in_channels, taps);
  require_cuda(what);
}

// Where dx goes: positions of every stride-th row and column.
struct PhaseFinish {
  static constexpr bool kSumsLeft = false;
  float* dx;  // [batch, height, width, channels]
  int height, width, channels, grid_height, grid_width, first_row, first_column, stride;
  bool whole;

  struct Nothing {};
  __device__ Nothing prepare(int) const { return {}; }
  __device__ void store(Nothing, int, int position, int column, float4 four) const {
    const int of_grid = grid_height * grid_width, in_grid = position % of_grid;
    const int r = first_row + in_grid / grid_width * stride;
    const int c = first_column + in_grid % grid_width * stride;
    float* const to =
        dx + ((int64_t(position / of_grid) * height + r) * width + c) * channels + column;
    if (whole)
      *reinterpret_cast<float4*>(to) = four;
    else
      for (int i = 0; i < 4; ++i)
        if (column + i < channels) to[i] = (&four.x)[i];
  }
};

inline std::string describe(const EmbedShape& s) {
  const auto text = [](int number) { return std::to_string(number); };
  return "[batch " + text(s.batch) + ", height " + text(s.height) + ", width " + text(s.width) +
         ", in_channels " + text(s.in_channels) + ", out_channels " + text(s.out_channels) +
         ", kernel " + text(s.kernel) + ", stride " + text(s.stride) + ", padding " +
         text(s.padding) + "]";
}
// Throws std::invalid_argument naming shape and limit; returns what a message begins with.
inline std::string require_embed(const EmbedShape& s, std::initializer_list<const float*> arrays) {
  const std::string what = "token embedding of shape " + describe(s);
  require_that(s.batch >= 1 && s.height >= 1 && s.width >= 1, what,
               "batch, height and width must be at least 1");
  require_that(s.in_channels >= 1 && s.out_channels >= 1, what, "channels must be at least 1");
  require_that(s.kernel >= 1 && s.kernel <= 16, what, "kernel must be 1 to 16");
  require_that(s.stride >= 1 && s.stride <= 16, what, "stride must be 1 to 16");
  require_that(s.padding >= 0 && s.padding < s.kernel, what, "padding must be 0 to kernel - 1");
  require_that(s.height + 2 * s.padding >= s.kernel && s.width + 2 * s.padding >= s.kernel, what,
               "the kernel must fit into the padded map");
  require_that(int64_t(s.batch) * s.height * s.width < int64_t(1) << 31, what,
               "batch * height * width must be below 2^31");
  for (const float* array : arrays) require_that(array != nullptr, what, "an array is null");
  return what;
}

// What an output's position reads of x.
inline Gathered patches(const float* x, const EmbedShape& s) {
  return {x,
          s.height,
          s.width,
          s.in_channels,
          s.batch,
          s.out_height(),
          s.out_width(),
          s.kernel,
          s.kernel,
          -s.padding,
          -s.padding,
          s.stride,
          1,
          whole_pieces(s.in_channels, x)};
}
inline int positions_of(const EmbedShape& s) { return s.batch * s.out_height() * s.out_width(); }

// A phase of dx: its rows first, first + stride, ... read the same rows of the kernel.
struct Phase {
  int first, count, tap, taps, out_row;  // first tap, how many, and the output's row it comes from
};
inline Phase phase_of(int first, int size, const EmbedShape& s) {
  const int tap = (first + s.padding) % s.stride;
  return {first, first < size ? divide_up(size - first, s.stride) : 0, tap,
          tap < s.kernel ? divide_up(s.kernel - tap, s.stride) : 0,
          (first + s.padding - tap) / s.stride};
}

// dx: gathered from dy. With a stride of 2 a position's row, even or odd, decides which rows of the
// kernel have reached it; each kind of position is a product of its own.
inline void embed_backward_x(const float* dy, const float* packed, float* dx, const EmbedShape& s,
                             const std::string& what, cudaStream_t stream) {
  for (int i = 0; i < s.stride; ++i)
    for (int j = 0; j < s.stride; ++j) {
      const Phase row = phase_of(i, s.height, s), column = phase_of(j, s.width, s);
      const int positions = s.batch * row.count * column.count;
      if (positions == 0) continue;
      const int taps = row.taps * column.taps;
      const Gathered left{dy,
                          s.out_height(),
                          s.out_width(),
                          s.out_channels,
                          s.batch,
                          row.count,
                          column.count,
                          row.taps,
                          column.taps,
                          row.out_row,
                          column.out_row,
                          1,
                          -1,
                          whole_pieces(s.out_channels, dy)};
      const TapWeights right{
          packed,  s.in_channels, s.out_channels, s.kernel,    s.stride,
          row.tap, column.tap,    row.taps,       column.taps, whole_pieces(s.in_channels, packed)};
      const PhaseFinish finish{
          dx,           s.height, s.width, s.in_channels, row.count,
          column.count, i,        j,       s.stride,      whole_pieces(s.in_channels, dx)};
      launch_product<Along, Across>(left, right, finish, positions, s.in_channels,
                                    taps * s.out_channels, 1, what, stream);
    }
}

}  // namespace token_embedding
