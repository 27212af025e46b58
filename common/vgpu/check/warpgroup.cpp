// Registers of products that are under way (wgmma), by the rules of the PTX ISA ("Async Proxy" and
// "wgmma.fence").
//
// - From a product until the wait for its group, its accumulators are touched by nobody but products of
//   the same shape, and the registers of its A are not written.
// - A wgmma.fence stands between an access to a register and the first product that uses it, and before
//   the first product of all. (Copies by mov do not count as accesses for this rule: nvcc places them
//   where it likes, and ptxas looks through them.)
//
// ptxas mends what it sees of this by waiting after each product, and says so: "wgmma.mma_async
// instructions are serialized".
#include <map>
#include <unordered_map>

#include "../core/access.h"
#include "../core/instruction_set.h"
#include "checks.h"

namespace vgpu {
namespace {

using Moment = std::uint64_t;  // numbers the instructions of a warp

enum class Role : std::uint8_t { other, move, product, fence, commit, wait };
Role role_of(const Form& form) {
  const std::string_view opcode = form.opcode, pattern = form.pattern;
  if (opcode == "mov") return Role::move;
  if (opcode != "wgmma") return Role::other;
  return pattern.starts_with(".mma_async")      ? Role::product
         : pattern.starts_with(".fence")        ? Role::fence
         : pattern.starts_with(".commit_group") ? Role::commit
                                                : Role::wait;
}
Role role_of(const Instr& instr) {
  static const std::vector<Role> roles = [] {
    std::vector<Role> all;
    for (const Form& form : forms()) all.push_back(role_of(form));
    return all;
  }();
  return roles[instr.form];
}

class WarpgroupCheck final : public Observer {
 public:
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    warps_.clear();
    findings_.take(findings);
  }
  void block_end(Block& block) override {
    for (const Warp& warp : block.warps) warps_.erase(&warp);
  }
  bool wants_instructions() const override { return true; }
  void instruction(Warp& warp, const Instr& instr, std::uint32_t, std::uint32_t on) override {
    if (!on || instr.flow == Flow::join) return;
    const Plan& plan = plan_of(*warp.frame->function);
    const Role role = role_of(instr);
    if (role < Role::product && plan.touches[instr.pc].empty()) return;
    Doings& doings = warps_[&warp];
    ++doings.now;
    switch (role) {
      case Role::fence:
        doings.fenced = doings.now;
        break;
      case Role::commit:
        ++doings.committed;
        break;
      case Role::wait:
        if (const auto allowed = static_cast<std::uint64_t>(instr.constant);
            doings.committed > allowed)
          doings.complete = std::max(doings.complete, doings.committed - allowed);
        break;
      case Role::product:
        product(warp, instr, doings);
        break;
      default:
        for (const Touch& touch : plan.touches[instr.pc])
          touched(warp, instr, doings, touch, role == Role::move);
    }
  }

 private:
  struct Touch {
    std::uint32_t slot;
    bool writes;
  };
  struct Plan {
    std::vector<std::vector<Touch>> touches;  // by pc: of registers that products use
  };
  struct Register {
    std::uint64_t sums_of = 0, factors_of = 0;  // the last group that has it as part of D, of A
    const Instr* product = nullptr;             // that did, and the last to touch it otherwise
    const Instr* toucher = nullptr;
    Moment touched = 0, used = 0;
  };
  struct Doings {
    Moment now = 0, fenced = 0;
    std::uint64_t committed = 0, complete = 0;  // groups, from 1
    std::map<const Frame*, std::unordered_map<std::uint32_t, Register>> registers;
    std::vector<Ref<Frame>> frames;  // kept, so that no other one gets the address
    std::unordered_map<std::uint32_t, Register>& of(Frame* frame) {
      const auto [it, fresh] = registers.try_emplace(frame);
      if (fresh) frames.emplace_back(frame);
      return it->second;
    }
    bool under_way(std::uint64_t group) const { return group > complete; }
  };

