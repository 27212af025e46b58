// Loading modules and running launches: blocks over host threads, counters put together.
#include "machine.h"

#include <cxxabi.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <numeric>
#include <unordered_map>

#include "../check/checks.h"
#include "../profile/cache_model.h"
#include "../profile/trace.h"
#include "../ptx/decode.h"
#include "../ptx/parameter_names.h"
#include "access.h"
#include "block.h"
#include "names.h"
#include "specials.h"

namespace vgpu {
namespace {

struct Loaded;

// Which functions there are, and at which addresses. Shared with the modules, which take themselves
// out when they go: an address that a kernel kept is then one of no function.
struct FunctionTables {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, const Function*> at;
  std::unordered_map<const Function*, std::uint64_t> addresses;
  std::unordered_map<const Function*, Loaded*> owner;
  std::uint64_t next = kFunctionRange;

  std::uint64_t address_of(const Function* function) {
    const std::lock_guard lock(mutex);
    auto& address = addresses[function];
    if (!address) {
      address = next += 16;
      at[address] = function;
    }
    return address;
  }
  const Function* find(std::uint64_t address) {
    const std::lock_guard lock(mutex);
    const auto it = at.find(address);
    return it == at.end() ? nullptr : it->second;
  }
};

struct Loaded : LoadedModule {
  std::shared_ptr<ParsedModule> parsed;
  SymbolTable symbols;
  std::shared_ptr<FunctionTables> tables;
  ~Loaded() override {
    if (!tables) return;
    const std::lock_guard lock(tables->mutex);
    for (const auto& [name, function] : parsed->module.functions) {
      tables->owner.erase(function.get());
      const auto it = tables->addresses.find(function.get());
      if (it == tables->addresses.end()) continue;
      tables->at.erase(it->second);
      tables->addresses.erase(it);
    }
  }
};

}  // namespace

struct Machine::Impl {
  DeviceSpec spec;
  MachineOptions options;
  Memory memory;
  std::shared_ptr<FunctionTables> tables = std::make_shared<FunctionTables>();
  std::atomic<std::uint64_t> heap_used{0};
  std::uint64_t launches = 0;
  std::uint64_t time = 1'000'000'000;  // virtual nanoseconds
  std::recursive_mutex prepare_mutex;
  Tracer tracer;
  std::shared_ptr<SectoredCache> l2;  // what launches leave to the next (CacheMode::warm)

