// What nvcc's generated host code calls: registration of fat binaries, kernels and variables before
// main, and the launch configuration of <<<...>>>.
#include "face.h"

namespace vgpu::cudart {
namespace {

// Registration must not fail loudly: a program may carry device code that it never uses.
Library* library_of(void** handle) {
  Runtime& runtime = Runtime::get();
  return runtime.find_library(handle);
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
// A stack, since the arguments of a launch may contain launches.
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> stack;
  return stack;
}

void add_variable(void** handle, const void* host, const char* name, std::size_t size,
                  void** managed_pointer) {
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    Library* library = library_of(handle);
    if (library && host && name)
      runtime.variables.insert({host, {library, name, size, managed_pointer}});
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace vgpu::cudart

using namespace vgpu::cudart;

VGPU_API void** __cudaRegisterFatBinary(void* fat_cubin) {
  void** handle = nullptr;
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    auto library = std::make_unique<Library>();
    library->registered = true;
    const auto* wrapper = static_cast<const FatbinWrapper*>(fat_cubin);
    if (!wrapper || wrapper->magic != kWrapperMagic || !wrapper->container) {
      say("__cudaRegisterFatBinary: not a fat binary");
      library->tried = true;
      library->load_error = Status::invalid_kernel_image;
    } else {
      library->container = wrapper->container;
      if (wrapper->version == 2) library->prelinked = wrapper->prelinked;
    }
    handle = reinterpret_cast<void**>(library.get());
    runtime.libraries.push_back(std::move(library));
    return cudaSuccess;
  });
  return handle;
}

VGPU_API void __cudaRegisterFatBinaryEnd(void**) {}

VGPU_API void __cudaUnregisterFatBinary(void** handle) {
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (Library* library = library_of(handle)) runtime.remove_library(*library);
    return cudaSuccess;
  });
}

VGPU_API void __cudaRegisterFunction(void** handle, const char* host_function, char*,
                                     const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    Library* library = library_of(handle);
    // A template instantiated in several files is registered once for each: the first one counts.
    if (library && host_function && name)
      runtime.functions.insert({host_function, runtime.add_kernel(*library, name)});
    return cudaSuccess;
  });
}

VGPU_API void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int,
                                std::size_t size, int, int) {
  add_variable(handle, host, name, size, nullptr);
}

VGPU_API void __cudaRegisterManagedVar(void** handle, void** host_pointer, char*, const char* name,
                                       int, std::size_t size, int, int) {
  add_variable(handle, host_pointer, name, size, host_pointer);
}

VGPU_API void __cudaRegisterHostVar(void** handle, const char* name, char* host, std::size_t size) {
  add_variable(handle, host, name, size, nullptr);
}

VGPU_API void __cudaRegisterUnifiedTable(void**, void*) {}

// Called at the program's first use of a __managed__ variable.
VGPU_API char __cudaInitModule(void** handle) {
  api([&](Runtime&) -> Error {
    Library* library = library_of(handle);
    return library ? Error(load_library(*library)) : cudaErrorInvalidResourceHandle;
  });
  // Whatever became of that: the program now follows its pointers.
  guarded([&] {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (Library* library = library_of(handle); library && !library->module) place_managed(*library);
    return cudaSuccess;
  });
  return 1;
}

VGPU_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                              struct CUstream_st* stream) {
  return guarded([&] {
    configurations().push_back({grid, block, shared, stream});
    return cudaSuccess;
  });
}

VGPU_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                                void* stream) {
  auto& stack = configurations();
  if (stack.empty() || !grid || !block || !shared || !stream)
    return remember(cudaErrorMissingConfiguration);
  const Configuration& top = stack.back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  stack.pop_back();
  return cudaSuccess;
}
