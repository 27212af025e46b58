// LayerNorm of tokens, for the program, the tests and chapter 18.
#include "../operations/token_norm/layer_norm.cuh"

namespace cvt {

using namespace token_norm;

void layer_norm_forward(const float* x, const float* scale, const float* shift, float* y,
                        float* mean, float* inverse_deviation, int rows, int channels,
                        cudaStream_t stream) {
  const std::string what =
      require_norm(rows, channels, {x, scale, shift, y, mean, inverse_deviation});
  with_norm_pieces(channels, {x, scale, shift, y}, [&]<int kWidth, int kPieces>() {
    norm_forward_kernel<kWidth, kPieces><<<divide_up(rows, kNormWarps), kNormThreads, 0, stream>>>(
        x, scale, shift, y, mean, inverse_deviation, rows, channels);
  });
  require_cuda(what);
}

void layer_norm_backward(const float* x, const float* scale, const float* mean,
                         const float* inverse_deviation, const float* dy, const float* added,
                         float* dx, float* dscale, float* dshift, int rows, int channels,
                         cudaStream_t stream) {
  const std::string what =
      require_norm(rows, channels, {x, scale, mean, inverse_deviation, dy, dx, dscale, dshift});
  // Four rows a warp or more, and two blocks an SM or fewer: each block's sums are moved twice.
  const int most = 2 * mlp::device_attribute(cudaDevAttrMultiProcessorCount);
  const int rows_of_block = std::max(4 * kNormWarps, divide_up(rows, most));
  const int blocks = divide_up(rows, rows_of_block);
  const Scratch<float> partials(int64_t(blocks) * 2 * channels, what, stream);
  const std::initializer_list<const float*> arrays = {x, scale, dy, added, dx};
  with_norm_pieces(channels, arrays, [&]<int kWidth, int kPieces>() {
    norm_backward_kernel<kWidth, kPieces>
        <<<blocks, kNormThreads, size_t(kNormWarps) * channels * sizeof(float), stream>>>(
            x, scale, mean, inverse_deviation, dy, added, dx, partials.data(), rows, channels,
            rows_of_block);
  });
  require_cuda(what);
  layer_norm::finish_kernel<<<divide_up(2 * channels, 32), layer_norm::kThreads, 0, stream>>>(
      partials.data(), dscale, dshift, blocks, channels);
  require_cuda(what);
}

}  // namespace cvt
