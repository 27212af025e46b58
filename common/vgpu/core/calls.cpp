// Calls of functions, and returns.
#include <algorithm>
#include <bit>
#include <cstring>

#include "block.h"
#include "lanes.h"
#include "warp.h"

namespace vgpu {
namespace {

constexpr std::uint32_t kMaxCallDepth = 4096;
constexpr std::uint64_t kMostFrameBytes = 256ull
                                          << 20;  // registers of all calls in flight, a host thread

Ref<Frame> make_frame(const Function& function) {
  Ref<Frame> frame(new Frame);
  frame->function = &function;
  const std::size_t areas = std::size_t{kWarpSize} * function.call_area_bytes;
  frame->storage = std::make_unique<std::byte[]>(function.register_bytes + areas + 64);
  const auto start = reinterpret_cast<std::uintptr_t>(frame->storage.get());
  frame->bytes = function.register_bytes + areas;
  frame->registers = frame->storage.get() + ((start + 63) / 64 * 64 - start);
  frame->call_area = frame->registers + function.register_bytes;
  return frame;
}

}  // namespace

void Warp::enter_call(Fragment& f, const Instr& instr, std::uint32_t mask) {
  const CallSite& site = f.frame->function->calls[instr.site];
  const Function* callee = site.callee;
  Launch& launch = block->launch;
  if (!callee) {  // through a pointer: the lanes of one target now, the others come back for theirs
    const std::uint64_t* pointer = lanes<std::uint64_t>(site.pointer);
    const int first = std::countr_zero(mask);
    std::uint32_t same = 0;
    each_lane(mask,
              [&](int lane) { same |= std::uint32_t{pointer[lane] == pointer[first]} << lane; });
    callee = launch.function_at(pointer[first]);
    if (!callee)
      throw Fault{FaultKind::illegal_instruction,
                  describe(*this, instr, first, "call of an address that is no function")};
    if (same != mask) {
      Fragment later = f;  // runs the call again, for the lanes that are left
      Ref<Join> join(new Join);
      join->pc = f.pc + 1;
      join->frame = f.frame;
      join->pending = f.mask;
      join->parent = f.join;
      if (f.frame->counts)
        f.frame->counts[f.pc].lanes -= static_cast<std::uint32_t>(std::popcount(mask & ~same));
      const std::uint32_t skipped = f.mask & ~mask;
      join->arrived = skipped;
      join->pending &= ~skipped;
      f.join = join;
      later.join = join;
      later.mask = mask & ~same;
      f.mask = same;
      mask = same;
      const std::size_t index = static_cast<std::size_t>(&f - fragments.data());
      fragments.push_back(std::move(later));
      return enter_call(fragments[index], instr, mask);
    }
  }
  if (callee->entry)
    throw Fault{FaultKind::illegal_instruction,
                describe(*this, instr, std::countr_zero(mask),
                         "call of " + callee->display + ", which is a kernel")};
  const Function& function = callee->code.empty() ? *launch.prepare(callee) : *callee;
  if (f.frame->depth + 1 > kMaxCallDepth)
    throw Fault{FaultKind::stack_overflow,
                describe(*this, instr, std::countr_zero(mask),
                         "calls nested deeper than " + std::to_string(kMaxCallDepth))};
  Ref<Join> join(new Join);
  join->pc = f.pc + 1;
  join->frame = f.frame;
  join->arrived = f.mask & ~mask;
  join->pending = mask;
  join->parent = f.join;
  Ref<Frame> inner = make_frame(function);
  inner->account = &worker->frame_bytes;
  if ((worker->frame_bytes += inner->bytes) > kMostFrameBytes)
    throw Fault{FaultKind::stack_overflow,
                describe(*this, instr, std::countr_zero(mask),
                         "the registers of calls take more than " +
                             std::to_string(kMostFrameBytes >> 20) + " MiB")};
  inner->caller = f.frame;
  inner->call = &instr;
  inner->depth = f.frame->depth + 1;
  inner->local_base = f.frame->local_base + f.frame->function->local_bytes;
  if (inner->local_base + function.local_bytes > local_capacity)
    throw Fault{
        FaultKind::stack_overflow,
        describe(
            *this, instr, std::countr_zero(mask),
            "stack overflow: " + std::to_string(inner->local_base + function.local_bytes) +
                " bytes of local memory, and a thread has " + std::to_string(local_capacity) +
                " (recursion and calls through pointers get what cudaLimitStackSize says: raise "
                "it with cudaDeviceSetLimit, or call less deeply)")};
  FunctionState& state = worker->state_of(function);
  inner->counts = worker->counting ? state.counts.data() : nullptr;
  inner->sites = state.sites.data();
  // Arguments: results come first among a function's .param variables, then its parameters.
  std::uint32_t offset = 0;
  std::vector<std::uint32_t> to;
  for (const auto* list : {&function.results, &function.params})
    for (const Param& p : *list) {
      offset = (offset + std::max(1u, p.align) - 1) / std::max(1u, p.align) * std::max(1u, p.align);
      if (list == &function.params) to.push_back(offset);
      offset += p.size;
    }
  if (to.size() != site.args.size() || function.results.size() != site.results.size())
    throw Fault{FaultKind::illegal_instruction,
                describe(*this, instr, std::countr_zero(mask),
                         "call of " + function.display + " with other parameters than it has")};
  each_lane(mask, [&](int lane) {
    for (std::size_t i = 0; i < to.size(); ++i)
      std::memcpy(inner->call_area + lane * function.call_area_bytes + to[i],
                  f.frame->call_area + lane * f.frame->function->call_area_bytes + site.args[i],
                  std::min(site.arg_sizes[i], function.params[i].size));
  });
  f.join = std::move(join);
  f.frame = std::move(inner);
  f.mask = mask;
  f.pc = 0;
}

void Warp::leave_call(std::size_t current, std::uint32_t mask) {
  Ref<Frame> inner = fragments[current].frame;
  Ref<Frame> outer = inner->caller;
  const Function& function = *inner->function;
  const CallSite& site = outer->function->calls[inner->call->site];
  std::uint32_t offset = 0;
  for (std::size_t i = 0; i < function.results.size(); ++i) {
    const Param& p = function.results[i];
    offset = (offset + std::max(1u, p.align) - 1) / std::max(1u, p.align) * std::max(1u, p.align);
    each_lane(mask, [&](int lane) {
      std::memcpy(outer->call_area + lane * outer->function->call_area_bytes + site.results[i],
                  inner->call_area + lane * function.call_area_bytes + offset,
                  std::min(site.result_sizes[i], p.size));
    });
    offset += p.size;
  }
  fragments[current].mask &= ~mask;
  Ref<Join> join = fragments[current].join;
  const Fragment left = fragments[current];
  while (join && !(join->frame.get() == outer.get() && join->pc == inner->call->pc + 1)) {
    join->pending &= ~mask;
    complete_join(join, left);
    join = Ref<Join>(join->parent);
  }
  if (!join) {  // released early: these lanes go on by themselves
    Fragment f;
    f.pc = inner->call->pc + 1;
    f.mask = mask;
    f.frame = outer;
    fragments.push_back(std::move(f));
    return;
  }
  join->arrived |= mask;
  join->pending &= ~mask;
  Fragment came = left;
  if (join->pending) join->take_turn(came);
  complete_join(join, came);
}

}  // namespace vgpu
