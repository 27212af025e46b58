#include "paths.h"

#include <filesystem>

namespace vgpu {

std::string normal_path(const std::string& path) {
  if (path.find("/.") == path.npos && path.rfind("./", 0) != 0) return path;
  const std::string normal = std::filesystem::path(path).lexically_normal().string();
  std::error_code error;
  const bool linked =
      std::filesystem::exists(path, error) && !std::filesystem::equivalent(path, normal, error);
  return linked ? path : normal;
}

}  // namespace vgpu
