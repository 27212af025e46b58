// Conversions by name: the interpreter takes most of them in stages over 32 lanes, or has a quicker
// way for the usual ones. Each time it executes one here, the operation that lane/convert.h names
// for it must give the same bits in each lane.
#include <doctest/doctest.h>

#include <atomic>
#include <map>

#include "../core/lanes.h"
#include "../core/machine.h"
#include "../ops/lane/convert.h"
#include "forms_cases.h"

using namespace vgpu;
using namespace vgpu::rows;
namespace convert = vgpu::op::convert;

namespace {

using ByName = std::uint64_t (*)(const Instr&, std::uint64_t a, std::uint64_t b);

template <class Op>
std::uint64_t one(const Instr& instr, std::uint64_t a, std::uint64_t) {
  return Op(instr).lane(a);
}
template <class Op>
std::uint64_t of_floats(const Instr& instr, std::uint64_t a, std::uint64_t b) {
  return Op(instr).lane(std::bit_cast<float>(static_cast<std::uint32_t>(a)),
                        std::bit_cast<float>(static_cast<std::uint32_t>(b)));
}
template <class Op>
std::uint64_t of_word(const Instr& instr, std::uint64_t a, std::uint64_t) {
  return Op(instr).lane(static_cast<std::uint32_t>(a));
}

ByName operation(const Instr& instr) {
  const bool nearest = instr.rounding == Rounding::rn && !instr.variant;
  switch (instr.dtype) {
    case Type::f16x2:
      return instr.type == Type::e4m3x2   ? &one<convert::Fp8ToHalves<E4M3>>
             : instr.type == Type::e5m2x2 ? &one<convert::Fp8ToHalves<E5M2>>
             : nearest                    ? &of_floats<convert::PackFloats<Fp16>>
                                          : &of_floats<convert::PackFloatsExactly<Fp16>>;
    case Type::bf16x2:
      return nearest ? &of_floats<convert::PackFloats<Bfloat16>>
                     : &of_floats<convert::PackFloatsExactly<Bfloat16>>;
    case Type::e4m3x2:
      return instr.type == Type::f16x2 ? &of_word<convert::HalvesToFp8<E4M3>>
                                       : &of_floats<convert::PackFloats<E4M3>>;
    case Type::e5m2x2:
      return instr.type == Type::f16x2 ? &of_word<convert::HalvesToFp8<E5M2>>
                                       : &of_floats<convert::PackFloats<E5M2>>;
    default:
      break;
  }
  const bool to_float = is_float(instr.dtype) || instr.dtype == Type::tf32;
  if (is_float(instr.type))
    return to_float ? &one<convert::FloatToFloat> : &one<convert::FloatToInteger>;
  if (to_float) return &one<convert::IntegerToFloat>;
  return instr.sat ? &one<convert::IntegerSaturated> : &one<convert::IntegerToInteger>;
}

struct Followed {
  Handler run;
  std::string_view line;
};
std::map<const Instr*, Followed> instructions;
std::atomic<int> compared, different;

std::uint64_t lane_of(Warp& warp, Slot slot, int bits, int lane) {
  if (!slot.valid()) return 0;
  if (bits == 16) return warp.lanes<const std::uint16_t>(slot)[lane];
  if (bits == 32) return warp.lanes<const std::uint32_t>(slot)[lane];
  return warp.lanes<const std::uint64_t>(slot)[lane];
}
void followed(Warp& warp, const Instr& instr, std::uint32_t mask) {
  std::uint64_t want[kWarpSize];
  const ByName by_name = operation(instr);
  for (int lane = 0; lane < kWarpSize; ++lane)
    want[lane] = by_name(instr, lane_of(warp, instr.a, instr.a_bits, lane),
                         lane_of(warp, instr.b, 32, lane));
  const Followed& of = instructions.at(&instr);
  of.run(warp, instr, mask);
  const std::uint64_t kept = ~std::uint64_t{0} >> (64 - instr.d_bits);
  each_lane(mask, [&](int lane) {
    ++compared;
    if (lane_of(warp, instr.d[0], instr.d_bits, lane) == (want[lane] & kept)) return;
    if (++different < 5)
      MESSAGE(of.line, " lane ", lane, ": ", lane_of(warp, instr.d[0], instr.d_bits, lane),
              ", by name ", want[lane] & kept);
  });
}
void follow(LoadedModule& module) {
  instructions.clear();
  for (const auto& [name, function] : module.module->functions)
    for (Instr& instr : function->code)
      if (instr.ptx_line && instr.run &&
          module.module->lines[instr.ptx_line - 1].find("cvt.") != std::string_view::npos) {
        instructions[&instr] = {instr.run, module.module->lines[instr.ptx_line - 1]};
        instr.run = &followed;
      }
}

void compare(const std::vector<std::pair<std::string, std::string>>& list) {
  Batch batch;
  const Host anything = [](const Words&, const In&) { return Want::any(); };
  for (const auto& [pattern, signature] : list)
    batch.add(pattern, signature, anything, {.count = 1024});
  compared = different = 0;
  batch.run(follow);
  CHECK(compared.load() >= static_cast<int>(1024 * batch.size()));
  CHECK(different.load() == 0);
}

}  // namespace

