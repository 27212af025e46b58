// What the C functions share: a call that checks its tensors, and turns exceptions into a status
// and words.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "operators.h"

namespace operators {

// A dimension of a tensor: what it is called, and how long it must be (-1: as long as it is).
struct Size {
  const char* name;
  int64_t must_be = -1;
};
using Sizes = std::vector<Size>;

// The checks of one call of `function`. All its arrays must lie on the device of the first one,
// which is the current device until the call ends. Everything throws std::invalid_argument with the
// function's name, the tensor's, the wrong value and what would be right.
class Call {
 public:
  explicit Call(const char* function);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The address of a tensor of elements T, contiguous, of those sizes, at a multiple of `alignment`
  // bytes (of the element's size, where that is 0).
  template <class T>
  const T* input(const char* name, const vision_tensor* tensor, const Sizes& sizes,
                 int alignment = 0) {
    return static_cast<const T*>(check(name, tensor, type_of<T>(), sizes, alignment, false));
  }
  // The same of one that is written: it may overlap no other.
  template <class T>
  T* output(const char* name, const vision_tensor* tensor, const Sizes& sizes, int alignment = 0) {
    return static_cast<T*>(check(name, tensor, type_of<T>(), sizes, alignment, true));
  }
  // Those that may be null, which they then are.
  template <class T>
  const T* optional_input(const char* name, const vision_tensor* tensor, const Sizes& sizes,
                          int alignment = 0) {
    return tensor ? input<T>(name, tensor, sizes, alignment) : nullptr;
  }
  template <class T>
  T* optional_output(const char* name, const vision_tensor* tensor, const Sizes& sizes,
                     int alignment = 0) {
    return tensor ? output<T>(name, tensor, sizes, alignment) : nullptr;
  }

  // A tensor's size as an int, which is read before the tensor as a whole is checked: it must be
  // there and have that many dimensions.
  int size(const char* name, const vision_tensor* tensor, const Sizes& sizes, int dimension);
  // The type of a tensor, float16 or float32.
  vision_type float_type(const char* name, const vision_tensor* tensor);
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  struct Range {
    std::string name;
    uintptr_t begin, end;
    bool written;
  };
  template <class T>
  static vision_type type_of() {
    static_assert(std::is_same_v<T, half> || std::is_same_v<T, float>);
    return std::is_same_v<T, half> ? VISION_FLOAT16 : VISION_FLOAT32;
  }
  void* check(const char* name, const vision_tensor* tensor, vision_type type, const Sizes& sizes,
              int alignment, bool written);
  void check_dimensions(const char* name, const vision_tensor* tensor, const Sizes& sizes) const;
  void check_place(const char* name, const vision_tensor* tensor);

  std::string function_;
  std::vector<Range> ranges_;
  std::string first_;             // the tensor that chose the device
  int device_ = -1, before_ = 0;  // the device of the arrays, and the caller's
};

// Scratch memory on a stream. Throws std::runtime_error where there is none.
class Scratch {
 public:
  Scratch(int64_t bytes, cudaStream_t stream);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(address_);
  }

 private:
  void* address_ = nullptr;
  cudaStream_t stream_;
};

// Runs `body`. Returns the status that stands for what it throws, whose words vision_last_message()
// then gives.
int guarded(const std::function<void()>& body);
// Throws std::runtime_error naming what CUDA refused.
void require(cudaError_t error, const char* what);

}  // namespace operators
