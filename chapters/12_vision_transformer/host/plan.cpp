#include "plan.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace vision_transformer {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

// The lowest place for `buffer` beside the buffers that have a place.
int64_t lowest_place(const Buffer& buffer, const std::vector<const Buffer*>& placed) {
  std::vector<const Buffer*> in_the_way;
  for (const Buffer* other : placed)
    if (buffer.lives_with(*other)) in_the_way.push_back(other);
  std::sort(in_the_way.begin(), in_the_way.end(),
            [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
  int64_t place = 0;
  for (const Buffer* other : in_the_way) {
    if (place + buffer.bytes <= other->offset) break;
    place = std::max(place, aligned(other->offset + other->bytes));
  }
  return place;
}

}  // namespace

MemoryPlan plan_memory(std::vector<Buffer>& buffers) {
  MemoryPlan plan;
  int stages = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.bytes < 1 || buffer.last < buffer.first)
      throw std::invalid_argument("memory plan: buffer '" + buffer.name + "' has " +
                                  std::to_string(buffer.bytes) + " bytes and lives from stage " +
                                  std::to_string(buffer.first) + " to " +
                                  std::to_string(buffer.last));
    plan.separate_bytes += aligned(buffer.bytes);
    stages = std::max(stages, buffer.last + 1);
  }
  for (int stage = 0; stage < stages; ++stage) {
    int64_t alive = 0;
    for (const Buffer& buffer : buffers)
      if (buffer.first <= stage && stage <= buffer.last) alive += aligned(buffer.bytes);
    plan.most_alive = std::max(plan.most_alive, alive);
  }

  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<const Buffer*> placed;
  for (const size_t i : order) {
    buffers[i].offset = lowest_place(buffers[i], placed);
    plan.bytes = std::max(plan.bytes, aligned(buffers[i].offset + buffers[i].bytes));
    placed.push_back(&buffers[i]);
  }
  return plan;
}

}  // namespace vision_transformer
