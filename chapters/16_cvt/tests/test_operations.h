// An operation of chapter 16 under suspicion: inputs on the device, outputs full of NaN between
// guard areas, what each must hold.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../../common/testing/testing.h"
#include "../host/reference.h"
#include "../operations/operations.h"

namespace cvt::testing {

using lab::testing::Verdict;
using reference::Array;

struct Input {
  std::string name;
  std::vector<float> values;  // empty: a null pointer
};
struct Output {
  std::string name;
  Array expected;
  lab::Tolerance tolerance;
  std::vector<float> before = {};  // what is there; empty: NaN
};
struct Trial {
  std::string name;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
};
using Operation = std::function<void(const std::vector<const float*>& inputs,
                                     const std::vector<float*>& outputs, cudaStream_t stream)>;

struct Outcome : Verdict {
  std::vector<std::vector<float>> outputs;
};
// shift: by how many numbers arrays begin behind a multiple of 256 bytes; inputs are counted first.
Outcome run_trial(const Operation& operation, const Trial& trial,
                  const lab::testing::Shift& shift = {});
// Right, and from a CUDA graph the same bits.
void check_trial(const Operation& operation, const Trial& trial,
                 const lab::testing::Shift& shift = {});
// Right where one array, each in turn, does not begin at a multiple of 16 bytes.
void check_moved_arrays(const Operation& operation, const Trial& trial);

// Normal numbers times `size`, plus `middle`, as tf32 has them: products in tf32 are exact then,
// and only sums are rounded.
std::vector<float> numbers(size_t count, uint64_t seed, double size = 1, double middle = 0);
Array widened(const std::vector<float>& values);

// Sums of `length` products of numbers up to `left` and `right` in size, in fp32.
lab::Tolerance for_sums(int length, const Array& left, const Array& right);

}  // namespace cvt::testing
