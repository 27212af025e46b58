// The chapter's steps, whose kernels are compiled here.
#include "kernels.h"

#include "1_simple.cuh"
#include "2_vectorized.cuh"
#include "3_shared.cuh"
#include "4_persistent.cuh"
#include "5_cluster.cuh"
#include "6_bulk.cuh"
#include "tests/internals.cuh"
#include "variants/even_shares.cuh"

namespace persistent_deformable_attention {

std::vector<lab::DeformableStep> steps() {
  return {{"simple", simple},
          {"vectorized", vectorized},
          {"shared", shared},
          {"persistent", persistent},
          {"cluster", cluster, cluster_lacks, "persistent"},
          {"bulk", bulk, bulk_lacks, "persistent"},
          {.name = "even shares", .function = even_shares, .before = "persistent", .variant = true},
          {.name = "single copies",
           .function = single_copies,
           .lacks = bulk_lacks,
           .before = "bulk",
           .variant = true}};
}

}  // namespace persistent_deformable_attention
