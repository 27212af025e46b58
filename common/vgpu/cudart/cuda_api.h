// The CUDA runtime's own declarations, made visible outside the library: all else is hidden.
#pragma once
#include <cstdlib>

// Declares the variants for the per-thread default stream (..._ptds, ..._ptsz) beside the others.
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

// The functions here are the implementation, the deprecated ones too.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define VGPU_API extern "C" __attribute__((visibility("default")))
