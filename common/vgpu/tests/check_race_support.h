// What the tests of the race check share.
#pragma once
#include "check_support.h"

namespace vgpu::test {

// What the race check finds in a kernel's body.
inline Texts races(const std::string& body, Dim3 block = {64, 1, 1}, Dim3 grid = {1, 1, 1}) {
  return Checked(race_only()).run(body, block, grid);
}
// Does one of the findings hold the part? If none does, the test fails and shows them.
inline bool contains(const Texts& findings, const std::string& part) {
  for (const std::string& f : findings)
    if (f.find(part) != std::string::npos) return true;
  INFO(doctest::StringMaker<Texts>::convert(findings));
  CHECK(part == "not found");
  return false;
}

}  // namespace vgpu::test
