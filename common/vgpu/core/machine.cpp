// Running launches: what they need is prepared, their blocks are spread over host threads.
#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <optional>

#include "coalescing.h"
#include "gather.h"
#include "machine_impl.h"
#include "specials.h"
#include "turns.h"

namespace vgpu {

Machine::Machine(DeviceSpec spec, MachineOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->spec = std::move(spec);
  impl_->options = options;
  if (impl_->spec.memory_bytes > 0)
    impl_->memory.set_limit(static_cast<std::uint64_t>(impl_->spec.memory_bytes));
}
Machine::~Machine() = default;
const DeviceSpec& Machine::spec() const { return impl_->spec; }
Memory& Machine::memory() { return impl_->memory; }
MachineOptions& Machine::options() { return impl_->options; }

FunctionState& Worker::state_of(const Function& function) {
  auto& state = functions[&function];
  if (!state) {
    state = std::make_unique<FunctionState>();
    state->function = &function;
    state->counts.resize(function.code.size());
    state->sites.resize(function.memory_sites);
  }
  return *state;
}

TouchMap* Launch::touch_map(const std::shared_ptr<Allocation>& allocation) {
  const std::lock_guard lock(mutex);
  auto& map = touched[allocation->id];
  if (!map) {
    map = std::make_unique<TouchMap>();
    map->allocation = allocation;
    // Pinned memory may begin inside a sector.
    map->sectors = (allocation->base + allocation->size + kSectorBytes - 1) / kSectorBytes -
                   allocation->base / kSectorBytes;
    // Pages of a large allocation's map that nobody touches cost nothing.
    for (auto* flags : {&map->read, &map->written}) {
      flags->reset(static_cast<std::uint8_t*>(std::calloc(map->sectors + 1, 1)));
      if (!*flags) throw std::bad_alloc();
    }
  }
  return map.get();
}

bool Launch::sampled(std::uint64_t cluster) const {
  if (everywhere.all.size() == with_samplers.all.size()) return false;
  return std::any_of(with_samplers.all.begin(), with_samplers.all.end(),
                     [&](const Observer* o) { return o->samples() && o->watches(cluster); });
}

void Launch::stop_at(std::uint64_t cluster, Fault why) {
  const std::lock_guard lock(mutex);
  if (fault.kind != FaultKind::none && cluster > fault_cluster) return;
  fault = std::move(why);
  fault_cluster = cluster;
}

void Launch::print(std::string_view text) {
  const std::lock_guard lock(mutex);
  if (machine.print)
    machine.print(text);
  else
    std::fwrite(text.data(), 1, text.size(), stdout);
}

namespace {

constexpr std::uint32_t kMaxLocalBytes = 512u << 10;  // CUDA's limit for a thread

// Throws Fault when a block of the launch takes more than the machine gives.
void check_sizes(const LaunchRequest& request) {
  const Function& function = *request.function;
  if (function.local_bytes > kMaxLocalBytes)
    throw Fault{FaultKind::out_of_memory, function.display + " needs " +
                                              std::to_string(function.local_bytes) +
                                              " bytes of local memory a thread; the most is " +
                                              std::to_string(kMaxLocalBytes)};
  const std::uint64_t warps = (request.block.count() + kWarpSize - 1) / kWarpSize;
  constexpr std::uint64_t kMostRegisterBytes = 1ull << 30;
  if (const std::uint64_t bytes =
          warps * (function.register_bytes + std::uint64_t{kWarpSize} * function.call_area_bytes);
      bytes > kMostRegisterBytes)
    throw Fault{FaultKind::out_of_memory, function.display + " needs " +
                                              std::to_string(bytes >> 20) +
                                              " MiB of PTX registers a block; the most is " +
                                              std::to_string(kMostRegisterBytes >> 20)};
  const std::uint64_t in_cluster = request.cluster.count();
  if (in_cluster == 0 || request.grid.x % request.cluster.x || request.grid.y % request.cluster.y ||
      request.grid.z % request.cluster.z)
    throw Fault{FaultKind::illegal_instruction,
                "the grid of " + function.display + " is no multiple of its clusters"};
}

void lay_out(Launch& launch) {
  const LaunchRequest& request = launch.request;
  const Function& function = *request.function;
  launch.params.resize(std::max<std::size_t>(launch.params.size(), function.param_bytes));
  launch.dynamic_shared_base = (function.shared_bytes + function.dynamic_shared_align - 1) /
                               function.dynamic_shared_align * function.dynamic_shared_align;
  launch.shared_bytes = request.dynamic_shared ? launch.dynamic_shared_base + request.dynamic_shared
                                               : function.shared_bytes;
  launch.ranked_shared = request.cluster.count() > 1;
  launch.warps_per_block =
      static_cast<std::uint32_t>((request.block.count() + kWarpSize - 1) / kWarpSize);
}

// The deepest stack of a function and of what it calls, by their .local variables; nothing where only running
// it tells: something of it calls itself, or through a pointer.
class Stacks {
 public:
  std::optional<std::uint64_t> of(const Function& f) {
    constexpr std::size_t kMostCallers = 256;
    if (const auto it = known_.find(&f); it != known_.end()) return it->second;
    if (f.calls_indirectly || known_.size() > kMostCallers) return std::nullopt;
    known_[&f] = std::nullopt;  // what a call of itself finds
    std::uint64_t deepest = 0;
    for (const CallSite& site : f.calls) {
      if (!site.callee) continue;
      const auto below = of(*site.callee);
      if (!below) return std::nullopt;
      deepest = std::max(deepest, *below);
    }
    return known_[&f] = deepest + f.local_bytes;
  }

