// Branches and calls; and whether the order of blocks may decide what a function gives.
#include "decoder.h"

#include <algorithm>
#include <set>

#include "../core/specials.h"

namespace vgpu {
namespace {

// Functions of libcudadevrt, with which kernels launch kernels: __cudaCDP2LaunchDeviceV2.
bool is_device_runtime(std::string_view name) {
  return name.starts_with("__cudaCDP") ||
         (name.size() > 4 && name.starts_with("cuda") && name[4] >= 'A' && name[4] <= 'Z');
}

}  // namespace

std::uint32_t Decoder::label(std::string_view name) const {
  for (std::uint32_t scope = statement_->scope;; scope = body_.scope_parent[scope]) {
    const auto it = body_.labels[scope].find(name);
    if (it != body_.labels[scope].end()) return it->second;
    if (scope == 0) break;
  }
  fail("unknown label '" + std::string(name) + "'");
}

void Decoder::branch(Instr& instr) {
  if (statement_->operands.size() != 1 || statement_->operands[0].kind != Kind::symbol)
    fail("bra needs a label");
  branches_.emplace_back(static_cast<std::uint32_t>(code_.size()),
                         label(statement_->operands[0].name));
  code_.push_back(instr);
}

void Decoder::branch_table(Instr& instr) {
  const auto& given = statement_->operands;
  if (given.size() != 2 || given[1].kind != Kind::symbol)
    fail("brx.idx needs an index and a list of labels");
  const auto it = body_.branch_targets.find(given[1].name);
  if (it == body_.branch_targets.end()) fail("unknown list of branch targets");
  instr.a = source(given[0], Type::u32);
  if (given[0].kind == Kind::reg && width_of(given[0]) != 32)
    fail("the index of brx.idx needs a register of 32 bits");
  instr.target = static_cast<std::uint32_t>(fn_.tables.size());
  fn_.tables.emplace_back();
  for (std::string_view name : it->second) fn_.tables.back().push_back(label(name));
  code_.push_back(instr);
}

void Decoder::call(Instr& instr) {
  const auto& given = statement_->operands;
  std::size_t g = 0;
  CallSite site;
  auto areas = [&](const Operand& list, std::vector<std::uint32_t>& offsets,
                   std::vector<std::uint32_t>& sizes) {
    for (const Operand& o : list.parts) {
      if (o.kind == Kind::sink && &offsets == &site.results) {  // a result that nobody wants
        offsets.push_back(0);
        sizes.push_back(0);
        continue;
      }
      if (o.kind != Kind::variable || body_.variables[o.reg].space != Space::param)
        fail("arguments of a call are registers, numbers or .param variables");
      offsets.push_back(body_.variables[o.reg].offset);
      sizes.push_back(body_.variables[o.reg].size);
    }
  };
  if (g < given.size() && given[g].kind == Kind::list)
    areas(given[g++], site.results, site.result_sizes);
  if (g == given.size()) fail("call without a function");
  const Operand& target = given[g++];
  if (target.kind == Kind::reg) {
    if (width_of(target) != 64) fail("a call through a pointer needs a register of 64 bits");
    site.pointer = slots_[target.reg];
    fn_.calls_indirectly = true;
  } else if (target.kind == Kind::symbol) {
    const Function* callee = symbols_.function(target.name);
    if (!callee) fail("unknown function '" + std::string(target.name) + "'");
    if (callee->entry) fail("'" + callee->display + "' is a kernel, and a kernel cannot be called");
    const auto body = symbols_.parsed->bodies.find(callee->name);
    if (body == symbols_.parsed->bodies.end() || !body->second.has_body) {
      site.builtin = callee->name;
      if (is_device_runtime(site.builtin))
        fail("function '" + site.builtin +
             "' is of the CUDA device runtime: dynamic parallelism (kernels that launch kernels) "
             "is not supported by the virtual GPU");
      if (!is_builtin(site.builtin))
        fail("function '" + site.builtin +
             "' has no code in this module and is none that the virtual GPU provides");
    } else {
      site.callee = callee;
    }
  } else {
    fail("call of something that is no function");
  }
  if (g < given.size() && given[g].kind == Kind::list) areas(given[g++], site.args, site.arg_sizes);
  instr.site = static_cast<std::uint32_t>(fn_.calls.size());
  fn_.calls.push_back(std::move(site));
  code_.push_back(instr);
}

void Decoder::find_order_dependence() {
  std::set<std::uint32_t> read;  // slots that some instruction reads
  for (const Instr& i : fn_.code) {
    for (const Slot* slot : {&i.a, &i.b, &i.c, &i.e, &i.address, &i.guard})
      if (slot->valid()) read.insert(slot->bits);
    if (i.list && (!is_memory(i.flow) || !i.d[0].valid()))
      for (int k = 0; k < i.list_count; ++k) read.insert(i.list[k]);
  }
  for (const CallSite& site : fn_.calls) {
    if (site.pointer.valid()) read.insert(site.pointer.bits);
    if (!site.builtin.empty() && site.builtin != "__assertfail") fn_.order_matters = true;
  }
  for (Instr& i : fn_.code) {
    if (i.space != Space::global && i.space != Space::generic) continue;
    if (i.op_class == OpClass::atomic) {
      if (is_float(i.type) || i.variant)
        fn_.order_matters = true;  // variant: exchanges, the last one wins
      if (!i.d[0].valid() || i.d[0].bits == sink_.bits || !read.count(i.d[0].bits)) continue;
      fn_.order_matters = true;
      if (i.counter && in_loop(i.pc)) i.flow = Flow::fetch;
    } else if (i.op_class == OpClass::memory && i.volatile_ && i.d[0].valid()) {
      fn_.order_matters = true;
    }
  }
}

bool Decoder::in_loop(std::uint32_t pc) const {
  for (const Instr& i : fn_.code) {
    if (i.pc < pc) continue;
    if (i.flow == Flow::branch && i.target <= pc) return true;
    if (i.flow != Flow::branch_table) continue;
    for (const std::uint32_t target : fn_.tables[i.target])
      if (target <= pc) return true;
  }
  return false;
}

}  // namespace vgpu
