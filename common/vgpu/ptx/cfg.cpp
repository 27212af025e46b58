#include "cfg.h"

#include <algorithm>
#include <iterator>

namespace vgpu {
namespace {

struct BasicBlock {
  std::uint32_t first = 0, last = 0;  // instructions, last included
  std::vector<std::uint32_t> next;
};

bool ends_block(const Instr& i) {
  switch (i.flow) {
    case Flow::branch:
    case Flow::branch_table:
    case Flow::ret:
    case Flow::exit:
    case Flow::trap:
      return true;
    default:
      return false;
  }
}

}  // namespace

// By Cooper, Harvey and Kennedy's iteration on the reversed graph.
std::vector<std::uint32_t> post_dominators(const std::vector<std::vector<std::uint32_t>>& next,
                                           const std::vector<bool>& to_exit) {
  const auto n = static_cast<std::uint32_t>(next.size());
  const std::uint32_t exit = n;
  std::vector<std::vector<std::uint32_t>> up(n +
                                             1);  // reversed edges: from a node to those before it
  for (std::uint32_t b = 0; b < n; ++b) {
    for (std::uint32_t s : next[b]) up[s].push_back(b);
    if (to_exit[b]) up[exit].push_back(b);
  }
  // Post-order of a depth-first walk over the reversed graph.
  std::vector<std::uint32_t> order, number(n + 1, kNoJoin);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack = {{exit, 0}};
  std::vector<bool> seen(n + 1, false);
  seen[exit] = true;
  while (!stack.empty()) {
    auto& [node, edge] = stack.back();
    if (edge < up[node].size()) {
      const std::uint32_t to = up[node][edge++];
      if (!seen[to]) {
        seen[to] = true;
        stack.emplace_back(to, 0);
      }
    } else {
      number[node] = static_cast<std::uint32_t>(order.size());
      order.push_back(node);
      stack.pop_back();
    }
  }
  std::vector<std::uint32_t> dom(n + 1, kNoJoin);
  dom[exit] = exit;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t k = order.size(); k-- > 0;) {
      const std::uint32_t b = order[k];
      if (b == exit) continue;
      std::uint32_t best = kNoJoin;
      auto meet = [&](std::uint32_t s) {
        if (number[s] == kNoJoin || dom[s] == kNoJoin) return;
        if (best == kNoJoin) {
          best = s;
          return;
        }
        std::uint32_t x = best, y = s;
        while (x != y) {
          while (number[x] < number[y]) x = dom[x];
          while (number[y] < number[x]) y = dom[y];
        }
        best = x;
      };
      for (std::uint32_t s : next[b]) meet(s);
      if (to_exit[b]) meet(exit);
      if (best != dom[b]) {
        dom[b] = best;
        changed = true;
      }
    }
  }
  return dom;
}

namespace {

bool ends_thread(const Instr& i) {
  return i.flow == Flow::ret || i.flow == Flow::exit || i.flow == Flow::trap;
}

// Does it end the whole launch? A failed assertion never returns; nvcc puts nothing behind its call.
bool ends_launch(const Instr& i, const std::vector<CallSite>& calls) {
  if (i.guard.valid()) return false;
  return i.flow == Flow::trap || (i.flow == Flow::call && calls[i.site].builtin == "__assertfail");
}

// Blocks whose every way leads to the end of the launch.
std::vector<bool> doomed_blocks(const std::vector<Instr>& code,
                                const std::vector<BasicBlock>& blocks,
                                const std::vector<bool>& to_exit,
                                const std::vector<CallSite>& calls) {
  std::vector<bool> doomed(blocks.size(), false);
  for (std::size_t b = 0; b < blocks.size(); ++b)
    doomed[b] = std::any_of(code.begin() + blocks[b].first, code.begin() + blocks[b].last + 1,
                            [&](const Instr& i) { return ends_launch(i, calls); });
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t b = blocks.size(); b-- > 0;) {
      const auto& next = blocks[b].next;
      if (doomed[b] || to_exit[b] || next.empty()) continue;
      if (!std::all_of(next.begin(), next.end(), [&](auto s) { return doomed[s]; })) continue;
      doomed[b] = changed = true;
    }
  }
  return doomed;
}

