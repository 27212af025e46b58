// A program over time, as a GPU would spend it: the calls of the host, copies over PCIe, kernels by stream,
// what the warps of an SM do (VGPU_TIMELINE, --timeline). The clock is virtual: every duration is
// modelled, none was measured. What waits for what is real: the order within streams, events, the
// legacy default stream, the edges of graphs.
//
// The rules of the clock:
// - The host is one thread. A call takes a fixed time, and one that synchronizes lasts until the device
//   has done what it waits for. What the program computes between its calls takes no time.
// - Work may begin when the call that submits it is through, and all that it comes after is over.
// - Each direction of the link has one copy engine, which takes copies in the order in which they become
//   ready.
// - A kernel takes the share of the device that its blocks fill at once: blocks of the grid over blocks
//   that fit on all SMs, at most all of it, from its begin to its end. Kernels run side by side while
//   their shares fit. They begin in order of their streams' priority, then in the order in which they
//   became ready, and none passes another. Each takes the time that it takes alone.
// - Copies on the device and fills move their bytes at the peak of the memory, beside kernels.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../../json/json.h"
#include "../core/counters.h"
#include "../core/device_spec.h"

namespace vgpu {

// What the host's clock takes for things that no device file has, in microseconds: guessed, from the order of
// magnitude that profilers show. (What a launch costs the device is the model's of kernel times.)
namespace timeline_us {
inline constexpr double kLaunch = 2.5;  // on the host; a kernel takes as much longer on the device
inline constexpr double kGraphNode = 1.3;     // the same for a kernel of a graph
inline constexpr double kCooperative = 1.0;   // more for a cooperative launch
inline constexpr double kSubmit = 2.5;        // a call that puts a copy or a fill into a stream
inline constexpr double kCall = 1.0;          // events, queries; a synchronization beyond its wait
inline constexpr double kObject = 5.0;        // makes or destroys a stream
inline constexpr double kAllocate = 10.0;     // cudaMalloc, cudaFree
inline constexpr double kPin = 100.0;         // makes pinned or managed memory, or gives it back
inline constexpr double kInstantiate = 20.0;  // makes an executable graph
inline constexpr double kCopyLatency = 1.5;   // before a copy's first byte on the link
}  // namespace timeline_us

// Copies from pageable memory up to this many bytes are staged, and the call returns at once.
inline constexpr std::uint64_t kStagedBytes = 64u << 10;

// How long the work of a launch takes, without the cost of launching it, and what kind of figure
// that is: "limit" or "predicted".
struct KernelModel {
  double (*us)(const LaunchCounters& counters, const DeviceSpec& device);
  const char* duration;
};
// The largest modelled limit (limits.h), 0 where none is known.
double largest_limit_us(const LaunchCounters& counters, const DeviceSpec& device);

class DeviceTimeline {
 public:
  using Lane = std::uint32_t;    // a stream, or a chain of nodes of a graph
  using Number = std::uint64_t;  // an operation's; later ones have larger numbers
  using Before = std::vector<std::pair<Lane, Number>>;  // the last one of each lane

  enum class Kind : std::uint8_t { hidden, kernel, to_device, to_host, on_device, fill, other };
  struct Operation {
    Number number = 0;
    Lane lane = 0;  // where one operation is over before the next begins
    Kind kind = Kind::hidden;
    std::string name;
    Before before;
    double us = 0;            // when nothing else runs
    double launch_us = 0;     // kernels: the part of it before the first instruction
    std::uint64_t share = 0;  // kernels: part of the device, in units of 1 / kWholeDevice
    int priority = 0;         // kernels: the smallest number goes first
    std::size_t group = 0;    // the launch of a graph; 0: none
    json::Value args = json::Value::object();
  };
  static constexpr std::uint64_t kWholeDevice = 1ull << 32;

  explicit DeviceTimeline(DeviceSpec spec) : spec_(std::move(spec)) {}

  // How long kernels take. The predictor of kernel times goes here.
  KernelModel model = {largest_limit_us, "limit"};

  // A call of the host begins and ends. A call within a call is a part of it.
  void begin_call(std::string name, double us);
  void end_call();
  // The host waits, within a call or between calls.
  void wait_for(const Before& operations);
  void wait_for_all();
  // Where the host is on the clock.
  double host_us() const { return static_cast<double>(host_) / 1e3; }

  // Names a lane: of a stream (graph 0), or of the graph with this number.
  void name_lane(Lane lane, std::uint32_t graph, const std::string& name);
  std::uint32_t new_graph() { return ++graphs_; }
  // A launch of a graph: it is shown in its stream, from its first node's begin to its last one's end.
  std::size_t begin_group(Lane stream, std::string name);

