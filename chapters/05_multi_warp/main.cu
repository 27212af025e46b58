// Chapter 5: attention with 4 and with 8 warps a block that share the tiles of K and V, beside the
// kernel of chapter 4; and how many such blocks an SM has room for.
#include <cstdio>

#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../04_wmma/kernel.cuh"
#include "kernel.cuh"
#include "more_warps.cuh"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

// Prints what limits the number of blocks on an SM.
template <int kWarps>
void print_occupancy(const AttentionShape& shape) {
  const multi_warp::Step step = multi_warp::step_for<kWarps>(shape.head_dim, shared_limit());
  const std::string name =
      std::to_string(kWarps) + " warps, " + std::to_string(step.key_tile) + " keys a tile";
  std::puts(lab::describe_occupancy(name, reinterpret_cast<const void*>(step.kernel), 32 * kWarps,
                                    step.shared_bytes)
                .c_str());
}

lab::ExitCode chapter(const lab::Run& run) {
  const lab::ExitCode code = lab::run_ladder(run);
  std::puts("");
  print_occupancy<4>(run.problem.shape);
  print_occupancy<8>(run.problem.shape);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"05_multi_warp",
       "Chapter 5: attention on the tensor cores, 4 and 8 warps a block.",
       scratch_bytes,
       chapter,
       {{.name = "wmma", .attention = wmma_attention::attention, .tensor_cores = true},
        {.name = "4 warps", .attention = multi_warp::attention_of<4>, .tensor_cores = true},
        {.name = "8 warps", .attention = multi_warp::attention_of<8>, .tensor_cores = true},
        {.name = "16 warps",
         .attention = multi_warp::attention_of_more<16, 16>,
         .tensor_cores = true,
         .variant = true},
        {.name = "24 resident",
         .attention = multi_warp::attention_of_more<8, 24>,
         .tensor_cores = true,
         .variant = true}}});
}