 private:
  std::map<const Function*, std::optional<std::uint64_t>> known_;
};
// As on a GPU a stack that is known is there, and one that is not is as large as the limit.
std::uint32_t stack_bytes(const Launch& launch) {
  const auto known = Stacks().of(*launch.request.function);
  const auto least = static_cast<std::uint32_t>(std::max(launch.request.attributes.local_bytes, 0));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(
      kMaxLocalBytes, known ? *known : std::max(least, launch.machine.stack_limit)));
}

// Prepares all that the kernel may call. True when the order of blocks may decide the results.
bool prepare_callees(Launch& launch) {
  bool order_matters = false;
  std::vector<const Function*> todo = {launch.request.function}, seen;
  while (!todo.empty()) {
    const Function* f = todo.back();
    todo.pop_back();
    if (std::find(seen.begin(), seen.end(), f) != seen.end()) continue;
    seen.push_back(f);
    launch.prepare(f);
    order_matters |= f->order_matters || f->calls_indirectly;
    if (f->uses_reserved_shared && !launch.reserved_shared) {
      const std::uint32_t own = launch.shared_bytes;
      launch.shared_bytes = (own + 127) / 128 * 128 + kReservedShared;
      launch.reserved_shared = launch.shared_bytes - own;
    }
    for (const CallSite& site : f->calls)
      if (site.callee) todo.push_back(site.callee);
  }
  return order_matters;
}

// Where the barrier of a cooperative grid is.
std::shared_ptr<Allocation> grid_workspace(Memory& memory) {
  auto workspace = memory.allocate(Launch::kWorkspaceBytes, MemoryKind::heap);
  if (!workspace)
    throw Fault{FaultKind::out_of_memory, "no memory for the workspace of a cooperative launch"};
  workspace->name = "grid barrier";
  std::memset(workspace->host, 0, workspace->size);
  memory.mark_written(workspace->base, workspace->size);
  return workspace;
}

}  // namespace

// One launch, from the request to its outcome.
class Machine::Run {
 public:
  Run(Machine& machine, const LaunchRequest& request)
      : machine_(machine.impl_.get()),
        request_(request),
        launch_(machine, request, machine_->heap_used) {
    launch_.constants = request.module->constants->data();
    launch_.constant_bytes = request.module->constants->size();
    launch_.grid_id = ++machine_->launches;
    launch_.seed = machine_->options.schedule_seed;
    launch_.hostile = launch_.seed != 0 && machine_->options.hostile;
    launch_.prepare = [impl = machine_](const Function* function) {
      impl->prepare(function);
      return function;
    };
    launch_.function_at = [impl = machine_](std::uint64_t address) -> const Function* {
      return impl->tables->find(address);
    };
  }

  void run() {
    try {
      prepare();
      execute();
    } catch (const Fault& fault) {
      launch_.fault = fault;
    } catch (const PtxError& error) {
      launch_.fault = {FaultKind::illegal_instruction, error.what()};
    } catch (const std::exception& error) {
      out_of_memory(error, "preparing");
    }
  }
  LaunchOutcome outcome() {
    std::uint64_t ticks = 0;
    for (auto& worker : workers_) ticks = std::max(ticks, worker->time);
    machine_->time += ticks + 1000;
    if (workspace_) machine_->memory.release(workspace_->base);
    LaunchOutcome outcome;
    for (const auto& observer : observers_) observer->launch_end(launch_, outcome.findings);
    outcome.fault = launch_.fault;
    if (!request_.count || launch_.fault.kind != FaultKind::none) return outcome;
    outcome.counters = gather(launch_, workers_, observers_);
    outcome.counters.sampled = launch_.only_sampled;
    outcome.counters.executed_blocks =
        launch_.only_sampled ? launch_.executed_blocks.load() : request_.grid.count();
    outcome.counters.host_threads = static_cast<int>(workers_.size());
    outcome.counters.host_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return outcome;
  }