  // Decodes a function at its first use: what a program never runs need not be known.
  void prepare(const Function* function) {
    const std::lock_guard lock(prepare_mutex);
    if (!function->code.empty()) return;
    Loaded* loaded = nullptr;
    {
      const std::lock_guard tables_lock(tables->mutex);
      loaded = tables->owner.at(function);
    }
    const auto body = loaded->parsed->bodies.find(function->name);
    if (body == loaded->parsed->bodies.end() || !body->second.has_body)
      throw PtxError("function '" + function->display + "' has no code in this module");
    auto& decoded = const_cast<Function&>(*function);
    decode(decoded, body->second, loaded->symbols);
    if (decoded.entry) decoded.param_names = parameter_names(decoded);
  }
};

Machine::Machine(DeviceSpec spec, MachineOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->spec = std::move(spec);
  impl_->options = options;
  if (options.check_init) impl_->memory.track_writes();
  if (impl_->spec.memory_bytes > 0)
    impl_->memory.set_limit(static_cast<std::uint64_t>(impl_->spec.memory_bytes));
}
Machine::~Machine() = default;
const DeviceSpec& Machine::spec() const { return impl_->spec; }
Memory& Machine::memory() { return impl_->memory; }
MachineOptions& Machine::options() { return impl_->options; }
Tracer& Machine::tracer() { return impl_->tracer; }

std::uint64_t SymbolTable::function_address(const Function* function) const {
  return address(function);
}

std::unique_ptr<LoadedModule> Machine::load(std::string ptx_text) {
  auto loaded = std::make_unique<Loaded>();
  loaded->parsed = parse_ptx(std::move(ptx_text));
  Module& module = loaded->parsed->module;
  loaded->module = std::shared_ptr<const Module>(loaded->parsed, &module);
  loaded->symbols.parsed = loaded->parsed.get();
  loaded->symbols.module_shared_bytes = place_module_shared(*loaded->parsed);
  loaded->tables = impl_->tables;
  loaded->symbols.address = [tables = impl_->tables.get()](const Function* f) {
    return tables->address_of(f);
  };
  // Variables: constants in one bank, globals in allocations of their own, so that running past one
  // is noticed.
  loaded->constants = std::make_shared<std::vector<std::byte>>();
  for (auto& [name, global] : module.globals) {
    if (global->external) continue;
    if (global->space == Space::constant) {
      auto& bank = *loaded->constants;
      const std::size_t at = (bank.size() + global->align - 1) / global->align * global->align;
      if (at + global->size > (64u << 10)) throw PtxError("more than 64 KiB of constant memory");
      bank.resize(at + global->size);
      std::copy(global->init.begin(), global->init.end(),
                bank.begin() + static_cast<std::ptrdiff_t>(at));
      global->address = at;
    } else if (global->space == Space::global) {
      const auto kind = global->managed ? MemoryKind::managed : MemoryKind::global_variable;
      auto allocation = impl_->memory.allocate(global->size, kind, global->align);
      if (!allocation)
        throw PtxError("no memory for variable '" + name + "' of " + std::to_string(global->size) +
                       " bytes");
      allocation->name = display_name(name);
      std::copy(global->init.begin(), global->init.end(), allocation->host);
      global->address = allocation->base;
      loaded->variables.push_back(std::move(allocation));
    }
  }
  for (auto& [name, global] : module.globals)
    for (const Global::Relocation& r : global->relocations) {
      std::uint64_t value = 0;
      if (const Global* target = loaded->symbols.global(r.symbol)) {
        value = target->address;
        if (r.generic && target->space == Space::constant) value += kConstantWindow;
        if (r.generic && target->space == Space::shared) value += kSharedWindow;
      } else if (const Function* f = loaded->symbols.function(r.symbol)) {
        value = loaded->symbols.function_address(f);
      } else {
        throw PtxError("initializer of '" + name + "' names unknown '" + r.symbol + "'");
      }
      value += static_cast<std::uint64_t>(r.addend);
      std::uint64_t size = 0;
      std::byte* bytes = loaded->variable_bytes(name, size);
      if (bytes && r.offset + static_cast<std::uint64_t>(r.bytes) <= size)
        std::memcpy(bytes + r.offset, &value, static_cast<std::size_t>(std::min(r.bytes, 8)));
    }
  const std::lock_guard lock(impl_->tables->mutex);
  for (auto& [name, function] : module.functions) {
    function->display = display_name(name);
    impl_->tables->owner[function.get()] = loaded.get();
  }
  return loaded;
}

bool LoadedModule::variable(std::string_view name, std::uint64_t& address,
                            std::uint64_t& size) const {
  const auto it = module->globals.find(name);
  if (it == module->globals.end() || it->second->external || it->second->space == Space::shared)
    return false;
  address = it->second->address + (it->second->space == Space::constant ? kConstantWindow : 0);
  size = it->second->size;
  return true;
}

std::byte* LoadedModule::variable_bytes(std::string_view name, std::uint64_t& size) const {
  const auto it = module->globals.find(name);
  if (it == module->globals.end() || it->second->external) return nullptr;
  const Global& global = *it->second;
  size = global.size;
  if (global.space == Space::constant) return constants->data() + global.address;
  for (const auto& allocation : variables)
    if (allocation->base == global.address) return allocation->host;
  return nullptr;
}

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

// Which cluster comes n-th: the n-th, or a shuffled one. Grids too large for a list are stepped
// through with a stride that shares no factor with their size.
struct ClusterOrder {
  std::vector<std::uint64_t> list;
  std::uint64_t clusters = 0, stride = 0;
  ClusterOrder(std::uint64_t count, std::uint64_t seed) : clusters(count) {
    constexpr std::uint64_t kLongest = 1u << 18;
    if (!seed) return;
    std::mt19937_64 random(seed);
    if (count <= kLongest) {
      list.resize(count);
      for (std::uint64_t i = 0; i < count; ++i) list[i] = i;
      std::shuffle(list.begin(), list.end(), random);
    } else {
      do stride = 1 + random() % (count - 1);
      while (std::gcd(stride, count) != 1);
    }
  }
  std::uint64_t cluster(std::uint64_t n) const {
    if (stride)
      return static_cast<std::uint64_t>(static_cast<unsigned __int128>(n) * stride % clusters);
    return list.empty() ? n : list[n];
  }
};

// Takes clusters from those that are left and runs them. Those that wait for others stay resident,
// up to `resident`, and take turns; in a cluster its blocks do.
class Work {
 public:
  Work(Launch& launch, Worker& worker)
      : launch_(launch),
        worker_(worker),
        ranking_(launch.hostile ? Ranking(launch.seed, 0) : Ranking()),
        l1_(worker.counting ? launch.l1_clocks_by_sm.size() : 0),
        shared_(l1_.size()),
        issued_(l1_.size()) {}