  static Plan make_plan(const Function& function) {
    std::unordered_map<std::uint32_t, bool> used;
    for (const Instr& instr : function.code)
      if (instr.run && role_of(instr) == Role::product)
        for (int k = 0; k < instr.list_count; ++k) used[instr.list[k]] = true;
    Plan plan;
    for (const Instr& instr : function.code) {
      std::vector<Touch>& touches = plan.touches.emplace_back();
      const auto add = [&](Slot slot, bool writes) {
        if (slot.valid() && !slot.constant() && used.count(slot.bits))
          touches.push_back({slot.bits, writes});
      };
      for (const Slot slot : {instr.a, instr.b, instr.c, instr.e, instr.address, instr.address2})
        add(slot, false);
      for (int k = instr.list_results; k < instr.list_count; ++k) add(Slot{instr.list[k]}, false);
      for (const Slot slot : instr.d) add(slot, true);
      for (int k = 0; k < instr.list_results; ++k) add(Slot{instr.list[k]}, true);
    }
    return plan;
  }
  const Plan& plan_of(const Function& function) {
    const auto it = plans_.find(&function);
    return it != plans_.end() ? it->second
                              : plans_.emplace(&function, make_plan(function)).first->second;
  }

  static std::string place(const Warp& warp, const Instr* instr) {
    return where(*instr, *warp.frame->function);
  }
  template <class F>
  void add(Warp& warp, const Instr& instr, const Instr* other, const char* kind, F words) {
    const Instr& own = warp.frame->function->code[instr.pc];
    findings_.add(place(warp, &own) + kind + (other ? place(warp, other) : ""),
                  [&] { return describe(warp, own, 0, "sync: " + words()); });
  }

  void touched(Warp& warp, const Instr& instr, Doings& doings, const Touch& touch, bool moves) {
    auto& registers = doings.of(warp.frame);
    const auto it = registers.find(touch.slot);
    if (it != registers.end()) {
      Register& r = it->second;
      const bool sums = doings.under_way(r.sums_of);
      if (sums || (touch.writes && doings.under_way(r.factors_of)))
        add(warp, instr, r.product, "touched", [&] {
          return std::string(touch.writes ? "write" : "read") + " of a register that is part of " +
                 (sums ? "the accumulator" : "A") + " of the wgmma.mma_async at " +
                 place(warp, r.product) + ", before a wgmma.wait_group for it,";
        });
    }
    if (moves) return;
    Register& r = registers[touch.slot];
    r.touched = doings.now;
    r.toucher = &warp.frame->function->code[instr.pc];
  }

  void product(Warp& warp, const Instr& instr, Doings& doings) {
    const Instr* const own = &warp.frame->function->code[instr.pc];
    if (!doings.fenced)
      add(warp, instr, nullptr, "first", [] {
        return std::string(
            "wgmma.mma_async before the warp's first wgmma.fence, which must come first,");
      });
    auto& registers = doings.of(warp.frame);
    const std::uint64_t group = doings.committed + 1;
    for (int k = 0; k < instr.list_count; ++k) {
      Register& r = registers[instr.list[k]];
      const bool sums = k < instr.list_results;
      if (doings.fenced && r.toucher && r.touched > doings.fenced)
        add(warp, instr, r.toucher, "fence", [&] {
          return "wgmma.mma_async uses a register as part of " +
                 std::string(sums ? "its accumulator" : "A") + " that was accessed at " +
                 place(warp, r.toucher) + ", without a wgmma.fence between,";
        });
      const bool under_way = doings.under_way(r.sums_of) && r.used > doings.fenced;
      if (under_way && (!sums || !same_shape(*r.product, instr)))
        add(warp, instr, r.product, "shape", [&] {
          return "wgmma.mma_async uses a register as part of " +
                 std::string(sums ? "its accumulator" : "A") + " that the wgmma.mma_async at " +
                 place(warp, r.product) +
                 (sums ? ", of another shape, has as accumulator"
                       : " has as accumulator, which is not complete") +
                 ",";
        });
      (sums ? r.sums_of : r.factors_of) = group;
      r.product = own;
      r.used = doings.now;
    }
  }
  // n and the number of registers of D say all of it that concerns registers.
  static bool same_shape(const Instr& a, const Instr& b) {
    return a.form == b.form && a.dtype == b.dtype && a.list_results == b.list_results;
  }

  std::unordered_map<const Function*, Plan> plans_;
  std::unordered_map<const Warp*, Doings> warps_;
  Findings findings_;
};

}  // namespace

bool uses_wgmma(const Function& kernel) {
  bool uses = false;
  each_function(kernel, [&](const Function& function) {
    for (const Instr& instr : function.code) uses |= instr.run && role_of(instr) == Role::product;
  });
  return uses;
}

std::unique_ptr<Observer> make_warpgroup_check() { return std::make_unique<WarpgroupCheck>(); }

}  // namespace vgpu
