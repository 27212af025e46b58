// Problems of chapter 16's dense operations: arrays, steps on them, and what each must give.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../../../common/lab.cuh"
#include "reference.h"

namespace lab::dense {

using cvt::reference::Array;

// By name: each begins with random numbers or, where there are none, with NaN.
using Arrays = std::map<std::string, DeviceArray<float>>;

struct Expected {
  std::string name;
  Array values;  // empty with --predict
  Tolerance tolerance;
};
struct Step {
  std::string name;
  std::function<void(Arrays& arrays, cudaStream_t stream)> run;
  Cost cost;
  std::string direction;  // whose results it must give: "forward" or "back"
};
struct DenseProblem {
  std::string shape;                                   // for people
  std::vector<std::pair<std::string, int64_t>> sizes;  // the problem's
  std::map<std::string, std::vector<float>> inputs;
  std::map<std::string, size_t> outputs;
  std::vector<Step> steps;  // forward: naive, then ours; back likewise
  std::map<std::string, std::function<std::vector<Expected>()>> expected;  // by direction
};

// preset: small, cvt13-1, cvt13-2 or cvt13-3; batch: in place of the preset's, 0: the preset's.
DenseProblem linear_problem(const std::string& preset, int batch, uint64_t seed);
DenseProblem layer_norm_problem(const std::string& preset, int batch, uint64_t seed);
DenseProblem attention_problem(const std::string& preset, int batch, uint64_t seed);
DenseProblem embedding_problem(const std::string& preset, int batch, uint64_t seed);

}  // namespace lab::dense