  void run(const ClusterOrder& order, std::uint64_t resident, std::atomic<std::uint64_t>& next) {
    std::deque<std::unique_ptr<Cluster>> waiting;
    const bool hostile = launch_.hostile;
    std::uint64_t most = hostile ? std::min(resident, kHostileClusters) : resident;
    for (bool more = true;;) {
      std::unique_ptr<Cluster> cluster;
      if (more && waiting.size() < most) {
        const std::uint64_t n = next.fetch_add(1, std::memory_order_relaxed);
        if (n >= order.clusters ||
            n > launch_.fault_cluster) {  // (a shuffled launch ends at its first fault)
          more = false;
        } else {
          cluster = std::make_unique<Cluster>(launch_, worker_, order.cluster(n));
          got_further();
          if (hostile) {  // all in flight before one begins
            cluster->place = ranking_.place_of(cluster->number);
            waiting.push_back(std::move(cluster));
            continue;
          }
        }
      }
      if (!cluster) {
        if (waiting.empty()) break;
        if (hostile && idle_ <= kLooksIdle && !favourite_first(waiting)) {
          ++pass_;  // all were asked and nobody got further: perhaps they wait for those behind
          most = std::min(2 * most, resident);
          continue;
        }
        cluster = std::move(waiting.front());
        waiting.pop_front();
      }
      if (cluster->number > launch_.fault_cluster) continue;
      try {
        if (turn(*cluster, waiting.size() + 1)) continue;
      } catch (Fault& fault) {
        launch_.stop_at(cluster->number, std::move(fault));
        if (launch_.may_wait) break;  // perhaps for this one
        continue;
      } catch (const PtxError& error) {
        launch_.stop_at(cluster->number, {FaultKind::illegal_instruction, error.what()});
        if (launch_.may_wait) break;
        continue;
      }
      waiting.push_back(std::move(cluster));
      if (const Cluster* stuck = stuck_one(waiting)) {
        const std::size_t blocks = waiting.size() * stuck->blocks.size();
        launch_.stop_at(stuck->number,
                        {FaultKind::deadlock, first_waiting(*stuck).waits_for_ever(blocks)});
        break;
      }
    }
  }

  // Tells the launch what was counted by SM.
  void finish() {
    const std::lock_guard lock(launch_.mutex);
    for (std::size_t sm = 0; sm < l1_.size(); ++sm) {
      launch_.l1_clocks_by_sm[sm] += l1_[sm];
      launch_.shared_clocks_by_sm[sm] += shared_[sm];
      launch_.issued_by_sm[sm] += issued_[sm];
    }
  }

