// How a program ends, whatever happens in it.
#include "program.h"

#include <omp.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "device.h"
#include "errors.h"
#include "files.h"
#include "sources.h"

namespace lab {
namespace {

// One line whatever a file's names or a library's message contain.
int complain(const char* program, const std::string& message, ExitCode code) {
  std::string line = message;
  for (char& c : line)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  std::fflush(stdout);
  std::fprintf(stderr, "%s: error: %s\n", program, line.c_str());
  return code;
}

}  // namespace

// --predict: from here on only the blocks that predicted times need are executed.
static void prepare_to_predict(const Device& device) {
  if (!device.is_virtual)
    throw LackError(
        "--predict needs the virtual GPU (make DEVICE=vgpu); on this GPU ./run measures times");
  if (!vgpu::can_predict())
    throw LackError("--predict: this virtual GPU does not predict times, a newer one does (make)");
  if (vgpu::prediction_refused())
    throw UsageError("--predict does not go with VGPU_TIME=0, which forbids predictions");
  const char* const checks = std::getenv("VGPU_CHECK");
  if (checks && *checks)
    throw UsageError(
        format("--predict does not go with VGPU_CHECK=%s: blocks would read what others, "
               "which are not executed, did not write",
               checks));
  vgpu::predict_by_samples();
}

void begin_look(const Device& device, const Options& options) {
  if (options.look.empty()) return;
  if (!device.is_virtual)
    throw LackError(
        "--look needs the virtual GPU (make DEVICE=vgpu); on this GPU: ncu --set full "
        "--import-source yes ./run");
  if (!vgpu::can_look())
    throw LackError("--look: this virtual GPU writes no such pages, a newer one does (make)");
  if (!vgpu::look(options.look))
    throw LackError("--look: this virtual GPU cannot write " + options.look);
}

void complete_for(const Device& device, Options& options, const char* no_profile) {
  begin_look(device, options);
  if (options.profile && !device.is_virtual) throw LackError(no_profile);
  if (options.predict)
    prepare_to_predict(device);
  else if (const char* const time = std::getenv("VGPU_TIME");
           device.is_virtual && time && std::string(time) == "sample")
    throw UsageError(
        "VGPU_TIME=sample leaves results incomplete, which are compared here: say "
        "--predict in its place");
  if (options.predict) options.warmup = 0, options.iterations = 1;
  if (options.warmup < 0) options.warmup = device.is_virtual ? 0 : 5;
  if (options.iterations == 0) options.iterations = device.is_virtual ? 1 : 50;
}

Device open_device(Options& options) {
  const Device device = open_device();
  complete_for(device, options);
  return device;
}

// OpenMP ends the program where the system grants it fewer threads than it wants (ulimit -u), with an exit status that
// means a wrong result. So where that limit is low, as many are asked of it as there can be.
static void use_no_more_threads_than_granted() {
  rlimit processes{};
  const int wanted = omp_get_max_threads();
  if (getrlimit(RLIMIT_NPROC, &processes) != 0 || processes.rlim_cur > 4096) return;
  std::vector<std::jthread> granted;
  try {
    while (int(granted.size()) + 1 < wanted)
      granted.emplace_back([](std::stop_token stop) {
        while (!stop.stop_requested()) std::this_thread::yield();
      });
  } catch (const std::system_error&) {
    omp_set_num_threads(int(granted.size()) + 1);
  }
}

int guarded_main(const char* chapter, const std::function<ExitCode()>& program) {
  say_if_stale();
  use_no_more_threads_than_granted();
  try {
    open_standard_files();
    if (const ExitCode code = program(); code != kCorrect) return code;
    require_output_written();
    return kCorrect;
  } catch (const UsageError& error) {
    return complain(chapter, error.what(), kBadUsage);
  } catch (const std::invalid_argument& error) {
    return complain(chapter, error.what(), kBadUsage);
  } catch (const LackError& error) {
    return complain(chapter, error.what(), kLacking);
  } catch (const std::bad_alloc&) {
    return complain(chapter, "out of host memory", kLacking);
  } catch (const std::exception& error) {
    // Launch functions say it in CUDA's words, and know no exit codes.
    const std::string what = error.what();
    if (what.find(cudaGetErrorString(cudaErrorNoKernelImageForDevice)) != std::string::npos)
      return complain(chapter, what + "; build for this device with ARCH=sm_XX", kLacking);
    return complain(chapter, what, kWrong);
  }
}

}  // namespace lab
