// One product of a warpgroup (wgmma): what the instruction says, and a warp's share of it, 16 rows.
#pragma once
#include "../core/warp.h"
#include "descriptor.h"
#include "forms.h"

namespace vgpu {

struct WarpgroupOp {
  int n = 0, k = 0;
  Type a = Type::none, b = Type::none, d = Type::none;
  bool a_in_registers = false, a_mn_major = false, b_mn_major = false;
  bool negate = false;  // one of imm-scale-a and imm-scale-b is -1, the other is not
  bool saturate = false;
  bool sparse = false;
  int selector = 0;                                        // for a sparse one
  int depth() const { return sparse ? 4 : 2; }             // core matrices of B along K; A has 2
  int each() const { return k / (4 * depth()); }           // elements of a register
  int per_tile() const { return d == Type::f16 ? 2 : 4; }  // registers of 8 columns
};
inline const WarpgroupOp& op_of(const Instr& instr) {
  return *static_cast<const WarpgroupOp*>(instr.data);
}

inline constexpr int kMostColumns = 256;
// Pieces of 16 bytes: of the warp's 16 rows of A, and of B.
inline constexpr int kPiecesOfA = 4 * 8, kMostPiecesOfB = kMostColumns / 8 * 4 * 8;

// Offsets of the pieces in shared memory, [core matrix][line]. place_b returns how many there are.
void place_a(const Warp& warp, const WarpgroupOp& op, std::uint64_t descriptor, std::uint32_t* at);
int place_b(const WarpgroupOp& op, std::uint64_t descriptor, std::uint32_t* at);

// Words of A by register: [16 bytes of K][half of the rows]. They are in registers or in memory.
void read_a(Warp& warp, const Instr& instr, std::uint64_t descriptor,
            std::uint32_t (*words)[kWarpSize]);
// Words of B by core matrix. All at once: to read what was just written in smaller pieces takes long.
void read_b(Warp& warp, const WarpgroupOp& op, std::uint64_t descriptor,
            std::uint32_t (*words)[kWarpSize]);

// Adds the warp's 16 rows of the product to its accumulators. The registers are those of the function
// that asked for it. Throws Fault for metadata without a meaning.
void multiply_for_warp(Warp& warp, const PendingProduct& product);

}  // namespace vgpu
