#include "timeline.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "limits.h"
#include "occupancy.h"

namespace vgpu {
namespace {

using Kind = DeviceTimeline::Kind;

// What the file holds of each kind at most; viewers cope with that. The rest is counted.
constexpr std::size_t kMostSlices = 200'000, kMostActivities = 500'000;
// Kernels that run at a time: the Programming Guide's "resident grids per device" since sm_75.
constexpr std::size_t kMostGrids = 128;

std::int64_t ns_of(double us) {
  return std::isfinite(us) && us > 0 ? static_cast<std::int64_t>(std::llround(1e3 * us)) : 0;
}

double gb_s_or_0(double rate) { return std::isfinite(rate) && rate > 0 ? rate : 0; }
// Bytes over GB/s; 0 where the rate is unknown.
double us_of(std::uint64_t bytes, double gb_s) {
  return gb_s > 0 ? static_cast<double>(bytes) / (1e3 * gb_s) : 0;
}

std::string three_of(const std::uint32_t (&d)[3]) {
  return "(" + std::to_string(d[0]) + ", " + std::to_string(d[1]) + ", " + std::to_string(d[2]) +
         ")";
}

double rounded(double value) { return std::round(1e3 * value) / 1e3; }

}  // namespace

double largest_limit_us(const LaunchCounters& counters, const DeviceSpec& device) {
  const Limits all = limits(counters, device);
  return all.largest ? all.largest->us : 0;
}

// ---- the host ---------------------------------------------------------------------------------

void DeviceTimeline::begin_call(std::string name, double us) {
  if (calls_++ > 0) return;
  call_name_ = std::move(name);
  call_begin_ = host_;
  host_ += ns_of(us);
}

void DeviceTimeline::end_call() {
  if (--calls_ > 0) return;
  if (!full()) slices_.push_back({1, 1, call_name_, "call", call_begin_, host_, "{}"});
}

void DeviceTimeline::wait_for(const Before& operations) {
  for (const auto& [lane, number] : operations) {
    Ns at = 0;
    while (open_.contains(number) && next_end(at)) end_at(at);
  }
  host_ = std::max(host_, now_);
}

void DeviceTimeline::wait_for_all() {
  run_all();
  host_ = std::max(host_, now_);
}

// ---- what is submitted ------------------------------------------------------------------------

void DeviceTimeline::name_lane(Lane lane, std::uint32_t graph, const std::string& name) {
  lanes_.try_emplace(lane, graph, name);
}

std::size_t DeviceTimeline::begin_group(Lane stream, std::string name) {
  groups_.push_back({stream, std::move(name), !full(), calls_ > 0 ? call_begin_ : -1});
  return groups_.size();
}

void DeviceTimeline::make_kernel(Operation& operation, const LaunchCounters& counters,
                                 double launch_us) const {
  const bool predicted = counters.predicted.asked && counters.predicted.why.empty();
  const double us =
      predicted ? counters.predicted.us - counters.predicted.launch_us : model.us(counters, spec_);
  const char* const duration = predicted ? "predicted" : model.duration;
  operation.kind = Kind::kernel;
  operation.us = launch_us + us;
  operation.launch_us = launch_us;
  const std::uint64_t blocks =
      std::uint64_t{counters.grid[0]} * counters.grid[1] * counters.grid[2];
  const std::uint32_t threads = counters.block[0] * counters.block[1] * counters.block[2];
  const Occupancy fit =
      occupancy(spec_, counters.registers,
                std::int64_t{counters.static_shared} + counters.dynamic_shared, int(threads));
  const std::uint64_t room = std::uint64_t(fit.blocks_per_sm) * std::uint64_t(spec_.sm_count);
  const auto part = static_cast<double>(blocks) / static_cast<double>(room ? room : 1);
  operation.share = std::max<std::uint64_t>(
      1, blocks >= room ? kWholeDevice : static_cast<std::uint64_t>(part * kWholeDevice));
  operation.args.update({{"duration", duration},
                         {std::string(duration) + "_us", rounded(us)},
                         {"launch_us", launch_us},
                         {"grid", three_of(counters.grid)},
                         {"block", three_of(counters.block)},
                         {"blocks_that_fit_at_once", room},
                         {"percent_of_device", rounded(std::min(100.0, 100 * part))}});
}

void DeviceTimeline::make_copy(Operation& operation, Kind kind, std::uint64_t bytes,
                               bool pageable) const {
  operation.kind = kind;
  const bool link = kind == Kind::to_device || kind == Kind::to_host;
  // On the device each byte is read and written.
  const double rate = gb_s_or_0(link ? spec_.pcie_gb_s : spec_.dram_gb_s / 2);
  if (kind != Kind::other)
    operation.us = us_of(bytes, rate) + (link ? timeline_us::kCopyLatency : 0);
  operation.args.update({{"duration", kind == Kind::other ? "none"
                                      : rate > 0          ? "limit"
                                                          : "unknown"},
                         {"bytes", bytes},
                         {"gb_s", rounded(rate)}});
  if (link) operation.args["host_memory"] = pageable ? "pageable" : "pinned";
}

void DeviceTimeline::make_fill(Operation& operation, std::uint64_t bytes) const {
  operation.kind = Kind::fill;
  operation.us = us_of(bytes, gb_s_or_0(spec_.dram_gb_s));
  operation.args.update({{"duration", "limit"}, {"bytes", bytes}});
}

// The same list, shorter: left out are operations that are over, and operations before another of
// the list.
DeviceTimeline::Before DeviceTimeline::direct(const Before& before) const {
  Before result;
  for (const auto& [lane, number] : before) {
    if (!open_.contains(number)) continue;
    const auto implies = [&](const std::pair<Lane, Number>& other) {
      const auto it = open_.find(other.second);
      if (other.second == number || it == open_.end()) return false;
      return std::any_of(it->second.operation.before.begin(), it->second.operation.before.end(),
                         [&](const auto& b) { return b.first == lane && b.second >= number; });
    };
    if (std::none_of(before.begin(), before.end(), implies)) result.emplace_back(lane, number);
  }
  return result;
}

void DeviceTimeline::submit(Operation operation) {
  // Whatever comes later comes after this time: up to here it is known what happens.
  for (Ns at = 0; next_end(at) && at <= host_;) end_at(at);
  now_ = std::max(now_, host_);
  const Number number = operation.number;
  Open& open = open_[number];
  open.submitted = host_;
  if (calls_ > 0 && operation.group == 0) open.call = call_begin_;
  for (const auto& [lane, other] : direct(operation.before)) {
    Open& earlier = open_.at(other);
    earlier.waiting.push_back(number);
    ++open.missing;
    if (lane == operation.lane || earlier.operation.kind == Kind::hidden ||
        operation.kind == Kind::hidden)
      continue;
    earlier.arrows.emplace_back(next_arrow_, true);
    open.arrows.emplace_back(next_arrow_++, false);
  }
  if (operation.kind == Kind::kernel) {
    const json::Value* duration = operation.args.find("duration");
    ++kernels_by_duration_[duration ? duration->get<std::string>() : model.duration];
  }
  open.operation = std::move(operation);
  if (open.missing > 0) return;
  arrive(number);
  start_what_can();
}

void DeviceTimeline::add_warp_activity(Number kernel, int sm, std::uint64_t block, int warp,
                                       std::uint64_t begin_clock, std::uint64_t end_clock,
                                       std::string_view name) {
  auto& list = warps_[{kernel, sm, block, warp}];
  const std::uint64_t last = list.empty() ? 0 : list.back().end;
  if (end_clock < begin_clock || begin_clock < last)
    throw std::invalid_argument("activity '" + std::string(name) + "' of warp " +
                                std::to_string(warp) + " from clock " +
                                std::to_string(begin_clock) + " to " + std::to_string(end_clock) +
                                ": must not end before it begins, nor begin before clock " +
                                std::to_string(last) + ", where the one before ends");
  if (end_clock == begin_clock) return;
  if (!list.empty() && begin_clock == last && list.back().name == name) {
    list.back().end = end_clock;
  } else if (activities_ < kMostActivities) {
    ++activities_;
    list.push_back({begin_clock, end_clock, std::string(name)});
  } else {
    ++left_out_activities_;
  }
}

// ---- the device -------------------------------------------------------------------------------

bool DeviceTimeline::next_end(Ns& at) const {
  if (running_.empty()) return false;
  at = running_.begin()->first;
  return true;
}

// What ends at a time, and what starts because of it.
void DeviceTimeline::end_at(Ns at) {
  now_ = at;
  while (!running_.empty() && running_.begin()->first == at) {
    const Number number = running_.begin()->second;
    running_.erase(running_.begin());
    finish(number);
  }
  start_what_can();
}

void DeviceTimeline::run_all() {
  for (Ns at = 0; next_end(at);) end_at(at);
}

// Nothing is missing any more.
void DeviceTimeline::arrive(Number number) {
  const Operation& operation = open_.at(number).operation;
  if (operation.kind == Kind::kernel)
    kernels_.insert({operation.priority, now_, number});
  else if (operation.kind == Kind::to_device || operation.kind == Kind::to_host)
    copies_[operation.kind == Kind::to_host].insert({now_, number});
  else
    start(number);
}

void DeviceTimeline::start_what_can() {
  while (!kernels_.empty()) {
    const Number first = std::get<Number>(*kernels_.begin());
    if (running_kernels_ == kMostGrids || open_.at(first).operation.share > kWholeDevice - used_)
      break;
    kernels_.erase(kernels_.begin());
    start(first);
  }
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (engine_busy_[i] || copies_[i].empty()) continue;
    const Number first = copies_[i].begin()->second;
    copies_[i].erase(copies_[i].begin());
    engine_busy_[i] = true;
    start(first);
  }
}

