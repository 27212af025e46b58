// Chapter 3: attention with coalesced 16-byte loads, and then with the work dealt out anew, beside
// the kernel of chapter 2.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../02_tiling/kernel.cuh"
#include "coalesced_loads.cuh"
#include "kernel.cuh"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"03_coalescing",
       "Chapter 3: attention with coalesced 16-byte loads, then with the work dealt anew.",
       scratch_bytes,
       lab::run_ladder,
       {{.name = "tiling", .attention = tiling::attention},
        {.name = "coalesced loads", .attention = coalesced_loads::attention},
        {.name = "4 rows a warp", .attention = coalescing::attention},
        {.name = "no padding", .attention = coalesced_loads::attention_of<0>, .variant = true}}});
}
