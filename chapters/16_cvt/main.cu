// Chapter 16, CvT: a small Convolutional vision Transformer, trained on photos of garments. With --component as the
// first flag one of its operations alone, forward and backward.
#include <cstdio>
#include <string>

#include "program.h"
#include "projection/program.h"

int main(int argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "--component") return cvt::cvt_main(argc, argv);
  const std::string name = argc > 2 ? argv[2] : "";
  if (name != "projection") {
    std::fprintf(stderr, "16_cvt: --component '%s': must be projection\n", name.c_str());
    return 2;
  }
  argv[2] = argv[0];
  return projection_main(argc - 2, argv + 2);
}
