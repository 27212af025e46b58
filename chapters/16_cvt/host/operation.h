// One operation's random problem on the device: its steps, and what each must give.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../../../common/lab.cuh"

namespace lab {

// What was compared, and how near it is.
using NamedComparison = std::pair<std::string, Comparison>;

struct OperationLaunch {
  std::string name;
  StepLaunch run;  // as OperationStep::run
  Cost cost;
};

struct OperationStep {
  std::string name;
  bool back = false;  // it computes gradients
  Cost cost;
  StepLaunch run;                            // on copy i, modulo the number of copies
  std::function<NamedComparison()> compare;  // what it left in copy 0, with the reference
  // Its launches, with a scratch that lives as long as they do, where each has a line of its own in the table; else none.
  std::function<std::vector<OperationLaunch>()> launches = [] {
    return std::vector<OperationLaunch>();
  };
};

class Operation {
 public:
  virtual ~Operation() = default;

  // By the CPU: what the steps must give.
  virtual void compute_reference() = 0;
  // What that step will write becomes NaN in copy 0, and what it brings forward is as at the beginning.
  virtual void clear(const OperationStep& step) = 0;
  // What one run left in copy 0, to a file. Throws UsageError where the operation has no such output.
  virtual void write_output(const std::string& path) const = 0;

  std::string shape;                                         // for people
  std::vector<std::pair<std::string, int64_t>> sizes;        // the problem's
  std::vector<std::pair<std::string, std::string>> details;  // more, as JSON text
  std::vector<OperationStep> steps;  // forward, then back; each in the lesson's order
  int copies = 1;                    // copies of its arrays
};

}  // namespace lab
