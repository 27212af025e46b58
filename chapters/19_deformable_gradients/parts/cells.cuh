// The cells that step 4 sorts samples by, and what its stages hand over.
#pragma once

#include "gradients.cuh"

namespace deformable_gradients {

// The cells of a level lie between its pixels and around them: (height + 1) x (width + 1). A sample
// between pixels (x, y) and (x + 1, y + 1) is in cell (x + 1, y + 1).
struct Cells {
  int of_plane;           // cells of an (image, head), all levels together
  int start[kMaxLevels];  // each level's first cell
  int64_t all;            // cells of all planes; samples outside all cells come behind them
};
inline Cells cells_of(const DeformableShape& shape) {
  Cells cells{};
  for (int l = 0; l < shape.levels; ++l) {
    cells.start[l] = cells.of_plane;
    cells.of_plane += (shape.level[l].height + 1) * (shape.level[l].width + 1);
  }
  cells.all = int64_t(shape.batch) * shape.heads * cells.of_plane;
  return cells;
}

// What the stages hand over; in a scratch of sorted_scratch_bytes().
struct Sorting {
  unsigned* cell;         // [samples]: of each
  int* sample;            // [samples]: 0, 1, 2, ...
  unsigned* sorted_cell;  // [samples]: ascending
  int* sorted_sample;     // [samples]: a cell's samples in the order of their numbers
  int* first;             // [cells + 1]: where a cell's samples begin among the sorted ones
  float* corners;         // [cells, 4, channels]: what a cell adds to its four pixels
  void* cub;
  size_t cub_bytes;
};

}  // namespace deformable_gradients
