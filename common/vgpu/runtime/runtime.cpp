// The one Runtime: settings, handles, what is reported when the program ends.
#include "runtime.h"

#include "capture.h"
#include "graph.h"

#include <pthread.h>
#include <unistd.h>

#include "../profile/output_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>

namespace vgpu::runtime {

namespace {
// Handles of the default streams. All of NVIDIA's interfaces use these numbers.
constexpr std::uintptr_t kLegacyStream = 1, kThreadStream = 2;

Runtime* made = nullptr;  // for the end of the program, which must not make one
std::atomic<bool> in_child{false};

// The program's exit status: what it passed to exit(), or what main() returned.
int status_of_program = 0;

// Why the reports' files cannot be written, in words; "" when they can.
std::string wrong_files(const Settings& settings) {
  const std::string& profile = settings.profile_json;
  if (!profile.empty())
    if (const std::string why = why_not_writable(profile); !why.empty())
      return "VGPU_PROFILE='json:" + profile + "': cannot be written: " + why;
  const std::string trace = settings.trace ? settings.trace->file : "";
  if (!trace.empty())
    if (const std::string why = why_not_writable(trace); !why.empty())
      return "VGPU_TRACE: its file '" + trace + "' cannot be written: " + why;
  const std::string& timeline = settings.timeline;
  if (!timeline.empty())
    if (const std::string why = why_not_writable(timeline); !why.empty())
      return "VGPU_TIMELINE='" + timeline + "': cannot be written: " + why;
  const std::string& look = settings.look;
  if (!look.empty())
    if (const std::string why = why_not_writable(look); !why.empty())
      return "VGPU_LOOK='" + look + "': cannot be written: " + why;
  const std::pair<const char*, const std::string&> files[] = {{"VGPU_PROFILE", profile},
                                                              {"VGPU_TRACE", trace},
                                                              {"VGPU_TIMELINE", timeline},
                                                              {"VGPU_LOOK", look}};
  for (const auto& [one, file] : files)
    for (const auto& [other, same] : files) {
      if (&file == &same) break;  // each two once
      if (!file.empty() && !same.empty() && same_output_file(file, same))
        return std::string(other) + " and " + one + " name the same file '" + file + "': say two";
    }
  return "";
}

}  // namespace

bool forked() { return in_child; }

Runtime& Runtime::get() {
  static Runtime* const runtime = made = new Runtime;
  return *runtime;
}

void Runtime::configure() {
  if (configured_) return;
  configured_ = true;
  on_exit([](int status, void*) { status_of_program = status; }, nullptr);
  settings = read_settings([](const char* name) { return std::getenv(name); });
  if (settings.error.empty()) settings.error = wrong_files(settings);
  if (const std::string unknown = unknown_variable(environ); !unknown.empty()) say(unknown);
  if (settings.options.check_race || settings.host) {
    order = std::make_unique<OperationOrder>();
    order->check = std::make_unique<StreamCheck>(findings);
  }
  if (settings.host) {
    host_guard = std::make_unique<HostGuard>();
    order->check->host_guard = host_guard.get();
    host_guard->shares_pages = [this](const Allocation& a) {
      return host_registrations.contains(a.base);
    };
  }
  if (settings.error.empty()) {
    if (!settings.timeline.empty()) begin_timeline(settings.timeline);
    if (!settings.look.empty()) begin_look(settings.look);
    return;
  }
  off = settings.unknown_device ? Status::no_device : Status::not_initialized;
  say(settings.error);
}

WatchedMachine& Runtime::machine() {
  if (!machine_) {
    machine_ = std::make_unique<WatchedMachine>(settings.spec, settings.options);
    machine_->instruction_limit = settings.instruction_limit;
    machine_->variable_at = [this](std::uint64_t address) { return variable_at(address); };
    pthread_atfork(nullptr, nullptr, [] { in_child = true; });
    machine_->tracer().set(settings.trace);
    machine_->another = [this]() -> std::unique_ptr<Observer> {
      if (!order || !order->active()) return nullptr;
      return make_touch_observer(order->check->touches(), order->check->dependence());
    };
    if (settings.host)
      machine_->print = [this](std::string_view text) {
        if (order->active()) order->check->prints();
        std::fwrite(text.data(), 1, text.size(), stdout);
      };
    machine_->look = [this](const Launch& launch) { return look ? look->watch(launch) : nullptr; };
    machine_->always_timed = look && !settings.no_time;
  }
  return *machine_;
}

Library* Runtime::find_library(const void* handle) {
  for (const auto& library : libraries)
    if (library.get() == handle) return library.get();
  return nullptr;
}

Kernel* Runtime::find_kernel(const void* function) {
  if (const auto it = functions.find(function); it != functions.end()) return it->second;
  if (const auto it = kernels.find(static_cast<const Kernel*>(function)); it != kernels.end())
    return const_cast<Kernel*>(*it);
  return nullptr;
}

Kernel* Runtime::add_kernel(Library& library, const std::string& name) {
  auto& slot = library.kernels[name];
  if (!slot) {
    slot = std::make_unique<Kernel>();
    slot->library = &library;
    slot->name = name;
    kernels.insert(slot.get());
  }
  return slot.get();
}

std::string Runtime::variable_at(std::uint64_t host_address) const {
  for (const auto& [host, variable] : variables)
    if (host_address - reinterpret_cast<std::uint64_t>(host) < variable.size &&
        !variable.managed_pointer)
      return display_name(variable.name);
  return "";
}

void Runtime::remove_library(Library& library) {
  std::erase_if(functions, [&](const auto& entry) { return entry.second->library == &library; });
  std::erase_if(variables, [&](const auto& entry) { return entry.second.library == &library; });
  for (const auto& [name, kernel] : library.kernels) kernels.erase(kernel.get());
  if (library.module)
    for (const auto& variable : library.module->variables)
      if (variable) memory().release(variable->base);
  std::erase_if(libraries, [&](const auto& other) { return other.get() == &library; });
}

Stream* Runtime::find_stream(Handle stream, bool per_thread) {
  const auto number = reinterpret_cast<std::uintptr_t>(stream);
  if (number == kThreadStream || (stream == nullptr && per_thread)) {
    thread_local Stream* of_thread = nullptr;
    if (!of_thread) {
      thread_streams.push_back(std::make_unique<Stream>(2));
      of_thread = thread_streams.back().get();
    }
    return of_thread;
  }
  if (number == kLegacyStream || stream == nullptr) return &legacy;
  const auto it = streams.find(static_cast<Stream*>(stream));
  return it == streams.end() ? nullptr : *it;
}

Event* Runtime::find_event(Handle event) {
  const auto it = events.find(static_cast<Event*>(event));
  return it == events.end() ? nullptr : *it;
}

// What happens before the stream's next operation: the stream's own work, all that the host has waited
// for, and what the legacy default stream orders. That stream waits for all blocking streams, and they
// wait for it.
Clock Runtime::before(const Stream& stream, const Clock& own) {
  Clock clock = own;
  clock.join(host);
  if (stream.blocking()) clock.join(legacy.clock);
  if (!stream.legacy()) return clock;
  clock.join(gone);
  for (const Stream* other : streams)
    if (other->blocking()) clock.join(other->clock);
  for (const auto& other : thread_streams) clock.join(other->clock);
  return clock;
}

void Runtime::host_waits(const Clock& clock) {
  if (!order) return;
  order->host_waits(clock);
  host.join(clock);
}
void Runtime::host_waits_for_all() {
  if (!order) return;
  order->host_waits_for_all();
  host.learn_all(order->last());
  if (host_guard) host_guard->lift();  // memory may be given back now
}

void Runtime::begin_timeline(const std::string& file) {
  if (!order) order = std::make_unique<OperationOrder>();
  order->timeline = std::make_unique<DeviceTimeline>(spec());
  timeline_file_ = file;
}

bool Runtime::end_timeline() {
  if (!timeline()) return true;
  const std::string why =
      timeline_file_.empty() ? "" : write_output_file(timeline_file_, timeline()->json());
  order->timeline.reset();
  if (!why.empty()) say("VGPU_TIMELINE: cannot write " + timeline_file_ + ": " + why);
  return why.empty();
}

void Runtime::begin_look(const std::string& file) {
  look = std::make_unique<look::Look>(spec());
  look_file_ = file;
  if (!timeline()) begin_timeline("");
  if (machine_) machine_->always_timed = !settings.no_time;
}

bool Runtime::end_look() {
  if (!look) return true;
  const std::string why =
      write_output_file(look_file_, look->page({timeline() ? timeline()->json() : "", findings}));
  look.reset();
  if (machine_) machine_->always_timed = false;
  if (!why.empty()) say("VGPU_LOOK: cannot write " + look_file_ + ": " + why);
  return why.empty();
}

namespace {

std::uint64_t leaks = 0, leaked_bytes = 0;  // so far, of the one Runtime

// Says which allocations were not freed. `end` is the end of each sentence: " never freed".
void report_leaks(Runtime& runtime, const char* end) {
  constexpr std::uint64_t kNamed = 20;
  std::uint64_t unnamed = 0;
  std::set<std::uint64_t> variables;  // __managed__ ones are in managed memory, and never freed
  for (const auto& library : runtime.libraries)
    if (library->module)
      for (const auto& variable : library->module->variables) variables.insert(variable->base);
  for (const auto& a : runtime.memory().live()) {
    if (variables.count(a->base)) continue;
    if (a->kind == MemoryKind::global_variable || a->kind == MemoryKind::heap) continue;
    if (runtime.host_registrations.count(a->base)) continue;
    leaked_bytes += a->size;
    if (++leaks > kNamed) {
      ++unnamed;
      continue;
    }
    say("leak: " + std::to_string(a->size) + " bytes" +
        (a->name.empty() ? " (allocation " + std::to_string(a->id) + ")"
                         : " of '" + a->name + "'") +
        end);
  }
  if (unnamed) say("leak: and " + std::to_string(unnamed) + " more");
}

}  // namespace

void Runtime::reset() {
  if (settings.leaks && machine_) report_leaks(*this, " not freed before cudaDeviceReset");
  for (const auto& capture : captures) capture->ended = true;
  captures.clear();
  execs.clear();
  graphs.clear();
  host_waits_for_all();
  graph_memory.clear();
  graph_memory_used = graph_memory_high = 0;
  for (const auto& stream : thread_streams) stream->capture.reset();
  for (Stream* stream : streams) delete stream;
  for (Event* event : events) delete event;
  for (Pool* pool : pools) delete pool;
  streams.clear();
  events.clear();
  pools.clear();
  pool_of.clear();
  default_pool = {};
  current_pool = &default_pool;
  host_allocations.clear();
  host_registrations.clear();
  limits.clear();
  if (machine_) machine_->stack_limit = Machine::kStackLimit;
  device_flags = 0;
  sticky = Status();
  if (!machine_) return;
  // Modules are loaded anew at their next use, with the initial values of their variables.
  for (const auto& library : libraries) {
    library->module.reset();
    library->tried = false;
    for (const auto& [name, kernel] : library->kernels) {
      kernel->function = nullptr;
      kernel->max_dynamic_shared = kernel->carveout = -1;
    }
  }
  for (const auto& allocation : memory().live()) memory().release(allocation->base);
}

namespace {

// False, and said, when they could not be written.
bool write_reports(const std::string& path, const std::vector<std::string>& reports) {
  std::string text = "[";
  for (std::size_t i = 0; i < reports.size(); ++i) text += (i ? ",\n" : "\n") + reports[i];
  const std::string why = write_output_file(path, text + "\n]\n");
  if (!why.empty()) say("VGPU_PROFILE: cannot write " + path + ": " + why);
  return why.empty();
}

// Findings of several launches in the same words stand once, with how many there were.
std::vector<std::string> without_repetition(const std::vector<std::string>& findings) {
  std::map<std::string, std::size_t> index;
  std::vector<std::size_t> times;
  std::vector<std::string> texts;
  for (const std::string& finding : findings) {
    const auto [it, added] = index.try_emplace(finding, texts.size());
    if (added) {
      texts.push_back(finding);
      times.push_back(0);
    }
    ++times[it->second];
  }
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (times[i] > 1) texts[i] += " (" + std::to_string(times[i]) + " times)";
  return texts;
}

}  // namespace

int Runtime::finish() {
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) {  // waiting could be for ever
    say("the program ended during a launch: no reports");
    return 0;
  }
  if (off != Status::success) return 0;
  if (host_guard) {
    host_guard->enter(findings);
    host_guard->forget_all();
    host_guard->settle(host);
    if (const std::string name = order->check->prints_unheard(host); !name.empty())
      findings.push_back("error: race with the host: the program ends before it has waited for " +
                         name +
                         ", whose output of printf a GPU does not show then "
                         "(cudaDeviceSynchronize)");
  }
  bool lost = false;  // something that was asked for
  if (!settings.profile_json.empty()) lost = !write_reports(settings.profile_json, launch_reports);
  if (settings.options.time != TimeMode::off) std::fputs(times.text(settings.spec).c_str(), stderr);
  if (settings.profile_text) lost = std::fflush(stderr) != 0 || std::ferror(stderr) || lost;
  lost = lost || (machine_ && machine_->tracer().failed());
  lost = !end_look() || lost;
  lost = !end_timeline() || lost;
  if (machine_) {
    if (const std::string text = machine_->tracer().missing(); !text.empty()) {
      say(text);
      lost = true;
    }
  } else if (settings.trace) {
    say("trace: nothing is written, no kernel was launched");
  }
  if (settings.leaks && machine_) {
    report_leaks(*this, " never freed");
    say("leaks: " + std::to_string(leaks) + " allocations, " + std::to_string(leaked_bytes) +
        " bytes");
  }
  constexpr int kLacking = 3, kFinding = 86;
  if (findings.empty()) {
    if (status_of_program != 0) return 0;
    const bool checks = settings.host || settings.options.checks();
    return launch_failed && checks ? kFinding : lost ? kLacking : 0;
  }
  std::cout.flush();
  std::fflush(nullptr);
  for (const std::string& finding : without_repetition(findings))
    std::fprintf(stderr, "%s\n", finding.c_str());
  say(std::to_string(findings.size()) + (findings.size() == 1 ? " finding" : " findings"));
  return kFinding;
}

