// Copies and fills, 1D, 2D and 3D, to and from symbols. Every form checks its whole range first.
#include <algorithm>
#include <cstring>

#include "runtime.h"

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

// For the check of reads that nobody wrote before.
void mark_written(const Side& side, std::size_t offset, std::size_t size) {
  Runtime::get().memory().mark_written(reinterpret_cast<std::uint64_t>(side.pointer) + offset, size);
}

Error copy(Side dst, Side src, Box box, int kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (box.empty()) return cudaSuccess;
  const bool many = box.height > 1 || box.depth > 1;
  if (many && (dst.pitch < box.width || src.pitch < box.width)) return cudaErrorInvalidPitchValue;
  const bool by_kind = kind != cudaMemcpyDefault;
  const Place to = place_of(dst.pointer, by_kind,
                            kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice);
  const Place from = place_of(src.pointer, by_kind,
                              kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice);
  const std::byte* source = bytes_of("cudaMemcpy: source", src, box, from);
  if (!source) return cudaErrorInvalidValue;
  std::byte* target = bytes_of("cudaMemcpy: destination", dst, box, to);
  if (!target) return cudaErrorInvalidValue;
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      const std::size_t at = (z * dst.slice_rows + y) * dst.pitch;
      std::memmove(target + at, source + (z * src.slice_rows + y) * src.pitch, box.width);
      mark_written(dst, at, box.width);
    }
  return cudaSuccess;
}

Error fill(Side dst, int value, Box box) {
  if (box.empty()) return cudaSuccess;
  if ((box.height > 1 || box.depth > 1) && dst.pitch < box.width) return cudaErrorInvalidValue;
  std::byte* target = bytes_of("cudaMemset", dst, box, Place::device);
  if (!target) return cudaErrorInvalidValue;
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y) {
      const std::size_t at = (z * dst.slice_rows + y) * dst.pitch;
      std::memset(target + at, value, box.width);
      mark_written(dst, at, box.width);
    }
  return cudaSuccess;
}

template <class F>
Error in_stream(cudaStream_t stream, bool per_thread, F&& operation) {
  return api([&](Runtime&) { return on_stream(stream, per_thread, operation); });
}

Error copy_1d(void* dst, const void* src, std::size_t count, int kind, cudaStream_t stream,
              bool per_thread) {
  return in_stream(stream, per_thread, [&] {
    return copy({dst, count}, {src, count}, {count}, kind);
  });
}

Error copy_2d(void* dst, std::size_t dst_pitch, const void* src, std::size_t src_pitch,
              std::size_t width, std::size_t height, int kind, cudaStream_t stream,
              bool per_thread) {
  return in_stream(stream, per_thread, [&]() -> Error {
    if (width > dst_pitch || width > src_pitch) return cudaErrorInvalidPitchValue;
    return copy({dst, dst_pitch}, {src, src_pitch}, {width, height}, kind);
  });
}

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

Error copy_3d(const cudaMemcpy3DParms* p, cudaStream_t stream, bool per_thread) {
  return in_stream(stream, per_thread, [&]() -> Error {
    if (!p) return cudaErrorInvalidValue;
    if (p->srcArray || p->dstArray) return cudaErrorNotSupported;
    Side dst, src;
    if (!side_of(p->dstPtr, p->dstPos, dst) || !side_of(p->srcPtr, p->srcPos, src))
      return cudaErrorInvalidValue;
    return copy(dst, src, {p->extent.width, p->extent.height, p->extent.depth}, number_of(p->kind));
  });
}

Error copy_3d_peer(const cudaMemcpy3DPeerParms* p, cudaStream_t stream, bool per_thread) {
  if (!p) return remember(cudaErrorInvalidValue);
  if (p->srcDevice != 0 || p->dstDevice != 0) return remember(cudaErrorInvalidDevice);
  cudaMemcpy3DParms plain{};
  plain.srcArray = p->srcArray;
  plain.srcPos = p->srcPos;
  plain.srcPtr = p->srcPtr;
  plain.dstArray = p->dstArray;
  plain.dstPos = p->dstPos;
  plain.dstPtr = p->dstPtr;
  plain.extent = p->extent;
  plain.kind = cudaMemcpyDefault;
  return copy_3d(&plain, stream, per_thread);
}

Error copy_peer(void* dst, int dst_device, const void* src, int src_device, std::size_t count,
                cudaStream_t stream, bool per_thread) {
  if (dst_device != 0 || src_device != 0) return remember(cudaErrorInvalidDevice);
  return copy_1d(dst, src, count, cudaMemcpyDefault, stream, per_thread);
}

