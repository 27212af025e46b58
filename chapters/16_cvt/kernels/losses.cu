// Loss, optimizer and the class token's moves, for the program, the tests and chapter 18.
#include "../operations/losses/loss.cuh"

namespace cvt {

using namespace losses;

void cross_entropy(const float* logits, const int* labels, float* loss, float* dlogits, int batch,
                   int classes, float smoothing, cudaStream_t stream) {
  const std::string what = "cross entropy of " + std::to_string(batch) + " rows of " +
                           std::to_string(classes) + " classes";
  require_that(batch >= 1 && classes >= 1, what, "both must be at least 1");
  require_that(smoothing >= 0.0f && smoothing <= 1.0f, what,
               "smoothing " + std::to_string(smoothing) + " must be 0 to 1");
  require_that(logits && labels && loss && dlogits, what, "an array is null");
  const Scratch<float> row_loss(batch, what, stream);
  cross_entropy_kernel<<<divide_up(batch, kLossWarps), kLossThreads, 0, stream>>>(
      logits, labels, row_loss.data(), dlogits, batch, classes, smoothing);
  mean_kernel<<<1, 32, 0, stream>>>(row_loss.data(), loss, batch);
  require_cuda(what);
}

void adamw(float* parameters, const float* gradients, float* m, float* v, int64_t count, int step,
           const AdamW& o, cudaStream_t stream) {
  const std::string what =
      "AdamW of " + std::to_string(count) + " numbers, step " + std::to_string(step);
  require_that(count >= 1 && step >= 1, what, "both must be at least 1");
  require_that(parameters && gradients && m && v, what, "an array is null");
  require_that(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, what,
               "beta1 and beta2 must be 0 or more, and below 1");
  const double first = 1 - std::pow(double(o.beta1), step);
  const double second = 1 - std::pow(double(o.beta2), step);
  const AdamWStep numbers{float(1 - double(o.rate) * double(o.decay)),
                          o.beta1,
                          o.beta2,
                          float(double(o.rate) / first),
                          float(std::sqrt(second)),
                          o.eps};
  bool whole = count % 4 == 0;
  for (const float* const array : {static_cast<const float*>(parameters), gradients,
                                   static_cast<const float*>(m), static_cast<const float*>(v)})
    whole = whole && reinterpret_cast<uintptr_t>(array) % 16 == 0;
  const int64_t pieces = whole ? count / 4 : count;
  (whole ? adamw_kernel<4>
         : adamw_kernel<1>)<<<divide_up(pieces, kLossThreads), kLossThreads, 0, stream>>>(
      parameters, gradients, m, v, pieces, numbers);
  require_cuda(what);
}

void prepend_token(const float* x, const float* token, float* y, int batch, int tokens,
                   int channels, cudaStream_t stream) {
  const std::string what = require_tokens(batch, tokens, channels, x && token && y);
  const int64_t count = int64_t(batch) * (tokens + 1) * channels;
  move_tokens_kernel<false><<<divide_up(count, kLossThreads), kLossThreads, 0, stream>>>(
      const_cast<float*>(x), token, y, count, tokens, channels);
  require_cuda(what);
}

void prepend_token_backward(const float* dy, float* dx, float* dtoken, int batch, int tokens,
                            int channels, cudaStream_t stream) {
  const std::string what = require_tokens(batch, tokens, channels, dy && dx && dtoken);
  const int64_t of_sample = int64_t(tokens + 1) * channels, count = batch * of_sample;
  move_tokens_kernel<true><<<divide_up(count, kLossThreads), kLossThreads, 0, stream>>>(
      dx, nullptr, const_cast<float*>(dy), count, tokens, channels);
  token_sums_kernel<<<divide_up(channels, kLossThreads), kLossThreads, 0, stream>>>(
      dy, dtoken, batch, of_sample, channels);
  require_cuda(what);
}

}  // namespace cvt
