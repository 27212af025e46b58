#include "gather.h"

#include <algorithm>
#include <array>
#include <map>

#include "access.h"
#include "machine.h"
#include "names.h"

namespace vgpu {
namespace {

using Allocations = std::map<std::uint32_t, AllocationReport>;  // by id
using Workers = std::vector<std::unique_ptr<Worker>>;

// cp.async and bulk copies into shared memory.
bool copies_to_shared(const Instr& instr) {
  return instr.space == Space::shared && instr.address2.valid() && !instr.from_shared;
}
Access access_of(const Instr& instr) {
  if (instr.op_class == OpClass::atomic) return Access::atomic;
  return instr.d[0].valid() || instr.list_results > 0 ? Access::load : Access::store;
}
// How an allocation in global memory is accessed, of which a copy reads.
std::size_t access_to_global(const Instr& instr) {
  return static_cast<std::size_t>(copies_to_shared(instr) ? Access::load : access_of(instr));
}

void describe_launch(const Launch& launch, LaunchCounters& out) {
  const LaunchRequest& request = launch.request;
  out.kernel = full_name(request.function->name);
  out.mangled = request.function->name;
  const Dim3 g = request.grid, b = request.block, c = request.cluster;
  std::copy_n(std::array{c.x, c.y, c.z}.data(), 3, out.cluster);
  std::copy_n(std::array{g.x, g.y, g.z}.data(), 3, out.grid);
  std::copy_n(std::array{b.x, b.y, b.z}.data(), 3, out.block);
  out.static_shared = request.function->shared_bytes;
  out.dynamic_shared = request.dynamic_shared;
  out.registers = request.attributes.registers;
  out.local_bytes = request.attributes.local_bytes;
  out.warps = g.count() * launch.warps_per_block;
  out.threads = g.count() * b.count();
}

// What the workers counted of a function, by instruction; what of it is an allocation's goes there, too.
std::vector<InstrReport> sum_up(const Function* function, const Workers& workers,
                                Allocations& allocations) {
  std::vector<InstrReport> reports(function->code.size());
  for (const auto& worker : workers) {
    const auto it = worker->functions.find(function);
    if (it == worker->functions.end()) continue;
    for (std::size_t pc = 0; pc < reports.size(); ++pc) {
      const Instr& instr = function->code[pc];
      reports[pc].count.issued += it->second->counts[pc].issued;
      reports[pc].count.lanes += it->second->counts[pc].lanes;
      if (!is_memory(instr.flow)) continue;
      const Site& site = it->second->sites[instr.memory_site];
      reports[pc].shared += site.shared;
      reports[pc].remote += site.remote;
      reports[pc].local += site.local;
    }
  }
  std::vector<std::size_t> pc_of_site(function->memory_sites);
  for (std::size_t pc = 0; pc < reports.size(); ++pc)
    if (is_memory(function->code[pc].flow)) pc_of_site[function->code[pc].memory_site] = pc;
  const auto add = [&](const auto& by_key, auto of_report, auto of_allocation) {
    for (const auto& [key, counters] : by_key) {
      const auto& [owner, site, id] = key;
      if (owner != function) continue;
      const std::size_t pc = pc_of_site[site];
      reports[pc].*of_report += counters;
      (allocations[id].*of_allocation)[access_to_global(function->code[pc])] += counters;
    }
  };
  for (const auto& worker : workers) {
    add(worker->by_allocation, &InstrReport::global, &AllocationReport::by_access);
    add(worker->bulk_by_allocation, &InstrReport::bulk, &AllocationReport::bulk);
  }
  return reports;
}

// The space that a generic address turned out to be in.
Space space_of(const Instr& instr, const InstrReport& r) {
  if (instr.space != Space::generic || r.global.requests)
    return instr.space == Space::generic ? Space::global : instr.space;
  if (r.shared.requests || r.remote.requests) return Space::shared;
  return r.local.requests ? Space::local : Space::generic;
}

// Names as people read them, each worked out once: a launch has thousands of instructions.
class Names {
 public:
  explicit Names(const Function& function) : function_(full_name(function.name)) {}
  const std::string& function() const { return function_; }
  const std::string& file(const std::string& path) {
    const auto [it, added] = files_.try_emplace(path);
    if (added && !path.empty()) it->second = display_path(path);
    return it->second;
  }

