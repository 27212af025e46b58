// Chapter 13: attention at FlashAttention-2's level, in four steps behind the kernel of chapter 6.
#include "kernels.h"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"13_flash_attention", "Chapter 13: attention with scores and weights in registers.",
       scratch_bytes, lab::run_ladder, flash_attention::steps()});
}
