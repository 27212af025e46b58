// Exercise 7: the gradient of the attention weights. Training needs to know how the result changes
// with each weight. The output is a sum of samples times weights, so that it is a dot product:
//
//   grad_weights(query, level, point) = Σ over channels of grad_out(query) · sample(level, point)
//
// The same samples as in the chapter, of 32 channels here, taken in the same way: persistent blocks
// that stage small levels once an image, and eight lanes that load 16 bytes each of a query's left
// and right pixels. What is new is that the eight lanes' products must come together in one sum.
// Fill the four holes, then `make exercise7 && ./run`. Besides right results you are asked for as
// many blocks as the device holds, for levels that are staged once a block and image, and for wide
// loads of everything else.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "../shape.h"

namespace exercise {

constexpr int kChannels = 32;
constexpr int kPieces = kChannels / 8;     // pieces of 16 bytes in a pixel
constexpr int kLanes = 2 * kPieces;        // lanes per query: a left and a right pixel's pieces
constexpr int kRowsPerWarp = 32 / kLanes;  // queries that a warp works on at once
constexpr int kThreads = 1024;             // per block: one block is all that an SM holds

struct Level {
  int height, width;
  int start;   // its first pixel among an image's pixels
  int staged;  // its first pixel in shared memory, -1 where it stays in global memory
};
struct Problem {
  int batch, queries, heads, levels, points, pixels;  // pixels: of an image, all levels
  Level level[kMaxLevels];
};

// 1 at distance 0, 0 from distance 1 on and for NaN: the share of a pixel at that distance.
__device__ inline float tent(float distance) { return __saturatef(1.0f - fabsf(distance)); }

// The first of the two pixels between which x lies, moved inside 0 .. size-2; 0 for NaN.
__device__ inline float first_pixel(float x, int size) {
  return fminf(fmaxf(floorf(x), 0.0f), float(max(size - 2, 0)));
}

// A sample's left upper pixel, counted from the level's first, and the shares of its two columns
// and of its two lines.
struct Sample {
  int pixel;
  half2 columns, lines;
};
__device__ inline Sample prepare(half2 location, const Level& level) {
  const float x = fmaf(__low2float(location), float(level.width), -0.5f);
  const float y = fmaf(__high2float(location), float(level.height), -0.5f);
  const float left = first_pixel(x, level.width), top = first_pixel(y, level.height);
  const float right_share = level.width > 1 ? tent(x - left - 1.0f) : 0.0f;
  const float lower_share = level.height > 1 ? tent(y - top - 1.0f) : 0.0f;
  return {int(top) * level.width + int(left), __floats2half2_rn(tent(x - left), right_share),
          __floats2half2_rn(tent(y - top), lower_share)};
}

__global__ void __launch_bounds__(kThreads, 1)
    weight_gradient_kernel(const half* value,      // [batch, pixels, heads, channels]
                           const half* locations,  // [batch, queries, heads, levels, points, 2]
                           const half* grad_out,   // [batch, queries, heads, channels]
                           half* grad_weights,     // [batch, queries, heads, levels, points]
                           const __grid_constant__ Problem problem) {
  extern __shared__ uint4 staged[];  // [staged pixels, pieces]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % kLanes;
  const int row = threadIdx.x % 32 / kLanes;                  // the row among the warp's
  const int column = lane / kPieces, piece = lane % kPieces;  // in a sample's two pixels
  const int stride = problem.heads * kPieces;                 // pieces from a pixel to the next
  const int samples = problem.levels * problem.points;

  // A plane is an (image, head). All planes' queries, one plane after the other, are dealt out to
  // the blocks; those of a block follow one another.
  const int64_t all = int64_t(problem.batch) * problem.heads * problem.queries;
  // STARTER
  //| // HOLE 1: this block's queries are begin .. end-1 of all.
  //| // Hint: together the blocks must have each query once, and none should have much more than
  //| // others.
  //| const int begin = 0, end = 0;
  //| (void)all;
  // SOLUTION
  const int begin = int(all * blockIdx.x / gridDim.x);
  const int end = int(all * (blockIdx.x + 1) / gridDim.x);
  // END
  for (int plane = begin / problem.queries; plane * problem.queries < end; ++plane) {
    const int image = plane / problem.heads, head = plane % problem.heads;
    const uint4* plane_value = reinterpret_cast<const uint4*>(value) +
                               int64_t(image) * problem.pixels * stride + head * kPieces;
    // The plane's small levels.
    // STARTER
    //| // HOLE 2: copy each level that has a place in shared memory there, all threads together.
    //| // Hint: 16 bytes a thread, neighbours side by side; a pixel's kPieces pieces lie side by side
    //| // in both memories, but how far is it to the next pixel? The block may still be reading the
    //| // levels of the plane before, and nobody may read these before all of them are here.
    //| (void)plane_value;
    // SOLUTION
    __syncthreads();  // nobody reads those of the plane before any longer
    for (int l = 0; l < problem.levels; ++l) {
      const Level level = problem.level[l];
      const int pieces = level.staged < 0 ? 0 : level.height * level.width * kPieces;
      for (int i = threadIdx.x; i < pieces; i += kThreads)
        staged[level.staged * kPieces + i] =
            plane_value[int64_t(level.start + i / kPieces) * stride + i % kPieces];
    }
    __syncthreads();  // they are here
    // END

    const int first = max(begin - plane * problem.queries, 0);
    const int last = min(end - plane * problem.queries, problem.queries);
    for (int at = first + warp * kRowsPerWarp; at < last; at += kThreads / kLanes) {
      // Rows past the last query do that one again, since shuffles need all lanes.
      const int query = min(at + row, last - 1);
      const int64_t out_row = (int64_t(image) * problem.queries + query) * problem.heads + head;
      const uint4 grads = reinterpret_cast<const uint4*>(grad_out)[out_row * kPieces + piece];

      // Eight samples at a time: each lane prepares one, all lanes together take them.
      for (int sample = 0; sample < samples; sample += kLanes) {
        const int own = min(sample + lane, samples - 1);
        const Sample prepared =
            prepare(reinterpret_cast<const half2*>(locations)[out_row * samples + own],
                    problem.level[own / problem.points]);
        float own_gradient = 0.0f;
#pragma unroll 1
        for (int owner = 0; owner < kLanes && sample + owner < samples; ++owner) {
          const Level level = problem.level[(sample + owner) / problem.points];
          const int left_pixel = __shfl_sync(0xffffffffu, prepared.pixel, owner, kLanes);
          const half2 columns = __shfl_sync(0xffffffffu, prepared.columns, owner, kLanes);
          const half2 lines = __shfl_sync(0xffffffffu, prepared.lines, owner, kLanes);
          const float share = column ? __high2float(columns) : __low2float(columns);
          const int pixel = left_pixel + (level.width > 1 ? column : 0);
          const int lower_pixel = pixel + (level.height > 1 ? level.width : 0);

          // This lane's piece of the upper and of the lower pixel.
          // STARTER
          //| uint4 upper{}, lower{};
          //| // HOLE 3: load them, from where the level is.
          //| // Hint: one load each. Lanes with the same column and neighbouring pieces read 64 bytes
          //| // that lie side by side.
          //| (void)lower_pixel, (void)staged;
          // SOLUTION
          uint4 upper, lower;
          if (level.staged >= 0) {
            upper = staged[(level.staged + pixel) * kPieces + piece];
            lower = staged[(level.staged + lower_pixel) * kPieces + piece];
          } else {
            upper = plane_value[int64_t(level.start + pixel) * stride + piece];
            lower = plane_value[int64_t(level.start + lower_pixel) * stride + piece];
          }
          // END
          const float upper_share = share * __low2float(lines);
          const float lower_share = share * __high2float(lines);
          float sum = 0.0f;  // over this lane's eight channels
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const auto pair = [c](const uint4& v) {
              return __half22float2(reinterpret_cast<const half2*>(&v)[c]);
            };
            const float2 g = pair(grads), u = pair(upper), w = pair(lower);
            sum = fmaf(g.x, fmaf(upper_share, u.x, lower_share * w.x), sum);
            sum = fmaf(g.y, fmaf(upper_share, u.y, lower_share * w.y), sum);
          }

          // Over all eight lanes of the query.
          // STARTER
          //| // HOLE 4: the sum of the eight lanes' sums, for lane `owner` at least.
          //| // Hint: three shuffles with __shfl_xor_sync, in which two lanes swap what they have. Two
          //| // queries' lanes must not be mixed.
          // SOLUTION
          for (int distance = kLanes / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
          // END
          if (owner == lane) own_gradient = sum;
        }
        if (at + row < last && sample + lane < samples)
          grad_weights[out_row * samples + sample + lane] = __float2half(own_gradient);
      }
    }
  }
}

// As many levels as `capacity` bytes of shared memory hold, the smallest first.
inline Problem plan(const DeformableShape& shape, int64_t capacity, int& staged_bytes) {
  Problem problem{shape.batch, shape.queries, shape.heads, shape.levels, shape.points, 0, {}};
  int order[kMaxLevels];
  std::iota(order, order + kMaxLevels, 0);
  for (int l = 0; l < shape.levels; ++l) {
    problem.level[l] = {shape.level[l].height, shape.level[l].width, problem.pixels, -1};
    problem.pixels += shape.level[l].height * shape.level[l].width;
  }
  const auto bytes = [&](int l) {
    return int64_t(shape.level[l].height) * shape.level[l].width * kChannels * 2;
  };
  std::stable_sort(order, order + shape.levels, [&](int a, int b) { return bytes(a) < bytes(b); });
  staged_bytes = 0;
  for (int i = 0; i < shape.levels; ++i) {
    if (staged_bytes + bytes(order[i]) > capacity) break;
    problem.level[order[i]].staged = staged_bytes / (kChannels * 2);
    staged_bytes += int(bytes(order[i]));
  }
  return problem;
}

// grad_weights = the gradient of Σ grad_out · out with respect to the attention weights, where out
// is the chapter's output, all fp16; shape.channels is 32. Arrays start at multiples of 16 bytes.
inline void attention(const half* value, const half* locations, const half* grad_out,
                      half* grad_weights, const DeformableShape& shape, cudaStream_t stream) {
  int device = 0, sm_count = 0, capacity = 0, staged_bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&capacity, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const Problem problem = plan(shape, capacity, staged_bytes);
  constexpr int kAtOnce = kThreads / kLanes;
  const int64_t rounds = (shape.rows() + kAtOnce - 1) / kAtOnce;
  const unsigned blocks = unsigned(std::min<int64_t>(sm_count, rounds));
  cudaFuncSetAttribute(weight_gradient_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       staged_bytes);
  weight_gradient_kernel<<<blocks, kThreads, size_t(staged_bytes), stream>>>(
      value, locations, grad_out, grad_weights, problem);
}

}  // namespace exercise
