// What tests call besides the steps; kernels.cu compiles it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "../kernels.h"

namespace persistent_deformable_attention {

// Launches a mutant of the kernel of simple, vectorized, persistent, bulk or cluster: persistent kernels on
// few blocks with room for few levels. Those with a counter are waited for.
void launch_mutant(const std::string& step, const void* kernel, const half* value,
                   const half* locations, const half* weights, half* out,
                   const DeformableShape& shape);

// plan_staging() of staging.cuh, whose comments say what these are.
struct StagedLevels {
  std::vector<int> first_pixel;
  int levels, bytes;
};
StagedLevels staged_levels(const DeformableShape& shape, int capacity, int blocks = 1);
// The same for one block with all of the device's shared memory.
StagedLevels staged_levels(const DeformableShape& shape);
// Blocks of the step persistent, of 32 channels, that stage so many bytes.
unsigned blocks_of_persistent(const DeformableShape& shape, int bytes);
// Queries that work_of() in work.cuh deals out in advance.
int dealt_in_advance(const DeformableShape& shape);

// plan_clusters() of 5_cluster.cuh with the step's kernel of 32 or 64 channels, and known_clusters().
struct Clusters {
  int blocks, clusters;  // blocks per cluster; clusters that the device holds at once
  int bytes;             // staged in each block
  bool operator==(const Clusters&) const = default;
};
Clusters planned_clusters(const DeformableShape& shape);
Clusters known_clusters(const DeformableShape& shape);

// box_of() and pixels_in_boxes() of boxes.cuh for a level of `pixels` pixels.
std::pair<int, int> box_and_room(int pixels);

// counter_of() of work.cuh, and the values of all counters of the current device.
unsigned* fetch_counter(cudaStream_t stream, const DeformableShape& shape);
std::vector<unsigned> fetch_counters();

}  // namespace persistent_deformable_attention
