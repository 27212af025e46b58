// Step 6, one product: all outputs are one matrix product, [patches of all images, 768] · [768,
// channels]. One launch computes it on tensor cores; it takes the pixels where they lie in the images and
// adds bias, position and class token on its way out.
#pragma once

#include <mma.h>

#include "parts/steps.cuh"

namespace patch_embedding {

using namespace patches_of_photos;

constexpr int kTile = 64;              // patches and channels of a block
constexpr int kDepth = 2 * kSide;      // values of both at a time: two rows of a patch
constexpr int kStride = kDepth + 8;    // row to row in shared memory; 8 more: fewer bank conflicts
constexpr int kOutStride = kTile + 4;  // the same for the sums
constexpr int kProductThreads = 128;   // 4 warps, 32 x 32 outputs each

// What a thread loads of a block's 64 rows of 32 values: 16 bytes of two rows, 4 threads a row. `from`
// is null where there is no such row: zeros then.
struct Loads {
  const half* from[2];
  uint4 piece[2];

  static __device__ int row_of(int i) { return int(threadIdx.x) / 4 + i * (kProductThreads / 4); }
  static __device__ int quarter() { return threadIdx.x % 4; }
  __device__ void load(int64_t offset) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      piece[i] =
          from[i] ? *reinterpret_cast<const uint4*>(from[i] + offset) : make_uint4(0, 0, 0, 0);
  }
  __device__ void store(half (*to)[kStride]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) *reinterpret_cast<uint4*>(&to[row_of(i)][quarter() * 8]) = piece[i];
  }
};

// Grid: tiles of 64 patches (of all images, one after the other) by tiles of 64 channels.
static __global__ void __launch_bounds__(kProductThreads)
    product_kernel(const half* image, const half* weight, const half* bias, const half* class_token,
                   const half* position, half* tokens, const Shape shape) {
  using namespace nvcuda;
  union Memory {
    struct {
      half pixels[kTile][kStride], filters[kTile][kStride];
    } in;
    float sums[kTile][kOutStride];
  };
  __shared__ __align__(16) Memory memory;
  const int columns = shape.width / kSide, patches = shape.height / kSide * columns;
  const int first_patch = blockIdx.x * kTile, first_channel = blockIdx.y * kTile;
  const int patches_here = min(kTile, shape.batch * patches - first_patch);
  const int channels_here = min(kTile, shape.channels - first_channel);
  const int warp = threadIdx.x / 32, warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;

  // Piece k of a patch is rows 2 (k % 8) and 2 (k % 8) + 1 of its colour k / 8.
  Loads pixels, filters;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = Loads::row_of(i), quarter = Loads::quarter(), number = first_patch + row;
    const int p = number % patches;
    const int64_t line = int64_t(number / patches) * kColors * shape.height + p / columns * kSide;
    pixels.from[i] = row < patches_here ? image + (line + quarter / 2) * shape.width +
                                              p % columns * kSide + quarter % 2 * 8
                                        : nullptr;
    filters.from[i] = row < channels_here
                          ? weight + int64_t(first_channel + row) * kPatchValues + quarter * 8
                          : nullptr;
  }
  const auto load = [&](int k) {
    pixels.load((int64_t(k / 8) * shape.height + k % 8 * 2) * shape.width);
    filters.load(k * kDepth);
  };

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
  for (auto& line : sum)
    for (auto& fragment : line) wmma::fill_fragment(fragment, 0.0f);
  load(0);
  for (int k = 0; k < kPatchValues / kDepth; ++k) {
    pixels.store(memory.in.pixels);
    filters.store(memory.in.filters);
    __syncthreads();
    // On their way while this piece is multiplied.
    if (k + 1 < kPatchValues / kDepth) load(k + 1);
#pragma unroll
    for (int part = 0; part < kDepth; part += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(a[i], &memory.in.pixels[warp_row + 16 * i][part], kStride);
        wmma::load_matrix_sync(b[i], &memory.in.filters[warp_column + 16 * i][part], kStride);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], a[i], b[j], sum[i][j]);
    }
    __syncthreads();
  }

  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(&memory.sums[warp_row + 16 * i][warp_column + 16 * j], sum[i][j],
                              kOutStride, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kTile; i += kProductThreads) {
    const int row = i / kTile, c = first_channel + i % kTile;
    if (row >= patches_here || c >= shape.channels) continue;
    const int number = first_patch + row, p = number % patches;
    const float offset =
        __half2float(bias[c]) + __half2float(position[int64_t(1 + p) * shape.channels + c]);
    tokens[(int64_t(number / patches) * (1 + patches) + 1 + p) * shape.channels + c] =
        __float2half(memory.sums[row][i % kTile] + offset);
  }
  // The class token's row of each image whose first patch is here.
  for (int row = 0; row < patches_here; ++row) {
    if ((first_patch + row) % patches != 0) continue;
    const int c = first_channel + threadIdx.x;
    if (threadIdx.x < channels_here)
      tokens[int64_t((first_patch + row) / patches) * (1 + patches) * shape.channels + c] =
          __float2half(__half2float(class_token[c]) + __half2float(position[c]));
  }
}

