#include "waiting.h"

#include <algorithm>
#include <set>

#include "specials.h"

namespace vgpu {
namespace {

std::vector<std::uint32_t> followers(const Function& function, std::uint32_t pc) {
  const Instr& instr = function.code[pc];
  std::vector<std::uint32_t> next;
  const bool guarded = instr.guard.valid();
  if (instr.flow == Flow::branch) next.push_back(instr.target);
  if (instr.flow == Flow::branch_table) next = function.tables[instr.target];
  const bool ends = instr.flow == Flow::branch || instr.flow == Flow::branch_table ||
                    instr.flow == Flow::ret || instr.flow == Flow::exit || instr.flow == Flow::trap;
  if ((!ends || guarded) && pc + 1 < function.code.size()) next.push_back(pc + 1);
  return next;
}

using Edges = std::vector<std::vector<std::uint32_t>>;

// Everything that can be reached from `from`, by `edges`.
std::vector<bool> reached(std::uint32_t from, const Edges& edges) {
  std::vector<bool> seen(edges.size(), false);
  std::vector<std::uint32_t> todo = edges[from];
  while (!todo.empty()) {
    const std::uint32_t pc = todo.back();
    todo.pop_back();
    if (seen[pc]) continue;
    seen[pc] = true;
    todo.insert(todo.end(), edges[pc].begin(), edges[pc].end());
  }
  return seen;
}

// What lies on a way from `pc` back to it: its strongly connected component, or nothing.
std::vector<bool> circle(std::uint32_t pc, const Edges& next, const Edges& before) {
  std::vector<bool> both = reached(pc, next);
  const std::vector<bool> back = reached(pc, before);
  for (std::size_t i = 0; i < both.size(); ++i) both[i] = both[i] && back[i];
  return both;
}

bool in_loop_behind(const Function& function, std::uint32_t pc) {
  const std::size_t n = function.code.size();
  Edges next(n), before(n);
  for (std::uint32_t i = 0; i < n; ++i)
    for (const std::uint32_t to : next[i] = followers(function, i)) before[to].push_back(i);
  return pc + 1 < n && circle(pc, next, before)[pc + 1];
}

using Registers = std::set<std::uint32_t>;  // offsets into a frame's registers

void add(Registers& to, Slot slot) {
  if (slot.valid() && !slot.constant()) to.insert(slot.offset());
}
// A vector operand is read or written, which its instruction does not say: taken for both.
void add_list(Registers& to, const Instr& instr) {
  for (std::uint16_t i = 0; instr.list && i < instr.list_count; ++i) add(to, Slot{instr.list[i]});
}
Registers reads(const Instr& instr) {
  Registers r;
  for (const Slot slot :
       {instr.guard, instr.a, instr.b, instr.c, instr.e, instr.address, instr.address2})
    add(r, slot);
  add_list(r, instr);
  return r;
}
Registers writes(const Instr& instr) {
  Registers r;
  for (const Slot slot : instr.d) add(r, slot);
  add_list(r, instr);
  return r;
}
bool meet(const Registers& a, const Registers& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](std::uint32_t offset) { return b.count(offset) != 0; });
}

bool is_clock(const Instr& instr) {
  static const std::set<int> clocks = {
      special_index("clock"),          special_index("clock64"),
      special_index("clock_hi"),       special_index("globaltimer"),
      special_index("globaltimer_lo"), special_index("globaltimer_hi")};
  return instr.special >= 0 && clocks.count(instr.special) != 0;
}

Loop loop_around(const Function& function, std::uint32_t pc) {
  Loop loop;
  const auto& code = function.code;
  Edges next(code.size()), before(code.size());
  for (std::uint32_t i = 0; i < code.size(); ++i)
    for (const std::uint32_t to : next[i] = followers(function, i)) before[to].push_back(i);
  const std::vector<bool> inside = circle(pc, next, before);
  std::vector<const Instr*> body;
  for (std::uint32_t i = 0; i < code.size(); ++i)
    if (inside[i]) body.push_back(&code[i]);

  // Results matter only through what they decide; what does more than fill registers, matters.
  Registers decides, clocked;
  for (const Instr* instr : body) {
    loop.calls |= instr->flow == Flow::call;
    loop.reads_clock |= is_clock(*instr);
    if (is_clock(*instr)) clocked.merge(writes(*instr));
    add(decides, instr->guard);
    add(decides, instr->address);
    add(decides, instr->address2);
    const bool computes = instr->flow == Flow::plain && instr->op_class != OpClass::memory &&
                          instr->op_class != OpClass::atomic && instr->op_class != OpClass::barrier;
    const bool loads =
        is_memory(instr->flow) && instr->op_class == OpClass::memory && instr->d[0].valid();
    if (!computes && !loads) decides.merge(reads(*instr));
  }
  const auto grow = [&](Registers& set, auto from, auto to) {
    for (bool grown = true; grown;) {
      const std::size_t size = set.size();
      for (const Instr* instr : body)
        if (meet(from(*instr), set)) set.merge(to(*instr));
      grown = set.size() > size;
    }
  };
  grow(decides, writes, reads);
  grow(clocked, reads, writes);

  // Where a register ends: where the next one that the function names begins.
  Registers all = {function.register_bytes};
  for (const Instr& instr : code) {
    all.merge(reads(instr));
    all.merge(writes(instr));
  }
  constexpr std::uint32_t kPredicateBytes = 4;
  for (const std::uint32_t begin : decides) {
    const std::uint32_t end = *all.upper_bound(begin);
    if (clocked.count(begin) && end - begin > kPredicateBytes) continue;
    loop.decides.push_back({begin, end});
  }
  return loop;
}

}  // namespace

const Loop& Loops::around(const Function& function, std::uint32_t pc) {
  const auto [at, is_new] = known_.try_emplace({&function, pc});
  if (is_new) at->second = loop_around(function, pc);
  return at->second;
}

bool Loops::goes_on_behind(const Function& function, std::uint32_t pc) {
  const auto [at, is_new] = goes_on_.try_emplace({&function, pc});
  if (is_new) at->second = in_loop_behind(function, pc);
  return at->second;
}

}  // namespace vgpu
