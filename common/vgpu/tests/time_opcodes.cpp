// The table of opcodes beside what NVIDIA's disassembler says of the same bits.
#include "../time/opcodes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using namespace vgpu::time;

namespace {

struct Sample {
  int sm;
  std::uint64_t lo, hi;
  const char *guard, *text;
};
// Instructions of many kernels, some with rare ones, for sm_75, 80, 86, 89, 90 and 120.
constexpr Sample kSamples[] = {
#include "time_opcodes.inc"
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text.substr(0, text.find(' ')));
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  return parts;
}

// The decoded name leaves modifiers out, but has none that is not there.
bool is_part_of(const std::vector<std::string>& name, const std::vector<std::string>& text) {
  auto at = text.begin();
  for (const std::string& part : name) {
    at = std::find(at, text.end(), part);
    if (at == text.end()) return false;
    ++at;
  }
  return true;
}

int bytes_in(const std::vector<std::string>& text) {
  static const std::map<std::string, int> kBytes = {{"U8", 1}, {"S8", 1},   {"U16", 2}, {"S16", 2},
                                                    {"64", 8}, {"128", 16}, {"F64", 8}};
  int bytes = 4;
  for (const std::string& part : text)
    if (const auto it = kBytes.find(part); it != kBytes.end()) bytes = it->second;
  return bytes;
}

bool has(const std::vector<std::string>& parts, const char* part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

}  // namespace

TEST_CASE("time, opcodes: names, widths, shapes and guards are the disassembler's") {
  std::set<Kind> kinds;
  for (const Sample& sample : kSamples) {
    const Word128 word{sample.lo, sample.hi};
    const MachineInstr instr = decode(word, sample.sm);
    const std::string name = instruction_name(instr, word, sample.sm);
    const auto text = split(sample.text);
    INFO(sample.sm, " ", std::string(sample.guard), " ", std::string(sample.text), ": ", name);
    kinds.insert(instr.kind);
    CHECK(instr.kind != Kind::unknown);
    CHECK(is_part_of(split(name), text));
    for (const char* tells :
         {"POPC.INC", "CAST.SPIN"})  // what atomic operations on one address cost
      if (std::string(sample.text).starts_with("ATOMS"))
        CHECK((name.find(tells) != name.npos) ==
              (std::string(sample.text).find(tells) != std::string::npos));
    switch (instr.kind) {
      case Kind::global_load:
      case Kind::global_store:
      case Kind::global_atomic:
      case Kind::shared_load:
      case Kind::shared_store:
      case Kind::shared_atomic:
      case Kind::local_load:
      case Kind::local_store:
      case Kind::async_copy:
      case Kind::constant:
        CHECK(instr.bytes == bytes_in(text));
        break;
      case Kind::matrix_load:
      case Kind::matrix_store: {
        const int matrices = text.back() == "4" ? 4 : text.back() == "2" ? 2 : 1;
        CHECK(instr.matrices == matrices);
        CHECK(instr.bytes == 4 * matrices);
        break;
      }
      case Kind::barrier:
        CHECK(instr.arrives_only == has(text, "ARV"));
        break;
      case Kind::async_wait:
        CHECK(instr.pending == std::stoi(std::string(sample.text).substr(10), nullptr, 16));
        break;
      case Kind::warpgroup:
        CHECK(instr.arrives_only == has(text, "ARRIVE"));
        if (!instr.arrives_only)
          CHECK(instr.pending == std::stoi(std::string(sample.text).substr(26), nullptr, 16));
        break;
      case Kind::imad:
        CHECK((instr.bytes == 8) == (has(text, "WIDE") || has(text, "HI")));
        break;
      case Kind::branch:
        if (text[0] == "BRA" && (has(text, "DIV") || has(text, "CONV")))
          CHECK(instr.more_conditions);
        break;
      case Kind::tensor: {
        REQUIRE(tensor_of(instr.flavour) != nullptr);
        const Tensor& t = *tensor_of(instr.flavour);
        std::string shape = std::to_string(t.m) + std::to_string(t.n) + std::to_string(t.k);
        if (t.of_warpgroup()) shape = "64x" + std::to_string(t.n) + "x" + std::to_string(t.k);
        if (text[0] == "DMMA" && has(text, "8x8x4")) shape = "8x8x4";
        if (text[0] == "BMMA")
          shape = std::to_string(t.m) + std::to_string(t.n) + std::to_string(t.k);
        CHECK(has(text, shape.c_str()));
        CHECK(t.sparse == has(text, "SP"));
        if (text[0] == "HMMA" || text[0] == "QMMA" || text[0] == "HGMMA" || text[0] == "QGMMA")
          CHECK((t.sum == Tensor::Sum::f32) == has(text, "F32"));
        CHECK((t.input == Tensor::Input::bf16) == has(text, "BF16"));
        CHECK((t.input == Tensor::Input::tf32) == has(text, "TF32"));
        CHECK((t.input == Tensor::Input::s4) == has(text, "S4"));
        break;
      }
      default:
        break;
    }
    // "@!UP0": PT is 7.
    const std::string guard = sample.guard;
    const std::string predicate =
        guard.substr(std::min(guard.size(), guard.find_first_not_of("@!")));
    CHECK(instr.guard_not == (guard.find('!') != guard.npos));
    CHECK(instr.guard ==
          (predicate.empty() || predicate.back() == 'T' ? 7 : predicate.back() - '0'));
    if (instr.guard != 7) CHECK(instr.uniform_guard == (predicate[0] == 'U'));
  }
  CHECK(kinds.size() == static_cast<std::size_t>(Kind::unknown));  // each kind is met
}

