// The functions of the CUDA runtime that do not exist here yet. A program may link with them;
// calling one says its name once and returns cudaErrorNotSupported. Whatever their parameters are,
// the caller cleans up after them, so one signature without parameters serves all.
#include <string>

namespace vgpu::runtime {
void say_once(const std::string& key, const std::string& text);
}

namespace vgpu::cudart {

int not_supported();  // remembers cudaErrorNotSupported as the last error of the thread

namespace {
int refuse(const char* name) {
  runtime::say_once(name, std::string(name) + " is not supported by the virtual GPU");
  return not_supported();
}
}  // namespace

}  // namespace vgpu::cudart

#define VGPU_UNSUPPORTED(name)                                   \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return vgpu::cudart::refuse(#name);                          \
  }
#include "unsupported.inc"
