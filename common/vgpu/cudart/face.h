// What the functions of the CUDA runtime's interface share: the frame of each, CUDA's error codes for the
// statuses of the services, CUDA's structs as the services' own.
#pragma once
#include "../runtime/operation.h"
#include "cuda_api.h"

namespace vgpu::cudart {

using namespace runtime;
using Error = cudaError_t;

const char* error_name(int code);
const char* error_text(int code);

// The last error of this thread, for cudaGetLastError.
Error& last_error();
// The runtime has two kinds of the driver's functions: those that make tensor maps
// (tensor_map.cpp), and fills of one row (copy.cpp). driver_fill() is null for another name.
void* driver_fill(const std::string& name);
Error driver_entry_point(const char* symbol, void** function, unsigned version,
                         cudaDriverEntryPointQueryResult* status);
int not_supported();  // unsupported.cpp, which must not see the CUDA headers, calls it

inline Error remember(Error error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error() = error;
  return error;
}

// body() returns an Error or a Status; exceptions become errors.
template <class F>
Error guarded(F&& body) noexcept {
  return catching<Error>(body);
}
// Frame of every API function that touches the device: runtime's, and it remembers the last error.
template <class F>
Error api(F&& body, Context context = Context::needed) {
  return remember(framed<Error>(body, context));
}

// The number of an enumerator that the program gave: it may be none of the enumeration's, and then
// reading it as one is undefined.
template <class E>
int number_of(const E& enumerator) {
  static_assert(sizeof(E) == sizeof(int));
  int number;
  std::memcpy(&number, &enumerator, sizeof number);
  return number;
}

inline Dim3 dim3_of(dim3 d) { return {d.x, d.y, d.z}; }
inline dim3 dim3_of(Dim3 d) { return {d.x, d.y, d.z}; }

CopyOp copy_of(const cudaMemcpy3DParms& params);
cudaMemcpy3DParms params_of(const CopyOp& copy);
FillOp fill_of(const cudaMemsetParams& params);
cudaMemsetParams params_of(const FillOp& fill);

// An attribute that is only remembered: all zero when it was never set.
cudaLaunchAttributeValue hint(const std::map<int, Hint>& hints, int id);
void set_hint(std::map<int, Hint>& hints, int id, const cudaLaunchAttributeValue& value);

}  // namespace vgpu::cudart

template <>
struct vgpu::runtime::Translation<cudaError_t> {
  static cudaError_t of(Status status);
};
