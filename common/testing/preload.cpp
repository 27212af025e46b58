#include "preload.h"
#include "lab/files.h"
#include "text.h"

#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace lab::testing {
namespace {

// Each function counts and goes on to the one that it replaces. Six words are more than any of them
// has as arguments.
const char kCounting[] = R"(
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>

struct Count { const char* name; int calls; Count* next; };
static Count* first;
struct Register { Register(Count* count) { count->next = first; first = count; } };
#define COUNTED(name) \
  static Count count_##name{#name, 0, nullptr}; \
  static Register register_##name(&count_##name); \
  extern "C" int name(long a, long b, long c, long d, long e, long f, long g, long h) { \
    static const auto next = reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name)); \
    __atomic_add_fetch(&count_##name.calls, 1, __ATOMIC_RELAXED); \
    return next(a, b, c, d, e, f, g, h); \
  }
COUNTED(cudaMalloc)
COUNTED(cudaMallocAsync)
COUNTED(cudaFreeAsync)
COUNTED(cudaMemset)
COUNTED(cudaMemsetAsync)
COUNTED(cudaLaunchKernelExC)
COUNTED(cudaLaunchCooperativeKernel)
COUNTED(cudaOccupancyMaxActiveClusters)
COUNTED(cudaOccupancyMaxActiveBlocksPerMultiprocessor)

__attribute__((destructor)) static void tell() {
  int all = 0;
  for (const Count* count = first; count; count = count->next) all += count->calls;
  std::FILE* file = all ? std::fopen(std::getenv("COUNTED_CALLS"), "w") : nullptr;
  if (!file) return;
  for (const Count* count = first; count; count = count->next)
    std::fprintf(file, "%s %d\n", count->name, count->calls);
  std::fclose(file);
}
)";

}  // namespace

Preloaded::Preloaded(const std::string& source) : before_(environment("LD_PRELOAD", "")) {
  write_file(folder_.path("preload.cc"), source);
  const std::string library = folder_.path("preload.so");
  const std::string command =
      "'" + environment("CXX", "g++") + "' -std=c++20 -O1 -shared -fPIC -o '" + library + "' '" +
      folder_.path("preload.cc") + "' -ldl >'" + folder_.path("log") + "' 2>&1";
  if (std::system(command.c_str()) != 0)
    throw std::runtime_error(command + ": " + file_content(folder_.path("log")));
  setenv("LD_PRELOAD", (library + (before_.empty() ? "" : ":" + before_)).c_str(), 1);
}

Preloaded::~Preloaded() {
  if (before_.empty())
    unsetenv("LD_PRELOAD");
  else
    setenv("LD_PRELOAD", before_.c_str(), 1);
}

CountedRun run_counting_calls(const std::string& program,
                              const std::vector<std::string>& arguments) {
  const TemporaryFolder folder, counts;
  const Preloaded counting(kCounting);
  setenv("COUNTED_CALLS", counts.path("calls").c_str(), 1);
  CountedRun run{run_program(program, arguments, folder.folder()), {}};
  unsetenv("COUNTED_CALLS");
  std::istringstream lines(file_content(counts.path("calls")));
  std::string name;
  for (int calls = 0; lines >> name >> calls;) run.calls[name] = calls;
  return run;
}

}  // namespace lab::testing
