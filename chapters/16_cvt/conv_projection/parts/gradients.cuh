// What both ways to the gradients read and write.
#pragma once

#include "moments.cuh"

namespace conv_projection {

// What a backward pass reads and writes; shapes as cvt::projection_backward() says.
template <class T>
struct BackwardArrays {
  const T* x;
  Three<const T*> maps, dmaps;
  Weights weights;
  Saved saved;
  T* dx;
  Gradients gradients;
  bool constant;  // statistics that are not the batch's: mean and deviation have no gradient
};
template <class T>
BackwardArrays<T> backward_arrays(const T* x, const T* const maps[3], const Weights& weights,
                                  const Saved& saved, const T* const dmaps[3], T* dx,
                                  const Gradients& gradients, const Shape& shape,
                                  bool constant = false) {
  BackwardArrays<T> a{x, {}, {}, weights, saved, dx, gradients, constant};
  require_pointers(shape, {x, dx});
  for (int i = 0; i < 3; ++i) {
    require_pointers(shape,
                     {maps[i], dmaps[i], weights.w[i], saved.mean[i], saved.inverse_deviation[i],
                      saved.factor[i], gradients.w[i], gradients.scale[i], gradients.shift[i]});
    a.maps.of[i] = maps[i];
    a.dmaps.of[i] = dmaps[i];
  }
  return a;
}

}  // namespace conv_projection
