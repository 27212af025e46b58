// STARTER
//| // Exercise 16, from an empty function: the gradients of a position encoding. Attention does not see
//| // where a token lies. Some nets tell it by a depthwise 3x3 convolution over the tokens' map, which
//| // is padded with zeros: a token beside the border gets less than one in the middle. The result is
//| // added to the token. The class token, the first of each sample, lies nowhere and stays as it is:
//| //
//| //   y[p] = x[p] + bias + sum over ty, tx of w[ty, tx] x[p + (ty - 1, tx - 1)]
//| //   y[class] = x[class]
//| //
//| // The loss has the gradient dy with respect to y. Wanted are dx, dw and dbias.
//| //
//| // Nothing is given but the function. Kernels, grid and launches are yours. Then
//| // `make exercise16 && ./run` grades it: 30 points for right results, 20 for no finding of any
//| // check, and 50 for
//| //
//| //   15  stores and atomics to global memory: the gradients, and ten sums a channel for each 7 rows
//| //       of a map
//| //   10  no atomics, in shared memory neither: the gradients have the same bits each time
//| //   10  x: each token of a map loaded once, class tokens not at all
//| //   10  dy and memory of your own: dy once and a row more for each 7 rows, and these sums once
//| //    5  no sectors of x and dy that were not asked for
// SOLUTION
// Our solution of exercise 16: the gradients of a position encoding, gathered, without atomics.
// END
#pragma once

#include <cuda_runtime.h>

// SOLUTION
#include <algorithm>
// END
#include <cstdint>
// SOLUTION
#include <stdexcept>
#include <string>
// END

namespace exercise {

// STARTER
//| // dx, dw and dbias, in one array.
//| //   x, dy      [batch, 1 + height * width, channels] fp32; token 1 + row * width + column of a
//| //              sample lies in that row and column of its map, token 0 is the class token
//| //   w          [3, 3, channels] fp32
//| //   gradients  [batch * (1 + height * width) + 9 + 1, channels] fp32: dx, then dw, then dbias. It
//| //              holds NaN before the call
//| //   All are contiguous, on the device, at multiples of 16 bytes.
//| //   batch, channels   any from 1 on
//| //   height, width     1 to 64
//| //   stream            for all that is launched
// SOLUTION
constexpr int kChannels = 32;  // per block, one a lane
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 7;   // rows of the map in a block's strip
constexpr int kSums = 10;  // sums per channel: dw and dbias

struct Map {
  int height, width, channels;

  __host__ __device__ int strips() const { return (height + kRows - 1) / kRows; }
  __host__ __device__ int tokens() const { return 1 + height * width; }
};

// Brings dy of a strip and of the rows above and below it to shared memory, zeros from outside the
// map.
__device__ void load_strip(
    float* tile,      // [kRows + 2, width, kChannels]
    const float* dy,  // the lane's channel of the map: [height, width, channels]
    const Map& map, int first_row, bool there) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = warp; i < (kRows + 2) * map.width; i += kWarps) {
    const int row = first_row - 1 + i / map.width;
    const bool inside = there && row >= 0 && row < map.height;
    tile[i * kChannels + lane] =
        inside ? dy[int64_t(row * map.width + i % map.width) * map.channels] : 0.0f;
  }
}

