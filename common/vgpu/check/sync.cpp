// Barriers and operations of several lanes that do not have the threads they are meant for.
//
// The rules are those of compute-sanitizer's synccheck: a barrier of the block is for all its
// threads, in the same place, and a warp arrives as a whole; threads that have ended do not count
// as having come, though GPUs since Volta let the others go on. A mask names lanes that take part
// with the same mask, the executing lane among them. What a shuffle takes from a lane that does not
// take part is undefined.
#include <cstdio>
#include <unordered_map>

#include "../core/access.h"
#include "../core/instruction_set.h"
#include "../core/shuffle.h"
#include "checks.h"
#include "undefined.h"

namespace vgpu {
namespace {

std::string hex(std::uint32_t mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

class SyncCheck final : public Observer {
 public:
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    values_.clear();
    findings_.take(findings);
  }
  bool wants_instructions() const override { return true; }
  void instruction(Warp& warp, const Instr& instr, std::uint32_t mask, std::uint32_t on) override {
    values_.instruction(warp, instr, mask, on);
  }
  // To store a shuffle's value, be it in shared memory, is to use it.
  void access(Warp& warp, const Instr&, std::uint32_t mask, const Addresses&, std::uint32_t,
              Access access, Space, const Places&) override {
    const UndefinedValues::Stored& stored = values_.stored();
    if (access != Access::store) return;
    each_lane(stored.lanes & mask,
              [&](int lane) { used(warp, *stored.origin[lane], stored.from[lane]); });
  }
  void block_begin(Block& block) override {
    State& state = blocks_[&block];
    for (const Warp& warp : block.warps) state.born.push_back(warp.live);
  }
  void block_end(Block& block) override {
    values_.forget(block);
    blocks_.erase(&block);
  }

  void barrier_arrive(Warp& warp, const Instr& instr, std::uint32_t mask, int barrier,
                      bool) override {
    State& state = blocks_.at(warp.block);
    Turn& turn = state.turns[static_cast<std::size_t>(barrier)];
    const Function& function = *warp.frame->function;
    const int lane = std::countr_zero(mask);
    const std::uint32_t count =
        instr.b.valid() ? warp.lanes<const std::uint32_t>(instr.b)[lane] : 0;
    const std::string name = "barrier " + std::to_string(barrier);
    if (mask != warp.live && aligned(instr, function))
      add(warp, instr, lane, "divergent", [&] {
        return "sync: " + name + " reached by " + std::to_string(std::popcount(mask)) + " of the " +
               std::to_string(std::popcount(warp.live)) +
               " threads of the warp, which all must come together,";
      });
    if (!turn.instr) {
      turn = {&function.code[instr.pc], &function, count};
      return;
    }
    if (count != turn.count)
      add(warp, instr, lane, "count", [&] {
        return "sync: " + name + " for " + threads(count) + " where others wait at " +
               where(*turn.instr, *turn.function) + " for " + threads(turn.count) + ",";
      });
    else if (count == 0 && &function.code[instr.pc] != turn.instr)
      add(warp, instr, lane, "place", [&] {
        const std::string there = where(*turn.instr, *turn.function);
        return "sync: " + name + " reached here by some threads of the block and at " +
               (there != where(instr, function) ? there
                                                : "another barrier of the same line (PTX lines " +
                                                      std::to_string(instr.ptx_line) + " and " +
                                                      std::to_string(turn.instr->ptx_line) + ")") +
               " by others (CUDA allows __syncthreads() only where its condition is the same for "
               "all threads of the block; warps with different roles meet at a cuda::barrier, or "
               "at "
               "bar.sync with a number and a count),";
      });
  }
  void barrier_complete(Block& block, int barrier) override {
    State& state = blocks_.at(&block);
    Turn turn = std::exchange(state.turns[static_cast<std::size_t>(barrier)], {});
    const auto all = static_cast<std::uint32_t>(block.launch.request.block.count());
    if (!turn.instr || turn.count || block.live_threads == all) return;
    const std::string place = where(*turn.instr, *turn.function);
    findings_.add(place + "exited", [&] {
      return place + ": error: sync: barrier " + std::to_string(barrier) + " reached by " +
             std::to_string(block.live_threads) + " of " + std::to_string(all) +
             " threads of the block, the others have ended, in block " +
             block_text(block.launch, block.linear) + " of " +
             block.launch.request.function->display;
    });
  }

  void cluster_arrive(Warp& warp, const Instr& instr, std::uint32_t mask) override {
    whole_warp(warp, instr, mask);
  }
  void cluster_wait(Warp& warp, const Instr& instr, std::uint32_t mask) override {
    whole_warp(warp, instr, mask);
  }

  void warp_sync(Warp& warp, const Instr& instr, std::uint32_t mask,
                 std::uint32_t members) override {
    values_.warp_sync(warp, instr, mask);
    follow_shuffle(warp, instr, mask);
    if (!instr.e.valid()) return;
    const std::uint32_t born = blocks_.at(warp.block).born[warp.index];
    const std::uint32_t ended = members & born & ~warp.live;
    const std::uint32_t* masks = warp.lanes<const std::uint32_t>(instr.e);
    if (ended) {
      const int lane = std::countr_zero(mask);
      add(warp, instr, lane, "ended", [&] {
        return "sync: mask " + hex(masks[lane]) + " names " +
               (std::popcount(ended) == 1 ? "lane " : "lanes ") + hex(ended) +
               " of the warp, which ended before,";
      });
    }
    if (mask == kFullMask) {
      bool full = true;
      for (int lane = 0; lane < kWarpSize; ++lane) full &= masks[lane] == kFullMask;
      if (full) return;
    }
    each_lane(mask, [&](int lane) {
      if (!(masks[lane] >> lane & 1))
        add(warp, instr, lane, "own", [&] {
          return "sync: mask " + hex(masks[lane]) + " does not name lane " + std::to_string(lane) +
                 " itself, executed";
        });
      int other = -1;
      each_lane(masks[lane] & mask, [&](int named) {
        if (masks[named] != masks[lane]) other = named;
      });
      if (other >= 0)
        add(warp, instr, lane, "masks", [&] {
          return "sync: mask " + hex(masks[lane]) + " where lane " + std::to_string(other) +
                 ", which it names, has " + hex(masks[other]) + ",";
        });
    });
  }

 private:
  struct Turn {
    const Instr* instr = nullptr;
    const Function* function = nullptr;
    std::uint32_t count = 0;
  };
  struct State {
    std::vector<std::uint32_t> born;  // lanes of each warp
    std::array<Turn, 16> turns;
  };

  // A shuffle may take the value of a lane that has none to give: one that the block does not have,
  // that has ended, or that does not take part. That is no mistake where nobody uses the value (a
  // reduction of 16 threads whose lane 0 alone counts), so it is followed. Where the lanes stand at
  // different instructions it is not.
  enum Lacks : std::uint8_t { kNeverWas, kEnded, kElsewhere };  // Origin::copied of a shuffle
  void follow_shuffle(Warp& warp, const Instr& instr, std::uint32_t mask) {
    if (mask == kFullMask || std::string_view(forms()[instr.form].opcode) != "shfl" ||
        &instr != &warp.frame->function->code[instr.pc])
      return;
    const std::uint32_t* b = warp.lanes<const std::uint32_t>(instr.b);
    const std::uint32_t* c = warp.lanes<const std::uint32_t>(instr.c);
    Ref<Origin> origin;
    each_lane(mask, [&](int lane) {
      const ShuffleSource from = shuffle_source(instr.variant, lane, b[lane], c[lane]);
      if (mask >> from.lane & 1) return;
      if (!origin) {
        origin = Ref<Origin>(new Origin);
        origin->instr = &instr;
        origin->bytes = 4;
      }
      origin->first[lane] = static_cast<std::uint64_t>(from.lane);
      const std::uint32_t born = blocks_.at(warp.block).born[warp.index];
      origin->copied[lane] = !(born >> from.lane & 1)        ? kNeverWas
                             : !(warp.live >> from.lane & 1) ? kEnded
                                                             : kElsewhere;
      values_.loaded(warp, instr, lane, 4, 0xf, origin);
    });
  }
  void used(Warp& warp, Origin& origin, int lane) {
    if (origin.told >> lane & 1) return;
    origin.told |= 1u << lane;
    add(warp, *origin.instr, lane, "shuffle", [&] {
      return "sync: shuffle takes the value of lane " + std::to_string(origin.first[lane]) +
             ", which " +
             (origin.copied[lane] == kNeverWas
                  ? "the warp does not have (the block has " +
                        std::to_string(warp.block->launch.request.block.count()) + " threads)"
              : origin.copied[lane] == kEnded ? "has ended"
                                              : "does not take part in it") +
             ": it is undefined, and used,";
    });
  }

  static std::string threads(std::uint32_t count) {
    return count ? std::to_string(count) + " threads" : "all threads";
  }
  // Is this form of the barrier for whole warps only?
  static bool aligned(const Instr& instr, const Function& function) {
    if (std::string_view(forms()[instr.form].opcode) == "bar") return true;
    const auto& lines = function.module->lines;
    return instr.ptx_line == 0 || instr.ptx_line > lines.size() ||
           lines[instr.ptx_line - 1].find(".aligned") != std::string_view::npos;
  }
  void whole_warp(Warp& warp, const Instr& instr, std::uint32_t mask) {
    if (mask == warp.live || !aligned(instr, *warp.frame->function)) return;
    add(warp, instr, std::countr_zero(mask), "divergent", [&] {
      return "sync: the cluster's barrier (.aligned) reached by " +
             std::to_string(std::popcount(mask)) + " of the " +
             std::to_string(std::popcount(warp.live)) +
             " threads of the warp, which all must come together,";
    });
  }
  template <class F>
  void add(Warp& warp, const Instr& instr, int lane, const char* kind, F words) {
    findings_.add(where(instr, *warp.frame->function) + kind,
                  [&] { return describe(warp, instr, lane, words()); });
  }

  std::unordered_map<Block*, State> blocks_;
  UndefinedValues values_{
      [this](Warp& warp, Origin& origin, int lane) { used(warp, origin, lane); }};
  Findings findings_;
};

}  // namespace

std::unique_ptr<Observer> make_sync_check() { return std::make_unique<SyncCheck>(); }

}  // namespace vgpu
