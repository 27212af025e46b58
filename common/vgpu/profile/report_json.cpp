#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "../../json/json.h"
#include "predicted.h"
#include "report.h"
#include "source_lines.h"

namespace vgpu {
namespace {

using Json = json::Value;

constexpr std::array<const char*, 3> kAccess = {"load", "store", "atomic"};

Json ratio(double a, double b) { return b > 0 ? Json(a / b) : Json(nullptr); }

Json global_json(const GlobalCounters& c) {
  const auto requests = static_cast<double>(c.requests), sectors = static_cast<double>(c.sectors);
  return {{"requests", c.requests},
          {"sectors", c.sectors},
          {"sectors_per_request", ratio(sectors, requests)},
          {"ideal_sectors_per_request", ratio(static_cast<double>(c.ideal_sectors), requests)},
          {"bytes_asked", c.bytes_asked},
          {"bytes_distinct", c.bytes_distinct},
          {"efficiency", ratio(static_cast<double>(c.bytes_distinct), 32 * sectors)}};
}

Json shared_json(const SharedCounters& c) {
  return {{"requests", c.requests},
          {"wavefronts", c.wavefronts},
          {"ideal", c.ideal},
          {"conflicts", c.wavefronts - c.ideal},
          {"bytes_asked", c.bytes_asked}};
}

Json remote_json(const RemoteCounters& c) { return {{"requests", c.requests}, {"bytes", c.bytes}}; }

Json bulk_json(const BulkCounters& c) {
  return {{"copies", c.copies}, {"bytes", c.bytes}, {"l2_sectors", c.l2_sectors}};
}

Json bulk_json(const std::array<BulkCounters, 3>& counters) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kAccess.size(); ++i) json[kAccess[i]] = bulk_json(counters[i]);
  return json;
}

Json by_access(const std::array<GlobalCounters, 3>& counters) {
  Json json = Json::object();
  for (std::size_t i = 0; i < kAccess.size(); ++i) json[kAccess[i]] = global_json(counters[i]);
  return json;
}

Json level(std::uint64_t sectors, std::uint64_t hits) {
  return {{"sectors", sectors},
          {"hits", hits},
          {"hit_rate", ratio(static_cast<double>(hits), static_cast<double>(sectors))}};
}

Json cache_json(const CacheCounters& c) {
  return {{"l1", level(c.l1_sectors, c.l1_hits)},
          {"l2", level(c.l2_sectors, c.l2_hits)},
          {"dram_read_bytes", 32 * c.dram_read},
          {"dram_write_bytes", 32 * c.dram_written}};
}

Json cache_json(const CacheReport& report) {
  CacheCounters all;
  for (const CacheCounters& c : report.by_access) all += c;
  all.dram_written = report.dram_written;
  Json json = cache_json(all);
  for (std::size_t i = 0; i < kAccess.size(); ++i)
    json[kAccess[i]] = cache_json(report.by_access[i]);
  json["l1"]["bytes"] = report.l1_bytes;
  json["l2"]["bytes"] = report.l2_bytes;
  json["l2"]["start"] = report.warm ? "warm" : "cold";
  json["resident_blocks"] = report.resident_blocks;
  return json;
}

Json limit_json(const Limit& limit) { return limit.known() ? Json(limit.us) : Json(limit.unknown); }

// The counters of all instructions, by what they are.
struct Totals {
  explicit Totals(const LaunchCounters& counters) {
    for (const InstrReport& instruction : counters.instructions) {
      InstrCounters& of_class = classes[static_cast<std::size_t>(instruction.op_class)];
      for (InstrCounters* sum : {&of_class, &all}) {
        sum->issued += instruction.count.issued;
        sum->lanes += instruction.count.lanes;
      }
      const auto access = static_cast<std::size_t>(instruction.access);
      global[static_cast<std::size_t>(instruction.global_access())] += instruction.global;
      bulk[static_cast<std::size_t>(instruction.global_access())] += instruction.bulk;
      local[access] += instruction.local;
      shared[access] += instruction.shared;
      remote[access] += instruction.remote;
    }
  }
  InstrCounters all;
  std::array<InstrCounters, static_cast<std::size_t>(OpClass::count_)> classes;
  std::array<GlobalCounters, 3> global, local;
  std::array<SharedCounters, 3> shared;
  std::array<RemoteCounters, 3> remote;
  std::array<BulkCounters, 3> bulk;
};

