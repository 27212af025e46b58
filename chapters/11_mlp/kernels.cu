// The chapter's steps in fp16 and fp32, whose kernels are compiled here.
#include "kernels.h"

#include "1_wmma.cuh"
#include "2_registers.cuh"
#include "3_pipeline.cuh"
#include "4_swizzle.cuh"
#include "5_epilogue.cuh"
#include "6_graph.cuh"
#include "host/launches.cuh"
#include "tests/internals.cuh"

namespace mlp {
namespace {

template <class Element>
std::vector<lab::MlpStep> steps_on() {
  return {lab::separate_launches<Element>({"wmma", wmma, wmma_product}),
          lab::separate_launches<Element>({"registers", registers, registers_product}),
          lab::separate_launches<Element>({"pipeline", pipeline, pipeline_product<tile::Padded>}),
          lab::separate_launches<Element>({"swizzle", swizzle, swizzle_product}),
          lab::epilogue_step<Element>(),
          lab::graph_step<Element>()};
}

}  // namespace

std::vector<lab::MlpStep> steps() {
  std::vector<lab::MlpStep> all = steps_on<half>();
  all.push_back(lab::separate_launches(kCopiesFirst, true));
  all.push_back(lab::separate_launches(kNoPadding, true));
  for (lab::MlpStep& step : steps_on<float>()) all.push_back(std::move(step));
  return all;
}

}  // namespace mlp
