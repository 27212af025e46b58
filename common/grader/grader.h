// The grader of the chapters' exercises. A student writes a function in exercise.cuh; the
// grader compiles it, runs it on the virtual GPU in processes of their own with limits on time,
// memory and instructions, and gives points: 30 for right results, 20 for no finding of any check,
// 50 for counters that show the chapter's idea. It knows no chapter: what is asked stands in a
// Task, which the chapter's exercise.cu fills in. How points come about: chapters/README.md.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/inputs.h"
#include "isolation.h"
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

// Counters of the student's launches, all of them together. Arrays are called what the arguments
// are called; `kScratch` is all other memory: what the student allocates, and local memory of more
// than a few bytes a thread. `access` is "load" or "store". Whoever moves the bytes counts:
// instructions, atomics, which do both, and the copy engine.
inline const char* const kScratch = "*";
class Counters {
 public:
  // launches: a JSON list as VGPU_PROFILE=json writes it. Throws std::runtime_error if it is none.
  Counters(const std::string& launches, const std::vector<std::string>& arrays);

  // The sum over all launches of the number at a JSON pointer; 0 where a launch lacks it.
  double sum(const std::string& pointer) const;
  double launches() const;
  double bytes(const std::string& array, const std::string& access) const;
  // Bytes of K and V that are loaded, and of memory of the student's own: what is loaded from a copy
  // counts as well.
  double loaded_tiles() const;
  // Bytes that kernels bring to global memory, or to local memory as above, in any way.
  double stored() const;
  // Bytes that kernels bring to shared memory in any way.
  double brought_to_shared() const;
  // A copy of the copy engine is as many as warps that load 16 bytes a lane would need.
  double requests(const std::string& array, const std::string& access) const;
  // Sectors moved over sectors needed if the same bytes lay side by side, of the worst launch: 1 is
  // coalesced, 16 a warp that reads 2 bytes of each of 32 sectors. NaN without such accesses.
  // most_bytes: what counts as needed at most. Without such a bound good accesses that nobody needs
  // hide the bad ones.
  double moved_over_needed(const std::string& array, const std::string& access,
                           double most_bytes) const;
  // The counters of one kind of launch alone: launches that both load and store the array, such as
  // a softmax in place, or all others.
  Counters load_and_store(const std::string& array) const;
  Counters load_or_store(const std::string& array) const;
  double sectors(const std::string& array, const std::string& access) const;
  // Shared-memory conflicts over ideal wavefronts; 0 without shared memory. multiply_adds: those that
  // the problem needs, for two wavefronts of which a warp's may count as ideal.
  double bank_conflict_share(double multiply_adds) const;
  // Multiply-adds on tensor cores. multiply_adds: those that the problem needs. 0 where the CUDA cores'
  // floating-point instructions are enough for much of them: what tensor cores multiply may be anything
  // then.
  double on_tensor_cores(double multiply_adds) const;

 private:
  struct Data;
  Counters chosen(const std::string& array, bool both) const;
  std::shared_ptr<const Data> data_;
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

// ---- Cases that the exercises share -------------------------------------------------------------

// Attention of `queries` tokens to `keys` tokens.
struct AttentionTensors {
  int batch, heads, queries, keys, head_dim;
  float scale;             // Q Kᵀ times this; most often 1 / sqrt(head_dim)
  std::vector<half> Q;     // [batch, heads, queries, head_dim]
  std::vector<half> K, V;  // [batch, heads, keys, head_dim]

  AttentionShape query_shape() const { return {batch, heads, queries, head_dim, scale}; }
  std::string describe() const;
};

// Seeded and telling right from wrong, as random_attention(): most queries give about half of their
// weight to one key.
AttentionTensors random_tensors(int batch, int heads, int queries, int keys, int head_dim,
                                uint64_t seed);

// The same with all scores moved by `offset`, which softmax must not see: beyond 88 exp of a score
// itself overflows in fp32.
AttentionTensors moved(AttentionTensors tensors, double offset);

// softmax(change(Q Kᵀ scale)) V in double precision, straight from the formula: [batch, heads,
// queries, head_dim]. change: what becomes of a score, -infinity to leave the key out; a query
// needs one key that stays.
using ChangeScore = std::function<double(int batch, int head, int query, int key, double score)>;
std::vector<double> expected(const AttentionTensors& tensors, const ChangeScore& change = {});

// A case of these tensors' name, dims and tolerance, without its arguments; and what is known of
// mistakes in attention. change: as in expected(). key_tile: keys that the chapter's kernels have in
// shared memory at a time; 0 in a chapter that knows no tiles.
Case attention_case(const AttentionTensors& tensors, const std::vector<double>& expected,
                    const ChangeScore& change = {}, int key_tile = 0);

// ---- Grading ------------------------------------------------------------------------------------

// A part of the points.
struct Item {
  std::string name;
  int points = 0, most = 0;
  std::string details;     // what was found, one line or several
  std::string hint;        // first stage, what is seen; empty at full points
  std::string cause = "";  // second stage, what it comes from; empty where there is none
};

// What the student's code printed, stdout and then stderr: the first lines, made fit to be shown.
struct Printed {
  std::string text;
  size_t more = 0;  // lines that are left out
};

struct Grade {
  std::string file;
  // Empty, or why there are no points at all: "build", "time", "instructions", "memory", "printed",
  // "output".
  std::string refused;
  std::string message;  // the reason in words, with the compiler's or the virtual GPU's
  std::vector<Item> items;
  int points() const;
  int most() const;
  // The first case that was not right.
  struct Failure {
    std::string name, details;
    std::vector<int64_t> index;  // empty when there is no output to compare
    double expected = 0, got = 0;
  };
  std::vector<Failure> failures;  // none or one
  std::string warnings;           // the compiler's first ones with their lines
  // What the first case that was not right printed; if it printed nothing, the first case that did.
  Printed printed;
  std::string printed_in;                 // the case that printed it
  Isolation isolation = Isolation::none;  // how the code was isolated when it ran
  // It is other_user, and the compiler ran with the grader's rights all the same.
  bool own_rights = false;
  // --hint: a report has the hints up to this stage, and says whether there are more.
  int stage = 1;
};

// How far a student's code may go.
struct Limits {
  double seconds = 30;                 // wall time of one process; the compiler has at least 60
  uint64_t instructions = 50'000'000;  // warp instructions in one launch
  double memory_bytes = 4.0 * (1ull << 30);
  double file_bytes = 64 << 20;  // per file that is written, and for what a case prints
  Isolation isolation = Isolation::none;
  bool isolation_required = false;  // refuses to grade with less, for the compiler as well
};

struct Library;

// Points for an entry of a library. cases, measured: the task's.
Grade grade(const Task& task, const std::vector<Case>& cases, const Case& measured,
            const Library& library, int entry, const Limits& limits);

// Reports: for people, and the files that `--json` and `--gradescope` write.
std::string text_report(const Task& task, const Grade& grade);
std::string tap_report(const Grade& grade);
std::string json_report(const Task& task, const Grade& grade);
std::string gradescope_report(const Task& task, const Grade& grade);
// What all of them say where not everything was isolated; "" where it was.
std::string isolation_note(const Grade& grade);

// main() of an exercise's program: flags, grading, report; the tasks are chosen between by name
// (--task; the first is the default). Exit codes as lab::ExitCode: kCorrect only at full points.
int grader_main(int argc, char** argv, const std::vector<Task>& tasks);

}  // namespace lab::grader
