// Comparison and selection (PTX ISA, sections of those names): setp, set, selp, slct, testp: the
// forms. What they do to one lane is in lane/compare.h.
#include "lane/compare.h"
#include "../core/lanes.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

namespace compare = op::compare;

uint32_t combined(Warp& warp, const Instr& instr, uint32_t bits) {
  if (instr.combine == Bool::none) return bits;
  return compare::combined(instr.combine, bits, get_predicate(warp, instr.c, instr.c_not));
}

// The comparison is known when it compiles: for setp of the usual types.
template <class In, Compare kCompare>
uint32_t compare_lanes(const typename In::Lane* a, const typename In::Lane* b) {
  alignas(64) typename In::Value space[2][kWarpSize];
  const auto* x = In::read(a, space[0]);
  const auto* y = In::read(b, space[1]);
  using Value = typename In::Value;
  return collect([&](int lane) {
    return compare::Setp<compare::Plain<Value>, kCompare>::lane(x[lane], y[lane]);
  });
}

// One function a type for all comparisons, of which there would be hundreds otherwise: for halves,
// where reading them takes longest, and for set.
template <class In>
uint32_t compare_lanes(Compare how, const typename In::Lane* a, const typename In::Lane* b) {
  alignas(64) typename In::Value space[2][kWarpSize];
  const auto* x = In::read(a, space[0]);
  const auto* y = In::read(b, space[1]);
  const uint32_t less = collect([&](int lane) { return x[lane] < y[lane]; });
  const uint32_t equal = collect([&](int lane) { return x[lane] == y[lane]; });
  const uint32_t greater = collect([&](int lane) { return x[lane] > y[lane]; });
  return compare::by_order(how, less, equal, greater);
}
template <class In>
uint32_t compare_lanes(Compare how, Warp& warp, const Instr& instr) {
  return compare_lanes<In>(how, warp.lanes<const typename In::Lane>(instr.a),
                           warp.lanes<const typename In::Lane>(instr.b));
}

// Both before either is written: a destination may be the source predicate.
inline void write_predicates(Warp& warp, const Instr& instr, uint32_t mask, uint32_t bits) {
  const uint32_t p = combined(warp, instr, bits);
  const uint32_t q = instr.d[1].valid() ? combined(warp, instr, ~bits) : 0;
  set_predicate(warp, instr.d[0], p, mask);
  set_predicate(warp, instr.d[1], q, mask);
}
template <class In, Compare kCompare>
void setp(Warp& warp, const Instr& instr, uint32_t mask) {
  write_predicates(warp, instr, mask,
                   compare_lanes<In, kCompare>(warp.lanes<const typename In::Lane>(instr.a),
                                               warp.lanes<const typename In::Lane>(instr.b)));
}
template <class In>
void setp_halves(Warp& warp, const Instr& instr, uint32_t mask) {
  write_predicates(warp, instr, mask, compare_lanes<In>(instr.compare, warp, instr));
}

// `yes` in the lanes whose bit is set, else 0.
template <class T>
void write_choice(Warp& warp, const Instr& instr, uint32_t mask, uint32_t bits, T yes) {
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = bits >> lane & 1 ? yes : T{0};
}
template <class In>
void set(Warp& warp, const Instr& instr, uint32_t mask) {
  const Compare how = compare::plain(instr.compare);
  const uint32_t bits = combined(warp, instr, compare_lanes<In>(how, warp, instr));
  const uint32_t yes = compare::yes_of(instr.dtype);
  if (type_bits(instr.dtype) == 16)
    write_choice<uint16_t>(warp, instr, mask, bits, static_cast<uint16_t>(yes));
  else
    write_choice<uint32_t>(warp, instr, mask, bits, yes);
}

// Packed comparisons: the low half gives p, the high half q; set gives a half each.
template <class In, bool kPredicates>
void packed(Warp& warp, const Instr& instr, uint32_t mask) {
  const auto* a = warp.lanes<const uint32_t>(instr.a);
  const auto* b = warp.lanes<const uint32_t>(instr.b);
  uint32_t bits[2];
  for (int half = 0; half < 2; ++half) {
    alignas(64) uint16_t x[kWarpSize], y[kWarpSize];
    for (int lane = 0; lane < kWarpSize; ++lane) {
      x[lane] = static_cast<uint16_t>(a[lane] >> (16 * half));
      y[lane] = static_cast<uint16_t>(b[lane] >> (16 * half));
    }
    bits[half] = combined(warp, instr, compare_lanes<In>(instr.compare, x, y));
  }
  if (kPredicates) {
    set_predicate(warp, instr.d[0], bits[0], mask);
    set_predicate(warp, instr.d[1], bits[1], mask);
    return;
  }
  const uint32_t one = compare::yes_of(instr.dtype) & 0xffff;
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = (bits[0] >> lane & 1 ? one : 0u) | (bits[1] >> lane & 1 ? one << 16 : 0u);
}

