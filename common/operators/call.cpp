#include "call.h"

#include <stdexcept>

// There where the virtual GPU is a part of this library.
extern "C" int vgpuPresent(void) __attribute__((weak, visibility("hidden")));

namespace operators {
namespace {

thread_local std::string last_message;

const char* name_of(int type) {
  switch (type) {
    case VISION_FLOAT16:
      return "float16";
    case VISION_FLOAT32:
      return "float32";
    case VISION_FLOAT64:
      return "float64";
    case VISION_BFLOAT16:
      return "bfloat16";
    case VISION_INT32:
      return "int32";
    case VISION_INT64:
      return "int64";
    default:
      return "another type";
  }
}
int64_t bytes_of(int type) { return type == VISION_FLOAT16 ? 2 : 4; }

// "[2, 3, 17, 64]"
std::string text_of(const int64_t* numbers, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}
// "[batch 2, heads, tokens, 64]": what a tensor must be like
std::string text_of(const Sizes& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i ? ", " : "") + std::string(sizes[i].name);
    if (sizes[i].must_be >= 0) text += " " + std::to_string(sizes[i].must_be);
  }
  return text + "]";
}

}  // namespace

Call::Call(const char* function) : function_(function) {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = 0, cudaGetLastError();
}
Call::~Call() {
  if (device_ >= 0 && device_ != before_) cudaSetDevice(before_);
}

void Call::refuse(const std::string& why) const {
  throw std::invalid_argument(function_ + ": " + why);
}

void Call::check_dimensions(const char* name, const vision_tensor* tensor,
                            const Sizes& sizes) const {
  if (!tensor) refuse(std::string(name) + " is missing: a tensor " + text_of(sizes) + " is needed");
  const std::string is = std::string(name) + " has ";
  if (tensor->dimensions < 0 || tensor->dimensions > VISION_MAX_DIMENSIONS)
    refuse(is + std::to_string(tensor->dimensions) + " dimensions, must be " + text_of(sizes));
  if (tensor->dimensions != int(sizes.size()))
    refuse(is + "shape " + text_of(tensor->shape, tensor->dimensions) + ", must be " +
           text_of(sizes));
}

int Call::size(const char* name, const vision_tensor* tensor, const Sizes& sizes, int dimension) {
  check_dimensions(name, tensor, sizes);
  const int64_t size = tensor->shape[dimension];
  if (size < 1 || size > INT32_MAX)
    refuse(std::string(name) + " has shape " + text_of(tensor->shape, tensor->dimensions) + ": " +
           sizes[dimension].name + " must be 1 to 2147483647");
  return int(size);
}

vision_type Call::float_type(const char* name, const vision_tensor* tensor) {
  if (!tensor) refuse(std::string(name) + " is missing");
  if (tensor->type != VISION_FLOAT16 && tensor->type != VISION_FLOAT32)
    refuse(std::string(name) + " has type " + name_of(tensor->type) +
           ", must be float16 or float32");
  return vision_type(tensor->type);
}

// The device that the array lies on is the same for all, and the current one.
void Call::check_place(const char* name, const vision_tensor* tensor) {
  cudaPointerAttributes place{};
  if (cudaPointerGetAttributes(&place, tensor->data) != cudaSuccess) {
    const cudaError_t error = cudaGetLastError();
    throw std::runtime_error(function_ + ": " + name + ": " + cudaGetErrorString(error));
  }
  if (place.type != cudaMemoryTypeDevice && place.type != cudaMemoryTypeManaged)
    refuse(std::string(name) + " lies in the host's memory, must lie on the device");
  if (device_ < 0) {
    device_ = place.device;
    first_ = name;
    require(cudaSetDevice(device_), "choosing the device of the arrays");
  }
  if (place.device != device_)
    refuse(std::string(name) + " lies on device " + std::to_string(place.device) +
           ", must lie on device " + std::to_string(device_) + " as " + first_ + " does");
}

