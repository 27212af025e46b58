// Chapter 12, the Vision Transformer: the whole net on a photo, one component after the other.
#include "host/program.h"

int main(int argc, char** argv) { return vision_transformer::vit_main(argc, argv); }
