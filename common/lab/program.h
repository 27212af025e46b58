// What the programs of all chapters share around their problem.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lab.cuh"

namespace lab {

// What the programs of all chapters are told by flags.
struct Options {
  int batch = 0, warmup = -1, iterations = 0;  // by default the device decides
  int size = 224;                              // pixels of the squared photo
  uint64_t seed = 1;
  std::string image, out;
  std::string input, prefix, output, json, csv, look;
  bool profile = false;
  bool predict = false;  // predicted times alone: most blocks are not executed, nothing is compared
};

// Chooses what the flags left to the device: 5 warm-ups and 50 iterations on a GPU, 0 and 1 on the
// virtual one. Throws LackError with those words for --profile on a GPU, for --look there, and for --predict
// where the device does not predict; UsageError where the environment asks for what does not go with it.
void complete_for(const Device& device, Options& options,
                  const char* no_profile =
                      "--profile reads the virtual GPU's counters (make "
                      "DEVICE=vgpu); on this GPU: ncu --set full ./run");

// open_device(), then complete_for() with that device.
Device open_device(Options& options);

// --look: from here on the virtual GPU collects what its page shows. Throws LackError on a GPU.
void begin_look(const Device& device, const Options& options);

// Calls program() and returns its exit code; what it throws becomes one line on stderr and a code.
int guarded_main(const char* chapter, const std::function<ExitCode()>& program);

// A path inside the repository, found from the executable's place or the current folder.
std::string repository_path(const std::string& relative);

}  // namespace lab
