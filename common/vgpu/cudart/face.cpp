// The CUDA runtime's error codes, and its structs as those of the services.
#include "face.h"

cudaError_t vgpu::runtime::Translation<cudaError_t>::of(Status status) {
  switch (status.code) {
    case Status::success:
      return cudaSuccess;
    case Status::invalid_value:
      return cudaErrorInvalidValue;
    case Status::out_of_memory:
      return cudaErrorMemoryAllocation;
    case Status::not_initialized:
      return cudaErrorInitializationError;
    case Status::invalid_configuration:
      return cudaErrorInvalidConfiguration;
    case Status::invalid_pitch:
      return cudaErrorInvalidPitchValue;
    case Status::invalid_symbol:
      return cudaErrorInvalidSymbol;
    case Status::invalid_copy_direction:
      return cudaErrorInvalidMemcpyDirection;
    case Status::invalid_device_function:
      return cudaErrorInvalidDeviceFunction;
    case Status::no_device:
      return cudaErrorNoDevice;
    case Status::no_kernel_image:
      return cudaErrorNoKernelImageForDevice;
    case Status::invalid_kernel_image:
      return cudaErrorInvalidKernelImage;
    case Status::invalid_ptx:
      return cudaErrorInvalidPtx;
    case Status::invalid_handle:
      return cudaErrorInvalidResourceHandle;
    case Status::not_permitted:
      return cudaErrorNotPermitted;
    case Status::not_supported:
      return cudaErrorNotSupported;
    case Status::illegal_address:
      return cudaErrorIllegalAddress;
    case Status::launch_out_of_resources:
      return cudaErrorLaunchOutOfResources;
    case Status::launch_timeout:
      return cudaErrorLaunchTimeout;
    case Status::cooperative_launch_too_large:
      return cudaErrorCooperativeLaunchTooLarge;
    case Status::invalid_cluster_size:
      return cudaErrorInvalidClusterSize;
    case Status::device_assert:
      return cudaErrorAssert;
    case Status::illegal_instruction:
      return cudaErrorIllegalInstruction;
    case Status::misaligned_address:
      return cudaErrorMisalignedAddress;
    case Status::invalid_address_space:
      return cudaErrorInvalidAddressSpace;
    case Status::launch_failure:
      return cudaErrorLaunchFailure;
    case Status::capture_unsupported:
      return cudaErrorStreamCaptureUnsupported;
    case Status::capture_invalidated:
      return cudaErrorStreamCaptureInvalidated;
    case Status::capture_merge:
      return cudaErrorStreamCaptureMerge;
    case Status::capture_isolation:
      return cudaErrorStreamCaptureIsolation;
    case Status::capture_implicit:
      return cudaErrorStreamCaptureImplicit;
    case Status::captured_event:
      return cudaErrorCapturedEvent;
    case Status::unknown:
      return cudaErrorUnknown;
    case Status::count_:
      break;
  }
  return cudaErrorUnknown;
}

namespace vgpu::cudart {

Error& last_error() {
  thread_local Error error = cudaSuccess;
  return error;
}

int not_supported() { return remember(cudaErrorNotSupported); }

const char* error_name(int code) {
  switch (code) {
#define ERROR_TEXT(number, name, text) \
  case number:                         \
    return name;
#include "errors.inc"
#undef ERROR_TEXT
  }
  return "unrecognized error code";
}

const char* error_text(int code) {
  switch (code) {
#define ERROR_TEXT(number, name, text) \
  case number:                         \
    return text;
#include "errors.inc"
#undef ERROR_TEXT
  }
  return "unrecognized error code";
}

static_assert(static_cast<int>(cudaMemcpyHostToHost) == kHostToHost &&
              static_cast<int>(cudaMemcpyDefault) == kByPointer);
static_assert(cudaStreamNonBlocking == Stream::kNonBlocking);

namespace {
CopyEnd end_of(const cudaPitchedPtr& memory, const cudaPos& position, cudaArray_t array) {
  return {memory.ptr, memory.pitch, memory.xsize, memory.ysize, position.x,
          position.y, position.z,   array,        nullptr};
}
}  // namespace

CopyOp copy_of(const cudaMemcpy3DParms& p) {
  return {end_of(p.dstPtr, p.dstPos, p.dstArray),
          end_of(p.srcPtr, p.srcPos, p.srcArray),
          p.extent.width,
          p.extent.height,
          p.extent.depth,
          number_of(p.kind)};
}

cudaMemcpy3DParms params_of(const CopyOp& copy) {
  cudaMemcpy3DParms p{};
  const auto set = [](const CopyEnd& end, cudaPitchedPtr& memory, cudaPos& position,
                      cudaArray_t& array) {
    memory = {end.pointer, end.pitch, end.row_bytes, end.rows};
    position = {end.x, end.y, end.z};
    array = static_cast<cudaArray_t>(end.array);
  };
  set(copy.dst, p.dstPtr, p.dstPos, p.dstArray);
  set(copy.src, p.srcPtr, p.srcPos, p.srcArray);
  p.extent = {copy.width, copy.height, copy.depth};
  std::memcpy(&p.kind, &copy.kind, sizeof copy.kind);
  return p;
}

FillOp fill_of(const cudaMemsetParams& p) {
  return {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
}
cudaMemsetParams params_of(const FillOp& fill) {
  return {fill.pointer, fill.pitch, fill.value, fill.element_bytes, fill.width, fill.height};
}

static_assert(sizeof(cudaLaunchAttributeValue) == sizeof(Hint));
cudaLaunchAttributeValue hint(const std::map<int, Hint>& hints, int id) {
  cudaLaunchAttributeValue value{};
  if (const auto it = hints.find(id); it != hints.end())
    std::memcpy(&value, it->second.data(), sizeof value);
  return value;
}
void set_hint(std::map<int, Hint>& hints, int id, const cudaLaunchAttributeValue& value) {
  std::memcpy(hints[id].data(), &value, sizeof value);
}

}  // namespace vgpu::cudart
