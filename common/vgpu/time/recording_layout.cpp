// What each PTX line of a kernel does, and its basic blocks: the layout of its recordings.
#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>
#include <vector>

#include "../core/block.h"
#include "../core/instruction_set.h"
#include "../core/spelling.h"
#include "recording.h"
#include "telling.h"

namespace vgpu::time {
namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view b) { return name.starts_with(b); });
}

MemoryEvent::Mbarrier mbarrier_of(std::string_view name) {
  using enum MemoryEvent::Mbarrier;
  if (name.starts_with("mbarrier.init")) return init;
  if (name.starts_with("mbarrier.expect_tx")) return expect;
  if (name.starts_with("mbarrier.complete_tx")) return complete;
  if (name.starts_with("mbarrier.arrive"))
    return has_modifier(name, "expect_tx") ? arrive_expect : arrive;
  if (starts_with_any(name, {"mbarrier.try_wait", "mbarrier.test_wait"})) return wait;
  if (name.starts_with("cp.async.mbarrier")) return arrive;
  return none;
}

Layout::Line describe(const Function& function, const Instr& instr) {
  Layout::Line line;
  line.name = dotted_name(function, instr);
  line.instr = &instr;
  line.role = Layout::Role::plain;
  line.calls = instr.flow == Flow::call && function.calls[instr.site].callee;
  if (instr.flow == Flow::branch || instr.flow == Flow::branch_table) {
    if (instr.guard.valid() || instr.flow == Flow::branch_table) line.role = Layout::Role::branch;
    line.indirect = instr.flow == Flow::branch_table;
    return line;
  }
  if ((instr.flow == Flow::exit || instr.flow == Flow::ret) && instr.guard.valid()) {
    line.role = Layout::Role::branch;
    return line;
  }
  line.mbarrier = mbarrier_of(line.name);
  if (line.mbarrier != MemoryEvent::Mbarrier::none) {
    line.role = Layout::Role::mbarrier;
    line.polls = line.mbarrier == MemoryEvent::Mbarrier::wait;
  } else if (instr.flow == Flow::barrier) {
    line.role = Layout::Role::barrier;
  } else if ((instr.op_class == OpClass::memory || instr.op_class == OpClass::atomic) &&
             instr.space != Space::param && instr.space != Space::constant) {
    line.role = Layout::Role::memory;
    line.atomic = instr.op_class == OpClass::atomic;
    line.guarded = instr.guard.valid();
    line.bypasses_l1 = bypasses_l1(line.name) || line.atomic;
    line.polls = line.name.starts_with("ld") &&
                 (has_modifier(line.name, "volatile") || has_modifier(line.name, "acquire") ||
                  has_modifier(line.name, "relaxed"));
  }
  return line;
}

// Basic blocks of the PTX code, numbered over all functions.
void find_blocks(const Function& f, Layout& layout) {
  const auto jumps = [](const Instr& i) {
    return i.flow == Flow::branch || i.flow == Flow::branch_table || i.flow == Flow::ret ||
           i.flow == Flow::exit;
  };
  std::vector<bool> leads(f.code.size() + 1);
  if (!f.code.empty()) leads[0] = true;
  for (std::size_t i = 0; i < f.code.size(); ++i) {
    const Instr& instr = f.code[i];
    if (instr.flow == Flow::branch) leads[instr.target] = true;
    if (jumps(instr)) leads[i + 1] = true;
  }
  for (const auto& table : f.tables)
    for (const std::uint32_t target : table) leads[target] = true;
  const auto base = static_cast<std::uint32_t>(layout.next.size());
  std::vector<std::uint32_t> block(f.code.size() + 1);
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < f.code.size(); ++i) {
    if (leads[i]) ++count;
    block[i] = base + count - 1;
  }
  block[f.code.size()] = base + count;  // behind the end
  layout.next.resize(base + count + 1);
  for (std::size_t i = 0; i < f.code.size(); ++i) {
    const Instr& instr = f.code[i];
    auto& next = layout.next[block[i]];
    const bool last = leads[i + 1] || i + 1 == f.code.size();
    if (instr.flow == Flow::branch) next.push_back(block[instr.target]);
    if (instr.flow == Flow::branch_table)
      for (const std::uint32_t target : f.tables[instr.target]) next.push_back(block[target]);
    if (last && (!jumps(instr) || instr.guard.valid())) next.push_back(block[i + 1]);
    if (instr.flow == Flow::join || !instr.ptx_line) continue;
    Layout::Line& line = layout.lines[instr.ptx_line - layout.first];
    line.block = block[i];
    if (!jumps(instr)) continue;
    line.taken = block[instr.flow == Flow::branch ? instr.target : f.code.size()];
    line.falls = block[i + 1];
  }
}

