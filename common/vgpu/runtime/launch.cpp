// One launch: is the configuration possible on this device, where are the arguments, run it, and
// what becomes of a fault.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>

#include "../profile/report.h"
#include "../time/kernel_time.h"
#include "runtime.h"

namespace vgpu::runtime {
namespace {

Status error_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::none:
      return Status::success;
    case FaultKind::illegal_address:
      return Status::illegal_address;
    case FaultKind::misaligned:
      return Status::misaligned_address;
    case FaultKind::address_space:
      return Status::invalid_address_space;
    case FaultKind::illegal_instruction:
      return Status::illegal_instruction;
    case FaultKind::assertion:
      return Status::device_assert;
    case FaultKind::trap:
      return Status::launch_failure;
    case FaultKind::deadlock:
      return Status::launch_timeout;
    case FaultKind::stack_overflow:
      return Status::launch_failure;
    case FaultKind::out_of_memory:
      return Status::out_of_memory;
  }
  return Status::unknown;
}

std::string text(Dim3 d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

// The limits of every launch, in the order in which a GPU finds them. Says which one is broken.
Status check(const Kernel& kernel, const LaunchConfig& config, int& resident) {
  const DeviceSpec& spec = Runtime::get().spec();
  const auto refuse = [&](Status status, const std::string& why) {
    say("cannot launch " + display_name(kernel.name) + ": " + why);
    return status;
  };
  const Dim3 grid = grid_of(kernel, config), block = config.block;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535)
    return refuse(Status::invalid_configuration,
                  "grid " + text(grid) + ", the device allows (1..2147483647, 1..65535, 1..65535)");
  if (threads == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      threads > static_cast<std::uint64_t>(spec.max_threads_per_block))
    return refuse(Status::invalid_configuration,
                  "block " + text(block) + " has " + std::to_string(threads) +
                      " threads, the device allows 1 to " +
                      std::to_string(spec.max_threads_per_block) + ", in z at most 64");
  const auto& required = kernel.function->required_block;
  if (required[0] && (required[0] != block.x || required[1] != block.y || required[2] != block.z))
    return refuse(Status::invalid_configuration, "block " + text(block) + ", the kernel requires " +
                                                     text({required[0], required[1], required[2]}));
  if (kernel.function->max_threads > 0 && threads > kernel.function->max_threads)
    return refuse(Status::invalid_value, std::to_string(threads) + " threads in a block, its " +
                                             "__launch_bounds__ allow " +
                                             std::to_string(kernel.function->max_threads));
  if (threads > static_cast<std::uint64_t>(max_threads_per_block(kernel)))
    return refuse(Status::launch_out_of_resources,
                  std::to_string(threads) + " threads with " +
                      std::to_string(kernel.cubin.registers) + " registers each, a block has " +
                      std::to_string(spec.registers_per_block) + " registers");
  if (config.dynamic_shared > static_cast<std::uint64_t>(max_dynamic_shared(kernel)))
    return refuse(Status::invalid_value,
                  std::to_string(config.dynamic_shared) + " bytes of dynamic shared memory, " +
                      std::to_string(max_dynamic_shared(kernel)) + " are allowed beside " +
                      std::to_string(static_shared(kernel)) + " static ones (the device has " +
                      std::to_string(spec.shared_per_block_optin) +
                      " for a block after cudaFuncSetAttribute(.., "
                      "cudaFuncAttributeMaxDynamicSharedMemorySize, ..))");
  const Dim3 cluster = cluster_of(kernel, config.cluster);
  const std::uint64_t cluster_blocks = std::uint64_t{cluster.x} * cluster.y * cluster.z;
  const auto& wanted = kernel.function->required_cluster;
  const bool asked = config.cluster.x || config.cluster.y || config.cluster.z;
  if (asked && wanted[0] &&
      (wanted[0] != cluster.x || wanted[1] != cluster.y || wanted[2] != cluster.z))
    return refuse(Status::invalid_cluster_size, "cluster " + text(cluster) +
                                                    ", the kernel was compiled for " +
                                                    text({wanted[0], wanted[1], wanted[2]}));
  if (kernel.function->explicit_cluster && cluster_blocks == 0 && !asked)
    return refuse(Status::invalid_cluster_size,
                  "the kernel has __cluster_dims__ without numbers: its launch must say them "
                  "(cudaLaunchAttributeClusterDimension)");
  if (cluster_blocks == 0 && (cluster.x || cluster.y || cluster.z))
    return refuse(asked ? Status::invalid_configuration : Status::invalid_cluster_size,
                  "cluster " + text(cluster) + " has no blocks");
  if (cluster_blocks > 1) {
    if (!spec.clusters || spec.major < 9)
      return refuse(Status::not_supported, "clusters need compute capability 9.0");
    if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
      return refuse(Status::invalid_configuration,
                    "grid " + text(grid) + " is not a multiple of cluster " + text(cluster));
    if (cluster_blocks > max_cluster_blocks(kernel))
      return refuse(
          Status::invalid_cluster_size,
          "cluster " + text(cluster) + " has " + std::to_string(cluster_blocks) + " blocks, " +
              std::to_string(max_cluster_blocks(kernel)) +
              (kernel.function->max_cluster
                   ? " are allowed by the kernel's __launch_bounds__"
                   : " are allowed (16 with cudaFuncAttributeNonPortableClusterSizeAllowed)"));
  }
  resident = blocks_per_sm(kernel, static_cast<int>(threads), config.dynamic_shared);
  if (resident == 0)
    return refuse(Status::launch_out_of_resources, "not one block fits on a multiprocessor");
  if (config.cooperative) {
    if (!spec.cooperative) return refuse(Status::not_supported, "no cooperative launches");
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    const std::uint64_t fit = static_cast<std::uint64_t>(resident) * spec.sm_count;
    if (blocks > fit)
      return refuse(Status::cooperative_launch_too_large,
                    std::to_string(blocks) + " blocks in a cooperative grid, " +
                        std::to_string(fit) + " fit on the device at once");
  }
  return Status::success;
}

