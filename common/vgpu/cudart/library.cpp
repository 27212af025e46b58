// cudaLibrary*: device code loaded at run time from PTX text or a fat binary, without registration.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "face.h"

namespace vgpu::cudart {
namespace {

// Looks at what `code` begins with. `size` is known for files and 0 for bare pointers, where only
// the data itself says how long it is.
Error recognize(Library& library, const std::byte* code, std::size_t size) {
  const auto begins = [&](const void* magic, std::size_t length) {
    return (size == 0 || size >= length) && std::memcmp(code, magic, length) == 0;
  };
  const bool bare = size == 0;
  std::uint32_t magic = 0;
  if (bare || size >= sizeof magic) std::memcpy(&magic, code, sizeof magic);
  if (magic == kWrapperMagic) {
    if (!bare) return cudaErrorInvalidKernelImage;  // holds an address, means nothing in a file
    FatbinWrapper wrapper;
    std::memcpy(&wrapper, code, sizeof wrapper);
    if (!wrapper.container) return cudaErrorInvalidKernelImage;
    return recognize(library, static_cast<const std::byte*>(wrapper.container), 0);
  }
  if (magic == kContainerMagic) {
    const std::uint64_t length = bare ? container_size({code, 16}) : size;
    library.copy.assign(code, code + length);
    return cudaSuccess;
  }
  if (begins(ELFMAG, SELFMAG)) {
    library.is_elf = true;
    library.copy.assign(code, code + (bare ? std::min(elf_size(code), kMaxImageBytes) : size));
    return cudaSuccess;
  }
  // Text, as far as one can tell: the parser decides.
  const auto* text = reinterpret_cast<const char*>(code);
  const std::size_t length = bare ? std::strlen(text) : strnlen(text, size);
  if (length == 0 || (!bare && length + 1 < size)) return cudaErrorInvalidKernelImage;
  library.is_text = true;
  library.copy.assign(code, code + length);
  return cudaSuccess;
}

Error load(cudaLibrary_t* handle, const std::byte* code, std::size_t size) {
  return api([&](Runtime& runtime) -> Error {
    if (!handle || !code) return cudaErrorInvalidValue;
    auto library = std::make_unique<Library>();
    try {
      if (const Error error = recognize(*library, code, size); error != cudaSuccess) return error;
    } catch (const FatbinError& error) {
      say(error.what());
      return cudaErrorInvalidKernelImage;
    }
    Library& added = *library;
    runtime.libraries.push_back(std::move(library));
    if (const Error error = load_library(added); error != cudaSuccess) {
      runtime.remove_library(added);
      return error;
    }
    for (const auto& [name, function] : added.module->module->functions)
      if (function->entry) runtime.add_kernel(added, name);
    *handle = reinterpret_cast<cudaLibrary_t>(&added);
    return cudaSuccess;
  });
}

// body(library) for one that cudaLibraryLoad* made and that is loaded.
template <class F>
Error with_library(cudaLibrary_t handle, F&& body) {
  return api([&](Runtime& runtime) -> Error {
    Library* library = runtime.find_library(handle);
    if (!library || library->registered) return cudaErrorInvalidResourceHandle;
    if (const Error error = load_library(*library); error != cudaSuccess) return error;
    return body(runtime, *library);
  });
}

Error get_variable(cudaLibrary_t handle, const char* name, void** pointer, std::size_t* bytes,
                   bool managed) {
  return with_library(handle, [&](Runtime& runtime, Library& library) -> Error {
    if (!name || (!pointer && !bytes)) return cudaErrorInvalidValue;
    std::uint64_t address = 0, size = 0;
    if (!library.module->variable(name, address, size)) return cudaErrorSymbolNotFound;
    if (managed) {
      const auto allocation = runtime.memory().find(address);
      if (!allocation || allocation->kind != MemoryKind::managed) return cudaErrorSymbolNotFound;
    }
    if (pointer) *pointer = reinterpret_cast<void*>(address);
    if (bytes) *bytes = size;
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

// The options are about the JIT compiler and change no result.
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**,
                                unsigned int, cudaLibraryOption*, void**, unsigned int) {
  return load(library, static_cast<const std::byte*>(code), 0);
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* library, const char* file, cudaJitOption*,
                                    void**, unsigned int, cudaLibraryOption*, void**,
                                    unsigned int) {
  if (!library || !file) return remember(cudaErrorInvalidValue);
  std::vector<std::byte> bytes;
  const Error error = guarded([&]() -> Error {
    std::FILE* stream = std::fopen(file, "rb");
    if (!stream) return cudaErrorFileNotFound;
    std::byte part[1 << 16];
    std::size_t n = 0;
    while ((n = std::fread(part, 1, sizeof part, stream)) > 0 && bytes.size() <= kMaxImageBytes)
      bytes.insert(bytes.end(), part, part + n);
    const bool failed = std::ferror(stream);
    std::fclose(stream);
    return failed || bytes.empty() || bytes.size() > kMaxImageBytes ? cudaErrorInvalidKernelImage
                                                                    : cudaSuccess;
  });
  if (error != cudaSuccess) return remember(error);
  return load(library, bytes.data(), bytes.size());
}

cudaError_t cudaLibraryUnload(cudaLibrary_t handle) {
  return api([&](Runtime& runtime) -> Error {
    Library* library = runtime.find_library(handle);
    if (!library || library->registered) return cudaErrorInvalidResourceHandle;
    runtime.remove_library(*library);
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t handle, const char* name) {
  return with_library(handle, [&](Runtime&, Library& library) -> Error {
    if (!kernel || !name) return cudaErrorInvalidValue;
    const auto it = library.kernels.find(name);
    if (it == library.kernels.end()) return cudaErrorSymbolNotFound;
    *kernel = reinterpret_cast<cudaKernel_t>(it->second.get());
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetKernelCount(unsigned int* count, cudaLibrary_t handle) {
  return with_library(handle, [&](Runtime&, Library& library) -> Error {
    if (!count) return cudaErrorInvalidValue;
    *count = static_cast<unsigned>(library.kernels.size());
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned int number,
                                        cudaLibrary_t handle) {
  return with_library(handle, [&](Runtime&, Library& library) -> Error {
    if (!kernels) return cudaErrorInvalidValue;
    unsigned i = 0;
    for (const auto& [name, kernel] : library.kernels) {
      if (i == number) break;
      kernels[i++] = reinterpret_cast<cudaKernel_t>(kernel.get());
    }
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetGlobal(void** pointer, std::size_t* bytes, cudaLibrary_t library,
                                 const char* name) {
  return get_variable(library, name, pointer, bytes, false);
}

cudaError_t cudaLibraryGetManaged(void** pointer, std::size_t* bytes, cudaLibrary_t library,
                                  const char* name) {
  return get_variable(library, name, pointer, bytes, true);
}
