// The stages of step 4 one by one: each with the program's arrays, its least traffic, and what --predict takes
// in place of sorting.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../4_sorted.cuh"
#include "problem.h"

namespace lab::deformable {

namespace steps = ::deformable_gradients;

// One stage of the last step with the program's arrays.
template <void (*kStage)(const steps::Arrays&, const DeformableShape&, void*, cudaStream_t)>
void stage(GradientArrays& a, const DeformableShape& shape, void* scratch, cudaStream_t stream) {
  kStage({a.value.data(), a.locations.data(), a.weights.data(), a.grad_out.data(),
          a.grad_value.data(), a.grad_locations.data(), a.grad_weights.data()},
         shape, scratch, stream);
}

// Cells, order and starts, computed on the host.
inline void fill_sorting(const GradientProblem& problem, void* scratch) {
  const DeformableShape& shape = problem.shape();
  const steps::Cells cells = steps::cells_of(shape);
  const int samples = int(shape.samples()), of_row = shape.levels * shape.points;
  std::vector<unsigned> cell(samples), sorted(samples);
  std::vector<int> order(samples), first(size_t(cells.all) + 1);
  for (int s = 0; s < samples; ++s) {
    const int row = s / of_row, l = s % of_row / shape.points;
    const int64_t plane =
        int64_t(row / shape.heads / shape.queries) * shape.heads + row % shape.heads;
    const LevelShape level = shape.level[l];
    const half* location = &problem.forward.locations[2 * size_t(s)];
    const double x = std::floor(double(location[0]) * level.width - 0.5) + 1;
    const double y = std::floor(double(location[1]) * level.height - 0.5) + 1;
    const bool inside = x >= 0 && x <= level.width && y >= 0 && y <= level.height;
    cell[s] = unsigned(inside ? plane * cells.of_plane + cells.start[l] +
                                    int64_t(y) * (level.width + 1) + int64_t(x)
                              : cells.all);
  }
  for (const unsigned c : cell)
    if (c < cells.all) ++first[c + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int> next = first;  // the last "cell" holds samples outside all cells
  for (int s = 0; s < samples; ++s) order[next[cell[s]]++] = s;
  for (int i = 0; i < samples; ++i) sorted[i] = cell[order[i]];

  const steps::Sorting sorting = steps::sorting_in(scratch, shape);
  const auto upload = [](auto* to, const auto& from) {
    check(cudaMemcpy(to, from.data(), from.size() * sizeof from[0], cudaMemcpyHostToDevice));
  };
  upload(sorting.cell, cell);
  upload(sorting.sorted_cell, sorted);
  upload(sorting.sorted_sample, order);
  upload(sorting.first, first);
  std::iota(order.begin(), order.end(), 0);
  upload(sorting.sample, order);
}

// Least traffic of the stages, in bytes.
inline Cost cells_cost(const DeformableShape& shape) { return {12.0 * double(shape.samples()), 0}; }
inline Cost sort_cost(const DeformableShape& shape) { return {16.0 * double(shape.samples()), 0}; }
inline Cost starts_cost(const DeformableShape& shape) {
  return {4.0 * double(shape.samples() + steps::cells_of(shape).all), 0};
}
inline Cost corners_cost(const DeformableShape& shape) {
  const double cells = double(steps::cells_of(shape).all);
  return {10.0 * double(shape.samples()) + 2.0 * double(shape.out_elements()) +
              cells * (4 + 16.0 * shape.channels),
          8.0 * double(shape.samples()) * shape.channels};
}
inline Cost pixels_cost(const DeformableShape& shape) {
  const double cells = double(steps::cells_of(shape).all);
  return {4.0 * double(shape.value_elements()) + cells * (4 + 16.0 * shape.channels),
          4.0 * double(shape.value_elements())};
}
inline Cost samples_cost(const DeformableShape& shape) {
  return {
      2.0 * double(shape.value_elements() + shape.out_elements()) + 18.0 * double(shape.samples()),
      8.0 * double(shape.samples()) * shape.channels};
}

}  // namespace lab::deformable
