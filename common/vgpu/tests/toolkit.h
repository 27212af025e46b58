// The toolkit with which tests compile at run time. `make test` says it in the environment,
// whichever toolkit it has found: NVCC, CUDA_LIB (the folder of its libraries) and TEST_TMP (a
// folder for files), all as absolute paths. Without make: nvcc of PATH, the usual folders.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace vgpu_tests {

inline std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

// One word for the shell, blanks or not.
inline std::string word(const std::string& text) { return "'" + text + "'"; }

// The compiler as a word for the shell. It is good in every folder.
inline std::string nvcc() {
  const std::string name = environment("NVCC", "nvcc");
  const bool is_path = name.find('/') != std::string::npos;
  return word(is_path ? std::filesystem::absolute(name).string() : name);
}

inline std::string cuda_libraries() { return environment("CUDA_LIB", "/usr/local/cuda/lib64"); }

// The path of a file in the folder for them, which is there afterwards.
inline std::string temporary(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::absolute(environment("TEST_TMP", "/tmp"));
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

}  // namespace vgpu_tests
