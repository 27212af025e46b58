// Copies and fills of boxes of bytes. Every one checks its whole range first.
#include <algorithm>
#include <cstring>

#include "operation.h"

namespace vgpu::runtime {
namespace {

// Kinds of copies are numbers here, since a program may ask for one that does not exist.

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

// Where a side of a copy must lie. cudaMemcpyDefault goes by the pointer: what the device knows is
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

bool sound(int kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

// Pointer to the first byte of a 3D copy's side. False when the position overflows.
bool side_of(const cudaPitchedPtr& base, const cudaPos& position, Side& side) {
  std::uint64_t offset = 0, slices = 0;
  if (__builtin_mul_overflow(position.z, base.ysize, &slices) ||
      __builtin_add_overflow(slices, position.y, &slices) ||
      __builtin_mul_overflow(slices, base.pitch, &offset) ||
      __builtin_add_overflow(offset, position.x, &offset))
    return false;
  side = {static_cast<const char*>(base.ptr) + offset, base.pitch, base.ysize};
  return true;
}

Place target_of(const CopyOp& op) {
  const int kind = number_of(op.box.kind);
  if (op.dst_bytes) return Place::device;
  return place_of(op.box.dstPtr.ptr, kind != cudaMemcpyDefault,
                  kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice);
}
Place source_of(const CopyOp& op) {
  const int kind = number_of(op.box.kind);
  if (op.src_bytes) return Place::device;
  return place_of(op.box.srcPtr.ptr, kind != cudaMemcpyDefault,
                  kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice);
}
bool known(const void* pointer, bool pinned_too) {
  const auto a = Runtime::get().memory().find(reinterpret_cast<std::uint64_t>(pointer));
  return a && (pinned_too || a->kind != MemoryKind::pinned);
}

}  // namespace

Error copy(const CopyOp& op) {
  const cudaMemcpy3DParms& p = op.box;
  if (!sound(number_of(p.kind))) return cudaErrorInvalidMemcpyDirection;
  if (p.srcArray || p.dstArray) return cudaErrorNotSupported;
  Side dst, src;
  if (!side_of(p.dstPtr, p.dstPos, dst) || !side_of(p.srcPtr, p.srcPos, src))
    return cudaErrorInvalidValue;
  const Box box{p.extent.width, p.extent.height, p.extent.depth};
  if (box.empty()) return cudaSuccess;
  const bool many = box.height > 1 || box.depth > 1;
  if (many && (dst.pitch < box.width || src.pitch < box.width)) return cudaErrorInvalidPitchValue;
  const std::byte* source =
      op.src_bytes ? op.src_bytes : bytes_of("cudaMemcpy: source", src, box, source_of(op));
  if (!source) return cudaErrorInvalidValue;
  std::byte* target =
      op.dst_bytes ? op.dst_bytes : bytes_of("cudaMemcpy: destination", dst, box, target_of(op));
  if (!target) return cudaErrorInvalidValue;
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      const std::size_t to = (z * dst.slice_rows + y) * dst.pitch;
      const std::size_t from = (z * src.slice_rows + y) * src.pitch;
      std::memmove(target + to, source + from, box.width);
      note(src, from, box.width, Touch::read);
      note(dst, to, box.width, Touch::write);
    }
  return cudaSuccess;
}

Error fill(const FillOp& op) {
  const cudaMemsetParams& p = op.box;
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return cudaErrorInvalidValue;
  Box box{0, p.height, op.depth};
  if (__builtin_mul_overflow(p.width, std::size_t{p.elementSize}, &box.width))
    return cudaErrorInvalidValue;
  const Side dst{p.dst, p.pitch, op.slice_rows};
  if (box.empty()) return cudaSuccess;
  if ((box.height > 1 || box.depth > 1) && dst.pitch < box.width) return cudaErrorInvalidValue;
  std::byte* target = bytes_of("cudaMemset", dst, box, Place::device);
  if (!target) return cudaErrorInvalidValue;
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      const std::size_t at = (z * dst.slice_rows + y) * dst.pitch;
      if (p.elementSize == 1)
        std::memset(target + at, static_cast<int>(p.value), box.width);
      else
        for (std::size_t i = 0; i < box.width; i += p.elementSize)
          std::memcpy(target + at + i, &p.value, p.elementSize);
      note(dst, at, box.width, Touch::write);
    }
  return cudaSuccess;
}

CopyOp make_copy(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
                 std::size_t width, std::size_t height, int kind) {
  CopyOp op;
  op.box.dstPtr = {dst, dst_pitch, width, height};
  op.box.srcPtr = {const_cast<void*>(src), src_pitch, width, height};
  op.box.extent = {width, height, 1};
  std::memcpy(&op.box.kind, &kind, sizeof kind);
  return op;
}

Error make_symbol_copy(const void* symbol, std::size_t offset, std::size_t count, const void* other,
                       bool to_symbol, int kind, CopyOp& out) {
  Symbol found;
  if (const Error error = find_symbol(symbol, found); error != cudaSuccess) return error;
  if (offset > found.size || count > found.size - offset || !found.bytes)
    return cudaErrorInvalidValue;
  const int host_kind = to_symbol ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
  if (kind != host_kind && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  void* const address = reinterpret_cast<void*>(found.address + offset);
  void* const rest = const_cast<void*>(other);
  out = make_copy(to_symbol ? address : rest, count, to_symbol ? rest : address, count, count, 1,
                  kind);
  (to_symbol ? out.dst_bytes : out.src_bytes) = found.bytes + offset;
  return cudaSuccess;
}

bool writes_pageable(const CopyOp& op) {
  return target_of(op) == Place::host && !known(op.box.dstPtr.ptr, true);
}
bool between_device_memory(const CopyOp& op) {
  return (op.dst_bytes || known(op.box.dstPtr.ptr, false)) &&
         (op.src_bytes || known(op.box.srcPtr.ptr, false));
}

}  // namespace vgpu::runtime
