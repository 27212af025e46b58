// What the 16 bytes of a machine instruction say: unit, width, shape, control bits. The format is not
// published; the table was made and is checked by comparing with NVIDIA's disassembler.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "machine_code.h"

namespace vgpu::time {

// One machine instruction as it lies in memory: two little-endian words.
struct Word128 {
  std::uint64_t lo = 0, hi = 0;
};

// What a tensor instruction multiplies: D (m x n) += A (m x k) x B (k x n). m is 64 in products of a
// warpgroup (wgmma), of which a warp computes 16 rows.
struct Tensor {
  enum class Input : std::uint8_t { f16, bf16, tf32, f64, fp8, s8, s4, b1 };
  enum class Sum : std::uint8_t { f16, f32, f64, s32 };
  std::uint16_t m = 0, n = 0, k = 0;
  Input input = Input::f16;
  Sum sum = Sum::f32;
  bool sparse = false;  // A has half of its values; m, n, k are those of the whole product
  bool of_warpgroup() const { return m == 64; }
  int multiply_adds() const { return (of_warpgroup() ? 16 : m) * n * k; }  // by one warp
};
// The product of a tensor instruction's `flavour`; null for 0, which other instructions have.
const Tensor* tensor_of(std::uint16_t flavour);
std::span<const Tensor> all_tensors();  // the products of flavour 1, 2, ...

// Decodes all fields but ptx_line, target, address and name. `sm`: 90 for sm_90.
MachineInstr decode(Word128 word, int sm);
// Offset in bytes from the end of the instruction to where it goes; false: it names no place.
bool branch_offset(const MachineInstr& instr, Word128 word, int sm, std::int64_t& offset);
// "LDG.E.128", with the modifiers that are decoded; "?2f3" for an opcode outside the table.
std::string instruction_name(const MachineInstr& instr, Word128 word, int sm);
// Bits of the instruction on which its name depends: two with the same have the same name.
std::uint64_t name_key(const MachineInstr& instr, Word128 word);

}  // namespace vgpu::time
