// Copies and fills of boxes of bytes. Every one checks its whole range first.
#include <algorithm>
#include <cstring>

#include "operation.h"

namespace vgpu::runtime {
namespace {

// A box of bytes: `width` bytes a row, rows `pitch` apart, slices `pitch * slice_rows` apart.
struct Side {
  const void* pointer;
  std::size_t pitch = 0, slice_rows = 0;
};
struct Box {
  std::size_t width = 0, height = 1, depth = 1;
  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// Bytes from the first to behind the last one of the box; false when they cannot be counted.
bool span_of(const Side& side, const Box& box, std::uint64_t& bytes) {
  std::uint64_t slice = 0, rows = 0, slices = 0;
  return !__builtin_mul_overflow(side.pitch, side.slice_rows, &slice) &&
         !__builtin_mul_overflow(side.pitch, box.height - 1, &rows) &&
         !__builtin_mul_overflow(slice, box.depth - 1, &slices) &&
         !__builtin_add_overflow(rows, slices, &bytes) &&
         !__builtin_add_overflow(bytes, box.width, &bytes);
}

enum class Place { host, device };

// Where a side of a copy must lie. kByPointer goes by the pointer: what the device knows is
// the device's.
Place place_of(const void* pointer, bool by_kind, bool device) {
  if (by_kind) return device ? Place::device : Place::host;
  return is_device_address(pointer) ||
                 Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(pointer))
             ? Place::device
             : Place::host;
}

std::byte* bytes_of(const char* what, const Side& side, const Box& box, Place place) {
  std::uint64_t size = 0;
  if (!span_of(side, box, size)) return nullptr;
  return place == Place::device ? device_bytes(what, side.pointer, size)
                                : host_bytes(what, side.pointer, size);
}

// For the check of reads that nobody wrote before, and for that of streams.
void note(const Side& side, std::size_t offset, std::size_t size, Touch touch) {
  Runtime& runtime = Runtime::get();
  const std::uint64_t address = reinterpret_cast<std::uint64_t>(side.pointer) + offset;
  if (touch == Touch::write) runtime.memory().mark_written(address, size);
  if (!runtime.order || !runtime.order->active()) return;
  const auto allocation = runtime.memory().find(address);
  if (allocation) runtime.order->touch(allocation, address - allocation->base, size, touch);
}

// VGPU_CHECK=copies: bytes that nobody wrote and that a copy brings to the host.
class UnwrittenBytes {
 public:
  void look(const Side& side, std::size_t offset, std::size_t size) {
    const auto address = reinterpret_cast<std::uint64_t>(side.pointer) + offset;
    const auto allocation = Runtime::get().memory().find(address);
    if (!allocation || allocation->all_written()) return;
    const std::uint64_t first = address - allocation->base;
    for (std::uint64_t at = first; at < first + size; ++at) {
      if (allocation->written[static_cast<std::ptrdiff_t>(at)] == 1) continue;
      if (count_++ == 0) first_ = at, allocation_ = allocation;
    }
  }
  void tell() const {
    if (!count_) return;
    const std::string& name = allocation_->name;
    Runtime::get().findings.push_back(
        "error: init: a copy to the host reads byte " + std::to_string(first_) + " of " +
        (name.empty() ? "allocation " + std::to_string(allocation_->id) : "'" + name + "'") + " (" +
        std::to_string(allocation_->size) + " bytes), which nobody wrote" +
        (count_ > 1 ? ", and " + std::to_string(count_ - 1) + " such bytes more" : "") +
        ": does the grid reach the last element?");
  }

 private:
  std::shared_ptr<Allocation> allocation_;
  std::uint64_t first_ = 0, count_ = 0;
};

bool sound(int kind) { return kind >= kHostToHost && kind <= kByPointer; }

// Pointer to the first byte of a 3D copy's side. False when the position overflows.
bool side_of(const CopyEnd& end, Side& side) {
  std::uint64_t offset = 0, slices = 0;
  if (__builtin_mul_overflow(end.z, end.rows, &slices) ||
      __builtin_add_overflow(slices, end.y, &slices) ||
      __builtin_mul_overflow(slices, end.pitch, &offset) ||
      __builtin_add_overflow(offset, end.x, &offset))
    return false;
  side = {static_cast<const char*>(end.pointer) + offset, end.pitch, end.rows};
  return true;
}

Place target_of(const CopyOp& op) {
  if (op.dst.bytes) return Place::device;
  return place_of(op.dst.pointer, op.kind != kByPointer,
                  op.kind == kHostToDevice || op.kind == kDeviceToDevice);
}
Place source_of(const CopyOp& op) {
  if (op.src.bytes) return Place::device;
  return place_of(op.src.pointer, op.kind != kByPointer,
                  op.kind == kDeviceToHost || op.kind == kDeviceToDevice);
}
bool known(const void* pointer, bool pinned_too) {
  const auto a = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(pointer));
  return a && (pinned_too || a->kind != MemoryKind::pinned);
}

bool on_device(const CopyEnd& end) { return end.bytes || known(end.pointer, false); }

// For the timeline: what it moves, and over the link or not.
void show(const CopyOp& op, const Box& box) {
  Runtime& runtime = Runtime::get();
  auto* const shown = runtime.order ? runtime.order->shown() : nullptr;
  if (!shown) return;
  using Kind = DeviceTimeline::Kind;
  constexpr Kind kKinds[2][2] = {{Kind::other, Kind::to_host}, {Kind::to_device, Kind::on_device}};
  constexpr const char* kNames[2][2] = {{"copy on host", "copy to host"},
                                        {"copy to device", "copy on device"}};
  const bool to = on_device(op.dst), from = on_device(op.src);
  shown->name = kNames[to][from];
  runtime.timeline()->make_copy(*shown, kKinds[to][from], box.width * box.height * box.depth,
                                writes_pageable(op) || reads_pageable(op));
}

}  // namespace

