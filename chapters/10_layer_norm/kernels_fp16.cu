// The kernels on arrays in fp16.
#include "kernels.cuh"

namespace layer_norm {

template lab::LayerNormKernels<half> kernels<half>();

Grid grid_of(const std::string& kernel, const Shape& shape) {
  const auto a_row = [&](int rows) { return Grid{blocks_of(shape.rows, rows), kThreads}; };
  if (kernel == "base") return a_row(1);
  if (kernel == "warp" || kernel == "vector" || kernel == "residual" || kernel == "dx")
    return a_row(kWarps);
  if (kernel == "rows") return a_row(kWarps * kRows);
  if (kernel == "slab")
    return {dim3(unsigned(slabs_of(shape)), blocks_of(shape.columns, 128)), kThreads};
  if (kernel == "finish") return {blocks_of(2 * shape.columns, 32), kThreads};
  throw std::invalid_argument("grid_of '" + kernel + "': no such kernel");
}

}  // namespace layer_norm
