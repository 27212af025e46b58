// The tests of instructions are tested: bugs are planted in handlers, and each must be found.
#include <doctest/doctest.h>

#include <atomic>
#include <bit>

#include "../core/lanes.h"
#include "../core/machine.h"
#include "../ops/forms.h"
#include "../ops/half.h"
#include "forms_cases.h"

using namespace vgpu;
using namespace vgpu::rows;

namespace {

Handler right;  // the handler that a planted one stands in for

// Replaces the handler of every instruction of that name.
std::function<void(LoadedModule&)> plant(const std::string& dotted, Handler wrong) {
  return [=](LoadedModule& module) {
    Mods mods;
    const Form* form = match_form(dotted, mods);
    REQUIRE(form != nullptr);
    int planted = 0;
    for (const auto& [name, function] : module.module->functions)
      for (Instr& instr : function->code)
        if (instr.form == form - forms().data() && instr.op_class != OpClass::control &&
            instr.run && instr.ptx_line) {
          // Address arithmetic of the kernel around it is left alone.
          const std::string_view line = module.module->lines[instr.ptx_line - 1];
          if (line.substr(0, 2) != "{ ") continue;
          right = instr.run;
          instr.run = wrong;
          ++planted;
        }
    REQUIRE(planted > 0);
  };
}
template <class T>
T& lane_of(Warp& warp, Slot slot, int lane) {
  return warp.lanes<T>(slot)[lane];
}

// A wrong handler from a function of one lane.
template <class D, class A, class F>
inline void map1(Warp& warp, const Instr& instr, std::uint32_t mask, F f) {
  Result<D> result(warp, instr.d[0], mask);
  D* d = result.lanes();
  const A* a = warp.lanes<const A>(instr.a);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = static_cast<D>(f(a[lane]));
}

template <class D, class A, class B, class F>
inline void map2(Warp& warp, const Instr& instr, std::uint32_t mask, F f) {
  Result<D> result(warp, instr.d[0], mask);
  D* d = result.lanes();
  const A* a = warp.lanes<const A>(instr.a);
  const B* b = warp.lanes<const B>(instr.b);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = static_cast<D>(f(a[lane], b[lane]));
}

template <class D, class A, class B, class C, class F>
inline void map3(Warp& warp, const Instr& instr, std::uint32_t mask, F f) {
  Result<D> result(warp, instr.d[0], mask);
  D* d = result.lanes();
  const A* a = warp.lanes<const A>(instr.a);
  const B* b = warp.lanes<const B>(instr.b);
  const C* c = warp.lanes<const C>(instr.c);
#pragma GCC ivdep
  for (int lane = 0; lane < kWarpSize; ++lane)
    d[lane] = static_cast<D>(f(a[lane], b[lane], c[lane]));
}

const Host kSum = [](const Words&, const In& in) { return Want((in.a + in.b) & 0xffffffff); };

}  // namespace

TEST_CASE("forms: planted: a right handler passes, a wrong expectation does not") {
  Batch good, bad;
  good.add("add.u32", "u32 = u32 u32", kSum);
  bad.add("add.u32", "u32 = u32 u32",
          [](const Words&, const In& in) {
            return Want((in.a + in.b + (in.a == 0xffffffff && in.b == 1)) &
                        0xffffffff);  // wrong for one pair only
          },
          {.count = 8192});
  CHECK(good.run() == "");
  CHECK(bad.run().find("add.u32") != std::string::npos);
}

TEST_CASE("forms: planted: masks, aliases and lanes") {
  Batch batch;
  batch.add("add.u32", "u32 = u32 u32", kSum);
  const auto found = [&](Handler wrong) { return batch.run(plant("add.u32", wrong)) != ""; };
  // Nothing planted but a detour.
  CHECK_FALSE(
      found([](Warp& warp, const Instr& instr, std::uint32_t mask) { right(warp, instr, mask); }));
  // Writes all lanes, whatever the mask says.
  CHECK(
      found([](Warp& warp, const Instr& instr, std::uint32_t) { right(warp, instr, kFullMask); }));
  // Forgets the last lane of the mask.
  CHECK(found([](Warp& warp, const Instr& instr, std::uint32_t mask) {
    if (std::has_single_bit(mask)) return;
    right(warp, instr, mask & ~(0x80000000u >> std::countl_zero(mask)));
  }));
  // Clears the destination before it reads the sources.
  CHECK(found([](Warp& warp, const Instr& instr, std::uint32_t mask) {
    each_lane(mask, [&](int lane) { lane_of<std::uint32_t>(warp, instr.d[0], lane) = 0; });
    right(warp, instr, mask);
  }));
  // Takes lane 17's operand from its neighbour.
  CHECK(found([](Warp& warp, const Instr& instr, std::uint32_t mask) {
    const std::uint32_t b = lane_of<std::uint32_t>(warp, instr.b, 16);
    right(warp, instr, mask);
    if (mask >> 17 & 1) lane_of<std::uint32_t>(warp, instr.d[0], 17) += b & 1;
  }));
  // Saturates; wrong only where the sum overflows.
  CHECK(found([](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map2<std::uint32_t, std::uint32_t, std::uint32_t>(
        warp, instr, mask,
        [](std::uint32_t a, std::uint32_t b) { return a + b < a ? 0xffffffffu : a + b; });
  }));
}

