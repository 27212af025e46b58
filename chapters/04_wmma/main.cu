// Chapter 4: attention on the tensor cores, one warp a block, beside the kernel of chapter 3.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../03_coalescing/kernel.cuh"
#include "kernel.cuh"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"04_wmma",
       "Chapter 4: attention on the tensor cores, one warp and 16 query rows a block.",
       scratch_bytes,
       lab::run_ladder,
       {{.name = "coalescing", .attention = coalescing::attention},
        {.name = "wmma", .attention = wmma_attention::attention, .tensor_cores = true},
        {.name = "4 loads at a time",
         .attention = wmma_attention::attention_of<4>,
         .tensor_cores = true,
         .variant = true}}});
}