TEST_CASE("lane operations: conversions of numbers by name give what a warp of them gives") {
  std::vector<std::pair<std::string, std::string>> list;
  const std::vector<std::string> floats{"f16", "bf16", "f32", "f64"},
      integers{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"};
  const auto in_register = [](const std::string& type) {
    return type == "u8" ? "u16" : type == "s8" ? "s16" : type;
  };
  for (const std::string& from : integers) {
    for (const std::string& to : integers)
      list.emplace_back("cvt{,.sat}." + to + "." + from,
                        in_register(to) + " = " + in_register(from));
    for (const std::string& to : floats)
      list.emplace_back("cvt{.rn,.rz,.rm,.rp}." + to + "." + from, to + " = " + in_register(from));
  }
  for (const std::string& from : floats) {
    for (const std::string& to : integers)
      list.emplace_back("cvt{.rni,.rzi,.rmi,.rpi}." + to + "." + from,
                        in_register(to) + " = " + from);
    list.emplace_back("cvt{.rni,.rzi,.rmi,.rpi}." + from + "." + from, from + " = " + from);
  }
  list.emplace_back("cvt{.rni,.rzi}.ftz.sat.s32.f32", "s32 = f32");
  list.emplace_back("cvt{.rn,.rz,.rm,.rp}.f16.f64", "f16 = f64");
  list.emplace_back("cvt{.rn,.rz}{,.relu}{,.satfinite}.{f16,bf16}.f32", "b16 = f32");
  list.emplace_back("cvt{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32.f64", "f32 = f64");
  list.emplace_back("cvt{,.ftz}{,.sat}.f32.{f16,bf16}", "f32 = b16");
  list.emplace_back("cvt{,.ftz}{,.sat}.f32.f32", "f32 = f32");
  list.emplace_back("cvt{.rna}{,.satfinite}.tf32.f32", "b32 = f32");
  list.emplace_back("cvt{.rn,.rz}{,.satfinite}{,.relu}.tf32.f32", "b32 = f32");
  compare(list);
}
TEST_CASE("lane operations: conversions of pairs by name give what a warp of them gives") {
  compare({{"cvt{.rn,.rz}{,.relu}{,.satfinite}.{f16x2,bf16x2}.f32", "b32 = f32 f32"},
           {"cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f32", "b16 = f32 f32"},
           {"cvt.rn.satfinite{,.relu}.{e4m3x2,e5m2x2}.f16x2", "b16 = b32"},
           {"cvt.rn{,.relu}.f16x2.{e4m3x2,e5m2x2}", "b32 = b16"}});
}