 private:
  // One turn of each block. True when all have ended. Throws Fault, also when nobody gets any further.
  bool turn(Cluster& cluster, std::uint64_t resident) {
    std::size_t blocked = 0, live = 0;
    for (const std::uint32_t rank : cluster.order()) {
      Block& block = *cluster.blocks[rank];
      if (block.live_threads == 0) continue;
      ++live;
      const std::uint64_t before = instructions(block);
      block.steady = idle_ > kLooksIdle;
      worker_.l1_clocks = worker_.shared_clocks = 0;
      const Block::Status status = block.run();
      const std::uint64_t executed = instructions(block) - before;
      if (worker_.counting) {
        l1_[block.sm] += worker_.l1_clocks;
        shared_[block.sm] += worker_.shared_clocks;
        issued_[block.sm] += executed;
      }
      if (status == Block::Status::done) {
        for (const Warp& w : block.warps) worker_.time += w.instructions + w.slept;
        got_further();
        continue;
      }
      if (status == Block::Status::blocked && executed == 0) {
        ++blocked;
        continue;
      }
      idle_ += executed;
      if (block.got_further) {
        got_further();
        if (launch_.hostile && ranking_.falls()) cluster.place = ranking_.end();
      }
      if ((total_ += executed) >= launch_.machine.instruction_limit)
        throw Fault{FaultKind::deadlock, block.runs_for_ever()};
      if (idle_ > launch_.machine.patience)
        throw Fault{FaultKind::deadlock, block.waits_for_ever(resident * cluster.blocks.size())};
      if (launch_.hostile && block.got_further) break;  // who goes next?
    }
    if (live && blocked == live && !cluster.release_joins())
      throw Fault{FaultKind::deadlock, cluster.deadlock()};
    return cluster.done() || cluster.number > launch_.fault_cluster;
  }
  // Puts the first in the ranking of those that were not asked since somebody got further to the front.
  // False: all were.
  bool favourite_first(std::deque<std::unique_ptr<Cluster>>& waiting) const {
    auto first = waiting.end();
    for (auto it = waiting.begin(); it != waiting.end(); ++it)
      if ((*it)->asked != pass_ && (first == waiting.end() || (*it)->place < (*first)->place))
        first = it;
    if (first == waiting.end()) return false;
    (*first)->asked = pass_;
    std::rotate(waiting.begin(), first, first + 1);
    return true;
  }
  void got_further() {
    ++pass_;
    idle_ = looks_ = turns_ = seen_ = skipped_ = 0;
  }

  // After a turn of the last of those that wait: the first of them, when none will ever go on. That is
  // so when nobody has written since all were last looked at (who waits has not) and all are exactly
  // where they were: places, stacks, and registers that decide. They will come to be there for ever.
  // Who looks at a clock is shown one that runs ahead, for a quarter of an hour.
  const Cluster* stuck_one(const std::deque<std::unique_ptr<Cluster>>& waiting) {
    if (idle_ <= kLooksIdle || ++turns_ < waiting.size()) return nullptr;
    turns_ = 0;
    std::uint64_t now = worker_.async_bytes;
    bool host = false, reads_clock = false;
    for (const auto& cluster : waiting)
      for (const auto& block : cluster->blocks) {
        if (block->live_threads == 0) continue;
        const std::uint64_t hash = block->state_hash(reads_clock);
        if (!hash) return nullptr;
        now = (now ^ hash) * 0x9E3779B97F4A7C15ull;
        host |= block->looks_at_host();
      }
    now |= 1;
    const bool same = now == seen_;
    // A cycle of any length is met by what was seen at the last power of two (Brent).
    if ((looks_ & (looks_ - 1)) == 0) {
      seen_ = now;
      if (looks_ == 0) since_ = std::chrono::steady_clock::now();
    }
    ++looks_;
    if (reads_clock && skipped_ < kWatched) {  // a time limit passes while nothing else happens
      const std::uint64_t ticks = kFirstSkip << std::min<std::uint64_t>(looks_, 30);
      worker_.time += ticks;
      skipped_ += ticks;
      return nullptr;
    }
    // Another thread of the host may be about to write what they wait for.
    if (!same || (host && std::chrono::steady_clock::now() - since_ < kHostPatience)) return nullptr;
    bool released = false;  // lanes that keep together with others that wait
    for (const auto& cluster : waiting) released |= cluster->release_joins();
    if (released) {
      looks_ = seen_ = 0;
      return nullptr;
    }
    const auto first = [](const auto& a, const auto& b) { return a->number < b->number; };
    return std::min_element(waiting.begin(), waiting.end(), first)->get();
  }

