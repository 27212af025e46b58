// The functions of the driver interface that make tensor maps. Programs with the runtime find them by
// cudaGetDriverEntryPoint, and so does this project's libcuda.so.1. Here they have plain parameters: a
// toolkit before 12.0 has no types for them.
#include <cstring>

#include "../core/tensor_map.h"
#include "face.h"

namespace vgpu::cudart {
namespace {

Error told(const char* function, const TensorMapFault& fault) {
  if (fault.text.empty()) return cudaSuccess;
  const std::string text = std::string(function) + ": " + fault.text;
  say_once(text, text);
  return fault.supported ? cudaErrorInvalidValue : cudaErrorNotSupported;
}

// Errors of the two interfaces share their numbers.
template <class F>
int on_device(const char* function, F&& body) {
  return framed<Error>(
      [&](Runtime& runtime) -> Error {
        const DeviceSpec& spec = runtime.spec();
        if (spec.major < 9)
          return told(function, {"tensor maps need compute capability 9.0, and " + spec.name +
                                     " has " + std::to_string(spec.major) + "." +
                                     std::to_string(spec.minor) + " (VGPU_DEVICE=h100 or h200)",
                                 false});
        return body();
      },
      Context::not_needed);
}

int make(const char* function, void* to, const TensorMapRequest& request) {
  return on_device(function, [&] {
    if (!to || reinterpret_cast<std::uintptr_t>(to) % 64)
      return told(function, {"tensorMap is " + std::string(to ? "not aligned" : "null") +
                             ": it must be a multiple of 64"});
    TensorMap map;
    const TensorMapFault fault = encode(request, map);
    if (!fault.text.empty()) return told(function, fault);
    std::memset(to, 0, kTensorMapBytes);
    std::memcpy(to, &map, sizeof map);
    return cudaSuccess;
  });
}

int encode_tiled(void* to, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                 const std::uint64_t* strides, const std::uint32_t* box,
                 const std::uint32_t* element_strides, int interleave, int swizzle, int promotion,
                 int fill) {
  TensorMapRequest request;
  request.type = type;
  request.rank = rank;
  request.address = reinterpret_cast<std::uint64_t>(address);
  request.sizes = sizes;
  request.strides = strides;
  request.box = box;
  request.element_strides = element_strides;
  request.interleave = interleave;
  request.swizzle = swizzle;
  request.promotion = promotion;
  request.fill = fill;
  return make("cuTensorMapEncodeTiled", to, request);
}

int encode_im2col(void* to, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                  const std::uint64_t* strides, const int* lower, const int* upper,
                  std::uint32_t channels, std::uint32_t pixels,
                  const std::uint32_t* element_strides, int interleave, int swizzle, int promotion,
                  int fill) {
  TensorMapRequest request;
  request.im2col = true;
  request.type = type;
  request.rank = rank;
  request.address = reinterpret_cast<std::uint64_t>(address);
  request.sizes = sizes;
  request.strides = strides;
  request.lower = lower;
  request.upper = upper;
  request.channels = channels;
  request.pixels = pixels;
  request.element_strides = element_strides;
  request.interleave = interleave;
  request.swizzle = swizzle;
  request.promotion = promotion;
  request.fill = fill;
  return make("cuTensorMapEncodeIm2col", to, request);
}

int replace(void* at, void* address) {
  constexpr const char* kName = "cuTensorMapReplaceAddress";
  return on_device(kName, [&] {
    if (!at) return told(kName, {"tensorMap is null"});
    TensorMap map;
    std::memcpy(static_cast<void*>(&map), at, sizeof map);
    const TensorMapFault fault = replace_address(map, reinterpret_cast<std::uint64_t>(address));
    if (!fault.text.empty()) return told(kName, fault);
    std::memcpy(at, &map, sizeof map);
    return cudaSuccess;
  });
}

struct Entry {
  const char* name;
  void* function;
};
const Entry kEntries[] = {
    {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&encode_tiled)},
    {"cuTensorMapEncodeIm2col", reinterpret_cast<void*>(&encode_im2col)},
    {"cuTensorMapReplaceAddress", reinterpret_cast<void*>(&replace)},
};
constexpr unsigned kSince = 12000, kFillSince = 3020;  // versions of CUDA

}  // namespace

Error driver_entry_point(const char* symbol, void** function, unsigned version,
                         cudaDriverEntryPointQueryResult* status) {
  if (!symbol || !function) return remember(cudaErrorInvalidValue);
  *function = nullptr;
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, symbol) != 0) continue;
    const bool found = version >= kSince;
    if (found) *function = entry.function;
    if (status)
      *status = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointVersionNotSufficent;
    return cudaSuccess;
  }
  if (void* const fill = driver_fill(symbol); fill && version >= kFillSince) {
    *function = fill;
    if (status) *status = cudaDriverEntryPointSuccess;
    return cudaSuccess;
  }
  // The others are not there. The pointer is cleared, so that a program that does not look at the
  // result cannot call into nowhere.
  if (status) *status = cudaDriverEntryPointSymbolNotFound;
  say_once(std::string("driver ") + symbol,
           "cudaGetDriverEntryPoint: the virtual GPU has no " + std::string(symbol) +
               " (of the driver's functions it has cuTensorMapEncodeTiled, "
               "cuTensorMapEncodeIm2col, cuTensorMapReplaceAddress, cuMemsetD8, D16, D32 and these "
               "with Async)");
  return remember(cudaErrorNotSupported);
}

}  // namespace vgpu::cudart
