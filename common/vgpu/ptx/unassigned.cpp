#include "unassigned.h"

#include <algorithm>
#include <map>

namespace vgpu {
namespace {

// A set of registers, by their number.
using Set = std::vector<std::uint64_t>;

class Analysis {
 public:
  explicit Analysis(const Function& function) : f_(function) {
    for (std::uint32_t i = 0; i < f_.registers.size(); ++i) number_[f_.registers[i].slot.bits] = i;
  }

  std::vector<Unassigned> run() {
    if (f_.code.empty() || f_.registers.empty() || !find_blocks()) return {};
    solve();
    std::vector<Unassigned> result;
    for (std::uint32_t i = 0; i < f_.registers.size(); ++i)
      if (has(blocks_[0].live, i))
        result.push_back({f_.registers[i].slot, f_.registers[i].bits, reader(i)});
    return result;
  }

 private:
  struct Piece {  // a piece of code without a jump into it or out of its middle
    std::uint32_t first = 0, last = 0;
    std::vector<std::uint32_t> next;
    Set read, assigned;  // read before any assignment here; assigned by all lanes
    Set live;            // at its beginning
  };

  static bool has(const Set& set, std::uint32_t i) { return set[i / 64] >> i % 64 & 1; }
  static void add(Set& set, std::uint32_t i) { set[i / 64] |= std::uint64_t{1} << i % 64; }

  template <class Do>
  void one(Slot slot, Do&& what) const {
    if (!slot.valid() || slot.constant()) return;
    const auto it = number_.find(slot.bits);
    if (it != number_.end()) what(it->second);
  }
  template <class Do>
  void each_read(const Instr& instr, Do&& what) const {
    for (const Slot slot :
         {instr.guard, instr.a, instr.b, instr.c, instr.e, instr.address, instr.address2})
      one(slot, what);
    for (int k = instr.list_results; k < instr.list_count; ++k) one(Slot{instr.list[k]}, what);
    if (instr.flow == Flow::call) one(f_.calls[instr.site].pointer, what);
  }
  template <class Do>
  void each_assigned(const Instr& instr, Do&& what) const {
    for (const Slot slot : instr.d) one(slot, what);
    for (int k = 0; k < instr.list_results; ++k) one(Slot{instr.list[k]}, what);
  }

  // False: something jumps to the beginning.
  bool find_blocks() {
    const auto n = static_cast<std::uint32_t>(f_.code.size());
    std::vector<bool> starts(n + 1, false);
    starts[0] = true;
    bool loops = false;
    each_edge([&](std::uint32_t from, std::uint32_t target) {
      starts[target] = starts[from + 1] = true;
      loops |= target == 0;
    });
    if (loops) return false;
    std::vector<std::uint32_t> block_of(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (starts[i]) blocks_.emplace_back().first = i;
      blocks_.back().last = i;
      block_of[i] = static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    each_edge([&](std::uint32_t from, std::uint32_t target) {
      blocks_[block_of[from]].next.push_back(block_of[target]);
    });
    for (std::uint32_t b = 0; b + 1 < blocks_.size(); ++b) {
      const Instr& last = f_.code[blocks_[b].last];
      if (!jumps_away(last)) blocks_[b].next.push_back(b + 1);
    }
    return true;
  }
  template <class Do>
  void each_edge(Do&& what) const {
    for (const Instr& instr : f_.code) {
      if (instr.flow == Flow::branch) what(instr.pc, instr.target);
      if (instr.flow == Flow::branch_table)
        for (const std::uint32_t target : f_.tables[instr.target]) what(instr.pc, target);
    }
  }
  static bool jumps_away(const Instr& instr) {
    switch (instr.flow) {
      case Flow::branch:
      case Flow::branch_table:
      case Flow::ret:
      case Flow::exit:
      case Flow::trap:
        return !instr.guard.valid();
      default:
        return false;
    }
  }

  void solve() {
    const std::size_t words = (f_.registers.size() + 63) / 64;
    for (Piece& block : blocks_) {
      block.read.assign(words, 0);
      block.assigned.assign(words, 0);
      for (std::uint32_t pc = block.first; pc <= block.last; ++pc) {
        const Instr& instr = f_.code[pc];
        each_read(instr, [&](std::uint32_t i) {
          if (!has(block.assigned, i)) add(block.read, i);
        });
        // Lanes that the guard holds back keep what they had.
        if (!instr.guard.valid())
          each_assigned(instr, [&](std::uint32_t i) { add(block.assigned, i); });
      }
      block.live = block.read;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t b = blocks_.size(); b-- > 0;) {
        Piece& block = blocks_[b];
        for (const std::uint32_t next : block.next)
          for (std::size_t w = 0; w < words; ++w) {
            const std::uint64_t live = block.live[w] | (blocks_[next].live[w] & ~block.assigned[w]);
            changed |= live != block.live[w];
            block.live[w] = live;
          }
      }
    }
  }

  std::uint32_t reader(std::uint32_t number) const {
    for (const Instr& instr : f_.code) {
      bool reads = false;
      each_read(instr, [&](std::uint32_t i) { reads |= i == number; });
      if (reads) return instr.pc;
    }
    return 0;
  }

  const Function& f_;
  std::map<std::uint32_t, std::uint32_t> number_;  // the number of a register, by Slot::bits
  std::vector<Piece> blocks_;
};

}  // namespace

std::vector<Unassigned> read_before_assigned(const Function& function) {
  return Analysis(function).run();
}

}  // namespace vgpu
