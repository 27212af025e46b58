// Files and the environment for tests of common/vgpu/time.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "toolkit.h"

namespace vgpu_tests {

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  REQUIRE(file.good());
}

// A variable of the environment has another value while this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// An empty folder that goes away.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = temporary("time-XXXXXX");
    REQUIRE(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The cache on disk is an empty one, and ptxas that beside the test's nvcc.
struct TemporaryCache {
  TemporaryFolder folder;
  Variable cache{"VGPU_CACHE_DIR", folder.path() + "/cache"};
  Variable ptxas{"VGPU_PTXAS", ptxas_of_toolkit()};

  static std::string ptxas_of_toolkit() {
    const std::string nvcc = environment("NVCC", "");
    if (nvcc.find('/') == nvcc.npos) return environment("VGPU_PTXAS", "");
    return std::filesystem::canonical(nvcc).parent_path().string() + "/ptxas";
  }
};

}  // namespace vgpu_tests
