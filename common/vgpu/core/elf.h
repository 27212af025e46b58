// Reads an ELF file that may be damaged: what is not there is empty. Cubins are such files.
#pragma once
#include <elf.h>

#include <array>
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
        header->e_ident[EI_CLASS] != ELFCLASS64)
      return;
    is_elf_ = true;
    if (header->e_shentsize != sizeof(Elf64_Shdr)) return;
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
  bool is_elf() const { return is_elf_; }  // a 64-bit one
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  // A section's content as rows; what is left of a row that is cut off is dropped.
  template <class Row>
  std::vector<Row> rows(const Elf64_Shdr& section) const {
    const auto table = content(section);
    std::vector<Row> rows(table.size() / sizeof(Row));
    if (!rows.empty()) std::memcpy(rows.data(), table.data(), rows.size() * sizeof(Row));
    return rows;
  }
  // The strings that a section's rows name: its link.
  std::span<const std::byte> strings(const Elf64_Shdr& section) const {
    if (section.sh_link >= sections_.size()) return {};
    return content(sections_[section.sh_link]);
  }
  struct Symbol {
    std::string_view name;
    unsigned section = 0;
    std::uint64_t value = 0;
  };
  std::vector<Symbol> symbols() const {
    std::vector<Symbol> symbols;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections_.size()) continue;
      for (const Elf64_Sym& row : rows<Elf64_Sym>(section))
        symbols.push_back({text(strings(section), row.st_name), row.st_shndx, row.st_value});
      break;
    }
    return symbols;
  }

  // What ptxas says of a kernel in .nv.info: u8 format, u8 attribute, then, of format 4, u16 size and
  // that many bytes: a symbol and a value. Other formats carry their value where the size would be.
  static constexpr std::uint8_t kFrameSize = 0x11, kMinStackSize = 0x12, kRegisterCount = 0x2f;
  struct Attribute {
    std::uint8_t kind = 0;
    std::string_view kernel;
    std::uint32_t value = 0;
  };
  std::vector<Attribute> attributes(const std::vector<Symbol>& symbols) const {
    std::vector<Attribute> all;
    for (const Elf64_Shdr& section : sections_) {
      if (name(section) != ".nv.info") continue;
      const Elf info(content(section), Plain{});
      for (std::uint64_t offset = 0; const auto head = info.at<AttributeHead>(offset);) {
        offset += sizeof *head;
        if (head->format != 4) continue;
        const auto pair = info.at<std::array<std::uint32_t, 2>>(offset);
        if (pair && head->size == sizeof *pair && (*pair)[0] < symbols.size())
          all.push_back({head->kind, symbols[(*pair)[0]].name, (*pair)[1]});
        offset += head->size;
      }
    }
    return all;
  }
  // The e_flags of CUDA 12 and older keep the architecture in the low byte, 13 in the next.
  int arch() const { return static_cast<int>(abi_ >= 8 ? flags_ >> 8 & 0xff : flags_ & 0xff); }

 private:
  struct AttributeHead {
    std::uint8_t format, kind;
    std::uint16_t size;
  };
  struct Plain {};  // bytes that are no file of their own
  Elf(std::span<const std::byte> bytes, Plain) : bytes_(bytes) {}

  std::span<const std::byte> bytes_, names_;
  bool is_elf_ = false;
  std::vector<Elf64_Shdr> sections_;
  std::uint32_t flags_ = 0;
  int abi_ = 0;
};

}  // namespace vgpu
