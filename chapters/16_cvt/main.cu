// Chapter 16, CvT: the operations of a Convolutional vision Transformer, forward and backward. The convolutional
// projection, or with --component as the first flag another one.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "dense/program.h"
#include "projection/program.h"

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first != "--component" && first.rfind("--component=", 0) != 0)
    return projection_main(argc, argv);
  const int words = first == "--component" ? 2 : 1;  // that the flag and its value are
  const std::string name = words == 1 ? first.substr(12) : argc > 2 ? argv[2] : "";
  std::vector<char*> rest = {argv[0]};
  for (int i = 1 + words; i < argc; ++i) rest.push_back(argv[i]);
  const int count = int(rest.size());
  rest.push_back(nullptr);
  if (name == "projection") return projection_main(count, rest.data());
  const std::vector<std::string>& dense = dense_components();
  if (std::find(dense.begin(), dense.end(), name) != dense.end())
    return dense_main(name, count, rest.data());
  std::string names = "projection";
  for (const std::string& one : dense) names += ", " + one;
  std::fprintf(stderr, "16_cvt: error: --component '%s': must be one of %s\n", name.c_str(),
               names.c_str());
  return 2;
}
