// Tensor-core operations: wmma, mma.sync, ldmatrix, stmatrix, movmatrix. Operands are gathered into
// plain matrices, multiplied exactly and accumulated in fp32 (fp64, s32), and handed out again.
#include <bit>
#include <cstdio>

#include "../ptx/forms.h"
#include "access.h"
#include "half.h"
#include "tiles.h"

namespace vgpu {
namespace {

using std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

constexpr int kMaxM = 32, kMaxN = 32, kMaxK = 64;

// Elements of a type in one register of a fragment.
int per_register(Type type) {
  switch (type) {
    case Type::f64:
    case Type::f32:
    case Type::s32:
    case Type::tf32:
      return 1;
    case Type::f16:
    case Type::bf16:
      return 2;
    case Type::u8:
    case Type::s8:
    case Type::e4m3:
    case Type::e5m2:
      return 4;
    case Type::u4:
    case Type::s4:
      return 8;
    default:
      return 0;
  }
}

// One operand of a product: its registers, and where each element belongs in the plain matrix.
struct Operand {
  Type type = Type::none;
  int registers = 0;  // as the instruction lists them
  int distinct = 0;   // before they repeat
  // [register][element][lane] -> row * columns + column
  std::vector<uint16_t> index;
};

struct TensorOp {
  TileShape shape;
  Operand a, b, c, d;
  bool saturate = false;
};

int elements_of(Role role, const TileShape& s) {
  return role == Role::a ? s.m * s.k : role == Role::b ? s.k * s.n : s.m * s.n;
}

// wmma's fp16 fragments of A and B always take 8 registers, which then repeat.
Operand fragment_of(Role role, const TileShape& shape, Type type, bool wmma) {
  Operand f;
  f.type = type;
  const int each = per_register(type);
  if (each == 0) return f;
  f.distinct = elements_of(role, shape) / kWarpSize / each;
  f.registers = wmma && type == Type::f16 && role != Role::c ? 8 : f.distinct;
  const int columns = role == Role::a ? shape.k : shape.n;
  f.index.resize(static_cast<std::size_t>(f.distinct) * each * kWarpSize);
  for (int i = 0; i < f.distinct * each; ++i)
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const Place p = place_of(role, shape, lane, i, each);
      f.index[static_cast<std::size_t>(i) * kWarpSize + lane] =
          static_cast<uint16_t>(p.row * columns + p.column);
    }
  return f;
}

// Element j of the 32 lanes of a register as numbers.
template <class T>
void unpack(const uint32_t* lanes, int j, Type type, T* out) {
  if constexpr (std::is_same_v<T, float>) {
    alignas(64) uint16_t halves[kWarpSize];
    switch (type) {
      case Type::f16:
        for (int lane = 0; lane < kWarpSize; ++lane)
          halves[lane] = static_cast<uint16_t>(lanes[lane] >> (16 * j));
        return halves_to_floats(halves, out);
      case Type::bf16:
        for (int lane = 0; lane < kWarpSize; ++lane)
          out[lane] = float_from_bf16(static_cast<uint16_t>(lanes[lane] >> (16 * j)));
        return;
      case Type::tf32:  // the low 13 bits do not take part
        for (int lane = 0; lane < kWarpSize; ++lane)
          out[lane] = std::bit_cast<float>(lanes[lane] & 0xffffe000u);
        return;
      case Type::e4m3:
        for (int lane = 0; lane < kWarpSize; ++lane)
          out[lane] = float_from_e4m3(static_cast<uint8_t>(lanes[lane] >> (8 * j)));
        return;
      case Type::e5m2:
        for (int lane = 0; lane < kWarpSize; ++lane)
          out[lane] = float_from_e5m2(static_cast<uint8_t>(lanes[lane] >> (8 * j)));
        return;
      default:
        for (int lane = 0; lane < kWarpSize; ++lane) out[lane] = std::bit_cast<float>(lanes[lane]);
    }
  } else {
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const uint32_t bits = lanes[lane];
      switch (type) {
        case Type::s8:
          out[lane] = static_cast<int8_t>(bits >> (8 * j));
          break;
        case Type::u8:
          out[lane] = static_cast<uint8_t>(bits >> (8 * j));
          break;
        case Type::s4:
          out[lane] = static_cast<int32_t>(bits << (28 - 4 * j)) >> 28;
          break;
        case Type::u4:
          out[lane] = bits >> (4 * j) & 15;
          break;
        default:
          out[lane] = static_cast<int32_t>(bits);
      }
    }
  }
}

