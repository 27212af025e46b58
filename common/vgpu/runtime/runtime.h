// The state behind the CUDA runtime API: one virtual device with its modules, streams and errors.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../look/look.h"
#include "../profile/report.h"
#include "../time/machine_code.h"
#include "../time/residency.h"
#include "cubin.h"
#include "fatbin.h"
#include "order.h"
#include "settings.h"
#include "status.h"
#include "time_table.h"
#include "watched_machine.h"

namespace vgpu::runtime {

struct Library;

// What a program calls a stream, an event, a node: an address, which may be of none.
using Handle = void*;

// An attribute that changes no result and is only remembered, as the bytes of the face's own type.
using Hint = std::array<std::byte, 64>;

// A kernel as the host knows it: what cudaKernel_t and cudaFunction_t point to.
struct Kernel {
  Library* library = nullptr;
  std::string name;                    // mangled
  const Function* function = nullptr;  // set when the library is loaded
  CubinKernel cubin;                   // registers 0 when no cubin fits the device
  bool on_timeline = false;            // what its warps do stands in the timeline
  // Machine code for the device with PTX lines, made at the first launch that is timed.
  std::shared_ptr<const time::MachineCodeOrWhy> machine_code;
  // Set by cudaFuncSetAttribute and its kin; -1: as the device has it.
  int max_dynamic_shared = -1;
  int carveout = -1;
  int required_cluster[3] = {0, 0, 0};
  int nonportable_cluster = 0;
  int cluster_scheduling = 0;
};

// A fat binary of the program, or what cudaLibraryLoadData got. Loaded at first use.
struct Library {
  const void* container = nullptr;         // registered: in the program's own memory
  const void* const* prelinked = nullptr;  // -rdc=true: each file's container, ends with null
  std::vector<std::byte> copy;             // loaded by cudaLibrary*: its own bytes
  bool is_text = false, is_elf = false;    // `copy` is PTX text or a bare cubin, not a container
  bool registered = false;
  bool tried = false;
  Status load_error = Status::success;
  std::shared_ptr<LoadedModule> module;  // shared by libraries of the same bytes, see modules.cpp
  std::map<std::string, CubinKernel, std::less<>> cubin;  // in the image that fits the device
  std::string own_code;  // that image, if it is for the very device; else ""
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels;
};

struct Variable {
  Library* library = nullptr;
  std::string name;
  std::uint64_t size = 0;
  void** managed_pointer =
      nullptr;  // where the program keeps the address of a __managed__ variable
};

struct Capture;  // capture.h
struct Exec;     // graph.h
struct Graph;
struct Node;
struct UserObject;

struct Stream {
  explicit Stream(unsigned long long number) : id(number) {}
  unsigned long long id;                       // 1 and 2: the default streams
  static constexpr unsigned kNonBlocking = 1;  // a bit of `flags`; NVIDIA's interfaces number it so
  unsigned flags = 0;
  int priority = 0;
  std::map<int, Hint> hints;  // by number of the attribute
  // While it records a graph: what the next node will depend on.
  std::shared_ptr<Capture> capture;
  std::vector<Node*> tips;
  // What its next operation comes after, while the order of operations is kept.
  Timeline timeline = 0;
  Clock clock;
  // The last operation, if it was a kernel that lets programmatic dependent launches begin early: what such
  // a launch comes after until it waits for the kernel, and from then on.
  struct Ahead {
    Clock begun, over;
  };
  std::optional<Ahead> ahead;
  // The last event that the stream waited for although nobody had recorded it: it waited for nothing.
  bool waited_in_vain = false;
  bool legacy() const { return id == 1; }
  bool blocking() const { return id != 1 && !(flags & kNonBlocking); }
};

struct Event {
  unsigned flags = 0;  // as NVIDIA's interface numbers them
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;  // last recorded in it, after `tips`
  std::vector<Node*> tips;
  Clock clock;
};

struct Pool {
  std::map<int, std::uint64_t> attributes;
  std::uint64_t used = 0, high = 0;
};

class Runtime {
 public:
  static Runtime& get();  // never destroyed: programs call CUDA from static destructors

  std::mutex mutex;   // guards everything below and serializes launches
  Settings settings;  // read at the first call, so that a program may set them itself
  Status off;         // not success: the settings are wrong, every call returns this
  std::atomic<Status> sticky = Status();  // a kernel broke the context: returned until a reset
  void configure();                       // reads the settings, once

