// Arrays on the device: what the tests of whole programs share.
#pragma once
#include <doctest/doctest.h>

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#define CHECK_OK(call) CHECK(std::string(cudaGetErrorString(call)) == "no error")

namespace vgpu_tests {

template <class T>
T* empty(std::size_t count) {
  T* p = nullptr;
  CHECK_OK(cudaMalloc(&p, count * sizeof(T)));
  return p;
}
template <class T>
T* device(const std::vector<T>& values) {
  T* const p = empty<T>(values.size());
  CHECK_OK(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}
template <class T>
std::vector<T> host(const T* p, std::size_t count) {
  std::vector<T> values(count);
  CHECK_OK(cudaMemcpy(values.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

}  // namespace vgpu_tests
