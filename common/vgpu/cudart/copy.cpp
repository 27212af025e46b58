// Copies and fills, 1D, 2D and 3D, to and from symbols: the calls. copy.cpp does the work.
#include "face.h"

namespace vgpu::cudart {
namespace {

Error copy_1d(const char* name, void* dst, const void* src, std::size_t count, int kind,
              cudaStream_t stream, bool per_thread, bool synchronous) {
  return api([&](Runtime&) {
    return submit(stream, per_thread, make_copy(dst, count, src, count, count, 1, kind),
                  {name, synchronous});
  });
}

Error copy_2d(const char* name, void* dst, std::size_t dst_pitch, const void* src,
              std::size_t src_pitch, std::size_t width, std::size_t height, int kind,
              cudaStream_t stream, bool per_thread, bool synchronous) {
  return api([&](Runtime& runtime) -> Error {
    if (!runtime.find_stream(stream, per_thread)) return cudaErrorInvalidResourceHandle;
    if (width > dst_pitch || width > src_pitch) return cudaErrorInvalidPitchValue;
    return submit(stream, per_thread,
                  make_copy(dst, dst_pitch, src, src_pitch, width, height, kind),
                  {name, synchronous});
  });
}

Error copy_3d(const char* name, const cudaMemcpy3DParms* p, cudaStream_t stream, bool per_thread,
              bool synchronous) {
  return api([&](Runtime&) -> Error {
    if (!p) return cudaErrorInvalidValue;
    return submit(stream, per_thread, copy_of(*p), {name, synchronous});
  });
}

Error copy_3d_peer(const char* name, const cudaMemcpy3DPeerParms* p, cudaStream_t stream,
                   bool per_thread, bool synchronous) {
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
  return copy_3d(name, &plain, stream, per_thread, synchronous);
}

Error copy_peer(const char* name, void* dst, int dst_device, const void* src, int src_device,
                std::size_t count, cudaStream_t stream, bool per_thread, bool synchronous) {
  if (dst_device != 0 || src_device != 0) return remember(cudaErrorInvalidDevice);
  return copy_1d(name, dst, src, count, cudaMemcpyDefault, stream, per_thread, synchronous);
}

Error fill_3d(const char* name, cudaPitchedPtr dst, int value, cudaExtent extent,
              cudaStream_t stream, bool per_thread, bool synchronous) {
  return api([&](Runtime&) {
    FillOp op;
    op = {dst.ptr,      dst.pitch, static_cast<unsigned>(value), 1, extent.width, extent.height,
          extent.depth, dst.ysize};
    return submit(stream, per_thread, op, {name, synchronous});
  });
}
Error fill_2d(const char* name, void* dst, std::size_t pitch, int value, std::size_t width,
              std::size_t height, cudaStream_t stream, bool per_thread, bool synchronous) {
  return api([&](Runtime& runtime) -> Error {
    if (!runtime.find_stream(stream, per_thread)) return cudaErrorInvalidResourceHandle;
    if (height > 1 && width > pitch) return cudaErrorInvalidPitchValue;
    FillOp op;
    op = {dst, pitch, static_cast<unsigned>(value), 1, width, height};
    return submit(stream, per_thread, op, {name, synchronous});
  });
}
Error fill_1d(const char* name, void* dst, int value, std::size_t count, cudaStream_t stream,
              bool per_thread, bool synchronous) {
  return fill_2d(name, dst, count, value, count, 1, stream, per_thread, synchronous);
}

// The driver's fills, of elements of 1, 2 or 4 bytes: `dst` is a multiple of an element.
template <class Element>
int fill_elements(const char* name, std::uint64_t dst, Element value, std::size_t count,
                  cudaStream_t stream, bool synchronous) {
  return api([&](Runtime& runtime) -> Error {
    if (!runtime.find_stream(stream, false)) return cudaErrorInvalidResourceHandle;
    if (dst % sizeof value) return cudaErrorInvalidValue;
    FillOp op;
    op = {reinterpret_cast<void*>(dst), count * sizeof value, value, sizeof value, count, 1};
    return submit(stream, false, op, {name, synchronous});
  });
}
template <class Element>
constexpr const char* fill_name(bool synchronous) {
  if (synchronous)
    return sizeof(Element) == 1   ? "cuMemsetD8"
           : sizeof(Element) == 2 ? "cuMemsetD16"
                                  : "cuMemsetD32";
  return sizeof(Element) == 1   ? "cuMemsetD8Async"
         : sizeof(Element) == 2 ? "cuMemsetD16Async"
                                : "cuMemsetD32Async";
}
template <class Element>
int fill_now(std::uint64_t dst, Element value, std::size_t count) {
  return fill_elements(fill_name<Element>(true), dst, value, count, nullptr, true);
}
template <class Element>
int fill_later(std::uint64_t dst, Element value, std::size_t count, cudaStream_t stream) {
  return fill_elements(fill_name<Element>(false), dst, value, count, stream, false);
}
template <class Element>
void* fill_named(const std::string& name) {
  if (name == fill_name<Element>(true)) return reinterpret_cast<void*>(&fill_now<Element>);
  if (name == fill_name<Element>(false)) return reinterpret_cast<void*>(&fill_later<Element>);
  return nullptr;
}

// The bytes of a symbol from `offset` on; `other` is where they go to or come from.
Error copy_symbol(const char* name, const void* symbol, std::size_t offset, std::size_t count,
                  const void* other, bool to_symbol, int kind, cudaStream_t stream, bool per_thread,
                  bool synchronous) {
  return api([&](Runtime& runtime) -> Error {
    if (!runtime.find_stream(stream, per_thread)) return cudaErrorInvalidResourceHandle;
    CopyOp op;
    const Error error = make_symbol_copy(symbol, offset, count, other, to_symbol, kind, op);
    return error == cudaSuccess ? submit(stream, per_thread, op, {name, synchronous}) : error;
  });
}

}  // namespace

void* driver_fill(const std::string& name) {
  if (void* const found = fill_named<std::uint8_t>(name)) return found;
  if (void* const found = fill_named<std::uint16_t>(name)) return found;
  return fill_named<std::uint32_t>(name);
}

}  // namespace vgpu::cudart

