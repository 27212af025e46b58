// What tests call besides the steps, with half and float as Element. kernels.cu compiles it.
#pragma once

#include <string>
#include <vector>

#include "../kernels.h"

namespace mlp {

// What the steps consist of. In step graph a layer is recorded, replayed and waited for.
template <class Element>
const std::vector<LayerStep<Element>>& layer_steps();

// epilogue() with each of its tiles, whichever it would choose.
template <class Element>
struct EpilogueTile {
  const char* name;
  int rows, shared_bytes;  // rows of y and shared memory per block
  Layer<Element> layer;
  bool (*has_code)();  // for the current device
};
template <class Element>
const std::vector<EpilogueTile<Element>>& epilogue_tiles();
// choose_tile() of 5_epilogue.cuh for arrays in fp16, as a name of those.
std::string chosen_tile(const Shape& shape, int sms, int shared_bytes, bool with_wide);

// Why the current device cannot multiply such numbers, in words; empty where it can.
template <class Element>
std::string lacking();

// gelu() of launch.cuh.
void apply_gelu(const float* v, float* y, int count);

}  // namespace mlp