  // A block of which a thread waits in a loop, when there is one.
  static Block& first_waiting(const Cluster& cluster) {
    for (const auto& block : cluster.blocks)
      for (const Warp& warp : block->warps)
        for (const Fragment& f : warp.fragments)
          if (f.waiting) return *block;
    return *cluster.blocks.front();
  }

  static std::uint64_t instructions(const Block& block) {
    std::uint64_t sum = 0;
    for (const Warp& w : block.warps) sum += w.instructions;
    return sum;
  }

  Launch& launch_;
  Worker& worker_;
  Ranking ranking_;  // of clusters in a hostile schedule
  std::uint64_t pass_ = 1;
  std::vector<double> l1_, shared_;
  std::vector<std::uint64_t> issued_;
  // Instructions in waiting loops after which it is worth the time to look whether they end.
  static constexpr std::uint64_t kLooksIdle = 1u << 16;
  static constexpr std::chrono::seconds kHostPatience{3};
  static constexpr std::uint64_t kHostileClusters = 32;  // in flight unless they wait for more
  static constexpr std::uint64_t kFirstSkip = 1u << 20, kWatched = 1ull << 40;  // nanoseconds

  std::uint64_t idle_ = 0;                        // instructions since a block last got further
  std::uint64_t looks_ = 0, turns_ = 0, seen_ = 0, skipped_ = 0;  // see stuck_one
  std::chrono::steady_clock::time_point since_;
  std::uint64_t total_ = 0;
};

Access access_of(const Instr& instr) {
  if (instr.op_class == OpClass::atomic) return Access::atomic;
  return instr.d[0].valid() ? Access::load : Access::store;
}

// cp.async and bulk copies into shared memory.
bool copies_to_shared(const Instr& instr) {
  return instr.space == Space::shared && instr.address2.valid() && !instr.from_shared;
}

// Puts the workers' counters together, in an order that does not depend on who did what.
LaunchCounters gather(Launch& launch, std::vector<std::unique_ptr<Worker>>& workers,
                      const CacheModel* cache) {
  const LaunchRequest& request = launch.request;
  LaunchCounters out;
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

  std::map<std::string_view, const Function*> functions;  // by name: a stable order
  for (auto& worker : workers)
    for (auto& [function, state] : worker->functions) functions.emplace(function->name, function);
  std::map<std::uint32_t, AllocationReport> allocations;
  for (auto& [name, function] : functions) {
    std::vector<InstrReport> reports(function->code.size());
    for (auto& worker : workers) {
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
    for (auto& worker : workers)
      for (auto& [key, counters] : worker->by_allocation) {
        const auto& [owner, site, id] = key;
        if (owner != function) continue;
        const std::size_t pc = pc_of_site[site];
        reports[pc].global += counters;
        const Instr& instr = function->code[pc];
        const Access access = copies_to_shared(instr) ? Access::load : access_of(instr);
        allocations[id].by_access[static_cast<std::size_t>(access)] += counters;
      }
    for (auto& worker : workers)
      for (auto& [key, counters] : worker->bulk_by_allocation) {
        const auto& [owner, site, id] = key;
        if (owner != function) continue;
        const std::size_t pc = pc_of_site[site];
        reports[pc].bulk += counters;
        const Instr& instr = function->code[pc];
        const Access access = copies_to_shared(instr) ? Access::load : access_of(instr);
        allocations[id].bulk[static_cast<std::size_t>(access)] += counters;
      }
    for (std::size_t pc = 0; pc < reports.size(); ++pc) {
      InstrReport& r = reports[pc];
      const Instr& instr = function->code[pc];
      if (!r.count.issued || instr.flow == Flow::join) continue;
      const Location& location = function->module->locations[instr.location];
      r.function = full_name(function->name);
      r.file = location.file.empty() ? "" : display_path(location.file);
      r.line = location.line;
      r.ptx_line = instr.ptx_line;
      if (instr.ptx_line && instr.ptx_line <= function->module->lines.size()) {
        std::string_view text = function->module->lines[instr.ptx_line - 1];
        const std::size_t start = text.find_first_not_of(" \t{");
        r.ptx = std::string(start == text.npos ? text : text.substr(start));
      }
      r.op_class = instr.op_class;
      r.space = instr.space;
      if (r.space == Space::generic && (r.shared.requests || r.remote.requests) &&
          !r.global.requests)
        r.space = Space::shared;
      if (r.space == Space::generic && r.local.requests && !r.global.requests)
        r.space = Space::local;
      if (r.space == Space::generic && r.global.requests) r.space = Space::global;
      r.access = access_of(instr);
      r.copies_to_shared = copies_to_shared(instr);
      if (cache) r.cache = cache->of_instruction(instr);
      out.instructions.push_back(std::move(r));
    }
  }
  for (auto& [id, map] : launch.touched) {
    AllocationReport& report = allocations[id];
    report.name = allocation_name(launch, *map->allocation);
    report.bytes = map->allocation->size;
    for (std::size_t s = 0; s < map->sectors; ++s) {
      report.sectors_read += map->read[s];
      report.sectors_written += map->written[s];
    }
    out.distinct_sectors_read += report.sectors_read;
    out.distinct_sectors_written += report.sectors_written;
  }
  if (cache) {
    out.cache = cache->report();
    for (auto& [id, report] : allocations) report.cache = cache->of_allocation(id);
  }
  for (auto& [id, report] : allocations) out.allocations.push_back(std::move(report));
  out.l1_clocks_by_sm = launch.l1_clocks_by_sm;
  out.shared_clocks_by_sm = launch.shared_clocks_by_sm;
  out.issued_by_sm = launch.issued_by_sm;
  for (auto& worker : workers) {
    out.tensor_multiply_adds_f16 += worker->tensor_f16;
    out.tensor_multiply_adds_tf32 += worker->tensor_tf32;
    out.tensor_multiply_adds_int8 += worker->tensor_int8;
    out.async_copied_bytes += worker->async_bytes;
  }
  return out;
}

}  // namespace

std::vector<std::string> Machine::refusals(const LoadedModule& module) {
  std::vector<std::string> messages;
  const auto& loaded = static_cast<const Loaded&>(module);
  for (const auto& [name, function] : module.module->functions) {
    const auto body = loaded.parsed->bodies.find(name);
    if (body == loaded.parsed->bodies.end() || !body->second.has_body) continue;
    try {
      impl_->prepare(function.get());
    } catch (const PtxError& error) {
      messages.push_back(error.what());
    }
  }
  return messages;
}

LaunchOutcome Machine::launch(const LaunchRequest& request) {
  LaunchOutcome outcome;
  const auto start = std::chrono::steady_clock::now();
  Launch launch(*this, request, impl_->heap_used);
  launch.constants = request.module->constants->data();
  launch.constant_bytes = request.module->constants->size();
  launch.grid_id = ++impl_->launches;
  launch.seed = impl_->options.schedule_seed;
  launch.hostile = launch.seed != 0 && impl_->options.hostile;
  launch.prepare = [this](const Function* function) {
    impl_->prepare(function);
    return function;
  };
  launch.function_at = [this](std::uint64_t address) -> const Function* {
    return impl_->tables->find(address);
  };
  std::vector<std::unique_ptr<Observer>> observers;
  const CacheModel* cache = nullptr;  // one of the observers
  std::vector<std::unique_ptr<Worker>> workers;
  std::shared_ptr<Allocation> workspace;
  try {
    launch.prepare(request.function);
    const Function& function = *request.function;
    constexpr std::uint32_t kMaxLocalBytes = 512u << 10;  // CUDA's limit for a thread
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
    launch.params.resize(std::max<std::size_t>(launch.params.size(), function.param_bytes));
    launch.dynamic_shared_base = (function.shared_bytes + function.dynamic_shared_align - 1) /
                                 function.dynamic_shared_align * function.dynamic_shared_align;
    launch.shared_bytes = request.dynamic_shared
                              ? launch.dynamic_shared_base + request.dynamic_shared
                              : function.shared_bytes;
    launch.warps_per_block =
        static_cast<std::uint32_t>((request.block.count() + kWarpSize - 1) / kWarpSize);
    launch.stack_bytes = stack_limit;
    launch.start_time = impl_->time;
    const std::uint64_t blocks = request.grid.count(), in_cluster = request.cluster.count();
    if (in_cluster == 0 || request.grid.x % request.cluster.x ||
        request.grid.y % request.cluster.y || request.grid.z % request.cluster.z)
      throw Fault{FaultKind::illegal_instruction,
                  "the grid of " + function.display + " is no multiple of its clusters"};
    const std::uint64_t clusters = blocks / in_cluster;
    bool order_matters = function.order_matters;
    {  // of everything it may call, too
      std::vector<const Function*> todo = {&function}, seen;
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
    }
    launch.fair = blocks > 1 && !launch.hostile;
    launch.may_wait = order_matters || request.cooperative;
    if (request.cooperative) {
      workspace = impl_->memory.allocate(4096, MemoryKind::heap);
      if (!workspace)
        throw Fault{FaultKind::out_of_memory,
                    "no memory for the workspace of a cooperative launch"};
      workspace->name = "grid barrier";
      std::memset(workspace->host, 0, workspace->size);
      impl_->memory.mark_written(workspace->base, workspace->size);
      launch.workspace = workspace->base;
    }
    int threads = impl_->options.threads > 0 ? impl_->options.threads : omp_get_num_procs();
    threads = static_cast<int>(
        std::clamp<std::uint64_t>(clusters, 1, static_cast<std::uint64_t>(std::max(1, threads))));
    observers = make_checks(impl_->options);
    if (request.observer) observers.push_back(request.observer());
    if (request.count && impl_->options.cache != CacheMode::off) {
      auto model = std::make_unique<CacheModel>(impl_->options.cache == CacheMode::warm ? &impl_->l2
                                                                                        : nullptr);
      cache = model.get();
      observers.push_back(std::move(model));
      launch.small_turns = !launch.seed;
      launch.fair &= !launch.small_turns;  // it is in any case
    }
    if (auto trace = impl_->tracer.watch(launch)) observers.push_back(std::move(trace));
    if (order_matters || request.cooperative || launch.seed || !observers.empty()) threads = 1;
    const auto sms = static_cast<std::size_t>(impl_->spec.sm_count);
    if (request.count) {
      launch.l1_clocks_by_sm.resize(sms);
      launch.shared_clocks_by_sm.resize(sms);
      launch.issued_by_sm.resize(sms);
    }
    const std::uint64_t resident =
        request.cooperative ? blocks
        : launch.small_turns
            ? CacheModel::resident_blocks(launch)
            : std::max<std::uint64_t>(
                  1, sms * static_cast<std::uint64_t>(std::max(1, request.resident_blocks_per_sm)));
    for (int t = 0; t < threads; ++t) {
      workers.push_back(std::make_unique<Worker>(launch));
      workers.back()->counting = request.count;
      if (!observers.empty()) workers.back()->observers = &observers;
      for (const auto& observer : observers)
        if (observer->wants_instructions()) workers.back()->followers.push_back(observer.get());
      workers.back()->sectors_per_clock =
          static_cast<std::uint32_t>(impl_->spec.l1_bytes_per_clock_sm / kSectorBytes);
    }
    const ClusterOrder order(clusters, launch.hostile ? 0 : launch.seed);
    const std::uint64_t resident_clusters =
        std::max<std::uint64_t>(1, resident / in_cluster / static_cast<std::uint64_t>(threads));
    std::atomic<std::uint64_t> next{0};
    std::exception_ptr trouble;
    for (const auto& observer : observers) observer->launch_begin(launch);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
      const int t = threads > 1 ? omp_get_thread_num() : 0;
      try {
        Work work(launch, *workers[t]);
        work.run(order, resident_clusters, next);
        work.finish();
      } catch (
          const std::exception& error) {  // bad_alloc, and whatever else must not end the process
        launch.stop_at(
            0, {FaultKind::out_of_memory, "out of host memory (" + std::string(error.what()) +
                                              ") while running " + request.function->display});
      }
    }
  } catch (const Fault& fault) {
    launch.fault = fault;
  } catch (const PtxError& error) {
    launch.fault = {FaultKind::illegal_instruction, error.what()};
  } catch (const std::exception& error) {
    launch.fault = {FaultKind::out_of_memory, "out of host memory (" + std::string(error.what()) +
                                                  ") while preparing " + request.function->display};
  }
  std::uint64_t ticks = 0;
  for (auto& worker : workers) ticks = std::max(ticks, worker->time);
  impl_->time += ticks + 1000;
  if (workspace) impl_->memory.release(workspace->base);
  for (const auto& observer : observers) observer->launch_end(launch, outcome.findings);
  outcome.fault = launch.fault;
  if (request.count && launch.fault.kind == FaultKind::none) {
    outcome.counters = gather(launch, workers, cache);
    outcome.counters.host_threads = static_cast<int>(workers.size());
    outcome.counters.host_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return outcome;
}

std::string display_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  const std::filesystem::path relative = std::filesystem::path(path).lexically_relative(here);
  if (error || relative.empty() || *relative.begin() == "..") return path;
  return relative.string();
}

