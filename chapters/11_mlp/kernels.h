// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include <string>
#include <vector>

#include "host/problem.h"

namespace mlp {

using Shape = ProductShape;

// All that the program runs, on arrays in fp16 and then in fp32.
std::vector<lab::MlpStep> steps();

// ---- For tests, with half and float as Element --------------------------------------------------

// What the steps consist of. Arrays as epilogue() in 5_epilogue.cuh has them.
template <class Element>
using Layer = void (*)(const Element* x, const Element* weight, const Element* bias,
                       const Element* residual, Element* y, const Shape& shape,
                       cudaStream_t stream);
template <class Element>
using Product = void (*)(const Element* x, const Element* weight, Element* y, const Shape& shape,
                         cudaStream_t stream);
template <class Element>
struct LayerStep {
  const char* name;
  Layer<Element> layer;                // in step graph: recorded, replayed and waited for
  Product<Element> product = nullptr;  // alone; none where all is one launch
};
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
void gelu_of(const float* v, float* y, int count);

}  // namespace mlp
