// The online softmax: chapter 2's second idea, which chapters 3 to 6 take over as it is.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

namespace tiling {

// The softmax of one row whose scores come tile by tile, owned by kLanes neighbouring lanes that
// hold different keys. Scores are in units of log2: a weight is 2^(score - row_max).
// (M. Milakov, N. Gimelshein: Online normalizer calculation for softmax, 2018.)
template <int kLanes>
struct OnlineSoftmax {
  float row_max = -INFINITY;  // the largest score so far, the same in all lanes
  float row_sum = 0.0f;       // the sum of this lane's weights so far

  // Turns scores into weights and returns the factor, at most 1, by which all earlier sums must be
  // multiplied. At least one score of the row is not -inf.
  template <int kCount>
  __device__ float update(float (&scores)[kCount]) {
    float new_max = row_max;
    for (const float score : scores) new_max = fmaxf(new_max, score);
    for (int step = kLanes / 2; step > 0; step /= 2)
      new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, step));
    const float factor = exp2f(row_max - new_max);
    row_max = new_max;
    row_sum *= factor;
    for (float& score : scores) {
      score = exp2f(score - new_max);
      row_sum += score;
    }
    return factor;
  }

  // 1 / (sum of all weights): the factor at the end.
  __device__ float inverse_sum() const {
    float sum = row_sum;
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return 1.0f / sum;
  }
};

}  // namespace tiling
