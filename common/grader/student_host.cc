// The program that a student's host code runs in. It has no GPU: each CUDA call is a request to the
// grader's process, see grader/wire.h. It holds nothing that a student could gain by changing it.
//
//   student_host LIBRARY ENTRY       with the socket as file 3
//
// The functions below are all of CUDA that an exercise may call: the library of a file that calls
// another one cannot be loaded, and the message names that function.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "wire.h"

using namespace lab::grader::wire;

#define STUDENT_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSocket = 3;

struct Library {
  const void* container = nullptr;
  uint64_t number = ~0ull;  // none: not sent yet
};
struct Kernel {
  Library* library = nullptr;
  std::string name;
  uint64_t number = ~0ull;
  std::vector<std::pair<uint64_t, uint64_t>> parameters;  // offset, bytes
};
struct Variable {
  Library* library;
  std::string name;
};
struct State {
  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Library>> libraries;
  std::map<const void*, Kernel> kernels;  // by the host's function
  std::map<const void*, Variable> variables;
};
// Made when it is first needed: before main(), by the library's constructors.
State& state() {
  static State* const all = new State;
  return *all;
}

// The error that the call gave, and what it answered.
cudaError_t ask(Op op, const Writer& request, Reader& answer) {
  const std::lock_guard lock(state().mutex);
  try {
    uint32_t error = 0;
    send_message(kSocket, uint32_t(op), request);
    if (!receive_message(kSocket, error, answer)) _exit(1);  // the grader is gone
    return cudaError_t(error);
  } catch (const Broken&) {
    _exit(1);
  }
}
cudaError_t ask(Op op, const Writer& request) {
  Reader answer;
  return ask(op, request, answer);
}
template <class T, class... Values>
cudaError_t ask_for(T* result, Op op, const Values&... values) {
  if (!result) return cudaErrorInvalidValue;
  Writer request;
  (request.put(values), ...);
  Reader answer;
  const cudaError_t error = ask(op, request, answer);
  if (error == cudaSuccess) *result = answer.get<T>();
  return error;
}

uint64_t as_number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

cudaError_t load(Library& library) {
  if (library.number != ~0ull) return cudaSuccess;
  // Behind the magic number, version and size of this header stand the bytes that follow it.
  uint16_t header = 0;
  uint64_t bytes = 0;
  std::memcpy(&header, static_cast<const char*>(library.container) + 6, sizeof header);
  std::memcpy(&bytes, static_cast<const char*>(library.container) + 8, sizeof bytes);
  Reader answer;
  const cudaError_t error =
      ask(Op::load, Writer().put(library.container, size_t(header + bytes)), answer);
  if (error == cudaSuccess) library.number = answer.get<uint64_t>();
  return error;
}

cudaError_t resolve(Kernel& kernel) {
  if (kernel.number != ~0ull) return cudaSuccess;
  if (const cudaError_t error = load(*kernel.library); error != cudaSuccess) return error;
  Reader answer;
  const cudaError_t error =
      ask(Op::kernel, Writer().put(kernel.library->number).put(kernel.name), answer);
  if (error != cudaSuccess) return error;
  kernel.number = answer.get<uint64_t>();
  while (answer.left() > 0) {
    const uint64_t offset = answer.get<uint64_t>();
    kernel.parameters.emplace_back(offset, answer.get<uint64_t>());
  }
  return cudaSuccess;
}

// By the host's function, or by what __cudaGetKernel made of it.
Kernel* find(const void* function) {
  const auto it = state().kernels.find(function);
  if (it != state().kernels.end()) return &it->second;
  for (auto& [host, kernel] : state().kernels)
    if (&kernel == function) return &kernel;
  return nullptr;
}
// The kernel's number, or an error.
cudaError_t number_of_kernel(const void* function, uint64_t& number) {
  Kernel* const kernel = find(function);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  const cudaError_t error = resolve(*kernel);
  number = kernel->number;
  return error;
}

