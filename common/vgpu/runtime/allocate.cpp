// Memory that is given back, and addresses for memory that a graph will allocate.
#include <algorithm>

#include "operation.h"

namespace vgpu::runtime {

Status release_memory(Runtime& runtime, void* pointer) {
  if (!pointer) return Status::success;
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const auto allocation = runtime.memory().find(address);
  const auto refuse = [&](const std::string& why) {
    say("cudaFree: " + why);
    return Status::invalid_value;
  };
  if (!allocation) {
    const auto freed = runtime.memory().nearest(address);
    if (freed && freed->freed && freed->base == address)
      return refuse("allocation " +
                    (freed->name.empty() ? std::to_string(freed->id) : "'" + freed->name + "'") +
                    " was freed before");
    return refuse("not a device pointer");
  }
  if (allocation->base != address)
    return refuse("the pointer is inside an allocation, not its begin");
  if (allocation->kind != MemoryKind::device && allocation->kind != MemoryKind::managed)
    return refuse("the memory is not of cudaMalloc");
  if (const auto pool = runtime.pool_of.find(address); pool != runtime.pool_of.end()) {
    pool->second->used -= std::min(pool->second->used, allocation->size);
    runtime.pool_of.erase(pool);
  }
  if (const auto of_graph = runtime.graph_memory.find(address);
      of_graph != runtime.graph_memory.end()) {
    runtime.graph_memory_used -= of_graph->second;
    runtime.graph_memory.erase(of_graph);
  }
  if (runtime.order) runtime.order->forget(allocation->id);
  if (runtime.host_guard) runtime.host_guard->lift();
  runtime.memory().release(address);
  return Status::success;
}

Status make_alloc(std::size_t size, AllocOp& op) {
  Memory& memory = Runtime::get().memory();
  op.bytes = size;
  if (size == 0) return Status::success;
  op.place = memory.allocate(size, MemoryKind::device);
  if (!op.place) return Status::out_of_memory;
  op.pointer = reinterpret_cast<void*>(op.place->base);
  memory.release(op.place->base);
  return Status::success;
}

}  // namespace vgpu::runtime
