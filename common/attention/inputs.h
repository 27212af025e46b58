// What the attention chapters work on: problems, their arrays on a device, and what is read off them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab.cuh"
#include "lab/images.h"
#include "shape.h"

namespace lab {

struct AttentionProblem {
  AttentionShape shape;
  std::vector<half> q, k, v;  // [batch, heads, tokens, head_dim]
  std::string source;         // "photo chelsea.png, 224 x 224", for people
  Image photo;                // squared; empty when there is no picture to draw
  int grid = 0;               // patches a side of that photo
  int chosen_token = 0;       // query whose attention is drawn
};

// Seeded Q, K, V that tell a wrong kernel from a right one: every query looks for one key of its
// own (a random permutation) and gives it about half of its weight, V has zero mean. So a mean over
// V, a dropped key, a shifted row or another head is far off.
AttentionProblem random_attention(const AttentionShape& shape, uint64_t seed);

// A photo as Vision Transformers see it: squared to size (a multiple of 16) pixels, cut in 16 x 16
// patches of 768 values in the order (channel, row, column), the class token (the patches' mean)
// first, 12 heads of 64. Each (token, head) vector is made zero-mean with length 8, so that the
// scores are peaked; Q = K = V. Image b > 0 of the batch is the photo shifted cyclically by an
// offset drawn from the seed, so that no two are alike.
AttentionProblem photo_attention(const Image& photo, int size, int batch, uint64_t seed);

// Q, K, V and O on the device, in as many copies as rotation needs; copy 0 is the checked one.
struct AttentionArrays {
  DeviceArray<half> Q, K, V, O;
};
std::vector<AttentionArrays> upload(const AttentionProblem& problem, int copies);

// The type of every attention step; see chapters/01_naive_attention/kernel.cuh.
using AttentionFunction = void (*)(const half* Q, const half* K, const half* V, half* O,
                                   const AttentionShape& shape, cudaStream_t stream);

// Attention weights of one query of image 0, mean over the heads, [tokens], read off the kernel
// itself: with one-hot V its outputs are weights, head_dim of them a launch.
std::vector<double> attention_weights(AttentionFunction attention, const AttentionProblem& problem,
                                      int query);

// Two panels: the photo with the chosen patch framed, and the photo under the heat (dark blue:
// none, yellow: most). heat: [1 + grid * grid], class token first; its square root is shown, scaled
// by the largest value outside the chosen patch, which would otherwise outshine all others.
Image draw_heat_map(const Image& photo, int grid, int chosen_token,
                    const std::vector<double>& heat);

}  // namespace lab