Error fill_3d(cudaPitchedPtr dst, int value, cudaExtent extent, cudaStream_t stream,
              bool per_thread) {
  return in_stream(stream, per_thread, [&] {
    return fill({dst.ptr, dst.pitch, dst.ysize}, value,
                {extent.width, extent.height, extent.depth});
  });
}
Error fill_2d(void* dst, std::size_t pitch, int value, std::size_t width, std::size_t height,
              cudaStream_t stream, bool per_thread) {
  return in_stream(stream, per_thread, [&]() -> Error {
    if (height > 1 && width > pitch) return cudaErrorInvalidPitchValue;
    return fill({dst, pitch}, value, {width, height});
  });
}
Error fill_1d(void* dst, int value, std::size_t count, cudaStream_t stream, bool per_thread) {
  return in_stream(stream, per_thread, [&] { return fill({dst, count}, value, {count}); });
}

// The bytes of a symbol from `offset` on; `other` is where they go to or come from.
Error copy_symbol(const void* symbol, std::size_t offset, std::size_t count, const void* other,
                  bool to_symbol, int kind, cudaStream_t stream, bool per_thread) {
  return in_stream(stream, per_thread, [&]() -> Error {
    Symbol found;
    if (const Error error = find_symbol(symbol, found); error != cudaSuccess) return error;
    if (offset > found.size || count > found.size - offset || !found.bytes)
      return cudaErrorInvalidValue;
    const int host_kind = to_symbol ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    if (kind != host_kind && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
      return cudaErrorInvalidMemcpyDirection;
    if (count == 0) return cudaSuccess;
    const Place place =
        place_of(other, kind != cudaMemcpyDefault, kind == cudaMemcpyDeviceToDevice);
    const char* what =
        to_symbol ? "cudaMemcpyToSymbol: source" : "cudaMemcpyFromSymbol: destination";
    std::byte* bytes = bytes_of(what, {other, count}, {count}, place);
    if (!bytes) return cudaErrorInvalidValue;
    if (to_symbol)
      std::memmove(found.bytes + offset, bytes, count);
    else
      std::memmove(bytes, found.bytes + offset, count);
    if (!to_symbol) mark_written({other}, 0, count);
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace vgpu::runtime

using namespace vgpu::runtime;
using Kind = enum cudaMemcpyKind;

cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t count, Kind kind) {
  return copy_1d(dst, src, count, number_of(kind), nullptr, false);
}
VGPU_API cudaError_t cudaMemcpy_ptds(void* dst, const void* src, std::size_t count, Kind kind) {
  return copy_1d(dst, src, count, number_of(kind), nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, Kind kind,
                            cudaStream_t stream) {
  return copy_1d(dst, src, count, number_of(kind), stream, false);
}
VGPU_API cudaError_t cudaMemcpyAsync_ptsz(void* dst, const void* src, std::size_t count, Kind kind,
                                          cudaStream_t stream) {
  return copy_1d(dst, src, count, number_of(kind), stream, true);
}

cudaError_t cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                           std::size_t count) {
  return copy_peer(dst, dst_device, src, src_device, count, nullptr, false);
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                std::size_t count, cudaStream_t stream) {
  return copy_peer(dst, dst_device, src, src_device, count, stream, false);
}

cudaError_t cudaMemcpy2D(void* dst, std::size_t dpitch, const void* src, std::size_t spitch,
                         std::size_t width, std::size_t height, Kind kind) {
  return copy_2d(dst, dpitch, src, spitch, width, height, number_of(kind), nullptr, false);
}
VGPU_API cudaError_t cudaMemcpy2D_ptds(void* dst, std::size_t dpitch, const void* src,
                                       std::size_t spitch, std::size_t width, std::size_t height,
                                       Kind kind) {
  return copy_2d(dst, dpitch, src, spitch, width, height, number_of(kind), nullptr, true);
}
cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dpitch, const void* src, std::size_t spitch,
                              std::size_t width, std::size_t height, Kind kind,
                              cudaStream_t stream) {
  return copy_2d(dst, dpitch, src, spitch, width, height, number_of(kind), stream, false);
}
VGPU_API cudaError_t cudaMemcpy2DAsync_ptsz(void* dst, std::size_t dpitch, const void* src,
                                            std::size_t spitch, std::size_t width,
                                            std::size_t height, Kind kind, cudaStream_t stream) {
  return copy_2d(dst, dpitch, src, spitch, width, height, number_of(kind), stream, true);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) { return copy_3d(p, nullptr, false); }
VGPU_API cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* p) {
  return copy_3d(p, nullptr, true);
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return copy_3d(p, stream, false);
}
VGPU_API cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return copy_3d(p, stream, true);
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p) {
  return copy_3d_peer(p, nullptr, false);
}
VGPU_API cudaError_t cudaMemcpy3DPeer_ptds(const cudaMemcpy3DPeerParms* p) {
  return copy_3d_peer(p, nullptr, true);
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  return copy_3d_peer(p, stream, false);
}
VGPU_API cudaError_t cudaMemcpy3DPeerAsync_ptsz(const cudaMemcpy3DPeerParms* p,
                                                cudaStream_t stream) {
  return copy_3d_peer(p, stream, true);
}