void say(const std::string& text) {
  std::fflush(stdout);  // keeps the order of what the program printed and what is wrong with it
  std::fprintf(stderr, "vgpu: %s\n", text.c_str());
}

void say_once(const std::string& key, const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string>* const said = new std::set<std::string>;
  {
    std::lock_guard lock(mutex);
    if (!said->insert(key).second) return;
  }
  say(text);
}

bool& in_callback() {
  thread_local bool inside = false;
  return inside;
}

Status run_caught(Body body) noexcept {
  try {
    body.run(body.kept, nullptr);
    return Status::success;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  } catch (const std::exception& error) {
    say(error.what());
    return Status::unknown;
  } catch (...) {
    return Status::unknown;
  }
}

Status run_framed(Body body, Context context) noexcept {
  const auto inside = [&]() -> Status {
    if (in_callback()) return Status::not_permitted;
    if (forked()) return Status::not_initialized;
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    runtime.configure();
    if (runtime.off != Status::success) return runtime.off;
    if (context == Context::needed && runtime.sticky.load() != Status::success)
      return runtime.sticky.load();
    const struct InCall {  // what the host may not touch meanwhile the call may
      explicit InCall(Runtime& r) : runtime(r) {
        if (runtime.host_guard) runtime.host_guard->enter(runtime.findings);
      }
      ~InCall() {
        if (runtime.host_guard) runtime.host_guard->settle(runtime.host);
      }
      Runtime& runtime;
    } in_call(runtime);
    body.run(body.kept, &runtime);
    return Status::success;
  };
  return catching<Status>(inside);
}

namespace {

// Runs after the destructors of the program, which may still have used the device.
__attribute__((destructor)) void at_exit() {
  if (!made || in_child) return;  // the parent reports
  int code = 0;
  catching<Status>([&] {
    code = made->finish();
    return Status::success;
  });
  if (code == 0) return;
  // The only way to change the exit code this late; what is buffered must go out first.
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace
}  // namespace vgpu::runtime
