// Exercise 14: attention pooling. One query for each head looks at all patches of an image, and what it
// finds is the image's descriptor. CLIP's ResNets end this way, SigLIP's head does, and an image
// search compares such descriptors:
//
//   O = softmax(Q Kᵀ scale) V      Q: one row, K and V: a row for each patch
//
// There is hardly anything to compute: each number of K and V is needed once. Such a kernel is as fast
// as memory, if enough bytes are on their way at any time. So one warp asks for tile after tile,
// tensor copies bring them into a ring of four stages, and four warps read what has arrived. Each stage
// has two mbarriers: `full` tells the readers that a tile is there, `empty` tells the one who asks that
// all have read it.
//
// The consumers are written, but with one mistake in their phases. It does no harm as long as the ring
// goes round once: up to 128 patches. The producer is yours. Do both holes, then `make exercise14 &&
// ./run` grades it: 30 points for right results, 20 for no finding of any check, and 50 for
//
//   15  two tensor copies a tile, one of K and one of V
//   10  K and V: brought by the copy engine, once
//   20  all four stages on their way at once
//    5  stores: O, once, and nothing else
#pragma once

#include <cuda.h>  // types alone: the driver's function is found at run time
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cuda/ptx>
#include <stdexcept>

#include "../../../common/attention/launch.cuh"
#include "../../../common/attention/shape.h"

namespace exercise {

namespace ptx = cuda::ptx;

constexpr int kHeadDim = 64;
constexpr int kTileKeys = 32;  // keys of a stage, and what one tensor copy brings of K or of V
constexpr int kStages = 4;
constexpr int kConsumers = 4;                    // warps that compute; one more asks for tiles
constexpr int kThreads = 32 * (kConsumers + 1);  // per block, which has one image and head
constexpr int kLanes = kHeadDim / 8;             // lanes that share a key: 16 bytes each
constexpr int kGroups = 32 * kConsumers / kLanes;

struct Stage {
  uint4 k[kTileKeys][kLanes], v[kTileKeys][kLanes];
};
struct alignas(128) Ring {
  Stage stages[kStages];
  uint64_t full[kStages];   // mbarriers: a phase ends when a tile has arrived
  uint64_t empty[kStages];  // a phase ends when each consumer warp has read a tile
};

// Waits until the barrier's phase of that parity has ended. Its first phase has parity 0, the next one
// 1, then 0 again. The phase before the first one counts as ended: its parity is 1.
__device__ inline void wait_for(uint64_t* barrier, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// One thread: asks for all tiles of K and V of a matrix, as long as there is room in the ring.
__device__ inline void produce(Ring& ring, const CUtensorMap& keys, const CUtensorMap& values,
                               int matrix, int tiles) {
  // HOLE 1: for each tile, in the stage whose turn it is: wait until there is room, announce sizeof(Stage)
  // bytes, and ask for them.
  //
  //   ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier, bytes)
  //       arrives at the barrier, which then waits for so many bytes, too
  //   ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, corner, barrier)
  //       brings a box of kTileKeys rows; const int32_t corner[] = {column, row, matrix} is its first
  //       element. The barrier hears when it has landed
  (void)ring, (void)keys, (void)values, (void)matrix, (void)tiles;
}

// What a group of kLanes lanes knows of its keys: the largest score, in units of log2, and the sums of
// weights and of weighted values. Each lane has eight columns of the weighted values.
struct Partial {
  float most = -INFINITY, sum = 0.0f, out[8] = {};

  __device__ void add(float score, const uint4& value) {
    const float next = fmaxf(most, score), factor = exp2f(most - next);
    const float weight = exp2f(score - next);
    sum = fmaf(sum, factor, weight);
    for (int i = 0; i < 4; ++i) {
      const float2 v = __half22float2(reinterpret_cast<const half2*>(&value)[i]);
      out[2 * i] = fmaf(out[2 * i], factor, weight * v.x);
      out[2 * i + 1] = fmaf(out[2 * i + 1], factor, weight * v.y);
    }
    most = next;
  }
};

// One warp of the consumers: each group takes a key of every kGroups.
// HOLE 2: one line of this function is wrong.
__device__ inline Partial consume(Ring& ring, const half* q, int tokens, float scale_log2) {
  const int group = threadIdx.x / kLanes, piece = threadIdx.x % kLanes;
  float query[8];
  for (int i = 0; i < 8; ++i) query[i] = __half2float(q[8 * piece + i]) * scale_log2;
  Partial partial;
  for (int tile = 0; tile * kTileKeys < tokens; ++tile) {
    const int stage = tile % kStages;
    wait_for(&ring.full[stage], tile % (2 * kStages) > kStages);
    const Stage& read = ring.stages[stage];
#pragma unroll
    for (int row = group; row < kTileKeys; row += kGroups) {
      const uint4 key = read.k[row][piece];
      float score = 0.0f;
      for (int i = 0; i < 4; ++i) {
        const float2 k = __half22float2(reinterpret_cast<const half2*>(&key)[i]);
        score = fmaf(query[2 * i], k.x, fmaf(query[2 * i + 1], k.y, score));
      }
      for (int other = 1; other < kLanes; other *= 2)
        score += __shfl_xor_sync(0xffffffffu, score, other);
      if (tile * kTileKeys + row < tokens) partial.add(score, read.v[row][piece]);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&ring.empty[stage]);
  }
  return partial;
}

// One block: the output of one image and head.
__global__ void __launch_bounds__(kThreads)
    pool_kernel(const half* __restrict__ Q,                  // [batch x heads, kHeadDim]
                const __grid_constant__ CUtensorMap keys,    // [batch x heads, tokens, kHeadDim]
                const __grid_constant__ CUtensorMap values,  // likewise
                half* __restrict__ O,                        // [batch x heads, kHeadDim]
                int tokens, float scale_log2) {
#if __CUDA_ARCH__ >= 900
  __shared__ Ring ring;
  __shared__ float most[kGroups], sum[kGroups];
  __shared__ float4 out[kGroups][2][kLanes];
  const int matrix = blockIdx.x;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(&ring.full[stage], 1);
      ptx::mbarrier_init(&ring.empty[stage], kConsumers);
    }
    ptx::fence_mbarrier_init(ptx::sem_release,
                             ptx::scope_cluster);  // the copy engine sees them, too
  }
  __syncthreads();