// All tokens. Everything is in device memory; image and weight begin at multiples of 16 bytes. Throws
// std::invalid_argument naming shape and limit, std::runtime_error when CUDA refuses.
inline void embed(const half* image, const half* weight, const half* bias, const half* class_token,
                  const half* position, half* tokens, const Shape& shape, cudaStream_t stream) {
  require_shape(shape, whole(shape));
  if (reinterpret_cast<uintptr_t>(image) % 16 || reinterpret_cast<uintptr_t>(weight) % 16)
    throw std::invalid_argument("patch embedding of shape " + describe(shape) +
                                ": image and weight must start at a multiple of 16 bytes");
  const int64_t patches = int64_t(shape.batch) * shape.patches();
  const unsigned channel_tiles = unsigned((shape.channels - 1) / kTile + 1);
  if (channel_tiles > 65535)
    throw std::invalid_argument("patch embedding of shape " + describe(shape) +
                                ": at most 4194240 channels");
  const dim3 grid(unsigned((patches - 1) / kTile + 1), channel_tiles);
  product_kernel<<<grid, kProductThreads, 0, stream>>>(image, weight, bias, class_token, position,
                                                       tokens, shape);
  require_success(cudaGetLastError(), "launch");
}

// Device memory of one_product(): all its arrays, each begins at a multiple of 16 bytes.
inline size_t rounded_up(int64_t values) { return size_t((values + 7) / 8 * 8) * sizeof(half); }
inline size_t one_product_bytes(const Shape& shape) {
  return rounded_up(shape.image_values()) + rounded_up(shape.weight_values()) +
         2 * rounded_up(shape.channels) + rounded_up(int64_t(shape.rows()) * shape.channels) +
         rounded_up(shape.token_values());
}

inline Traffic one_product_traffic(const Shape& shape) {
  const int64_t out = shape.token_values() * int64_t(sizeof(half));
  const int64_t in = shape.image_values() + shape.weight_values() + 2 * int64_t(shape.channels) +
                     int64_t(shape.rows()) * shape.channels;
  return {1, 1, 5, in * int64_t(sizeof(half)), 1, out, int64_t(one_product_bytes(shape))};
}

// The same from and to the host's memory, pinned: copies in, one launch, one copy out, one wait.
// `memory`: one_product_bytes() on the device.
inline void one_product(const Inputs& in, half* tokens, const Shape& shape, void* memory,
                        cudaStream_t stream) {
  char* next = static_cast<char*>(memory);
  const auto bring = [&](const half* from, int64_t values) {
    half* const to = reinterpret_cast<half*>(next);
    next += rounded_up(values);
    copy_to_device(to, from, size_t(values) * sizeof(half), stream);
    return to;
  };
  require_shape(shape, whole(shape));
  const half* const image = bring(in.image, shape.image_values());
  const half* const weight = bring(in.weight, shape.weight_values());
  const half* const bias = bring(in.bias, shape.channels);
  const half* const class_token = bring(in.class_token, shape.channels);
  const half* const position = bring(in.position, int64_t(shape.rows()) * shape.channels);
  half* const device_tokens = reinterpret_cast<half*>(next);
  embed(image, weight, bias, class_token, position, device_tokens, shape, stream);
  copy_to_host(tokens, device_tokens, size_t(shape.token_values()) * sizeof(half), stream);
  require_success(cudaStreamSynchronize(stream), "tokens");
}

}  // namespace patch_embedding
