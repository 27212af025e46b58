// What to think about after a message of the virtual GPU, or an error of CUDA.
#include <algorithm>

#include "grader_process.h"

namespace lab::grader {
namespace {

struct Words {
  const char *found, *hint;  // the first that is found counts
};

const char* const kBarrier =
    "is a barrier missing? __syncthreads() must stand between writing and reading what another "
    "thread wrote, and also between reading and overwriting it in the next turn. If they all do: "
    "does the element that is read exist, for every lane? Past a row's end lies what is others'";

// Of a race, most special first.
const Words kRaces[] = {
    {"before the copy was waited for",
     "an asynchronous copy and a read of the same place: each thread waits for its own copies, "
     "then "
     "a barrier makes them everybody's; and a copy begins only behind the barrier after which "
     "nobody "
     "reads any longer what it overwrites"},
    {"in the same instruction",
     "several lanes write one element in the same instruction: which of them is the one to do it?"},
    // A barrier that is missing leaves lanes of one warp unordered, too.
    {"without a barrier between", kBarrier},
    {"without a __syncwarp between",
     "lanes of a warp do not wait for each other: between writing and reading what another lane "
     "wrote there must be a __syncwarp(), or a shuffle in place of memory"},
    {"without a barrier of the grid",
     "blocks do not wait for each other: an element of global memory belongs to one block, or the "
     "other one must come in a later launch"},
    {"without a barrier of the cluster",
     "blocks of a cluster wait for each other only at the cluster's barrier"},
    {"race between streams", "use the stream that the function is given for all that it does"},
    {"", kBarrier},
};

const char* const kInit =
    "memory is read that nobody wrote: is every element of the tile filled, those past the "
    "problem's "
    "end too? And does the element that is read exist, for every lane? (Padding counts in a row's "
    "stride)";

const Words kErrors[] = {
    {"error: sync",
     "every thread of the block (or of the mask) must reach a barrier: none inside an if or behind "
     "a return that only some take"},
    {"error: init", kInit},
    {"error: misaligned",
     "the address is no multiple of the access's size: a load of 16 bytes must begin at a whole "
     "uint4 (8 halves, 4 floats). Is the index counted in elements where it should be in pieces, "
     "or the row's length no multiple of 16 bytes?"},
    {"error: null pointer",
     "a pointer is null: which one, and was its memory allocated before the launch?"},
    {"error: use after free",
     "memory is used after it was freed: free it behind the last kernel, in the same stream"},
    {"error: host pointer",
     "a kernel got an address of the host's memory: pass values by value, arrays from cudaMalloc"},
    {"past the block's shared memory",
     "an index is outside of shared memory: which thread, which element? Is as much of it asked "
     "for "
     "at the launch as the kernel uses?"},
    {"across the end of the block's shared memory",
     "an index is outside of shared memory: which thread, which element? Is as much of it asked "
     "for "
     "at the launch as the kernel uses?"},
    {"out-of-bounds",
     "an index is outside of its array: which thread, which element? Guard the last tile"},
    {"trap instruction",
     "the code itself gives up there: an assertion or __trap() of yours, or an argument that a "
     "function of CUDA does not take (asynchronous copies are of 4, 8 or 16 bytes, of which at "
     "most that many are zeros)"},
    {"cudaErrorInvalidConfiguration",
     "the launch asks for a grid or a block that cannot be: how many blocks and threads are there "
     "in this problem? None, when a number was rounded down? A block has at most 1024 threads"},
    {"__launch_bounds__ allow",
     "the launch has more threads in a block than the kernel's __launch_bounds__ say"},
    {"bytes of dynamic shared memory",
     "the launch asks for more than a block can have: beyond 48 KiB of shared memory it takes "
     "cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) before"},
    {"Segmentation fault",
     "this is the host's code: it must not read or write what a device pointer points to, only "
     "kernels may; and host arrays have their ends too"},
    {"it threw: ",
     "all problems of the exercise are to be solved: is this one refused by mistake?"},
};

}  // namespace

std::string hint_for(const std::string& message) {
  const auto has = [&](const char* word) { return message.find(word) != std::string::npos; };
  if (has("error: race")) {
    const std::string race =
        std::find_if(std::begin(kRaces), std::end(kRaces), [&](const Words& w) {
          return has(w.found);
        })->hint;
    // What nobody wrote yet is often read because nobody waited, not the other way round.
    return has("error: init") ? race + ". If that is right: " + kInit : race;
  }
  for (const Words& words : kErrors)
    if (has(words.found)) return words.hint;
  return "";
}

}  // namespace lab::grader
