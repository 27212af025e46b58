// Files of tensors: safetensors and NumPy's .npy.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lab {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
  std::string dtype = "F16";  // as in the file: F16 or F32
};
using NamedTensor = std::pair<std::string, Tensor>;

// The named tensors of a safetensors file, required ones first; an optional one that is not there
// has no values. The whole header is checked (format: huggingface/safetensors, README.md): its
// length, depth and JSON, and that the tensors tile the data exactly. Throws UsageError naming
// file, tensor and reason.
std::vector<Tensor> read_safetensors(const std::string& path,
                                     const std::vector<std::string>& required,
                                     const std::vector<std::string>& optional = {});
// A tensor of I64, I32, F32 or F16, each number as it is: those of a program's sizes, which may be of
// any of these types. Throws UsageError as read_safetensors() does.
struct Numbers {
  std::vector<int64_t> shape;
  std::vector<long double> values;  // row-major
};
Numbers read_numbers(const std::string& path, const std::string& name);
// Atomically; throws UsageError.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;  // row-major
};
// A NumPy .npy file, versions 1 to 3, little-endian f2, f4, f8, C order. Throws UsageError.
Array read_npy(const std::string& path);

// A shape in words, for messages: "[2, 3, 64]".
std::string shape_text(const std::vector<int64_t>& shape);

// Whether an optional tensor was in the file, if only with a shape that has no elements.
bool is_there(const Tensor& tensor);

}  // namespace lab