Status copy(const CopyOp& op) {
  if (!sound(op.kind)) return Status::invalid_copy_direction;
  if (op.src.array || op.dst.array) return Status::not_supported;
  Side dst, src;
  if (!side_of(op.dst, dst) || !side_of(op.src, src)) return Status::invalid_value;
  const Box box{op.width, op.height, op.depth};
  if (box.empty()) return Status::success;
  const bool many = box.height > 1 || box.depth > 1;
  if (many && (dst.pitch < box.width || src.pitch < box.width)) return Status::invalid_pitch;
  const std::byte* source =
      op.src.bytes ? op.src.bytes : bytes_of("cudaMemcpy: source", src, box, source_of(op));
  if (!source) return Status::invalid_value;
  std::byte* target =
      op.dst.bytes ? op.dst.bytes : bytes_of("cudaMemcpy: destination", dst, box, target_of(op));
  if (!target) return Status::invalid_value;
  UnwrittenBytes unwritten;
  const bool looks = Runtime::get().settings.copies && !on_device(op.dst);
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      const std::size_t to = (z * dst.slice_rows + y) * dst.pitch;
      const std::size_t from = (z * src.slice_rows + y) * src.pitch;
      std::memmove(target + to, source + from, box.width);
      if (looks) unwritten.look(src, from, box.width);
      note(src, from, box.width, Touch::read);
      note(dst, to, box.width, Touch::write);
    }
  unwritten.tell();
  show(op, box);
  return Status::success;
}

Status fill(const FillOp& op) {
  if (op.element_bytes != 1 && op.element_bytes != 2 && op.element_bytes != 4)
    return Status::invalid_value;
  Box box{0, op.height, op.depth};
  if (__builtin_mul_overflow(op.width, std::size_t{op.element_bytes}, &box.width))
    return Status::invalid_value;
  const Side dst{op.pointer, op.pitch, op.slice_rows};
  if (box.empty()) return Status::success;
  if ((box.height > 1 || box.depth > 1) && dst.pitch < box.width) return Status::invalid_value;
  std::byte* target = bytes_of("cudaMemset", dst, box, Place::device);
  if (!target) return Status::invalid_value;
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      const std::size_t at = (z * dst.slice_rows + y) * dst.pitch;
      if (op.element_bytes == 1)
        std::memset(target + at, static_cast<int>(op.value), box.width);
      else
        for (std::size_t i = 0; i < box.width; i += op.element_bytes)
          std::memcpy(target + at + i, &op.value, op.element_bytes);
      note(dst, at, box.width, Touch::write);
    }
  Runtime& runtime = Runtime::get();
  if (auto* const shown = runtime.order ? runtime.order->shown() : nullptr) {
    shown->name = "fill";
    runtime.timeline()->make_fill(*shown, box.width * box.height * box.depth);
  }
  return Status::success;
}

CopyOp make_copy(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                 std::size_t width, std::size_t height, int kind) {
  CopyOp op;
  op.dst.pointer = dst;
  op.dst.pitch = dst_pitch;
  op.src.pointer = const_cast<void*>(src);
  op.src.pitch = src_pitch;
  op.dst.row_bytes = op.src.row_bytes = op.width = width;
  op.dst.rows = op.src.rows = op.height = height;
  op.depth = 1;
  op.kind = kind;
  return op;
}

Status make_symbol_copy(const void* symbol, std::size_t offset, std::size_t count,
                        const void* other, bool to_symbol, int kind, CopyOp& out) {
  Symbol found;
  if (const Status status = find_symbol(symbol, found); status != Status::success) return status;
  if (offset > found.size || count > found.size - offset || !found.bytes)
    return Status::invalid_value;
  const int host_kind = to_symbol ? kHostToDevice : kDeviceToHost;
  if (kind != host_kind && kind != kDeviceToDevice && kind != kByPointer)
    return Status::invalid_copy_direction;
  void* const address = reinterpret_cast<void*>(found.address + offset);
  void* const rest = const_cast<void*>(other);
  out = make_copy(to_symbol ? address : rest, count, to_symbol ? rest : address, count, count, 1,
                  kind);
  (to_symbol ? out.dst : out.src).bytes = found.bytes + offset;
  return Status::success;
}

bool writes_pageable(const CopyOp& op) {
  return target_of(op) == Place::host && !known(op.dst.pointer, true);
}
bool reads_pageable(const CopyOp& op) {
  return source_of(op) == Place::host && !known(op.src.pointer, true);
}
bool between_host_memory(const CopyOp& op) {
  const auto is_of_host = [](const CopyEnd& end) {
    if (end.bytes) return false;
    const auto a = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(end.pointer));
    return !a || a->kind == MemoryKind::pinned;
  };
  return is_of_host(op.dst) && is_of_host(op.src);
}
bool between_device_memory(const CopyOp& op) {
  const auto is_of_device = [](const CopyEnd& end) {
    if (end.bytes) return true;
    const auto a = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(end.pointer));
    return a && a->kind != MemoryKind::pinned && a->kind != MemoryKind::managed;
  };
  return is_of_device(op.dst) && is_of_device(op.src);
}

}  // namespace vgpu::runtime