 private:
  std::string function_;
  std::map<std::string_view, std::string> files_;  // by the module's name of them
};

void name_place(const Function& function, const Instr& instr, Names& names, InstrReport& r) {
  const Location& location = function.module->locations[instr.location];
  r.function = names.function();
  r.file = names.file(location.file);
  r.line = location.line;
  r.ptx_line = instr.ptx_line;
  if (!instr.ptx_line || instr.ptx_line > function.module->lines.size()) return;
  const std::string_view text = function.module->lines[instr.ptx_line - 1];
  const std::size_t start = text.find_first_not_of(" \t{");
  r.ptx = std::string(start == text.npos ? text : text.substr(start));
}

void gather_touched(Launch& launch, Allocations& allocations, LaunchCounters& out) {
  for (auto& [id, map] : launch.touched) {
    AllocationReport& report = allocations[id];
    report.name = allocation_name(launch, *map->allocation);
    report.address = map->allocation->base;
    report.bytes = map->allocation->size;
    for (std::size_t s = 0; s < map->sectors; ++s) {
      report.sectors_read += map->read[s];
      report.sectors_written += map->written[s];
    }
    out.distinct_sectors_read += report.sectors_read;
    out.distinct_sectors_written += report.sectors_written;
  }
}

}  // namespace

LaunchCounters gather(Launch& launch, Workers& workers,
                      const std::vector<std::unique_ptr<Observer>>& observers) {
  LaunchCounters out;
  describe_launch(launch, out);
  std::map<std::string_view, const Function*> functions;  // by name: a stable order
  for (const auto& worker : workers)
    for (const auto& [function, state] : worker->functions)
      functions.emplace(function->name, function);
  Allocations allocations;
  for (const auto& [name, function] : functions) {
    std::vector<InstrReport> reports = sum_up(function, workers, allocations);
    Names names(*function);
    for (std::size_t pc = 0; pc < reports.size(); ++pc) {
      InstrReport& r = reports[pc];
      const Instr& instr = function->code[pc];
      if (!r.count.issued || instr.flow == Flow::join) continue;
      name_place(*function, instr, names, r);
      r.op_class = instr.op_class;
      r.space = space_of(instr, r);
      r.access = access_of(instr);
      r.copies_to_shared = copies_to_shared(instr);
      for (const auto& observer : observers) observer->report(instr, r);
      out.instructions.push_back(std::move(r));
    }
  }
  gather_touched(launch, allocations, out);
  for (auto& [id, report] : allocations) {
    for (const auto& observer : observers) observer->report(id, report);
    out.allocations.push_back(std::move(report));
  }
  for (const auto& observer : observers) observer->report(out);
  out.l1_clocks_by_sm = launch.l1_clocks_by_sm;
  out.shared_clocks_by_sm = launch.shared_clocks_by_sm;
  out.issued_by_sm = launch.issued_by_sm;
  out.issued_to_grid_barrier = launch.issued_to_grid_barrier;
  for (const auto& worker : workers) {
    out.tensor_multiply_adds_f16 += worker->tensor_f16;
    out.tensor_multiply_adds_f16_sums += worker->tensor_f16_sums;
    out.tensor_multiply_adds_f8 += worker->tensor_f8;
    out.tensor_multiply_adds_tf32 += worker->tensor_tf32;
    out.tensor_multiply_adds_int8 += worker->tensor_int8;
    out.tensor_multiply_adds_int4 += worker->tensor_int4;
    for (std::size_t i = 0; i < worker->warpgroup_work.size(); ++i)
      out.tensor_multiply_adds_warpgroup[i] += worker->warpgroup_work[i];
    out.async_copied_bytes += worker->async_bytes;
    out.most_bulk_under_way = std::max(out.most_bulk_under_way, worker->most_bulk_under_way);
  }
  return out;
}

}  // namespace vgpu