cudaError_t launch(const void* function, Launch what, void** arguments) {
  if (const cudaError_t error = number_of_kernel(function, what.kernel); error != cudaSuccess)
    return error;
  Writer request;
  request.put(what);
  const auto& parameters = find(function)->parameters;
  if (!parameters.empty() && !arguments) return cudaErrorInvalidValue;
  for (size_t i = 0; i < parameters.size(); ++i)
    request.put(arguments[i], size_t(parameters[i].second));
  return ask(Op::launch, request);
}
Launch launch_shape(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, bool cooperative) {
  return {
      0,         as_number(stream), shared, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
      {0, 0, 0}, cooperative};
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t upload(uint64_t to, const void* from, size_t bytes) {
  if (bytes > kMostBytes / 2) return cudaErrorInvalidValue;
  return ask(Op::upload, Writer().put(to).put(from, bytes));
}
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  // Device addresses lie where the host has nothing mapped; with cudaMemcpyDefault the grader looks.
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return upload(as_number(to), from, bytes);
    case cudaMemcpyDeviceToDevice:
      return ask(Op::copy, Writer().put(as_number(to)).put(as_number(from)).put(uint64_t{bytes}));
    case cudaMemcpyDeviceToHost:
      return ask(Op::download, {});
    default:
      return cudaErrorInvalidMemcpyDirection;
  }
}
cudaError_t find_symbol(const void* symbol, uint64_t& address, uint64_t& bytes) {
  const auto it = state().variables.find(symbol);
  if (it == state().variables.end()) return cudaErrorInvalidSymbol;
  if (const cudaError_t error = load(*it->second.library); error != cudaSuccess) return error;
  Reader answer;
  const cudaError_t error =
      ask(Op::variable, Writer().put(it->second.library->number).put(it->second.name), answer);
  if (error != cudaSuccess) return error;
  address = answer.get<uint64_t>();
  bytes = answer.get<uint64_t>();
  return cudaSuccess;
}
cudaError_t copy_to_symbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                           cudaMemcpyKind kind) {
  uint64_t address = 0, size = 0;
  if (const cudaError_t error = find_symbol(symbol, address, size); error != cudaSuccess)
    return error;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  return copy(reinterpret_cast<void*>(address + offset), from, bytes, kind);
}

}  // namespace

// ---- What nvcc's code calls ---------------------------------------------------------------------

STUDENT_API void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    uint32_t magic, version;
    const void* container;
  };
  auto library = std::make_unique<Library>();
  library->container = static_cast<const Wrapper*>(wrapper)->container;
  const std::lock_guard lock(state().mutex);
  state().libraries.push_back(std::move(library));
  return reinterpret_cast<void**>(state().libraries.back().get());
}
STUDENT_API void __cudaRegisterFatBinaryEnd(void**) {}
STUDENT_API void __cudaUnregisterFatBinary(void**) {}
STUDENT_API void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name,
                                        int, uint3*, uint3*, dim3*, dim3*, int*) {
  Kernel kernel;
  kernel.library = reinterpret_cast<Library*>(handle);
  kernel.name = name;
  state().kernels.insert({host, std::move(kernel)});
}
STUDENT_API void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t,
                                   int, int) {
  state().variables.insert({host, {reinterpret_cast<Library*>(handle), name}});
}
STUDENT_API char __cudaInitModule(void**) { return 1; }
STUDENT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                 struct CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
STUDENT_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                   void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}
STUDENT_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  Kernel* const found = find(function);
  if (!found) return cudaErrorInvalidDeviceFunction;
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}
STUDENT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                           void** arguments, size_t shared, cudaStream_t stream) {
  return launch(kernel, launch_shape(grid, block, shared, stream, false), arguments);
}

// ---- Launches -----------------------------------------------------------------------------------