template <class In>
Handler setp_for(Compare how) {
#define CASE(name)    \
  case Compare::name: \
    return &setp<In, Compare::name>
  if constexpr (std::is_floating_point_v<typename In::Value>) {
    switch (how) {
      CASE(equ);
      CASE(neu);
      CASE(ltu);
      CASE(leu);
      CASE(gtu);
      CASE(geu);
      CASE(num);
      CASE(nan);
      default:
        break;
    }
  }
  switch (how) {
    CASE(eq);
    CASE(ne);
    CASE(lt);
    CASE(le);
    CASE(gt);
    CASE(ge);
    default:
      return nullptr;
  }
#undef CASE
}

template <bool kPredicate>
Handler bind_compare(const Instr& instr) {
  // lo, ls, hi, hs are for unsigned and bit types; equ and the like for floats.
  const bool unsigned_only = instr.compare == Compare::lo || instr.compare == Compare::ls ||
                             instr.compare == Compare::hi || instr.compare == Compare::hs;
  const bool float_only = instr.compare >= Compare::equ;
  if (unsigned_only && (is_float(instr.type) || is_signed(instr.type))) return nullptr;
  if (float_only && !is_float(instr.type)) return nullptr;
  if ((instr.combine != Bool::none) != instr.c.valid()) return nullptr;
  if (instr.compare == Compare::none) return nullptr;
  const auto with = [&]<class In>(In) -> Handler {
    if constexpr (!kPredicate)
      return &set<In>;
    else if constexpr (sizeof(typename In::Lane) < sizeof(typename In::Value))
      return &setp_halves<In>;
    else
      return setp_for<In>(compare::plain(instr.compare));
  };
  const auto pairs = [&]<class In>(In) -> Handler { return &packed<In, kPredicate>; };
  switch (instr.type) {
    case Type::b16:
    case Type::u16:
      return with(compare::Plain<uint16_t>{});
    case Type::b32:
    case Type::u32:
      return with(compare::Plain<uint32_t>{});
    case Type::b64:
    case Type::u64:
      return with(compare::Plain<uint64_t>{});
    case Type::s16:
      return with(compare::Plain<int16_t>{});
    case Type::s32:
      return with(compare::Plain<int32_t>{});
    case Type::s64:
      return with(compare::Plain<int64_t>{});
    case Type::f32:
      return instr.ftz ? with(compare::Flushed{}) : with(compare::Plain<float>{});
    case Type::f64:
      return with(compare::Plain<double>{});
    case Type::f16:
      return instr.ftz ? with(compare::F16Flushed{}) : with(compare::F16{});
    case Type::bf16:
      return with(compare::Bf16{});
    case Type::f16x2:
      return instr.ftz ? pairs(compare::F16Flushed{}) : pairs(compare::F16{});
    case Type::bf16x2:
      return pairs(compare::Bf16{});
    default:
      return nullptr;
  }
}

template <class T>
void select(Warp& warp, const Instr& instr, uint32_t mask) {
  const uint32_t p = get_predicate(warp, instr.c, instr.c_not);
  Result<T> result(warp, instr.d[0], mask);
  T* d = result.lanes();
  const T* a = warp.lanes<const T>(instr.a);
  const T* b = warp.lanes<const T>(instr.b);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = compare::Selp<T>::lane(a[lane], b[lane], p >> lane & 1);
}

template <class T, compare::Test kTest>
void testp(Warp& warp, const Instr& instr, uint32_t mask) {
  const T* a = warp.lanes<const T>(instr.a);
  const uint32_t bits = collect([&](int lane) { return compare::Testp<T, kTest>::lane(a[lane]); });
  set_predicate(warp, instr.d[0], bits, mask);
}
template <class T>
Handler bind_test(int test) {
  switch (test) {
    case compare::kFinite:
      return &testp<T, compare::kFinite>;
    case compare::kInfinite:
      return &testp<T, compare::kInfinite>;
    case compare::kNumber:
      return &testp<T, compare::kNumber>;
    case compare::kNotANumber:
      return &testp<T, compare::kNotANumber>;
    case compare::kNormal:
      return &testp<T, compare::kNormal>;
    case compare::kSubnormal:
      return &testp<T, compare::kSubnormal>;
    default:
      return nullptr;
  }
}

template <class T>
using SlctInteger = compare::Slct<T, compare::Plain<int32_t>>;
template <class T>
using SlctFloat = compare::Slct<T, compare::Plain<float>>;
template <class T>
using SlctFlushed = compare::Slct<T, compare::Flushed>;

}  // namespace

Handler bind_setp(Instr& instr, const Mods&) { return bind_compare<true>(instr); }
Handler bind_set(Instr& instr, const Mods&) { return bind_compare<false>(instr); }
Handler bind_selp(Instr& instr, const Mods&) {
  switch (type_bits(instr.type)) {
    case 16:
      return &select<uint16_t>;
    case 32:
      return &select<uint32_t>;
    default:
      return &select<uint64_t>;
  }
}
Handler bind_slct(Instr& instr, const Mods&) {
  if (instr.type != Type::f32) return lanewise_bits<SlctInteger>(instr.dtype);
  return instr.ftz ? lanewise_bits<SlctFlushed>(instr.dtype)
                   : lanewise_bits<SlctFloat>(instr.dtype);
}
Handler bind_testp(Instr& instr, const Mods& mods) {
  const int test = mods.pick({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  return instr.type == Type::f32 ? bind_test<float>(test) : bind_test<double>(test);
}

}  // namespace vgpu
