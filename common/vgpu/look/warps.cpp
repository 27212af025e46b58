#include "warps.h"

#include <algorithm>
#include <array>
#include <utility>

namespace vgpu::look {
namespace {

std::string_view phase_of(const time::Activity& activity) {
  using time::Kind;
  if (activity.state == time::Stall::barrier) return "barrier";
  if (activity.state != time::Stall::selected) return "wait";
  switch (activity.kind) {
    case Kind::shared_load:
    case Kind::matrix_load:
    case Kind::global_load:
    case Kind::local_load:
    case Kind::async_copy:
    case Kind::bulk_copy:
      return "load";
    case Kind::shared_store:
    case Kind::shared_atomic:
    case Kind::matrix_store:
    case Kind::global_store:
    case Kind::global_atomic:
    case Kind::local_store:
      return "store";
    case Kind::tensor:
      return "tensor";
    case Kind::barrier:
    case Kind::cluster_barrier:
    case Kind::mbarrier:
      return "barrier";
    default:
      return "compute";
  }
}

constexpr std::array<std::string_view, 6> kPhases = {"wait",  "compute", "barrier",
                                                     "store", "load",    "tensor"};
std::size_t index_of(std::string_view phase) {
  return static_cast<std::size_t>(std::find(kPhases.begin(), kPhases.end(), phase) -
                                  kPhases.begin());
}

}  // namespace

int Warps::rank(const Piece& piece) {
  const bool issued = piece.reason == time::stall_name(time::Stall::selected);
  return issued ? 1 + static_cast<int>(index_of(piece.phase)) : 0;
}

Warps::Warps(const time::SimulatedBlocks& blocks, const time::MachineCode& code,
             const PtxListing& ptx, std::uint64_t block, double clock_mhz)
    : block_(block), clock_mhz_(clock_mhz) {
  for (const time::Activity& a : blocks.activities) {
    if (a.block != 0 || a.end <= a.begin) continue;
    if (lanes_.size() <= a.warp) lanes_.resize(a.warp + 1);
    Lane& lane = lanes_[a.warp];
    const int line = a.instr < code.code.size() ? ptx.at(code.code[a.instr].ptx_line) : -1;
    const Piece piece = {a.begin, a.end, phase_of(a), time::stall_name(a.state), line};
    clocks_ = std::max(clocks_, a.end);
    if (!lane.empty() && lane.back().end == a.begin && lane.back().same(piece))
      lane.back().end = a.end;
    else
      lane.push_back(piece);
  }
}

Warps::Lane Warps::coarser(const Lane& lane, std::uint64_t resolution) {
  Lane out;
  std::vector<Piece> window;  // what there is in it, with the clocks of each in `end`
  std::uint64_t at = 0;
  const auto close = [&] {
    if (window.empty()) return;
    const auto shown =
        std::max_element(window.begin(), window.end(), [](const Piece& a, const Piece& b) {
          return std::pair(rank(a), a.end) < std::pair(rank(b), b.end);
        });
    Piece piece = *shown;
    piece.begin = at;
    piece.end = at + resolution;
    if (!out.empty() && out.back().end == at && out.back().same(piece))
      out.back().end = piece.end;
    else
      out.push_back(piece);
    window.clear();
  };
  for (const Piece& p : lane) {
    for (std::uint64_t begin = p.begin; begin < p.end;) {
      if (begin / resolution * resolution != at) {
        close();
        at = begin / resolution * resolution;
      }
      const std::uint64_t end = std::min(p.end, at + resolution);
      const auto there = std::find_if(window.begin(), window.end(),
                                      [&](const Piece& other) { return other.same(p); });
      if (there != window.end()) {
        there->end += end - begin;
      } else {
        window.push_back(p);
        window.back().end = end - begin;
      }
      begin = end;
    }
  }
  close();
  if (!out.empty()) out.back().end = std::min(out.back().end, lane.back().end);
  return out;
}

std::string Warps::json(std::size_t most) const {
  if (lanes_.empty()) return "null";
  std::vector<Lane> shown = lanes_;
  std::uint64_t resolution = 1;
  const auto pieces = [&] {
    std::size_t sum = 0;
    for (const Lane& lane : shown) sum += lane.size();
    return sum;
  };
  while (pieces() > std::max(most, lanes_.size()) && resolution < clocks_) {
    resolution *= 2;
    for (std::size_t i = 0; i < shown.size(); ++i) shown[i] = coarser(lanes_[i], resolution);
  }
  std::vector<std::string_view> reasons;
  const auto reason_of = [&](std::string_view reason) {
    const auto found = std::find(reasons.begin(), reasons.end(), reason);
    const auto index = static_cast<std::size_t>(found - reasons.begin());
    if (index == reasons.size()) reasons.push_back(reason);
    return index;
  };
  std::string packed, begins;
  for (const Lane& lane : shown) {
    packed += packed.empty() ? "\n[" : ",\n[";
    std::uint64_t at = lane.empty() ? 0 : lane.front().begin;
    begins += (begins.empty() ? "" : ",") + std::to_string(at);
    const auto add = [&](std::uint64_t end, const std::string& what) {
      packed += (packed.back() == '[' ? "" : ",") + std::to_string(end - at) + "," + what;
      at = end;
    };
    for (const Piece& p : lane) {
      if (p.begin > at) add(p.begin, "-1,-1,-1");
      add(p.end, std::to_string(index_of(p.phase)) + "," + std::to_string(p.ptx) + "," +
                     std::to_string(reason_of(p.reason)));
    }
    packed += "]";
  }
  const auto names = [](const auto& list) {
    std::string text;
    for (const std::string_view name : list)
      text += (text.empty() ? "\"" : ",\"") + std::string(name) + "\"";
    return "[" + text + "]";
  };
  return "{\"block\":" + std::to_string(block_) + ",\"clocks\":" + std::to_string(clocks_) +
         ",\"clock_mhz\":" + json::number_text(clock_mhz_) +
         ",\"resolution\":" + std::to_string(resolution) + ",\"kinds\":" + names(kPhases) +
         ",\"reasons\":" + names(reasons) + ",\"begin\":[" + begins + "],\"packed\":[" + packed +
         "]}";
}

}  // namespace vgpu::look
