// The line number program of DWARF, sections 6.2.4 and 6.2.5 of its version 4.
#include "debug_line.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace vgpu::time {
namespace {

constexpr std::size_t kMostRows = 1u << 24;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::size_t at, std::size_t end)
      : bytes_(bytes), at_(at), end_(end) {}
  std::size_t at() const { return at_; }
  bool done() const { return at_ >= end_ || bad_; }
  bool bad() const { return bad_; }
  void go(std::size_t to) {
    if (to > end_)
      bad_ = true;
    else
      at_ = to;
  }
  std::uint64_t fixed(int size) {
    if (end_ - at_ < static_cast<std::size_t>(size)) {
      bad_ = true;
      return 0;
    }
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, size);
    at_ += size;
    return value;
  }
  std::uint64_t uleb() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const std::uint64_t byte = fixed(1);
      if (bad_) return 0;
      if (shift < 64) value |= (byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    bad_ = true;
    return 0;
  }
  std::int64_t sleb() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const std::uint64_t byte = fixed(1);
      if (bad_) return 0;
      if (shift < 64) value |= (byte & 0x7f) << shift;
      if (byte & 0x80) continue;
      if (byte & 0x40 && shift + 7 < 64) value |= ~0ull << (shift + 7);
      return static_cast<std::int64_t>(value);
    }
    bad_ = true;
    return 0;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_, end_;
  bool bad_ = false;
};

struct Prologue {
  unsigned least_bytes = 1;  // an instruction's least length
  int line_base = 0;
  unsigned line_range = 1, opcode_base = 1;
  std::array<std::uint8_t, 256> operands{};
};

// Executes one unit's program; what a sequence has gathered is kept when it ends.
class Program {
 public:
  Program(const Prologue& prologue, std::vector<LineSequence>& out) : p_(prologue), out_(out) {}

  void run(Reader& in) {
    while (!in.done() && rows_ < kMostRows) {
      const auto opcode = static_cast<unsigned>(in.fixed(1));
      if (opcode >= p_.opcode_base) {
        const unsigned adjusted = opcode - p_.opcode_base;
        advance(adjusted / p_.line_range);
        line_ += p_.line_base + static_cast<int>(adjusted % p_.line_range);
        row(false);
      } else if (opcode == 0) {
        extended(in);
      } else {
        standard(in, opcode);
      }
    }
    if (!now_.rows.empty()) finish();  // no end: it was cut off
  }

 private:
  enum Standard : unsigned {
    copy = 1,
    advance_pc,
    advance_line,
    set_file,
    set_column,
    negate_stmt,
    basic_block,
    const_add_pc,
    fixed_advance_pc
  };
  enum Extended : unsigned { end_sequence = 1, set_address };

  void advance(std::uint64_t operations) { address_ += operations * p_.least_bytes; }
  void row(bool end) {
    ++rows_;
    now_.rows.push_back({address_, static_cast<std::uint32_t>(line_), end});
  }
  void finish() {
    out_.push_back(std::move(now_));
    now_ = {};
    address_ = 0;
    line_ = 1;
  }
  void extended(Reader& in) {
    const std::uint64_t size = in.uleb();
    const std::size_t begin = in.at();
    if (in.bad() || size == 0) return;
    const auto opcode = static_cast<unsigned>(in.fixed(1));
    if (opcode == end_sequence) {
      row(true);
      finish();
    } else if (opcode == set_address && size == 9) {
      if (now_.rows.empty()) now_.address_at = in.at();
      address_ = in.fixed(8);
    }
    in.go(begin + size);
  }
  void standard(Reader& in, unsigned opcode) {
    switch (opcode) {
      case copy:
        row(false);
        break;
      case advance_pc:
        advance(in.uleb());
        break;
      case advance_line:
        line_ += in.sleb();
        break;
      case const_add_pc:
        advance((255 - p_.opcode_base) / p_.line_range);
        break;
      case fixed_advance_pc:
        address_ += in.fixed(2);
        break;
      default:  // file, column and those of other versions: nothing that is asked for
        for (int i = 0; i < p_.operands[opcode]; ++i) in.uleb();
    }
  }

  const Prologue& p_;
  std::vector<LineSequence>& out_;
  LineSequence now_;
  std::uint64_t address_ = 0;
  std::int64_t line_ = 1;
  std::size_t rows_ = 0;
};

}  // namespace

std::vector<LineSequence> read_debug_line(std::span<const std::byte> section, std::string& why) {
  std::vector<LineSequence> sequences;
  why.clear();
  const auto damaged = [&](std::size_t at, const char* what) {
    why = ".debug_line is damaged at byte " + std::to_string(at) + ": " + what;
    return sequences;
  };
  for (std::size_t begin = 0; begin < section.size();) {
    Reader head(section, begin, section.size());
    const std::uint64_t length = head.fixed(4);
    if (head.bad() || length > section.size() - begin - 4)
      return damaged(begin, "the unit is longer than the section");
    const std::size_t end = begin + 4 + length;
    Reader in(section, begin + 4, end);
    const auto version = in.fixed(2);
    if (in.bad() || version < 2 || version > 4)
      return damaged(begin, "its version is not 2, 3 or 4");
    const std::uint64_t prologue_bytes = in.fixed(4);
    const std::size_t program = in.at() + prologue_bytes;
    Prologue p;
    p.least_bytes = static_cast<unsigned>(in.fixed(1));
    if (version >= 4) in.fixed(1);
    in.fixed(1);
    p.line_base = static_cast<std::int8_t>(in.fixed(1));
    p.line_range = static_cast<unsigned>(in.fixed(1));
    p.opcode_base = static_cast<unsigned>(in.fixed(1));
    if (in.bad() || p.line_range == 0 || p.opcode_base == 0 || prologue_bytes > length)
      return damaged(begin, "a header without line range or opcodes");
    for (unsigned i = 1; i < p.opcode_base; ++i)
      p.operands[i] = static_cast<std::uint8_t>(in.fixed(1));
    in.go(program);
    if (in.bad()) return damaged(begin, "the header is longer than its unit");
    Program(p, sequences).run(in);
    if (in.bad()) return damaged(in.at(), "the program is cut off");
    begin = end;
  }
  return sequences;
}

}  // namespace vgpu::time