template <class T>
void gather(Warp& warp, const uint32_t* list, const Operand& f, T* matrix) {
  const int each = per_register(f.type);
  alignas(64) T values[kWarpSize];
  for (int r = 0; r < f.distinct; ++r)
    for (int j = 0; j < each; ++j) {
      const uint16_t* at = f.index.data() + (static_cast<std::size_t>(r) * each + j) * kWarpSize;
      if constexpr (std::is_same_v<T, double>) {
        const double* lanes = warp.lanes<const double>(Slot{list[r]});
        for (int lane = 0; lane < kWarpSize; ++lane) matrix[at[lane]] = lanes[lane];
      } else {
        unpack<T>(warp.lanes<const uint32_t>(Slot{list[r]}), j, f.type, values);
        for (int lane = 0; lane < kWarpSize; ++lane) matrix[at[lane]] = values[lane];
      }
    }
}

template <class T>
void scatter(Warp& warp, const uint32_t* list, const Operand& f, const T* matrix) {
  const int each = per_register(f.type);
  for (int r = 0; r < f.distinct; ++r) {
    const uint16_t* at = f.index.data() + static_cast<std::size_t>(r) * each * kWarpSize;
    if constexpr (std::is_same_v<T, double>) {
      double* lanes = warp.lanes<double>(Slot{list[r]});
      for (int lane = 0; lane < kWarpSize; ++lane) lanes[lane] = matrix[at[lane]];
    } else if constexpr (std::is_same_v<T, float>) {
      uint32_t* lanes = warp.lanes<uint32_t>(Slot{list[r]});
      if (f.type == Type::f16) {
        alignas(64) float low[kWarpSize], high[kWarpSize];
        alignas(64) uint16_t low_half[kWarpSize], high_half[kWarpSize];
        for (int lane = 0; lane < kWarpSize; ++lane)
          low[lane] = matrix[at[lane]], high[lane] = matrix[at[kWarpSize + lane]];
        floats_to_halves(low, low_half);
        floats_to_halves(high, high_half);
        for (int lane = 0; lane < kWarpSize; ++lane)
          lanes[lane] = static_cast<uint32_t>(high_half[lane]) << 16 | low_half[lane];
      } else {
        for (int lane = 0; lane < kWarpSize; ++lane)
          lanes[lane] = std::bit_cast<uint32_t>(canonical(matrix[at[lane]]));
      }
    } else {
      uint32_t* lanes = warp.lanes<uint32_t>(Slot{list[r]});
      for (int lane = 0; lane < kWarpSize; ++lane)
        lanes[lane] = static_cast<uint32_t>(matrix[at[lane]]);
    }
  }
}

// c += a b, a row of c at a time, which stays in registers over all k.
template <class T, int kN>
void multiply(int m_count, int k_count, const T* a, const T* b, T* c) {
  for (int m = 0; m < m_count; ++m) {
    T row[kN];
    for (int n = 0; n < kN; ++n) row[n] = c[m * kN + n];
    for (int k = 0; k < k_count; ++k) {
      const T factor = a[m * k_count + k];
      const T* line = b + k * kN;
      for (int n = 0; n < kN; ++n) {
        if constexpr (std::is_same_v<T, float>)
          row[n] = __builtin_fmaf(factor, line[n], row[n]);
        else if constexpr (std::is_same_v<T, double>)
          row[n] = __builtin_fma(factor, line[n], row[n]);
        else
          row[n] += factor * line[n];
      }
    }
    for (int n = 0; n < kN; ++n) c[m * kN + n] = row[n];
  }
}

