// A device that refuses cooperative launches of which it said that they fit, for tests of what comes then.
#pragma once

namespace fused_conv_norm {

// A library to be preloaded: cooperative launches as a device answers them that holds fewer blocks than
// it said.
inline const char kFewerBlocks[] = R"(
#include <dlfcn.h>

struct Size { unsigned x, y, z; };
extern "C" int cudaLaunchCooperativeKernel(const void* kernel, Size grid, Size block, void** args,
                                           unsigned long bytes, void* stream) {
  static const auto next = reinterpret_cast<decltype(&cudaLaunchCooperativeKernel)>(
      dlsym(RTLD_NEXT, "cudaLaunchCooperativeKernel"));
  grid.x *= 1000;
  return next(kernel, grid, block, args, bytes, stream);
}
)";

}  // namespace fused_conv_norm
