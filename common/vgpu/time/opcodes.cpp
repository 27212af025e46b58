// The table of opcodes and the fields of each family.
//
// The low 9 bits of the opcode say what an instruction does, bits 9 to 11 where its operands lie
// (registers, a number, the constant bank, uniform registers). Two architectures may mean different
// things by the same number.
#include "opcodes.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>

namespace vgpu::time {
namespace {

enum class Fields : std::uint8_t {
  none,
  size,          // size of a lane's access: bits 9 to 11 of the upper word
  copy,          // LDGSTS: the same, elsewhere from sm_100 on
  atomic,        // type of an atomic operation
  atomic_float,  // type of one that adds floating-point numbers
  cas,           // width of a compare and swap
  constant,      // size, of uniform registers as well
  ldsm,
  hmma,
  imma,
  dmma,
  bmma,
  qmma,
  hmma884,
  gmma,
  warpgroup,
  bar,
  depbar,
  mufu,
  wide,
  branch,
  uniform_branch,
  cs2r,
  cluster,
};

struct Row {
  std::uint16_t base;     // opcode & 0x1ff
  std::uint8_t from, to;  // sm
  Kind kind;
  Fields fields;
  const char* name;
};

constexpr std::uint8_t kAll = 255;
using enum Kind;
// Ordered by base.
constexpr Row kRows[] = {
    {0x002, 0, kAll, alu, Fields::none, "MOV"},
    {0x003, 0, kAll, alu, Fields::none, "P2R"},
    {0x004, 0, kAll, alu, Fields::none, "R2P"},
    {0x005, 0, kAll, special_register, Fields::cs2r, "CS2R"},
    {0x006, 0, kAll, vote, Fields::none, "VOTE"},
    {0x007, 0, kAll, alu, Fields::none, "SEL"},
    {0x008, 0, kAll, alu, Fields::none, "FSEL"},
    {0x009, 0, kAll, alu, Fields::none, "FMNMX"},
    {0x00a, 0, kAll, alu, Fields::none, "FSET"},
    {0x00b, 0, kAll, alu, Fields::none, "FSETP"},
    {0x00c, 0, kAll, alu, Fields::none, "ISETP"},
    {0x010, 0, kAll, alu, Fields::none, "IADD3"},
    {0x011, 0, kAll, alu, Fields::none, "LEA"},
    {0x012, 0, kAll, alu, Fields::none, "LOP3"},
    {0x013, 0, kAll, alu, Fields::none, "IABS"},
    {0x014, 0, kAll, alu, Fields::none, "VABSDIFF"},
    {0x015, 0, kAll, alu, Fields::none, "VABSDIFF4"},
    {0x016, 0, kAll, alu, Fields::none, "PRMT"},
    {0x017, 0, kAll, alu, Fields::none, "IMNMX"},
    {0x019, 0, kAll, alu, Fields::none, "SHF"},
    {0x01b, 0, kAll, alu, Fields::none, "BMSK"},
    {0x01c, 0, kAll, alu, Fields::none, "PLOP3"},
    {0x020, 0, kAll, fp32, Fields::none, "FMUL"},
    {0x021, 0, kAll, fp32, Fields::none, "FADD"},
    {0x023, 0, kAll, fp32, Fields::none, "FFMA"},
    {0x024, 0, kAll, imad, Fields::none, "IMAD"},
    {0x025, 0, kAll, imad, Fields::wide, "IMAD.WIDE"},
    {0x026, 0, kAll, imad, Fields::none, "IDP"},
    {0x027, 0, kAll, imad, Fields::wide, "IMAD.HI"},
    {0x028, 0, kAll, fp64, Fields::none, "DMUL"},
    {0x029, 0, kAll, fp64, Fields::none, "DADD"},
    {0x02a, 0, kAll, fp64, Fields::none, "DSETP"},
    {0x02b, 0, kAll, fp64, Fields::none, "DFMA"},
    {0x02d, 90, kAll, nop, Fields::none, "PREEXIT"},
    {0x02e, 90, kAll, nop, Fields::none, "ACQBULK"},
    {0x02f, 90, kAll, vote, Fields::none, "ELECT"},
    {0x030, 0, kAll, fp16, Fields::none, "HADD2"},
    {0x031, 0, kAll, fp16, Fields::none, "HFMA2"},
    {0x032, 0, kAll, fp16, Fields::none, "HMUL2"},
    {0x033, 0, kAll, fp16, Fields::none, "HSET2"},
    {0x034, 0, kAll, fp16, Fields::none, "HSETP2"},
    {0x035, 80, 99, fp16, Fields::none, "HFMA2.MMA"},
    {0x035, 100, kAll, alu, Fields::none, "IADD"},
    {0x036, 0, 79, tensor, Fields::hmma884, "HMMA.884"},
    {0x036, 90, kAll, alu, Fields::none, "VIADD"},
    {0x037, 0, kAll, tensor, Fields::imma, "IMMA"},
    {0x03a, 0, kAll, shuffle, Fields::none, "MOVM"},
    {0x03b, 0, kAll, matrix_load, Fields::ldsm, "LDSM.16"},
    {0x03c, 0, kAll, tensor, Fields::hmma, "HMMA"},
    {0x03d, 80, kAll, tensor, Fields::bmma, "BMMA"},
    {0x03e, 80, kAll, alu, Fields::none, "F2FP"},
    {0x03f, 80, kAll, tensor, Fields::dmma, "DMMA"},
    {0x040, 80, kAll, alu, Fields::none, "HMNMX2"},
    {0x044, 90, kAll, matrix_store, Fields::ldsm, "STSM.16"},
    {0x045, 80, kAll, alu, Fields::none, "I2FP"},
    {0x046, 90, kAll, alu, Fields::none, "VIADDMNMX"},
    {0x048, 90, kAll, alu, Fields::none, "VIMNMX"},
    {0x04a, 100, kAll, uniform, Fields::none, "UVIMNMX"},
    {0x05a, 100, kAll, uniform, Fields::none, "UI2F"},
    {0x05c, 100, kAll, uniform, Fields::none, "UF2I"},
    {0x05e, 100, kAll, uniform, Fields::none, "UI2FP"},
    {0x07a, 89, kAll, tensor, Fields::qmma, "QMMA"},
    {0x082, 0, kAll, uniform, Fields::none, "UMOV"},
    {0x086, 0, kAll, vote, Fields::none, "VOTEU"},
    {0x087, 0, kAll, uniform, Fields::none, "USEL"},
    {0x08c, 0, kAll, uniform, Fields::none, "UISETP"},
    {0x090, 0, kAll, uniform, Fields::none, "UIADD3"},
    {0x091, 0, kAll, uniform, Fields::none, "ULEA"},
    {0x092, 0, kAll, uniform, Fields::none, "ULOP3"},
    {0x096, 0, kAll, uniform, Fields::none, "UPRMT"},
    {0x097, 100, kAll, uniform, Fields::none, "UIADD3"},
    {0x099, 0, kAll, uniform, Fields::none, "USHF"},
    {0x09c, 0, kAll, uniform, Fields::none, "UPLOP3"},
    {0x0a4, 0, kAll, uniform, Fields::none, "UIMAD"},
    {0x0a5, 0, kAll, uniform, Fields::none, "UIMAD.WIDE"},
    {0x0a6, 100, kAll, uniform, Fields::none, "UIMAD"},
    {0x0b9, 0, 99, constant, Fields::constant, "ULDC"},
    {0x0bb, 0, 99, constant, Fields::constant, "ULDC"},
    {0x0bd, 0, kAll, uniform, Fields::none, "UFLO"},
    {0x0bf, 0, kAll, uniform, Fields::none, "UPOPC"},
    {0x0ca, 90, kAll, uniform, Fields::none, "R2UR"},
    {0x100, 0, kAll, convert, Fields::none, "FLO"},
    {0x101, 0, kAll, convert, Fields::none, "BREV"},
    {0x102, 0, kAll, special, Fields::none, "FCHK"},
    {0x104, 0, kAll, convert, Fields::none, "F2F"},
    {0x105, 0, kAll, convert, Fields::none, "F2I"},
    {0x106, 0, kAll, convert, Fields::none, "I2F"},
    {0x107, 0, kAll, convert, Fields::none, "FRND"},
    {0x108, 0, kAll, special, Fields::mufu, "MUFU"},
    {0x109, 0, kAll, convert, Fields::none, "POPC"},
    {0x110, 0, kAll, convert, Fields::none, "F2F"},
    {0x111, 0, kAll, convert, Fields::none, "F2I"},
    {0x112, 0, kAll, convert, Fields::none, "I2F"},
    {0x113, 0, kAll, convert, Fields::none, "FRND"},
    {0x118, 0, kAll, nop, Fields::none, "NOP"},
    {0x119, 0, kAll, special_register, Fields::none, "S2R"},
    {0x11a, 0, kAll, async_wait, Fields::depbar, "DEPBAR"},
    {0x11b, 90, kAll, convergence, Fields::none, "ENDCOLLECTIVE"},
    {0x11c, 0, kAll, special_register, Fields::none, "B2R"},
    {0x11d, 0, kAll, barrier, Fields::bar, "BAR"},
    {0x141, 0, kAll, convergence, Fields::none, "BSYNC"},
    {0x142, 0, kAll, convergence, Fields::none, "BREAK"},
    {0x143, 0, kAll, call, Fields::none, "CALL.ABS"},
    {0x144, 0, kAll, call, Fields::none, "CALL.REL"},
    {0x145, 0, kAll, convergence, Fields::none, "BSSY"},
    {0x146, 0, kAll, sleep, Fields::none, "YIELD"},
    {0x147, 0, kAll, branch, Fields::branch, "BRA"},
    {0x148, 0, kAll, convergence, Fields::none, "WARPSYNC"},
    {0x149, 0, kAll, branch, Fields::none, "BRX"},
    {0x14a, 0, kAll, branch, Fields::none, "JMP"},
    {0x14d, 0, kAll, exit, Fields::none, "EXIT"},
    {0x14e, 0, kAll, alu, Fields::none, "LEPC"},
    {0x150, 0, kAll, ret, Fields::none, "RET"},
    {0x155, 0, kAll, convergence, Fields::none, "BMOV"},
    {0x156, 0, kAll, convergence, Fields::none, "BMOV"},
    {0x15b, 0, kAll, exit, Fields::none, "KILL"},
    {0x15c, 0, kAll, nop, Fields::none, "BPT"},
    {0x15d, 0, kAll, sleep, Fields::none, "NANOSLEEP"},
    {0x180, 0, kAll, global_load, Fields::size, "LD.E"},
    {0x181, 0, kAll, global_load, Fields::size, "LDG.E"},
    {0x182, 0, kAll, constant, Fields::constant, "LDC"},
    {0x183, 0, kAll, local_load, Fields::size, "LDL"},
    {0x184, 0, kAll, shared_load, Fields::size, "LDS"},
    {0x185, 0, kAll, global_store, Fields::size, "ST.E"},
    {0x186, 0, kAll, global_store, Fields::size, "STG.E"},
    {0x187, 0, kAll, local_store, Fields::size, "STL"},
    {0x188, 0, kAll, shared_store, Fields::size, "STS"},
    {0x189, 0, kAll, shuffle, Fields::none, "SHFL"},
    {0x18a, 0, kAll, global_atomic, Fields::atomic, "ATOM.E"},
    {0x18b, 0, kAll, global_atomic, Fields::cas, "ATOM.E.CAS"},
    {0x18c, 0, kAll, shared_atomic, Fields::atomic, "ATOMS"},
    {0x18d, 0, kAll, shared_atomic, Fields::cas, "ATOMS"},
    {0x18e, 0, 89, global_atomic, Fields::atomic, "RED.E"},
    {0x18e, 90, kAll, global_atomic, Fields::atomic, "REDG.E"},
    {0x18f, 0, kAll, fence, Fields::none, "CCTL"},
    {0x192, 0, kAll, fence, Fields::none, "MEMBAR"},
    {0x1a1, 0, kAll, vote, Fields::none, "MATCH"},
    {0x1a2, 90, kAll, global_atomic, Fields::atomic_float, "ATOM.E"},
    {0x1a3, 90, kAll, global_atomic, Fields::atomic_float, "ATOMG.E"},
    {0x1a6, 90, kAll, global_atomic, Fields::atomic_float, "REDG.E"},
    {0x1a7, 90, kAll, mbarrier, Fields::none, "SYNCS"},
    {0x1a8, 0, kAll, global_atomic, Fields::atomic, "ATOMG.E"},
    {0x1a9, 0, kAll, global_atomic, Fields::cas, "ATOMG.E.CAS"},
    {0x1aa, 0, kAll, alu, Fields::none, "QSPC"},
    {0x1ab, 0, kAll, fence, Fields::none, "ERRBAR"},
    {0x1ac, 100, kAll, constant, Fields::constant, "LDCU"},
    {0x1ae, 80, kAll, async_copy, Fields::copy, "LDGSTS.E"},
    {0x1af, 80, kAll, async_commit, Fields::none, "LDGDEPBAR"},
    {0x1b0, 80, kAll, mbarrier, Fields::none, "ARRIVES"},
    {0x1b1, 90, kAll, mbarrier, Fields::none, "SYNCS"},
    {0x1b2, 90, kAll, mbarrier, Fields::none, "SYNCS"},
    {0x1b4, 90, kAll, bulk_copy, Fields::none, "UTMALDG"},
    {0x1b5, 90, kAll, bulk_copy, Fields::none, "UTMASTG"},
    {0x1b6, 90, kAll, bulk_copy, Fields::none, "UTMAREDG"},
    {0x1b7, 90, kAll, async_commit, Fields::none, "UTMACMDFLUSH"},
    {0x1b8, 90, kAll, bulk_copy, Fields::none, "UTMAPF"},
    {0x1b9, 90, kAll, fence, Fields::none, "UTMACCTL"},
    {0x1ba, 90, kAll, bulk_copy, Fields::none, "UBLKCP"},
    {0x1bb, 90, kAll, bulk_copy, Fields::none, "UBLKRED"},
    {0x1bc, 90, kAll, bulk_copy, Fields::none, "UBLKPF"},
    {0x1bd, 90, kAll, shared_store, Fields::size, "STAS"},
    {0x1be, 90, kAll, shared_atomic, Fields::atomic, "REDAS"},
    {0x1c2, 0, 89, uniform, Fields::none, "R2UR"},
    {0x1c3, 0, kAll, special_register, Fields::none, "S2UR"},
    {0x1c4, 80, kAll, vote, Fields::none, "REDUX"},
    {0x1c5, 90, 99, warpgroup, Fields::warpgroup, "WARPGROUP"},
    {0x1c6, 90, kAll, fence, Fields::none, "FENCE"},
    {0x1c7, 90, kAll, cluster_barrier, Fields::cluster, "UCGABAR"},
    {0x1c8, 90, kAll, nop, Fields::none, "USETMAXREG"},
    {0x1f0, 90, 99, tensor, Fields::gmma, "HGMMA"},
    {0x1f1, 90, 99, tensor, Fields::gmma, "IGMMA"},
    {0x1f2, 90, 99, tensor, Fields::gmma, "BGMMA"},
    {0x1f3, 90, 99, tensor, Fields::gmma, "QGMMA"},
};

const Row* row_of(unsigned opcode, int sm) {
  const unsigned base = opcode & 0x1ff;
  const Row* row = std::lower_bound(std::begin(kRows), std::end(kRows), base,
                                    [](const Row& r, unsigned b) { return r.base < b; });
  for (; row != std::end(kRows) && row->base == base; ++row)
    if (sm >= row->from && (sm <= row->to || row->to == kAll)) return row;
  return nullptr;
}

using In = Tensor::Input;
using Sum = Tensor::Sum;
constexpr Tensor kTensors[] = {
    {8, 8, 4, In::f16, Sum::f32, false},    {16, 8, 8, In::f16, Sum::f16, false},
    {16, 8, 8, In::f16, Sum::f32, false},   {16, 8, 16, In::f16, Sum::f16, false},
    {16, 8, 16, In::f16, Sum::f32, false},  {16, 8, 8, In::bf16, Sum::f32, false},
    {16, 8, 16, In::bf16, Sum::f32, false}, {16, 8, 4, In::tf32, Sum::f32, false},
    {16, 8, 8, In::tf32, Sum::f32, false},  {16, 8, 16, In::f16, Sum::f16, true},
    {16, 8, 16, In::f16, Sum::f32, true},   {16, 8, 32, In::f16, Sum::f16, true},
    {16, 8, 32, In::f16, Sum::f32, true},   {16, 8, 16, In::bf16, Sum::f32, true},
    {16, 8, 32, In::bf16, Sum::f32, true},  {16, 8, 8, In::tf32, Sum::f32, true},
    {16, 8, 16, In::tf32, Sum::f32, true},  {8, 8, 16, In::s8, Sum::s32, false},
    {16, 8, 16, In::s8, Sum::s32, false},   {16, 8, 32, In::s8, Sum::s32, false},
    {8, 8, 32, In::s4, Sum::s32, false},    {16, 8, 32, In::s4, Sum::s32, false},
    {16, 8, 64, In::s4, Sum::s32, false},   {8, 8, 4, In::f64, Sum::f64, false},
    {16, 8, 4, In::f64, Sum::f64, false},   {16, 8, 8, In::f64, Sum::f64, false},
    {16, 8, 16, In::f64, Sum::f64, false},  {8, 8, 128, In::b1, Sum::s32, false},
    {16, 8, 128, In::b1, Sum::s32, false},  {16, 8, 256, In::b1, Sum::s32, false},
    {16, 8, 32, In::fp8, Sum::f16, false},  {16, 8, 32, In::fp8, Sum::f32, false},
    {16, 8, 16, In::fp8, Sum::f16, false},  {16, 8, 16, In::fp8, Sum::f32, false},
    {8, 8, 4, In::f16, Sum::f16, false},
};

// The same and those of warpgroups, of every n.
const std::vector<Tensor>& tensors() {
  static const std::vector<Tensor> all = [] {
    std::vector<Tensor> list(std::begin(kTensors), std::end(kTensors));
    for (std::uint16_t n = 8; n <= 256; n += 8) {
      for (const Sum sum : {Sum::f16, Sum::f32}) {
        list.push_back({64, n, 16, In::f16, sum, false});
        list.push_back({64, n, 32, In::fp8, sum, false});
      }
      list.push_back({64, n, 16, In::bf16, Sum::f32, false});
      list.push_back({64, n, 8, In::tf32, Sum::f32, false});
      list.push_back({64, n, 32, In::s8, Sum::s32, false});
      list.push_back({64, n, 256, In::b1, Sum::s32, false});
    }
    return list;
  }();
  return all;
}

std::uint16_t flavour_of(const Tensor& wanted) {
  for (std::size_t i = 0; i < tensors().size(); ++i) {
    const Tensor& t = tensors()[i];
    if (t.m == wanted.m && t.n == wanted.n && t.k == wanted.k && t.input == wanted.input &&
        t.sum == wanted.sum && t.sparse == wanted.sparse)
      return static_cast<std::uint16_t>(i + 1);
  }
  return 0;
}

constexpr bool bit(std::uint64_t word, int n) { return word >> n & 1; }
constexpr unsigned bits(std::uint64_t word, int first, int count) {
  return static_cast<unsigned>(word >> first & ((1ull << count) - 1));
}

// HMMA: bit 12 sums in fp32; 18 bf16, 19 tf32; 9 sparse; 11 and 14 the depth.
Tensor hmma(std::uint64_t hi) {
  Tensor t{16,
           8,
           0,
           bit(hi, 19)   ? In::tf32
           : bit(hi, 18) ? In::bf16
                         : In::f16,
           bit(hi, 12) ? Sum::f32 : Sum::f16,
           bit(hi, 9)};
  if (t.input == In::tf32)
    t.k = t.sparse ? (bit(hi, 11) ? 16 : 8) : bit(hi, 14) ? 4 : 8;
  else if (t.sparse)
    t.k = bit(hi, 14) ? 32 : 16;
  else
    t.k = bit(hi, 11) ? 16 : 8;
  return t;
}

// IMMA: bits 22, 21 and 11 the shape; 19 and 20 four-bit inputs.
Tensor imma(std::uint64_t hi) {
  const bool four = bit(hi, 19) || bit(hi, 20);
  const bool tall = bit(hi, 22), deep = bit(hi, 11);
  Tensor t{
      static_cast<std::uint16_t>(tall ? 16 : 8), 8, 0, four ? In::s4 : In::s8, Sum::s32, false};
  if (four)
    t.k = tall && !deep ? 64 : 32;
  else
    t.k = tall && deep ? 32 : 16;
  return t;
}

// The products of a warpgroup: bits 53 to 57 of the lower word say n, those of IGMMA in threes, 0 to 17
// for 8, 16, 24, 32, 48 and so on; bit 11 of the upper word sums in fp32, 12 bf16, 13 tf32.
std::uint16_t columns_of(std::uint64_t number) {
  return static_cast<std::uint16_t>(number < 4 ? 8 * number + 8 : 16 * number - 16);
}
Tensor gmma(unsigned base, Word128 word) {
  const std::uint64_t number = bits(word.lo, 53, 6);
  switch (base) {
    case 0x1f1:
      return {64, columns_of(number / 3), 32, In::s8, Sum::s32, false};
    case 0x1f2:
      return {64, columns_of(number), 256, In::b1, Sum::s32, false};
    default:
      break;
  }
  const Sum sum = bit(word.hi, 11) ? Sum::f32 : Sum::f16;
  const auto n = static_cast<std::uint16_t>(8 * (number % 32) + 8);
  if (base == 0x1f3) return {64, n, 32, In::fp8, sum, false};
  if (bit(word.hi, 13)) return {64, n, 8, In::tf32, sum, false};
  return {64, n, 16, bit(word.hi, 12) ? In::bf16 : In::f16, sum, false};
}

Tensor product(Fields fields, std::uint64_t hi) {
  switch (fields) {
    case Fields::hmma:
      return hmma(hi);
    case Fields::imma:
      return imma(hi);
    case Fields::hmma884:
      return {8, 8, 4, In::f16, bit(hi, 12) ? Sum::f32 : Sum::f16, false};
    case Fields::qmma:
      return {16, 8, 32, In::fp8, bit(hi, 13) ? Sum::f32 : Sum::f16, false};
    case Fields::bmma:
      return {16, 8, static_cast<std::uint16_t>(bit(hi, 11) ? 128 : 256), In::b1, Sum::s32, false};
    default:
      return {8, 8, 4, In::f64, Sum::f64, false};
  }
}

// Bytes by the code of a type or a width.
constexpr std::uint8_t kSizes[8] = {1, 1, 2, 2, 4, 8, 16, 16};
constexpr std::uint8_t kAtomics[8] = {4, 4, 8, 4, 4, 8, 8, 8};
// F16x2, F16x4, F16x8 and the same of BF16; with bit 12 F32, F32x2, F32x4, F64.
constexpr std::uint8_t kAtomicFloats[16] = {4, 8, 16, 4, 8, 16, 8, 8, 4, 4, 8, 16, 8, 8, 8, 8};
constexpr std::uint8_t kSwaps[8] = {4, 4, 8, 8, 16, 16, 16, 16};

void decode_fields(MachineInstr& instr, const Row& row, Word128 word, int sm) {
  const unsigned code = bits(word.hi, 9, 3);
  switch (row.fields) {
    case Fields::size:
    case Fields::constant:
      instr.bytes = kSizes[code];
      break;
    case Fields::copy:
      instr.bytes = sm >= 100 ? static_cast<std::uint8_t>(4 << bits(word.hi, 10, 2)) : kSizes[code];
      break;
    case Fields::atomic:
      instr.bytes = kAtomics[code];
      break;
    case Fields::atomic_float:
      instr.bytes = kAtomicFloats[code + (bit(word.hi, 12) ? 8 : 0)];
      break;
    case Fields::cas:
      instr.bytes = kSwaps[code];
      break;
    case Fields::wide:
      instr.bytes = 8;
      break;
    case Fields::ldsm:
      instr.matrices = static_cast<std::uint8_t>(1 << bits(word.hi, 8, 2));
      instr.bytes = static_cast<std::uint8_t>(4 * instr.matrices);
      break;
    case Fields::hmma:
    case Fields::imma:
    case Fields::dmma:
    case Fields::bmma:
    case Fields::qmma:
    case Fields::hmma884:
      instr.flavour = flavour_of(product(row.fields, word.hi));
      break;
    case Fields::gmma:
      instr.flavour = flavour_of(gmma(row.base, word));
      instr.reads_a = !(instr.opcode >> 10 & 1);
      instr.commits = bits(word.hi, 20, 3) == 0;
      break;
    case Fields::warpgroup:
      instr.arrives_only = !bit(word.hi, 16);
      instr.pending = static_cast<std::uint8_t>(bits(word.hi, 8, 6));
      break;
    case Fields::bar:
      instr.arrives_only = bits(word.hi, 13, 2) == 1;
      break;
    case Fields::depbar:
      instr.pending = static_cast<std::uint8_t>(bits(word.lo, 38, 6));
      break;
    case Fields::cs2r:
      if (bits(word.hi, 8, 8) == 255) instr.kind = alu;  // a zero
      break;
    case Fields::branch:
      // A second predicate, or BRA.DIV and BRA.CONV, which ask whether the lanes have parted.
      instr.more_conditions = bits(word.hi, 23, 4) != 7 || bits(word.lo, 32, 2) >= 2;
      instr.if_together = bits(word.lo, 32, 2) == 3;
      instr.if_parted = bits(word.lo, 32, 2) == 2;
      if (instr.opcode == 0x547) {  // BRA.U UP0: the predicate stands with the operands
        instr.uniform_guard = true;
        instr.guard = static_cast<std::uint8_t>(bits(word.lo, 24, 3));
        instr.guard_not = bit(word.lo, 27);
      }
      break;
    default:
      break;
  }
}

// Where UP0 to UP6 guard: the uniform datapath's own instructions.
bool guarded_by_uniform(Kind kind, unsigned base) {
  return kind == uniform ? base != 0x0ca && base != 0x1c2
                         : base == 0x0b9 || base == 0x0bb || base == 0x1ac || base == 0x1c3 ||
                               base == 0x086 || base == 0x1b2 || kind == bulk_copy;
}

const char* size_suffix(unsigned code) {
  static constexpr const char* kNames[8] = {".U8", ".S8", ".U16", ".S16",
                                            "",    ".64", ".128", ".128"};
  return kNames[code];
}

std::string tensor_suffix(Fields fields, const Tensor& t, std::uint64_t hi) {
  std::string s = t.sparse ? ".SP" : "";
  if (fields == Fields::hmma884) return std::string(t.sum == Sum::f32 ? ".F32" : ".F16");
  if (fields == Fields::dmma) return "";
  if (fields == Fields::gmma) {
    s += "." + std::to_string(t.m) + "x" + std::to_string(t.n) + "x" + std::to_string(t.k);
    if (t.input == In::b1) return s + ".AND.POPC";
    if (t.sum == Sum::s32) return s;
    return s + (t.sum == Sum::f32 ? ".F32" : ".F16") +
           (t.input == In::bf16   ? ".BF16"
            : t.input == In::tf32 ? ".TF32"
                                  : "");
  }
  s += "." + std::to_string(t.m) + std::to_string(t.n) + std::to_string(t.k);
  const auto sum = [&] { return t.sum == Sum::f32 ? ".F32" : ".F16"; };
  if (fields == Fields::hmma)
    return s + sum() + (t.input == In::bf16 ? ".BF16" : t.input == In::tf32 ? ".TF32" : "");
  if (fields == Fields::qmma) return s + sum();
  if (fields == Fields::bmma) return s + (bit(hi, 14) ? ".AND" : ".XOR") + ".POPC";
  return s;
}

}  // namespace

const Tensor* tensor_of(std::uint16_t flavour) {
  return flavour == 0 || flavour > tensors().size() ? nullptr : &tensors()[flavour - 1u];
}
std::span<const Tensor> all_tensors() { return tensors(); }

MachineInstr decode(Word128 word, int sm) {
  MachineInstr instr;
  instr.opcode = static_cast<std::uint16_t>(word.lo & 0xfff);
  instr.guard = static_cast<std::uint8_t>(bits(word.lo, 12, 3));
  instr.guard_not = bit(word.lo, 15);
  instr.stall = static_cast<std::uint8_t>(bits(word.hi, 41, 4));
  instr.yield = bit(word.hi, 45);
  instr.write_barrier = static_cast<std::uint8_t>(bits(word.hi, 46, 3));
  instr.read_barrier = static_cast<std::uint8_t>(bits(word.hi, 49, 3));
  instr.wait_mask = static_cast<std::uint8_t>(bits(word.hi, 52, 6));
  if (const Row* row = row_of(instr.opcode, sm)) {
    instr.kind = row->kind;
    instr.uniform_guard = instr.guard != 7 && guarded_by_uniform(row->kind, row->base);
    decode_fields(instr, *row, word, sm);
  }
  return instr;
}

bool branch_offset(const MachineInstr& instr, Word128 word, int sm, std::int64_t& offset) {
  const unsigned base = instr.opcode & 0x1ff;
  if (base != 0x147 && instr.opcode != 0x944) return false;
  // Bits 32 to 81 of the instruction; from sm_90 on 34 to 81 and, below these, 16 to 23, in fours.
  const std::uint64_t upper = word.hi & 0x3ffff;
  if (sm >= 90) {
    const auto high = static_cast<std::int64_t>((upper << 30 | word.lo >> 34) << 16) >> 16;
    offset = (high * 256 + bits(word.lo, 16, 8)) * 4;
  } else {
    // (Bits 32 and 33 say what kind of branch it is.)
    offset =
        static_cast<std::int64_t>((upper << 32 | word.lo >> 32) << 14) >> 14 & ~std::int64_t{3};
  }
  return true;
}

// ATOMS: whether it adds the number of its lanes; a swap in a loop until nobody came between.
bool counts_lanes(const MachineInstr& instr, Word128 word, int sm) {
  return instr.kind == Kind::shared_atomic && sm >= 80 &&
         bits(word.hi, 23, 4) == (sm >= 90 ? 11u : 10u);
}
constexpr unsigned kSwapsOften = 3;

std::uint64_t name_key(const MachineInstr& instr, Word128 word) {
  // All modifiers that a name has stand in bits 8 to 22 of the upper word.
  return instr.opcode | std::uint64_t{bits(word.hi, 8, 15)} << 12 |
         std::uint64_t{bits(word.hi, 26, 3)} << 27 | std::uint64_t{bits(word.lo, 32, 2)} << 30 |
         (instr.kind == Kind::shared_atomic ? std::uint64_t{bits(word.hi, 23, 4)} << 32 : 0) |
         // (n of a warpgroup's product)
         (instr.kind == Kind::tensor ? std::uint64_t{bits(word.lo, 53, 6)} << 36 : 0);
}

std::string instruction_name(const MachineInstr& instr, Word128 word, int sm) {
  const Row* row = row_of(instr.opcode, sm);
  if (!row) {
    char text[8];
    std::snprintf(text, sizeof text, "?%03x", instr.opcode);
    return text;
  }
  std::string name = instr.opcode == 0x5ab ? "CGAERRBAR" : row->name;
  const unsigned code = bits(word.hi, 9, 3);
  switch (row->fields) {
    case Fields::size:
    case Fields::constant:
      return name + size_suffix(code);
    case Fields::copy:
      return name + (instr.bytes == 4 ? "" : "." + std::to_string(8 * instr.bytes));
    case Fields::atomic:
    case Fields::atomic_float:
      return counts_lanes(instr, word, sm) ? name + ".POPC.INC" : name;
    case Fields::cas:
      if (instr.kind == Kind::shared_atomic)
        name += bits(word.hi, 23, 2) == kSwapsOften ? ".CAST.SPIN" : ".CAS";
      return name + (instr.bytes == 8 ? ".64" : "");
    case Fields::ldsm:
      name += bit(word.hi, 14) ? ".MT88" : ".M88";
      return instr.matrices > 1 ? name + "." + std::to_string(instr.matrices) : name;
    case Fields::bar: {
      static constexpr const char* kModes[4] = {".SYNC", ".ARV", ".RED", ".SCAN"};
      return name + kModes[bits(word.hi, 13, 2)];
    }
    case Fields::warpgroup:
      return name + (instr.arrives_only ? ".ARRIVE" : ".DEPBAR");
    case Fields::mufu: {
      static constexpr const char* kFunctions[16] = {
          ".COS",  ".SIN",  ".EX2", ".LG2", ".RCP", ".RSQ", ".RCP64H", ".RSQ64H",
          ".SQRT", ".TANH", "",     "",     "",     "",     "",        ""};
      return name + kFunctions[bits(word.hi, 10, 4)];
    }
    case Fields::cluster:
      return name + (instr.opcode == 0x9c7 ? "_ARV" : "_WAIT");
    case Fields::branch:
      return instr.opcode == 0x547 ? name + ".U" : name;
    default:
      break;
  }
  if (const Tensor* t = tensor_of(instr.flavour))
    return name + tensor_suffix(row->fields, *t, word.hi);
  return name;
}

}  // namespace vgpu::time
