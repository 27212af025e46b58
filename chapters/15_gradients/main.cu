// Chapter 15: gradients. So far those of deformable attention.
#include "deformable/program.h"

int main(int argc, char** argv) { return deformable_main(argc, argv); }
