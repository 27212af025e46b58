#include "hints.h"

#include <algorithm>
#include <regex>
#include <set>
#include <span>
#include <sstream>

#include "testing/text.h"

namespace lab::grader {
namespace {

using testing::contains;

// A row: the words by which a message is known, and both stages of its hint. A stage that a row lacks
// comes from a later row that fits as well.
struct Row {
  const char *found, *seen, *cause;
};

const char* const kBarrier =
    "is a barrier missing? __syncthreads() must stand between writing and reading what "
    "another thread wrote, and also between reading and overwriting it in the next turn. If "
    "they all do: does the element that is read exist, for every lane? Past a row's end lies "
    "what is others'";

// Hints for a race, the most special first.
const Row kRaces[] = {
    {"before the copy was waited for", nullptr,
     "an asynchronous copy and a read of the same place: each thread waits for its own "
     "copies, then a barrier makes them everybody's; and a copy begins only behind the "
     "barrier after which nobody reads any longer what it overwrites"},
    {"in the same instruction", nullptr,
     "several lanes write one element in the same instruction: which of them is the one to do it?"},
    // A barrier that is missing leaves lanes of one warp unordered, too.
    {"without a barrier between", nullptr, kBarrier},
    {"without a __syncwarp between", nullptr,
     "lanes of a warp do not wait for each other: between writing and reading what another "
     "lane wrote there must be a __syncwarp(), or a shuffle in place of memory"},
    {"without a barrier of the grid", nullptr,
     "blocks do not wait for each other: an element of global memory belongs to one block, or "
     "the other one must come in a later launch"},
    {"without a barrier of the cluster", nullptr,
     "blocks of a cluster wait for each other only at the cluster's barrier"},
    {"race between streams", nullptr,
     "use the stream that the function is given for all that it does"},
    {"",
     "two threads come to one place in memory, at least one of them writes, and nothing says "
     "who is first. The finding names both lines: what stands between them?",
     kBarrier},
};

const char* const kInit =
    "memory is read that nobody wrote: is every element of the tile filled, those past the "
    "problem's end too? And does the element that is read exist, for every lane? (Padding "
    "counts in a row's stride)";

// Words in a message about a deadlock: in a loop, or at a barrier.
const char* const kWaiting = "in a loop for what no other thread does";
const char* const kMeet =
    "every thread of the block (or of the mask) must reach a barrier: none inside an if or "
    "behind a return that only some take";

const char* const kSomeCome =
    "some threads come to a barrier and others do not: which are they, and where are the others?";

const char* const kOutsideShared =
    "an index is outside of shared memory: which thread, which element? Is as much of it asked for "
    "at the launch as the kernel uses?";

// Hints for everything else, the most special first.
const Row kHints[] = {
    {kWaiting,
     "it never ends: the finding names a line where threads wait. What do they wait for, and "
     "who was to do it?",
     "everybody waits for what nobody does any more. For an mbarrier: who arrives at it, as "
     "many as it was initialized for? Are exactly the bytes announced that come? And is the "
     "parity that is waited for the one of the phase that should end? Who arrives too early "
     "ends a phase that others have not seen yet"},
    {"at an mbarrier that waits for", nullptr,
     "more arrive in one phase than the mbarrier was initialized for: somebody is a round "
     "ahead, and has not waited for those who were to come before"},
    {"error: sync", kSomeCome, kMeet},
    {"error: deadlock", kSomeCome, kMeet},
    {"read of a variable that nothing was assigned to",
     "a local variable is read that has no value yet: the finding names the line that reads "
     "it and the first thread",
     "a local variable has no value, not even 0, until one is assigned to it: give it one "
     "where it is declared (a sum 0, a maximum -INFINITY). Where results are right without, "
     "that is luck"},
    {"error: init",
     "something is read that has no value yet: the finding names the line that reads it and "
     "the first thread. Which element is it?",
     kInit},
    {"error: misaligned", "the finding names line, thread and address: which element is it?",
     "the address is no multiple of the access's size: a load of 16 bytes must begin at a "
     "whole uint4 (8 halves, 4 floats). Is the index counted in elements where it should be "
     "in pieces, or the row's length no multiple of 16 bytes?"},
    {"error: null pointer", nullptr,
     "a pointer is null: which one, and was its memory allocated before the launch?"},
    {"error: use after free", nullptr,
     "memory is used after it was freed: free it behind the last kernel, in the same stream"},
    {"error: host pointer", nullptr,
     "a kernel got an address of the host's memory: pass values by value, arrays from cudaMalloc"},
    {"past the block's shared memory", nullptr, kOutsideShared},
    {"across the end of the block's shared memory", nullptr, kOutsideShared},
    {"out-of-bounds",
     "the finding names line, thread and how far outside it is: which index does that thread "
     "compute?",
     "an index is outside of its array: which thread, which element? Either a guard is "
     "missing (past the last row, in the last tile), or the index is computed of the wrong "
     "sizes: is each division, remainder and product by the one that belongs to this array?"},
    {"trap instruction", nullptr,
     "the code itself gives up there: an assertion or __trap() of yours, or an argument that "
     "a function of CUDA does not take (asynchronous copies are of 4, 8 or 16 bytes, of which "
     "at most that many are zeros)"},
    {"cudaErrorInvalidConfiguration", nullptr,
     "the launch asks for a grid or a block that cannot be: how many blocks and threads are "
     "there in this problem? None, when a number was rounded down? A block has at most 1024 "
     "threads"},
    {"__launch_bounds__ allow", nullptr,
     "the launch has more threads in a block than the kernel's __launch_bounds__ say"},
    {"bytes of dynamic shared memory", nullptr,
     "the launch asks for more than a block can have: beyond 48 KiB of shared memory it takes "
     "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) before"},
    {"error: ", "the finding names the line and the first thread: what is different there?",
     nullptr},
    {"cudaError",
     "the launch fails before any thread runs: which numbers is it called with in this "
     "problem?",
     nullptr},
    {"vgpu: cannot",
     "the launch fails before any thread runs: which numbers is it called with in this "
     "problem?",
     nullptr},
    {"#549-D", "the compiler names a variable that is read before it is set, with its line",
     nullptr},
    {"Segmentation fault", "it crashes outside of kernels: what does the host code touch?",
     "this is the host's code: it must not read or write what a device pointer points to, "
     "only kernels may; and host arrays have their ends too"},
    {"it threw: ", "the function refuses this problem itself, with these words",
     "all problems of the exercise are to be solved: is this one refused by mistake?"},
};

Hint first_of(std::span<const Row> rows, const std::string& message) {
  Hint hint;
  for (const Row& row : rows) {
    if (!contains(message, row.found)) continue;
    if (hint.seen.empty() && row.seen) hint.seen = row.seen;
    if (hint.cause.empty() && row.cause) hint.cause = row.cause;
  }
  return hint;
}

// The names of __shared__ arrays in a line of a source.
std::set<std::string> shared_arrays_in(const std::string& text, int line) {
  static const std::regex declared(R"(__shared__[^;\[]*[\s&*](\w+)\s*\[)");
  static const std::regex more(R"(,\s*(\w+)\s*\[)");
  std::set<std::string> names;
  std::istringstream stream(text);
  std::string wanted, each;
  for (int i = 1; std::getline(stream, each); ++i) {
    each.resize(std::min<size_t>(each.size(), 1000));
    if (i == line) wanted = each;
    std::smatch match;
    if (!std::regex_search(each, match, declared)) continue;
    names.insert(match[1]);
    const std::string rest = match.suffix();
    for (std::sregex_iterator next(rest.begin(), rest.end(), more), end; next != end; ++next)
      names.insert((*next)[1]);
  }
  std::set<std::string> found;
  static const std::regex word(R"(\w+)");
  for (std::sregex_iterator next(wanted.begin(), wanted.end(), word), end; next != end; ++next)
    if (names.contains(next->str())) found.insert(next->str());
  return found;
}

// "'v_tile' and 's_tile'" where all races in shared memory are between lines that name different
// arrays; "" where one is not, or a line names none.
std::string different_arrays(const std::string& message, const std::string& text) {
  static const std::regex lines(R"(:(\d{1,6}): error: race: .* shared memory .* at .*:(\d{1,6}) )");
  std::string result;
  std::istringstream stream(message);
  for (std::string line; std::getline(stream, line);) {
    if (line.find("error: race") == std::string::npos) continue;
    line.resize(std::min<size_t>(line.size(), 1000));
    std::smatch match;
    if (!std::regex_search(line, match, lines)) return "";
    const auto one = shared_arrays_in(text, std::stoi(match[1]));
    const auto other = shared_arrays_in(text, std::stoi(match[2]));
    if (one.size() != 1 || other.size() != 1 || *one.begin() == *other.begin()) return "";
    if (result.empty()) result = "'" + *one.begin() + "' and '" + *other.begin() + "'";
  }
  return result;
}

}  // namespace

Hint hint_for(const std::string& message, const std::string& text) {
  if (!contains(message, "error: race")) return first_of(kHints, message);
  Hint hint = first_of(kRaces, message);
  if (const std::string names = different_arrays(message, text); !names.empty())
    hint.cause =
        "the two lines of the finding name different arrays, " + names +
        ", and meet at one address: an index runs past the end of its array or row into what "
        "lies behind it. Does the element that is read exist, for every lane? Only if it "
        "does: " +
        kBarrier;
  // What nobody wrote yet is often read because nobody waited, not the other way round.
  else if (contains(message, "error: init"))
    hint.cause += std::string(". If that is right: ") + kInit;
  return hint;
}

}  // namespace lab::grader
