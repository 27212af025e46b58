// What steps 3 to 6 share: which levels stand in shared memory, how they get there, and a query
// whose samples come from both memories.
#pragma once

#include "sampling.cuh"

namespace persistent_deformable_attention {

// Where each level begins in shared memory, in pixels; -1 where it stays in global memory.
struct Staging {
  int first_pixel[kMaxLevels];
  int levels;  // how many levels are staged
  int bytes;   // shared memory that one (image, head) takes in each block
};

// Bytes of shared memory that the current device has for a block and for an SM.
struct SharedMemory {
  int of_block = 0, of_sm = 0;
};
inline SharedMemory shared_memory() {
  int device = 0;
  SharedMemory memory;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&memory.of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&memory.of_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  return memory;
}

// Where several blocks share a level, each has runs of so many pixels, in turn.
constexpr int kRunPixels = 16;

// As many levels as fit in `capacity` bytes, the smallest first: all levels are sampled equally
// often. With several blocks, each has its share of each level and `capacity` bytes. A level of n
// pixels takes the room of room_of(n).
inline Staging plan_staging(const DeformableShape& shape, int capacity, int blocks = 1,
                            int (*room_of)(int) = nullptr) {
  Staging staging{};
  int order[kMaxLevels] = {0, 1, 2, 3, 4};
  const auto pixels = [&](int l) {
    const int64_t all = int64_t(shape.level[l].height) * shape.level[l].width;
    // (A level beyond a million pixels fits nowhere.)
    if (room_of) return all > 1 << 20 ? all : int64_t(room_of(int(all)));
    const int64_t turn = int64_t(blocks) * kRunPixels;
    return blocks == 1 ? all : (all + turn - 1) / turn * kRunPixels;
  };
  std::stable_sort(order, order + shape.levels,
                   [&](int a, int b) { return pixels(a) < pixels(b); });
  int64_t used = 0;  // pixels
  for (int& first : staging.first_pixel) first = -1;
  for (; staging.levels < shape.levels; ++staging.levels) {
    const int l = order[staging.levels];
    if ((used + pixels(l)) * shape.channels * 2 > capacity) break;
    staging.first_pixel[l] = int(used);
    used += pixels(l);
  }
  staging.bytes = int(used * shape.channels * 2);
  return staging;
}

// Copies the levels that are to be staged, 16 bytes a thread, neighbours side by side. The caller
// puts a barrier behind it, and one in front of it where the levels of another image are in use.
template <int kChannels>
__device__ void stage_levels(const half* value, int plane, const Problem& problem,
                             const Staging& staging, int threads, uint4* staged) {
  constexpr int kPieces = Group<kChannels>::kPieces;
  const int image = plane / problem.heads, head = plane % problem.heads;
  const int stride = problem.heads * kPieces;  // pieces from a pixel to the next
  const uint4* image_value = reinterpret_cast<const uint4*>(value) +
                             int64_t(image) * problem.pixels * stride + head * kPieces;
  for (int l = 0; l < problem.levels; ++l) {
    const Level level = problem.level[l];
    if (staging.first_pixel[l] < 0) continue;
    const int pieces = level.height * level.width * kPieces;
    for (int i = threadIdx.x; i < pieces; i += threads)
      staged[staging.first_pixel[l] * kPieces + i] =
          __ldg(image_value + int64_t(level.start + i / kPieces) * stride + i % kPieces);
  }
}

// What a query's samples are taken from, and where its row goes; shapes as in the kernels.
struct Arrays {
  const half *value, *locations, *weights;
  half* out;
};

// A place says where a query finds the levels that are staged: has(level) tells whether one is, and
// loader(level) is then a function that loads 16 bytes of a pixel. This place is the block's own
// shared memory; other steps have others.
template <int kChannels>
struct OwnMemory {
  const Staging& staging;
  const uint4* staged;  // [staged pixels, pieces]

  __device__ bool has(int l) const { return staging.first_pixel[l] >= 0; }
  __device__ auto loader(int l) const {
    // Both columns of a sample are 2 * kPieces pieces side by side: from 32 channels on, eight
    // neighbouring lanes never meet in a bank.
    using G = Group<kChannels>;
    const uint4* level_staged = staged + staging.first_pixel[l] * G::kPieces + G::piece();
    return [=](int pixel) { return level_staged[pixel * G::kPieces]; };
  }
};

// Computes one query in each group of lanes. A plane is an (image, head). All lanes of a warp take
// part, since shuffles need them: where `valid` is false the result is computed and not written.
template <int kChannels, class Place>
__device__ void take_query(const Arrays& arrays, int plane, int query, bool valid,
                           const Problem& problem, Place& staged) {
  using G = Group<kChannels>;
  const int image = plane / problem.heads, head = plane % problem.heads;
  const int row = (image * problem.queries + query) * problem.heads + head;
  const int stride = problem.heads * kChannels;
  const half* image_value =
      arrays.value + int64_t(image) * problem.pixels * stride + head * kChannels + G::piece() * 8;
  const int fours = problem.levels << problem.four_shift;  // groups of four samples per row

  float sums[8] = {};
  for (int first = 0; first < fours; first += G::kPieces) {
    ColumnOfSample prepared[4] = {};
    const int own = first + G::piece();
    if (own < fours)
      prepare_four(arrays.locations, arrays.weights, int64_t(row) * fours + own,
                   problem.level[own >> problem.four_shift], G::column(), prepared);

#pragma unroll 1
    for (int owner = 0; owner < G::kPieces && first + owner < fours; ++owner) {
      const int l = (first + owner) >> problem.four_shift;  // the same in the whole warp
      const Level level = problem.level[l];
      const int source = G::column() * G::kPieces + owner;
      const int lower_pixel = level.height > 1 ? level.width : 0;
      if (staged.has(l)) {
        add_four<G::kLanes>(prepared, source, lower_pixel, staged.loader(l), sums);
      } else {
        const half* level_value = image_value + int64_t(level.start) * stride;
        const auto load = [=](int pixel) {
          return __ldg(reinterpret_cast<const uint4*>(level_value + int64_t(pixel) * stride));
        };
        add_four<G::kLanes>(prepared, source, lower_pixel, load, sums);
      }
    }
  }
  store_row<kChannels>(arrays.out + int64_t(row) * kChannels, valid, sums);
}

// Queries first .. last-1 of a plane, dealt out to `warps` warps of which this is number `warp`.
template <int kChannels, class Place>
__device__ void take_queries(const Arrays& arrays, int plane, int first, int last, int warp,
                             int warps, const Problem& problem, Place& staged) {
  using G = Group<kChannels>;
  for (first += warp * G::kRowsPerWarp; first < last; first += warps * G::kRowsPerWarp)
    take_query<kChannels>(arrays, plane, min(first + G::row(), last - 1), first + G::row() < last,
                          problem, staged);
}

}  // namespace persistent_deformable_attention
