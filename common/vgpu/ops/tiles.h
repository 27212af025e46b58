// Which lane holds which element of a tensor-core operand (PTX ISA, "Matrix Fragments").
//
// All shapes are made of one pattern. With g = lane / 4, t = lane % 4 and E elements of the
// operand in a register of 32 (f64: 64) bits, element j of register r is
//   A (M x K):  row g + 8 (r % 2), column t E + j + 4 E (r / 2)      tiles of 16 rows (8: r % 2 is 0)
//   B (K x N):  row t E + j + 4 E r, column g                        tiles of 8 columns
//   C, D:       row g + 8 (i / 2), column 2 t + i % 2                for element i of a tile
// wmma's larger shapes are several such tiles one after the other; its 8 x 32 shapes are the
// 32 x 8 ones with rows and columns exchanged. fp16 wmma operands with room to spare repeat.
#pragma once
#include <cstdint>

namespace vgpu {

struct Place {
  int row, column;
};

enum class Role : std::uint8_t { a, b, c };

struct TileShape {
  int m, n, k;
};

// Element `i` (counted over the lane's registers) of an operand whose registers hold `per_register`
// elements. `count`: elements a lane holds before they repeat.
inline Place a_place(int lane, int i, int per_register, int rows) {
  const int g = lane / 4, t = lane % 4, r = i / per_register, j = i % per_register;
  if (rows == 8) return {g, t * per_register + j + 4 * per_register * r};
  return {g + 8 * (r % 2), t * per_register + j + 4 * per_register * (r / 2)};
}
inline Place b_place(int lane, int i, int per_register) {
  const int g = lane / 4, t = lane % 4, r = i / per_register, j = i % per_register;
  return {t * per_register + j + 4 * per_register * r, g};
}
inline Place c_place(int lane, int i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }

// The same for any shape of mma and wmma.
inline Place place_of(Role role, const TileShape& s, int lane, int i, int per_register) {
  const bool exchanged = s.m == 8 && s.n == 32;  // wmma m8n32: the transposed problem
  if (exchanged) {
    const TileShape t{s.n, s.m, s.k};
    const Place p = place_of(role == Role::a   ? Role::b
                             : role == Role::b ? Role::a
                                               : Role::c,
                             t, lane, i, per_register);
    return {p.column, p.row};
  }
  const int rows = s.m == 8 ? 8 : 16;
  switch (role) {
    case Role::a: {
      const int held = rows * s.k / 32;  // elements a lane holds of one tile
      const int tiles = s.m / rows;
      i %= held * tiles;
      Place p = a_place(lane, i % held, per_register, rows);
      p.row += i / held * rows;
      return p;
    }
    case Role::b: {
      const int held = 8 * s.k / 32, tiles = s.n / 8;
      i %= held * tiles;
      Place p = b_place(lane, i % held, per_register);
      p.column += i / held * 8;
      return p;
    }
    default: {
      const int held = rows * 8 / 32;
      const int tiles_n = s.n / 8;
      const int tile = i / held;
      Place p = c_place(lane, i % held);
      p.row += tile / tiles_n * rows;
      p.column += tile % tiles_n * 8;
      return p;
    }
  }
}

}  // namespace vgpu
