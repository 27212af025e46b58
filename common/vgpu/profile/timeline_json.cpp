// The file of a timeline: Chrome's trace event format, which Perfetto (ui.perfetto.dev) and
// chrome://tracing open. Complete events ("X") are the slices, flow events ("s", "f") the arrows,
// a counter ("C") is the part of the device that kernels occupy, metadata ("M") names the tracks.
// Times are microseconds of the virtual clock.
//
// Perfetto's importer asks for more than the format does. It names a thread by its number alone,
// makes a thread of each process's number and keeps 0 for itself: a track's number is that of no other
// track or process. It cuts a time to whole nanoseconds after multiplying it by 1000, and drops a slice
// that begins before the one beside it has ended: a time is written so that the product is exact.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "timeline.h"

namespace vgpu {
namespace {

using Json = json::Value;

// Processes of the file, which viewers show as groups of tracks in this order. A graph is 100 and its
// number, an SM of a kernel 100000 and up.
constexpr std::uint64_t kHost = 1, kStreams = 2, kLink = 3, kFirstGraph = 101, kFirstSm = 100'000;

// The least number whose product with 1000, as a double cut to an integer, is `ns`.
double us(std::int64_t ns) {
  const double exact = static_cast<double>(ns) / 1e3;
  return static_cast<std::int64_t>(exact * 1000.0) == ns
             ? exact
             : std::nextafter(exact, std::numeric_limits<double>::infinity());
}

// The number of a track in the file: lanes and warps lie above the numbers of all processes.
constexpr std::uint64_t kFirstEngine = 10, kFirstLane = 1'000'000, kFirstWarp = 1'000'000'000;
std::uint64_t track(std::uint64_t process, std::uint64_t thread) {
  if (process == kHost) return kHost;
  if (process == kLink) return kFirstEngine + thread;
  return (process < kFirstSm ? kFirstLane : kFirstWarp) + thread;
}

Json metadata(const char* what, std::uint64_t process, std::uint64_t tid, Json args) {
  return {{"ph", "M"},      {"name", what}, {"ts", 0},
          {"pid", process}, {"tid", tid},   {"args", std::move(args)}};
}
void name_process(std::vector<Json>& names, std::uint64_t process, const std::string& name) {
  names.push_back(metadata("process_name", process, process, {{"name", name}}));
  names.push_back(metadata("process_sort_index", process, process, {{"sort_index", process}}));
}
void name_thread(std::vector<Json>& names, std::uint64_t process, std::uint64_t thread,
                 const std::string& name) {
  const std::uint64_t tid = track(process, thread);
  names.push_back(metadata("thread_name", process, tid, {{"name", name}}));
  names.push_back(metadata("thread_sort_index", process, tid, {{"sort_index", thread}}));
}

Json complete(const std::string& name, const char* category, std::uint64_t process,
              std::uint64_t thread, std::int64_t begin, std::int64_t end) {
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"pid", process},
          {"tid", track(process, thread)},
          {"ts", us(begin)},
          {"dur", us(end - begin)}};
}

std::string arrow(const char* category, std::uint64_t process, std::uint64_t thread,
                  std::uint64_t id, std::int64_t at, bool leaves) {
  Json event = {{"ph", leaves ? "s" : "f"},
                {"name", category},
                {"cat", category},
                {"id", id},
                {"pid", process},
                {"tid", track(process, thread)},
                {"ts", us(at)}};
  if (!leaves) event["bp"] = "e";  // it ends at the slice that is there, not at the next one
  return event.dump();
}

}  // namespace

void DeviceTimeline::write_slices(Events& events) const {
  for (const Slice& s : slices_) {
    std::string text = complete(s.name, s.category, s.process, s.thread, s.begin, s.end).dump();
    text.pop_back();
    events.emplace_back(s.begin, text + ",\"args\":" + s.args + "}");
  }
}

void DeviceTimeline::write_groups(Events& events) const {
  std::uint64_t id = next_arrow_;
  for (const Group& group : groups_) {
    if (group.operations == 0 || !group.shown) continue;
    const std::uint64_t process = process_of(group.stream);
    Json slice = complete(group.name, "graph", process, group.stream, group.begin, group.end);
    slice["args"] = {{"operations", group.operations}};
    events.emplace_back(group.begin, slice.dump());
    if (group.call < 0) continue;
    events.emplace_back(group.call, arrow("launch", kHost, 1, id, group.call, true));
    events.emplace_back(group.begin,
                        arrow("launch", process, group.stream, id++, group.begin, false));
  }
}

// An arrow has two ends. It is left out where one of its operations is.
void DeviceTimeline::write_arrows(Events& events) const {
  std::unordered_map<std::uint64_t, int> ends;
  for (const Arrow& a : arrows_) ++ends[a.id];
  for (const Arrow& a : arrows_)
    if (ends[a.id] == 2)
      events.emplace_back(a.at, arrow(a.category, a.process, a.thread, a.id, a.at, a.leaves));
}

void DeviceTimeline::write_room(Events& events) const {
  for (std::size_t i = 0; i < room_.size(); ++i) {
    if (i + 1 < room_.size() && room_[i + 1].first == room_[i].first) continue;
    const double percent =
        100 * static_cast<double>(room_[i].second) / static_cast<double>(kWholeDevice);
    const Json event = {{"ph", "C"},
                        {"name", "device in use"},
                        {"pid", kStreams},
                        {"tid", kStreams},
                        {"ts", us(room_[i].first)},
                        {"args", {{"percent", std::round(100 * percent) / 100}}}};
    events.emplace_back(room_[i].first, event.dump());
  }
}