TEST_CASE("forms: planted: floating point that is nearly right") {
  const auto fma = [](const Words&, const In& in) {
    const auto a = soft::decode(soft::kF32, in.a), b = soft::decode(soft::kF32, in.b),
               c = soft::decode(soft::kF32, in.c);
    return Want(
        soft::encode(soft::kF32, soft::sum(soft::product(a, b), c, soft::Round::nearest_even)));
  };
  Batch batch;
  batch.add("fma.rn.f32", "f32 = f32 f32 f32", fma, {.count = 4096});
  // Two roundings.
  CHECK(batch.run(plant("fma.rn.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map3<float, float, float, float>(warp, instr, mask, [](float a, float b, float c) {
      volatile float product = a * b;
      return canonical(product + c);
    });
  })) != "");
  // In double, then rounded to float: wrong only where the double is halfway.
  CHECK(batch.run(plant("fma.rn.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map3<float, float, float, float>(warp, instr, mask, [](float a, float b, float c) {
      return canonical(static_cast<float>(static_cast<double>(a) * b + c));
    });
  })) != "");
  // A NaN that keeps its payload; subnormals flushed without .ftz; -0 that turns into +0.
  CHECK(batch.run(plant("fma.rn.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map3<float, float, float, float>(
        warp, instr, mask, [](float a, float b, float c) { return __builtin_fmaf(a, b, c); });
  })) != "");
  CHECK(batch.run(plant("fma.rn.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map3<float, float, float, float>(warp, instr, mask, [](float a, float b, float c) {
      const float r = canonical(__builtin_fmaf(a, b, c));
      return std::fabs(r) < 0x1p-126f ? std::copysign(0.0f, r) : r;
    });
  })) != "");
  CHECK(batch.run(plant("fma.rn.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map3<float, float, float, float>(warp, instr, mask, [](float a, float b, float c) {
      return canonical(__builtin_fmaf(a, b, c)) + 0.0f;
    });
  })) != "");
}

TEST_CASE("forms: planted: comparisons, conversions and carries") {
  Batch less;
  less.add("setp.lt.f32", "pred|pred = f32 f32", [](const Words&, const In& in) {
    const int order = soft::compare(soft::decode(soft::kF32, in.a), soft::decode(soft::kF32, in.b));
    return Want(order == -1, order != -1);
  });
  CHECK(less.run() == "");
  // Second predicate: greater or equal, in place of not less; they differ for NaN.
  CHECK(less.run(plant("setp.lt.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    right(warp, instr, mask);
    const float* a = warp.lanes<const float>(instr.a);
    const float* b = warp.lanes<const float>(instr.b);
    set_predicate(warp, instr.d[1], collect([&](int lane) { return a[lane] >= b[lane]; }), mask);
  })) != "");
  Batch narrow_float;
  narrow_float.add("cvt.rn.f16.f32", "f16 = f32", [](const Words&, const In& in) {
    return Want(soft::encode(soft::kF16, soft::decode(soft::kF32, in.a)));
  });
  CHECK(narrow_float.run() == "");
  // Ties away from zero.
  CHECK(narrow_float.run(
            plant("cvt.rn.f16.f32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
              map1<std::uint16_t, float>(warp, instr, mask,
                                         [](float x) { return narrow<Fp16>(x, Rounding::rna); });
            })) != "");
  Batch carries;
  carries.add("addc.u32", "u32|u32 = u32 u32 u32 u32",
              [](const Words&, const In& in) {
                const u64 sum = in.a + in.b;
                return Want(sum & 0xffffffff, (in.c + in.e + (sum >> 32)) & 0xffffffff);
              },
              {.body = "$g add.cc.u32 $d, $a, $b; $g $name $q, $c, $e;"});
  CHECK(carries.run() == "");
  CHECK(carries.run(plant("addc.u32", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    warp.carry &= 0x7fffffff;  // lane 31's carry is lost
    right(warp, instr, mask);
  })) != "");
}

