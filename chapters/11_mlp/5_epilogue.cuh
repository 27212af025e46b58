// Step 5, epilogue: bias, GELU and residual where the sums are, in registers. y is stored once, and
// what the step before loaded and stored a second time is not moved at all.
//
// For that a lane's sums should be neighbours in y. By mma.sync's layout lane 4 g + t has columns
// 2 t and 2 t + 1 of every eight: four bytes here, four bytes there. But which column of y a
// product calls its c-th is the copies' choice, and so rows of weight go to shared memory in
// another order:
//
//   column of y, of 32     0  1  2  3  4  5  6  7   8  9 10 ...
//   product, column in it  0:0 0:1 1:0 1:1 2:0 2:1 3:0 3:1   0:2 0:3 1:2 ...
//
// Then lane t's two columns of four products are 8 t to 8 t + 7: 16 bytes in fp16, loaded and
// stored as one piece.
//
// The tile is chosen for each shape: a device computes as many tiles at a time as it holds, and the
// last round costs as much as a full one.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "3_pipeline.cuh"

namespace mlp {

// In each 32 columns of y, column 8 t + 2 j + i is column 2 t + i of product j.
struct Grouped {
  __device__ static int source(unsigned row) {
    const unsigned j = row / 8 % 4, t = row % 8 / 2, i = row % 2;
    return int(row / 32 * 32 + 8 * t + 2 * j + i);
  }
};

// What a lane has of one row: eight numbers side by side, 16 bytes of half, 32 of float.
template <class Element>
struct alignas(16) Eight {
  Element value[8];
};

// Eight numbers from `from` on, `count` of which are there. kWhole: all are, as whole pieces of 16
// bytes.
template <bool kWhole, class Element>
__device__ Eight<Element> load_eight(const Element* from, int count) {
  Eight<Element> eight;
  if constexpr (kWhole) {
    eight = *reinterpret_cast<const Eight<Element>*>(from);
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e) eight.value[e] = e < count ? from[e] : Element(0.0f);
  }
  return eight;
}
template <bool kWhole, class Element>
__device__ void store_eight(Element* to, int count, const Eight<Element>& eight) {
  if constexpr (kWhole) {
    if (count > 0) *reinterpret_cast<Eight<Element>*>(to) = eight;
  } else {
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (e < count) to[e] = eight.value[e];
  }
}

// y = act(sums + bias) + residual for the warp's outputs. kWhole: n is a multiple of 8 and all
// arrays begin at multiples of 16 bytes. A lane loads all its biases at once, and its residuals of
// 32 columns before it uses the first.
template <bool kWhole, bool kGelu, class Element, class T>
__device__ void finish_sums(const WarpSums<T>& sums, const Element* __restrict__ bias,
                            const Element* __restrict__ residual, Element* __restrict__ y, int m,
                            int n, const Place<T>& place) {
  constexpr int kGroups = T::kRights / 4;  // groups of 32 columns
  const int lane = threadIdx.x % 32;
  const int first_row = place.first_row + int(place.warp_row) + lane / 4;
  const int first_column = place.first_column + int(place.warp_column) + lane % 4 * 8;
  Eight<Element> biases[kGroups] = {};
  if (bias)
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int column = first_column + 32 * group;
      if (column < n) biases[group] = load_eight<kWhole>(bias + column, n - column);
    }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int column = first_column + 32 * group, count = n - column;
    Eight<Element> residuals[2 * T::kLefts] = {};
    if (residual && count > 0)
#pragma unroll
      for (int i = 0; i < 2 * T::kLefts; ++i)
        residuals[i] = load_eight<kWhole>(
            residual + int64_t(min(first_row + 8 * i, m - 1)) * n + column, count);
#pragma unroll
    for (int i = 0; i < 2 * T::kLefts; ++i) {
      const int row = first_row + 8 * i;
      Eight<Element> result;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float v =
            sums[i / 2][4 * group + e / 2].value[i % 2 * 2 + e % 2] + float(biases[group].value[e]);
        if (kGelu) v = gelu(v);
        result.value[e] = Element(v + float(residuals[i].value[e]));
      }
      store_eight<kWhole>(y + int64_t(row) * n + column, row < m ? count : 0, result);
    }
  }
}

// The tile of one block.
template <class Element, class T, bool kWhole>
__device__ void epilogue_tile(const Element* __restrict__ x,         // [m, k]
                              const Element* __restrict__ weight,    // [n, k]
                              const Element* __restrict__ bias,      // [n], or null
                              const Element* __restrict__ residual,  // [m, n], or null
                              Element* __restrict__ y,               // [m, n]
                              int m, int n, int k, bool with_gelu) {
  extern __shared__ uint4 shared[];
  auto* const memory = reinterpret_cast<Stage<Element, T, tile::Swizzled>*>(shared);
  const Place<T> place(n);
  WarpSums<T> sums;
  multiply_all<Grouped>(x, weight, m, n, k, memory, place, sums);
  // One branch for all outputs: between branches the compiler moves no instruction.
  if (with_gelu)
    finish_sums<kWhole, true, Element, T>(sums, bias, residual, y, m, n, place);
  else
    finish_sums<kWhole, false, Element, T>(sums, bias, residual, y, m, n, place);
}
template <class Element, class T, bool kWhole>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    epilogue_kernel(const Element* __restrict__ x, const Element* __restrict__ weight,
                    const Element* __restrict__ bias, const Element* __restrict__ residual,
                    Element* __restrict__ y, int m, int n, int k, bool with_gelu) {
#if __CUDA_ARCH__ < 900
  // Here 255 registers do not hold all that such a warp keeps in them: nobody launches it.
  if constexpr (T::kLefts * T::kRights > 32) return __trap();
#endif
  epilogue_tile<Element, T, kWhole>(x, weight, bias, residual, y, m, n, k, with_gelu);
}