// For the timeline: how long it takes there. A launch that fails has no counters.
void show(const LaunchConfig& config, const LaunchOutcome& outcome) {
  Runtime& runtime = Runtime::get();
  auto* const shown = runtime.order ? runtime.order->shown() : nullptr;
  if (!shown) return;
  const PredictedTime& predicted = outcome.counters.predicted;
  const double launch_us =
      predicted.asked && predicted.why.empty()
          ? predicted.launch_us
          : (shown->group > 0 ? timeline_us::kGraphNode : timeline_us::kLaunch) +
                (config.cooperative ? timeline_us::kCooperative : 0);
  if (outcome.fault.kind == FaultKind::none)
    return runtime.timeline()->make_kernel(*shown, outcome.counters, launch_us);
  shown->kind = DeviceTimeline::Kind::kernel;
  shown->share = DeviceTimeline::kWholeDevice;
  shown->us = shown->launch_us = launch_us;
  shown->args.update({{"duration", "none"}, {"error", outcome.fault.message}});
}

// The machine code of a kernel for the device, with PTX lines.
const time::MachineCodeOrWhy& machine_code_of(Kernel& kernel) {
  if (kernel.machine_code) return *kernel.machine_code;
  time::MachineCodeOrWhy answer;
  const Library& library = *kernel.library;
  const DeviceSpec& spec = Runtime::get().spec();
  const Module& module = *library.module->module;
  const bool linked = library.prelinked && library.prelinked[0] && library.prelinked[1];
  if (linked) {
    answer.why = "the program is linked from several device files (-rdc=true): no predicted time";
  } else {
    std::string target = "sm_" + std::to_string(spec.major * 10 + spec.minor);
    if (module.target.ends_with('a')) target += 'a';
    answer = time::machine_code(module.text, kernel.name, target, library.own_code);
  }
  kernel.machine_code = std::make_shared<const time::MachineCodeOrWhy>(std::move(answer));
  return *kernel.machine_code;
}

