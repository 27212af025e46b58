// Chapter 14: attention as Hopper wants it, in four steps behind the last one of chapter 13.
#include "../../common/attention/program.h"
#include "../../common/lab.cuh"
#include "../13_flash_attention/kernel.cuh"
#include "maps.cuh"
#include "multicast.cuh"
#include "persistent.cuh"
#include "specialized.cuh"
#include "tensor_maps.cuh"
#include "wgmma.cuh"

namespace {

int64_t scratch_bytes(const AttentionShape&) { return 0; }

lab::ExitCode chapter(const lab::Run& run) {
  if (const std::string lack = hopper::lacks(); !lack.empty())
    throw lab::LackError("chapter 14 " + lack);
  return lab::run_ladder(run);
}

}  // namespace

int main(int argc, char** argv) {
  return lab::attention_main(
      argc, argv,
      {"14_hopper",
       "Chapter 14: attention on tensor maps and warpgroups.",
       scratch_bytes,
       chapter,
       {{.name = "ragged", .attention = flash_attention::ragged, .tensor_cores = true},
        {.name = "tensor maps", .attention = hopper::tensor_maps, .tensor_cores = true},
        {.name = "wgmma", .attention = hopper::wgmma, .tensor_cores = true},
        {.name = "specialized", .attention = hopper::specialized, .tensor_cores = true},
        {.name = "persistent", .attention = hopper::persistent, .tensor_cores = true},
        {.name = "no turns",
         .attention = hopper::specialized_of<0>,
         .tensor_cores = true,
         .variant = true},
        {.name = "polynomials",
         .attention = hopper::persistent_of<1>,
         .tensor_cores = true,
         .variant = true},
        {.name = "multicast",
         .attention = hopper::multicast,
         .tensor_cores = true,
         .variant = true},
        {.name = "every maximum",
         .attention = hopper::persistent_of<0, 1>,
         .tensor_cores = true,
         .variant = true},
        {.name = "head by head",
         .attention = hopper::persistent_of<0, 0, 1>,
         .tensor_cores = true,
         .variant = true},
        {.name = "one block",
         .attention = hopper::wgmma_of<true>,
         .tensor_cores = true,
         .variant = true}}});
}
