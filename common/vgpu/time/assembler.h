// Finds ptxas and runs it.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vgpu::time {

// The path of ptxas: $VGPU_PTXAS, then in $PATH, beside nvcc in $PATH, in /usr/local/cuda/bin, in the
// toolkit that this library was built with. Empty with a sentence in `why` when there is none.
std::string find_ptxas(std::string& why);
// The folder of that toolkit's programs.
const char* built_with();

struct Ran {
  int status = -1;     // exit status; -1: it did not end by itself
  std::string output;  // what it said, both streams, the first 64 KiB
  bool timed_out = false;
  std::string error;  // it could not be started
};
// Runs a program without a shell and waits for it; after `seconds` it and its children are killed.
Ran run_program(const std::string& path, const std::vector<std::string>& arguments, double seconds);

// "V13.0.88": what `ptxas --version` says last. Empty with a sentence in `why` when it says none.
std::string ptxas_version(const std::string& path, std::string& why);

struct Assembled {
  std::string cubin;
  std::string why;  // not empty: there is none
};
// Assembles `ptx` for `target` with line information. `options`: more of them.
Assembled assemble(const std::string& ptxas, std::string_view version, std::string_view ptx,
                   std::string_view target, const std::vector<std::string>& options,
                   double seconds);

}  // namespace vgpu::time
