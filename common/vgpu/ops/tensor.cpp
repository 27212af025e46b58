// Tensor-core operations: wmma, mma.sync, ldmatrix, stmatrix, movmatrix. Elements are multiplied
// exactly and accumulated in fp32 (fp64, s32), in the order of k.
#include <bit>
#include <cstdio>

#include "../core/access.h"
#include "forms.h"
#include "products.h"
#include "tiles.h"

namespace vgpu {
namespace {

using std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;
using namespace tensor;

// The largest operands of A and B (s4, m16n8k64), and of C and D (wmma), in elements.
constexpr int kMostFactors = 1024, kMostSums = 256;

// Elements of a type in one register of a fragment.
constexpr int per_register(Type type) {
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

// One operand of a product.
struct Operand {
  Type type = Type::none;
  int registers = 0;  // as the instruction lists them
  int distinct = 0;   // before they repeat
};

struct TensorOp {
  TileShape shape;  // the transposed product's, when exchanged
  Operand a, b, c, d;
  bool saturate = false, exchanged = false;
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
  return f;
}

// ---- products -------------------------------------------------------------------------------

// [register][element][32 lanes].
template <Type kType, class T>
void unpack_registers(Warp& warp, const uint32_t* list, const Operand& f, bool sorted, T* out) {
  using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  alignas(64) Word words[kWarpSize];
  for (int r = 0; r < f.distinct; ++r, out += per_register(kType) * kWarpSize) {
    const Word* lanes = warp.lanes<const Word>(Slot{list[r]});
    if (sorted) sort_columns(lanes, words);
    unpack<kType>(sorted ? words : lanes, out);
  }
}
void unpack_all(Warp& warp, const uint32_t* list, const Operand& f, bool sorted, float* out) {
  switch (f.type) {
    case Type::f16:
      return unpack_registers<Type::f16>(warp, list, f, sorted, out);
    case Type::bf16:
      return unpack_registers<Type::bf16>(warp, list, f, sorted, out);
    case Type::tf32:
      return unpack_registers<Type::tf32>(warp, list, f, sorted, out);
    case Type::e4m3:
      return unpack_registers<Type::e4m3>(warp, list, f, sorted, out);
    case Type::e5m2:
      return unpack_registers<Type::e5m2>(warp, list, f, sorted, out);
    default:
      return unpack_registers<Type::f32>(warp, list, f, sorted, out);
  }
}
void unpack_all(Warp& warp, const uint32_t* list, const Operand& f, bool sorted, uint32_t* out) {
  switch (f.type) {
    case Type::s8:
      return unpack_registers<Type::s8>(warp, list, f, sorted, out);
    case Type::u8:
      return unpack_registers<Type::u8>(warp, list, f, sorted, out);
    case Type::s4:
      return unpack_registers<Type::s4>(warp, list, f, sorted, out);
    case Type::u4:
      return unpack_registers<Type::u4>(warp, list, f, sorted, out);
    default:
      return unpack_registers<Type::s32>(warp, list, f, sorted, out);
  }
}
void unpack_all(Warp& warp, const uint32_t* list, const Operand& f, bool sorted, double* out) {
  unpack_registers<Type::f64>(warp, list, f, sorted, out);
}

void pack_all(Warp& warp, const uint32_t* list, const Operand& f, const float* sums) {
  for (int r = 0; r < f.distinct; ++r) {
    uint32_t* lanes = warp.lanes<uint32_t>(Slot{list[r]});
    if (f.type != Type::f16) {
      for (int lane = 0; lane < kWarpSize; ++lane)
        lanes[lane] = std::bit_cast<uint32_t>(canonical(sums[lane]));
      sums += kWarpSize;
      continue;
    }
    alignas(64) uint16_t low[kWarpSize], high[kWarpSize];
    floats_to_halves(sums, low);
    floats_to_halves(sums + kWarpSize, high);
    for (int lane = 0; lane < kWarpSize; ++lane)
      lanes[lane] = static_cast<uint32_t>(high[lane]) << 16 | low[lane];
    sums += 2 * kWarpSize;
  }
}
template <class T>
void pack_all(Warp& warp, const uint32_t* list, const Operand& f, const T* sums) {
  for (int r = 0; r < f.distinct; ++r, sums += kWarpSize)
    std::memcpy(warp.lanes<T>(Slot{list[r]}), sums, sizeof(T) * kWarpSize);
}

template <class T>
void multiply(const TensorOp& op, const T* a, const T* b, T* c) {
  const TileShape& s = op.shape;
  const int rows = s.m == 8 ? 8 : 16, each = per_register(op.a.type);
  const int registers = s.k / 4 / each;
  for (int m = 0; m < s.m; m += rows)
    for (int n = 0; n < s.n; n += 8, c += rows * 8)
      (rows == 8 ? multiply_tile<T, 1> : multiply_tile<T, 2>)(a + m * s.k, b + n * s.k, c,
                                                              registers, each);
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
  alignas(64) T a[kMostFactors], b[kMostFactors], c[kMostSums];
  const uint32_t* list = instr.list + op.d.registers;
  // The transposed product of an exchanged shape: B's columns are its rows.
  unpack_all(warp, list, op.a, op.exchanged, op.exchanged ? b : a);
  unpack_all(warp, list + op.a.registers, op.b, !op.exchanged, op.exchanged ? a : b);
  unpack_all(warp, list + op.a.registers + op.b.registers, op.c, false, c);
  const int sums = op.shape.m * op.shape.n;
  if constexpr (std::is_integral_v<T>) {
    if (op.saturate) {
      alignas(64) T products[kMostSums] = {};
      multiply(op, a, b, products);
      for (int i = 0; i < sums; ++i)
        c[i] = static_cast<T>(std::clamp<int64_t>(
            int64_t{static_cast<int32_t>(c[i])} + static_cast<int32_t>(products[i]), INT32_MIN,
            INT32_MAX));
    } else {
      multiply(op, a, b, c);
    }
  } else {
    multiply(op, a, b, c);
  }
  pack_all(warp, instr.list, op.d, c);
  Worker& worker = *warp.worker;
  const auto work = static_cast<uint64_t>(sums) * op.shape.k;
  if (op.a.type == Type::tf32)
    worker.tensor_tf32 += work;
  else if (std::is_integral_v<T>) {
    worker.tensor_int8 += work;
    if (op.a.type == Type::s4 || op.a.type == Type::u4) worker.tensor_int4 += work;
  } else if (!std::is_same_v<T, double>) {
    worker.tensor_f16 += work;
    if (op.d.type == Type::f16) worker.tensor_f16_sums += work;
    if (op.a.type == Type::e4m3 || op.a.type == Type::e5m2) worker.tensor_f8 += work;
  }
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

// Four neighbouring lanes hold one row of a matrix (transposed: one column), 16 bytes.
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
  Half8 lines[4][8];
  for (int m = 0; m < count; ++m) {
    if (kLoad)
      for (int row = 0; row < 8; ++row)
        std::memcpy(&lines[m][row], places.at(a, 8 * m + row), sizeof(Half8));
    else
      std::memcpy(lines[m], warp.lanes<uint32_t>(Slot{instr.list[m]}), sizeof lines[m]);
    if (kTransposed) transpose(lines[m]);
  }
  for (int m = 0; m < count; ++m) {
    if (kLoad)
      std::memcpy(warp.lanes<uint32_t>(Slot{instr.list[m]}), lines[m], sizeof lines[m]);
    else
      for (int row = 0; row < 8; ++row)
        std::memcpy(places.at(a, 8 * m + row), &lines[m][row], sizeof(Half8));
  }
}

void transpose8x8(Warp& warp, const Instr& instr, uint32_t mask) {
  require_whole_warp(warp, instr, mask);
  Half8 lines[8];
  std::memcpy(lines, warp.lanes<const uint32_t>(instr.a), sizeof lines);
  transpose(lines);
  std::memcpy(warp.lanes<uint32_t>(instr.d[0]), lines, sizeof lines);
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
  const TileShape s = op.shape;
  if (s.m * s.k > kMostFactors || s.k * s.n > kMostFactors || s.m * s.n > kMostSums) return nullptr;
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
  if (per_register(a) != per_register(b)) return nullptr;
  op.exchanged = s.m == 8 && s.n == 32;
  if (op.exchanged) std::swap(op.shape.m, op.shape.n);
  instr.list_results = static_cast<std::uint16_t>(op.d.registers);
  instr.data = keep(std::move(op));
  return integer ? &mma<uint32_t> : f64 ? &mma<double> : &mma<float>;
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