void* Call::check(const char* name, const vision_tensor* tensor, vision_type type,
                  const Sizes& sizes, int alignment, bool written) {
  check_dimensions(name, tensor, sizes);
  const std::string is = std::string(name) + " has ",
                    shape = text_of(tensor->shape, tensor->dimensions);
  if (tensor->type != type)
    refuse(is + "type " + name_of(tensor->type) + ", must be " + name_of(type));
  int64_t elements = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = tensor->shape[i];
    if (sizes[i].must_be >= 0 ? size != sizes[i].must_be : size < 1)
      refuse(is + "shape " + shape + ", must be " + text_of(sizes) +
             (sizes[i].must_be < 0 ? ", each at least 1" : ""));
    if (size > INT64_MAX / 8 / elements)
      refuse(is + "shape " + shape + ": more elements than memory has");
    elements *= size;
  }
  int64_t contiguous[VISION_MAX_DIMENSIONS], stride = 1;
  bool is_contiguous = true;
  for (int i = tensor->dimensions - 1; i >= 0; --i) {
    contiguous[i] = stride;
    is_contiguous = is_contiguous && (tensor->shape[i] == 1 || tensor->strides[i] == stride);
    stride *= tensor->shape[i];
  }
  if (!is_contiguous)
    refuse(is + "strides " + text_of(tensor->strides, tensor->dimensions) +
           ", must be contiguous: " + text_of(contiguous, tensor->dimensions));
  if (!tensor->data) refuse(std::string(name) + " is a null pointer");
  const uintptr_t begin = reinterpret_cast<uintptr_t>(tensor->data);
  if (!alignment) alignment = int(bytes_of(type));
  if (begin % alignment != 0)
    refuse(std::string(name) + " starts " + std::to_string(begin % alignment) +
           " bytes behind a multiple of " + std::to_string(alignment) + ", must start at one");
  check_place(name, tensor);
  const Range own{name, begin, begin + uintptr_t(elements * bytes_of(type)), written};
  for (const Range& other : ranges_)
    if ((own.written || other.written) && own.begin < other.end && other.begin < own.end)
      refuse((own.written ? own.name + " overlaps " + other.name
                          : other.name + " overlaps " + own.name) +
             ", must be memory of its own, since it is written");
  ranges_.push_back(own);
  return tensor->data;
}

Scratch::Scratch(int64_t bytes, cudaStream_t stream) : stream_(stream) {
  const cudaError_t error = cudaMallocAsync(&address_, size_t(bytes), stream);
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error("scratch memory of " + std::to_string(bytes) +
                             " bytes: " + cudaGetErrorString(error));
  }
}
Scratch::~Scratch() { cudaFreeAsync(address_, stream_); }

int guarded(const std::function<void()>& body) {
  try {
    body();
    return VISION_OK;
  } catch (const std::invalid_argument& error) {
    last_message = error.what();
    return VISION_BAD_ARGUMENT;
  } catch (const std::exception& error) {
    last_message = error.what();
  } catch (...) {
    last_message = "an error without words";
  }
  return VISION_DEVICE_ERROR;
}

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace operators

int vision_interface(void) { return VISION_INTERFACE; }
const char* vision_last_message(void) { return operators::last_message.c_str(); }

const char* vision_device(void) {
  static thread_local std::string text;
  const int status = operators::guarded([] {
    int device = 0;
    cudaDeviceProp properties;
    operators::require(cudaGetDevice(&device), "the current device");
    operators::require(cudaGetDeviceProperties(&properties, device), "the device's properties");
    text = (vgpuPresent ? "virtual " : "") + std::string(properties.name);
  });
  return status == VISION_OK ? text.c_str() : nullptr;
}

int vision_allocate(int64_t bytes, void** address) {
  return operators::guarded([&] {
    if (bytes < 0 || !address)
      throw std::invalid_argument("allocate: " + std::to_string(bytes) +
                                  " bytes: must be at least 0, and address not null");
    *address = nullptr;
    operators::require(cudaMalloc(address, size_t(bytes)),
                       ("allocating " + std::to_string(bytes) + " bytes on the device").c_str());
  });
}
int vision_free(void* address) {
  return operators::guarded(
      [&] { operators::require(cudaFree(address), "freeing memory of the device"); });
}
int vision_copy(void* to, const void* from, int64_t bytes, void* stream) {
  return operators::guarded([&] {
    const auto on = static_cast<cudaStream_t>(stream);
    if (bytes < 0)
      throw std::invalid_argument("copy: " + std::to_string(bytes) + " bytes, must be at least 0");
    operators::require(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, on), "a copy");
    operators::require(cudaStreamSynchronize(on), "waiting for a copy");
  });
}
int vision_synchronize(void* stream) {
  return operators::guarded([&] {
    operators::require(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),
                       "waiting for the device");
  });
}