void require_whole_warp(Warp& warp, const Instr& instr, uint32_t mask) {
  if (mask == kFullMask) return;
  throw Fault{FaultKind::illegal_instruction,
              describe(warp, instr, std::countr_zero(mask),
                       "a tensor operation needs all 32 lanes of the warp together; here " +
                           std::to_string(std::popcount(mask)) + " execute it")};
}

// instr.list: the registers of D, A, B and C, in this order.
template <class T>
void mma(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  const auto& op = *static_cast<const TensorOp*>(instr.data);
  alignas(64) T a[kMaxM * kMaxK], b[kMaxK * kMaxN], c[kMaxM * kMaxN];
  const uint32_t* list = instr.list;
  gather(warp, list + op.d.registers, op.a, a);
  gather(warp, list + op.d.registers + op.a.registers, op.b, b);
  gather(warp, list + op.d.registers + op.a.registers + op.b.registers, op.c, c);
  const TileShape& s = op.shape;
  switch (s.n) {
    case 8:
      multiply<T, 8>(s.m, s.k, a, b, c);
      break;
    case 16:
      multiply<T, 16>(s.m, s.k, a, b, c);
      break;
    default:
      multiply<T, 32>(s.m, s.k, a, b, c);
  }
  if constexpr (std::is_same_v<T, int64_t>) {
    if (op.saturate)
      for (int i = 0; i < s.m * s.n; ++i) c[i] = std::clamp<int64_t>(c[i], INT32_MIN, INT32_MAX);
  }
  scatter(warp, list, op.d, c);
  Worker& worker = *warp.worker;
  const auto work = static_cast<uint64_t>(s.m) * s.n * s.k;
  if (op.a.type == Type::tf32)
    worker.tensor_tf32 += work;
  else if (std::is_same_v<T, int64_t>)
    worker.tensor_int8 += work;
  else if (!std::is_same_v<T, double>)
    worker.tensor_f16 += work;
}

// ---- wmma loads and stores ------------------------------------------------------------------

struct AccessOp {
  TileShape shape;
  Role role;
  Type type;
  bool row_major = true;
  int registers = 0, distinct = 0, each = 1, bits = 32;
  bool side_by_side = false;  // a register's elements are neighbours in memory
  // [register][element][lane]: steps along the leading dimension and along the other.
  std::vector<uint8_t> outer, inner;
};

int64_t offset_of(const AccessOp& op, int element, int lane, int64_t stride) {
  const std::size_t i = static_cast<std::size_t>(element) * kWarpSize + lane;
  return (op.outer[i] * stride + op.inner[i]) * op.bits / 8;
}