using namespace vgpu::cudart;
using Kind = enum cudaMemcpyKind;

cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t count, Kind kind) {
  return copy_1d("cudaMemcpy", dst, src, count, number_of(kind), nullptr, false, true);
}
VGPU_API cudaError_t cudaMemcpy_ptds(void* dst, const void* src, std::size_t count, Kind kind) {
  return copy_1d("cudaMemcpy", dst, src, count, number_of(kind), nullptr, true, true);
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, Kind kind,
                            cudaStream_t stream) {
  return copy_1d("cudaMemcpyAsync", dst, src, count, number_of(kind), stream, false, false);
}
VGPU_API cudaError_t cudaMemcpyAsync_ptsz(void* dst, const void* src, std::size_t count, Kind kind,
                                          cudaStream_t stream) {
  return copy_1d("cudaMemcpyAsync", dst, src, count, number_of(kind), stream, true, false);
}

cudaError_t cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device,
                           std::size_t count) {
  return copy_peer("cudaMemcpyPeer", dst, dst_device, src, src_device, count, nullptr, false, true);
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                std::size_t count, cudaStream_t stream) {
  return copy_peer("cudaMemcpyPeerAsync", dst, dst_device, src, src_device, count, stream, false,
                   false);
}

cudaError_t cudaMemcpy2D(void* dst, std::size_t dpitch, const void* src, std::size_t spitch,
                         std::size_t width, std::size_t height, Kind kind) {
  return copy_2d("cudaMemcpy2D", dst, dpitch, src, spitch, width, height, number_of(kind), nullptr,
                 false, true);
}
VGPU_API cudaError_t cudaMemcpy2D_ptds(void* dst, std::size_t dpitch, const void* src,
                                       std::size_t spitch, std::size_t width, std::size_t height,
                                       Kind kind) {
  return copy_2d("cudaMemcpy2D", dst, dpitch, src, spitch, width, height, number_of(kind), nullptr,
                 true, true);
}
cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dpitch, const void* src, std::size_t spitch,
                              std::size_t width, std::size_t height, Kind kind,
                              cudaStream_t stream) {
  return copy_2d("cudaMemcpy2DAsync", dst, dpitch, src, spitch, width, height, number_of(kind),
                 stream, false, false);
}
VGPU_API cudaError_t cudaMemcpy2DAsync_ptsz(void* dst, std::size_t dpitch, const void* src,
                                            std::size_t spitch, std::size_t width,
                                            std::size_t height, Kind kind, cudaStream_t stream) {
  return copy_2d("cudaMemcpy2DAsync", dst, dpitch, src, spitch, width, height, number_of(kind),
                 stream, true, false);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) {
  return copy_3d("cudaMemcpy3D", p, nullptr, false, true);
}
VGPU_API cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* p) {
  return copy_3d("cudaMemcpy3D", p, nullptr, true, true);
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return copy_3d("cudaMemcpy3DAsync", p, stream, false, false);
}
VGPU_API cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return copy_3d("cudaMemcpy3DAsync", p, stream, true, false);
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* p) {
  return copy_3d_peer("cudaMemcpy3DPeer", p, nullptr, false, true);
}
VGPU_API cudaError_t cudaMemcpy3DPeer_ptds(const cudaMemcpy3DPeerParms* p) {
  return copy_3d_peer("cudaMemcpy3DPeer", p, nullptr, true, true);
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* p, cudaStream_t stream) {
  return copy_3d_peer("cudaMemcpy3DPeerAsync", p, stream, false, false);
}
VGPU_API cudaError_t cudaMemcpy3DPeerAsync_ptsz(const cudaMemcpy3DPeerParms* p,
                                                cudaStream_t stream) {
  return copy_3d_peer("cudaMemcpy3DPeerAsync", p, stream, true, false);
}

