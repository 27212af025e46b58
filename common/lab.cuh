// The lab: what every chapter's program and test needs around a kernel. Checked CUDA calls, device
// arrays that free themselves, timing, one comparison for everything, inputs that tell right from
// wrong, pictures, tensor files, flags and the report. No kernel and no chapter is known here; the
// bodies stand in common/lab*.cpp, which only the host compiler sees.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shapes.h"

namespace lab {

// ---- Errors and exit codes ----------------------------------------------------------------------

enum ExitCode { kCorrect = 0, kWrong = 1, kBadUsage = 2, kLacking = 3, kFindings = 86 };

// Bad usage or input: the message says what was wrong, with the value, and what would be right.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This device or machine lacks what is asked.
struct LackError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws unless error is cudaSuccess: LackError where the device, the driver, memory or code for
// this device is missing, std::runtime_error otherwise; with file, line, name and meaning.
void check(cudaError_t error, std::source_location where = std::source_location::current());

// ---- The device ---------------------------------------------------------------------------------

struct Device {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sm_count = 0;
  bool is_virtual = false;  // the virtual GPU: no time of its own, but counters
  double memory_bytes = 0, l2_bytes = 0;
  double clock_hz = 0;          // peak SM clock
  double dram_bytes_per_s = 0;  // ceilings for "share of the bound"; 0 where unknown
  double fp32_flop_per_s = 0;
  double tensor_flop_per_s = 0;  // fp16 products, fp32 sums
  std::string ceilings;  // where these two come from
};

// Device 0. Throws LackError in words when there is none.
Device open_device();

// Throws LackError when device_bytes and host_bytes are not free, before anything is taken. On the
// virtual GPU both come out of the host's memory.
void require_memory(const Device& device, double device_bytes, double host_bytes,
                    const std::string& what);

// The virtual GPU's optional functions (common/vgpu), found at run time. On a real GPU present() is
// false and the others do nothing and return nothing (NaN, "", 0).
namespace vgpu {
bool present();
void name_allocation(const void* pointer, const std::string& name);
void set_counters(bool on);
void set_cache_model(bool on);  // hit rates among the counters; an order of magnitude slower
double counter(const std::string& json_pointer);  // of the last launch: "/global/load/sectors"
std::string launch_json();
std::string launch_report();
int findings();  // races, reads of what nobody wrote, missed barriers so far
}  // namespace vgpu

enum class MemoryKind { kDevice, kManaged };  // managed: the host may look at it, too

// An array on the device that frees itself; T is trivially copyable. The name appears in counters
// and messages of the virtual GPU.
template <class T>
class DeviceArray {
 public:
  // Not initialized. Throws LackError when the memory is not there.
  DeviceArray(size_t count, const std::string& name, MemoryKind kind = MemoryKind::kDevice)
      : size_(count) {
    void** const data = reinterpret_cast<void**>(&data_);
    check(kind == MemoryKind::kDevice ? cudaMalloc(data, count * sizeof(T))
                                      : cudaMallocManaged(data, count * sizeof(T)));
    vgpu::name_allocation(data_, name);
  }
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
  // All bits one is a NaN in fp16, bf16, fp32 and fp64: what a kernel leaves out is found.
  void fill_nan() { check(cudaMemset(data_, 0xff, size_ * sizeof(T))); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// ---- Timing -------------------------------------------------------------------------------------

// What a kernel took. On a GPU, events: each sample is one launch, or for a single stage shorter
// than 0.2 ms the mean of as many as fill that. On the virtual GPU, wall time on the host.
struct Timing {
  double median_us = 0, min_us = 0, mean_us = 0;
  double spread = 0;  // (90th - 10th percentile) / median; NaN with fewer than 3 samples
  double std_us = 0;  // standard deviation of the samples; NaN with fewer than 2
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
// least 0.2 s more, unless warmup is 0.
using Launch = std::function<void(int iteration)>;
std::vector<Timing> time_stages(const Device& device, const std::vector<Launch>& stages, int warmup,
                                int iterations);

// The same for a step as a whole, which launches all it does into the stream it is given and uses
// `copies` of its buffers in turn. On a GPU it is also timed in a CUDA graph, unless warmup is 0.
using StepLaunch = std::function<void(int iteration, cudaStream_t stream)>;
Timing time_step(const Device& device, const StepLaunch& step, int copies, int warmup,
                 int iterations);

// Copies of a problem of that many bytes that, used in turn, do not stay in the L2 (twice its
// size); 1 on the virtual GPU.
int rotation_copies(const Device& device, double bytes);

// ---- Comparison ---------------------------------------------------------------------------------

// |got - expected| <= atol + rtol |expected| for every element, and |got - expected|₂ <=
// relative_l2 |expected|₂ over all. 2^-24 and 2^-11 are the rounding errors of fp32 and fp16.
struct Tolerance {
  double atol = 0, rtol = 0, relative_l2 = 0;

  // A sum of `length` fp32 products whose results reach `magnitude`: length roundings of 2^-24.
  static Tolerance fp32_sum(int64_t length, double magnitude);
  // Softmax of fp32 scores (sums of head_dim products, up to max_score in size) over `tokens`:
  // expf turns the score's absolute error into a relative one, the sum adds tokens 2^-24.
  static Tolerance softmax(int64_t head_dim, int64_t tokens, double max_score);
  // Attention in fp16 with fp32 accumulation: the output and (in the tensor-core steps) the weights
  // are rounded to fp16, twice that is allowed; an output is a weighted mean of V, so that the
  // error of the weights scales with max|V|.
  static Tolerance attention(double max_value);
};

struct Comparison {
  bool pass = false;
  int64_t count = 0, bad = 0, not_finite = 0;
  double max_abs_error = 0, relative_l2 = 0;
  std::vector<int64_t> first_bad;  // coordinates; empty when no element is bad
  double expected = 0, got = 0;    // there

  // "12 of 151296 wrong (3 not finite), first at [0, 3, 17, 5]: expected 0.12, got nan; ..."
  std::string describe() const;
};

// Gathers a comparison piece by piece, in double. A NaN or infinity on the got side is bad,
// whatever the tolerance; an empty comparison does not pass.
class Comparer {
 public:
  Comparer(const Tolerance& tolerance, std::vector<int64_t> dims);
  void add(const double* got, const double* expected, size_t count);
  Comparison result() const;  // throws std::invalid_argument unless all of dims was added

 private:
  Tolerance tolerance_;
  std::vector<int64_t> dims_;
  Comparison so_far_;
  int64_t first_bad_ = -1;
  double error_squared_ = 0, expected_squared_ = 0;
};

inline double to_double(half value) { return __half2float(value); }
inline double to_double(double value) { return value; }

// Compares two arrays of shape dims (any of half, float, double), both row-major.
template <class Got, class Expected>
Comparison compare(const std::vector<Got>& got, const std::vector<Expected>& expected,
                   const Tolerance& tolerance, std::initializer_list<int64_t> dims) {
  if (got.size() != expected.size())
    throw std::invalid_argument("compare: " + std::to_string(got.size()) + " elements with " +
                                std::to_string(expected.size()));
  Comparer comparer(tolerance, dims);
  std::array<double, 1024> g, e;
  for (size_t first = 0; first < got.size(); first += g.size()) {
    const size_t count = std::min(g.size(), got.size() - first);
    for (size_t i = 0; i < count; ++i) g[i] = to_double(got[first + i]);
    for (size_t i = 0; i < count; ++i) e[i] = to_double(expected[first + i]);
    comparer.add(g.data(), e.data(), count);
  }
  return comparer.result();
}

// ---- Images -------------------------------------------------------------------------------------

struct Image {
  int width = 0, height = 0;       // pixels
  std::vector<unsigned char> rgb;  // [height, width, 3]
};

// PNG or JPEG. Throws UsageError that names the file and the reason: missing, a folder, empty, no
// image, truncated, too large.
Image load_image(const std::string& path);
// By the name's ending .png, .jpg or .jpeg; atomically. Throws UsageError.
void save_image(const std::string& path, const Image& image);
// The largest centred square, resized to size x size pixels.
Image square(const Image& image, int size);
// Two panels: the photo with the chosen patch framed, and the photo under the heat (dark blue:
// none, yellow: most). heat: [1 + grid * grid], class token first; its square root is shown, scaled
// by the largest value outside the chosen patch, which would otherwise outshine all others.
Image draw_heat_map(const Image& photo, int grid, int chosen_token,
                    const std::vector<double>& heat);

// ---- Tensor files -------------------------------------------------------------------------------

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

// ---- Problems -----------------------------------------------------------------------------------

struct AttentionProblem {
  AttentionShape shape;
  std::vector<half> q, k, v;  // [batch, heads, tokens, head_dim]
  std::string source;         // "photo chelsea.png, 224 x 224", for people
  Image photo;                // squared; empty when there is no picture to draw
  int grid = 0;               // patches a side of that photo
  int chosen_token = 0;       // query whose attention is drawn
};

// Seeded Q, K, V that tell a wrong kernel from a right one: every query looks for one key of its
// own (a random permutation) and gives it about half of its weight, V has zero mean. So a mean over
// V, a dropped key, a shifted row or another head is far off.
AttentionProblem random_attention(const AttentionShape& shape, uint64_t seed);

// A photo as Vision Transformers see it: squared to size (a multiple of 16) pixels, cut in 16 x 16
// patches of 768 values in the order (channel, row, column), the class token (the patches' mean)
// first, 12 heads of 64. Each (token, head) vector is made zero-mean with length 8, so that the
// scores are peaked; Q = K = V. Image b > 0 of the batch is the photo shifted cyclically by an
// offset drawn from the seed, so that no two are alike.
AttentionProblem photo_attention(const Image& photo, int size, int batch, uint64_t seed);

std::vector<float> to_float(const std::vector<half>& values);

// Q, K, V and O on the device, in as many copies as rotation needs; copy 0 is the checked one.
struct AttentionArrays {
  DeviceArray<half> Q, K, V, O;
};
std::vector<AttentionArrays> upload(const AttentionProblem& problem, int copies);

// The type of every attention step; see chapters/01_naive_attention/kernel.cuh.
using AttentionFunction = void (*)(const half* Q, const half* K, const half* V, half* O,
                                   const AttentionShape& shape, cudaStream_t stream);

// Attention weights of one query of image 0, mean over the heads, [tokens], read off the kernel
// itself: with one-hot V its outputs are weights, head_dim of them a launch.
std::vector<double> attention_weights(AttentionFunction attention, const AttentionProblem& problem,
                                      int query);

// ---- Flags, report, program ---------------------------------------------------------------------

struct Options {
  int batch = 0, warmup = -1, iterations = 0;  // by default the device decides
  int heads = 12, tokens = 197, head_dim = 64;
  int size = 224;  // pixels of the squared photo
  uint64_t seed = 1;
  std::string image, patch, out = "attention.png";
  std::string input, prefix, output, json, csv;
  bool random = false, profile = false, all = false;
};

// Throws UsageError for anything that is not right; prints the help and exits with 0 for --help.
Options parse_options(int argc, const char* const* argv, const std::string& about);

// Least traffic with DRAM and floating-point operations (a multiply-add is 2).
struct Cost {
  double bytes = 0, flops = 0;
  bool tensor_cores = false;  // who computes: the bound is theirs
  double tensor_rate = 1;     // beside products of fp16: 0.5 for tf32
};

// Everything that a chapter gets.
struct Run {
  std::string chapter;  // "01_naive_attention"
  Options options;      // complete
  Device device;
  AttentionProblem problem;
};

// What a report says of the run behind it, whatever its problem is.
struct ReportHead {
  std::string chapter;
  Options options;
  Device device;
  std::string source;                                        // of the problem, for people
  std::string shape;                                         // so too, with all that matters
  std::vector<std::pair<std::string, int64_t>> sizes;        // of the problem: JSON and CSV
  std::vector<std::pair<std::string, std::string>> details;  // more, as JSON text: JSON alone
};

class Report {
 public:
  explicit Report(const Run& run);
  explicit Report(ReportHead head) : head_(std::move(head)) {}

  // One line, a step's. Its bound is the larger of the two times that cost takes at the ceilings.
  void add(const std::string& name, const Timing& timing, const Cost& cost,
           const Comparison& comparison);
  // A launch of the step that add_total() names next. What it wrote is compared, or what all
  // launches of that step wrote together: `of` says whose errors these are.
  enum class Errors { kOfLaunch, kOfStep };
  void add_launch(const std::string& name, const Timing& timing, const Cost& cost,
                  const Comparison& comparison, Errors of);
  // That step as a whole; its modelled limit is the sum over its launches.
  void add_total(const std::string& name, const Timing& timing, const Cost& cost,
                 const Comparison& comparison);
  // What is done beside the steps, as once before all of them; `comparison` is that of a step.
  void add_beside(const std::string& name, const Timing& timing, const Comparison& comparison);
  // How much faster the line `after` is than the line `before`, both already added: in time on a
  // GPU, in modelled limits on the virtual one.
  void add_ratio(const std::string& after, const std::string& before);
  // One more number of a line that is there already, for --json.
  void add_number(const std::string& line, const std::string& name, double value);
  void note(const std::string& line) { notes_.push_back(line); }
  // A check that has no line of its own: the note appears only where it fails.
  void require(bool ok, const std::string& otherwise);

  // Prints the table, the notes and with --profile the counters; writes --json and --csv. Returns
  // the exit code.
  ExitCode finish() const;

 private:
  enum class Kind { kStep, kLaunch, kTotal, kBeside };
  struct Row {
    std::string name;
    Timing timing;
    Cost cost;
    Comparison comparison;
    Kind kind;
    Errors errors = Errors::kOfLaunch;  // of what this line wrote itself
    std::vector<std::pair<std::string, double>> numbers = {};
  };
  std::vector<size_t> launches_of(size_t row) const;  // of a total; of a step, itself
  std::vector<size_t> order() const;                  // of the table: a step before its launches
  std::string table() const;
  std::string lines() const;
  std::vector<std::string> cells(size_t row) const;
  std::string ratio_notes() const;
  std::string ratio_of(const std::string& name) const;
  std::string timing_notes() const;
  std::string json() const;
  std::string csv() const;
  double modelled_limit_us(size_t row) const;
  size_t row_of(const std::string& name) const;
  struct Ratio {
    std::string after, before;
    double before_us, after_us;
  };
  ReportHead head_;
  std::vector<Row> rows_;
  std::vector<Ratio> ratios_;
  std::vector<std::string> notes_;
  bool failed_ = false;
};

// The chosen query's heat map of `attention` to options.out and the output to options.output.
void write_outputs(const Run& run, AttentionFunction attention, const std::vector<half>& output,
                   Report& report);

struct AttentionChapter {
  const char* name;                                       // "01_naive_attention"
  const char* about;                                      // a sentence for --help
  int64_t (*scratch_bytes)(const AttentionShape& shape);  // device memory beyond Q, K, V and O
  ExitCode (*run)(const Run& run);
};

// main() of chapters 1 to 6: flags, input, device and memory in that order, then the chapter;
// errors become one line on stderr and the exit code.
int attention_main(int argc, char** argv, const AttentionChapter& chapter);

// Calls program() and returns its exit code; what it throws becomes one line on stderr and a code.
int guarded_main(const char* chapter, const std::function<ExitCode()>& program);

// ---- The ladder of attention steps --------------------------------------------------------------

// A step that a chapter's program runs: its own or, to compare with, the one before.
struct LadderStep {
  std::string name;
  AttentionFunction attention;
  bool tensor_cores = false;
  // The launches that attention() consists of, by name, where there are several.
  std::vector<std::pair<std::string, std::function<void(AttentionArrays&)>>> stages = {};
};

// Compares each step with the reference, times it, and reports it and its ratio to the step before
// it; the heat map and the output are the last step's.
ExitCode run_ladder(const Run& run, const std::vector<LadderStep>& steps);

// "4 warps: 127 registers, 45 KiB shared: an SM holds 4 blocks, 16 of 64 warps", from the CUDA
// runtime.
std::string describe_occupancy(const std::string& name, const void* kernel, int threads,
                               int shared_bytes);
// --all: runs the programs of chapters 1 to 6 that stand beside this one with the same arguments,
// and prints and writes (--json) their own lines as one ladder. Returns the worst of their codes.
ExitCode run_all(int argc, char** argv, const Options& options);

// A path inside the repository, found from the executable's place or the current folder.
std::string repository_path(const std::string& relative);

}  // namespace lab
