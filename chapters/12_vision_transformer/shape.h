// The problem of the chapter, in plain C++: the sizes of a Vision Transformer, and of its components.
// Names and layouts are timm's (vision_transformer.py).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace vision_transformer {

// A net that classifies `batch` squared images: patches become tokens, a class token stands before
// them, `blocks` blocks follow, and a product makes the class token to one logit a class.
struct NetShape {
  int batch = 1;
  int size = 224;  // pixels of an image's side
  int patch = 16;  // pixels of a patch's side
  int width = 192, heads = 3, blocks = 12;
  int classes = 1000;
  float epsilon = 1e-6f;  // the epsilon of every LayerNorm

  int grid() const { return size / patch; }  // patches of a row
  int patches() const { return grid() * grid(); }
  int tokens() const { return patches() + 1; }
  int head_dim() const { return width / heads; }
  int hidden() const { return 4 * width; }
  int patch_values() const { return 3 * patch * patch; }
  int64_t rows() const { return int64_t(batch) * tokens(); }
  int64_t image_elements() const { return int64_t(batch) * 3 * size * size; }
};

// "[batch 1, 224x224 pixels, width 192, 3 heads, 12 blocks, 1000 classes]"
inline std::string describe(const NetShape& shape) {
  const auto text = [](int number) { return std::to_string(number); };
  return "[batch " + text(shape.batch) + ", " + text(shape.size) + "x" + text(shape.size) +
         " pixels, width " + text(shape.width) + ", " + text(shape.heads) + " heads, " +
         text(shape.blocks) + " blocks, " + text(shape.classes) + " classes]";
}

// Throws std::invalid_argument naming the shape and the limit.
inline void require_net_shape(const NetShape& shape) {
  const auto fail = [&](const std::string& limit) {
    throw std::invalid_argument("Vision Transformer of shape " + describe(shape) + ": " + limit);
  };
  if (shape.batch < 1 || shape.blocks < 1 || shape.heads < 1 || shape.classes < 1)
    fail("batch, blocks, heads and classes must be at least 1");
  if (shape.patch < 8 || shape.patch % 8 != 0)
    fail("a patch has " + std::to_string(shape.patch) + " pixels, a multiple of 8 is needed");
  if (shape.size < shape.patch || shape.size % shape.patch != 0)
    fail("the side must be a multiple of the patch's " + std::to_string(shape.patch) + " pixels");
  const int head_dim = shape.head_dim();
  if (shape.width != shape.heads * head_dim ||
      (head_dim != 32 && head_dim != 64 && head_dim != 128))
    fail("width / heads must be 32, 64 or 128");
  // The kernels count rows, and elements of a row, in 32 bits.
  if (shape.rows() > INT32_MAX / 64) fail("more than 33554431 tokens");
}

// ---- Components ---------------------------------------------------------------------------------

// image [batch, 3, size, size] to tokens [batch, 1 + patches, width].
struct EmbedShape {
  int batch, size, patch, width;
  int grid() const { return size / patch; }
  int tokens() const { return grid() * grid() + 1; }
};

// LayerNorm of x [rows, columns] along the columns.
struct NormShape {
  int rows, columns;
  float epsilon;
};

// y = act(x wᵀ + bias) + residual: x [m, k], w [n, k] as nn.Linear has it, y and residual [m, n].
struct LinearShape {
  int m, n, k;
  bool gelu;
};

// Between qkv [batch, tokens, 3, heads, head_dim] and q, k, v [batch, heads, tokens, head_dim].
struct HeadsShape {
  int batch, tokens, heads, head_dim;
  int64_t elements() const { return int64_t(batch) * tokens * heads * head_dim; }
};

// The exact GELU's slope is nowhere steeper: its derivative is 1.13 at most.
constexpr double kSteepestGelu = 1.13;

}  // namespace vision_transformer
