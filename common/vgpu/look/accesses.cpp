#include "accesses.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "../../json/json.h"
#include "../core/access.h"
#include "../core/block.h"

namespace vgpu::look {
namespace {

using Json = json::Value;

constexpr std::size_t kShownRows = 8;  // rows of a tensor copy

// One execution by a warp.
struct Execution {
  std::uint32_t warp = 0, mask = 0;
  std::uint64_t number = 0;    // how manieth of this warp, from 0
  std::uint64_t of_block = 0;  // whose shared memory it is
  bool copies = false;         // to_shared counts
  std::array<std::uint64_t, kWarpSize> addresses{};
  std::array<std::uint32_t, kWarpSize> to_shared{};
  // The first few pieces of global memory that a bulk copy takes, address and bytes; and how many.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> pieces;
  std::uint64_t piece_count = 0, bulk_bytes = 0, bulk_sectors = 0;
};

struct Watched {
  AccessInstruction about;
  std::map<std::uint32_t, std::uint64_t> times;  // executed, by warp
  std::vector<Execution> kept;
  std::size_t warps = 0;  // warps with executions in `kept`
};

std::string_view kind_of(const Instr& instr, Access access) {
  if (instr.space == Space::shared && instr.address2.valid() && !instr.from_shared) return "async";
  return access == Access::load ? "load" : access == Access::store ? "store" : "atomic";
}

class BlockWatch : public Observer {
 public:
  explicit BlockWatch(std::shared_ptr<BlockAccesses> into) : into_(std::move(into)) {}

  bool samples() const override { return true; }
  bool watches(std::uint64_t cluster) const override { return cluster == cluster_; }
  void launch_begin(Launch& launch) override {
    const Dim3 grid = launch.request.grid, size = launch.request.cluster;
    const std::uint64_t b = into_->block, x = b % grid.x / size.x, y = b / grid.x % grid.y / size.y,
                        z = b / grid.x / grid.y / size.z;
    cluster_ = (z * (grid.y / size.y) + y) * (grid.x / size.x) + x;
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& addresses,
              std::uint32_t bytes, Access access, Space space, const Places& places) override {
    if (warp.block->linear != into_->block) return;
    // What the copy engine reads of shared memory, piece by piece: bulk_access() has the copy.
    if (instr.address2.valid() && space == Space::shared && access == Access::load) return;
    Execution* const kept = execute(warp, instr, space, kind_of(instr, access), bytes, mask);
    if (!kept) return;
    std::copy_n(addresses.v, kWarpSize, kept->addresses.begin());
    kept->of_block = places.owner ? places.owner->linear : into_->block;
  }

  void bulk_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                   std::uint32_t bytes, Access, std::byte*) override {
    if (warp.block->linear != into_->block) return;
    if (!box_ || instr.rank == 0) begin_bulk(warp, instr, lane);
    if (!last_) return;
    last_->bulk_bytes += bytes;
    ++last_->piece_count;
    last_->bulk_sectors += (address + bytes - 1) / kSectorBytes - address / kSectorBytes + 1;
    if (last_->pieces.size() < kShownRows) last_->pieces.emplace_back(address, bytes);
  }
  void tensor_copy(Warp& warp, const Instr& instr, int lane, std::uint32_t, std::uint32_t,
                   std::uint32_t, std::uint32_t) override {
    if (warp.block->linear != into_->block) return;
    if (!box_) begin_bulk(warp, instr, lane);  // all of its box is outside the tensor
    box_ = false;
  }

  void operand_read(Warp& warp, const Instr& instr, std::span<const std::uint32_t> pieces,
                    Reading reading, std::uint64_t) override {
    if (warp.block->linear != into_->block || reading != Reading::begins) return;
    for (std::size_t i = 0; i < pieces.size(); i += kWarpSize) {
      const auto here = std::min<std::size_t>(pieces.size() - i, kWarpSize);
      Execution* const kept =
          execute(warp, instr, Space::shared, "operand", 16, kFullMask >> (kWarpSize - here));
      if (!kept) continue;
      std::copy_n(&pieces[i], here, kept->addresses.begin());
      kept->of_block = into_->block;
    }
  }

  void copy_issue(Warp& warp, const Instr& instr, int lane, Block& to, std::uint32_t shared_offset,
                  std::uint32_t) override {
    // What a copy reads was the access before; a lane that reads nothing has none.
    if (warp.block->linear != into_->block || &to != warp.block || !last_) return;
    if (last_->warp != warp.index || last_instr_ != &warp.frame->function->code[instr.pc]) return;
    last_->copies = true;
    last_->to_shared[static_cast<std::size_t>(lane)] = shared_offset;
  }

  void launch_end(Launch& launch, std::vector<std::string>&) override {
    for (std::size_t i = 0; i < watched_.size(); ++i) {
      Watched& w = watched_[i];
      std::stable_sort(w.kept.begin(), w.kept.end(), [](const Execution& a, const Execution& b) {
        return std::pair(a.number, a.warp) < std::pair(b.number, b.warp);
      });
      for (const Execution& e : w.kept) w.about.rows.push_back(row(i, w.about, e, launch).dump());
      into_->executed += w.about.executed;
      into_->instructions.push_back(std::move(w.about));
    }
  }

 private:
  // Counts an execution; where it is one of those to keep, its place.
  Execution* execute(const Warp& warp, const Instr& instr, Space space, std::string_view kind,
                     std::uint32_t bytes, std::uint32_t mask) {
    // An instruction may be passed as a copy. A generic one may reach several spaces.
    const Instr* const key = &warp.frame->function->code[instr.pc];
    const auto [at, is_new] = index_.try_emplace({key, space}, watched_.size());
    if (is_new) watched_.push_back({{instr.ptx_line, space, kind, bytes, 0, {}}, {}, {}, 0});
    Watched& w = watched_[at->second];
    ++w.about.executed;
    const auto [times, first] = w.times.try_emplace(warp.index, 0);
    const std::uint64_t number = times->second++;
    last_instr_ = key;
    last_ = nullptr;
    if (number >= kKeptExecutions) return nullptr;
    if (first && w.warps < kKeptWarps) kept_.insert({at->second, warp.index}), ++w.warps;
    if (!kept_.count({at->second, warp.index})) return nullptr;
    Execution& e = w.kept.emplace_back();
    e.warp = warp.index;
    e.mask = mask;
    e.number = number;
    last_ = &e;
    return last_;
  }
  void begin_bulk(const Warp& warp, const Instr& instr, int lane) {
    execute(warp, instr, Space::global, "bulk", 0, 1u << lane);
    box_ = instr.rank > 0;
  }

  // One value for each lane, null where it is not active. Where all active lanes have first + step * lane,
  // these two.
  template <class F>
  static Json by_lane(std::uint32_t mask, F value) {
    if (mask == 0) return std::vector<Json>(kWarpSize);
    const int lead = std::countr_zero(mask);
    const std::uint32_t others = mask & (mask - 1);
    const int second = others ? std::countr_zero(others) : lead;
    const auto at = [&](int lane) { return static_cast<std::int64_t>(value(lane)); };
    const std::int64_t rise = at(second) - at(lead), lanes = std::max(1, second - lead);
    const std::int64_t step = rise / lanes, first = at(lead) - step * lead;
    bool even = rise % lanes == 0;
    for (int lane = second; lane < kWarpSize; ++lane)
      even = even && (!(mask >> lane & 1) || at(lane) == first + step * lane);
    if (even) return {{"first", first}, {"step", step}};
    Json list = Json::array();
    for (int lane = 0; lane < kWarpSize; ++lane)
      list.push_back(mask >> lane & 1 ? Json(value(lane)) : Json(nullptr));
    return list;
  }
  static void add_wavefronts(const std::uint32_t* offsets, std::uint32_t mask, std::uint32_t bytes,
                             Json& to) {
    const SharedShape shape = shared_request(offsets, mask, bytes);
    to["v"] = shape.wavefronts;
    to["d"] = shape.ideal;
  }

  static bool inside(const Allocation& a, std::uint64_t address) {
    return address >= a.base && address - a.base < a.size;
  }
  const Allocation* find(Launch& launch, std::uint64_t address) {
    if (!found_ || !inside(*found_, address)) found_ = launch.memory.find(address);
    return found_.get();
  }
  const std::string& name_of(const Launch& launch, const Allocation* allocation) {
    static const std::string kNone = "?";
    if (!allocation) return kNone;
    std::string& name = names_[allocation->id];
    if (name.empty()) {
      name = allocation_name(launch, *allocation);
      for (const auto& [id, other] : names_)  // names tell allocations apart, as in reports
        if (id != allocation->id && other == name) {
          name += " (" + std::to_string(allocation->id) + ")";
          break;
        }
    }
    return name;
  }

  Json row(std::size_t index, const AccessInstruction& about, const Execution& e, Launch& launch) {
    Json json = {{"i", index}, {"w", e.warp}, {"k", e.number}, {"m", e.mask}};
    if (about.kind == "bulk") return bulk_row(e, launch, std::move(json));
    if (about.space == Space::shared && about.kind != "async") {
      std::array<std::uint32_t, kWarpSize> offsets;
      for (std::size_t i = 0; i < kWarpSize; ++i)
        offsets[i] = static_cast<std::uint32_t>(e.addresses[i]);
      if (e.of_block != into_->block) json["of"] = e.of_block;
      json["o"] = by_lane(e.mask, [&](int lane) { return e.addresses[std::size_t(lane)]; });
      add_wavefronts(offsets.data(), e.mask, about.bytes, json);
      return json;
    }
    return global_row(about, e, launch, std::move(json));
  }

  Json global_row(const AccessInstruction& about, const Execution& e, Launch& launch, Json json) {
    std::array<const Allocation*, kWarpSize> of{};
    std::array<std::uint64_t, kWarpSize> offsets{};
    std::vector<std::uint64_t> sectors;
    bool one = true;
    const auto lead = static_cast<std::size_t>(std::countr_zero(e.mask));
    for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
      if (!(e.mask >> lane & 1)) continue;
      of[lane] = find(launch, e.addresses[lane]);
      one &= of[lane] == of[lead];
      offsets[lane] = e.addresses[lane] - (of[lane] ? of[lane]->base : 0);
      sectors.push_back(e.addresses[lane] / kSectorBytes);
    }
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    const auto name = [&](int lane) -> const std::string& {
      return name_of(launch, of[static_cast<std::size_t>(lane)]);
    };
    if (one) {
      json["a"] = name(static_cast<int>(lead));
    } else {
      json["a"] = Json::array();
      for (int lane = 0; lane < kWarpSize; ++lane)
        json["a"].push_back(e.mask >> lane & 1 ? Json(name(lane)) : Json(nullptr));
    }
    json["o"] = by_lane(e.mask, [&](int lane) { return offsets[static_cast<std::size_t>(lane)]; });
    json["s"] = sectors.size();
    if (e.copies) {
      json["to"] = by_lane(e.mask, [&](int lane) { return e.to_shared[std::size_t(lane)]; });
      add_wavefronts(e.to_shared.data(), e.mask, about.bytes, json);
    }
    return json;
  }

  Json bulk_row(const Execution& e, Launch& launch, Json json) {
    const Allocation* const of = e.pieces.empty() ? nullptr : find(launch, e.pieces[0].first);
    json["a"] = e.pieces.empty() ? Json(nullptr) : Json(name_of(launch, of));
    json["rows"] = Json::array();
    for (const auto& [address, bytes] : e.pieces)
      json["rows"].push_back(Json::array({address - (of ? of->base : 0), bytes}));
    json["row_count"] = e.piece_count;
    json["bytes"] = e.bulk_bytes;
    json["s"] = e.bulk_sectors;
    return json;
  }

  std::shared_ptr<BlockAccesses> into_;
  std::uint64_t cluster_ = 0;
  std::vector<Watched> watched_;
  std::map<std::pair<const Instr*, Space>, std::size_t> index_;
  std::set<std::pair<std::size_t, std::uint32_t>> kept_;  // instruction, warp
  Execution* last_ = nullptr;  // the last access's, where it is kept; valid until the next one
  const Instr* last_instr_ = nullptr;
  bool box_ = false;  // the rows of a tensor copy are coming
  std::shared_ptr<Allocation> found_;
  std::map<std::uint32_t, std::string> names_;  // by id
};

}  // namespace

std::unique_ptr<Observer> watch_block(std::shared_ptr<BlockAccesses> into) {
  return std::make_unique<BlockWatch>(std::move(into));
}

std::vector<std::size_t> fair_shares(const std::vector<AccessInstruction>& of, std::size_t most) {
  std::vector<std::size_t> shares(of.size()), order(of.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return of[a].rows.size() < of[b].rows.size();
  });
  for (std::size_t n = 0; n < order.size(); ++n) {  // who needs little leaves more to the others
    const std::size_t share = std::min(of[order[n]].rows.size(), most / (order.size() - n));
    shares[order[n]] = share;
    most -= share;
  }
  return shares;
}

}  // namespace vgpu::look
