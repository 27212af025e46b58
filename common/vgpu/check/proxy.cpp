// Accesses by different ways to memory, which the hardware does not keep in step by itself.
//
// - The copy engine (cp.async.bulk) is asked to read or overwrite shared memory that threads have
//   written as usual, or wgmma reads it: a fence.proxy.async must come between. The thread that wrote
//   may have it, or one that has met the writer since.
// - An mbarrier is used by a thread that has not met the one that initialized it. Between blocks of
//   a cluster that is a barrier of the cluster, and the initialization must have been released.
// - A tensor copy uses a map in global memory that the same launch has written: what writes it must
//   release it to those who use it as a map (fence.proxy.tensormap::generic.release, or
//   tensormap.cp_fenceproxy), and they must acquire it (.acquire with its address). It must not be
//   written while such a copy is under way, which reads it when it likes.
// - ld.global.nc reads what the same launch has written: it is for memory that stays as it is.
//
// Whether two threads have met is the race check's to know exactly. Here a thread counts as having
// met all that went on before when it comes out of a barrier, of a wait at an mbarrier, or of an
// atomic or an ordered or volatile load. That can hide a finding and cannot invent one.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "../core/access.h"
#include "../core/bulk.h"
#include "../core/instruction_set.h"
#include "checks.h"

namespace vgpu {
namespace {

using Moment = std::uint64_t;  // numbers what happens in a launch, from 1

// What a warp's lanes did last, and when.
struct Doings {
  std::uint64_t block = 0;
  std::uint32_t warp = 0;
  Moment met_warp[kWarpSize] = {}, met_block[kWarpSize] = {}, met_cluster[kWarpSize] = {};
  Moment fenced[kWarpSize] = {};       // fence.proxy.async for shared memory
  Moment bulk_waited[kWarpSize] = {};  // for groups of bulk copies
  Moment released[kWarpSize] = {};  // a fence, or an arrival at the cluster's barrier that releases
  Moment map_released[kWarpSize] = {};  // fence.proxy.tensormap::generic.release
  // A fence of some lane reaches everything up to here that lanes of this warp wrote.
  Moment covered = 0, map_covered = 0;
};

struct Place {  // where an instruction that a thread executed stands
  const Doings* by = nullptr;
  const Function* function = nullptr;
  const Instr* instr = nullptr;
  Moment moment = 0;
  int lane = 0;
};

// What an instruction is to this check.
enum class Way : std::uint8_t { usual, bulk, mbarrier, product, other };
Way way_of(const Form& form) {
  const std::string_view opcode = form.opcode, pattern = form.pattern;
  if (opcode == "mbarrier") return Way::mbarrier;
  if (opcode == "wgmma") return Way::product;
  if (opcode == "cp" && pattern.starts_with(".async .mbarrier")) return Way::mbarrier;
  if (opcode == "cp" && pattern.find(".bulk") != pattern.npos) return Way::bulk;
  const bool reports = pattern.find(".mbarrier::complete_tx") != pattern.npos;
  return reports ? Way::other : Way::usual;  // st.async and red.async
}
Way way_of(const Instr& instr) {
  static const std::vector<Way> ways = [] {
    std::vector<Way> all;
    for (const Form& form : forms()) all.push_back(way_of(form));
    return all;
  }();
  return ways[instr.form];
}

class ProxyCheck final : public Observer {
 public:
  void launch_begin(Launch& launch) override { look_at(*launch.request.function); }
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    findings_.take(findings);
  }
  void block_begin(Block& block) override {
    if (!engine_) return;
    blocks_[&block];
    for (const Warp& warp : block.warps) {
      auto& doings = doings_[&warp];
      doings = std::make_unique<Doings>();
      doings->block = block.linear;
      doings->warp = warp.index;
    }
  }
  void block_end(Block& block) override {
    if (!engine_) return;
    blocks_.erase(&block);
    for (const Warp& warp : block.warps) {
      const auto it = doings_.find(&warp);
      // Others of the cluster, or of the grid, may remember what its threads did.
      if (maps_ || block.cluster.blocks.size() > 1) ended_.push_back(std::move(it->second));
      doings_.erase(it);
    }
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places& places) override {
    if (space == Space::global) {
      if (non_coherent_) global_access(warp, instr, mask, a, bytes, access);
      if (maps_ && access != Access::load)
        each_lane(mask, [&](int lane) { wrote_map(warp, instr, lane, a.v[lane], bytes); });
    } else if (engine_) {
      Block& of = places.owner ? *places.owner : *warp.block;
      if (way_of(instr) == Way::mbarrier)
        each_lane(mask, [&](int lane) { use_object(warp, instr, lane, of, a.v[lane], access); });
      else if (way_of(instr) == Way::usual && access != Access::load)
        each_lane(mask, [&](int lane) { wrote(warp, instr, lane, of, a.v[lane], bytes); });
    }
    if (engine_ && acquires(instr, access)) met(doings_of(warp), mask, true, true);
  }
  void bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                   std::uint32_t bytes, Access access, std::byte*) override {
    if (access != Access::load) {
      if (!instr.rank) read_by_engine(warp, instr, lane, bytes);
      if (non_coherent_) mark(warp, instr, address, bytes);
    }
  }
  void tensor_copy(Warp& warp, const Instr& instr, int lane, std::uint32_t offset,
                   std::uint32_t bytes, std::uint32_t, std::uint32_t) override {
    if (maps_) use_map(warp, instr, lane);
    if (instr.space == Space::global)
      check_written(warp, instr, lane, *warp.block, offset, bytes, "bulk copy reads");
  }
  void operand_read(Warp& warp, const Instr& instr, std::span<const std::uint32_t> pieces,
                    Reading reading, std::uint64_t) override {
    if (reading == Reading::ends) return;  // what is written meanwhile is a race
    for (std::size_t i = 0; i < pieces.size(); ++i)
      check_written(warp, instr, static_cast<int>(i % kWarpSize), *warp.block, pieces[i], 16,
                    "wgmma reads");
  }
  void copy_issue(Warp& warp, const Instr& instr, int lane, Block& to, std::uint32_t offset,
                  std::uint32_t bytes) override {
    if (!engine_) return;
    if (way_of(instr) == Way::bulk) {
      check_written(warp, instr, lane, to, offset, bytes, "bulk copy overwrites");
      Instr object = instr;
      object.address = instr.b;
      object.address_bits = instr.b_bits;
      object.imm = instr.constant;
      Addresses a;
      compute_addresses(warp, object, 1u << lane, a);
      use_object(warp, instr, lane, to, a.v[lane] % kRankedBytes, Access::atomic);
    }
    for (Written& w : of(to).at(to, offset, bytes)) w.engine = way_of(instr) != Way::usual;
  }
  void copy_land(Warp& warp, int lane, Block& to, std::uint32_t offset,
                 std::uint32_t bytes) override {
    if (!engine_) return;
    const Place place = place_of(warp, nullptr, lane);
    for (Written& w : of(to).at(to, offset, bytes)) w.place = w.engine ? Place{} : place;
  }

