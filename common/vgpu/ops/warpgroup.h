// Products of a warpgroup: what one is, where its operands lie, and the arithmetic (warpgroup_product.cpp).
// warpgroup.cpp says when it is computed.
#pragma once
#include <cstdint>

#include "../core/access.h"
#include "descriptor.h"
#include "forms.h"

namespace vgpu {

inline constexpr int kMostColumns = 256;
// Core matrices of an operand: of the warp's 16 rows of A, and of B.
inline constexpr int kPiecesOfA = 4 * 8, kMostPiecesOfB = kMostColumns / 8 * 2 * 8;

struct WarpgroupOp {
  int n = 0, k = 0;
  Type a = Type::none, b = Type::none, d = Type::none;
  bool a_in_registers = false, a_mn_major = false, b_mn_major = false;
  bool negate = false;  // one of imm-scale-a and imm-scale-b is -1, the other is not
  bool saturate = false;
  int per_tile() const { return d == Type::f16 ? 2 : 4; }  // registers of 8 columns
};

inline const WarpgroupOp& op_of(const Instr& instr) {
  return *static_cast<const WarpgroupOp*>(instr.data);
}

// Offsets in shared memory of the 16-byte pieces of an operand: of A those that the warp reads itself,
// kPiecesOfA; of B all, and how many they are.
void place_a(const Warp& warp, const WarpgroupOp& op, std::uint64_t descriptor, std::uint32_t* at);
int place_b(const WarpgroupOp& op, std::uint64_t descriptor, std::uint32_t* at);

// The operands of a product as they are now, for multiply() to take instead of what is there then.
void read_operands(Warp& warp, PendingProduct& product);
// Multiplies, of operands as they are now or were read before, and writes the warp's registers of D.
void multiply(Warp& warp, const PendingProduct& product);

}  // namespace vgpu
