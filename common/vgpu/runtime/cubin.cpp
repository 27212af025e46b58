// Reads kernel resources from a cubin: section .nv.info holds attributes by symbol, .nv.shared.NAME
// has the size of static shared memory. Malformed input gives fewer facts, never a fault.
#include "cubin.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "../core/elf.h"

namespace vgpu::runtime {
namespace {

// Attributes of .nv.info: u8 format, u8 attribute, then format 4: u16 size and that many bytes.
constexpr std::uint8_t kFormatSized = 4;
constexpr std::uint8_t kFrameSize = 0x11, kMinStackSize = 0x12, kRegisterCount = 0x2f;
constexpr int kReservedShared = 1024;  // in .nv.shared.NAME from sm_90 on

}  // namespace

std::map<std::string, CubinKernel, std::less<>> read_cubin(std::span<const std::byte> bytes) {
  std::map<std::string, CubinKernel, std::less<>> kernels;
  const Elf elf(bytes);

  std::vector<std::string_view> symbols;
  for (const Elf64_Shdr& section : elf.sections()) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= elf.sections().size()) continue;
    const auto table = elf.content(section);
    const auto names = elf.content(elf.sections()[section.sh_link]);
    for (std::size_t i = 0; i + sizeof(Elf64_Sym) <= table.size(); i += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, table.data() + i, sizeof symbol);
      symbols.push_back(Elf::text(names, symbol.st_name));
    }
    break;
  }
  // Kernels are the functions with parameters of their own: .nv.info.NAME exists for these alone.
  constexpr std::string_view kInfo = ".nv.info.", kShared = ".nv.shared.";
  for (const Elf64_Shdr& section : elf.sections())
    if (elf.name(section).starts_with(kInfo))
      kernels[std::string(elf.name(section).substr(kInfo.size()))];

  for (const Elf64_Shdr& section : elf.sections()) {
    const std::string_view name = elf.name(section);
    if (name.starts_with(kShared)) {
      const auto kernel = kernels.find(name.substr(kShared.size()));
      if (kernel == kernels.end() || section.sh_size > 1u << 30) continue;
      const int size = static_cast<int>(section.sh_size);
      kernel->second.shared_bytes = elf.arch() >= 90 ? std::max(0, size - kReservedShared) : size;
    } else if (name == ".nv.info") {
      const auto info = elf.content(section);
      for (std::size_t at = 0; at + 4 <= info.size();) {
        const auto format = static_cast<std::uint8_t>(info[at]);
        const auto attribute = static_cast<std::uint8_t>(info[at + 1]);
        std::uint16_t size;
        std::memcpy(&size, info.data() + at + 2, sizeof size);
        at += 4;
        if (format != kFormatSized) continue;  // others carry their value where the size would be
        if (size > info.size() - at) break;
        if (size == 8) {
          std::uint32_t pair[2];  // symbol index, value
          std::memcpy(pair, info.data() + at, sizeof pair);
          const auto kernel =
              pair[0] < symbols.size() ? kernels.find(symbols[pair[0]]) : kernels.end();
          if (kernel != kernels.end() && pair[1] < 1u << 30) {
            const int value = static_cast<int>(pair[1]);
            if (attribute == kRegisterCount) kernel->second.registers = value;
            if (attribute == kFrameSize || attribute == kMinStackSize)
              kernel->second.local_bytes = std::max(kernel->second.local_bytes, value);
          }
        }
        at += size;
      }
    }
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