// Counts and checks as what ptxas makes of it, and moves the elements. fp16 A and B of m16n16k16 in
// shared memory are ldmatrix phases (8 rows of 16 bytes), fp32 accumulators 64-bit accesses, and
// what is left takes one access a register, or one an element where those are no neighbours.
template <bool kLoad>
void fragment_access(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  const auto& op = *static_cast<const AccessOp*>(instr.data);
  Addresses base, a;
  compute_addresses(warp, instr, mask, base);
  const bool rows_lead = op.row_major;
  const int natural = op.role == Role::a   ? (rows_lead ? op.shape.k : op.shape.m)
                      : op.role == Role::b ? (rows_lead ? op.shape.n : op.shape.k)
                                           : (rows_lead ? op.shape.n : op.shape.m);
  const int64_t stride =
      instr.b.valid() ? static_cast<int32_t>(warp.lanes<const uint32_t>(instr.b)[0]) : natural;
  constexpr Access access = kLoad ? Access::load : Access::store;
  Places places;
  auto request = [&](int element, uint32_t bytes) {
    for (int lane = 0; lane < kWarpSize; ++lane)
      a.v[lane] = base.v[lane] + static_cast<uint64_t>(offset_of(op, element, lane, stride));
    a.strided = false;
    resolve(warp, instr, kFullMask, a, bytes, access, places);
  };

  const bool phases = kLoad && op.role != Role::c && op.bits == 16 && op.shape.m == 16 &&
                      op.shape.n == 16 && instr.space == Space::shared;
  if (phases) {
    // Four 8 x 8 tiles, one a register. Each phase reads the 8 lines of one tile along the order
    // of memory (ldmatrix, transposing where the fragment's order is the other one).
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const int tile = lane / 8, line = lane % 8;
      const std::size_t corner = static_cast<std::size_t>(tile) * op.each * kWarpSize;
      a.v[lane] = base.v[0] + static_cast<uint64_t>(
                                  ((op.outer[corner] + line) * stride + op.inner[corner]) * 2);
    }
    a.strided = false;
    resolve(warp, instr, kFullMask, a, 16, access, places);
    const std::byte* origin = warp.block->shared + base.v[0];
    const auto step = static_cast<int32_t>(stride);
    for (int r = 0; r < op.distinct; ++r) {
      uint32_t* lanes = warp.lanes<uint32_t>(Slot{instr.list[r]});
      const uint8_t* outer = op.outer.data() + 2 * r * kWarpSize;
      const uint8_t* inner = op.inner.data() + 2 * r * kWarpSize;
      alignas(64) int32_t at[2 * kWarpSize];
      for (int i = 0; i < 2 * kWarpSize; ++i) at[i] = (outer[i] * step + inner[i]) * 2;
      if (op.side_by_side) {
        for (int lane = 0; lane < kWarpSize; ++lane)
          std::memcpy(&lanes[lane], origin + at[lane], 4);
        continue;
      }
      for (int lane = 0; lane < kWarpSize; ++lane) {
        uint16_t low, high;
        std::memcpy(&low, origin + at[lane], 2);
        std::memcpy(&high, origin + at[kWarpSize + lane], 2);
        lanes[lane] = static_cast<uint32_t>(high) << 16 | low;
      }
    }
    for (int r = op.distinct; r < op.registers; ++r)
      std::memcpy(warp.lanes<uint32_t>(Slot{instr.list[r]}),
                  warp.lanes<uint32_t>(Slot{instr.list[r % op.distinct]}), 4 * kWarpSize);
    return;
  }
  for (int r = 0; r < op.distinct; ++r) {
    if (op.bits == 64) {
      request(r, 8);
      uint64_t* lanes = warp.lanes<uint64_t>(Slot{instr.list[r]});
      for (int lane = 0; lane < kWarpSize; ++lane) {
        if (kLoad)
          std::memcpy(&lanes[lane], places.at(a, lane), 8);
        else
          std::memcpy(places.at(a, lane), &lanes[lane], 8);
      }
      continue;
    }
    uint32_t* lanes = warp.lanes<uint32_t>(Slot{instr.list[r]});
    const bool pair = op.role == Role::c && op.bits == 32 && op.side_by_side && r % 2 == 0 &&
                      stride % 2 == 0 && base.v[0] % 8 == 0;
    if (pair) {
      request(r, 8);
      uint32_t* second = warp.lanes<uint32_t>(Slot{instr.list[r + 1]});
      for (int lane = 0; lane < kWarpSize; ++lane) {
        std::byte* p = places.at(a, lane);
        if (kLoad)
          std::memcpy(&lanes[lane], p, 4), std::memcpy(&second[lane], p + 4, 4);
        else
          std::memcpy(p, &lanes[lane], 4), std::memcpy(p + 4, &second[lane], 4);
      }
      ++r;
    } else if (op.each == 1 || op.side_by_side) {
      request(r * op.each, 4);
      for (int lane = 0; lane < kWarpSize; ++lane) {
        if (kLoad)
          std::memcpy(&lanes[lane], places.at(a, lane), 4);
        else
          std::memcpy(places.at(a, lane), &lanes[lane], 4);
      }
    } else {
      const auto bytes = static_cast<uint32_t>(op.bits / 8);
      for (int j = 0; j < op.each; ++j) {
        request(r * op.each + j, bytes);
        for (int lane = 0; lane < kWarpSize; ++lane) {
          std::byte* at = reinterpret_cast<std::byte*>(&lanes[lane]) + j * bytes;
          if (kLoad)
            std::memcpy(at, places.at(a, lane), bytes);
          else
            std::memcpy(places.at(a, lane), at, bytes);
        }
      }
    }
  }
  if (kLoad)
    for (int r = op.distinct; r < op.registers; ++r)
      std::memcpy(warp.lanes<uint32_t>(Slot{instr.list[r]}),
                  warp.lanes<uint32_t>(Slot{instr.list[r % op.distinct]}), 4 * kWarpSize);
}

