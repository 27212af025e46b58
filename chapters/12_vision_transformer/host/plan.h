// Memory planned ahead: each array of a run has a place in one allocation, and arrays that are never
// needed at the same time share theirs. Plain C++.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vision_transformer {

// An array, from the stage that writes it to the last one that reads it.
struct Buffer {
  std::string name;
  int64_t bytes = 0;
  int first = 0, last = 0;  // numbers of stages, both included
  int64_t offset = 0;       // in the allocation; plan_memory() sets it

  bool lives_with(const Buffer& other) const { return first <= other.last && other.first <= last; }
};

constexpr int64_t kPlanAlignment = 256;  // bytes, as of cudaMalloc

struct MemoryPlan {
  int64_t bytes = 0;           // of the allocation: the high-water mark
  int64_t separate_bytes = 0;  // what the arrays would take without sharing
  int64_t most_alive = 0;  // bytes of the arrays that one stage needs together: the least there is
};

// Sets the offsets. The largest arrays are placed first, each at the lowest place that no array
// living at the same time overlaps. Throws std::invalid_argument for a buffer of no bytes or one that
// ends before it begins.
MemoryPlan plan_memory(std::vector<Buffer>& buffers);

}  // namespace vision_transformer
