// Which kernels a net is made of: for each component a table of steps to choose from, the chapters'
// and the simple one of this chapter. The tables are filled in kernels*.cu.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "../../common/attention/shape.h"
#include "shape.h"

namespace vision_transformer {

// The components' types; 1_simple.cuh says what each array is. All arrays are fp16 on the device.
using EmbedFunction = void (*)(const half* image, const half* weight, const half* bias,
                               const half* class_token, const half* position, half* tokens,
                               const EmbedShape& shape, cudaStream_t stream);
using NormFunction = void (*)(const half* x, const half* scale, const half* bias, half* y,
                              const NormShape& shape, cudaStream_t stream);
using LinearFunction = void (*)(const half* x, const half* weight, const half* bias,
                                const half* residual, half* y, const LinearShape& shape,
                                cudaStream_t stream);
using AttentionFunction = void (*)(const half* Q, const half* K, const half* V, half* O,
                                   const AttentionShape& shape, cudaStream_t stream);
// How a block comes from x [batch, tokens, width] to q, k and v [batch, heads, tokens, head_dim], with
// weight [3 width, width] and bias [3 width]. Neither: the product of --mlp, then split. by_heads: one
// product. inside: attention's kernel has them alone and stores its o [batch, tokens, width].
struct Qkv {
  void (*by_heads)(const half* x, const half* weight, const half* bias, half* q, half* k, half* v,
                   const HeadsShape& shape, cudaStream_t stream) = nullptr;
  void (*inside)(const half* x, const half* weight, const half* bias, half* o,
                 const HeadsShape& shape, float scale, cudaStream_t stream) = nullptr;
};

template <class Function>
struct Choice {
  const char* name;  // as the flag has it
  Function function;
  int chapter;  // whose step it is
};
const std::vector<Choice<EmbedFunction>>& embed_choices();
const std::vector<Choice<NormFunction>>& norm_choices();
const std::vector<Choice<LinearFunction>>& linear_choices();
const std::vector<Choice<Qkv>>& qkv_choices();
const std::vector<Choice<AttentionFunction>>& attention_choices();

// This chapter's own, with which each table begins.
Choice<EmbedFunction> simple_embed();
Choice<NormFunction> simple_norm();
Choice<LinearFunction> simple_linear();
// The product qkv on chapter 11's tiles.
Choice<Qkv> epilogue_qkv();

// One choice for each component.
struct Components {
  Choice<EmbedFunction> embed = embed_choices().front();
  Choice<NormFunction> norm = norm_choices().front();
  Choice<LinearFunction> linear = linear_choices().front();
  Choice<Qkv> qkv = qkv_choices().front();
  Choice<AttentionFunction> attention = attention_choices().back();
};

// What lies between them has one form each (1_simple.cuh).
void split_heads(const half* qkv, half* q, half* k, half* v, const HeadsShape& shape,
                 cudaStream_t stream);
void merge_heads(const half* by_heads, half* merged, const HeadsShape& shape, cudaStream_t stream);
void take_class_tokens(const half* x, half* y, const NetShape& shape, cudaStream_t stream);

// The kernels of a product that launches several one after the other; none where it is one. Each takes
// all arguments.
struct LinearPart {
  const char* name;
  LinearFunction function;
};
std::vector<LinearPart> linear_parts(const Choice<LinearFunction>& linear);
// The same of attention, none where it is one launch: its kernels share scores, fp32 [batch, heads, tokens, tokens].
struct AttentionPart {
  const char* name;
  void (*function)(const half* Q, const half* K, const half* V, float* scores, half* O,
                   const AttentionShape& shape, cudaStream_t stream);
};
std::vector<AttentionPart> attention_parts(const Choice<AttentionFunction>& attention);

// Bytes that attention of that choice takes for itself while it runs: chapter 1 stores scores.
double attention_scratch(const Choice<AttentionFunction>& attention, const AttentionShape& shape);

}  // namespace vision_transformer