STUDENT_API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                         void** arguments, size_t shared, cudaStream_t stream) {
  return launch(function, launch_shape(grid, block, shared, stream, false), arguments);
}
STUDENT_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                    void** arguments, size_t shared,
                                                    cudaStream_t stream) {
  return launch(function, launch_shape(grid, block, shared, stream, true), arguments);
}
STUDENT_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                            void** arguments) {
  if (!config) return cudaErrorInvalidValue;
  Launch what = launch_shape(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                             config->stream, false);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeCooperative) {
      what.cooperative = attribute.val.cooperative != 0;
    } else if (attribute.id == cudaLaunchAttributeClusterDimension) {
      what.cluster[0] = attribute.val.clusterDim.x;
      what.cluster[1] = attribute.val.clusterDim.y;
      what.cluster[2] = attribute.val.clusterDim.z;
    } else {
      return cudaErrorNotSupported;
    }
  }
  return launch(function, what, arguments);
}
STUDENT_API cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute,
                                             int value) {
  uint64_t kernel = 0;
  if (const cudaError_t error = number_of_kernel(function, kernel); error != cudaSuccess)
    return error;
  return ask(Op::set_attribute, Writer().put(kernel).put(attribute).put(value));
}
STUDENT_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                              const void* function) {
  uint64_t kernel = 0;
  if (const cudaError_t error = number_of_kernel(function, kernel); error != cudaSuccess)
    return error;
  return ask_for(attributes, Op::get_attributes, kernel);
}
STUDENT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t shared, unsigned flags) {
  uint64_t kernel = 0;
  if (const cudaError_t error = number_of_kernel(function, kernel); error != cudaSuccess)
    return error;
  return ask_for(blocks, Op::occupancy, kernel, threads, uint64_t{shared}, flags);
}
STUDENT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                      const void* function,
                                                                      int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}

// ---- Memory -------------------------------------------------------------------------------------

STUDENT_API cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return ask_for(pointer, Op::allocate, uint64_t{bytes}, uint64_t{0}, uint32_t{0});
}
STUDENT_API cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  return ask_for(pointer, Op::allocate, uint64_t{bytes}, as_number(stream), uint32_t{1});
}
STUDENT_API cudaError_t cudaFree(void* pointer) {
  return ask(Op::release, Writer().put(as_number(pointer)).put(uint64_t{0}).put(uint32_t{0}));
}
STUDENT_API cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return ask(Op::release, Writer().put(as_number(pointer)).put(as_number(stream)).put(uint32_t{1}));
}
STUDENT_API cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t) {
  return ask(Op::fill, Writer().put(as_number(pointer)).put(value).put(uint64_t{bytes}));
}
STUDENT_API cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return cudaMemsetAsync(pointer, value, bytes, nullptr);
}
STUDENT_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                        cudaMemcpyKind kind, cudaStream_t) {
  return copy(to, from, bytes, kind);
}
STUDENT_API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy(to, from, bytes, kind);
}
STUDENT_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
  return copy_to_symbol(symbol, from, bytes, offset, kind);
}
STUDENT_API cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                                size_t offset, cudaMemcpyKind kind, cudaStream_t) {
  return copy_to_symbol(symbol, from, bytes, offset, kind);
}
STUDENT_API cudaError_t cudaMemcpyFromSymbol(void*, const void*, size_t, size_t, cudaMemcpyKind) {
  return ask(Op::download, {});
}
STUDENT_API cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  uint64_t address = 0, bytes = 0;
  const cudaError_t error = find_symbol(symbol, address, bytes);
  if (error == cudaSuccess) *pointer = reinterpret_cast<void*>(address);
  return error;
}

// ---- Tensor maps --------------------------------------------------------------------------------

// As cuTensorMapEncodeTiled: errors of the driver and of the runtime share their numbers.
static cudaError_t encode_tiled(void* to, int type, uint32_t rank, void* address,
                                const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                                const uint32_t* steps, int interleave, int swizzle, int promotion,
                                int fill) {
  if (!to || as_number(to) % 64 || !sizes || !box || !steps || (rank > 1 && !strides) || rank < 1 ||
      rank > TensorMap::kMostRank)
    return cudaErrorInvalidValue;
  TensorMap map{type, interleave, swizzle, promotion, fill, rank, as_number(address),
                {},   {},         {},      {}};
  std::memcpy(map.sizes, sizes, rank * sizeof *sizes);
  if (rank > 1) std::memcpy(map.strides, strides, (rank - 1) * sizeof *strides);
  std::memcpy(map.box, box, rank * sizeof *box);
  std::memcpy(map.steps, steps, rank * sizeof *steps);
  Reader answer;
  const cudaError_t error = ask(Op::tensor_map, Writer().put(map), answer);
  if (error == cudaSuccess) std::memcpy(to, answer.take(TensorMap::kBytes), TensorMap::kBytes);
  return error;
}