  WatchedMachine& machine();
  const DeviceSpec& spec() const { return settings.spec; }
  Memory& memory() { return machine().memory(); }

  // Modules.
  std::vector<std::unique_ptr<Library>> libraries;
  std::unordered_map<const void*, Kernel*> functions;   // by host function
  std::unordered_map<const void*, Variable> variables;  // by host variable
  std::set<const Kernel*> kernels;                      // every live handle
  Library* find_library(const void* handle);
  // The kernel of a host function, cudaKernel_t or cudaFunction_t; null when there is none.
  Kernel* find_kernel(const void* function);
  Kernel* add_kernel(Library& library, const std::string& name);
  void remove_library(Library& library);
  // The variable of the device that a host address means, which the program takes by its name; "": none.
  std::string variable_at(std::uint64_t host_address) const;

  // Streams and events.
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Pool*> pools;
  Pool default_pool;
  Pool* current_pool = &default_pool;
  std::map<std::uint64_t, Pool*> pool_of;  // by address of the allocation
  unsigned long long next_stream_id = 3;   // 1 and 2 are the default streams
  // Null when the handle is none. `per_thread` says what stream 0 means.
  Stream* find_stream(Handle stream, bool per_thread);
  Event* find_event(Handle event);  // null when the handle is none
  // The legacy default stream, and the default streams of threads that ever used theirs.
  Stream legacy{1};
  std::vector<std::unique_ptr<Stream>> thread_streams;

  // Graphs.
  std::map<const void*, std::shared_ptr<Graph>> graphs;  // by handle
  std::map<const void*, std::shared_ptr<Exec>> execs;
  std::set<std::shared_ptr<Capture>> captures;  // captures that have not ended
  std::set<UserObject*> user_objects;
  std::map<std::uint64_t, std::uint64_t> graph_memory;  // live allocations of graphs: bytes by base
  std::uint64_t graph_memory_used = 0, graph_memory_high = 0;
  unsigned long long next_capture_id = 1;

  // Order between streams, for the check and the timeline; null without both.
  std::unique_ptr<OperationOrder> order;
  std::unique_ptr<HostGuard> host_guard;  // VGPU_CHECK=host
  Clock host;                             // what the host has waited for; one for all its threads
  Clock gone;                             // work of blocking streams that were destroyed
  // What comes before the next operation of the stream, and if its last ones were only `own`.
  Clock before(const Stream& stream) { return before(stream, stream.clock); }
  Clock before(const Stream& stream, const Clock& own);
  void host_waits(const Clock& clock);
  void host_waits_for_all();
  // Begins a timeline that will be written to `file`, or nowhere where that is empty; and ends the one
  // that is under way. False: it could not be written, and that was said.
  void begin_timeline(const std::string& file);
  bool end_timeline();
  DeviceTimeline* timeline() { return order ? order->timeline.get() : nullptr; }
  bool timeline_has_file() const { return !timeline_file_.empty(); }

  // Collects a page that will be written to `file`, of the launches to come; and writes the one that is
  // under way. False: it could not be written, and that was said.
  void begin_look(const std::string& file);
  bool end_look();
  std::unique_ptr<look::Look> look;  // null: nobody wants one

  // Host memory known to the device: flags by address.
  std::map<std::uint64_t, unsigned> host_allocations, host_registrations;
  std::map<int, std::size_t> limits;  // cudaDeviceSetLimit
  unsigned device_flags = 0;          // as NVIDIA's interface numbers them

  // Launches.
  bool count = true;
  std::optional<LaunchCounters> last_launch;
  std::unique_ptr<ReportNumbers> last_numbers;  // last_launch's, once somebody has asked
  std::vector<std::string> findings;
  bool launch_failed = false;               // some launch had a fault
  std::vector<std::string> launch_reports;  // VGPU_PROFILE=json
  TimeTable times;                          // VGPU_TIME
  bool in_graph = false;                    // what runs now is a node of a graph
  time::Residency left_in_l2;               // of launches with a prediction
  bool as_in_graph = false;                 // or is predicted as if it were one
  struct {
    int launches = 0;
    double us = 0;  // NaN: one of them has no predicted time
  } predicted;      // since vgpuSetTime()
  std::uint64_t launches = 0;

  void reset();  // cudaDeviceReset
  int finish();  // reports at exit; the exit code to force, or 0

