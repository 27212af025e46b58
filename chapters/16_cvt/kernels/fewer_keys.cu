// Attention with fewer keys than queries, for the program, the tests and chapter 18.
#include "../operations/fewer_keys/backward.cuh"
#include "../operations/fewer_keys/forward.cuh"

namespace cvt {

using namespace fewer_keys;

void cross_attention_forward(const float* q, const float* k, const float* v, float* o,
                             float* log_sum_exp, const CrossShape& shape, cudaStream_t stream) {
  const std::string what = require_attention(shape, {q, k, v, o});
  require_that(log_sum_exp != nullptr, what, "an array is null");
  with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
    launch_attention(attention_forward_kernel<kHeadDim>, shape.queries,
                     int(sizeof(ForwardTiles<kHeadDim>)), shape, what, stream, q, k, v, o,
                     log_sum_exp);
  });
}

void cross_attention_backward(const float* q, const float* k, const float* v, const float* o,
                              const float* log_sum_exp, const float* d_o, float* dq, float* dk,
                              float* dv, const CrossShape& shape, cudaStream_t stream) {
  const std::string what = require_attention(shape, {q, k, v, o, d_o, dq, dk, dv});
  require_that(log_sum_exp != nullptr, what, "an array is null");
  const int64_t rows = int64_t(shape.batch) * shape.heads * shape.queries;
  const Scratch<float> dots(rows, what, stream);
  with_head_dim(shape.head_dim, [&]<int kHeadDim>() {
    dots_kernel<kHeadDim>
        <<<divide_up(rows * (kHeadDim / 4), kAttentionThreads), kAttentionThreads, 0, stream>>>(
            o, d_o, dots.data(), shape);
    require_cuda(what);
    constexpr int kBytes = int(sizeof(BackwardTiles<kHeadDim>));
    const float* const of_rows = dots.data();
    launch_attention(keys_kernel<kHeadDim>, shape.keys, kBytes, shape, what, stream, q, k, v, d_o,
                     log_sum_exp, of_rows, dk, dv);
    launch_attention(queries_kernel<kHeadDim>, shape.queries, kBytes, shape, what, stream, q, k, v,
                     d_o, log_sum_exp, of_rows, dq);
  });
}

}  // namespace cvt
