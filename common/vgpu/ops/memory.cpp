// ld and st, every space, width and vector.
#include "../core/access.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::int16_t, std::int32_t, std::int64_t, std::int8_t;
using std::uint16_t, std::uint32_t, std::uint64_t, std::uint8_t;

struct Bytes16 {
  std::uint64_t low, high;
};

template <class T>
inline T read_at(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// T: type in memory, R: lane of the register (sign or zero extended).
template <class T, class R>
inline R widen(T value) {
  if constexpr (std::is_same_v<T, Bytes16>)
    return value;
  else if constexpr (std::is_signed_v<T>)
    return static_cast<R>(static_cast<std::make_signed_t<R>>(value));
  else
    return static_cast<R>(value);
}

// A volatile or ordered load in a loop may be waiting for others; see Warp::look.
void look_at(Warp& warp, uint32_t mask, const Addresses& a, const Places& places, uint32_t bytes) {
  each_lane(mask, [&](int lane) {
    uint64_t words[4] = {};
    std::memcpy(words, places.at(a, lane), bytes);
    warp.look(a.v[lane], words[0] ^ words[1] * 3 ^ words[2] * 5 ^ words[3] * 7);
  });
}

template <class T, class R>
void load(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  const uint32_t bytes = sizeof(T) * instr.elements;
  resolve(warp, instr, mask, a, bytes, Access::load, places);
  if (instr.volatile_) look_at(warp, mask, a, places, bytes);
  if (instr.elements == 1) {
    R* d = warp.lanes<R>(instr.d[0]);
    if (places.single && a.strided) {
      const std::byte* p = places.at(a, 0);
      if (a.stride == sizeof(T)) {
        for (int lane = 0; lane < kWarpSize; ++lane)
          d[lane] = widen<T, R>(read_at<T>(p + lane * sizeof(T)));
      } else if (a.stride == 0) {
        const R value = widen<T, R>(read_at<T>(p));
        for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = value;
      } else {
        for (int lane = 0; lane < kWarpSize; ++lane)
          d[lane] = widen<T, R>(read_at<T>(p + lane * a.stride));
      }
      return;
    }
    each_lane(mask, [&](int lane) { d[lane] = widen<T, R>(read_at<T>(places.at(a, lane))); });
    return;
  }
  // The lanes' pieces are read whole before any register is written: a destination may be the base.
  R* d[8];
  for (int k = 0; k < instr.elements; ++k) d[k] = warp.lanes<R>(Slot{instr.list[k]});
  each_lane(mask, [&](int lane) {
    const std::byte* p = places.at(a, lane);
    for (int k = 0; k < instr.elements; ++k)
      d[k][lane] = widen<T, R>(read_at<T>(p + k * sizeof(T)));
  });
}

template <class T, class R>
void store(Warp& warp, const Instr& instr, uint32_t mask) {
  Addresses a;
  compute_addresses(warp, instr, mask, a);
  Places places;
  const uint32_t bytes = sizeof(T) * instr.elements;
  resolve(warp, instr, mask, a, bytes, Access::store, places);
  warp.changed |= instr.space != Space::local && instr.space != Space::param;
  auto put = [](std::byte* p, const R& value) {
    if constexpr (std::is_same_v<T, Bytes16>) {
      std::memcpy(p, &value, sizeof value);
    } else {
      const T narrow = static_cast<T>(value);
      std::memcpy(p, &narrow, sizeof narrow);
    }
  };
  if (instr.elements == 1) {
    const R* s = warp.lanes<const R>(instr.a);
    if (places.single && a.strided && a.stride == sizeof(T)) {
      std::byte* first = places.at(a, 0);
      for (int lane = 0; lane < kWarpSize; ++lane) put(first + lane * sizeof(T), s[lane]);
      return;
    }
    // Lanes that write the same place: the last one wins, always the same.
    each_lane(mask, [&](int lane) { put(places.at(a, lane), s[lane]); });
    return;
  }
  const R* s[8];
  for (int k = 0; k < instr.elements; ++k) s[k] = warp.lanes<const R>(Slot{instr.list[k]});
  each_lane(mask, [&](int lane) {
    std::byte* p = places.at(a, lane);
    for (int k = 0; k < instr.elements; ++k) put(p + k * sizeof(T), s[k][lane]);
  });
}

// The handler for a type in memory and a register width. Types as wide as the register need no sign.
template <template <class, class> class Op>
Handler choose(Type type, int bits);

template <class T, class R>
struct Load {
  static constexpr Handler handler = &load<T, R>;
};
template <class T, class R>
struct Store {
  static constexpr Handler handler = &store<T, R>;
};

template <template <class, class> class Op, class T>
Handler by_register(int bits) {
  switch (bits) {
    case 16:
      if constexpr (sizeof(T) <= 2) return Op<T, uint16_t>::handler;
      break;
    case 32:
      if constexpr (sizeof(T) <= 4) return Op<T, uint32_t>::handler;
      break;
    case 64:
      if constexpr (sizeof(T) <= 8) return Op<T, uint64_t>::handler;
      break;
  }
  return nullptr;
}

template <template <class, class> class Op>
Handler choose(Type type, int bits) {
  switch (type) {
    case Type::b8:
    case Type::u8:
      return by_register<Op, uint8_t>(bits);
    case Type::s8:
      return by_register<Op, int8_t>(bits);
    case Type::b16:
    case Type::u16:
    case Type::f16:
      return by_register<Op, uint16_t>(bits);
    case Type::s16:
      return by_register<Op, int16_t>(bits);
    case Type::b32:
    case Type::u32:
    case Type::f32:
      return by_register<Op, uint32_t>(bits);
    case Type::s32:
      return by_register<Op, int32_t>(bits);
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
      return by_register<Op, uint64_t>(bits);
    case Type::b128:
      return bits == 128 ? Op<Bytes16, Bytes16>::handler : nullptr;
    default:
      return nullptr;
  }
}

bool vector_fits(const Instr& instr) {
  if (instr.elements == 1) return instr.list == nullptr;
  const int bytes = type_bits(instr.type) / 8 * instr.elements;
  return instr.list_count == instr.elements && bytes <= 32;
}

void nothing(Warp&, const Instr&, uint32_t) {}

}  // namespace

Handler bind_ld(Instr& instr, const Mods&) {
  return vector_fits(instr) ? choose<Load>(instr.type, instr.d_bits) : nullptr;
}
Handler bind_st(Instr& instr, const Mods&) {
  if (instr.space == Space::constant) return nullptr;
  return vector_fits(instr) ? choose<Store>(instr.type, instr.a_bits) : nullptr;
}
// Hints: they change where data lies, never what it is.
Handler bind_hint(Instr&, const Mods&) { return &nothing; }

}  // namespace vgpu
