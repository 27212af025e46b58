// Words for memory errors: which access, how far from what, by whom.
#include <sys/mman.h>

#include <cstdio>

#include "../core/access.h"

namespace vgpu {
namespace {

// Which of the kernel's arguments points into an allocation.
struct Argument {
  std::string text;  // "argument 2"; "" when there is none
  std::string name;  // the parameter's, "" unknown; in a struct "name+8", bytes into it
};
// The first such argument: among pointers alone, or among structs that hold pointers.
Argument first_argument(const Launch& launch, const Allocation& allocation, bool structs) {
  const Function& function = *launch.request.function;
  for (std::size_t i = 0; i < function.params.size(); ++i) {
    const Param& param = function.params[i];
    if ((param.size > 8) != structs) continue;
    for (std::uint32_t at = 0; at + 8 <= param.size; at += 8) {
      if (param.offset + at + 8 > launch.params.size()) break;
      std::uint64_t value;
      std::memcpy(&value, launch.params.data() + param.offset + at, 8);
      if (value < allocation.base ||
          value >= allocation.base + std::max<std::uint64_t>(1, allocation.size))
        continue;
      Argument found{"argument " + std::to_string(i + 1), ""};
      if (i < function.param_names.size()) found.name = function.param_names[i];
      if (structs && !found.name.empty()) found.name += "+" + std::to_string(at);
      return found;
    }
  }
  return {};
}
// A pointer says more than a struct: unused bytes of a struct may hold what was on the host's stack.
Argument argument_of(const Launch& launch, const Allocation& allocation) {
  const Argument pointer = first_argument(launch, allocation, false);
  return pointer.text.empty() ? first_argument(launch, allocation, true) : pointer;
}

std::string verb(Access access) {
  return access == Access::load ? "read" : access == Access::store ? "write" : "atomic access";
}

std::string hexadecimal(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string count(std::uint64_t n, const char* unit) {
  return std::to_string(n) + " " + unit + (n == 1 ? "" : "s");
}

// Where an address was meant to be whose index, or a product in it, was too large for 32 bits: 2^32 elements
// of 1 to 16 bytes, or a few times 2^32 bytes, further on, in the upper part of a large allocation.
struct Wrapped {
  std::shared_ptr<Allocation> allocation;  // null: nowhere
  std::uint64_t offset = 0, gibibytes = 0;
};
Wrapped wrapped_from(const Launch& launch, std::uint64_t address, std::uint32_t bytes) {
  for (std::uint64_t turns = 1; turns <= 16; ++turns) {
    const std::uint64_t meant = address + (turns << 32);
    const auto allocation = launch.memory.find(meant);
    if (!allocation || meant - allocation->base < 1ull << 31 ||
        meant - allocation->base + bytes > allocation->size)
      continue;
    return {allocation, meant - allocation->base, 4 * turns};
  }
  return {};
}

// Is there anything of the host's own at this address?
bool host_has(std::uint64_t address) {
  unsigned char resident;
  return mincore(reinterpret_cast<void*>(address & ~4095ull), 1, &resident) == 0;
}

}  // namespace

std::string allocation_name(const Launch& launch, const Allocation& allocation) {
  if (!allocation.name.empty()) return allocation.name;
  const Argument argument = argument_of(launch, allocation);
  if (!argument.name.empty()) return argument.name;
  if (!argument.text.empty()) return argument.text;
  return "allocation " + std::to_string(allocation.id);
}

std::string allocation_text(const Launch& launch, const Allocation& allocation) {
  const Argument argument = argument_of(launch, allocation);
  const std::string& name = allocation.name.empty() ? argument.name : allocation.name;
  std::string text = name.empty() ? "of " : "'" + name + "' (";
  text += count(allocation.size, "byte");
  if (!argument.text.empty())
    text += name.empty() ? " (" + argument.text + ")" : ", " + argument.text;
  if (!name.empty()) text += ")";
  return text;
}

void report_misaligned(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                       std::uint32_t bytes, Access access, Space space) {
  throw Fault{FaultKind::misaligned,
              describe(warp, instr, lane,
                       "misaligned " + verb(access) + " of " + count(bytes, "byte") + " at " +
                           std::string(space_name(space)) + " address " + hexadecimal(address) +
                           ", which is no multiple of " + std::to_string(bytes))};
}

void report_no_block(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                     std::uint64_t bytes, Access access, int rank) {
  const Cluster& cluster = warp.block->cluster;
  std::string what =
      "out-of-bounds " + verb(access) + " of " + count(bytes, "byte") + " at offset " +
      std::to_string(address % kRankedBytes) + " of the shared memory of rank " +
      (rank < 254 ? std::to_string(rank) : "254 or above") + " of the cluster, which ";
  if (const Block* block = cluster.block(rank))
    what += "is block (" + std::to_string(block->index.x) + "," + std::to_string(block->index.y) +
            "," + std::to_string(block->index.z) +
            ") and has ended: a barrier of the cluster must keep it until then;";
  else
    what += "has " + count(cluster.blocks.size(), "block") + ", ranks from 0;";
  throw Fault{FaultKind::illegal_address, describe(warp, instr, lane, what + " access")};
}

void report_bad_access(Warp& warp, const Instr& instr, int lane, std::uint64_t address,
                       std::uint32_t bytes, Access access, Space space) {
  Launch& launch = warp.block->launch;
  const std::string what = verb(access) + " of " + count(bytes, "byte");
  auto fault = [&](FaultKind kind, const std::string& text) {
    throw Fault{kind, describe(warp, instr, lane, text)};
  };
  if (space != Space::global) {
    if ((space == Space::constant || (space == Space::param && !instr.frame_local)) &&
        access != Access::load)
      fault(FaultKind::address_space,
            what + " to read-only " + std::string(space_name(space)) + " memory");
    const std::uint64_t size = space == Space::shared     ? launch.shared_bytes
                               : space == Space::local    ? warp.local_capacity
                               : space == Space::constant ? launch.constant_bytes
                               : instr.frame_local        ? warp.frame->function->call_area_bytes
                                                          : launch.params.size();
    const std::string owner = space == Space::shared     ? "the block's shared memory"
                              : space == Space::local    ? "the thread's local memory"
                              : space == Space::constant ? "the module's constant memory"
                              : instr.frame_local        ? "the parameters of a call"
                                                         : "the kernel's arguments";
    const std::uint64_t past = address >= size ? address - size : 0;
    fault(FaultKind::illegal_address,
          "out-of-bounds " + what + " at offset " + std::to_string(address) + ", " +
              (address >= size ? count(past, "byte") + " past" : "across the end of") + " " +
              owner + " (" + count(size, "byte") + ")");
  }
  if (address < 65536)
    fault(FaultKind::illegal_address,
          address == 0 ? "null pointer: " + what + " at address 0"
                       : "null pointer: " + what + " at address " + hexadecimal(address));
  const auto in_window = [&](std::uint64_t window, std::uint64_t size) {
    return address - window < size;
  };
  for (auto [window, name] : {std::pair{kSharedWindow, "shared"},
                              {kLocalWindow, "local"},
                              {kConstantWindow, "constant"},
                              {kParamWindow, "param"}})
    if (in_window(window, 1ull << 32))
      fault(FaultKind::address_space,
            what + " of ." + name + " memory by an instruction for global memory");
  if (const Wrapped wrapped = wrapped_from(launch, address, bytes); wrapped.allocation) {
    const std::string text = allocation_text(launch, *wrapped.allocation);
    fault(FaultKind::illegal_address,
          "out-of-bounds " + what + " at " + hexadecimal(address) + ", " +
              std::to_string(wrapped.gibibytes) + " GiB before byte " +
              std::to_string(wrapped.offset) + " of allocation " + text +
              ": an index or a product of 32 bits has wrapped (compute it in 64 bits, as size_t)");
  }
  // What the program has named or given to the kernel was meant rather than a neighbour.
  const auto known = [&](const Allocation& a) {
    return a.kind != MemoryKind::global_variable && a.kind != MemoryKind::heap &&
           (!a.name.empty() || !argument_of(launch, a).text.empty());
  };
  if (const auto a = launch.memory.nearest(address, known)) {
    const std::uint64_t end = a->base + a->size;
    const std::string text = allocation_text(launch, *a);
    const std::string named = (text.starts_with("of ") ? "an allocation " : "allocation ") + text;
    if (a->freed && address >= a->base && address < end)
      fault(FaultKind::illegal_address, "use after free: " + what + ", " +
                                            count(address - a->base, "byte") + " into freed " +
                                            "allocation " + text);
    if (!a->freed && address >= a->base && address < end)
      fault(FaultKind::illegal_address, "out-of-bounds " + what + ", across the end of " + named);
    if (!a->freed && address >= end)
      fault(FaultKind::illegal_address,
            "out-of-bounds " + what + ", " + count(address - end, "byte") + " past " + named);
    if (!a->freed && address < a->base)
      fault(FaultKind::illegal_address,
            "out-of-bounds " + what + ", " + count(a->base - address, "byte") + " before " + named);
  }
  if (launch.machine.variable_at)
    if (const std::string name = launch.machine.variable_at(address); !name.empty())
      fault(FaultKind::illegal_address,
            "host pointer: " + what + " at " + hexadecimal(address) + ", which '" + name +
                "' means on the host, and not the device's variable (pass the address that "
                "cudaGetSymbolAddress gives, or use the name in the kernel)");
  if (address - kDeviceRange >= kDeviceRangeSize && host_has(address))
    fault(FaultKind::illegal_address,
          "host pointer: " + what + " at " + hexadecimal(address) +
              ", which is ordinary host memory (cudaMalloc or cudaMallocManaged it, or copy it)");
  fault(FaultKind::illegal_address,
        "out-of-bounds " + what + " at " + hexadecimal(address) + ", in no allocation");
  __builtin_unreachable();
}

}  // namespace vgpu