// ---- Launch -------------------------------------------------------------------------------------

template <class Element, class T>
constexpr int kEpilogueBytes = kStages* int(sizeof(Stage<Element, T, tile::Swizzled>));

// Whether eight neighbouring outputs are whole pieces of 16 bytes in all arrays behind the product.
template <class Element>
bool in_pieces(const Shape& shape, const Element* bias, const Element* residual, const Element* y) {
  bool whole = shape.n % 8 == 0;
  for (const Element* const array : {bias, residual, y})
    whole = whole && reinterpret_cast<uintptr_t>(array) % 16 == 0;
  return whole;
}

// With tiles of that kind. Only small ones take outputs that are no whole pieces.
template <class Element, class T>
void launch_epilogue(const Element* x, const Element* weight, const Element* bias,
                     const Element* residual, Element* y, const Shape& shape, cudaStream_t stream) {
  constexpr int kBytes = kEpilogueBytes<Element, T>;
  auto kernel = epilogue_kernel<Element, T, true>;
  if (!in_pieces<Element>(shape, bias, residual, y)) {
    if constexpr (std::is_same_v<T, SmallTile>)
      kernel = epilogue_kernel<Element, T, false>;
    else
      refuse_shape(shape,
                   "tiles of more than 64 x 64 outputs need n a multiple of 8, and bias, "
                   "residual and y at multiples of 16 bytes");
  }
  require_launched(
      shape, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<blocks_of<T>(shape), T::kThreads, kBytes, stream>>>(
      x, weight, bias, residual, y, shape.m, shape.n, shape.k, shape.gelu);
  require_launched(shape);
}

// 192 x 192 outputs: with 6304 rows (32 images of 197 tokens) 768 and 3072 columns are 132 and
// 528 tiles, one and four full rounds on the 132 SMs of an H200.
using WideTile = BlockTile<192, 192, 48, 96>;
enum class TileName { kSmall, kLarge, kWide };

// Whether there is code for the wide tile: on compute capability 9.0 or newer, if it was built for
// that.
template <class Element>
bool has_wide_tile() {
  cudaFuncAttributes attributes{};
  return device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 &&
         cudaFuncGetAttributes(&attributes, epilogue_kernel<Element, WideTile, true>) ==
             cudaSuccess &&
         attributes.ptxVersion >= 90;
}

// How long a product takes in tiles of that kind, in an arbitrary unit: rounds of as many tiles as
// the device holds at a time, each of them as long as its outputs are many. A small tile's operands
// are used less often: `slower` is by how much, from predicted times on an H200. Infinite where its
// slices do not fit in shared memory.
template <class Element, class T>
double tile_cost(const Shape& shape, int sms, int shared_bytes, double slower) {
  if (shared_bytes < kEpilogueBytes<Element, T>) return INFINITY;
  const int blocks = std::min(T::kBlocks, std::max(1, shared_bytes / kEpilogueBytes<Element, T>));
  const int64_t at_once = int64_t(sms) * blocks, tiles = blocks_of<T>(shape);
  return double((tiles + at_once - 1) / at_once) * blocks * T::kRows * T::kColumns * slower;
}
template <class Element>
TileName choose_tile(const Shape& shape, int sms, int shared_bytes, bool with_wide) {
  const double wide =
                   with_wide ? tile_cost<Element, WideTile>(shape, sms, shared_bytes, 1) : INFINITY,
               large = tile_cost<Element, LargeTile>(shape, sms, shared_bytes, 1.15),
               small = tile_cost<Element, SmallTile>(shape, sms, shared_bytes, 1.6);
  if (wide <= large && wide <= small) return TileName::kWide;
  return large <= small ? TileName::kLarge : TileName::kSmall;
}

// y = act(x weightᵀ + bias) + residual. x [m, k], weight [n, k], bias [n] or null, residual [m, n]
// or null, y [m, n]; sums in fp32. Floats are multiplied in tf32. Any m and n; k a multiple of 8
// (float: 4), x and weight at multiples of 16 bytes. Throws std::invalid_argument naming shape and
// limit when it cannot, std::runtime_error where the device has no tf32.
template <class Element>
void epilogue(const Element* x, const Element* weight, const Element* bias, const Element* residual,
              Element* y, const Shape& shape, cudaStream_t stream) {
  require_product(shape, x, weight, y);
  require_pieces(shape, x, weight, tile::kOfPiece<Element>);
  require_element<Element>();
  const TileName tile =
      in_pieces<Element>(shape, bias, residual, y)
          ? choose_tile<Element>(shape, device_attribute(cudaDevAttrMultiProcessorCount),
                                 shared_limit(), has_wide_tile<Element>())
          : TileName::kSmall;
  const auto launch = tile == TileName::kWide    ? launch_epilogue<Element, WideTile>
                      : tile == TileName::kLarge ? launch_epilogue<Element, LargeTile>
                                                 : launch_epilogue<Element, SmallTile>;
  launch(x, weight, bias, residual, y, shape, stream);
}

}  // namespace mlp
