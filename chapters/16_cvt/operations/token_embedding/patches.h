// The embedding as a linear layer on patches: these go to memory, [positions, taps, in_channels]. The step beside
// cvt::embed_forward() and cvt::embed_backward(), with the same arrays.
#pragma once

#include "../operations.h"

namespace token_embedding {

void patches_forward(const float* x, const float* w, const float* bias, float* y,
                     const cvt::EmbedShape& shape, cudaStream_t stream);
// Patches are gathered again; dx, unless it is null, is gathered from their gradients.
void patches_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                      float* dbias, const cvt::EmbedShape& shape, cudaStream_t stream);

}  // namespace token_embedding
