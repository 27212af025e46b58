// The steps of chapter 11 as choices of --mlp (components.h).
#include <cstring>

#include "../../11_mlp/1_wmma.cuh"
#include "../../11_mlp/2_registers.cuh"
#include "../../11_mlp/3_pipeline.cuh"
#include "../../11_mlp/4_swizzle.cuh"
#include "../../11_mlp/5_epilogue.cuh"
#include "../../11_mlp/parts/finish.cuh"
#include "../2_epilogue.cuh"
#include "../components.h"

namespace vision_transformer {
namespace {

using Step = void (*)(const half* x, const half* weight, const half* bias, const half* residual,
                      half* y, const mlp::Shape& shape, cudaStream_t stream);
using Product = void (*)(const half* x, const half* weight, half* y, const mlp::Shape& shape,
                         cudaStream_t stream);

mlp::Shape shape_of(const LinearShape& shape) { return {shape.m, shape.n, shape.k, shape.gelu}; }

template <Step kStep>
void by(const half* x, const half* weight, const half* bias, const half* residual, half* y,
        const LinearShape& shape, cudaStream_t stream) {
  kStep(x, weight, bias, residual, y, shape_of(shape), stream);
}

template <Product kProduct>
void product(const half* x, const half* weight, const half*, const half*, half* y,
             const LinearShape& shape, cudaStream_t stream) {
  kProduct(x, weight, y, shape_of(shape), stream);
}

void finish(const half*, const half*, const half* bias, const half* residual, half* y,
            const LinearShape& shape, cudaStream_t stream) {
  mlp::finish(bias, residual, y, shape_of(shape), stream);
}

}  // namespace

const std::vector<Choice<LinearFunction>>& linear_choices() {
  static const std::vector<Choice<LinearFunction>> kChoices = {
      simple_linear(),
      {"wmma", by<mlp::wmma>, 11},
      {"registers", by<mlp::registers>, 11},
      {"pipeline", by<mlp::pipeline>, 11},
      {"swizzle", by<mlp::swizzle>, 11},
      {"epilogue", by<mlp::epilogue<half>>, 11}};
  return kChoices;
}

Choice<Qkv> epilogue_qkv() { return {"epilogue", {.by_heads = qkv_epilogue::qkv}, 11}; }

std::vector<LinearPart> linear_parts(const Choice<LinearFunction>& linear) {
  const auto named = [&](const char* name) { return std::strcmp(linear.name, name) == 0; };
  LinearFunction first = nullptr;
  if (named("wmma")) first = product<mlp::wmma_product>;
  if (named("registers")) first = product<mlp::registers_product>;
  if (named("pipeline")) first = product<mlp::pipeline_product<tile::Padded>>;
  if (named("swizzle")) first = product<mlp::swizzle_product>;
  if (!first) return {};
  return {{"product", first}, {"finish", finish}};
}

}  // namespace vision_transformer