  if (threadIdx.x >= 32 * kConsumers) {
    if (threadIdx.x == 32 * kConsumers)
      produce(ring, keys, values, matrix, (tokens + kTileKeys - 1) / kTileKeys);
  } else {
    const Partial partial = consume(ring, Q + matrix * kHeadDim, tokens, scale_log2);
    const int group = threadIdx.x / kLanes, piece = threadIdx.x % kLanes;
    if (piece == 0) most[group] = partial.most, sum[group] = partial.sum;
    for (int i = 0; i < 2; ++i)
      out[group][i][piece] = reinterpret_cast<const float4*>(partial.out)[i];
  }
  __syncthreads();

  // The groups' sums come together, a column a thread. Groups without a key have sums of 0.
  if (threadIdx.x < kHeadDim) {
    const int piece = threadIdx.x / 8, i = threadIdx.x % 8;
    float top = -INFINITY, weights = 0.0f, value = 0.0f;
    for (int group = 0; group < kGroups; ++group) top = fmaxf(top, most[group]);
    for (int group = 0; group < kGroups; ++group) {
      const float factor = exp2f(most[group] - top);
      weights = fmaf(sum[group], factor, weights);
      value = fmaf(reinterpret_cast<const float*>(&out[group][i / 4][piece])[i % 4], factor, value);
    }
    O[matrix * kHeadDim + threadIdx.x] = __float2half(value / weights);
  }
#endif
}

// A map of K or V, whose boxes are kTileKeys rows of one matrix. Rows past a matrix' last one, where
// the next matrix begins, arrive as zeros; a box counts with all its bytes all the same.
inline CUtensorMap make_map(const half* array, const AttentionShape& shape) {
  void* function = nullptr;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                   nullptr);
  if (!function) throw std::runtime_error("the driver makes no tensor maps");
  const cuuint64_t row = kHeadDim * sizeof(half), rows = cuuint64_t(shape.tokens);
  const cuuint64_t sizes[] = {kHeadDim, rows, cuuint64_t(shape.batch) * shape.heads};
  const cuuint64_t strides[] = {row, row * rows};
  const cuuint32_t box[] = {kHeadDim, kTileKeys, 1}, steps[] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult error = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<half*>(array), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    throw std::runtime_error("no tensor map: error " + std::to_string(int(error)) +
                             " of the driver");
  return map;
}

// O = softmax(Q Kᵀ scale) V, with one query for each image and head.
inline void pool(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
                 cudaStream_t stream) {
  pool_kernel<<<unsigned(shape.batch * shape.heads), kThreads, 0, stream>>>(
      Q, make_map(K, shape), make_map(V, shape), O, shape.tokens, log2_scale(shape));
  require_launched(cudaGetLastError(), shape);
}

}  // namespace exercise

// Hints, one after the other: go on to the next when you are stuck.
//
// 1. As it is, everybody waits for ever: nobody asks for a tile. Begin with images of up to 128 patches,
//    one round of the ring: nobody has to wait for room then.
// 2. A barrier's phases end one after the other, and it knows no more of them than the parity of the
//    one that runs. Write down for tiles 0 to 11 in which stage each lies, in which round of the ring,
//    and for which parity of `full` its readers must wait.
// 3. A wait for the wrong parity does not wait. Which tile is read too early, then, and what lies there?
// 4. The producer waits for `empty`, of the round before. In the first round there is none: which parity
//    passes at a barrier whose first phase still runs?
// 5. A box that sticks out past the last patch counts with all its bytes.
// 6. Who asks for a tile and then waits until it is there has one tile on its way, not four.
