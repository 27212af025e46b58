// What an exercise asks for: its problems with their references, and the counters that earn points.
// The grader knows no chapter; the chapter's exercise.cu fills in a Task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "counters.h"
#include "lab.cuh"

namespace lab::grader {

// One argument of the student's function, in the order of its parameters (the stream comes last and
// is not listed).
struct Argument {
  enum Role { input, output, value } role;
  std::string name;              // what counters and messages call the array
  std::vector<std::byte> bytes;  // what an input or value holds
  bool fp32 = false;             // an output's elements: fp32, or fp16
};

template <class T>
std::vector<std::byte> raw_bytes(const T* first, size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  std::memcpy(bytes.data(), first, bytes.size());
  return bytes;
}
template <class T>
Argument input(const std::string& name, const std::vector<T>& host) {
  return {Argument::input, name, raw_bytes(host.data(), host.size())};
}
// The result, fp16, of the case's dims; full of NaN before the launch.
inline Argument output(const std::string& name) { return {Argument::output, name, {}}; }
// The same in fp32.
inline Argument float_output(const std::string& name) { return {Argument::output, name, {}, true}; }
template <class T>
Argument value(const T& x) {
  return {Argument::value, "", raw_bytes(&x, 1)};
}

// One problem with its reference.
struct Case {
  std::string name;             // "1 head, 17 queries, 33 keys, head_dim 64"
  std::string hint;             // second stage: what to think about when this one goes wrong
  std::string hint_not_finite;  // the same when NaN or an infinity is computed; empty: `hint`
  std::map<std::string, std::string> causes = {};  // the same by a symptom's name: "factor"
  std::vector<std::string> axes = {};              // names of dims: "batch", "head", "query", "d"
  // What tells problems apart: {"keys", 33}; the same names in all problems of a task.
  std::vector<std::pair<std::string, int64_t>> sizes = {};
  // Outputs of likely mistakes, computed when this one goes wrong, and what to say then.
  struct Alternative {
    std::vector<double> output;
    std::string cause;
    bool everywhere = false;  // makes each row so, not some alone: right rows speak against it
  };
  std::function<std::vector<Alternative>()> alternatives = {};
  std::vector<Argument> arguments;  // one of them is the output
  std::vector<int64_t> dims;        // the output's
  Tolerance tolerance;
  std::vector<double> expected;  // row-major, of shape dims
};

// What a counter must be for its points.
struct Aim {
  std::string name;  // "bytes of K and V that are loaded"
  int points;
  enum Relation { at_most, at_least, exactly } relation;
  double limit;  // NaN never passes
  std::function<double(const Counters&)> value;
  std::string hint;
  enum Unit { number, bytes, share } unit = number;  // the unit in which it is shown
  // For at_most: less than this is less than the work needs, and never passes.
  double floor = 0;
};

// One file that is graded.
struct Task {
  std::string title;       // "Exercise 1: cross-attention"
  std::string folder;      // "chapters/01_naive_attention"
  std::string file;        // "exercise.cuh", in place()
  std::string solution;    // "solution.cuh", or empty
  std::string name_space;  // the namespace that the file fills: "exercise"
  std::string parameters;  // the function's: "const half*, const half*, ..., cudaStream_t"
  std::function<std::vector<Case>()> cases;
  std::function<Case()> measured;  // the problem whose counters are looked at
  std::vector<Aim> aims;           // together 50 points
  std::string schedule = "";       // "random:SEED": an order of warps that shows a race in results
  std::string function = "attention";  // the function in the namespace that is called
  // The file has holes to fill, each of which may be right. Without, it has a mistake to be found:
  // no points before all problems are right, since most of the file is as it should be.
  bool holes = true;
  // What to think about when elements of the output are never written.
  std::string unwritten_hint =
      "has each query row a block that takes it, the last rows too, and each element of the row a "
      "lane that stores it?";

  std::string place() const { return folder + "/exercise"; }
};

}  // namespace lab::grader
