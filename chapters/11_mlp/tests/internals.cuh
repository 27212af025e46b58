// What tests call besides the steps, compiled with their kernels in kernels.cu.
#pragma once

#include "../1_wmma.cuh"
#include "../2_registers.cuh"
#include "../3_pipeline.cuh"
#include "../4_swizzle.cuh"
#include "../5_epilogue.cuh"
#include "../6_graph.cuh"
#include "internals.h"

namespace mlp {
namespace {

__global__ void gelu_kernel(const float* v, float* y, int count) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = gelu(v[i]);
}

template <class Element>
void by_graph(const Element* x, const Element* weight, const Element* bias, const Element* residual,
              Element* y, const Shape& shape, cudaStream_t stream) {
  const Graph graph([&](cudaStream_t recorded) {
    epilogue<Element>(x, weight, bias, residual, y, shape, recorded);
  });
  graph.replay(stream);
  lab::check(cudaDeviceSynchronize());
}
template <class Element, class Tile>
EpilogueTile<Element> tile_of(const char* name, bool (*has_code)()) {
  return {name, Tile::kRows, kEpilogueBytes<Element, Tile>, launch_epilogue<Element, Tile>,
          has_code};
}

}  // namespace

template <class Element>
const std::vector<LayerStep<Element>>& layer_steps() {
  static const std::vector<LayerStep<Element>> all = {
      {"wmma", wmma, wmma_product},
      {"registers", registers, registers_product},
      {"pipeline", pipeline, pipeline_product<tile::Padded>},
      {"swizzle", swizzle, swizzle_product},
      {"epilogue", epilogue},
      {"graph", by_graph<Element>}};
  return all;
}
template <class Element>
const std::vector<EpilogueTile<Element>>& epilogue_tiles() {
  const auto always = [] { return true; };
  static const std::vector<EpilogueTile<Element>> all = {
      tile_of<Element, WideTile>("wide", has_wide_tile<Element>),
      tile_of<Element, LargeTile>("large", always), tile_of<Element, SmallTile>("small", always)};
  return all;
}
template const std::vector<LayerStep<half>>& layer_steps();
template const std::vector<LayerStep<float>>& layer_steps();
template const std::vector<EpilogueTile<half>>& epilogue_tiles();
template const std::vector<EpilogueTile<float>>& epilogue_tiles();
template std::string lacking<half>();
template std::string lacking<float>();

std::string chosen_tile(const Shape& shape, int sms, int shared_bytes, bool with_wide) {
  const TileName name = choose_tile<half>(shape, sms, shared_bytes, with_wide);
  return name == TileName::kWide ? "wide" : name == TileName::kLarge ? "large" : "small";
}

void apply_gelu(const float* v, float* y, int count) {
  gelu_kernel<<<unsigned(count / 128 + 1), 128>>>(v, y, count);
}

}  // namespace mlp
