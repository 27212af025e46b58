// What timing is made of; lab.cuh has the functions that programs call.
#pragma once

#include "lab.cuh"

namespace lab {

// Calls round(0), round(1), ... `rounds` times and then, unless that is 0, for at least `ms`
// milliseconds: a GPU that was idle needs that long to raise its clocks. finish() waits for what
// they launched. Returns how often.
int warm_up(const std::function<void(int)>& round, const std::function<void()>& finish, int rounds,
            double ms);

// Median, least, mean and spread of at least one sample, in microseconds.
Timing statistics(std::vector<double> samples_us, bool host_time);

// How long it took: measured on a GPU, on the virtual one predicted; NaN where that is not known.
double microseconds(const Device& device, const Timing& timing);

// Times a part of a program as its host sees it: calls, copies, kernels and waits. It returns when all
// that it launched is over. On a GPU that is wall time. On the virtual GPU the last iteration is
// predicted, on the clock that timelines show, and wall time is host_time.
Timing time_program(const Device& device, const std::function<void()>& program, int warmup,
                    int iterations);

// What calls of a step launch, captured in one CUDA graph. Memory that they take and give back in
// stream order becomes nodes of it.
class StepGraph {
 public:
  // Calls step(0, stream), ..., step(calls - 1, stream).
  StepGraph(const StepLaunch& step, int calls);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Why these calls are no graph, in words; empty where they are.
  const std::string& refusal() const { return refusal_; }
  void replay();  // into stream(); throws std::runtime_error where there is no graph
  cudaStream_t stream() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  std::string refusal_;
};

}  // namespace lab
