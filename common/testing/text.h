// What tests ask of texts and of the environment. Plain declarations; no test framework.
#pragma once

#include <string>

namespace lab::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A variable of the environment; `otherwise` where it is not there or empty.
std::string environment(const char* name, const std::string& otherwise);

// Where tests make their temporary folders: TEST_TMP of the environment, made where it is not there, or /tmp.
std::string test_place();

}  // namespace lab::testing
