// What the tests of kernels share: cases with their expected output, planted bugs, and programs run
// as their users run them. Plain declarations around lab.cuh; no test framework.
#pragma once

#include <cstring>
#include <optional>
#include <tuple>

#include "lab.cuh"
#include "lab/temporary_folder.h"

namespace lab::testing {

// True where there is a GPU, real or virtual.
bool has_device();

// ---- Running a kernel under suspicion -----------------------------------------------------------

struct Verdict {
  Comparison comparison;
  // What first proves the kernel wrong, empty when nothing does:
  //   "error"      CUDA reported one, or the launch function threw
  //   "guard"      it wrote beyond the output, or into its inputs
  //   "not finite" a NaN or infinity, for example an element that was never written
  //   "element"    an element beyond its tolerance
  //   "norm"       only the relative L2 error
  std::string caught_by;
  std::string details;

  // From the comparison; `untouched`: guard areas and inputs are as they were.
  void judge(bool untouched);
};
// By how many elements the arrays of a run start beyond where an allocation would: each of them, or only
// the one of this number.
struct Shift {
  Shift(int elements = 0, int only = -1)
      : elements(elements), only(only) {}  // NOLINT: an int is one
  int elements, only;
  int of(int array) const { return only < 0 || only == array ? elements : 0; }
};

// An output under suspicion: `count` elements on the device between two guard areas, all of them NaN
// until somebody writes there. Without a shift it has the alignment of an allocation; `shift` is how
// many elements it starts beyond that.
template <class T>
class GuardedOutput {
 public:
  GuardedOutput(size_t count, const std::string& name, int shift = 0)
      : before_(kGuard + shift), all_(before_ + count + kGuard, name) {
    all_.fill_nan();
  }
  T* data() { return all_.data() + before_; }
  // What was written, into `output`; true where the guard areas are as they were.
  bool download(std::vector<T>& output) const {
    const std::vector<T> all = all_.download();
    output.assign(all.begin() + before_, all.end() - kGuard);
    const std::vector<unsigned char> nan(before_ * sizeof(T), 0xff);
    return std::memcmp(all.data(), nan.data(), nan.size()) == 0 &&
           std::memcmp(&*(all.end() - kGuard), nan.data(), kGuard * sizeof(T)) == 0;
  }

 private:
  static constexpr ptrdiff_t kGuard = 256;  // elements on either side
  ptrdiff_t before_;
  DeviceArray<T> all_;
};

// An input that a kernel must leave as it is; a null pointer where there are no values. `values` must
// outlive this; `shift` as in GuardedOutput.
template <class T>
class GuardedInput {
 public:
  GuardedInput(const std::vector<T>& values, const std::string& name, int shift = 0)
      : values_(values), shift_(shift), array_(values.size() + shift, name) {
    std::vector<T> padded(shift);
    padded.insert(padded.end(), values.begin(), values.end());
    if (!padded.empty()) array_.upload(padded);
  }
  const T* data() const { return values_.empty() ? nullptr : array_.data() + shift_; }
  bool untouched() const {
    if (values_.empty()) return true;
    const std::vector<T> now = array_.download(shift_, values_.size());
    return std::memcmp(now.data(), values_.data(), now.size() * sizeof(T)) == 0;
  }

