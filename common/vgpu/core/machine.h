// The door to the executor: modules are loaded, kernels are launched, counters come back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../ptx/program.h"
#include "counters.h"
#include "device_spec.h"
#include "fault.h"
#include "memory.h"

namespace vgpu {

class Observer;
struct Launch;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// A loaded module: its program and its variables placed in device memory.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  std::shared_ptr<const Module> module;
  std::vector<std::shared_ptr<Allocation>> variables;  // one for each .global and .const variable
  std::shared_ptr<std::vector<std::byte>> constants;   // the constant bank
  // Device address and size of a variable, .global or .const.
  // False when there is none of that name.
  bool variable(std::string_view name, std::uint64_t& address, std::uint64_t& size) const;
  // Host bytes of a variable (global or constant), null when there is none.
  std::byte* variable_bytes(std::string_view name, std::uint64_t& size) const;
};

struct KernelAttributes {  // what the cubin says, filled by the runtime
  int registers = 0;       // per thread; 0 unknown
  int local_bytes = -1;    // per thread; -1 unknown
};

struct LaunchRequest {
  const LoadedModule* module = nullptr;
  const Function* function = nullptr;  // an entry of it
  Dim3 grid, block;
  Dim3 cluster;                       // in blocks; divides the grid
  bool explicit_cluster = false;      // the program asked for clusters (%is_explicit_cluster)
  std::uint32_t dynamic_shared = 0;   // bytes
  std::span<const std::byte> params;  // laid out as function->params says
  bool cooperative = false;
  KernelAttributes attributes;
  int resident_blocks_per_sm = 1;  // as occupancy says (for cooperative and spinning kernels)
  bool count = true;               // fill `counters`
};

struct LaunchOutcome {
  Fault fault;                        // kind none: it ran to its end
  LaunchCounters counters;            // empty unless count
  std::vector<std::string> findings;  // the checks' messages
};

// The cache model: off, with an L2 that is empty when a launch begins, or as the launch before
// left it.
enum class CacheMode : std::uint8_t { off, cold, warm };

// Predicted time: off; on for each launch; or sample, which executes only the blocks that a
// prediction needs, so that a large launch takes seconds: its results are then incomplete.
enum class TimeMode : std::uint8_t { off, on, sample };

// What a launch is asked to do. The machine sees to threads and schedule; checks and caches are for
// whoever gives it its observers (runtime/watched_machine.h).
struct MachineOptions {
  int threads = 0;                  // host threads, 0: all cores (VGPU_THREADS)
  std::uint64_t schedule_seed = 0;  // 0: the usual order (VGPU_SCHEDULE=random:SEED)
  bool hostile = false;             // the seed is that of VGPU_SCHEDULE=hostile:SEED (ranking.h)
  // VGPU_CHECK
  bool check_race = false, check_init = false, check_sync = false, check_proxy = false,
       check_finite = false, check_bounds = false;
  bool checks() const {
    return check_race || check_init || check_sync || check_proxy || check_finite;
  }
  CacheMode cache = CacheMode::off;  // VGPU_CACHE; only for launches that are counted
  TimeMode time = TimeMode::off;     // VGPU_TIME; likewise
  // VGPU_TIME_ROUNDS: how many times as many blocks as an SM holds a prediction simulates at most.
  int time_rounds = 4;
};

class Machine {
 public:
  Machine(DeviceSpec spec, MachineOptions options);
  ~Machine();

  const DeviceSpec& spec() const;
  Memory& memory();
  MachineOptions& options();

  // Parses and places a module. Throws PtxError naming line and reason. A mistake in a body that is
  // read at its first use is reported when the kernel is launched.
  std::unique_ptr<LoadedModule> load(std::string ptx_text, Bodies bodies = Bodies::now);
  // Decodes every function of a module; a message for each that holds something not supported.
  std::vector<std::string> refusals(const LoadedModule& module);
  // Runs a kernel to its end. Never throws for what a kernel does; see LaunchOutcome::fault.
  LaunchOutcome launch(const LaunchRequest& request);

  // Makes who watches a launch, in the order in which they are told. Asked once a launch, when its
  // function is decoded and its shared memory laid out. None: nobody watches.
  std::function<std::vector<std::unique_ptr<Observer>>(const Launch&)> observers;

  // The variable of the device whose name stands for this address on the host; "" when there is none.
  std::function<std::string(std::uint64_t host_address)> variable_at;

  // Output of device printf, in order; default: stdout.
  std::function<void(std::string_view)> print;
  std::uint64_t heap_limit = 8u << 20;  // bytes of the device malloc heap
  // Bytes of local memory that a thread has for functions whose calls only running them tells: recursion,
  // calls through pointers.
  static constexpr std::uint32_t kStackLimit = 1024;
  std::uint32_t stack_limit = kStackLimit;
  // Instructions that all resident blocks spend in waiting loops, none of them getting any further,
  // before the launch is given up as a deadlock: a second or two.
  std::uint64_t patience = 1u << 26;
  // Warp instructions of one host thread after which a launch is ended as one without an end.
  std::uint64_t instruction_limit = ~0ull;

 private:
  struct Impl;  // machine_impl.h
  class Run;
  std::unique_ptr<Impl> impl_;
};

// Shortens an absolute source path for messages: relative to the working directory when below it.
std::string display_path(const std::string& path);
// "ns::kernel" of a mangled name, without the parameter list and the return type.
std::string display_name(const std::string& mangled);

}  // namespace vgpu