  // What an operation does.
  void make_kernel(Operation& operation, const LaunchCounters& counters, double launch_us) const;
  void make_copy(Operation& operation, Kind kind, std::uint64_t bytes, bool pageable) const;
  void make_fill(Operation& operation, std::uint64_t bytes) const;
  // It is submitted by the call that is under way. Operations that it comes after and that nobody
  // submitted here are over.
  void submit(Operation operation);

  // What a warp of one of the first blocks of a kernel does on an SM, in clocks from the kernel's first
  // instruction: "issue", "long scoreboard", "barrier". Of each warp in order, without overlap; what
  // goes on under the same name is one piece. Throws std::invalid_argument otherwise.
  void add_warp_activity(Number kernel, int sm, std::uint64_t block, int warp,
                         std::uint64_t begin_clock, std::uint64_t end_clock, std::string_view name);

  // Everything up to its end, in Chrome's trace event format.
  std::string json();

 private:
  using Ns = std::int64_t;
  struct Open {  // submitted, not over
    Operation operation;
    std::size_t missing = 0;      // operations that it waits for
    std::vector<Number> waiting;  // operations that wait for it
    Ns submitted = 0, begin = 0, end = 0;
    Ns call = -1;                                        // when the call began that submitted it
    std::vector<std::pair<std::uint64_t, bool>> arrows;  // arrows that leave it (true) or end at it
  };
  struct Slice {
    std::uint64_t process, thread;
    std::string name;
    const char* category;
    Ns begin, end;
    std::string args;
  };
  struct Arrow {
    std::uint64_t process, thread, id;
    const char* category;
    Ns at;
    bool leaves;
  };
  struct Group {
    Lane stream;
    std::string name;
    bool shown;
    Ns call, begin = -1, end = -1;
    std::uint64_t operations = 0;
  };
  struct Activity {
    std::uint64_t begin, end;
    std::string name;
  };
  using WarpKey = std::tuple<Number, int, std::uint64_t, int>;  // kernel, SM, block, warp

  // The next end of something that runs; false when nothing does.
  bool next_end(Ns& at) const;
  void end_at(Ns at);
  void run_all();
  void arrive(Number number);
  void start_what_can();
  void start(Number number);
  void finish(Number number);
  void show(const Open& open);
  void note_room();
  bool full();
  Before direct(const Before& before) const;
  std::uint64_t process_of(Lane lane) const;

  // timeline_json.cpp. An event of the file, and when it is.
  using Events = std::vector<std::pair<Ns, std::string>>;
  void write_slices(Events& events) const;
  void write_groups(Events& events) const;
  void write_arrows(Events& events) const;
  void write_room(Events& events) const;
  void write_warps(Events& events, std::vector<json::Value>& names) const;
  void name_lanes(std::vector<json::Value>& names) const;
  std::string words_of_kernels() const;
  json::Value about() const;

  DeviceSpec spec_;
  Ns host_ = 0, now_ = 0;  // the host's time and the device's, which is never ahead
  int calls_ = 0;          // under way, one in another
  std::string call_name_;
  Ns call_begin_ = 0;

  std::unordered_map<Number, Open> open_;
  std::set<std::tuple<int, Ns, Number>> kernels_;          // wait for room
  std::array<std::set<std::pair<Ns, Number>>, 2> copies_;  // wait for their engine
  std::array<bool, 2> engine_busy_{};
  std::set<std::pair<Ns, Number>> running_;  // by their end
  std::uint64_t used_ = 0;                   // out of kWholeDevice
  std::size_t running_kernels_ = 0;
  std::map<std::string, std::uint64_t> kernels_by_duration_;  // submitted: "limit", "predicted"

  std::uint32_t graphs_ = 0;
  std::map<Lane, std::pair<std::uint32_t, std::string>> lanes_;
  std::vector<Group> groups_;
  std::vector<Slice> slices_;
  std::vector<Arrow> arrows_;
  std::uint64_t next_arrow_ = 1;
  std::vector<std::pair<Ns, std::uint64_t>> room_;  // used_ from a time on
  std::uint64_t left_out_ = 0, left_out_activities_ = 0;

  std::map<WarpKey, std::vector<Activity>> warps_;
  std::size_t activities_ = 0;
  std::map<Number, std::pair<Ns, std::string>> first_clock_;  // kernel: its first clock, its name
};

}  // namespace vgpu
