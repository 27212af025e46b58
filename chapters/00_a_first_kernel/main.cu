// Chapter 0: a photo becomes grey, its brightness is added up, and it is blurred; each step by a kernel
// of its own, compared with the CPU reference.
#include "blur.cuh"
#include "blur_tile.cuh"
#include "grey_columns.cuh"
#include "grey_rows.cuh"
#include "host/problem.h"
#include "race.cuh"
#include "sum_blocks.cuh"
#include "sum_serial.cuh"
#include "sum_threads.cuh"
#include "whole_way.cuh"

int main(int argc, char** argv) {
  namespace steps = first_kernel;
  lab::PhotoKernels kernels;
  kernels.whole_way = steps::grey_of_host;
  kernels.steps = {
      {.name = "grey columns", .grey = steps::grey_columns},
      {.name = "grey rows", .grey = steps::grey_rows, .before = "grey columns"},
      {.name = "sum threads", .sum = steps::sum_threads},
      {.name = "sum blocks", .sum = steps::sum_blocks, .before = "sum threads"},
      {.name = "blur", .blur = steps::blur},
      {.name = "blur tile", .blur = steps::blur_tile, .before = "blur"},
      {.name = "sum serial", .sum = steps::sum_serial, .asked = true},
      {.name = "race", .sum = steps::race, .asked = true},
  };
  return lab::first_kernel_main(argc, argv, "00_a_first_kernel",
                                "Chapter 0: the first kernels. A photo becomes grey, its mean "
                                "brightness is found, it is\nblurred.",
                                kernels);
}
