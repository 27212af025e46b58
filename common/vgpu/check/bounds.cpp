// Accesses beside the array that they are meant for, in shared and in constant memory, where arrays lie
// side by side.
//
// PTX names a variable where its address is taken. From there the address is followed, before anything
// runs, through the registers of the function: moves, sums with numbers, conversions between state spaces.
// An access whose base register can only come from one variable must stay inside of it. Where a register
// may have several bases, or bits of an address are masked or exchanged, nothing is known and nothing is said.
#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../core/access.h"
#include "../core/instruction_set.h"
#include "../core/names.h"
#include "checks.h"

namespace vgpu {
namespace {

// What a register may hold: a number, or an address in the variable Function::named[base - 1].
enum : int { kUnset = -2, kUnknown = -1, kNumber = 0 };

int meet(int a, int b) {
  if (a == kUnset || a == b) return b;
  return b == kUnset ? a : kUnknown;
}
// The base of a sum of an address and a number, whichever comes first.
int sum(int a, int b) {
  if (a == kUnset || b == kUnset) return kUnset;
  return a == kNumber ? b : b == kNumber ? a : kUnknown;
}

// The bases of a function's memory accesses.
class Bases {
 public:
  explicit Bases(const Function& function) {
    constexpr int kMostRounds = 8;
    bool changed = !function.named.empty();
    if (!changed) return;
    for (int round = 0; changed; ++round) {
      changed = false;
      for (const Instr& instr : function.code) changed |= step(instr);
      if (round == kMostRounds && changed) return;  // nothing is known
    }
    of_.resize(function.code.size(), kUnknown);
    for (const Instr& instr : function.code)
      if (accesses_one_place(instr))
        of_[instr.pc] = instr.address.valid() ? of(instr.address) : instr.named;
  }
  // Number of the variable in Function::named, from 1; else nothing is known.
  int at(std::uint32_t pc) const { return pc < of_.size() ? of_[pc] : kUnknown; }

 private:
  // Copies and others that report to an mbarrier (o in forms.def) access that one, too.
  static bool accesses_one_place(const Instr& instr) {
    return (instr.op_class == OpClass::memory || instr.op_class == OpClass::atomic) &&
           std::string_view(forms()[instr.form].operands).find('o') == std::string_view::npos;
  }
  int of(Slot slot) const {
    if (!slot.valid() || slot.constant()) return kNumber;
    const auto it = registers_.find(slot.bits);
    return it == registers_.end() ? kUnset : it->second;
  }
  bool set(Slot slot, int base) {
    if (!slot.valid() || base == kUnset) return false;
    int& known = registers_.try_emplace(slot.bits, kUnset).first->second;
    return std::exchange(known, meet(known, base)) != known;
  }
  bool step(const Instr& instr) {
    bool changed = set(instr.d[0], result(instr));
    for (int k = 0; k < instr.list_results; ++k)
      changed |= set(Slot{instr.list[k]}, instr.op_class == OpClass::memory ? kNumber : kUnknown);
    return changed;
  }
  int result(const Instr& instr) const {
    if (instr.op_class == OpClass::memory || instr.op_class == OpClass::atomic) return kNumber;
    const std::string_view opcode = forms()[instr.form].opcode,
                           bind = forms()[instr.form].bind_name;
    const int a = of(instr.a), b = of(instr.b), c = of(instr.c);
    if (opcode == "mov") return instr.named ? instr.named : instr.list ? of_all(instr) : a;
    if (opcode == "cvta" || bind == "bind_cvt_integer") return a;
    if (opcode == "add" || opcode == "or") return sum(a, b);
    if (opcode == "sub") return b == kNumber ? a : of_all(instr);
    if (opcode == "mad") return a == kNumber && b == kNumber ? c : of_all(instr);
    if (opcode == "selp") return meet(a, b);
    return of_all(instr);
  }
  // A number if all operands are.
  int of_all(const Instr& instr) const {
    bool unset = false;
    for (const Slot slot : {instr.a, instr.b, instr.c, instr.e}) {
      if (of(slot) > kNumber || of(slot) == kUnknown) return kUnknown;
      unset |= of(slot) == kUnset;
    }
    for (int k = instr.list_results; k < instr.list_count; ++k)
      if (of(Slot{instr.list[k]}) != kNumber) return kUnknown;
    return unset ? kUnset : kNumber;
  }