TEST_CASE("time, opcodes: products of a warpgroup say where A is and where a group ends") {
  // HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, UP0, gsb0; the same with A in R172; without gsb0.
  const MachineInstr both = decode({0x00e00000081879f0, 0x000fe6000b801818}, 90),
                     registers = decode({0x00e00008ac187df0, 0x000fe6000b801818}, 90),
                     open = decode({0x00200000081879f0, 0x000fe20008700818}, 90);
  CHECK(both.reads_a);
  CHECK(both.commits);
  CHECK_FALSE(registers.reads_a);
  CHECK(registers.commits);
  CHECK(open.reads_a);
  CHECK_FALSE(open.commits);
  CHECK(tensor_of(both.flavour)->multiply_adds() == 16 * 64 * 16);
}

TEST_CASE("time, opcodes: names that share a key are the same") {
  std::map<std::pair<int, std::uint64_t>, std::string> names;
  for (const Sample& sample : kSamples) {
    const Word128 word{sample.lo, sample.hi};
    const MachineInstr instr = decode(word, sample.sm);
    const std::string name = instruction_name(instr, word, sample.sm);
    CHECK(names.try_emplace({sample.sm, name_key(instr, word)}, name).first->second == name);
  }
}

TEST_CASE("time, opcodes: control bits") {
  // Each field by itself, and the neighbours stay what they were.
  const auto control = [](std::uint64_t bits) { return decode({0x7918, bits << 41}, 90); };
  CHECK(control(0xb).stall == 11);
  CHECK(control(0x10).yield);
  CHECK_FALSE(control(0xf).yield);
  CHECK(control(3 << 5).write_barrier == 3);
  CHECK(control(7 << 5).write_barrier == 7);
  CHECK(control(5 << 8).read_barrier == 5);
  CHECK(control(5 << 8).write_barrier == 0);
  CHECK(control(0x2a << 11).wait_mask == 0x2a);
  CHECK(control(0x3f << 11).read_barrier == 0);
  CHECK(control(0x3f << 11).stall == 0);
}

TEST_CASE("time, opcodes: where branches go") {
  const auto target = [](std::uint64_t at, std::uint64_t lo, std::uint64_t hi, int sm) {
    std::int64_t offset = 0;
    REQUIRE(branch_offset(decode({lo, hi}, sm), {lo, hi}, sm, offset));
    return static_cast<std::int64_t>(at) + 16 + offset;
  };
  // Addresses are the disassembler's.
  CHECK(target(0x180, 0x0000001000000947, 0x000fea0003800000, 75) == 0x1a0);
  CHECK(target(0x370, 0xffffffb000008947, 0x000fea000383ffff, 75) == 0x330);
  CHECK(target(0x440, 0x0000002300007947, 0x000fea0003800000, 75) == 0x470);  // BRA.CONV
  CHECK(target(0x370, 0xfffffffc00e88947, 0x000fea000383ffff, 90) == 0x320);
  CHECK(target(0x9b0, 0x0000000000380947, 0x005fea0003800000, 90) == 0xaa0);
  CHECK(target(0xb0, 0x00000000001c7944, 0x020fea0003c00000, 90) == 0x130);  // CALL
  CHECK(target(0x290, 0xfffffffc00c47944, 0x000fea0003c3ffff, 90) == 0x1b0);
  std::int64_t offset = 0;
  CHECK_FALSE(
      branch_offset(decode({0xffffff2006007344, 0}, 75), {0xffffff2006007344, 0}, 75, offset));
}

TEST_CASE("time, opcodes: one number, two meanings; none at all") {
  CHECK(decode({0x7236, 0}, 75).kind == Kind::tensor);
  CHECK(decode({0x7236, 0}, 90).kind == Kind::alu);
  CHECK(decode({0x7235, 0}, 90).kind == Kind::fp16);
  CHECK(decode({0x7235, 0}, 120).kind == Kind::alu);
  CHECK(decode({0x71ff, 0}, 90).kind == Kind::unknown);
  CHECK(instruction_name(decode({0x71ff, 0}, 90), {0x71ff, 0}, 90) == "?1ff");
  CHECK(decode({0x7fae, 0}, 75).kind == Kind::unknown);  // LDGSTS is of sm_80
  CHECK(kind_name(Kind::unknown) == "unknown");
  CHECK(kind_name(Kind::mbarrier) == "mbarrier");
  CHECK(tensor_of(0) == nullptr);
  CHECK(tensor_of(static_cast<std::uint16_t>(all_tensors().size() + 1)) == nullptr);
}