  void barrier_arrive(Warp& warp, const Instr&, std::uint32_t mask, int barrier, bool) override {
    if (engine_) of(*warp.block).arrived[barrier].push_back({&doings_of(warp), mask});
  }
  void barrier_complete(Block& block, int barrier) override {
    if (!engine_) return;
    auto& arrived = of(block).arrived[barrier];
    for (auto& [doings, lanes] : arrived) met(*doings, lanes, true, false);
    arrived.clear();
  }
  void cluster_arrive(Warp& warp, const Instr& instr, std::uint32_t mask) override {
    if (!engine_ || instr.order & kOrderRelaxed) return;
    Doings& doings = doings_of(warp);
    each_lane(mask, [&](int lane) { doings.released[lane] = ++now_; });
  }
  void cluster_complete(Cluster& cluster) override {
    if (!engine_) return;
    for (const auto& block : cluster.blocks)
      for (const Warp& warp : block->warps)
        if (const auto it = doings_.find(&warp); it != doings_.end())
          met(*it->second, kFullMask, true, true);
  }
  void sources_read(Warp& warp, int lane, std::uint64_t) override {
    if (maps_) doings_of(warp).bulk_waited[lane] = ++now_;
  }
  void warp_sync(Warp& warp, const Instr&, std::uint32_t mask, std::uint32_t) override {
    if (engine_) met(doings_of(warp), mask, false, false);
  }
  void fence(Warp& warp, const Instr& instr, std::uint32_t mask) override {
    if (!engine_) return;
    Doings& doings = doings_of(warp);
    each_lane(mask, [&](int lane) { doings.released[lane] = ++now_; });
    const std::string_view pattern = forms()[instr.form].pattern;
    if (pattern.starts_with(".proxy .async")) proxy_fence(warp, instr, mask);
    if (pattern.find(".tensormap::generic") != pattern.npos)
      fence_maps(warp, instr, mask, pattern.find(".acquire") != pattern.npos);
  }
  void proxy_fence(Warp& warp, const Instr& instr, std::uint32_t mask) override {
    if (!engine_ || instr.space == Space::global) return;
    Doings& doings = doings_of(warp);
    BlockState& state = of(*warp.block);
    each_lane(mask, [&](int lane) {
      doings.fenced[lane] = doings.released[lane] = ++now_;
      doings.covered = std::max(doings.covered, doings.met_warp[lane]);
      state.covered = std::max(state.covered, doings.met_block[lane]);
    });
  }

