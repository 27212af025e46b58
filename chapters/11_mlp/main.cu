// Chapter 11: the MLP of a Vision Transformer, from WMMA to one launch a product.
#include "kernels.h"

int main(int argc, char** argv) {
  return lab::mlp_main(
      argc, argv, "11_mlp",
      "Chapter 11: the MLP of a Vision Transformer, y = x + W2 gelu(W1 x + b1) + b2, from\n"
      "WMMA with everything else in launches of its own to one launch a product.",
      mlp::steps());
}
