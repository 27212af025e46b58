// Reads kernel resources from a cubin: section .nv.info holds attributes by symbol, .nv.shared.NAME
// has the size of static shared memory. Malformed input gives fewer facts, never a fault.
#include "cubin.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "../core/elf.h"

namespace vgpu::runtime {
namespace {

constexpr int kReservedShared = 1024;  // in .nv.shared.NAME from sm_90 on

}  // namespace

std::map<std::string, CubinKernel, std::less<>> read_cubin(std::span<const std::byte> bytes) {
  std::map<std::string, CubinKernel, std::less<>> kernels;
  const Elf elf(bytes);

  // Kernels are the functions with parameters of their own: .nv.info.NAME exists for these alone.
  constexpr std::string_view kInfo = ".nv.info.", kShared = ".nv.shared.";
  for (const Elf64_Shdr& section : elf.sections())
    if (elf.name(section).starts_with(kInfo))
      kernels[std::string(elf.name(section).substr(kInfo.size()))];

  for (const Elf64_Shdr& section : elf.sections()) {
    const std::string_view name = elf.name(section);
    if (!name.starts_with(kShared)) continue;
    const auto kernel = kernels.find(name.substr(kShared.size()));
    if (kernel == kernels.end() || section.sh_size > 1u << 30) continue;
    const int size = static_cast<int>(section.sh_size);
    kernel->second.shared_bytes = elf.arch() >= 90 ? std::max(0, size - kReservedShared) : size;
  }
  const auto symbols = elf.symbols();
  for (const Elf::Attribute& attribute : elf.attributes(symbols)) {
    const auto kernel = kernels.find(attribute.kernel);
    if (kernel == kernels.end() || attribute.value >= 1u << 30) continue;
    const int value = static_cast<int>(attribute.value);
    if (attribute.kind == Elf::kRegisterCount) kernel->second.registers = value;
    if (attribute.kind == Elf::kFrameSize || attribute.kind == Elf::kMinStackSize)
      kernel->second.local_bytes = std::max(kernel->second.local_bytes, value);
  }
  return kernels;
}

std::uint64_t elf_size(const std::byte* code) {
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof header);
  const std::uint64_t sections =
      header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
  const std::uint64_t segments =
      header.e_phoff + std::uint64_t{header.e_phnum} * header.e_phentsize;
  return std::max({sections, segments, std::uint64_t{sizeof header}});
}

}  // namespace vgpu::runtime
