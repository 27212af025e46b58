// Chapter 9: the patches of a photo become the tokens of a Vision Transformer, in six steps on one
// problem, compared with the CPU reference.
#include "ladder.cuh"

int main(int argc, char** argv) {
  return patch_embedding::patch_embedding_main(argc, argv, "09_patch_embedding",
                                               "Chapter 9: the patches of a photo become tokens, "
                                               "from a launch for every 16 pixels\nto one for "
                                               "all of them.",
                                               patch_embedding::steps_of);
}
