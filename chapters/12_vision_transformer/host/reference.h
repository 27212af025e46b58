// CPU oracle of the net: double precision, straight from the formulas. Plain C++.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parameters.h"

namespace vision_transformer::reference {

using Doubles = std::vector<double>;

// Arrays as in shape.h and parameters.h.
Doubles embed(const Doubles& image, const HostParameters& parameters, const NetShape& shape);
Doubles layer_norm(const Doubles& x, const std::vector<float>& scale,
                   const std::vector<float>& bias, const NormShape& shape);
// bias and residual may be empty.
Doubles linear(const Doubles& x, const std::vector<float>& weight, const std::vector<float>& bias,
               const Doubles& residual, const LinearShape& shape);
// q, k, v and the result: [batch, heads, tokens, head_dim]; scale 1 / sqrt(head_dim).
// round_weights, which may be null, is applied to each row's weights before they meet v.
using Rounding = double (*)(double);
Doubles attention(const Doubles& q, const Doubles& k, const Doubles& v, const HeadsShape& shape,
                  Rounding round_weights);
// part 0, 1, 2: q, k, v of qkv [batch, tokens, 3, heads, head_dim], by heads.
Doubles split(const Doubles& qkv, int part, const HeadsShape& shape);
Doubles merge(const Doubles& by_heads, const HeadsShape& shape);
// [batch, width] of [batch, tokens, width]: each image's first token.
Doubles class_tokens(const Doubles& x, const NetShape& shape);

// The whole net: image [batch, 3, size, size] to logits [batch, classes]. `round`, which may be
// null, is applied to each number where the net stores it (in fp16, on a device), and to attention's
// weights. `see`, which may be empty, gets each component's result; its name is "tokens",
// "blocks.0.norm1", ... as components of a run are called.
using See = std::function<void(const std::string& name, const Doubles& values)>;
Doubles net(const Doubles& image, const HostParameters& parameters, const NetShape& shape,
            Rounding round, const See& see);

}  // namespace vision_transformer::reference