 private:
  bool configured_ = false;
  std::unique_ptr<WatchedMachine> machine_;
  std::string timeline_file_, look_file_;
};

// A call of the host on the timeline, as long as it lives: `us` and what it waits for. Under the lock.
class HostCall {
 public:
  HostCall(Runtime& runtime, const char* name, double us) : timeline_(runtime.timeline()) {
    if (timeline_) timeline_->begin_call(name, us);
  }
  ~HostCall() {
    if (timeline_) timeline_->end_call();
  }
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

 private:
  DeviceTimeline* timeline_;
};

// One line on stderr: "vgpu: ...".
void say(const std::string& text);
void say_once(const std::string& key, const std::string& text);

// True in a child that fork() made after its parent had used the device: what it has is a copy, with
// locks and threads that may never answer. As with a GPU, every call fails.
bool forked();
// True while a host callback runs in this thread: it must not call CUDA.
bool& in_callback();

// Whether a call needs a context that no kernel has broken.
enum class Context { needed, not_needed };

// modules.cpp
Status load_library(Library& library);
Status load_kernel(Kernel& kernel);
void place_managed(Library& library);
// Static shared memory of a loaded kernel, as on the device when its cubin is there.
int static_shared(const Kernel& kernel);
int max_threads_per_block(const Kernel& kernel);
int max_dynamic_shared(const Kernel& kernel);
int blocks_per_sm(const Kernel& kernel, int threads, std::uint64_t dynamic_shared);

// transfer.cpp: checked access to device and host memory. A null return (false) has said why.
bool is_device_address(const void* pointer);
std::byte* device_bytes(const char* what, const void* pointer, std::uint64_t size);
std::byte* host_bytes(const char* what, const void* pointer, std::uint64_t size);
// Device address and bytes of a __device__, __constant__ or __managed__ variable.
struct Symbol {
  std::uint64_t address = 0, size = 0;
  std::byte* bytes = nullptr;
};
Status find_symbol(const void* symbol, Symbol& out);

// launch.cpp
struct LaunchConfig {
  Dim3 grid, block;
  Dim3 cluster{0, 0, 0};  // in blocks; all 0: as the kernel says
  std::uint64_t dynamic_shared = 0;
  bool cooperative = false;
  bool programmatic =
      false;  // it may begin before the kernel in front of it in the stream has ended
};
// The clusters of a launch that asks for `asked`; {0, 0, 0}: it has none. And the grid in blocks,
// which kernels with __block_size__(.., cluster) are given in clusters.
Dim3 cluster_of(const Kernel& kernel, Dim3 asked);
Dim3 grid_of(const Kernel& kernel, const LaunchConfig& config);
// Blocks that a cluster of the kernel may have.
unsigned max_cluster_blocks(const Kernel& kernel);
// `params`: as Function::params has them.
Status launch(Kernel& kernel, const LaunchConfig& config, std::span<const std::byte> params);
Status check_launch(Kernel& kernel, const LaunchConfig& config);  // loads the kernel, too

// allocate.cpp: cudaFree, without its wait for the device.
Status release_memory(Runtime& runtime, void* pointer);

// What a frame calls. The frames are functions, no templates: there are two hundred bodies, and the
// compiler should meet locks and handlers of exceptions once.
struct Body {
  void* kept;
  void (*run)(void* kept, Runtime* runtime);
};
// Success where the body came to its end (it keeps its own result), otherwise why it did not.
Status run_caught(Body body) noexcept;
Status run_framed(Body body, Context context) noexcept;

template <class Result, class F>
struct Kept {
  F& body;
  Result result;
  static void run(void* kept, [[maybe_unused]] Runtime* runtime) {
    auto& [body, result] = *static_cast<Kept*>(kept);
    if constexpr (std::is_invocable_v<F&, Runtime&>)
      result = body(*runtime);
    else
      result = body();
  }
};

// The smallest frame: an exception must not cross into the program, which may be C. `Result`: Status, or
// the error of a face (Translation in status.h).
template <class Result, class F>
Result catching(F&& body) noexcept {
  Kept<Result, F> kept{body, {}};
  const Status stopped = run_caught({&kept, &Kept<Result, F>::run});
  return stopped == Status::success ? kept.result : Result(stopped);
}

// Frame of every function of a face that touches the device: takes the lock, refuses when the device
// is off or broken, turns exceptions into statuses.
template <class Result, class F>
Result framed(F&& body, Context context = Context::needed) noexcept {
  Kept<Result, F> kept{body, {}};
  const Status stopped = run_framed({&kept, &Kept<Result, F>::run}, context);
  return stopped == Status::success ? kept.result : Result(stopped);
}

}  // namespace vgpu::runtime