// What the simulated blocks executed stands for all blocks.
void count_machine_instructions(LaunchCounters& counters) {
  const PredictedTime& predicted = counters.predicted;
  if (!predicted.why.empty() || counters.sampled) return;
  counters.machine_instructions =
      static_cast<std::uint64_t>(std::llround(predicted.machine_instructions));
  std::map<std::uint32_t, double> by_line;
  double simulated = 0;
  for (const PredictedLine& line : predicted.lines) {
    by_line[line.ptx_line] = line.issued;
    simulated += line.issued;
  }
  if (simulated <= 0) return;
  for (InstrReport& instr : counters.instructions) {
    const auto line = by_line.find(instr.ptx_line);
    if (line == by_line.end()) continue;
    instr.machine_instructions = static_cast<std::uint64_t>(
        std::llround(line->second * predicted.machine_instructions / simulated));
    by_line.erase(line);  // the first of several statements on a line gets it
  }
}

// Predicted time of a launch that was recorded. With a timeline, what the warps of the first blocks of
// each kernel's first launch do goes there.
void predict(Kernel& kernel, const LaunchRequest& request, LaunchOutcome& outcome) {
  Runtime& runtime = Runtime::get();
  const auto recording = runtime.machine().take_recording();
  look::Launched launched = {request, outcome};
  if (!recording || !request.count || outcome.fault.kind != FaultKind::none) {
    if (runtime.look) runtime.look->add(launched);
    return;
  }
  // (The page has an account of its own of what warps do.)
  const bool shown = runtime.timeline() && runtime.order->shown() && !kernel.on_timeline &&
                     (runtime.timeline_has_file() || !runtime.look);
  time::SimulatedBlocks blocks;
  blocks.first_alone = !shown;
  const time::MachineCodeOrWhy& code = machine_code_of(kernel);
  outcome.counters.predicted = time::predict(
      *recording, outcome.counters, code, runtime.spec(), request.cooperative, runtime.left_in_l2,
      shown || runtime.look ? &blocks : nullptr, runtime.in_graph || runtime.as_in_graph);
  count_machine_instructions(outcome.counters);
  if (runtime.look) {
    launched.code = &code;
    if (outcome.counters.predicted.why.empty()) launched.blocks = &blocks;
    if (!recording->blocks.empty()) launched.block = recording->blocks[0].linear;
    runtime.look->add(launched);
  }
  if (!shown || blocks.activities.empty()) return;
  kernel.on_timeline = true;
  for (const time::Activity& a : blocks.activities)
    runtime.timeline()->add_warp_activity(
        runtime.order->shown()->number, 0, recording->blocks[a.block].linear,
        static_cast<int>(a.warp), a.begin, a.end,
        a.state == time::Stall::selected ? time::kind_name(a.kind) : time::stall_name(a.state));
}

}  // namespace

Dim3 cluster_of(const Kernel& kernel, Dim3 asked) {
  if (asked.x || asked.y || asked.z) return asked;
  const auto& wanted = kernel.function->required_cluster;
  if (wanted[0]) return {wanted[0], wanted[1], wanted[2]};
  const auto& set = kernel.required_cluster;
  return {static_cast<unsigned>(set[0]), static_cast<unsigned>(set[1]),
          static_cast<unsigned>(set[2])};
}

Dim3 grid_of(const Kernel& kernel, const LaunchConfig& config) {
  const Dim3 n =
      kernel.function->blocks_are_clusters ? cluster_of(kernel, config.cluster) : Dim3{1, 1, 1};
  const auto times = [](unsigned a, unsigned b) {  // at most 0xffffffff, which check() refuses
    return static_cast<unsigned>(std::min<std::uint64_t>(std::uint64_t{a} * b, 0xffffffffu));
  };
  return {times(config.grid.x, n.x), times(config.grid.y, n.y), times(config.grid.z, n.z)};
}

