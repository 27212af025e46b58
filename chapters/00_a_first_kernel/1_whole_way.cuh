// The whole way of a photo: from the host's memory to the device's, through a kernel, and back.
#pragma once

#include "3_grey_rows.cuh"

namespace first_kernel {

// photo [3, height, width] and grey [height, width] are in the host's memory. Throws as grey_rows does.
inline void grey_of_host(const unsigned char* photo, unsigned char* grey, const Shape& shape) {
  const size_t pixels = shape.pixels();
  // Pointers into the device's memory: the host cannot read through them.
  unsigned char *photo_there = nullptr, *grey_there = nullptr;
  const auto on_device = [&] {
    require_done(cudaMalloc(&photo_there, 3 * pixels), shape);
    require_done(cudaMalloc(&grey_there, pixels), shape);
    require_done(cudaMemcpy(photo_there, photo, 3 * pixels, cudaMemcpyHostToDevice), shape);
    // Returns at once, while the kernel runs. The copy behind it waits for the kernel's end.
    grey_rows(photo_there, grey_there, shape, nullptr);
    require_done(cudaMemcpy(grey, grey_there, pixels, cudaMemcpyDeviceToHost), shape);
  };
  const auto free_all = [&] { cudaFree(photo_there), cudaFree(grey_there); };
  try {
    on_device();
  } catch (...) {
    free_all();
    throw;
  }
  free_all();
}

}  // namespace first_kernel
