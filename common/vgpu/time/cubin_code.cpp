// Sections of a cubin: .text.NAME has the instructions of a function, .rela.text.NAME what the linker
// fills in, .nv.info the registers, .debug_line the lines.
#include "cubin_code.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "../core/elf.h"
#include "debug_line.h"

namespace vgpu::time {
namespace {

constexpr std::string_view kText = ".text.";

struct Relocation {
  std::uint64_t offset = 0, symbol = 0;
  std::int64_t addend = 0;
};

// The relocations of a section, with addends (.rela) or without (.rel).
std::vector<Relocation> relocations_of(const Elf& elf, std::string_view name) {
  std::vector<Relocation> all;
  for (const Elf64_Shdr& section : elf.sections()) {
    const bool addends = section.sh_type == SHT_RELA;
    if (!addends && section.sh_type != SHT_REL) continue;
    const std::string_view own = elf.name(section), prefix = addends ? ".rela" : ".rel";
    if (!own.starts_with(prefix) || own.substr(prefix.size()) != name) continue;
    if (addends)
      for (const Elf64_Rela& r : elf.rows<Elf64_Rela>(section))
        all.push_back({r.r_offset, ELF64_R_SYM(r.r_info), r.r_addend});
    else
      for (const Elf64_Rel& r : elf.rows<Elf64_Rel>(section))
        all.push_back({r.r_offset, ELF64_R_SYM(r.r_info), 0});
  }
  return all;
}

int registers_of(const Elf& elf, const std::vector<Elf::Symbol>& symbols, std::string_view kernel) {
  for (const Elf::Attribute& attribute : elf.attributes(symbols))
    if (attribute.kind == Elf::kRegisterCount && attribute.kernel == kernel)
      return static_cast<int>(attribute.value & 0xffff);
  return 0;
}

class CodeReader {
 public:
  CodeReader(const Elf& elf, CubinCode& code) : elf_(elf), code_(code), symbols_(elf.symbols()) {}

  bool read(std::string_view kernel, bool alone) {
    code_.registers = registers_of(elf_, symbols_, kernel);
    const auto& sections = elf_.sections();
    const std::string own = std::string(kText) + std::string(kernel);
    for (unsigned i = 0; i < sections.size(); ++i)
      if (elf_.name(sections[i]) == own && !add(i)) return false;
    code_.kernel_words = static_cast<std::uint32_t>(code_.words.size());
    if (code_.words.empty()) return false;
    for (unsigned i = 0; !alone && i < sections.size(); ++i)
      if (elf_.name(sections[i]).starts_with(kText) && elf_.name(sections[i]) != own && !add(i))
        return false;
    for (const auto& [section, first] : first_) references(section, first);
    std::sort(code_.references.begin(), code_.references.end(),
              [](const auto& a, const auto& b) { return a.from < b.from; });
    return true;
  }

  bool lines(std::string& why) {
    code_.lines.assign(code_.words.size(), 0);
    for (const Elf64_Shdr& section : elf_.sections()) {
      if (elf_.name(section) != ".debug_line") continue;
      const auto sequences = read_debug_line(elf_.content(section), why);
      if (!why.empty()) return false;
      std::map<std::uint64_t, Relocation> starts;
      for (const Relocation& r : relocations_of(elf_, ".debug_line")) starts[r.offset] = r;
      for (const LineSequence& sequence : sequences) {
        const auto start = starts.find(sequence.address_at);
        std::uint32_t first = 0, size = code_.kernel_words;
        if (start != starts.end()) {
          if (start->second.symbol >= symbols_.size()) continue;
          const auto place = first_.find(symbols_[start->second.symbol].section);
          if (place == first_.end()) continue;
          first = place->second;
          size = sizes_[place->first];
        }
        fill(sequence, first, size);
      }
    }
    return true;
  }

 private:
  // A row says the line of what stands between its address and the next row's.
  void fill(const LineSequence& sequence, std::uint32_t first, std::uint32_t size) {
    const auto& rows = sequence.rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].end) continue;
      const std::uint64_t from = std::min<std::uint64_t>(rows[i].address / 16, size);
      const std::uint64_t to = i + 1 < rows.size()
                                   ? std::min<std::uint64_t>((rows[i + 1].address + 15) / 16, size)
                                   : size;
      for (std::uint64_t n = from; n < to; ++n) code_.lines[first + n] = rows[i].line;
    }
  }
  bool add(unsigned section) {
    const auto bytes = elf_.content(elf_.sections()[section]);
    if (bytes.empty() || bytes.size() % sizeof(Word128) != 0) return false;
    first_[section] = static_cast<std::uint32_t>(code_.words.size());
    sizes_[section] = static_cast<std::uint32_t>(bytes.size() / sizeof(Word128));
    const std::size_t old = code_.words.size();
    code_.words.resize(old + bytes.size() / sizeof(Word128));
    std::memcpy(code_.words.data() + old, bytes.data(), bytes.size());
    return true;
  }
  void references(unsigned section, std::uint32_t first) {
    for (const Relocation& r : relocations_of(elf_, elf_.name(elf_.sections()[section]))) {
      if (r.offset / 16 >= sizes_[section]) continue;
      CubinCode::Reference reference{first + static_cast<std::uint32_t>(r.offset / 16), -1};
      if (r.symbol < symbols_.size())
        if (const auto to = first_.find(symbols_[r.symbol].section); to != first_.end()) {
          // (Only functions are called: the addend of a call is 0 or the place that it goes on from.)
          const std::uint64_t n = symbols_[r.symbol].value / 16;
          if (n < sizes_[to->first]) reference.to = static_cast<std::int32_t>(to->second + n);
        }
      code_.references.push_back(reference);
    }
  }

  const Elf& elf_;
  CubinCode& code_;
  std::vector<Elf::Symbol> symbols_;
  std::map<unsigned, std::uint32_t> first_, sizes_;  // by section
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