 private:
  struct Written {
    Place place;          // the last usual write; none: by the engine, or never
    bool engine = false;  // whose the copy is that is under way
  };
  static constexpr std::uint32_t kPiece = 4;  // bytes that share a Written
  struct BlockState {
    std::vector<Written> written;
    std::map<std::uint32_t, Place> objects;  // mbarriers, where they were initialized
    Moment covered = 0, map_covered = 0;     // writes up to here are fenced, whoever's they are
    std::vector<std::pair<Doings*, std::uint32_t>> arrived[16];
    std::span<Written> at(const Block& block, std::uint32_t offset, std::uint32_t bytes) {
      if (written.empty()) written.resize(block.launch.shared_bytes / kPiece + 1);
      return std::span(written).subspan(offset / kPiece,
                                        (offset + bytes - 1) / kPiece + 1 - offset / kPiece);
    }
  };

  // Which of its parts the check needs for this kernel.
  void look_at(const Function& kernel) {
    each_function(kernel, [&](const Function& f) {
      if (f.calls_indirectly) engine_ = non_coherent_ = maps_ = true;
      for (const Instr& instr : f.code) {
        engine_ |= way_of(instr) != Way::usual;
        non_coherent_ |= instr.non_coherent;
        maps_ |= std::string_view(forms()[instr.form].opcode) == "tensormap" ||
                 std::string_view(forms()[instr.form].pattern).find("tensormap::generic") !=
                     std::string_view::npos;
      }
    });
    engine_ |= maps_;
  }

  static bool acquires(const Instr& instr, Access access) {
    switch (way_of(instr)) {
      case Way::usual:
        return access == Access::atomic || (access == Access::load && instr.volatile_);
      case Way::mbarrier:
        return instr.order & kOrderAcquire;
      default:
        return false;
    }
  }
  BlockState& of(const Block& block) { return blocks_[&block]; }
  Doings& doings_of(const Warp& warp) { return *doings_.at(&warp); }
  void met(Doings& doings, std::uint32_t lanes, bool block, bool cluster) {
    ++now_;
    each_lane(lanes, [&](int lane) {
      doings.met_warp[lane] = now_;
      if (block) doings.met_block[lane] = now_;
      if (cluster) doings.met_cluster[lane] = now_;
    });
  }
  Place place_of(const Warp& warp, const Instr* instr, int lane) {
    const Function* function = warp.frame->function;
    return {&doings_of(warp), function, instr ? &function->code[instr->pc] : nullptr, ++now_, lane};
  }
  // "which thread (3,0,0) wrote at kernel.cuh:42"
  static std::string thread_at(const Warp& warp, const Place& place, const char* verb) {
    const Launch& launch = warp.block->launch;
    std::string text = "thread " + thread_text(launch, place.by->warp * kWarpSize +
                                                           static_cast<std::uint32_t>(place.lane));
    if (place.by->block != warp.block->linear)
      text += " of block " + block_text(launch, place.by->block);
    text += std::string(" ") + verb;
    return place.instr ? text + " at " + where(*place.instr, *place.function) : text;
  }
  static std::string shared_text(const Warp& warp, const Block& of, std::uint64_t offset) {
    return "at offset " + std::to_string(offset) + " of " +
           (&of == warp.block
                ? "the block's shared memory"
                : "the shared memory of block " + block_text(warp.block->launch, of.linear));
  }
  template <class F>
  void add(Warp& warp, const Instr& instr, int lane, const Place& other, F words) {
    const Function& function = *warp.frame->function;
    const Instr& own = function.code[instr.pc];
    const std::string key =
        where(own, function) + (other.instr ? " " + where(*other.instr, *other.function) : "");
    findings_.add(key, [&] { return describe(warp, own, lane, "proxy: " + words()); });
  }

