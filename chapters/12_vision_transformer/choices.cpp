// Tables of choices with the simple components alone.
#include "components.h"

namespace vision_transformer {

const std::vector<Choice<EmbedFunction>>& embed_choices() {
  static const std::vector<Choice<EmbedFunction>> kChoices = {simple_embed()};
  return kChoices;
}

const std::vector<Choice<NormFunction>>& norm_choices() {
  static const std::vector<Choice<NormFunction>> kChoices = {simple_norm()};
  return kChoices;
}

const std::vector<Choice<LinearFunction>>& linear_choices() {
  static const std::vector<Choice<LinearFunction>> kChoices = {simple_linear()};
  return kChoices;
}

std::vector<LinearPart> linear_parts(const Choice<LinearFunction>&) { return {}; }

}  // namespace vision_transformer