// Registers that anything in a function reads, by Slot::bits.
std::set<std::uint32_t> registers_read(const Function& f) {
  std::set<std::uint32_t> read;
  for (const Instr& instr : f.code) {
    for (const Slot slot :
         {instr.guard, instr.a, instr.b, instr.c, instr.e, instr.address, instr.address2})
      read.insert(slot.bits);
    for (std::size_t k = instr.list_results; k < instr.list_count; ++k) read.insert(instr.list[k]);
    if (instr.flow == Flow::call) read.insert(f.calls[instr.site].pointer.bits);
  }
  return read;
}

bool assigns(const Instr& instr, std::uint32_t slot) {
  const auto end = instr.list + instr.list_results;
  return instr.d[0].bits == slot || instr.d[1].bits == slot ||
         std::find(instr.list, end, slot) != end;
}

// Bytes that loads of one PTX block have in registers, for as long as memory and their address stay as
// they are.
struct Loaded {
  struct Bytes {
    Space space;
    std::uint32_t address;  // the base register, Slot::bits
    std::int64_t at;
    bool operator==(const Bytes&) const = default;
  };
  std::vector<Bytes> plain, read_only;  // read_only: by ld.global.nc
};

// How many bytes of a lane machine code has to load for this one: not the elements that nothing reads,
// nor what a load of this block has brought.
std::uint32_t least_bytes(const Instr& instr, std::uint32_t bytes,
                          const std::set<std::uint32_t>& read, Loaded& loaded) {
  const std::size_t elements = instr.list_results ? instr.list_results : 1;
  const auto each = static_cast<std::int64_t>(bytes / elements);
  auto& here = instr.non_coherent ? loaded.read_only : loaded.plain;
  std::uint32_t least = 0;
  for (std::size_t k = 0; k < elements; ++k) {
    if (!read.contains(instr.list_results ? instr.list[k] : instr.d[0].bits)) continue;
    for (std::int64_t i = 0; i < each; ++i) {
      const Loaded::Bytes byte = {instr.space, instr.address.bits,
                                  instr.imm + static_cast<std::int64_t>(k) * each + i};
      if (std::find(here.begin(), here.end(), byte) != here.end()) continue;
      ++least;
      if (!instr.guard.valid()) here.push_back(byte);
    }
  }
  return least;
}

void find_least_bytes(const Function& f, Layout& layout) {
  const std::set<std::uint32_t> read = registers_read(f);
  Loaded loaded;
  std::uint32_t block = ~0u;
  for (const Instr& instr : f.code) {
    if (instr.flow == Flow::join || !instr.ptx_line) continue;
    Layout::Line& line = layout.lines[instr.ptx_line - layout.first];
    if (line.block != block) loaded = {};
    block = line.block;
    if (line.instr == &instr) {
      line.least_bytes = lane_bytes(line.name);
      if (line.name.starts_with("ld.") && line.role == Layout::Role::memory && !line.polls)
        line.least_bytes = least_bytes(instr, line.least_bytes, read, loaded);
    }
    const bool changes_memory = (is_memory(instr.flow) && !line.name.starts_with("ld.")) ||
                                line.polls || instr.flow == Flow::barrier ||
                                instr.flow == Flow::warp_sync || instr.flow == Flow::call;
    if (changes_memory) loaded.plain.clear();
    for (auto* bytes : {&loaded.plain, &loaded.read_only})
      std::erase_if(*bytes, [&](const Loaded::Bytes& byte) {
        return byte.address != Slot::kNone && assigns(instr, byte.address);
      });
  }
}

}  // namespace

void Recorder::lay_out(const Launch& launch) {
  Layout& layout = recording_->layout;
  std::vector<const Function*> functions = {launch.request.function};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const Function& f = *functions[i];
    if (f.calls_indirectly) recording_->why = "it calls functions through pointers";
    for (const CallSite& site : f.calls)
      if (site.callee &&
          std::find(functions.begin(), functions.end(), site.callee) == functions.end())
        functions.push_back(site.callee);
  }
  std::uint32_t last = 0;
  layout.first = ~0u;
  for (const Function* f : functions)
    for (const Instr& instr : f->code) {
      if (!instr.ptx_line || instr.flow == Flow::join) continue;
      layout.first = std::min(layout.first, instr.ptx_line);
      last = std::max(last, instr.ptx_line);
    }
  if (!last) {
    recording_->why = "its PTX has no lines";
    return;
  }
  layout.lines.resize(last - layout.first + 1);
  for (const Function* f : functions)
    for (const Instr& instr : f->code) {
      if (!instr.ptx_line || instr.flow == Flow::join) continue;
      Layout::Line& line = layout.lines[instr.ptx_line - layout.first];
      if (line.role != Layout::Role::none) continue;  // a second statement of the line
      line = describe(*f, instr);
      line.ordinal = layout.ordinals++;
      if (line.role == Layout::Role::branch) line.slot = layout.branches++;
      if (line.role >= Layout::Role::memory) line.slot = layout.events++;
      layout.global_atomics |= line.atomic && instr.space != Space::shared;
    }
  for (const Function* f : functions) {
    find_blocks(*f, layout);
    find_least_bytes(*f, layout);
  }
}

}  // namespace vgpu::time