cudaError_t cudaMemset(void* dst, int value, std::size_t count) {
  return fill_1d(dst, value, count, nullptr, false);
}
VGPU_API cudaError_t cudaMemset_ptds(void* dst, int value, std::size_t count) {
  return fill_1d(dst, value, count, nullptr, true);
}
cudaError_t cudaMemsetAsync(void* dst, int value, std::size_t count, cudaStream_t stream) {
  return fill_1d(dst, value, count, stream, false);
}
VGPU_API cudaError_t cudaMemsetAsync_ptsz(void* dst, int value, std::size_t count,
                                          cudaStream_t stream) {
  return fill_1d(dst, value, count, stream, true);
}
cudaError_t cudaMemset2D(void* dst, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  return fill_2d(dst, pitch, value, width, height, nullptr, false);
}
VGPU_API cudaError_t cudaMemset2D_ptds(void* dst, std::size_t pitch, int value, std::size_t width,
                                       std::size_t height) {
  return fill_2d(dst, pitch, value, width, height, nullptr, true);
}
cudaError_t cudaMemset2DAsync(void* dst, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return fill_2d(dst, pitch, value, width, height, stream, false);
}
VGPU_API cudaError_t cudaMemset2DAsync_ptsz(void* dst, std::size_t pitch, int value,
                                            std::size_t width, std::size_t height,
                                            cudaStream_t stream) {
  return fill_2d(dst, pitch, value, width, height, stream, true);
}
cudaError_t cudaMemset3D(cudaPitchedPtr dst, int value, cudaExtent extent) {
  return fill_3d(dst, value, extent, nullptr, false);
}
VGPU_API cudaError_t cudaMemset3D_ptds(cudaPitchedPtr dst, int value, cudaExtent extent) {
  return fill_3d(dst, value, extent, nullptr, true);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr dst, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return fill_3d(dst, value, extent, stream, false);
}
VGPU_API cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr dst, int value, cudaExtent extent,
                                            cudaStream_t stream) {
  return fill_3d(dst, value, extent, stream, true);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, std::size_t count,
                               std::size_t offset, Kind kind) {
  return copy_symbol(symbol, offset, count, src, true, number_of(kind), nullptr, false);
}
VGPU_API cudaError_t cudaMemcpyToSymbol_ptds(const void* symbol, const void* src, std::size_t count,
                                             std::size_t offset, Kind kind) {
  return copy_symbol(symbol, offset, count, src, true, number_of(kind), nullptr, true);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, std::size_t count,
                                    std::size_t offset, Kind kind, cudaStream_t stream) {
  return copy_symbol(symbol, offset, count, src, true, number_of(kind), stream, false);
}
VGPU_API cudaError_t cudaMemcpyToSymbolAsync_ptsz(const void* symbol, const void* src,
                                                  std::size_t count, std::size_t offset, Kind kind,
                                                  cudaStream_t stream) {
  return copy_symbol(symbol, offset, count, src, true, number_of(kind), stream, true);
}
cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, std::size_t count,
                                 std::size_t offset, Kind kind) {
  return copy_symbol(symbol, offset, count, dst, false, number_of(kind), nullptr, false);
}
VGPU_API cudaError_t cudaMemcpyFromSymbol_ptds(void* dst, const void* symbol, std::size_t count,
                                               std::size_t offset, Kind kind) {
  return copy_symbol(symbol, offset, count, dst, false, number_of(kind), nullptr, true);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, std::size_t count,
                                      std::size_t offset, Kind kind, cudaStream_t stream) {
  return copy_symbol(symbol, offset, count, dst, false, number_of(kind), stream, false);
}
VGPU_API cudaError_t cudaMemcpyFromSymbolAsync_ptsz(void* dst, const void* symbol,
                                                    std::size_t count, std::size_t offset,
                                                    Kind kind, cudaStream_t stream) {
  return copy_symbol(symbol, offset, count, dst, false, number_of(kind), stream, true);
}

cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  return api([&](Runtime&) -> Error {
    if (!pointer) return cudaErrorInvalidValue;
    Symbol found;
    if (const Error error = find_symbol(symbol, found); error != cudaSuccess) return error;
    *pointer = reinterpret_cast<void*>(found.address);
    return cudaSuccess;
  });
}

cudaError_t cudaGetSymbolSize(std::size_t* size, const void* symbol) {
  return api([&](Runtime&) -> Error {
    if (!size) return cudaErrorInvalidValue;
    Symbol found;
    if (const Error error = find_symbol(symbol, found); error != cudaSuccess) return error;
    *size = found.size;
    return cudaSuccess;
  });
}
