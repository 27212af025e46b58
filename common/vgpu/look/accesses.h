// Who touches what in one block of a launch, for the page: of each memory instruction the first
// executions by several warps.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../core/observer.h"

namespace vgpu::look {

// What is kept for an instruction: the first executions of the warps that come to it first.
inline constexpr std::size_t kKeptWarps = 8, kKeptExecutions = 12;

struct AccessInstruction {
  std::uint32_t ptx_line = 0;
  Space space = Space::global;
  std::string_view kind;       // "load", "store", "atomic", "async" (cp.async), "bulk", "operand"
  std::uint32_t bytes = 0;     // bytes per lane; 0: each access has its own
  std::uint64_t executed = 0;  // by all warps of the block
  std::vector<std::string> rows;  // JSON objects, most useful first
};

struct BlockAccesses {
  std::uint64_t block = 0;                      // number in the grid
  std::uint64_t executed = 0;                   // accesses of all instructions
  std::vector<AccessInstruction> instructions;  // in the order of their first execution
};

// An observer of this block alone, which fills `into` when the launch ends.
std::unique_ptr<Observer> watch_block(std::shared_ptr<BlockAccesses> into);

// How many rows each instruction may show of `most` in all: as many as it has, or a fair share.
std::vector<std::size_t> fair_shares(const std::vector<AccessInstruction>& of, std::size_t most);

}  // namespace vgpu::look