void add_totals(const Totals& totals, Json& json) {
  for (std::size_t i = 0; i < totals.classes.size(); ++i)
    json["classes"][std::string(class_name(static_cast<OpClass>(i)))] = {
        {"warp", totals.classes[i].issued}, {"thread", totals.classes[i].lanes}};
  json["global"] = by_access(totals.global);
  json["local"] = by_access(totals.local);
  json["copy_engine"] = bulk_json(totals.bulk);
  for (std::size_t i = 0; i < kAccess.size(); ++i)
    json["shared"][kAccess[i]] = shared_json(totals.shared[i]);
  for (std::size_t i = 0; i < kAccess.size(); ++i)
    json["distributed_shared"][kAccess[i]] = remote_json(totals.remote[i]);
}

Json allocations_json(const LaunchCounters& counters) {
  Json json = Json::object();
  for (const AllocationReport& allocation : counters.allocations) {
    std::string name = allocation.name;
    for (int i = 2; json.contains(name); ++i)
      name = allocation.name + " (" + std::to_string(i) + ")";
    Json entry = {{"bytes", allocation.bytes}};
    entry.update(by_access(allocation.by_access));
    entry["copy_engine"] = bulk_json(allocation.bulk);
    entry["sectors_read"] = allocation.sectors_read;
    entry["sectors_written"] = allocation.sectors_written;
    if (counters.cache.modelled) entry["cache"] = cache_json(allocation.cache);
    json[name] = std::move(entry);
  }
  return json;
}

Json lines_json(const LaunchCounters& counters, const Limits& limit, const DeviceSpec& device) {
  Json json = Json::array();
  for (const LineReport& line : source_lines(counters, limit, device)) {
    json.push_back({{"file", line.file},
                    {"line", line.line},
                    {"function", line.function},
                    {"ptx_line", line.ptx_line},
                    {"warp_instructions", line.count.issued},
                    {"thread_instructions", line.count.lanes},
                    {"requests", line.global.requests},
                    {"sectors", line.global.sectors},
                    {"sectors_per_request", ratio(static_cast<double>(line.global.sectors),
                                                  static_cast<double>(line.global.requests))},
                    {"local_sectors", line.local.sectors},
                    {"wavefronts", line.shared.wavefronts},
                    {"conflicts", line.shared.wavefronts - line.shared.ideal},
                    {"distributed_shared", remote_json(line.remote)},
                    {"copy_engine", bulk_json(line.bulk)},
                    {"limit_share", line.share}});
    if (counters.cache.modelled) json.back()["cache"] = cache_json(line.cache);
  }
  return json;
}

}  // namespace

Occupancy occupancy_of(const LaunchCounters& counters, const DeviceSpec& device) {
  const std::uint64_t threads =
      std::uint64_t{counters.block[0]} * counters.block[1] * counters.block[2];
  return occupancy(device, counters.registers,
                   std::int64_t{counters.static_shared} + counters.dynamic_shared,
                   static_cast<int>(std::min<std::uint64_t>(threads, 1u << 30)));
}