// ---- ldmatrix, stmatrix, movmatrix ----------------------------------------------------------

template <bool kLoad, bool kTransposed>
void matrix8x8(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  const int count = instr.elements;
  Addresses given, a;
  compute_addresses(warp, instr, mask, given);
  // The addresses of lanes beyond 8 * count are not used.
  for (int lane = 0; lane < kWarpSize; ++lane) a.v[lane] = given.v[lane < 8 * count ? lane : 0];
  Places places;
  resolve(warp, instr, kFullMask >> (32 - 8 * count), a, 16, kLoad ? Access::load : Access::store,
          places);
  alignas(64) uint32_t loaded[4][kWarpSize];
  for (int m = 0; m < count; ++m) {
    uint32_t* lanes = kLoad ? loaded[m] : warp.lanes<uint32_t>(Slot{instr.list[m]});
    for (int lane = 0; lane < kWarpSize; ++lane)
      for (int j = 0; j < 2; ++j) {
        const int row = kTransposed ? 2 * (lane % 4) + j : lane / 4;
        const int column = kTransposed ? lane / 4 : 2 * (lane % 4) + j;
        std::byte* at = places.at(a, 8 * m + row) + 2 * column;
        auto* half = reinterpret_cast<std::byte*>(&lanes[lane]) + 2 * j;
        if (kLoad)
          std::memcpy(half, at, 2);
        else
          std::memcpy(at, half, 2);
      }
  }
  if (kLoad)
    for (int m = 0; m < count; ++m)
      std::memcpy(warp.lanes<uint32_t>(Slot{instr.list[m]}), loaded[m], sizeof loaded[m]);
}

void transpose8x8(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  const uint32_t* a = warp.lanes<const uint32_t>(instr.a);
  uint16_t matrix[8][8];
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int j = 0; j < 2; ++j)
      matrix[lane / 4][2 * (lane % 4) + j] = static_cast<uint16_t>(a[lane] >> (16 * j));
  uint32_t* d = warp.lanes<uint32_t>(instr.d[0]);
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = static_cast<uint32_t>(matrix[2 * (lane % 4) + 1][lane / 4]) << 16 |
              matrix[2 * (lane % 4)][lane / 4];
}

// ---- binding --------------------------------------------------------------------------------

bool parse_shape(const Mods& mods, TileShape& shape) {
  for (std::string_view w : mods.words)
    if (std::sscanf(std::string(w).c_str(), "m%dn%dk%d", &shape.m, &shape.n, &shape.k) == 3)
      return true;
  return false;
}

// Tables of instructions live as long as the process: programs are few and tables small.
template <class T>
const void* keep(T value) {
  return new T(std::move(value));
}

