// Words for launches that never end: who waits where for what, and where the other threads stand.
#include <algorithm>
#include <bit>

#include "access.h"
#include "block.h"
#include "instruction_set.h"

namespace vgpu {
namespace {

constexpr std::size_t kMostPlaces = 4;  // places of other threads that a message names

// Makes `fragment` the one that runs, so that its registers can be read.
void take_up(Warp& warp, const Fragment& fragment) {
  warp.frame = fragment.frame.get();
  warp.base[0] = warp.frame->registers;
  warp.base[1] = const_cast<std::byte*>(warp.frame->function->constants.data());
}

// What the loop at which the fragment stands waits for at an mbarrier; "" when it looks at none.
std::string waits_at_mbarrier(Warp& warp, const Fragment& fragment) {
  take_up(warp, fragment);
  const std::vector<Instr>& code = fragment.frame->function->code;
  const auto first = [&](std::uint32_t pc, std::uint32_t end) {
    std::string words;
    for (; words.empty() && pc < end; ++pc)
      words = mbarrier_wait_words(warp, code[pc], std::countr_zero(fragment.mask));
    return words;
  };
  // On to the jump back, then from where that leads to.
  std::uint32_t back = fragment.pc;
  while (back < code.size() &&
         !(code[back].flow == Flow::branch && code[back].target <= fragment.pc))
    ++back;
  std::string words = first(fragment.pc, back);
  if (words.empty() && back < code.size()) words = first(code[back].target, fragment.pc);
  return words;
}

std::string threads_text(int count) {
  return std::to_string(count) + (count == 1 ? " thread" : " threads");
}

}  // namespace

std::string where_called(const Instr& instr, const Function& function) {
  const std::vector<Location>& locations = function.module->locations;
  std::uint32_t outermost = locations[instr.location].caller;
  if (!outermost) return "";
  while (locations[outermost].caller) outermost = locations[outermost].caller;
  const Location& call = locations[outermost];
  return display_path(call.file) + ":" + std::to_string(call.line);
}

// "at the barrier at kernel.cuh:7", for threads that stand at the fragment.
std::string Block::stands(Warp& warp, const Fragment& fragment) {
  const Function& function = *fragment.frame->function;
  const Instr& instr = function.code[fragment.pc];
  std::string place = where(instr, function);
  if (const std::string call = where_called(instr, function); !call.empty())
    place += " (called at " + call + ")";
  switch (fragment.state) {
    case Fragment::State::at_barrier:
      return "at the barrier at " + place;
    case Fragment::State::at_cluster:
      return "at the cluster's barrier at " + place;
    case Fragment::State::at_sync:
      return (instr.op_class == OpClass::barrier ? "at the __syncwarp at "
                                                 : "at the operation of several lanes at ") +
             place + ", for other lanes of the warp";
    default:
      break;
  }
  if (!fragment.waiting) return "at " + place;
  const std::string words = waits_at_mbarrier(warp, fragment);
  return "in the loop at " + place + (words.empty() ? "" : " " + words);
}

// "; 100 threads of the block wait at the barrier at kernel.cuh:7": where the block's threads stand but
// those of the fragment that the message is about.
std::string Block::others_stand(const Fragment& than) {
  std::vector<std::pair<std::string, int>> places;
  int elsewhere = 0, there = 0;
  std::string own;
  for (Warp& warp : warps)
    for (const Fragment& f : warp.fragments)
      if (&f == &than) own = stands(warp, f);
  for (Warp& warp : warps)
    for (const Fragment& f : warp.fragments) {
      const int threads = std::popcount(f.mask);
      if (&f == &than || !threads) continue;
      const std::string place = stands(warp, f);
      if (place == own) {
        there += threads;
        continue;
      }
      const auto same = std::find_if(places.begin(), places.end(),
                                     [&](const auto& known) { return known.first == place; });
      if (same != places.end())
        same->second += threads;
      else if (places.size() < kMostPlaces)
        places.emplace_back(place, threads);
      else
        elsewhere += threads;
    }
  std::string text;
  if (there)
    text = "; " + threads_text(there) + " of other warps of the block wait" +
           (there == 1 ? "s" : "") + " for the same";
  for (const auto& [place, threads] : places)
    text +=
        "; " + threads_text(threads) + " of the block wait" + (threads == 1 ? "s " : " ") + place;
  if (elsewhere) text += "; " + threads_text(elsewhere) + " elsewhere";
  return text;
}

std::string Block::runs_for_ever() {
  for (Warp& warp : warps)
    if (!warp.fragments.empty()) {
      const Fragment& f = warp.fragments.front();
      warp.frame = f.frame.get();
      return describe(warp, f.frame->function->code[f.pc], std::countr_zero(f.mask),
                      "no end after " + std::to_string(launch.machine.instruction_limit) +
                          " instructions; running");
    }
  return "no end in " + launch.request.function->display;
}

std::string Block::waits_for_ever(std::size_t resident) {
  const std::uint64_t grid = launch.request.grid.count();
  std::string who = resident == 1 ? "the only block that runs waits"
                                  : "all " + std::to_string(resident) + " blocks that run wait";
  if (resident < grid && resident > 1) who += " (of " + std::to_string(grid) + ")";
  for (Warp& warp : warps)
    for (const Fragment& f : warp.fragments) {
      if (!f.waiting) continue;
      const std::string others = others_stand(f);
      std::string what;
      if (warp.short_of) {
        what = "setmaxnreg.inc waits for " + std::to_string(warp.short_of) +
               " registers for the warp, of which " + std::to_string(free_registers) +
               " are free in the block, and no other warp gives any back";
      } else if (warp.ahead_of_group) {
        what =
            "a product of a warpgroup is complete when all 4 warps have asked for it, and not all "
            "of them come to do so";
      } else {
        what = who + " in a loop for what no other thread does";
        if (const std::string words = waits_at_mbarrier(warp, f); !words.empty())
          what += ", " + words;
        if (const auto allocation = host_memory_of(warp))
          what += " (it looks at host-visible memory, " + allocation_text(launch, *allocation) +
                  ": the host cannot write it meanwhile, a launch runs to its end before the call "
                  "returns)";
      }
      take_up(warp, f);
      const Instr& instr = f.frame->function->code[f.pc];
      if (const std::string call = where_called(instr, *f.frame->function); !call.empty())
        what += "; called at " + call;
      return describe(warp, instr, std::countr_zero(f.mask),
                      "deadlock: " + what + others + "; waiting");
    }
  return "deadlock: " + who + " for ever in " + launch.request.function->display;
}

// No lane of the block can go on: say who waits where.
void Block::deadlock() {
  for (Warp& warp : warps)
    for (Fragment& f : warp.fragments) {
      std::string what;
      if (f.state == Fragment::State::at_barrier) {
        const Barrier& b = barriers_[f.barrier];
        what = "barrier " + std::to_string(f.barrier) + " was reached by " +
               std::to_string(b.arrived) + " of " +
               std::to_string(b.expected ? b.expected : live_threads) +
               " threads, and no other thread can go on";
      } else if (f.state == Fragment::State::at_sync) {
        what = "an operation of several lanes waits for lanes of its mask that never come";
      } else {
        continue;
      }
      what += others_stand(f);
      take_up(warp, f);
      throw Fault{FaultKind::deadlock,
                  describe(warp, f.frame->function->code[f.pc], std::countr_zero(f.mask),
                           "deadlock: " + what + "; waiting")};
    }
  throw Fault{FaultKind::deadlock, "deadlock in " + launch.request.function->display};
}

}  // namespace vgpu
