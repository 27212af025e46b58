// Chapter 7: multi-scale deformable attention in six steps on one problem, compared with the CPU
// reference; the last one also finds the directions in a photo.
#include "boxes.cuh"
#include "cluster.cuh"
#include "even_shares.cuh"
#include "persistent.cuh"
#include "problem.h"
#include "shared.cuh"
#include "simple.cuh"
#include "vectorized.cuh"

int main(int argc, char** argv) {
  namespace steps = persistent_deformable_attention;
  return lab::deformable_main(argc, argv, "07_persistent_deformable_attention",
                              "Chapter 7: multi-scale deformable attention, from a thread for each "
                              "output to persistent blocks.",
                              {{"simple", steps::simple},
                               {"vectorized", steps::vectorized},
                               {"shared", steps::shared},
                               {"persistent", steps::persistent},
                               {"cluster", steps::cluster, steps::cluster_lacks, "persistent"},
                               {"bulk", steps::bulk_or_boxes, steps::bulk_lacks, "persistent"},
                               {.name = "even shares",
                                .function = steps::even_shares,
                                .before = "persistent",
                                .variant = true},
                               {.name = "single copies",
                                .function = steps::bulk,
                                .lacks = steps::bulk_lacks,
                                .before = "bulk",
                                .variant = true}});
}
