// The kernels of step 4, which come before the sort and behind it.
#pragma once

#include "cells.cuh"
#include "rows.cuh"

namespace deformable_gradients {

constexpr int kSortedThreads = 256;

// Where a sample belongs: its cell, or behind all cells.
__global__ void __launch_bounds__(kSortedThreads)
    cells_kernel(const half* locations, Sorting sorting, const __grid_constant__ Problem problem,
                 const __grid_constant__ Cells cells, int samples) {
  const int64_t sample = int64_t(blockIdx.x) * kSortedThreads + threadIdx.x;
  if (sample >= samples) return;
  const int of_row = problem.levels * problem.points, row = int(sample) / of_row;
  const int l = int(sample) % of_row / problem.points;
  const int plane = row / problem.heads / problem.queries * problem.heads + row % problem.heads;
  const Level level = problem.level[l];
  const Place place = place_of(reinterpret_cast<const half2*>(locations)[sample], level);
  const bool inside = place.column >= -1 && place.column < level.width && place.row >= -1 &&
                      place.row < level.height;
  const unsigned cell = unsigned(plane) * cells.of_plane + cells.start[l] +
                        (place.row + 1) * (level.width + 1) + place.column + 1;
  sorting.cell[sample] = inside ? cell : unsigned(cells.all);
  sorting.sample[sample] = int(sample);
}

// A thread a cell: a binary search for the first sorted sample that is not in front of it.
__global__ void __launch_bounds__(kSortedThreads)
    starts_kernel(Sorting sorting, int64_t cells, int samples) {
  const int64_t cell = int64_t(blockIdx.x) * kSortedThreads + threadIdx.x;
  if (cell > cells) return;
  int low = 0, high = samples;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sorting.sorted_cell[middle] < cell)
      low = middle + 1;
    else
      high = middle;
  }
  sorting.first[cell] = low;
}

// A warp a cell; its groups of lanes take the samples in turn, and have a sum for each corner. A cell
// without samples is not written.
template <int kChannels>
__global__ void __launch_bounds__(kSortedThreads)
    corners_kernel(const Arrays arrays, Sorting sorting, const __grid_constant__ Problem problem,
                   const __grid_constant__ Cells cells) {
  using L = Lanes<kChannels>;
  const int64_t cell = (int64_t(blockIdx.x) * kSortedThreads + threadIdx.x) / 32;
  if (cell >= cells.all) return;
  const int first = sorting.first[cell], last = sorting.first[cell + 1];
  if (first == last) return;
  int l = 0;
  while (l + 1 < problem.levels && int(cell % cells.of_plane) >= cells.start[l + 1]) ++l;
  const Level level = problem.level[l];

  float4 sums[4] = {};
#pragma unroll 4  // a sample's number, then what it names: the loads of four samples overlap
  for (int i = first + L::row(); i < last; i += L::kRowsPerWarp) {
    const int sample = sorting.sorted_sample[i];
    const Place place = place_of(reinterpret_cast<const half2*>(arrays.locations)[sample], level);
    const float weight = __half2float(arrays.weights[sample]);
    const int64_t row = sample / (problem.levels * problem.points);
    const float4 grad =
        widened(reinterpret_cast<const uint2*>(arrays.grad_out)[row * L::kOfRow + L::lane()]);
    const float4 weighted = weight * grad;
#pragma unroll
    for (int corner = 0; corner < 4; ++corner)
      sums[corner] = sums[corner] + place.share(corner) * weighted;
  }

  // The warp's groups, always in the same order; then each stores some of the corners.
#pragma unroll
  for (int corner = 0; corner < 4; ++corner) {
#pragma unroll
    for (int distance = L::kOfRow; distance < 32; distance *= 2)
      sums[corner] = sums[corner] + from_lane(sums[corner], distance);
    if (corner % L::kRowsPerWarp == L::row())
      reinterpret_cast<float4*>(sorting.corners)[(cell * 4 + corner) * L::kOfRow + L::lane()] =
          sums[corner];
  }
}

// A group of lanes a pixel, which is corner 0 of the cell to its lower right, corner 3 of that to its
// upper left. Every pixel is written once.
template <int kChannels>
__global__ void __launch_bounds__(kSortedThreads)
    pixels_kernel(const Arrays arrays, Sorting sorting, const __grid_constant__ Problem problem,
                  const __grid_constant__ Cells cells) {
  using L = Lanes<kChannels>;
  const int64_t mine = (int64_t(blockIdx.x) * kSortedThreads + threadIdx.x) / L::kOfRow;
  if (mine >= int64_t(problem.batch) * problem.pixels * problem.heads) return;
  const int head = int(mine % problem.heads), pixel = int(mine / problem.heads % problem.pixels);
  const int64_t image = mine / problem.heads / problem.pixels;
  int l = 0;
  while (l + 1 < problem.levels && pixel >= problem.level[l + 1].start) ++l;
  const Level level = problem.level[l];
  const int column = (pixel - level.start) % level.width, row = (pixel - level.start) / level.width;

  float4 sum{};
#pragma unroll
  for (int corner = 0; corner < 4; ++corner) {
    const int64_t cell = (image * problem.heads + head) * cells.of_plane + cells.start[l] +
                         (row + 1 - corner / 2) * (level.width + 1) + column + 1 - corner % 2;
    if (sorting.first[cell] == sorting.first[cell + 1]) continue;
    sum = sum + reinterpret_cast<const float4*>(
                    sorting.corners)[(cell * 4 + corner) * L::kOfRow + L::lane()];
  }
  reinterpret_cast<float4*>(arrays.grad_value)[mine * L::kOfRow + L::lane()] = sum;
}

// Locations and weights: as in the steps before, and nothing goes to a pixel.
template <int kChannels>
__global__ void __launch_bounds__(kSortedThreads)
    samples_kernel(const Arrays arrays, const __grid_constant__ Problem problem) {
  const int64_t rows = int64_t(problem.batch) * problem.queries * problem.heads;
  const int64_t wanted =
      (int64_t(blockIdx.x) * kSortedThreads + threadIdx.x) / Lanes<kChannels>::kOfRow;
  take_row<kChannels>(arrays, problem, min(wanted, rows - 1), wanted < rows,
                      [](int, int, float4) {});
}

}  // namespace deformable_gradients