CubinCode read_cubin_code(std::string_view cubin, std::string_view kernel, bool alone,
                          std::string& why) {
  CubinCode code;
  why.clear();
  const Elf elf(bytes_of(cubin));
  if (elf.sections().empty()) {
    why = "the cubin is no ELF file, or it is cut off";
    return code;
  }
  CodeReader reader(elf, code);
  if (!reader.read(kernel, alone))
    why = "the cubin has no code of '" + std::string(kernel) + "', or it is cut off";
  else if (!alone)
    reader.lines(why);
  if (!why.empty()) code = {};
  return code;
}

CubinOrigin cubin_origin(std::string_view cubin) {
  CubinOrigin origin;
  const Elf elf(bytes_of(cubin));
  for (const Elf64_Shdr& section : elf.sections()) {
    if (elf.name(section) != ".note.nv.tkinfo") continue;
    const auto note = elf.content(section);
    // Owner (16 bytes with its header and name: 12 + 12), then words and five texts.
    std::vector<std::string_view> texts;
    const std::string_view all(reinterpret_cast<const char*>(note.data()), note.size());
    if (const auto at = all.find("ptxas"); at != all.npos)
      for (std::size_t begin = at; begin < all.size();) {
        const std::size_t end = std::min(all.find('\0', begin), all.size());
        texts.push_back(all.substr(begin, end - begin));
        begin = end + 1;
      }
    if (texts.size() > 1)
      if (const auto v = texts[1].rfind('V'); v != std::string_view::npos)
        origin.version = std::string(texts[1].substr(v));
    if (texts.size() > 3) origin.options = std::string(texts[3]);
  }
  return origin;
}

namespace {

// Constant bank 4 has the addresses of the module's variables, in an order that depends on the
// module's other kernels. The offset stands in the instruction that reads it, or it is loaded as a
// number into the register that this one adds. `differ` gets the bits that are such an offset.
void bank4_offsets(const CubinCode& code, std::vector<std::uint64_t>& differ) {
  constexpr unsigned kBank = 4, kNoRegister = 255, kFarthest = 64;
  for (std::uint32_t i = 0; i < code.kernel_words; ++i) {
    const std::uint64_t lo = code.words[i].lo;
    const unsigned form = lo >> 9 & 7, opcode = lo & 0xfff, index = lo >> 24 & 255;
    if ((form != 3 && form != 5) || (lo >> 54 & 31) != kBank) continue;
    differ[i] |= 0xffffull << 38;
    if (opcode != 0xb82 || index == kNoRegister) continue;
    for (std::uint32_t back = 1; back <= std::min(i, kFarthest); ++back) {
      const std::uint64_t before = code.words[i - back].lo;
      const unsigned mover = before & 0xfff;  // MOV, IMAD.MOV, HFMA2 with a number
      if ((before >> 16 & 255) != index ||
          (mover != 0x802 && mover != 0x424 && mover != 0x431 && mover != 0x435))
        continue;
      differ[i - back] |= 0xffffffffull << 32;
      break;
    }
  }
}

}  // namespace

bool same_code(const CubinCode& a, const CubinCode& b) {
  if (a.kernel_words != b.kernel_words) return false;
  std::vector<bool> filled(a.kernel_words);
  std::vector<std::uint64_t> offsets(a.kernel_words);
  bank4_offsets(a, offsets);
  for (const CubinCode* code : {&a, &b})
    for (const CubinCode::Reference& r : code->references)
      if (r.from < filled.size()) filled[r.from] = true;
  for (std::uint32_t i = 0; i < a.kernel_words; ++i) {
    // An address, an offset in the constant bank, or where a branch goes: bits 16 to 23 and 32 to 81.
    const std::uint64_t lo = filled[i] ? 0xff00ffffull : ~offsets[i];
    const std::uint64_t hi = filled[i] ? ~0x3ffffull : ~0ull;
    if ((a.words[i].lo ^ b.words[i].lo) & lo || (a.words[i].hi ^ b.words[i].hi) & hi) return false;
  }
  return true;
}

}  // namespace vgpu::time
