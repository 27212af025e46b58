// The chapter's steps, whose kernels are compiled here.
#include "kernels.h"

#include "1_atomics.cuh"
#include "2_packed.cuh"
#include "3_privatized.cuh"
#include "4_sorted.cuh"
#include "host/launches.cuh"

namespace lab::deformable {

const std::vector<GradientStep>& gradient_steps() {
  static const std::vector<GradientStep> kSteps = {
      {"atomics", steps::atomics},
      {"packed", steps::packed},
      {"privatized", steps::privatized},
      {"sorted",
       steps::sorted,
       {{"cells", stage<steps::sorted_cells>, cells_cost},
        {"sort", stage<steps::sorted_sort>, sort_cost, false},
        {"starts", stage<steps::sorted_starts>, starts_cost},
        {"corners", stage<steps::sorted_corners>, corners_cost},
        {"pixels", stage<steps::sorted_pixels>, pixels_cost},
        {"samples", stage<steps::sorted_samples>, samples_cost}},
       steps::sorted_scratch_bytes,
       fill_sorting}};
  return kSteps;
}

}  // namespace lab::deformable