std::string full_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : mangled;
  std::free(text);
  if (status != 0) return name;
  // Without the parameter list: the last parenthesis at depth 0 opens it.
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == ')' || name[i] == '>') ++depth;
    if (name[i] == '(' || name[i] == '<') --depth;
    if (name[i] == '(' && depth == 0) {
      name.resize(i);
      break;
    }
  }
  // Template functions carry their return type: what stands before the last space at depth 0.
  depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>' || name[i] == ')') ++depth;
    if (name[i] == '<' || name[i] == '(') --depth;
    if (name[i] == ' ' && depth == 0) {
      name.erase(0, i + 1);
      break;
    }
  }
  const std::string anonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = name.find(anonymous)) != name.npos;) name.erase(at, anonymous.size());
  return name;
}

namespace {

constexpr std::size_t kLongestName = 100;

// The name with "..." for the template arguments inside of `depth` others.
std::string elided(const std::string& name, int depth) {
  std::string text;
  int inside = 0;
  for (const char c : name) {
    if (c == '>' && --inside == depth) text += "...";
    if (inside <= depth) text += c;
    if (c == '<') ++inside;
  }
  return text;
}

// Only the first arguments of the last template list, as many as there is room for.
std::string first_arguments(const std::string& name) {
  int inside = 0;
  std::size_t last = std::string::npos;  // where there is a comma between arguments
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '>') --inside;
    if (name[i] == '<') ++inside;
    if (name[i] == ',' && inside == 1 && i + sizeof ", ...>" <= kLongestName) last = i;
  }
  if (last == std::string::npos) return elided(name, 0);
  return name.substr(0, last) + ", ...>";
}

}  // namespace

std::string display_name(const std::string& mangled) {
  const std::string full = full_name(mangled);
  if (full.size() <= kLongestName) return full;
  std::string name = full;
  if (name.back() == '>') {
    for (int depth = 3; depth > 0 && name.size() > kLongestName; --depth)
      name = elided(full, depth);
    if (name.size() > kLongestName) name = first_arguments(name);
  }
  if (name.size() > kLongestName) name = "..." + name.substr(name.size() - (kLongestName - 3));
  return name;
}

}  // namespace vgpu
