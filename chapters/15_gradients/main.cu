// Chapter 15: the gradients of attention, in four steps, and with --deformable as the first flag those of
// deformable attention, compared with the CPU reference.
#include <cstring>

#include "deformable/program.h"
#include "host/problem.h"
#include "kernels.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--deformable") == 0) return deformable_main(argc, argv);
  return lab::gradients_main(argc, argv, "15_gradients",
                             "Chapter 15: the gradients of attention, from P and dS in memory to "
                             "tensor cores and\nthe same bits twice.",
                             gradients::steps(), gradients::forward_pass);
}
