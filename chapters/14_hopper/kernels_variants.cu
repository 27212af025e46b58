// The variants that differ from their steps by a few lines, each in a namespace of its own. (Beside the steps
// their names would be ambiguous.)
#include "14_hopper/every_maximum.cuh"  // variants/every_maximum.diff
#include "14_hopper/head_by_head.cuh"   // variants/head_by_head.diff
#include "14_hopper/no_turns.cuh"       // variants/no_turns.diff
#include "14_hopper/one_block.cuh"      // variants/one_block.diff
#include "14_hopper/polynomials.cuh"    // variants/polynomials.diff
#include "kernels.h"

namespace hopper {
namespace variants {

void no_turns(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
              cudaStream_t stream) {
  ::no_turns::specialized(Q, K, V, O, shape, stream);
}
void polynomials(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
                 cudaStream_t stream) {
  ::polynomials::persistent(Q, K, V, O, shape, stream);
}
void every_maximum(const half* Q, const half* K, const half* V, half* O,
                   const AttentionShape& shape, cudaStream_t stream) {
  ::every_maximum::persistent(Q, K, V, O, shape, stream);
}
void head_by_head(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
                  cudaStream_t stream) {
  ::head_by_head::persistent(Q, K, V, O, shape, stream);
}
void one_block(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
               cudaStream_t stream) {
  ::one_block::wgmma(Q, K, V, O, shape, stream);
}

}  // namespace variants

// ---- For tests ----------------------------------------------------------------------------------

namespace {

__global__ void powers_of_2_kernel(float* result, float first, float step, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    result[i] = polynomials::polynomial_of_2(first + float(i) * step);
}

}  // namespace

void powers_of_2(float* result, float first, float step, int count) {
  powers_of_2_kernel<<<1, 1024>>>(result, first, step, count);
}

}  // namespace hopper
