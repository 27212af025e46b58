// Chapter 7: multi-scale deformable attention in six steps on one problem, compared with the CPU
// reference; the last one also finds the directions in a photo.
#include "kernels.h"

int main(int argc, char** argv) {
  return lab::deformable_main(argc, argv, "07_persistent_deformable_attention",
                              "Chapter 7: multi-scale deformable attention, from a thread for each "
                              "output to persistent blocks.",
                              persistent_deformable_attention::steps());
}
