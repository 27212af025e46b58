// Operations that several lanes execute together: shuffles, votes, barriers of a warp.
#include <algorithm>
#include <array>
#include <cstring>

#include "block.h"
#include "lanes.h"
#include "warp.h"

namespace vgpu {

// Each of the party stands at its own instruction with its own registers: gather, run once, hand out.
void Warp::run_gathered(const std::vector<std::size_t>& party, const Instr& instr,
                        std::uint32_t have, std::uint32_t named) {
  constexpr int kOperands = 6;
  alignas(64) std::byte scratch[kOperands * 512];
  std::memset(scratch, 0, sizeof scratch);
  Instr common = instr;
  Slot* const slots[kOperands] = {&common.d[0], &common.d[1], &common.a,
                                  &common.b,    &common.c,    &common.e};
  for (int s = 0; s < kOperands; ++s)
    if (slots[s]->valid()) *slots[s] = Slot{static_cast<std::uint32_t>(s * 512) << 1};
  auto own = [&](const Fragment& f, int s) {
    const Instr& i = f.frame->function->code[f.pc];
    const Slot slot = std::array{i.d[0], i.d[1], i.a, i.b, i.c, i.e}[static_cast<std::size_t>(s)];
    if (!slot.valid()) return static_cast<std::byte*>(nullptr);
    std::byte* from = slot.constant() ? const_cast<std::byte*>(f.frame->function->constants.data())
                                      : f.frame->registers;
    return from + slot.offset();
  };
  auto is_predicate = [&](int s) {
    return s == 1 || (s == 0 && common.op_class != OpClass::memory && common.dtype == Type::pred) ||
           (s == 2 && common.a_bits == 1);
  };
  auto bytes = [&](int s) {
    return s == 0 && common.d_bits == 64 ? 8 : s == 2 && common.a_bits == 64 ? 8 : 4;
  };
  auto copy = [&](std::byte* to, const std::byte* from, int s, std::uint32_t lanes_of,
                  bool negate) {
    if (is_predicate(s)) {
      std::uint32_t t, v;
      std::memcpy(&t, to, 4);
      std::memcpy(&v, from, 4);
      if (negate) v = ~v;
      t = (t & ~lanes_of) | (v & lanes_of);
      std::memcpy(to, &t, 4);
    } else {
      each_lane(lanes_of, [&](int lane) {
        std::memcpy(to + lane * bytes(s), from + lane * bytes(s), bytes(s));
      });
    }
  };
  common.a_not = false;
  for (std::size_t i : party)
    for (int s = 2; s < 6; ++s)
      if (std::byte* from = own(fragments[i], s))
        copy(scratch + s * 512, from, s, fragments[i].sync_mask,
             s == 2 && fragments[i].frame->function->code[fragments[i].pc].a_not);
  std::byte* saved[2] = {base[0], base[1]};
  base[0] = base[1] = scratch;
  worker->notify([&](Observer& o) { o.warp_sync(*this, common, have, named); });
  common.run(*this, common, have);
  base[0] = saved[0];
  base[1] = saved[1];
  for (std::size_t i : party)
    for (int s = 0; s < 2; ++s)
      if (std::byte* to = own(fragments[i], s))
        copy(to, scratch + s * 512, s, fragments[i].sync_mask, false);
}

// True when the instruction was executed for the current fragment (and for all that waited with it).
bool Warp::try_warp_sync(std::size_t current, const Instr& instr, std::uint32_t mask) {
  auto members = [&](const Fragment& f, const Instr& i, std::uint32_t lanes_of) {
    if (!i.e.valid()) return lanes_of;
    const std::byte* from =
        i.e.constant() ? f.frame->function->constants.data() : f.frame->registers;
    const auto* m = reinterpret_cast<const std::uint32_t*>(from + i.e.offset());
    std::uint32_t all = 0;
    each_lane(lanes_of, [&](int lane) { all |= m[lane]; });
    return all;
  };
  std::uint32_t need = members(fragments[current], instr, mask) & live;
  if ((need & ~mask) == 0) {
    worker->notify([&](Observer& o) {
      o.warp_sync(*this, instr, mask, members(fragments[current], instr, mask));
    });
    instr.run(*this, instr, mask);
    return true;
  }
  // Others must come. Those that already wait at the same operation count, wherever they stand.
  Fragment& self = fragments[current];
  self.state = Fragment::State::at_sync;
  self.sync_mask = mask;
  std::vector<std::size_t> party = {current};
  std::uint32_t have = mask, named = members(self, instr, mask);
  for (bool grown = true; grown && (need & ~have);) {
    grown = false;
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      Fragment& f = fragments[i];
      if (f.state != Fragment::State::at_sync || !(f.sync_mask & need)) continue;
      if (std::find(party.begin(), party.end(), i) != party.end()) continue;
      const Instr& other = f.frame->function->code[f.pc];
      if (other.run != instr.run || other.variant != instr.variant || other.type != instr.type)
        continue;
      party.push_back(i);
      have |= f.sync_mask;
      named |= members(f, other, f.sync_mask);
      need |= named & live;
      grown = true;
    }
  }
  if (need & ~have) return false;

  bool same_place = true;
  for (std::size_t i : party)
    same_place &= fragments[i].pc == self.pc && fragments[i].frame.get() == self.frame.get();
  if (same_place) {
    worker->notify([&](Observer& o) { o.warp_sync(*this, instr, have, named); });
    instr.run(*this, instr, have);
  } else {
    run_gathered(party, instr, have, named);
  }
  // Lanes of a fragment whose guard kept them out have waited with it.
  for (std::size_t i : party) {
    fragments[i].state = Fragment::State::ready;
    if (i != current) ++fragments[i].pc;
  }
  return true;
}

}  // namespace vgpu
