// Linear layers, for the program, the tests and chapter 18.
#include "../operations/linear_layers/linear.cuh"

namespace cvt {

using namespace linear_layers;

void linear_forward(const float* x, const float* w, const float* bias, float* y, const Rows& rows,
                    int in, int out, const LinearOptions& options, cudaStream_t stream) {
  const std::string what = require_linear(rows, in, out, {x, w, y});
  const LinearFinish finish{y,
                            bias,
                            options.before_gelu,
                            nullptr,
                            options.added,
                            rows,
                            out,
                            all_whole(out, {bias, y, options.before_gelu, options.added})};
  launch_product<Along, Along>(matrix(x, rows, in), matrix(w, Rows::all(out), in), finish,
                               rows.count, out, in, 1, what, stream);
}

void linear_backward_x(const float* dy, const float* w, float* dx, const Rows& rows, int in,
                       int out, const LinearOptions& options, cudaStream_t stream) {
  const std::string what = require_linear(rows, in, out, {dy, w, dx});
  const LinearFinish finish{dx,
                            nullptr,
                            nullptr,
                            options.before_gelu,
                            options.added,
                            rows,
                            in,
                            all_whole(in, {dx, options.before_gelu, options.added})};
  launch_product<Along, Across>(matrix(dy, rows, out), matrix(w, Rows::all(out), in), finish,
                                rows.count, in, out, 1, what, stream);
}

void linear_backward_w(const float* dy, const float* x, float* dw, float* dbias, const Rows& rows,
                       int in, int out, const float* factor, const float* offset, bool add,
                       cudaStream_t stream) {
  const std::string what = require_linear(rows, in, out, {dy, x, dw});
  require_that(!factor == !offset, what, "factor and offset must be there or null together");
  weight_gradient(matrix(dy, rows, out), matrix(x, rows, in), out, in, rows.count,
                  {dw, dbias, factor, offset, add, in, 1}, what, stream);
}

}  // namespace cvt
