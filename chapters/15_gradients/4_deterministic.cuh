// Step 4, deterministic: nobody adds to what another block adds to. dQ gets a kernel of its own, in
// which a block owns rows of queries and walks over all keys, as the forward pass does:
//
//   columns   step 3's kernel without its fifth product: dK and dV, each key by one warp
//   rows      S = Q Kᵀ and dP = dO Vᵀ once more, dQ += dS K, each query by one warp
//
// That is seven products instead of five. In return dQ has no sums in memory and no conversion, dS
// stays in registers, and two runs give the same bits, whatever order blocks come in.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "3_tensor_cores.cuh"
#include "4_rows.cuh"
#include "parts/dots.cuh"
#include "parts/pointers.h"

namespace gradients {

// D alone.
inline int64_t dots_workspace(const AttentionShape& shape) { return shape.rows(); }
inline void only_dots(const GradientPointers& p, const AttentionShape& shape, cudaStream_t stream) {
  launch_dots(p, p.workspace, nullptr, shape, stream);
}

inline void columns_alone(const GradientPointers& p, const AttentionShape& shape,
                          cudaStream_t stream) {
  launch_columns<false>(p, p.workspace, shape, stream);
}

}  // namespace gradients