void DeviceTimeline::start(Number number) {
  Open& open = open_.at(number);
  open.begin = now_;
  open.end = now_ + ns_of(open.operation.us);
  running_.insert({open.end, number});
  if (open.operation.kind != Kind::kernel) return;
  ++running_kernels_;
  used_ += open.operation.share;
  note_room();
}

void DeviceTimeline::finish(Number number) {
  const auto at = open_.find(number);
  const Open open = std::move(at->second);
  open_.erase(at);
  const Kind kind = open.operation.kind;
  if (kind == Kind::kernel) {
    --running_kernels_;
    used_ -= open.operation.share;
    note_room();
    if (first_clock_.size() < kMostSlices)
      first_clock_[number] = {open.begin + ns_of(open.operation.launch_us), open.operation.name};
  }
  if (kind == Kind::to_device || kind == Kind::to_host) engine_busy_[kind == Kind::to_host] = false;
  if (kind != Kind::hidden) show(open);
  for (const Number waiting : open.waiting)
    if (--open_.at(waiting).missing == 0) arrive(waiting);
}

void DeviceTimeline::note_room() {
  if (slices_.size() < kMostSlices) room_.emplace_back(now_, used_);
}

bool DeviceTimeline::full() {
  if (slices_.size() < kMostSlices) return false;
  ++left_out_;
  return true;
}