// Where the lanes of each block's branch meet again. A lane that ends on the way is not waited for,
// so an early return or an assertion must not move the meeting point to the end of the function, as
// plain post-dominance would: edges that end the thread at once, or the launch, are left out. Blocks
// that then lead nowhere (a loop whose only way out is a return) get theirs back, the last in the text
// first.
std::vector<std::uint32_t> meeting_points(const std::vector<Instr>& code,
                                          std::vector<BasicBlock> blocks, std::vector<bool> to_exit,
                                          const std::vector<CallSite>& calls) {
  const std::vector<bool> doomed = doomed_blocks(code, blocks, to_exit, calls);
  const auto n = static_cast<std::uint32_t>(blocks.size());
  std::vector<std::vector<std::uint32_t>> cut(n), before(n);
  std::vector<bool> cut_exit(n, false), leads_out(n, false);
  for (std::uint32_t b = 0; b < n; ++b) {
    auto ends = [&](std::uint32_t next) {
      const Instr& first = code[blocks[next].first];
      return doomed[next] || (ends_thread(first) && !first.guard.valid());
    };
    auto& next = blocks[b].next;
    if (!std::all_of(next.begin(), next.end(), ends)) {
      std::copy_if(next.begin(), next.end(), std::back_inserter(cut[b]), ends);
      std::erase_if(next, ends);
      cut_exit[b] = to_exit[b];
      to_exit[b] = false;
    }
    for (std::uint32_t s : next) before[s].push_back(b);
  }
  auto mark = [&](std::uint32_t start) {
    std::vector<std::uint32_t> todo = {start};
    leads_out[start] = true;
    while (!todo.empty()) {
      const std::uint32_t b = todo.back();
      todo.pop_back();
      for (std::uint32_t p : before[b])
        if (!leads_out[p]) {
          leads_out[p] = true;
          todo.push_back(p);
        }
    }
  };
  for (std::uint32_t b = 0; b < n; ++b)
    if (to_exit[b] && !leads_out[b]) mark(b);
  for (std::uint32_t b = n; b-- > 0;) {
    if (leads_out[b] || (cut[b].empty() && !cut_exit[b])) continue;
    blocks[b].next.insert(blocks[b].next.end(), cut[b].begin(), cut[b].end());
    to_exit[b] = cut_exit[b];
    mark(b);
  }
  std::vector<std::vector<std::uint32_t>> next;
  for (BasicBlock& block : blocks) next.push_back(std::move(block.next));
  return post_dominators(next, to_exit);
}

}  // namespace

std::vector<Instr> insert_joins(std::vector<Instr> code,
                                std::vector<std::vector<std::uint32_t>>& tables,
                                const std::vector<CallSite>& calls) {
  const auto n = static_cast<std::uint32_t>(code.size());
  // Blocks.
  std::vector<bool> starts(n + 1, false);
  starts[0] = true;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (code[i].flow == Flow::branch) starts[std::min(code[i].target, n)] = true;
    if (code[i].flow == Flow::branch_table)
      for (std::uint32_t t : tables[code[i].target]) starts[std::min(t, n)] = true;
    if (ends_block(code[i])) starts[i + 1] = true;
  }
  std::vector<std::uint32_t> block_of(n + 1);
  std::vector<BasicBlock> blocks;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (starts[i]) {
      if (!blocks.empty()) blocks.back().last = i - 1;
      blocks.emplace_back();
      blocks.back().first = i;
    }
    block_of[i] = static_cast<std::uint32_t>(blocks.size() - 1);
  }
  blocks.back().last = n - 1;
  std::vector<bool> to_exit(blocks.size(), false);
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    const Instr& last = code[blocks[b].last];
    auto edge = [&](std::uint32_t target) {
      if (target >= n)
        to_exit[b] = true;
      else
        blocks[b].next.push_back(block_of[target]);
    };
    const bool conditional = last.guard.valid();
    switch (last.flow) {
      case Flow::branch:
        edge(last.target);
        if (conditional) edge(blocks[b].last + 1);
        break;
      case Flow::branch_table:
        for (std::uint32_t t : tables[last.target]) edge(t);
        if (conditional) edge(blocks[b].last + 1);
        break;
      case Flow::ret:
      case Flow::exit:
      case Flow::trap:
        to_exit[b] = true;
        if (conditional) edge(blocks[b].last + 1);
        break;
      default:
        edge(blocks[b].last + 1);
    }
  }
  const std::vector<std::uint32_t> dom = meeting_points(code, blocks, to_exit, calls);

  // Which blocks get a join, then the new places.
  std::vector<bool> join_before(n + 1, false);
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    Instr& last = code[blocks[b].last];
    if (last.flow != Flow::branch && last.flow != Flow::branch_table) continue;
    if (last.flow == Flow::branch && !last.guard.valid()) continue;
    if (dom[b] == kNoJoin || dom[b] == blocks.size()) continue;
    join_before[blocks[dom[b]].first] = true;
  }
  for (std::uint32_t i = 0; i < n; ++i)
    if (code[i].flow == Flow::call) join_before[i + 1] = true;
  // The new index of each instruction, or of the join in front of it if there is one.
  std::vector<std::uint32_t> place(n + 1);
  std::uint32_t next = 0;
  for (std::uint32_t i = 0; i <= n; ++i) {
    place[i] = next;
    next += join_before[i] ? 2 : 1;
  }
  std::vector<Instr> result;
  result.reserve(next);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (join_before[i]) {
      Instr join;
      join.flow = Flow::join;
      join.op_class = OpClass::control;
      join.location = code[i].location;
      join.ptx_line = code[i].ptx_line;
      result.push_back(join);
    }
    Instr instr = code[i];
    instr.reconverge = kNoJoin;
    if (instr.flow == Flow::branch) instr.target = place[instr.target];
    if (instr.flow == Flow::branch || instr.flow == Flow::branch_table) {
      const std::uint32_t d = dom[block_of[i]];
      if (d != kNoJoin && d != blocks.size() && join_before[blocks[d].first])
        instr.reconverge = place[blocks[d].first];
    }
    result.push_back(instr);
  }
  for (auto& table : tables)
    for (std::uint32_t& t : table) t = place[t];
  for (std::uint32_t i = 0; i < result.size(); ++i) result[i].pc = i;
  return result;
}

}  // namespace vgpu
