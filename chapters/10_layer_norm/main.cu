// Chapter 10: LayerNorm in six steps beside a copy of the same bytes, and its gradients, compared with
// the CPU reference.
#include "kernels.h"

int main(int argc, char** argv) {
  return lab::layer_norm_main(argc, argv, "10_layer_norm",
                              "Chapter 10: LayerNorm, from a block for each row to what a copy "
                              "takes; the residual\nbefore it, and its gradients.",
                              layer_norm::kernels<half>(), layer_norm::kernels<float>());
}
