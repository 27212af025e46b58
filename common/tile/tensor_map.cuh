// The function of CUDA's driver that makes tensor maps. It is asked for when a program runs, so that no
// program is linked with the driver.
#pragma once

#include <cuda.h>  // types alone
#include <cuda_runtime.h>

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
// cuTensorMapEncodeTiled of CUDA's driver API; null where the driver has none.
inline EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess) {
      cudaGetLastError();  // it is not there, and that is all
      found = nullptr;
    }
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}
