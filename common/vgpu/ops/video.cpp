// Video instructions (PTX ISA, "Video Instructions"): the forms. What they do to one lane is in
// lane/video.h.
#include "lane/video.h"
#include "../core/lanes.h"
#include "forms.h"

namespace vgpu {
namespace {

using std::int64_t, std::uint32_t, std::uint64_t;
namespace video = op::video;

// c is there where the instruction merges or has a second operation.
template <video::Op op>
void scalar(Warp& warp, const Instr& instr, uint32_t mask) {
  const video::Scalar<op> operation(instr);
  const auto *a = warp.lanes<const uint32_t>(instr.a), *b = warp.lanes<const uint32_t>(instr.b),
             *c = instr.c.valid() ? warp.lanes<const uint32_t>(instr.c) : nullptr;
  Result<uint32_t> result(warp, instr.d[0], mask);
  uint32_t* d = result.lanes();
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = operation.lane(a[lane], b[lane], c ? c[lane] : 0);
}

template <int kParts>
Handler parallel_for(std::string_view op) {
  if (op == "vadd") return &lanewise<video::Parallel<video::Op::add, kParts>>;
  if (op == "vsub") return &lanewise<video::Parallel<video::Op::sub, kParts>>;
  if (op == "vavrg") return &lanewise<video::Parallel<video::Op::avrg, kParts>>;
  if (op == "vabsdiff") return &lanewise<video::Parallel<video::Op::absdiff, kParts>>;
  if (op == "vmin") return &lanewise<video::Parallel<video::Op::min, kParts>>;
  if (op == "vmax") return &lanewise<video::Parallel<video::Op::max, kParts>>;
  return &lanewise<video::Parallel<video::Op::set, kParts>>;
}
Handler scalar_for(std::string_view op) {
  if (op == "vadd") return &scalar<video::Op::add>;
  if (op == "vsub") return &scalar<video::Op::sub>;
  if (op == "vabsdiff") return &scalar<video::Op::absdiff>;
  if (op == "vmin") return &scalar<video::Op::min>;
  if (op == "vmax") return &scalar<video::Op::max>;
  if (op == "vshl") return &scalar<video::Op::shl>;
  if (op == "vshr") return &scalar<video::Op::shr>;
  if (op == "vmad") return &scalar<video::Op::mad>;
  return &scalar<video::Op::set>;
}

// Whether a selector fits: `count` parts (a mask of d: up to that many, falling), each below `limit`.
bool fits(uint64_t packed, int part_bits, int count, int limit, bool is_mask) {
  if ((packed & 7) == 0) return true;
  const video::Selector s = video::unpack(packed, {});
  if (s.part_bits != part_bits || (is_mask ? s.count > count : s.count != count)) return false;
  for (int i = 0; i < s.count; ++i) {
    if (s.index[i] >= limit) return false;
    if (is_mask && i && s.index[i] <= s.index[i - 1]) return false;
  }
  return true;
}

}  // namespace

Handler bind_video(Instr& instr, const Mods& mods) {
  std::string_view op = forms()[instr.form].opcode;
  const int parts = op.back() == '2' ? 2 : op.back() == '4' ? 4 : 1;
  if (parts > 1) op.remove_suffix(1);
  const bool sets = op == "vset";
  // Types: d a b, without d where the result is a truth value.
  uint64_t flags = 0;
  const std::size_t first = sets ? 0 : 1;
  if (!sets && mods.words[0] == "s32") flags |= video::kSignedD;
  if (mods.words[first] == "s32") flags |= video::kSignedA;
  if (mods.words[first + 1] == "s32") flags |= video::kSignedB;
  const auto flag = [&](std::string_view word, video::Flag value) {
    if (mods.has(word)) flags |= value;
  };
  flag("sat", video::kSat), flag("wrap", video::kWrap), flag("po", video::kPlusOne),
      flag("shr7", video::kShr7), flag("shr15", video::kShr15);
  flag("add", video::kThenAdd), flag("min", video::kThenMin), flag("max", video::kThenMax);
  if (sets) {
    constexpr std::pair<std::string_view, Compare> names[] = {
        {"eq", Compare::eq}, {"ne", Compare::ne}, {"lt", Compare::lt},
        {"le", Compare::le}, {"gt", Compare::gt}, {"ge", Compare::ge}};
    for (const auto& [name, value] : names)
      if (mods.words[2] == name) instr.compare = value;
  }
  // A product and its sum are signed when a factor is, whatever d is said to be.
  if (op == "vmad")
    flags = flags & (video::kSignedA | video::kSignedB) ? flags | video::kSignedD
                                                        : flags & ~uint64_t{video::kSignedD};
  instr.imm = static_cast<int64_t>(flags);

  const uint64_t d = video::selector_of(instr, 0), a = video::selector_of(instr, 1),
                 b = video::selector_of(instr, 2);
  if (parts > 1) {
    const int bits = 32 / parts;
    if (!fits(d, bits, parts, parts, true) || !fits(a, bits, parts, 2 * parts, false) ||
        !fits(b, bits, parts, 2 * parts, false))
      return nullptr;
    return parts == 2 ? parallel_for<2>(op) : parallel_for<4>(op);
  }
  for (const uint64_t s : {d, a, b})
    if (!fits(s, s & 8 ? 16 : 8, 1, s & 8 ? 2 : 4, false)) return nullptr;
  // A merge or a second operation needs c, and there cannot be both; vmad has no merge.
  const bool second = flags & (video::kThenAdd | video::kThenMin | video::kThenMax), merges = d & 7;
  if (op == "vmad" ? merges || !instr.c.valid()
                   : (second && merges) || instr.c.valid() != (second || merges))
    return nullptr;
  return scalar_for(op);
}

}  // namespace vgpu