STUDENT_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                         unsigned version, unsigned long long,
                                                         cudaDriverEntryPointQueryResult* result) {
  if (!symbol || !function) return cudaErrorInvalidValue;
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known && version >= 12000 ? reinterpret_cast<void*>(&encode_tiled) : nullptr;
  if (result)
    *result = *function ? cudaDriverEntryPointSuccess
              : known   ? cudaDriverEntryPointVersionNotSufficent
                        : cudaDriverEntryPointSymbolNotFound;
  return known ? cudaSuccess : cudaErrorNotSupported;
}
#if CUDART_VERSION < 13000
STUDENT_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                                unsigned long long flags,
                                                cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, CUDART_VERSION, flags, result);
}
#endif

// ---- The device, its streams and errors ---------------------------------------------------------

STUDENT_API cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
STUDENT_API cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
STUDENT_API cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
STUDENT_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return ask_for(value, Op::attribute, attribute);
}
STUDENT_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  return ask_for(properties, Op::properties);
}
STUDENT_API cudaError_t cudaDeviceSynchronize() { return ask(Op::synchronize, {}); }
STUDENT_API cudaError_t cudaStreamSynchronize(cudaStream_t) { return ask(Op::synchronize, {}); }
STUDENT_API cudaError_t cudaEventSynchronize(cudaEvent_t) { return ask(Op::synchronize, {}); }
STUDENT_API cudaError_t cudaGetLastError() {
  return ask(Op::last_error, Writer().put(uint32_t{0}));
}
STUDENT_API cudaError_t cudaPeekAtLastError() {
  return ask(Op::last_error, Writer().put(uint32_t{1}));
}
STUDENT_API const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error, which the grader's report names";
}
STUDENT_API const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
STUDENT_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return ask_for(stream, Op::stream_create, flags);
}
STUDENT_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}
STUDENT_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return ask(Op::stream_destroy, Writer().put(as_number(stream)));
}
STUDENT_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return ask_for(event, Op::event_create, flags);
}
STUDENT_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
STUDENT_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return ask(Op::event_record, Writer().put(as_number(event)).put(as_number(stream)));
}
STUDENT_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return ask(Op::event_wait, Writer().put(as_number(stream)).put(as_number(event)));
}
STUDENT_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return ask(Op::event_destroy, Writer().put(as_number(event)));
}

// ---- The call -----------------------------------------------------------------------------------

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);  // a crash must not take away what was printed
  // First comes what the function is called with: of each argument its size and its bytes.
  uint32_t op = 0;
  Reader arguments;
  if (!receive_message(kSocket, op, arguments)) return 1;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  void* const entry = library ? dlsym(library, argv[2]) : nullptr;
  if (!entry) {
    ask(Op::unloadable, Writer().put(std::string(dlerror())));
    return 2;
  }
  std::vector<std::vector<std::max_align_t>> values;
  std::vector<void*> pointers;
  while (arguments.left() > 0) {
    const size_t bytes = size_t(arguments.get<uint64_t>());
    values.emplace_back(bytes / sizeof(std::max_align_t) + 1);
    std::memcpy(values.back().data(), arguments.take(bytes), bytes);
    pointers.push_back(values.back().data());
  }
  const auto tell = [](Op how, const std::string& what) {
    std::fflush(stdout);
    ask(how, Writer().put(what));
  };
  try {
    reinterpret_cast<void (*)(void**)>(entry)(pointers.data());
    tell(Op::returned, "");
  } catch (const std::bad_alloc&) {
    tell(Op::no_memory, "");
  } catch (const std::exception& error) {
    tell(Op::threw, error.what());
  } catch (...) {
    tell(Op::threw, "something that is no std::exception");
  }
  // Destructors of the student's are not called: everything has been said.
  _exit(0);
}
