// The lab, which knows no kernel and no chapter: exit codes, checked CUDA calls, device arrays that
// free themselves, timing, one comparison for everything, and the report.
//
// The bodies are in common/lab/, a file for each subject, with what else programs need: device, ...
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lab {

struct Device;      // lab/device.h
struct ReportHead;  // lab/report.h

// ---- Errors and exit codes ----------------------------------------------------------------------

enum ExitCode { kCorrect = 0, kWrong = 1, kBadUsage = 2, kLacking = 3, kFindings = 86 };

// Throws unless error is cudaSuccess: LackError where the device, the driver, memory or code for
// this device is missing, std::runtime_error otherwise; with file, line, name and meaning.
void check(cudaError_t error, std::source_location where = std::source_location::current());

// ---- Arrays on the device -----------------------------------------------------------------------

enum class MemoryKind { kDevice, kManaged };  // managed: the host may access it, too

// Throws LackError when there is not enough memory; the name is that of DeviceArray.
void* allocate(size_t bytes, const std::string& name, MemoryKind kind);

// An array on the device that frees itself; T is trivially copyable. The name appears in counters
// and messages of the virtual GPU.
template <class T>
class DeviceArray {
 public:
  // Not initialized. Throws LackError when there is not enough memory.
  DeviceArray(size_t count, const std::string& name, MemoryKind kind = MemoryKind::kDevice)
      : data_(static_cast<T*>(allocate(count * sizeof(T), name, kind))), size_(count) {}
  DeviceArray(const std::vector<T>& host, const std::string& name)
      : DeviceArray(host.size(), name) {
    upload(host);
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }  // an error here was reported where it happened

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

  void upload(const std::vector<T>& host) {
    if (host.size() != size_) throw std::invalid_argument("upload of another number of elements");
    check(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> download() const { return download(0, size_); }
  std::vector<T> download(size_t first, size_t count) const {
    if (first + count > size_) throw std::invalid_argument("download beyond the array's end");
    std::vector<T> host(count);
    check(cudaMemcpy(host.data(), data_ + first, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  // All bits one, a NaN in each type: what a kernel does not write never compares as right.
  void fill_nan() { check(cudaMemset(data_, 0xff, size_ * sizeof(T))); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

std::vector<float> to_float(const std::vector<half>& values);

// ---- Timing -------------------------------------------------------------------------------------

// How long a stage took. On a GPU events time it: a sample is one launch, or for a single stage
// below 0.2 ms the mean of as many as fill that time. On the virtual GPU it is the host's wall time.
struct Timing {
  double median_us = 0, min_us = 0, mean_us = 0;
  double spread = 0;         // (90th - 10th percentile) / median; NaN with fewer than 3 samples
  double std_us = 0;         // standard deviation of the samples; NaN with fewer than 2
  double scratch_bytes = 0;  // most that the stages take at a time (cudaMallocAsync); NaN: unknown
  int samples = 0;
  bool host_time = false;
  int stages = 1;  // that were timed with it; of several, each sample has an event's time in it
  // Median when the same calls are replayed from a CUDA graph, which leaves out what calls cost the
  // host; NaN where that was not timed, or could not be: no_graph says why.
  double graph_us = std::numeric_limits<double>::quiet_NaN();
  std::string no_graph;
  std::string counters;  // of the last launch, JSON; empty on a GPU
  std::string profile;   // the same as text
};

// Times stages that run one after the other in one stream, each launch(i) given the iteration's
// number so that it can rotate its buffers. Returns one Timing a stage. A GPU is warmed up for at
// least 0.2 s more, unless warmup is 0. The virtual GPU predicts the last launch of each, unless
// `predicted` is false, for one whose prediction nobody looks at.
using Launch = std::function<void(int iteration)>;
std::vector<Timing> time_stages(const Device& device, const std::vector<Launch>& stages, int warmup,
                                int iterations, bool predicted = true);

// The same for a step as a whole, which launches all it does into the stream it is given and uses
// `copies` of its buffers in turn. On a GPU it is also timed in a CUDA graph, unless warmup is 0.
using StepLaunch = std::function<void(int iteration, cudaStream_t stream)>;
Timing time_step(const Device& device, const StepLaunch& step, int copies, int warmup,
                 int iterations);

// The same for each of a step's launches. The virtual GPU predicts one after the other: each finds in the
// L2 what those before have left.
std::vector<Timing> time_launches(const Device& device, const std::vector<StepLaunch>& launches,
                                  int copies, int warmup, int iterations);

// The same for a step whose launches were timed one by one: on the virtual GPU these have counters
// and predicted times, the step none. With --predict it is not run, its host time is their sum.
Timing time_total(const Device& device, const StepLaunch& step, int copies, int warmup,
                  int iterations, const std::vector<Timing>& launches);

// How many copies of a problem of that many bytes to use in turn, so that none is still in the L2:
// they have twice its size together. At most 64; 1 on the virtual GPU.
int rotation_copies(const Device& device, double bytes);

// ---- Comparison ---------------------------------------------------------------------------------

// |got - expected| <= atol + rtol |expected| for every element, and |got - expected|₂ <=
// relative_l2 |expected|₂ over all. 2^-24 and 2^-11 are the rounding errors of fp32 and fp16.
struct Tolerance {
  double atol = 0, rtol = 0, relative_l2 = 0;

  // A sum of `length` fp32 products whose results reach `magnitude`: length roundings of 2^-24.
  static Tolerance fp32_sum(int64_t length, double magnitude);
  // Softmax of fp32 scores (sums of head_dim products, up to max_score in size) over `tokens`:
  // expf turns the score's absolute error into a relative one, and the sum adds tokens * 2^-24.
  static Tolerance softmax(int64_t head_dim, int64_t tokens, double max_score);
  // A weighted mean of fp16 values up to max_value in size, summed in fp32. Rounding the mean to
  // fp16 makes an error of up to 2^-11 of it. Tensor-core steps round the weights, too, an error of
  // up to 2^-11 max_value. Twice each is allowed. Over all elements roundings of such a size, up and
  // down, give a relative L2 error of about 2e-4 (the programs print it); 1e-3 is allowed.
  static Tolerance fp16_mean(double max_value);
};

struct Comparison {
  bool pass = false;
  int64_t count = 0, bad = 0, not_finite = 0;
  double max_abs_error = 0, relative_l2 = 0;
  std::vector<int64_t> first_bad;  // coordinates; empty when no element is bad
  double expected = 0, got = 0;    // there
  bool skipped = false;            // nothing was compared: `pass` is true, errors are NaN
  static Comparison none();

  // "12 of 151296 wrong (3 not finite), first at [0, 3, 17, 5]: expected 0.12, got nan; ..."
  std::string describe() const;
};

// An array as a comparison reads it: a std::vector of any of these.
using Values = std::variant<std::span<const half>, std::span<const float>, std::span<const double>>;
double max_abs(const Values& values);  // the largest absolute value; 0 of none

// Compares row-major arrays of shape dims. Throws std::invalid_argument where a size is another.
Comparison compare(const Values& got, const Values& expected, const Tolerance& tolerance,
                   const std::vector<int64_t>& dims);

// ---- The report ---------------------------------------------------------------------------------

// Least traffic with DRAM and floating-point operations (a multiply-add is 2).
struct Cost {
  double bytes = 0, flops = 0;
  bool tensor_cores = false;  // they compute: their peak rate makes the bound, not that of fp32
  double tensor_rate = 1;     // of that peak rate, which is that of fp16: 0.5 for tf32
};

// The lines of a program: a table for people, JSON and CSV for programs.
class Report {
 public:
  explicit Report(ReportHead head);
  ~Report();
  Report(Report&&) noexcept;

  // One line, for a step. Its bound is the larger of two times: for the cost's bytes at the peak
  // rate of DRAM, and for its operations at that of the units that compute.
  void add(const std::string& name, const Timing& timing, const Cost& cost,
           const Comparison& comparison);
  // One launch of the step that the next add_total() names; `of`: the comparison is of what this
  // launch wrote, or of what all of that step wrote. Where the line stands for several launches
  // alike, time and cost are those of all, counters those of one.
  enum class Errors { kOfLaunch, kOfStep };
  void add_launch(const std::string& name, const Timing& timing, const Cost& cost,
                  const Comparison& comparison, Errors of, int launches = 1);
  // That step as a whole; its modelled limit is the sum over its launches.
  void add_total(const std::string& name, const Timing& timing, const Cost& cost,
                 const Comparison& comparison);
  // Work outside the steps, such as packing weights once; `comparison` is that of a step.
  void add_beside(const std::string& name, const Timing& timing, const Comparison& comparison);
  // How much faster line `after` is than line `before`, both already added: in time on a GPU, in
  // predicted time on the virtual one, else in modelled limits, for --json alone.
  void add_ratio(const std::string& after, const std::string& before);
  // One more number of a line that is there already, for --json.
  void add_number(const std::string& line, const std::string& name, double value);
  // The predicted time of a line, in microseconds; NaN where there is none.
  double predicted_us(const std::string& line) const;
  void note(const std::string& line);
  // A check that has no line of its own. Where it fails, the report does, and `otherwise` says why.
  void require(bool ok, const std::string& otherwise);

  // Prints table, notes and with --profile counters; writes --json and --csv. Gives the exit code.
  ExitCode finish() const;

 private:
  struct Body;
  Body* body_;  // its own; <memory> would be a fifth of what a chapter's .cu includes
};

}  // namespace lab