// A process for each SM of a kernel, in it a thread for each warp.
void DeviceTimeline::write_warps(Events& events, std::vector<Json>& names) const {
  const double us_of_clock = spec_.sm_clock_mhz > 0 ? 1 / spec_.sm_clock_mhz : 0;
  std::uint64_t process = kFirstSm - 1, thread = 0;
  std::pair<Number, int> shown{0, -1};
  std::map<std::string, int> launches;  // so far, of kernels by name
  auto next = first_clock_.begin();
  for (const auto& [key, activities] : warps_) {
    const auto& [kernel, sm, block, warp] = key;
    const auto first = first_clock_.find(kernel);
    if (first == first_clock_.end() || us_of_clock == 0) continue;
    const auto& [begin, name] = first->second;
    if (shown != std::pair{kernel, sm}) {
      for (; next != first_clock_.end() && next->first <= kernel; ++next)
        ++launches[next->second.second];
      const int launch = launches[name];
      shown = {kernel, sm};
      name_process(names, ++process,
                   "SM " + std::to_string(sm) + " of " + name +
                       (launch > 1 ? " (launch " + std::to_string(launch) + " of it)" : ""));
    }
    name_thread(names, process, ++thread,
                "block " + std::to_string(block) + ", warp " + std::to_string(warp));
    for (const Activity& activity : activities) {
      const auto at = [&](std::uint64_t clock) {
        return begin + static_cast<Ns>(std::llround(1e3 * us_of_clock * double(clock)));
      };
      Json slice =
          complete(activity.name, "warp", process, thread, at(activity.begin), at(activity.end));
      slice["args"] = {{"begin_clock", activity.begin}, {"end_clock", activity.end}};
      events.emplace_back(at(activity.begin), slice.dump());
    }
  }
}

void DeviceTimeline::name_lanes(std::vector<Json>& names) const {
  name_process(names, kHost, "host (modelled)");
  name_thread(names, kHost, 1, "CUDA calls");
  name_process(names, kStreams, spec_.name + " (virtual): streams");
  name_process(names, kLink, "PCIe copy engines");
  name_thread(names, kLink, 1, "host to device");
  name_thread(names, kLink, 2, "device to host");
  for (std::uint32_t graph = 1; graph <= graphs_; ++graph)
    name_process(names, kFirstGraph - 1 + graph, "graph " + std::to_string(graph));
  for (const auto& [lane, place] : lanes_) name_thread(names, process_of(lane), lane, place.second);
}

// What the durations of the kernels are; before there is any, what they would be.
std::string DeviceTimeline::words_of_kernels() const {
  const std::string limit = "limit: the largest modelled limit, a lower bound, and the launch";
  const auto words = [&](const std::string& kind) {
    if (kind == "none") return std::string("none: they failed");
    return kind == "limit" ? limit : kind + ": the model of kernel times, and the launch";
  };
  if (kernels_by_duration_.empty()) return words(model.duration);
  if (kernels_by_duration_.size() == 1) return words(kernels_by_duration_.begin()->first);
  std::uint64_t all = 0;
  for (const auto& [kind, count] : kernels_by_duration_) all += count;
  std::string text;
  for (auto kind = kernels_by_duration_.rbegin(); kind != kernels_by_duration_.rend(); ++kind)
    text += (text.empty() ? "" : "; ") + std::to_string(kind->second) + " of " +
            std::to_string(all) + " " + words(kind->first);
  return text;
}

json::Value DeviceTimeline::about() const {
  Json kernels = Json::object();
  for (const auto& [kind, count] : kernels_by_duration_) kernels[kind] = count;
  Json about = {
      {"clock",
       "virtual: every duration is modelled, none was measured, and the time of the host that ran "
       "the "
       "program is nowhere in it; what waits for what is as the program says"},
      {"device", spec_.key},
      {"device_name", spec_.name},
      {"kernels", words_of_kernels()},
      {"kernels_by_duration", std::move(kernels)},
      {"copies", "limit: bytes over the peak rate of the link or of the device's memory"},
      {"host", "fixed times for calls, none for what the program computes between them"},
      {"side_by_side",
       "kernels run together while the shares of the device that their blocks fill fit in it; each "
       "takes the time that it takes alone"},
      {"pcie_gb_s", spec_.pcie_gb_s},
      {"dram_gb_s", spec_.dram_gb_s},
      {"model_us",
       {{"launch", timeline_us::kLaunch},
        {"kernel_of_a_graph", timeline_us::kGraphNode},
        {"cooperative", timeline_us::kCooperative},
        {"copy_or_fill_call", timeline_us::kSubmit},
        {"other_call", timeline_us::kCall},
        {"stream", timeline_us::kObject},
        {"allocation", timeline_us::kAllocate},
        {"pinned_or_managed_memory", timeline_us::kPin},
        {"graph_instantiation", timeline_us::kInstantiate},
        {"copy_latency", timeline_us::kCopyLatency}}}};
  if (left_out_ > 0)
    about["left_out"] = std::to_string(left_out_) +
                        " calls and operations, the last ones: " + std::to_string(slices_.size()) +
                        " are enough for a viewer";
  if (left_out_activities_ > 0)
    about["left_out_in_sms"] =
        std::to_string(left_out_activities_) + " activities of warps, the last ones";
  return about;
}

std::string DeviceTimeline::json() {
  run_all();
  Events events;
  std::vector<Json> names;
  name_lanes(names);
  write_slices(events);
  write_groups(events);
  write_arrows(events);
  write_room(events);
  write_warps(events, names);
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\n\"otherData\":" + about().dump() + ",\n\"traceEvents\":[";
  for (std::size_t i = 0; i < names.size(); ++i) text += (i ? ",\n" : "\n") + names[i].dump();
  for (const auto& [at, event] : events) text += ",\n" + event;
  return text + "\n]}\n";
}

}  // namespace vgpu
