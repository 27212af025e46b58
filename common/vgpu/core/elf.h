// Reads an ELF file that may be damaged: what is not there is empty. Cubins are such files.
#pragma once
#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace vgpu {

class Elf {
 public:
  explicit Elf(std::span<const std::byte> bytes) : bytes_(bytes) {
    const auto header = at<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr))
      return;
    flags_ = header->e_flags;
    abi_ = header->e_ident[EI_ABIVERSION];
    for (unsigned i = 0; i < header->e_shnum; ++i) {
      const auto section = at<Elf64_Shdr>(header->e_shoff + std::uint64_t{i} * sizeof(Elf64_Shdr));
      if (!section) break;
      sections_.push_back(*section);
    }
    if (header->e_shstrndx < sections_.size()) names_ = content(sections_[header->e_shstrndx]);
  }

  template <class T>
  std::optional<T> at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  std::span<const std::byte> content(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS || section.sh_offset > bytes_.size() ||
        section.sh_size > bytes_.size() - section.sh_offset)
      return {};
    return bytes_.subspan(section.sh_offset, section.sh_size);
  }
  static std::string_view text(std::span<const std::byte> table, std::uint64_t offset) {
    if (offset >= table.size()) return {};
    const char* begin = reinterpret_cast<const char*>(table.data()) + offset;
    return {begin, strnlen(begin, table.size() - offset)};
  }
  std::string_view name(const Elf64_Shdr& section) const { return text(names_, section.sh_name); }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  // The e_flags of CUDA 12 and older keep the architecture in the low byte, 13 in the next.
  int arch() const { return static_cast<int>(abi_ >= 8 ? flags_ >> 8 & 0xff : flags_ & 0xff); }

 private:
  std::span<const std::byte> bytes_, names_;
  std::vector<Elf64_Shdr> sections_;
  std::uint32_t flags_ = 0;
  int abi_ = 0;
};

}  // namespace vgpu