// One block: a strip of a map, 32 channels. dx of the strip, and its shares of dw and dbias.
__global__ void __launch_bounds__(kThreads)
    strip_gradients(const float* __restrict__ x,  // [batch, tokens, channels], as dy and dx
                    const float* __restrict__ w,  // [3, 3, channels]
                    const float* __restrict__ dy, float* __restrict__ dx,
                    float* __restrict__ partial,  // [batch, strips, kSums, channels]
                    Map map) {
  extern __shared__ float tile[];  // dy, then the warps' sums
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int channel = blockIdx.y * kChannels + lane;
  const bool there = channel < map.channels;
  const int sample = blockIdx.x / map.strips(), strip = blockIdx.x % map.strips();
  const int first_row = strip * kRows, rows = min(kRows, map.height - first_row);
  const int64_t class_token = int64_t(sample) * map.tokens() * map.channels + channel;
  const int64_t first = class_token + map.channels;

  load_strip(tile, dy + first, map, first_row, there);
  float taps[9], sums[kSums] = {};
  for (int tap = 0; tap < 9; ++tap) taps[tap] = there ? w[tap * map.channels + channel] : 0.0f;
  if (there && strip == 0 && warp == 0) dx[class_token] = dy[class_token];
  __syncthreads();

  // A lane walks down a column. around[3 a + b] is dy of row + a - 1, column + b - 1.
  for (int column = warp; there && column < map.width; column += kWarps) {
    float around[9];
    const auto next_row = [&](int tile_row) {
#pragma unroll
      for (int b = 0; b < 3; ++b) {
        const int beside = column + b - 1;
        around[b] = around[3 + b], around[3 + b] = around[6 + b];
        around[6 + b] = beside >= 0 && beside < map.width
                            ? tile[(tile_row * map.width + beside) * kChannels + lane]
                            : 0.0f;
      }
    };
    next_row(0), next_row(1);
    for (int row = 0; row < rows; ++row) {
      next_row(row + 2);
      const int64_t token = first + int64_t((first_row + row) * map.width + column) * map.channels;
      const float value = x[token];
      float gradient = around[4];
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {  // y at p - (ty - 1, tx - 1) has x[p] with that tap
        gradient += taps[tap] * around[8 - tap];
        sums[tap] += value * around[8 - tap];
      }
      sums[9] += around[4];
      dx[token] = gradient;
    }
  }

  __syncthreads();  // nobody reads dy any more
  for (int i = 0; i < kSums; ++i) tile[(warp * kSums + i) * kChannels + lane] = sums[i];
  __syncthreads();
  for (int i = warp; there && i < kSums; i += kWarps) {
    float sum = 0;
    for (int other = 0; other < kWarps; ++other)
      sum += tile[(other * kSums + i) * kChannels + lane];
    partial[(int64_t(blockIdx.x) * kSums + i) * map.channels + channel] = sum;
  }
}

// dw and dbias: the shares of all strips, in order.
__global__ void add_shares(const float* __restrict__ partial,  // [strips, count]
                           float* __restrict__ sums, int64_t strips, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float sum = 0;
  for (int64_t strip = 0; strip < strips; ++strip) sum += partial[strip * count + i];
  sums[i] = sum;
}

// gradients [batch * (1 + height * width) + 9 + 1, channels]: dx, then dw, then dbias.
// END
inline void position_gradients(const float* x, const float* w, const float* dy, float* gradients,
                               int batch, int height, int width, int channels,
                               cudaStream_t stream) {
  // STARTER
  //| // HOLE: all of it. Kernels go above this function, their launches here.
  //| (void)x, (void)w, (void)dy, (void)gradients;
  //| (void)batch, (void)height, (void)width, (void)channels, (void)stream;
  // SOLUTION
  if (batch < 1 || height < 1 || width < 1 || channels < 1 || height > 64 || width > 64)
    throw std::invalid_argument("gradients of a position encoding, batch " + std::to_string(batch) +
                                ", map " + std::to_string(height) + " x " + std::to_string(width) +
                                ", channels " + std::to_string(channels) +
                                ": sizes must be positive, and a map's at most 64");
  const Map map{height, width, channels};
  const int count = kSums * channels;
  const int64_t strips = int64_t(batch) * map.strips();
  float* partial = nullptr;
  cudaMallocAsync(&partial, sizeof(float) * strips * count, stream);

  const int floats = std::max((kRows + 2) * width, kWarps * kSums) * kChannels;
  const int bytes = int(sizeof(float)) * floats;
  cudaFuncSetAttribute(strip_gradients, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const dim3 grid(unsigned(strips), unsigned((channels + kChannels - 1) / kChannels));
  strip_gradients<<<grid, kThreads, bytes, stream>>>(x, w, dy, gradients, partial, map);
  add_shares<<<(count + 255) / 256, 256, 0, stream>>>(
      partial, gradients + int64_t(batch) * map.tokens() * channels, strips, count);
  cudaFreeAsync(partial, stream);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("gradients of a position encoding: ") +
                             cudaGetErrorString(error));
  // END
}

}  // namespace exercise
// STARTER
//|
//| // Hints, one after the other: go on to the next when you are stuck.
//| //
//| // 1. Which y does x[p] go into, and with which tap? Write dx[p] as a sum over these y. It is a
//| //    convolution of dy: which taps has it, and where do they lie?
//| // 2. Class tokens: what is dx there, and do they add to dw or dbias?
//| // 3. dw[ty, tx] is a sum over pairs of a y and an x. With y as the loop each of its rounds needs
//| //    nine numbers of x. What does it need with x as the loop, and who has loaded that already?
//| // 4. Lanes along which axis ask for whole sectors? What does a thread then have for itself, so that
//| //    it can add up ten sums in registers?
//| // 5. A block that has 7 rows of a map needs dy of 9. In shared memory all nine neighbours of a
//| //    token are one load of global memory each. Outside the map dy counts as 0.
//| // 6. A block's ten sums a channel go to memory of your own (cudaMallocAsync), each block's to its
//| //    own place. A second launch adds them up, in an order that is always the same.
// END
