// What mov and cvta do to one lane. See core/signature.h.
#pragma once
#include <cstdint>

#include "../../ptx/program.h"

namespace vgpu::op::move {

using std::uint64_t;

template <class T>
struct Copy {
  static constexpr T lane(T v) { return v; }
};

// Vectors {..}, element 0 lowest. The element `part`, which lies in a register of `Lane`, in a
// word.
template <class Part, class Lane, class Word>
struct Pack {
  static constexpr Word lane(Lane part, int k) {
    const int shift = 8 * static_cast<int>(sizeof(Part)) * k;
    return static_cast<Word>(static_cast<Word>(static_cast<Part>(part)) << shift);
  }
};
template <class Part, class Lane, class Word>
struct Unpack {
  static constexpr Lane lane(Word word, int k) {
    return static_cast<Part>(word >> 8 * static_cast<int>(sizeof(Part)) * k);
  }
};

// cvta: between a generic address and one in a space, whose window the binder left in the
// instruction.
template <class T>
struct AddWindow {
  uint64_t window;
  explicit constexpr AddWindow(uint64_t by) : window(by) {}
  explicit constexpr AddWindow(const Instr& instr) : window(static_cast<uint64_t>(instr.imm)) {}
  constexpr T lane(T v) const { return static_cast<T>(v + window); }
};

}  // namespace vgpu::op::move
