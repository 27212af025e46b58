// Chapter 6: attention with K loaded as it should be, beside the kernel of chapter 5.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../05_multi_warp/kernel.cuh"
#include "kernel.cuh"
#include "no_padding.cuh"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"06_coalesced_k",
       "Chapter 6: attention on the tensor cores, all loads coalesced.",
       scratch_bytes,
       lab::run_ladder,
       {{.name = "multi-warp", .attention = multi_warp::attention, .tensor_cores = true},
        {.name = "coalesced K", .attention = coalesced_k::attention, .tensor_cores = true},
        {.name = "no padding",
         .attention = coalesced_k::attention_without_padding,
         .tensor_cores = true,
         .variant = true}}});
}