  std::unordered_map<std::uint32_t, int> registers_;  // by Slot::bits
  std::vector<int> of_;                               // by pc
};

class BoundsCheck final : public Observer {
 public:
  void launch_end(Launch&, std::vector<std::string>& findings) override {
    findings_.take(findings);
  }

  void access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
              std::uint32_t bytes, Access access, Space space, const Places& places) override {
    if (space == Space::shared && (!places.owner || places.owner == warp.block))
      look(warp, instr, mask, a, bytes, access, space);
  }
  void constant_access(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
                       std::uint32_t bytes) override {
    look(warp, instr, mask, a, bytes, Access::load, Space::constant);
  }
  void copy_issue(Warp& warp, const Instr& instr, int lane, Block& to, std::uint32_t offset,
                  std::uint32_t bytes) override {
    if (&to != warp.block || instr.space != Space::shared) return;
    Addresses a;
    std::fill_n(a.v, kWarpSize, std::uint64_t{offset});
    look(warp, instr, 1u << lane, a, bytes, Access::store, Space::shared);
  }

 private:
  void look(Warp& warp, const Instr& instr, std::uint32_t mask, const Addresses& a,
            std::uint32_t bytes, Access access, Space space) {
    const Function& function = *warp.frame->function;
    if (&function != function_) {
      const auto it = bases_.find(&function);
      function_ = &function;
      of_function_ =
          &(it == bases_.end() ? bases_.emplace(&function, Bases(function)).first : it)->second;
    }
    const int base = of_function_->at(instr.pc);
    if (base <= kNumber || &instr != &function.code[instr.pc]) return;
    const NamedVariable& meant = function.named[static_cast<std::size_t>(base - 1)];
    if (meant.space != space) return;
    const Extent extent = extent_of(a, bytes);
    if (extent.low >= meant.offset && extent.high + bytes <= meant.offset + meant.size) return;
    each_lane(mask, [&](int lane) {
      const std::uint64_t at = a.v[lane];
      if (at >= meant.offset && at + bytes <= meant.offset + meant.size) return;
      findings_.add(where(instr, function), [&] {
        return describe(warp, instr, lane, words(warp.block->launch, meant, at, bytes, access));
      });
    });
  }
  // The variable at this offset, mangled; "" when there is none.
  static std::string neighbour(const Launch& launch, Space space, std::uint64_t at) {
    const Function& kernel = *launch.request.function;
    if (space == Space::shared)
      for (const SharedVariable& v : kernel.shared_variables)
        if (at >= v.offset && at - v.offset < v.size) return v.name;
    if (space == Space::constant)
      for (const auto& [name, v] : kernel.module->globals)
        if (v->space == space && !v->external && at >= v->address && at - v->address < v->size)
          return name;
    return "";
  }
  static std::string words(const Launch& launch, const NamedVariable& meant, std::uint64_t at,
                           std::uint32_t bytes, Access access) {
    const std::uint64_t end = meant.offset + meant.size;
    std::string text = access == Access::load    ? "bounds: read of "
                       : access == Access::store ? "bounds: write of "
                                                 : "bounds: atomic access of ";
    text += bytes_text(bytes) + ", ";
    text += at >= end           ? bytes_text(at - end) + " past"
            : at < meant.offset ? bytes_text(meant.offset - at) + " before"
                                : std::string("across the end of");
    text += " " + std::string(space_name(meant.space)) + " array '" + variable_name(meant.name) +
            "' (" + bytes_text(meant.size) + ")";
    const std::string there = neighbour(launch, meant.space, at);
    if (!there.empty()) text += ", where '" + variable_name(there) + "' lies";
    return text + ",";
  }
  std::unordered_map<const Function*, Bases> bases_;
  const Function* function_ = nullptr;  // the function looked up last, and what was found
  const Bases* of_function_ = nullptr;
  Findings findings_;
};

}  // namespace

std::unique_ptr<Observer> make_bounds_check() { return std::make_unique<BoundsCheck>(); }

}  // namespace vgpu