namespace {

Json report(const LaunchCounters& counters, const DeviceSpec& device) {
  const Limits limit = limits(counters, device);
  const Occupancy resident = occupancy_of(counters, device);
  const std::uint64_t blocks =
      std::uint64_t{counters.grid[0]} * counters.grid[1] * counters.grid[2];
  const Totals totals(counters);
  const InstrCounters& all = totals.all;
  Json json = {{"kernel", counters.kernel},
               {"mangled", counters.mangled},
               {"device", device.name},
               {"device_key", device.key},
               {"grid", {counters.grid[0], counters.grid[1], counters.grid[2]}},
               {"block", {counters.block[0], counters.block[1], counters.block[2]}},
               {"cluster", {counters.cluster[0], counters.cluster[1], counters.cluster[2]}},
               {"blocks", blocks},
               {"warps", counters.warps},
               {"threads", counters.threads},
               {"static_shared", counters.static_shared},
               {"dynamic_shared", counters.dynamic_shared},
               {"registers", counters.registers},
               {"local_bytes_per_thread", counters.local_bytes},
               {"warp_instructions", all.issued},
               {"thread_instructions", all.lanes},
               {"active_lanes_per_instruction",
                ratio(static_cast<double>(all.lanes), static_cast<double>(all.issued))}};
  add_totals(totals, json);
  json["allocations"] = allocations_json(counters);
  const CacheReport& cache = counters.cache;
  const std::uint64_t read = cache.modelled ? cache.dram_read : counters.distinct_sectors_read;
  const std::uint64_t written =
      cache.modelled ? cache.dram_written : counters.distinct_sectors_written;
  json["dram_bytes"] = 32 * (read + written);
  json["dram_read_bytes"] = 32 * read;
  json["dram_write_bytes"] = 32 * written;
  json["l2"] = cache.modelled ? "modelled" : "not modelled";
  if (cache.modelled) json["cache"] = cache_json(cache);
  json["tensor_macs"] = counters.tensor_multiply_adds_f16 + counters.tensor_multiply_adds_tf32 +
                        counters.tensor_multiply_adds_int8;
  json["tensor_macs_by_type"] = {
      {"f16", counters.tensor_multiply_adds_f16 - counters.tensor_multiply_adds_f8},
      {"f16_with_f16_sums", counters.tensor_multiply_adds_f16_sums},
      {"f8", counters.tensor_multiply_adds_f8},
      {"tf32", counters.tensor_multiply_adds_tf32},
      {"int8", counters.tensor_multiply_adds_int8 - counters.tensor_multiply_adds_int4},
      {"int4", counters.tensor_multiply_adds_int4}};
  json["async_copied_bytes"] = counters.async_copied_bytes;
  json["most_bulk_under_way"] = counters.most_bulk_under_way;
  json["occupancy"] = {{"blocks_per_sm", resident.blocks_per_sm},
                       {"warps_per_sm", resident.warps_per_sm},
                       {"fraction", resident.fraction},
                       {"limiter", resident.limiter},
                       {"waves", waves(device, resident, blocks)}};
  for (const Limit& one : limit.all)
    json["limits"][std::string(pipe_name(one.pipe))] = limit_json(one);
  for (const Limit& one : limit.all)
    if (one.by_ptx_us > 0) json["limits_by_ptx"][std::string(pipe_name(one.pipe))] = one.by_ptx_us;
  json["machine_instructions"] =
      counters.machine_instructions > 0 ? Json(counters.machine_instructions) : Json("unknown");
  json["issue_counts"] = issue_counts(counters);
  json["limit"] = {{"name", limit.largest ? pipe_name(limit.largest->pipe) : "none"},
                   {"us", limit.largest ? limit.largest->us : 0.0}};
  if (counters.sampled) {
    json["sampled"] = true;
    json["executed_blocks"] = counters.executed_blocks;
  }
  if (counters.predicted.asked) json["predicted"] = predicted_json(counters.predicted);
  json["lines"] = lines_json(counters, limit, device);
  json["host_seconds"] = counters.host_seconds;
  json["host_threads"] = counters.host_threads;
  return json;
}

}  // namespace

std::string report_json(const LaunchCounters& counters, const DeviceSpec& device) {
  return report(counters, device).dump();  // names come from the program and need not be UTF-8
}

struct ReportNumbers::Object {
  Json json;
};
ReportNumbers::ReportNumbers(const LaunchCounters& counters, const DeviceSpec& device)
    : object_(new Object{report(counters, device)}) {}
ReportNumbers::~ReportNumbers() = default;

double ReportNumbers::at(const std::string& json_pointer) const {
  const Json* const number = object_->json.find_path(json_pointer);
  const double value = number && number->is_number() ? number->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
  // In the text, too, what is infinite is null.
  return std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace vgpu
