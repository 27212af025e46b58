#include "residency.h"

#include <algorithm>

namespace vgpu::time {

double Residency::there(const Touched& array, double l2_bytes) const {
  double since = 0;
  for (auto of = arrays_.rbegin(); of != arrays_.rend(); ++of) {
    since += of->bytes();
    if (since > l2_bytes) return 0;
    if (of->address == array.address) return std::min(array.read, of->bytes());
  }
  return 0;
}

void Residency::touch(const std::vector<Touched>& arrays) {
  for (const Touched& array : arrays) {
    std::erase_if(arrays_, [&](const Touched& of) { return of.address == array.address; });
    arrays_.push_back(array);
  }
  if (constexpr std::size_t kMost = 1000; arrays_.size() > kMost)
    arrays_.erase(arrays_.begin(), arrays_.end() - kMost);
}

}  // namespace vgpu::time