  // ---- the copy engine and shared memory -------------------------------------------------------

  void wrote(Warp& warp, const Instr& instr, int lane, Block& to, std::uint64_t offset,
             std::uint32_t bytes) {
    const Place place = place_of(warp, &instr, lane);
    for (Written& w : of(to).at(to, static_cast<std::uint32_t>(offset), bytes)) w.place = place;
  }
  bool fenced(const Place& write, const Block& in) {
    return write.by->fenced[write.lane] > write.moment || write.by->covered > write.moment ||
           of(in).covered > write.moment;
  }
  void check_written(Warp& warp, const Instr& instr, int lane, Block& in, std::uint32_t offset,
                     std::uint32_t bytes, const char* verb) {
    std::uint32_t at = offset;
    for (const Written& w : of(in).at(in, offset, bytes)) {
      if (w.place.by && !fenced(w.place, in)) {
        const Place& write = w.place;
        add(warp, instr, lane, write, [&] {
          return std::string(verb) + " the bytes " + shared_text(warp, in, at) + ", which " +
                 thread_at(warp, write, "wrote") + ", without a fence.proxy.async between,";
        });
        return;
      }
      at += kPiece;
    }
  }
  // A copy or reduction from shared to global memory is asked for.
  void read_by_engine(Warp& warp, const Instr& instr, int lane, std::uint32_t bytes) {
    Instr source = instr;
    source.address = instr.address2;
    source.address_bits = instr.address2_bits;
    source.imm = instr.imm2;
    source.space = Space::shared;
    source.frame_local = false;
    Addresses a;
    compute_addresses(warp, source, 1u << lane, a);
    check_written(warp, instr, lane, *warp.block, static_cast<std::uint32_t>(a.v[lane]), bytes,
                  "bulk copy reads");
  }

  // ---- mbarriers -------------------------------------------------------------------------------

  void use_object(Warp& warp, const Instr& instr, int lane, Block& home, std::uint64_t offset,
                  Access access) {
    auto& objects = of(home).objects;
    const auto at = static_cast<std::uint32_t>(offset);
    if (access == Access::store) {  // .init or .inval
      if (std::string_view(forms()[instr.form].pattern).starts_with(".init"))
        objects[at] = place_of(warp, &instr, lane);
      else
        objects.erase(at);
      return;
    }
    const auto it = objects.find(at);
    if (it == objects.end()) return;
    const Place& init = it->second;
    const Doings& doings = doings_of(warp);
    if (init.by == &doings) return;
    const bool same_block = &home == warp.block;
    const Moment met = same_block ? doings.met_block[lane] : doings.met_cluster[lane];
    const char* missing = nullptr;
    if (met < init.moment)
      missing = same_block ? "a barrier between" : "a barrier of the cluster between";
    else if (!same_block && init.by->released[init.lane] < init.moment)
      missing = "a fence.mbarrier_init behind that";
    if (!missing) return;
    add(warp, instr, lane, init, [&] {
      return "use of the mbarrier " + shared_text(warp, home, offset) + ", which " +
             thread_at(warp, init, "initialized") + ", without " + missing + ",";
    });
  }

  // ---- tensor maps in global memory ------------------------------------------------------------

