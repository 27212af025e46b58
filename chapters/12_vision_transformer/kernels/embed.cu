// The steps of chapter 9 as choices of --embed (components.h).
#include "../../09_patch_embedding/6_one_product.cuh"
#include "../components.h"

namespace vision_transformer {
namespace {

void one_product(const half* image, const half* weight, const half* bias, const half* class_token,
                 const half* position, half* tokens, const EmbedShape& shape, cudaStream_t stream) {
  if (shape.patch != patch_embedding::kSide)
    throw std::invalid_argument("embed one_product: patches of " + std::to_string(shape.patch) +
                                " pixels, 16 are needed");
  patch_embedding::embed(image, weight, bias, class_token, position, tokens,
                         {shape.batch, shape.size, shape.size, shape.width}, stream);
}

}  // namespace

const std::vector<Choice<EmbedFunction>>& embed_choices() {
  static const std::vector<Choice<EmbedFunction>> kChoices = {simple_embed(),
                                                              {"one_product", one_product, 9}};
  return kChoices;
}

}  // namespace vision_transformer
