// The variant that differs from its step by a few lines, in a namespace of its own. (Beside the steps its names
// would be ambiguous.)
#include "13_flash_attention/small_tiles.cuh"  // variants/small_tiles.diff
#include "kernels.h"

namespace flash_attention {

void small_tiles(const half* Q, const half* K, const half* V, half* O, const AttentionShape& shape,
                 cudaStream_t stream) {
  ::small_tiles::ragged(Q, K, V, O, shape, stream);
}

}  // namespace flash_attention