TEST_CASE("forms: planted: half-precision fma that rounds twice") {
  Batch batch;
  batch.add("fma.rn.f16x2", "f16x2 = f16x2 f16x2 f16x2",
            [](const Words&, const In& in) {
              const auto a = soft::decode(soft::kF16, in.a), b = soft::decode(soft::kF16, in.b),
                         c = soft::decode(soft::kF16, in.c);
              return Want(soft::encode(
                  soft::kF16, soft::sum(soft::product(a, b), c, soft::Round::nearest_even)));
            },
            {.inputs = [](In& in, std::size_t, std::mt19937_64& random) {
              // c + a b with a b just under half of c's last bit: (1 + 2^-10) (1 - 2^-10) is 1 -
              // 2^-20.
              in.a = in.b = in.c = 0;
              for (int part = 0; part < 32; part += 16) {
                const u64 e = 26 + random() % 4;
                in.a |= u64{0x3c01} << part;
                in.b |= ((e - 12) << 10 | 0x3fe) << part;
                in.c |= (e << 10 | (random() & 0x3ff)) << part;
              }
            }});
  CHECK(batch.run() == "");
  CHECK(batch.run(plant("fma.rn.f16x2", [](Warp& warp, const Instr& instr, std::uint32_t mask) {
    map3<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(
        warp, instr, mask, [](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
          std::uint32_t r = 0;
          for (int part = 0; part < 32; part += 16) {
            const auto half = [part](std::uint32_t v) {
              return float_from_half(static_cast<std::uint16_t>(v >> part));
            };
            r |= std::uint32_t{half_from_float(__builtin_fmaf(half(a), half(b), half(c)))} << part;
          }
          return r;
        });
  })) != "");
}

TEST_CASE("forms: combinations that the ISA does not have are refused by name") {
  const auto refused = [](const std::string& statement) {
    Machine machine({}, {.threads = 1});
    const auto module = machine.load(
        ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n"
        ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<5>; .reg .b64 %rd<4>;\n" +
        statement + "\nret;\n}\n");
    const auto messages = machine.refusals(*module);
    return messages.size() == 1 && messages[0].find(statement) != std::string::npos;
  };
  for (const std::string statement :
       {"setp.lo.s32 %p1, %r1, %r2;",
        "setp.hi.f32 %p1, %r1, %r2;",
        "setp.num.u32 %p1, %r1, %r2;",
        "setp.lt.and.u32 %p1, %r1, %r2;",
        "setp.lt.u32 %p1, %r1, %r2, %p2;",
        "set.equ.u32.s32 %r1, %r2, %r3;",
        "min.abs.f32 %r1, %r2, %r3;",
        "min.xorsign.f32 %r1, %r2, %r3;",
        "max.abs.f16x2 %r1, %r2, %r3;",
        "max.ftz.xorsign.abs.f32 %r1, %r2, %r3, %r4;",
        "fma.rn.sat.relu.f16x2 %r1, %r2, %r3, %r3;",
        "fma.f32 %r1, %r2, %r3, %r3;",
        "add.rz.f16 %h1, %h2, %h3;",
        "add.sat.u32 %r1, %r2, %r3;",
        "lop3.b32 %r1, %r2, %r3, %r3, 256;",
        "cvt.sat.bf16.f32 %h1, %r1;",
        "cvt.rn.sat.bf16.s32 %h1, %r1;",
        "cvt.f16.f32 %h1, %r1;",
        "cvt.rn.f32.f16 %r1, %h1;",
        "cvt.rni.f16.f32 %h1, %r1;",
        "cvt.rn.ftz.f16.f64 %h1, %rd1;",
        "cvt.rzi.ftz.s32.f64 %r1, %rd1;",
        "cvt.f32.f64 %r1, %rd1;",
        "cvt.s32.f32 %r1, %r2;",
        "cvt.f32.s32 %r1, %r2;",
        "div.f32 %r1, %r2, %r3;",
        "ex2.f32 %r1, %r2;",
        "mul.f32x2 %rd1, %rd2, %r1;",
        "vadd2.u32.u32.u32 %r1, %r2.b10, %r3, %r4;",
        "vadd2.u32.u32.u32 %r1, %r2.h14, %r3, %r4;",
        "vadd4.u32.u32.u32 %r1.b01, %r2, %r3, %r4;",
        "vadd2.u32.u32.u32 %r1, %r2, %r3.h210, %r4;",
        "vadd.u32.u32.u32 %r1, %r2.h2, %r3;",
        "vadd.u32.u32.u32 %r1.b0, %r2, %r3;",
        "vadd.u32.u32.u32.add %r1.b0, %r2, %r3, %r4;",
        "vadd.u32.u32.u32.add %r1, %r2, %r3;",
        "vmad.u32.u32.u32 %r1, %r2, %r3.b4, %r4;",
        "add.u32 %r1, %r2.h0, %r3;",
        "fence.proxy.tensormap::generic.release;",
        "st.global.v8.b64 [%rd1], {%rd2, %rd2, %rd2, %rd2, %rd2, %rd2, %rd2, %rd2};",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2, %rd2;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s64 [%rd1], [%r1], %r2;",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
        "[%r1], [%r2], 16, [%r3];",
        "cp.async.bulk.tensor.1d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1], "
        "[%rd1, {%r2}], [%r3];",
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], "
        "[%rd1, {%r2}], [%r3];",
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.exch.tile.bulk_group [%rd1, {%r2}], "
        "[%r3];"}) {
    INFO(statement);
    CHECK(refused(statement));
  }
}
