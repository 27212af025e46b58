// libcuda.so.1 on the virtual GPU: NVIDIA's driver interface, which is not there yet. A program
// that is linked with it starts, and each function says its own name once and returns
// CUDA_ERROR_NOT_SUPPORTED. What needs no device answers: the names and texts of errors, the
// version, the search for functions. Tensor maps are made, and memory is filled, by the runtime's library, if
// the program has it, too. The library is not linked with that, so that neither interface depends on the other.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>

// The library defines functions by the names of its symbols, not by those that cuda.h puts before
// them.
#undef cuGetProcAddress

namespace {

// One signature serves for all functions: the caller cleans up after its arguments.
int refuse(const char* name, std::atomic_flag& said) {
  if (!said.test_and_set()) {
    std::fflush(stdout);
    std::fprintf(stderr,
                 "vgpu: %s is not supported by the virtual GPU: it has CUDA's runtime interface "
                 "(cuda...), not the driver interface (cu...)\n",
                 name);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

const char* name_of(CUresult error) {
  switch (error) {
#define ERROR_NAME(name) \
  case name:             \
    return #name;
#include "driver_errors.inc"
#undef ERROR_NAME
    default:
      return nullptr;
  }
}

// The two interfaces share the numbers of their errors, and most of the texts.
const char* text_of(CUresult error) {
  switch (static_cast<int>(error)) {
#define ERROR_TEXT(number, name, text) \
  case number:                         \
    return text;
#include "../cudart/errors.inc"
#undef ERROR_TEXT
    default:
      return name_of(error);
  }
}

using Text = const char* (*)(CUresult);
CUresult tell(Text text, CUresult error, const char** out) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = name_of(error) ? text(error) : nullptr;
  return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

#define DRIVER_API extern "C" __attribute__((visibility("default")))

DRIVER_API CUresult cuGetErrorName(CUresult error, const char** out) {
  return tell(name_of, error, out);
}
DRIVER_API CUresult cuGetErrorString(CUresult error, const char** out) {
  return tell(text_of, error, out);
}
DRIVER_API CUresult cuDriverGetVersion(int* version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

namespace {
CUresult find(const char* symbol, void** function, int version, bool& found);

// The virtual GPU's runtime beside this library, wherever the program has it, answers for a function
// of its own, which it knows without the `_v2` of a symbol; without it the function is refused by name.
template <class... Parameters>
CUresult by_runtime(const char* name, Parameters... parameters) {
  using Search = int (*)(const char*, void**, unsigned, unsigned long long, int*);
  constexpr const char* kSearch = "cudaGetDriverEntryPointByVersion";
  void* search = dlsym(RTLD_DEFAULT, kSearch);
  for (const char* library : {"libcudart.so.13", "libcudart.so.12"})
    if (void* runtime = search ? nullptr : dlopen(library, RTLD_NOW | RTLD_NOLOAD))
      search = dlsym(runtime, kSearch);
  void* function = nullptr;
  if (search) {
    int status = 0;
    std::string known = name;
    if (known.ends_with("_v2")) known.resize(known.size() - 3);
    reinterpret_cast<Search>(search)(known.c_str(), &function, CUDA_VERSION, 0, &status);
  }
  if (function) return reinterpret_cast<CUresult (*)(Parameters...)>(function)(parameters...);
  static std::atomic_flag said = {};
  return static_cast<CUresult>(refuse(name, said));
}
}  // namespace

DRIVER_API CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t) {
  bool found = false;
  return find(symbol, function, version, found);
}
DRIVER_API CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                        cuuint64_t, CUdriverProcAddressQueryResult* status) {
  bool found = false;
  const CUresult error = find(symbol, function, version, found);
  if (status) *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return error;
}

DRIVER_API CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  return by_runtime("cuTensorMapEncodeTiled", map, type, rank, address, sizes, strides, box,
                    element_strides, interleave, swizzle, promotion, fill);
}
DRIVER_API CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower, const int* upper,
    cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* element_strides,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
    CUtensorMapFloatOOBfill fill) {
  return by_runtime("cuTensorMapEncodeIm2col", map, type, rank, address, sizes, strides, lower,
                    upper, channels, pixels, element_strides, interleave, swizzle, promotion, fill);
}
// (What cuda.h calls cuMemsetD8 has another symbol; the runtime answers to the name without it.)
#undef cuMemsetD8
#undef cuMemsetD16
#undef cuMemsetD32
DRIVER_API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return by_runtime("cuMemsetD8_v2", to, value, count);
}
DRIVER_API CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return by_runtime("cuMemsetD16_v2", to, value, count);
}
DRIVER_API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return by_runtime("cuMemsetD32_v2", to, value, count);
}
DRIVER_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                    CUstream stream) {
  return by_runtime("cuMemsetD8Async", to, value, count, stream);
}
DRIVER_API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                                     CUstream stream) {
  return by_runtime("cuMemsetD16Async", to, value, count, stream);
}
DRIVER_API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                     CUstream stream) {
  return by_runtime("cuMemsetD32Async", to, value, count, stream);
}
DRIVER_API CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  return by_runtime("cuTensorMapReplaceAddress", map, address);
}

// driver_names.inc: DRIVER_OWN(name) for the functions above, DRIVER_REFUSED(name) for all others
// of exports.txt, in the order of their names. (cuda.h declares some of these with parameters: here
// they have other names, and the linker's are those.)
#define DRIVER_OWN(name)
#define DRIVER_REFUSED(name)                  \
  DRIVER_API int refused_##name() asm(#name); \
  DRIVER_API int refused_##name() {           \
    static std::atomic_flag said = {};        \
    return refuse(#name, said);               \
  }
#include "driver_names.inc"
#undef DRIVER_OWN
#undef DRIVER_REFUSED

namespace {

struct Entry {
  const char* name;
  void* function;
};
const Entry kFunctions[] = {
#define DRIVER_OWN(name) {#name, reinterpret_cast<void*>(&name)},
#define DRIVER_REFUSED(name) {#name, reinterpret_cast<void*>(&refused_##name)},
#include "driver_names.inc"
#undef DRIVER_OWN
#undef DRIVER_REFUSED
};

CUresult find(const char* symbol, void** function, int version, bool& found) {
  if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
  // CUDA 12 has given this one another parameter, without another name for who asks.
  const bool itself = std::strcmp(symbol, "cuGetProcAddress") == 0;
  if (itself && version >= 12000) symbol = "cuGetProcAddress_v2";
  const auto entry = std::lower_bound(
      std::begin(kFunctions), std::end(kFunctions), symbol,
      [](const Entry& e, const char* name) { return std::strcmp(e.name, name) < 0; });
  found = entry != std::end(kFunctions) && std::strcmp(entry->name, symbol) == 0;
  *function = found ? entry->function : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace
