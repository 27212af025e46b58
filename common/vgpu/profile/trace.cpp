#include "trace.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <sstream>

#include "../../json/json.h"
#include "../core/access.h"
#include "../core/block.h"
#include "../core/names.h"
#include "output_file.h"

namespace vgpu {
namespace {

using Json = json::Value;

// A number at the beginning of `text`, which it loses.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

// BLOCK[@LAUNCH][:FILE]
bool parse_place(std::string_view text, TraceSpec& spec) {
  const auto x = take_number(text);
  if (!x) return false;
  spec.block = {*x, 0, 0};
  spec.linear = !take(text, ',');
  if (!spec.linear) {
    const auto y = take_number(text);
    if (!y || !take(text, ',')) return false;
    const auto z = take_number(text);
    if (!z) return false;
    spec.block = {*x, *y, *z};
  }
  if (take(text, '@')) {
    const auto launch = take_number(text);
    if (!launch || *launch == 0) return false;
    spec.launch = *launch;
  }
  if (text.empty()) return true;
  if (!take(text, ':') || text.empty()) return false;
  spec.file = text;
  return true;
}

std::string name_of(Access access) {
  return access == Access::load ? "load" : access == Access::store ? "store" : "atomic";
}

}  // namespace

std::optional<TraceSpec> parse_trace(std::string_view text, std::string& error) {
  // The kernel's name may hold "::", and what follows the block may hold anything: the first colon
  // with a block behind it counts.
  for (std::size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    TraceSpec spec;
    if (colon == 0 || !parse_place(text.substr(colon + 1), spec)) continue;
    spec.kernel = text.substr(0, colon);
    return spec;
  }
  error =
      "say KERNEL:BLOCK, a part of the kernel's name and the block's number or x,y,z; @N behind it "
      "means its launch number N (1: the first), :FILE where to write (trace.json)";
  return std::nullopt;
}

// The observer of the one launch.
class BlockTrace : public Observer {
 public:
  BlockTrace(Tracer& tracer, std::uint64_t block) : tracer_(tracer), block_(block) {}

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& addresses,
              std::uint32_t bytes, Access access, Space space, const Places& places) override {
    if (warp.block->linear != block_) return;
    const Function& function = *warp.frame->function;
    const Instr* key = &function.code[instr.pc];  // an instruction may be passed as a copy
    const auto [at, is_new] = index_.try_emplace(key, instructions_.size());
    if (is_new) instructions_.push_back({&function, key, 0, {}});
    Row row;
    row.number = total_++;
    row.instruction = at->second;
    row.warp = warp.index;
    row.mask = mask;
    row.bytes = bytes;
    row.access = access;
    row.space = space;
    row.of_block = places.owner ? places.owner->linear : block_;
    std::copy_n(addresses.v, kWarpSize, row.addresses.begin());
    Instruction& instruction = instructions_[at->second];
    if (instruction.executed++ == 0) instruction.first = row;
    last_kept_ = rows_.size() < kTracedAccesses;
    if (last_kept_) rows_.push_back(row);
    last_ = {row.warp, at->second};
  }

  // 32 pieces of 16 bytes in a row.
  void bulk_access(Warp& warp, const Instr& instr, int, std::uint64_t address, std::uint32_t bytes,
                   Access access_, std::byte* host) override {
    constexpr std::uint32_t kPiece = 16;
    Places places;
    places.bias = reinterpret_cast<std::intptr_t>(host) - static_cast<std::intptr_t>(address);
    bytes +=
        static_cast<std::uint32_t>(address % kPiece);  // a row may begin and end between pieces
    address -= address % kPiece;
    bytes = (bytes + kPiece - 1) / kPiece * kPiece;
    for (std::uint32_t done = 0; done < bytes; done += kPiece * kWarpSize) {
      const std::uint32_t pieces = std::min(bytes - done, kPiece * kWarpSize) / kPiece;
      Addresses a;
      for (std::uint32_t k = 0; k < kWarpSize; ++k)
        a.v[k] = address + done + kPiece * std::min(k, pieces - 1);
      access(warp, instr, pieces == kWarpSize ? kFullMask : (1u << pieces) - 1, a, kPiece, access_,
             Space::global, places);
    }
  }

  void copy_issue(Warp& warp, const Instr& instr, int lane, Block& to, std::uint32_t shared_offset,
                  std::uint32_t) override {
    if (warp.block->linear != block_ || &to != warp.block) return;
    const auto at = index_.find(&warp.frame->function->code[instr.pc]);
    // What a copy reads was the access before; a lane that reads nothing has none.
    if (at == index_.end() || last_ != std::pair{warp.index, at->second}) return;
    Instruction& instruction = instructions_[at->second];
    const auto i = static_cast<std::size_t>(lane);
    if (instruction.executed == 1) {
      instruction.first.copies = true;
      instruction.first.to_shared[i] = shared_offset;
    }
    if (!last_kept_) return;
    rows_.back().copies = true;
    rows_.back().to_shared[i] = shared_offset;
  }

  void launch_end(Launch& launch, std::vector<std::string>&) override {
    const std::string kernel = launch.request.function->display;
    const std::string& file = tracer_.spec_->file;
    std::ostringstream out;
    write(out, launch);
    if (const std::string why = write_output_file(file, out.str()); !why.empty()) {
      tracer_.failed_ = true;
      tracer_.notes_.push_back("trace: cannot write " + file + ": " + why);
      return;
    }
    std::string note = "trace: " + std::to_string(rows_.size());
    if (rows_.size() < total_) note += " of " + std::to_string(total_);
    note += " accesses of block " + std::to_string(block_) + " of " + kernel + " in " + file;
    if (launch.fault.kind != FaultKind::none) note += ", until the launch failed";
    tracer_.notes_.push_back(note);
  }

 private:
  struct Row {
    std::uint64_t number = 0;  // counts the accesses of the block
    std::size_t instruction = 0;
    std::uint32_t warp = 0, mask = 0, bytes = 0;
    Access access = Access::load;
    Space space = Space::global;
    std::uint64_t of_block = 0;  // whose shared memory it is
    bool copies = false;         // to_shared counts
    std::array<std::uint64_t, kWarpSize> addresses{};
    std::array<std::uint32_t, kWarpSize> to_shared{};
  };
  struct Instruction {
    const Function* function = nullptr;
    const Instr* instr = nullptr;
    std::uint64_t executed = 0;
    Row first;
  };

  // One value for each lane: null where it is not active.
  template <class F>
  static Json by_lane(std::uint32_t mask, F value) {
    Json list = Json::array();
    for (int lane = 0; lane < kWarpSize; ++lane)
      list.push_back(mask >> lane & 1 ? Json(value(lane)) : Json(nullptr));
    return list;
  }

  static Json banks(const Row& row, std::uint32_t mask, const std::uint32_t* offsets, Json& to) {
    const SharedShape shape = shared_request(offsets, mask, row.bytes);
    to["wavefronts"] = shape.wavefronts;
    to["ideal_wavefronts"] = shape.ideal;
    return by_lane(mask, [&](int lane) { return offsets[lane] / 4 % kSharedBanks; });
  }

  Json row_json(const Row& row, Launch& launch) {
    Json json = {
        {"n", row.number},   {"instruction", row.instruction}, {"warp", row.warp},
        {"mask", row.mask},  {"space", space_name(row.space)}, {"access", name_of(row.access)},
        {"bytes", row.bytes}};
    if (row.space == Space::shared) {
      std::array<std::uint32_t, kWarpSize> offsets;
      for (std::size_t i = 0; i < kWarpSize; ++i)
        offsets[i] = static_cast<std::uint32_t>(row.addresses[i]);
      if (row.of_block != block_) json["of_block"] = row.of_block;
      json["offsets"] = by_lane(row.mask, [&](int lane) { return row.addresses[lane]; });
      json["banks"] = banks(row, row.mask, offsets.data(), json);
      return json;
    }
    // Global: each lane's allocation, by its place in the list.
    std::array<std::shared_ptr<Allocation>, kWarpSize> of;
    std::array<std::size_t, kWarpSize> index{};
    bool one = true;
    const auto lead = static_cast<std::size_t>(std::countr_zero(row.mask));
    std::vector<std::pair<std::size_t, std::uint64_t>> sectors;
    for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
      if (!(row.mask >> lane & 1)) continue;
      of[lane] = of[lead] && inside(*of[lead], row.addresses[lane])
                     ? of[lead]
                     : launch.memory.find(row.addresses[lane]);
      index[lane] = of[lane] ? allocation_index(launch, *of[lane]) : 0;
      one &= of[lane] == of[lead];
      const std::uint64_t base = of[lane] ? of[lane]->base : 0;
      sectors.emplace_back(index[lane], row.addresses[lane] / kSectorBytes - base / kSectorBytes);
    }
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    const auto name = [&](std::size_t i) { return allocations_[i]["name"]; };
    json["allocation"] =
        one ? name(index[lead]) : by_lane(row.mask, [&](int lane) { return name(index[lane]); });
    json["offsets"] = by_lane(
        row.mask, [&](int lane) { return row.addresses[lane] - (of[lane] ? of[lane]->base : 0); });
    json["sector_count"] = sectors.size();
    json["sectors"] = Json::array();
    for (const auto& [i, sector] : sectors)
      json["sectors"].push_back(one ? Json(sector) : Json::array({name(i), sector}));
    if (row.copies) {
      json["to_shared"] = by_lane(row.mask, [&](int lane) { return row.to_shared[lane]; });
      json["banks"] = banks(row, row.mask, row.to_shared.data(), json);
    }
    return json;
  }

  static bool inside(const Allocation& a, std::uint64_t address) {
    return address >= a.base && address - a.base < a.size;
  }

  std::size_t allocation_index(const Launch& launch, const Allocation& allocation) {
    const auto [at, is_new] = allocation_at_.try_emplace(allocation.id, allocations_.size());
    if (is_new) {
      std::string name = allocation_name(launch, allocation);
      for (const Json& other : allocations_)  // names tell allocations apart, as in reports
        if (other["name"].get<std::string>() == name)
          name += " (" + std::to_string(allocation.id) + ")";
      allocations_.push_back({{"name", name}, {"bytes", allocation.size}});
    }
    return at->second;
  }

  Json instruction_json(const Instruction& i, Launch& launch) {
    const Function& function = *i.function;
    const Location& location = function.module->locations[i.instr->location];
    std::string ptx;
    if (i.instr->ptx_line && i.instr->ptx_line <= function.module->lines.size()) {
      const std::string_view text = function.module->lines[i.instr->ptx_line - 1];
      const std::size_t start = text.find_first_not_of(" \t{");
      ptx = std::string(start == text.npos ? text : text.substr(start));
      std::replace(ptx.begin(), ptx.end(), '\t', ' ');
    }
    return {{"file", location.file.empty() ? "" : display_path(location.file)},
            {"line", location.line},
            {"function", full_name(function.name)},
            {"ptx", ptx},
            {"ptx_line", i.instr->ptx_line},
            {"executed", i.executed},
            {"first", row_json(i.first, launch)}};
  }

  void write(std::ostream& out, Launch& launch) {
    const LaunchRequest& request = launch.request;
    const auto text = [](const Json& json) {  // names need not be UTF-8
      return json.dump();
    };
    std::string instructions, rows;
    for (const Instruction& i : instructions_)
      instructions += (instructions.empty() ? "\n" : ",\n") + text(instruction_json(i, launch));
    for (const Row& row : rows_)
      rows += (rows.empty() ? "\n" : ",\n") + text(row_json(row, launch));
    const Dim3 g = request.grid, b = request.block;
    Json head = {
        {"version", 1},
        {"kernel", full_name(request.function->name)},
        {"device", launch.machine.spec().key},
        {"launch", tracer_.spec_->launch},
        {"grid", {g.x, g.y, g.z}},
        {"block", {b.x, b.y, b.z}},
        {"traced_block", {block_ % g.x, block_ / g.x % g.y, block_ / g.x / g.y}},
        {"traced_block_linear", block_},
        {"accesses_executed", total_},
        {"accesses_written", rows_.size()},
        {"note", rows_.size() < total_ ? "only the first " + std::to_string(rows_.size()) +
                                             " accesses are written; executed and first are of all"
                                       : ""},
        {"allocations", allocations_}};
    std::string begin = text(head);
    begin.pop_back();
    out << begin << ",\n\"instructions\": [" << instructions << "\n],\n\"accesses\": [" << rows
        << "\n]}\n";
  }

  Tracer& tracer_;
  std::uint64_t block_;
  std::uint64_t total_ = 0;
  std::vector<Row> rows_;
  std::vector<Instruction> instructions_;  // in the order of their first execution
  std::map<const Instr*, std::size_t> index_;
  std::pair<std::uint32_t, std::size_t> last_{~0u, 0};  // warp and instruction of the last access
  bool last_kept_ = false;
  std::vector<Json> allocations_;                       // name, bytes
  std::map<std::uint32_t, std::size_t> allocation_at_;  // by id
};

void Tracer::set(std::optional<TraceSpec> spec) {
  spec_ = std::move(spec);
  seen_ = 0;
  done_ = false;
  kernels_.clear();
}

std::unique_ptr<Observer> Tracer::watch(const Launch& launch) {
  if (!spec_ || done_) return nullptr;
  const LaunchRequest& request = launch.request;
  const std::string& kernel = request.function->display;
  if (full_name(request.function->name).find(spec_->kernel) == kernel.npos) {
    if (kernels_.size() < 8 &&
        std::find(kernels_.begin(), kernels_.end(), kernel) == kernels_.end())
      kernels_.push_back(kernel);
    return nullptr;
  }
  if (++seen_ < spec_->launch) return nullptr;
  done_ = true;
  const Dim3 g = request.grid;
  const auto& b = spec_->block;
  const bool inside = spec_->linear ? b[0] < g.count() : b[0] < g.x && b[1] < g.y && b[2] < g.z;
  if (!inside) {
    failed_ = true;
    const std::string named = spec_->linear
                                  ? std::to_string(b[0])
                                  : "(" + std::to_string(b[0]) + ", " + std::to_string(b[1]) +
                                        ", " + std::to_string(b[2]) + ")";
    notes_.push_back("trace: block " + named + " is outside the grid (" + std::to_string(g.x) +
                     ", " + std::to_string(g.y) + ", " + std::to_string(g.z) + ") of " + kernel +
                     ": nothing is written");
    return nullptr;
  }
  return std::make_unique<BlockTrace>(*this,
                                      spec_->linear ? b[0] : (b[2] * g.y + b[1]) * g.x + b[0]);
}

std::vector<std::string> Tracer::take_notes() { return std::exchange(notes_, {}); }

std::string Tracer::missing() const {
  if (!spec_ || done_) return "";
  std::string text = "trace: nothing is written, ";
  if (seen_)
    return text + "'" + spec_->kernel + "' was launched " + std::to_string(seen_) + " times, not " +
           std::to_string(spec_->launch);
  text += "no kernel with '" + spec_->kernel + "' in its name was launched";
  for (std::size_t i = 0; i < kernels_.size(); ++i)
    text += (i ? ", " : "; there were ") + kernels_[i];
  return text;
}

}  // namespace vgpu