  static constexpr std::uint64_t kMapPiece = 64;  // a map's alignment
  // The map that lies there, and when warps have last asked for a copy that uses it.
  struct MapUses {
    std::uint64_t map = 0;
    std::unordered_map<const Doings*, Moment> last;
  };
  void wrote_map(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                 std::uint32_t bytes) {
    const Place place = place_of(warp, &instr, lane);
    for (std::uint64_t at = address / kMapPiece; at <= (address + bytes - 1) / kMapPiece; ++at) {
      map_writes_[at] = place;
      if (const auto uses = map_uses_.find(at); uses != map_uses_.end())
        check_map_free(warp, instr, lane, uses->second);
    }
  }
  // Is no copy under way that uses the map? A copy has read it once somebody has waited for the copy, or
  // its thread for a group of bulk copies.
  void check_map_free(Warp& warp, const Instr& instr, int lane, const MapUses& uses) {
    const auto look = [&](const TensorBox* box, const Warp& by, int by_lane, const Function* in,
                          const Instr& copy) {
      if (!box || box->map_address() != uses.map) return;
      const Doings& doings = doings_of(by);
      const auto last = uses.last.find(&doings);
      if (last == uses.last.end() || doings.bulk_waited[by_lane] > last->second) return;
      const Place place{
          .by = &doings, .function = in, .instr = &in->code[copy.pc], .lane = by_lane};
      add(warp, instr, lane, place, [&] {
        return "write to the tensor map " + global_text(warp.block->launch, uses.map) +
               ", which the copy that " + thread_at(warp, place, "asked for") +
               " may still read: wait for the copy (at its mbarrier, or by "
               "cp.async.bulk.wait_group.read) before;";
      });
    };
    for (const auto& [block, state] : blocks_) {
      block->async_arrivals.each([&](const AsyncArrival& copy) {
        // A multicast has read the map for all once it has landed in one block.
        if (copy.instr->e.valid() && copy.warp->block != block) return;
        look(copy.box.get(), *copy.warp, copy.lane, copy.frame->function, *copy.instr);
      });
      for (const Warp& by : block->warps)
        for (int i = 0; by.copies && i < kWarpSize; ++i) {
          const LaneCopies& copies = (*by.copies)[static_cast<std::size_t>(i)];
          const auto each = [&](const std::vector<PendingBulk>& group) {
            for (const PendingBulk& copy : group)
              if (copy.source.empty())
                look(copy.box.get(), by, i, copy.frame->function, *copy.instr);
          };
          each(copies.bulk_open);
          for (const auto& group : copies.bulk_groups) each(group);
        }
    }
  }
  void fence_maps(Warp& warp, const Instr& instr, std::uint32_t mask, bool acquire) {
    Doings& doings = doings_of(warp);
    Addresses a;
    compute_addresses(warp, instr, mask, a);
    each_lane(mask, [&](int lane) {
      if (acquire) {
        map_acquires_[a.v[lane]][&doings].of[lane] = {
            ++now_,
            std::max({doings.met_warp[lane], doings.met_block[lane], doings.met_cluster[lane]})};
        return;
      }
      doings.map_released[lane] = ++now_;
      doings.map_covered = std::max(doings.map_covered, doings.met_warp[lane]);
      BlockState& state = of(*warp.block);
      state.map_covered = std::max(state.map_covered, doings.met_block[lane]);
      maps_covered_ = std::max(maps_covered_, doings.met_cluster[lane]);
    });
  }
  // A thread that has met the writer may release what that wrote, too.
  bool map_released(const Warp& warp, const Place& write) {
    if (write.by->map_released[write.lane] > write.moment || write.by->map_covered > write.moment ||
        maps_covered_ > write.moment)
      return true;
    return write.by->block == warp.block->linear && of(*warp.block).map_covered > write.moment;
  }
  // One lane's acquire counts for the lanes that it meets, too.
  bool map_acquired(const Warp& warp, int lane, std::uint64_t address, const Place& write) {
    const Doings& doings = doings_of(warp);
    const auto acquires = map_acquires_.find(address);
    if (acquires == map_acquires_.end()) return false;
    for (const auto& [by, acquired] : acquires->second) {
      const Moment met = by == &doings               ? doings.met_warp[lane]
                         : by->block == doings.block ? doings.met_block[lane]
                                                     : doings.met_cluster[lane];
      for (int i = 0; i < kWarpSize; ++i) {
        const auto& [at, met_others] = acquired.of[i];
        const bool of_write =
            by == write.by && i == write.lane ? at > write.moment : met_others > write.moment;
        if (of_write && ((by == &doings && i == lane) || at < met)) return true;
      }
    }
    return false;
  }
  void use_map(Warp& warp, const Instr& instr, int lane) {
    Instr map = instr;
    if (instr.space == Space::shared) {
      map.address = instr.address2;
      map.address_bits = instr.address2_bits;
      map.imm = instr.imm2;
    }
    Addresses a;
    compute_addresses(warp, map, 1u << lane, a);
    const std::uint64_t address = a.v[lane];
    for (std::uint64_t piece : {address / kMapPiece, address / kMapPiece + 1}) {
      map_uses_[piece].map = address;
      map_uses_[piece].last[&doings_of(warp)] = ++now_;
    }
    for (std::uint64_t piece : {address / kMapPiece, address / kMapPiece + 1}) {
      const auto it = map_writes_.find(piece);
      if (it == map_writes_.end()) continue;
      const Place& write = it->second;
      const char* missing = !map_released(warp, write) ? "fence.proxy.tensormap::generic.release "
                                                         "(or tensormap.cp_fenceproxy) behind that"
                            : !map_acquired(warp, lane, address, write)
                                ? "fence.proxy.tensormap::generic.acquire of it between"
                                : nullptr;
      if (!missing) continue;
      add(warp, instr, lane, write, [&] {
        return "tensor copy uses the map " + global_text(warp.block->launch, address) + ", which " +
               thread_at(warp, write, "wrote") + ", without a " + missing + ",";
      });
      return;
    }
  }