cudaError_t cudaMemset(void* dst, int value, std::size_t count) {
  return fill_1d("cudaMemset", dst, value, count, nullptr, false, true);
}
VGPU_API cudaError_t cudaMemset_ptds(void* dst, int value, std::size_t count) {
  return fill_1d("cudaMemset", dst, value, count, nullptr, true, true);
}
cudaError_t cudaMemsetAsync(void* dst, int value, std::size_t count, cudaStream_t stream) {
  return fill_1d("cudaMemsetAsync", dst, value, count, stream, false, false);
}
VGPU_API cudaError_t cudaMemsetAsync_ptsz(void* dst, int value, std::size_t count,
                                          cudaStream_t stream) {
  return fill_1d("cudaMemsetAsync", dst, value, count, stream, true, false);
}
cudaError_t cudaMemset2D(void* dst, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  return fill_2d("cudaMemset2D", dst, pitch, value, width, height, nullptr, false, true);
}
VGPU_API cudaError_t cudaMemset2D_ptds(void* dst, std::size_t pitch, int value, std::size_t width,
                                       std::size_t height) {
  return fill_2d("cudaMemset2D", dst, pitch, value, width, height, nullptr, true, true);
}
cudaError_t cudaMemset2DAsync(void* dst, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return fill_2d("cudaMemset2DAsync", dst, pitch, value, width, height, stream, false, false);
}
VGPU_API cudaError_t cudaMemset2DAsync_ptsz(void* dst, std::size_t pitch, int value,
                                            std::size_t width, std::size_t height,
                                            cudaStream_t stream) {
  return fill_2d("cudaMemset2DAsync", dst, pitch, value, width, height, stream, true, false);
}
cudaError_t cudaMemset3D(cudaPitchedPtr dst, int value, cudaExtent extent) {
  return fill_3d("cudaMemset3D", dst, value, extent, nullptr, false, true);
}
VGPU_API cudaError_t cudaMemset3D_ptds(cudaPitchedPtr dst, int value, cudaExtent extent) {
  return fill_3d("cudaMemset3D", dst, value, extent, nullptr, true, true);
}
cudaError_t cudaMemset3DAsync(cudaPitchedPtr dst, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return fill_3d("cudaMemset3DAsync", dst, value, extent, stream, false, false);
}
VGPU_API cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr dst, int value, cudaExtent extent,
                                            cudaStream_t stream) {
  return fill_3d("cudaMemset3DAsync", dst, value, extent, stream, true, false);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, std::size_t count,
                               std::size_t offset, Kind kind) {
  return copy_symbol("cudaMemcpyToSymbol", symbol, offset, count, src, true, number_of(kind),
                     nullptr, false, true);
}
VGPU_API cudaError_t cudaMemcpyToSymbol_ptds(const void* symbol, const void* src, std::size_t count,
                                             std::size_t offset, Kind kind) {
  return copy_symbol("cudaMemcpyToSymbol", symbol, offset, count, src, true, number_of(kind),
                     nullptr, true, true);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, std::size_t count,
                                    std::size_t offset, Kind kind, cudaStream_t stream) {
  return copy_symbol("cudaMemcpyToSymbolAsync", symbol, offset, count, src, true, number_of(kind),
                     stream, false, false);
}
VGPU_API cudaError_t cudaMemcpyToSymbolAsync_ptsz(const void* symbol, const void* src,
                                                  std::size_t count, std::size_t offset, Kind kind,
                                                  cudaStream_t stream) {
  return copy_symbol("cudaMemcpyToSymbolAsync", symbol, offset, count, src, true, number_of(kind),
                     stream, true, false);
}
cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, std::size_t count,
                                 std::size_t offset, Kind kind) {
  return copy_symbol("cudaMemcpyFromSymbol", symbol, offset, count, dst, false, number_of(kind),
                     nullptr, false, true);
}
VGPU_API cudaError_t cudaMemcpyFromSymbol_ptds(void* dst, const void* symbol, std::size_t count,
                                               std::size_t offset, Kind kind) {
  return copy_symbol("cudaMemcpyFromSymbol", symbol, offset, count, dst, false, number_of(kind),
                     nullptr, true, true);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, std::size_t count,
                                      std::size_t offset, Kind kind, cudaStream_t stream) {
  return copy_symbol("cudaMemcpyFromSymbolAsync", symbol, offset, count, dst, false,
                     number_of(kind), stream, false, false);
}
VGPU_API cudaError_t cudaMemcpyFromSymbolAsync_ptsz(void* dst, const void* symbol,
                                                    std::size_t count, std::size_t offset,
                                                    Kind kind, cudaStream_t stream) {
  return copy_symbol("cudaMemcpyFromSymbolAsync", symbol, offset, count, dst, false,
                     number_of(kind), stream, true, false);
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
