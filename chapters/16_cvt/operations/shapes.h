// What operations and their references on the CPU must agree on, in plain C++.
#pragma once

namespace cvt {

// Convolutional token embedding.
struct EmbedShape {
  int batch, height, width, in_channels, out_channels;
  int kernel, stride, padding;  // 7, 4, 2 in the paper's first stage, 3, 2, 1 in the others
  int out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

// Attention with fewer keys than queries: softmax(scale q kᵀ) v for each head, with q and the result [batch, queries,
// heads * head_dim], k and v [batch, keys, heads * head_dim]. CvT's scale is 1 / sqrt(heads * head_dim), of the whole
// width.
struct CrossShape {
  int batch, queries, keys, heads, head_dim;
  float scale;
};

// What the optimizer multiplies with.
struct AdamW {
  float rate, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, decay = 0.05f;
};

}  // namespace cvt
