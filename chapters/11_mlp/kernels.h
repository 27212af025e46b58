// The chapter's steps, compiled once in kernels.cu for its program and its tests.
#pragma once

#include <vector>

#include "host/problem.h"

namespace mlp {

using Shape = ProductShape;

// All that the program runs, on arrays in fp16 and then in fp32.
std::vector<lab::MlpStep> steps();

// A layer, and its product alone. Arrays as epilogue() in 5_epilogue.cuh has them.
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
  Layer<Element> layer;
  Product<Element> product = nullptr;  // none where all is one launch
};

// Variants of `pipeline` that were not kept, compiled in kernels_variants.cu.
extern const LayerStep<half> kCopiesFirst, kNoPadding;

}  // namespace mlp
