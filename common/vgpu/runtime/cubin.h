// What ptxas decided about the kernels of a cubin (an ELF file): registers, stack, shared memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace vgpu::runtime {

struct CubinKernel {
  int registers = 0;     // per thread; 0 unknown
  int local_bytes = -1;  // stack of a thread, with that of the functions it calls; -1 unknown
  int shared_bytes = 0;  // static, without the bytes the system reserves
};

// By mangled kernel name. Empty when the bytes are not a cubin that can be read.
std::map<std::string, CubinKernel, std::less<>> read_cubin(std::span<const std::byte> elf);

// Bytes of an ELF file in memory, from its section and program headers.
std::uint64_t elf_size(const std::byte* code);

}  // namespace vgpu::runtime
