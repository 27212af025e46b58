// What the tests of all chapters share: each function is the body of a doctest case, or a part of one,
// about kernels or programs of any problem. Without a device, real or virtual, those that need one say so
// and pass.
#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing.h"

namespace lab::testing {

// Says what is skipped and returns true where there is no device, or no virtual one.
bool skipped(const std::string& what);
bool skipped_without_counters(const std::string& what);
// Says so and returns true where there is no virtual GPU and only it is sure to catch that bug: by its
// checks ("check"), or as an access outside of an array ("error"), which a GPU may let pass.
bool skipped_on_a_gpu(const Mutant& bug);

// An environment variable for the programs that are run while this lives.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::string old_;
};

// ---- Planted bugs, checks, machine code ---------------------------------------------------------

// The kernel as it is (number 0) and with each of the bugs in turn (number 1, ...), on trials 0, 1, ...
// until one proves it wrong, which must be by what the bug says. A finding of the virtual GPU's checks is
// a "check" where nothing else is seen, and where it is expected. run: one verdict, with the trial's name
// in its details. after_error: called where an "error" stays in the device.
void check_each_bug(const std::vector<Mutant>& bugs, size_t trials,
                    const std::function<Verdict(size_t number, size_t trial)>& run,
                    const std::function<void()>& after_error = {});
// An outcome as a verdict that says on which problem.
inline Verdict named(const std::string& problem, Verdict verdict) {
  verdict.details = problem + ": " + verdict.details;
  return verdict;
}

// The virtual GPU's checks are chosen when a process starts: where they are off, runs this test
// program's cases of that name again with race, init and sync checks on, and returns true. Also true
// where there is no device.
bool rerun_with_checks(const std::string& cases);

// The program passes under all of the virtual GPU's checks, in its own order and in five others; with
// each of these lists of arguments.
void check_all_checks(const std::string& program,
                      const std::vector<std::vector<std::string>>& runs);

// What `launch` submits is all in the stream that it is given, and who waits for that stream has waited for
// all of it: no race where it runs in one stream, is waited for, and runs in another. For a test case that
// begins with rerun_with_checks().
void check_stays_in_its_stream(const std::function<void(cudaStream_t stream)>& launch);

// The cases of this test program that match `filter` (of doctest), each of which begins with
// rerun_with_checks(), pass in five other orders of the virtual GPU's warps and blocks.
void check_in_other_orders(const std::string& filter);

// The cases of this test program that match `filter` (of doctest) pass on a virtual T4 too.
void check_on_t4(const std::string& filter);
// The same of a program whose kernels are not in its own file (the Makefile's kernels*.cu): its twin,
// NAME_t4, runs them, which has these kernels for sm_75.
void check_twin_on_t4(const std::string& filter);

// No kernel in the programs of `folder`, a chapter's, spills registers or uses the stack, but those that
// common/make/spills.txt names: by what ptxas said when they were built for ARCH, the FILE.ptxas beside each
// object. `make compile-all` says the same of all architectures of the course.
void check_machine_code(const std::string& folder);

// Compiles the kernel file to PTX and looks at the order in which each kernel reads global memory: in
// groups of loads with stores to shared memory between them. `groups` says from a kernel's template
// arguments how many loads each group should have. A load that waits for a store is a group more.
void check_load_groups(const std::string& file, size_t kernels,
                       const std::function<std::vector<int>(const std::vector<int>&)>& groups);

// These flags on a GPU, none on the virtual one: where a program's default is a larger problem on a GPU, they
// ask for the virtual one's problem.
std::vector<std::string> on_a_gpu(const std::vector<std::string>& flags);

struct PhotoRun {
  std::string output, json;  // what the program printed, and its --json
};
// The program works on a photo of size x size pixels and writes all its files: exit 0, no line of
// more than 100 characters, one that begins with each of `lines`, `out` of that shape, and a
// picture. Nothing where there is no device.
std::optional<PhotoRun> check_photo_run(const std::string& program, int size,
                                        std::vector<std::string> arguments,
                                        const std::vector<int64_t>& out,
                                        const std::vector<std::string>& lines);

// Each line of a program's table, by name, with its modelled limit in microseconds.
std::vector<std::pair<std::string, double>> modelled_limits(
    const std::string& program, const std::vector<std::string>& arguments);

// ---- Counters -----------------------------------------------------------------------------------

// Requests for rows side by side of `row_bytes`, when 32 lanes ask for `lane_bytes` each: whole rows
// at a time, the last request for what is left of them.
double row_requests(int rows, int row_bytes, int lane_bytes);
// "/allocations/K/load/bytes_asked" for counted("K", "load/bytes_asked").
double counted(const std::string& array, const std::string& what);
// Bank conflicts and wavefronts of all accesses to shared memory.
double shared_conflicts();
double shared_wavefronts();

}  // namespace lab::testing
