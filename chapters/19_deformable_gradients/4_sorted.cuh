// Step 4, sorted: samples are sorted by the cell that they fall into. A cell adds up its own, one sum
// for each of its four pixels, and a pixel adds four cells' sums: no atomics, and the same order of
// additions every time. The sort between the step's kernels is CUB's.
#pragma once

#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "parts/sort_kernels.cuh"

namespace deformable_gradients {

// Throws std::invalid_argument beyond what 32 bits number.
inline void require_sortable(const DeformableShape& shape) {
  require_deformable_shape(shape);
  const auto refuse = [&](const char* limit) {
    throw std::invalid_argument("sorted gradients of deformable attention of shape " +
                                describe(shape) + ": " + limit);
  };
  if (shape.samples() > INT32_MAX) refuse("samples must be fewer than 2^31");
  if (cells_of(shape).all >= UINT32_MAX) refuse("cells must be fewer than 2^32 - 1");
}

inline cudaError_t sort_by_cub(const Sorting& sorting, void* scratch, size_t& bytes,
                               const DeformableShape& shape, cudaStream_t stream) {
  const int bits = std::bit_width(uint64_t(cells_of(shape).all));
  return cub::DeviceRadixSort::SortPairs(scratch, bytes, sorting.cell, sorting.sorted_cell,
                                         sorting.sample, sorting.sorted_sample,
                                         int(shape.samples()), 0, bits, stream);
}

// Lays out the scratch, which may be null, and returns how many bytes it takes.
inline size_t lay_out(void* scratch, const DeformableShape& shape, Sorting& sorting) {
  require_sortable(shape);
  size_t used = 0;
  const auto take = [&](auto*& part, size_t bytes) {
    part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(static_cast<char*>(scratch) +
                                                                     used);
    used += (bytes + 255) / 256 * 256;
  };
  const size_t bytes = size_t(shape.samples()) * 4;
  sorting = {};
  require_launched(sort_by_cub(sorting, nullptr, sorting.cub_bytes, shape, nullptr), shape);
  take(sorting.cell, bytes);
  take(sorting.sample, bytes);
  take(sorting.sorted_cell, bytes);
  take(sorting.sorted_sample, bytes);
  take(sorting.first, size_t(cells_of(shape).all + 1) * 4);
  take(sorting.corners, size_t(cells_of(shape).all) * 16 * shape.channels);
  take(sorting.cub, sorting.cub_bytes);
  return used;
}
inline Sorting sorting_in(void* scratch, const DeformableShape& shape) {
  Sorting sorting;
  lay_out(scratch, shape, sorting);
  return sorting;
}
inline size_t sorted_scratch_bytes(const DeformableShape& shape) {
  Sorting sorting;
  return lay_out(nullptr, shape, sorting);
}

// The stages, one after the other: cells, sort, starts, corners, pixels, samples. `scratch` has
// sorted_scratch_bytes(shape) and starts at a multiple of 256 bytes.
inline void sorted_cells(const Arrays& arrays, const DeformableShape& shape, void* scratch,
                         cudaStream_t stream) {
  const Sorting sorting = sorting_in(scratch, shape);
  cells_kernel<<<blocks_for(shape.samples(), kSortedThreads, shape), kSortedThreads, 0, stream>>>(
      arrays.locations, sorting, problem_of(shape), cells_of(shape), int(shape.samples()));
  require_launched(cudaGetLastError(), shape);
}
inline void sorted_sort(const Arrays&, const DeformableShape& shape, void* scratch,
                        cudaStream_t stream) {
  Sorting sorting = sorting_in(scratch, shape);
  require_launched(sort_by_cub(sorting, sorting.cub, sorting.cub_bytes, shape, stream), shape);
}
inline void sorted_starts(const Arrays&, const DeformableShape& shape, void* scratch,
                          cudaStream_t stream) {
  const Sorting sorting = sorting_in(scratch, shape);
  const int64_t cells = cells_of(shape).all;
  starts_kernel<<<blocks_for(cells + 1, kSortedThreads, shape), kSortedThreads, 0, stream>>>(
      sorting, cells, int(shape.samples()));
  require_launched(cudaGetLastError(), shape);
}
inline void sorted_corners(const Arrays& arrays, const DeformableShape& shape, void* scratch,
                           cudaStream_t stream) {
  const Sorting sorting = sorting_in(scratch, shape);
  const int64_t cells = cells_of(shape).all;
  with_channels(shape, [&]<int kChannels>() {
    corners_kernel<kChannels>
        <<<blocks_for(cells, kSortedThreads / 32, shape), kSortedThreads, 0, stream>>>(
            arrays, sorting, problem_of(shape), cells_of(shape));
  });
}
inline void sorted_pixels(const Arrays& arrays, const DeformableShape& shape, void* scratch,
                          cudaStream_t stream) {
  const Sorting sorting = sorting_in(scratch, shape);
  const int64_t pixels = int64_t(shape.batch) * shape.pixels() * shape.heads;
  with_channels(shape, [&]<int kChannels>() {
    pixels_kernel<kChannels>
        <<<blocks_for(pixels, kSortedThreads / Lanes<kChannels>::kOfRow, shape), kSortedThreads, 0,
           stream>>>(arrays, sorting, problem_of(shape), cells_of(shape));
  });
}
inline void sorted_samples(const Arrays& arrays, const DeformableShape& shape, void*,
                           cudaStream_t stream) {
  with_channels(shape, [&]<int kChannels>() {
    constexpr int kRows = kSortedThreads / Lanes<kChannels>::kOfRow;
    samples_kernel<kChannels>
        <<<blocks_for(shape.rows(), kRows, shape), kSortedThreads, 0, stream>>>(arrays,
                                                                                problem_of(shape));
  });
}

// As atomics(), also what it throws; the same bits every time. Its scratch is stream-ordered.
inline void sorted(const half* value, const half* locations, const half* weights,
                   const half* grad_out, float* grad_value, float* grad_locations,
                   float* grad_weights, const DeformableShape& shape, cudaStream_t stream) {
  const Arrays arrays{value,      locations,      weights,     grad_out,
                      grad_value, grad_locations, grad_weights};
  require_arguments(
      shape, {value, locations, weights, grad_out, grad_value, grad_locations, grad_weights});
  void* scratch = nullptr;
  require_launched(cudaMallocAsync(&scratch, sorted_scratch_bytes(shape), stream), shape);
  for (const auto stage :
       {sorted_cells, sorted_sort, sorted_starts, sorted_corners, sorted_pixels, sorted_samples})
    stage(arrays, shape, scratch, stream);
  require_launched(cudaFreeAsync(scratch, stream), shape);
}

}  // namespace deformable_gradients