 private:
  void out_of_memory(const std::exception& error, const char* while_doing) {
    launch_.stop_at(0, {FaultKind::out_of_memory,
                        "out of host memory (" + std::string(error.what()) + ") while " +
                            while_doing + " " + request_.function->display});
  }

  void prepare() {
    launch_.prepare(request_.function);
    check_sizes(request_);
    lay_out(launch_);
    launch_.start_time = machine_->time;
    const bool order_matters = prepare_callees(launch_) || request_.cooperative;
    launch_.stack_bytes = stack_bytes(launch_);
    launch_.fair = request_.grid.count() > 1 && !launch_.hostile;
    launch_.may_wait = order_matters;
    if (request_.cooperative) {
      workspace_ = grid_workspace(machine_->memory);
      launch_.workspace = workspace_->base;
    }
    make_observers();
    launch_.only_sampled = machine_->options.time == TimeMode::sample && !order_matters &&
                           launch_.everywhere.all.size() < launch_.with_samplers.all.size();
    make_workers(order_matters || launch_.seed || !launch_.everywhere.all.empty());
  }

  void make_observers() {
    if (const Machine& machine = launch_.machine; machine.observers)
      observers_ = machine.observers(launch_);
    for (const auto& observer : observers_)
      resident_ = std::max(resident_, observer->wants_resident(launch_));
    for (const auto& observer : observers_)
      for (Audience* audience : {&launch_.everywhere, &launch_.with_samplers}) {
        if (observer->samples() && audience == &launch_.everywhere) continue;
        audience->all.push_back(observer.get());
        if (observer->wants_instructions()) audience->followers.push_back(observer.get());
      }
    launch_.small_turns = resident_ != 0 && !launch_.seed;
    launch_.fair &= !launch_.small_turns;  // it is in any case
  }

  void make_workers(bool one) {
    const int wanted = machine_->options.threads > 0 ? machine_->options.threads : processors();
    const auto threads = one ? 1
                             : std::clamp<std::uint64_t>(
                                   clusters(), 1, static_cast<std::uint64_t>(std::max(1, wanted)));
    if (request_.count) {
      launch_.l1_clocks_by_sm.resize(sms());
      launch_.shared_clocks_by_sm.resize(sms());
      launch_.issued_by_sm.resize(sms());
    }
    for (std::uint64_t t = 0; t < threads; ++t) {
      Worker& worker = *workers_.emplace_back(std::make_unique<Worker>(launch_));
      worker.counting = request_.count;
      worker.attend(launch_.everywhere);
      worker.sectors_per_clock =
          static_cast<std::uint32_t>(machine_->spec.l1_bytes_per_clock_sm / kSectorBytes);
    }
  }

  void execute() {
    const ClusterOrder order(clusters(), launch_.hostile ? 0 : launch_.seed);
    const std::uint64_t resident =
        std::max<std::uint64_t>(1, resident_blocks() / request_.cluster.count() / workers_.size());
    std::atomic<std::uint64_t> next{0};
    for (const auto& observer : observers_) observer->launch_begin(launch_);
    machine_->threads.run(static_cast<int>(workers_.size()), [&](int t) {
      try {
        Work work(launch_, *workers_[static_cast<std::size_t>(t)]);
        work.run(order, resident, next);
        work.finish();
      } catch (const std::exception& error) {  // bad_alloc, and what else must not end the process
        out_of_memory(error, "running");
      }
    });
  }

  std::size_t sms() const { return static_cast<std::size_t>(machine_->spec.sm_count); }
  std::uint64_t clusters() const { return request_.grid.count() / request_.cluster.count(); }
  std::uint64_t resident_blocks() const {
    if (request_.cooperative) return request_.grid.count();
    if (launch_.small_turns) return resident_;
    const auto per_sm = static_cast<std::uint64_t>(std::max(1, request_.resident_blocks_per_sm));
    return std::max<std::uint64_t>(1, sms() * per_sm);
  }

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Impl* machine_;
  const LaunchRequest& request_;
  Launch launch_;
  std::vector<std::unique_ptr<Observer>> observers_;
  std::uint64_t resident_ = 0;  // see Observer::wants_resident
  std::vector<std::unique_ptr<Worker>> workers_;
  std::shared_ptr<Allocation> workspace_;
};

LaunchOutcome Machine::launch(const LaunchRequest& request) {
  Run run(*this, request);
  run.run();
  return run.outcome();
}

}  // namespace vgpu