std::uint64_t DeviceTimeline::process_of(Lane lane) const {
  const auto it = lanes_.find(lane);
  const std::uint64_t graph = it == lanes_.end() ? 0 : it->second.first;
  return graph == 0 ? 2 : 100 + graph;
}

void DeviceTimeline::show(const Open& open) {
  const Operation& operation = open.operation;
  if (operation.group > 0) {
    Group& group = groups_[operation.group - 1];
    if (group.operations++ == 0) group.begin = open.begin;
    group.begin = std::min(group.begin, open.begin);
    group.end = std::max(group.end, open.end);
  }
  if (full()) return;
  const std::uint64_t process = process_of(operation.lane);
  const auto lane = lanes_.find(operation.lane);
  const std::string lane_name = lane == lanes_.end() ? "" : lane->second.second;
  json::Value args = operation.args;
  args["waited_us"] = static_cast<double>(open.begin - open.submitted) / 1e3;
  constexpr const char* kCategories[] = {"", "kernel", "copy", "copy", "copy", "fill", "other"};
  slices_.push_back({process, operation.lane, operation.name,
                     kCategories[static_cast<int>(operation.kind)], open.begin, open.end,
                     args.dump()});
  if (operation.kind == Kind::to_device || operation.kind == Kind::to_host)
    slices_.push_back({3, operation.kind == Kind::to_host ? 2u : 1u, operation.name, "engine",
                       open.begin, open.end, json::Value({{"of", lane_name}}).dump()});
  if (open.call >= 0 && operation.kind != Kind::other) {
    arrows_.push_back({1, 1, next_arrow_, "launch", open.call, true});
    arrows_.push_back({process, operation.lane, next_arrow_++, "launch", open.begin, false});
  }
  for (const auto& [id, leaves] : open.arrows)
    arrows_.push_back({process, operation.lane, id, "dependence",
                       leaves ? std::max(open.begin, open.end - 1) : open.begin, leaves});
}

}  // namespace vgpu