unsigned max_cluster_blocks(const Kernel& kernel) {
  const unsigned most = kernel.nonportable_cluster ? 16 : 8;
  return kernel.function->max_cluster ? std::min(most, kernel.function->max_cluster) : most;
}

Status check_launch(Kernel& kernel, const LaunchConfig& config) {
  if (const Status status = load_kernel(kernel); status != Status::success) return status;
  int resident = 1;
  return check(kernel, config, resident);
}

Status launch(Kernel& kernel, const LaunchConfig& config, std::span<const std::byte> params) {
  Runtime& runtime = Runtime::get();
  if (const Status status = load_kernel(kernel); status != Status::success) return status;
  int resident = 1;
  if (const Status status = check(kernel, config, resident); status != Status::success)
    return status;
  const Function& function = *kernel.function;

  LaunchRequest request;
  request.module = kernel.library->module.get();
  request.function = &function;
  const Dim3 grid = grid_of(kernel, config), cluster = cluster_of(kernel, config.cluster);
  request.grid = {grid.x, grid.y, grid.z};
  request.block = {config.block.x, config.block.y, config.block.z};
  request.explicit_cluster = cluster.x != 0;
  if (request.explicit_cluster) request.cluster = {cluster.x, cluster.y, cluster.z};
  request.dynamic_shared = static_cast<std::uint32_t>(config.dynamic_shared);
  request.params = params;
  request.cooperative = config.cooperative;
  request.attributes.registers = kernel.cubin.registers;
  request.attributes.local_bytes = kernel.cubin.local_bytes;
  request.resident_blocks_per_sm = resident;
  const bool profile = runtime.settings.profile_text || !runtime.settings.profile_json.empty() ||
                       runtime.timeline() || runtime.look;
  request.count = runtime.count || profile;
  StreamCheck* const order =
      runtime.order && runtime.order->active() ? runtime.order->check.get() : nullptr;

  LaunchOutcome outcome = runtime.machine().launch(request);
  ++runtime.launches;
  if (order) order->take(kernel.library->module->module);
  predict(kernel, request, outcome);
  show(config, outcome);
  for (const std::string& note : runtime.machine().tracer().take_notes()) say(note);
  for (std::string& finding : outcome.findings) runtime.findings.push_back(std::move(finding));
  if (outcome.fault.kind != FaultKind::none) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", outcome.fault.message.c_str());
    runtime.launch_failed = true;
    const Status status = error_of(outcome.fault.kind);
    // The host lacks memory for this launch: the launch fails, the context is well.
    if (status == Status::out_of_memory) return status;
    // As on a GPU the launch itself has succeeded: the next call finds the context broken.
    runtime.sticky = status;
    return Status::success;
  }
  if (const PredictedTime& predicted = outcome.counters.predicted; predicted.asked) {
    ++runtime.predicted.launches;
    runtime.predicted.us +=
        predicted.why.empty() ? predicted.us : std::numeric_limits<double>::quiet_NaN();
  }
  if (outcome.counters.predicted.asked && runtime.settings.options.time != TimeMode::off)
    runtime.times.add(outcome.counters);
  if (request.count) {
    if (runtime.settings.profile_text) {
      std::fflush(stdout);
      std::fputs(report_text(outcome.counters, runtime.spec()).c_str(), stderr);
    }
    if (!runtime.settings.profile_json.empty())
      runtime.launch_reports.push_back(report_json(outcome.counters, runtime.spec()));
    runtime.last_launch = std::move(outcome.counters);
    runtime.last_numbers.reset();
  }
  return Status::success;
}

}  // namespace vgpu::runtime