  // ---- ld.global.nc ----------------------------------------------------------------------------

  static constexpr std::uint64_t kPage = 4096;
  struct Page {
    std::uint16_t by[kPage] = {};  // 0: not in this launch, else a number in writers_
  };
  void mark(const Warp& warp, const Instr& instr, std::uint64_t address, std::uint64_t bytes) {
    const Function* const function = warp.frame->function;
    const Instr* const own = &function->code[instr.pc];
    auto [it, fresh] = numbers_.try_emplace(own, static_cast<std::uint16_t>(writers_.size() + 1));
    if (fresh && writers_.size() < 0xfffe) writers_.push_back({function, own});
    const std::uint16_t number =
        std::min<std::uint16_t>(it->second, static_cast<std::uint16_t>(writers_.size()));
    while (bytes) {
      const std::uint64_t at = address % kPage, n = std::min(bytes, kPage - at);
      auto& page = pages_[address / kPage];
      if (!page) page = std::make_unique<Page>();
      std::fill_n(page->by + at, n, number);
      address += n, bytes -= n;
    }
  }
  void global_access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                     std::uint32_t bytes, Access access) {
    if (access != Access::load) {
      if (a.strided && a.stride == static_cast<std::int64_t>(bytes))
        mark(warp, instr, a.v[0], std::uint64_t{bytes} * kWarpSize);
      else
        each_lane(mask, [&](int lane) { mark(warp, instr, a.v[lane], bytes); });
      return;
    }
    if (!instr.non_coherent || pages_.empty()) return;
    each_lane(mask, [&](int lane) {
      for (std::uint32_t i = 0; i < bytes; ++i) {
        const std::uint64_t address = a.v[lane] + i;
        const auto page = pages_.find(address / kPage);
        const std::uint16_t by = page == pages_.end() ? 0 : page->second->by[address % kPage];
        if (!by) continue;
        const auto [function, writer] = writers_[by - 1u];
        Place write;
        write.function = function;
        write.instr = writer;
        add(warp, instr, lane, write, [&] {
          return "ld.global.nc (or __ldg) of " + bytes_text(bytes) + " " +
                 global_text(warp.block->launch, address) + ", which this launch wrote at " +
                 where(*writer, *function) + ": it is for memory that stays as it is,";
        });
        return;
      }
    });
  }

  // Does the kernel have such instructions?
  bool engine_ = false, non_coherent_ = false, maps_ = false;
  Moment now_ = 0;
  std::unordered_map<const Block*, BlockState> blocks_;
  std::unordered_map<const Warp*, std::unique_ptr<Doings>> doings_;
  std::vector<std::unique_ptr<Doings>> ended_;
  // When each lane of a warp acquired a tensor map, and when the lane had last met others.
  struct Acquires {
    std::pair<Moment, Moment> of[kWarpSize] = {};
  };
  std::unordered_map<std::uint64_t, Place>
      map_writes_;  // the last one, by 64 bytes of global memory
  std::unordered_map<std::uint64_t, MapUses> map_uses_;  // by 64 bytes of global memory
  std::unordered_map<std::uint64_t, std::unordered_map<const Doings*, Acquires>> map_acquires_;
  Moment maps_covered_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::unordered_map<const Instr*, std::uint16_t> numbers_;
  std::vector<std::pair<const Function*, const Instr*>> writers_;
  Findings findings_;
};

}  // namespace

bool uses_bulk_copies(const Function& kernel) {
  bool uses = false;
  each_function(kernel, [&](const Function& function) {
    for (const Instr& instr : function.code) uses |= instr.run && way_of(instr) == Way::bulk;
  });
  return uses;
}

std::unique_ptr<Observer> make_proxy_check() { return std::make_unique<ProxyCheck>(); }

}  // namespace vgpu