 private:
  const std::vector<T>& values_;
  int shift_;
  DeviceArray<T> array_;
};

// Calls launch() and waits for what it launched. Where CUDA reports an error or launch() throws,
// returns false, with "error" and the words in the verdict.
bool ran(const std::function<void()>& launch, Verdict& verdict);

// Captures what launch(stream) does in a CUDA graph, replays it and waits. Throws std::runtime_error
// with the reason where it cannot be captured.
void replay_once(const std::function<void(cudaStream_t stream)>& launch);
// A function whose last argument is a stream, as one that is replayed from such a graph.
template <class Function>
auto in_a_graph(const Function& function) {
  return [=](auto... arguments) {
    auto all = std::make_tuple(arguments...);
    replay_once([&](cudaStream_t stream) {
      std::get<sizeof...(arguments) - 1>(all) = stream;
      std::apply(function, all);
    });
  };
}

// ---- Planted bugs -------------------------------------------------------------------------------

// One mistake in a kernel file: `find`, which must be there exactly once, becomes `replace`.
struct Mutant {
  std::string name, find, replace;
  std::string caught_by;  // as in Verdict
};

// The mistakes of a chapter's tests/planted.json that its tests plant, in its order: the entries of that
// group. `make mutants` plants all entries. chapter: "02_tiling". Throws std::runtime_error when there
// are none.
std::vector<Mutant> planted_bugs(const std::string& chapter, const std::string& group);

// The file of a chapter's step or variant: "chapters/07_x/2_wide_loads.cuh" for "chapters/07_x" and
// "wide_loads". Throws std::runtime_error when there is none.
std::string step_file(const std::string& chapter, const std::string& step);

// The kernels of a file as it is (number 0) and with each of the mutants in turn (number 1, ...),
// compiled to PTX for device 0 by one call of nvcc (environment NVCC, NVCC_FLAGS; PATH otherwise)
// and loaded. Throws std::runtime_error when a mutant does not apply or does not compile.
class Mutants {
 public:
  // file: "chapters/01_naive_attention/kernel.cuh"; name_space: the namespace that it fills;
  // instances: code behind it in that namespace, for templates that the file itself does not use.
  // kKernelsOnly: what stands behind the file's last kernel, launch functions, is left out, and with
  // it the instances that only they need; so it is in files of the namespace that it includes. A
  // mistake cannot be planted there.
  enum Part { kWholeFile, kKernelsOnly };
  // kQuickly: without expensive optimizations, which takes the compiler half the time.
  // kAsShipped: with those of the chapter's program; for wgmma, whose accumulators nobody may move
  // while it works, and for bugs that are caught by the same means only so.
  enum Code { kQuickly, kAsShipped };
  Mutants(const std::string& file, const std::string& name_space,
          const std::vector<Mutant>& mutants, const std::string& instances = "",
          Part part = kWholeFile, Code code = kQuickly);
  ~Mutants();
  Mutants(const Mutants&) = delete;
  Mutants& operator=(const Mutants&) = delete;

  // The kernel of that name, to be launched with launch(). `arguments` choose a template's instance
  // by its integers, `type` by a first argument that is a type, as C++ mangles it ("f",
  // "6__half").
  const void* kernel(size_t number, const std::string& name, const std::vector<int>& arguments = {},
                     const std::string& type = "") const;
  const std::string& ptx() const { return ptx_; }
  // After an error that stays in the device: resets it, frees all memory on it, loads them again.
  void reset();

 private:
  std::string ptx_;
  cudaLibrary_t library_ = nullptr;
};

// Launches a kernel known only by its address; the arguments have exactly its parameters' types.
template <class... Arguments>
void launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            Arguments... arguments) {
  void* pointers[] = {&arguments...};
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(shared_bytes)));
  check(cudaLaunchKernel(kernel, grid, block, pointers, shared_bytes, stream));
}

// ---- Programs -----------------------------------------------------------------------------------

// A folder below TEST_TMP of the environment, or /tmp.
class TemporaryFolder : public lab::TemporaryFolder {
 public:
  TemporaryFolder();
  void write(const std::string& name, const std::string& content) const;
  std::vector<std::string> names() const;  // names of the files in it, sorted
};

struct ProgramResult {
  int exit_code = -1;  // -1: it did not end by itself
  std::string output, errors;
};

// A whole file.
std::string file_content(const std::string& path);

// What stands at "/problem/queries" in a JSON text, as JSON again: a string keeps its quotes. Throws
// std::exception when there is nothing. (A .cu that includes the parser takes nvcc 10 s longer.)
std::string json_at(const std::string& json, const std::string& pointer);

// Runs a program beside the test ("chapter1") in that folder.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::string& folder);

}  // namespace lab::testing