Handler bind_product(Instr& instr, const Mods& mods, bool wmma) {
  TensorOp op;
  if (!parse_shape(mods, op.shape)) return nullptr;
  std::vector<Type> types;
  for (std::string_view w : mods.words)
    if (const Type t = type_from_name(w); t != Type::none) types.push_back(t);
  Type d, a, b, c;
  if (types.size() == 4)
    d = types[0], a = types[1], b = types[2], c = types[3];
  else if (types.size() == 2)
    d = types[0], a = b = Type::f16, c = types[1];  // wmma in fp16
  else
    return nullptr;
  const TileShape& s = op.shape;
  if (s.m > kMaxM || s.n > kMaxN || s.k > kMaxK) return nullptr;
  op.saturate = mods.has("satfinite");
  op.a = fragment_of(Role::a, s, a, wmma);
  op.b = fragment_of(Role::b, s, b, wmma);
  op.c = fragment_of(Role::c, s, c, wmma);
  op.d = fragment_of(Role::c, s, d, wmma);
  for (const Operand* f : {&op.a, &op.b, &op.c, &op.d})
    if (f->distinct == 0) return nullptr;
  if (instr.list_count != op.d.registers + op.a.registers + op.b.registers + op.c.registers)
    return nullptr;
  const bool integer = d == Type::s32, f64 = d == Type::f64;
  if (is_float(a) == integer || is_float(b) == integer || (a == Type::f64) != f64) return nullptr;
  instr.data = keep(std::move(op));
  return integer ? &mma<int64_t> : f64 ? &mma<double> : &mma<float>;
}

}  // namespace

Handler bind_mma(Instr& instr, const Mods& mods) { return bind_product(instr, mods, false); }
Handler bind_wmma_mma(Instr& instr, const Mods& mods) { return bind_product(instr, mods, true); }

Handler bind_wmma_access(Instr& instr, const Mods& mods) {
  AccessOp op;
  if (!parse_shape(mods, op.shape)) return nullptr;
  op.role = mods.has("a") ? Role::a : mods.has("b") ? Role::b : Role::c;
  op.type = instr.type;
  op.row_major = mods.has("row");
  op.each = per_register(op.type);
  op.bits = op.type == Type::tf32 ? 32 : type_bits(op.type);
  const Operand f = fragment_of(op.role, op.shape, op.type, true);
  op.registers = f.registers;
  op.distinct = f.distinct;
  if (op.distinct == 0 || instr.list_count != op.registers) return nullptr;
  if ((mods.has("store") ? instr.a_bits : instr.d_bits) != (op.bits == 64 ? 64 : 32))
    return nullptr;
  for (int i = 0; i < op.distinct * op.each; ++i)
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const Place p = place_of(op.role, op.shape, lane, i, op.each);
      op.outer.push_back(static_cast<uint8_t>(op.row_major ? p.row : p.column));
      op.inner.push_back(static_cast<uint8_t>(op.row_major ? p.column : p.row));
    }
  op.side_by_side = true;
  const int pair = op.role == Role::c ? 2 : op.each;
  for (int lane = 0; lane < kWarpSize; ++lane)
    for (int j = 1; j < pair; ++j) {
      const std::size_t first = static_cast<std::size_t>(lane),
                        other = static_cast<std::size_t>(j) * kWarpSize + lane;
      op.side_by_side &=
          op.outer[other] == op.outer[first] && op.inner[other] == op.inner[first] + j;
    }
  if (op.bits < 8 && !op.side_by_side) return nullptr;  // 4-bit types have one layout each
  instr.data = keep(std::move(op));
  return mods.has("store") ? &fragment_access<false> : &fragment_access<true>;
}

Handler bind_ldmatrix(Instr& instr, const Mods& mods) {
  instr.elements = static_cast<uint8_t>(1 << mods.pick({"x1", "x2", "x4"}));
  if (instr.list_count != instr.elements || instr.d_bits != 32) return nullptr;
  return mods.has("trans") ? &matrix8x8<true, true> : &matrix8x8<true, false>;
}
Handler bind_stmatrix(Instr& instr, const Mods& mods) {
  instr.elements = static_cast<uint8_t>(1 << mods.pick({"x1", "x2", "x4"}));
  if (instr.list_count != instr.elements || instr.a_bits != 32) return nullptr;
  return mods.has("trans") ? &matrix8x8<false, true> : &matrix8x8<false, false>;
}
Handler bind_movmatrix(Instr&, const Mods&) { return &transpose8x8; }

}  // namespace vgpu
