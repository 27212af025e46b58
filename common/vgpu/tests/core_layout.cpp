// Where things lie: special registers, dynamic shared memory, variables, parameters, local memory,
// constants, allocations.
#include <algorithm>
#include <iterator>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("memory: special registers of blocks in one, two and three dimensions") {
  Gpu gpu;
  for (const Dim3 block :
       {Dim3{70, 1, 1}, Dim3{5, 9, 1}, Dim3{3, 4, 5}, Dim3{1, 1, 7}, Dim3{32, 2, 1}}) {
    const Dim3 grid{2, 3, 2};
    const std::uint64_t threads = block.count() * grid.count();
    const char* names[] = {"tid.x",
                           "tid.y",
                           "tid.z",
                           "ntid.x",
                           "ntid.y",
                           "ntid.z",
                           "ctaid.x",
                           "ctaid.y",
                           "ctaid.z",
                           "nctaid.x",
                           "nctaid.y",
                           "nctaid.z",
                           "laneid",
                           "warpid",
                           "lanemask_eq",
                           "lanemask_lt",
                           "lanemask_le",
                           "lanemask_gt",
                           "lanemask_ge",
                           "clusterid.x",
                           "nclusterid.y",
                           "cluster_ctaid.x",
                           "cluster_nctaid.z",
                           "cluster_ctarank",
                           "cluster_nctarank",
                           "smid",
                           "nsmid"};
    constexpr int kNames = std::size(names);
    // The thread's number in the grid, from the registers themselves.
    std::string body = R"(
      mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %ntid.z; mov.u32 %r3, %tid.z; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
      mul.wide.u32 %rd1, %r1, )" +
                       std::to_string(4 * kNames) + "; add.u64 %rd1, %rd1, %out;\n";
    for (int i = 0; i < kNames; ++i)
      body += std::string("mov.u32 %r9, %") + names[i] + "; st.global.u32 [%rd1+" +
              std::to_string(4 * i) + "], %r9;\n";
    const auto out = gpu.run(body, threads * kNames, {0}, block, grid);
    CHECK_SAME(out, expected(threads * kNames, [&](std::uint32_t at) -> std::uint32_t {
                 const std::uint32_t thread = at / kNames % block.count(),
                                     b = at / kNames / block.count(), lane = thread % 32,
                                     bit = 1u << lane;
                 const std::uint32_t bx = b % 2, by = b / 2 % 3, bz = b / 6;
                 const std::uint32_t want[] = {thread % block.x,
                                               thread / block.x % block.y,
                                               thread / block.x / block.y,
                                               block.x,
                                               block.y,
                                               block.z,
                                               bx,
                                               by,
                                               bz,
                                               2,
                                               3,
                                               2,
                                               lane,
                                               thread / 32,
                                               bit,
                                               bit - 1,
                                               bit | (bit - 1),
                                               ~(bit | (bit - 1)),
                                               ~(bit - 1),
                                               bx,
                                               3,
                                               0,
                                               1,
                                               0,
                                               1,
                                               b % 132,
                                               132};
                 return want[at % kNames];
               }));
  }
}

TEST_CASE("memory: special registers as operands, in 64 bits, and those of shared memory") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const LaunchOutcome outcome =
      gpu.launch(kernel(R"(
    .shared .align 4 .b32 s[5];
    add.u32 %r1, %laneid, %ntid.x; st.global.u32 [%out], %r1;
    mov.u64 %rd1, %gridid; cvt.u32.u64 %r2, %rd1; st.global.u32 [%out+4], %r2;
    mov.u32 %r3, %dynamic_smem_size; st.global.u32 [%out+8], %r3;
    mov.u32 %r4, %total_smem_size; st.global.u32 [%out+12], %r4;
    mov.u64 %rd2, %clock64; mov.u64 %rd3, %clock64; setp.lt.u64 %p1, %rd2, %rd3; selp.u32 %r5, 1, 0, %p1; st.global.u32 [%out+16], %r5;
    mov.u32 %r6, %clock; mov.u32 %r7, %clock_hi; mov.u32 %r8, %globaltimer_lo; mov.u32 %r9, %globaltimer_hi; mov.u64 %rd4, %globaltimer;
    mov.pred %p2, %is_explicit_cluster; selp.u32 %r10, 1, 0, %p2; st.global.u32 [%out+20], %r10;
    mov.u32 %r11, %nwarpid; st.global.u32 [%out+24], %r11;
    mov.u32 %r12, %aggr_smem_size; mov.u32 %r13, %reserved_smem_offset_begin; mov.u64 %rd5, %current_graph_exec;)"),
                 {out.address(), out.address()}, {1, 1, 1}, {1, 1, 1}, 100);
  REQUIRE(outcome.fault.message == "");
  CHECK(out[0] == 1);
  CHECK(out[1] == 1);
  CHECK(out[2] == 100);
  CHECK(out[3] == 32 + 100);  // 20 bytes, up to the alignment of dynamic shared memory
  CHECK(out[4] == 1);
  CHECK(out[5] == 0);
  CHECK(out[6] == 64);
}

TEST_CASE("memory: dynamic shared memory lies behind the static, in kernels and in functions") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(64, 0);
  const std::string before = R"(
.extern .shared .align 64 .b8 dynamic[];
.func (.param .b32 result) f() { .reg .b32 %r<3>; mov.u32 %r1, dynamic; ld.shared.u32 %r2, [dynamic+4]; add.u32 %r1, %r1, %r2; st.param.b32 [result], %r1; ret; }
)";
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    .shared .align 4 .b32 fixed[3];
    mov.u32 %r1, fixed; mov.u32 %r2, dynamic; st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r2;
    st.shared.u32 [dynamic+4], 1000; st.shared.u32 [fixed+8], 5; ld.shared.u32 %r3, [dynamic+4]; st.global.u32 [%out+8], %r3;
    { .param .b32 y; call (y), f, (); ld.param.b32 %r4, [y]; } st.global.u32 [%out+12], %r4;
    mov.u64 %rd1, dynamic; cvta.shared.u64 %rd1, %rd1; ld.u32 %r5, [%rd1+4]; ld.u32 %r6, [dynamic+4]; st.global.u32 [%out+16], %r5; st.global.u32 [%out+20], %r6;)",
                                                  before),
                                           {out.address(), out.address()}, {1, 1, 1}, {1, 1, 1}, 8);
  REQUIRE(outcome.fault.message == "");
  const auto v = out.values();
  CHECK_SAME(std::vector(v.begin(), v.begin() + 6), {0, 64, 1000, 1064, 1000, 1000});
}

TEST_CASE("memory: variables of the module: values, pointers, nested lists, the host's view") {
  Gpu gpu;
  const std::string before = R"(
.visible .global .align 4 .u32 a[4] = {1, 2, 0x30, -4};
.global .align 8 .u64 pointers[3] = {a, generic(a)+8, generic(c)};
.global .align 4 .f32 f[3] = {0f3F800000, 2.5, -1.0};
.global .align 1 .b8 text[6] = {72, 101, 108, 108, 111, 0};
.const .align 4 .b32 c[2] = {7, 8};
.const .align 8 .u64 cp = c;
.global .align 4 .s32 nested[2][2] = {{1, 2}, {3, 4}};
.global .align 4 .b32 zeros[1000], partly[3] = {9};
.global .align 2 .s16 unsized[] = {-1, -2, -3};
.global .align 8 .f64 d = 0d3FF8000000000000;
)";
  const auto out = gpu.array<std::uint32_t>(32, 77);
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    ld.global.u64 %rd1, [pointers]; ld.global.u32 %r1, [%rd1+4]; st.global.u32 [%out], %r1;
    ld.global.u64 %rd1, [pointers+8]; ld.u32 %r1, [%rd1]; st.global.u32 [%out+4], %r1;
    ld.global.u64 %rd1, [pointers+16]; ld.u32 %r1, [%rd1+4]; st.global.u32 [%out+8], %r1;
    ld.const.u64 %rd1, [cp]; ld.const.u32 %r1, [%rd1]; st.global.u32 [%out+12], %r1;
    ld.global.f32 %f1, [f+4]; st.global.f32 [%out+16], %f1; ld.global.f32 %f1, [f+8]; st.global.f32 [%out+20], %f1;
    ld.global.s32 %r1, [nested+8]; st.global.u32 [%out+24], %r1;
    ld.global.u32 %r1, [zeros+3996]; st.global.u32 [%out+28], %r1; ld.global.u32 %r1, [partly+4]; st.global.u32 [%out+32], %r1;
    ld.global.s16 %r1, [unsized+4]; st.global.u32 [%out+36], %r1;
    ld.u32 %r1, [a+12]; st.global.u32 [%out+40], %r1;
    ld.u32 %r1, [c+4]; st.global.u32 [%out+44], %r1;
    ld.global.u32 %r1, [d+4]; st.global.u32 [%out+48], %r1;
    st.global.u32 [a+4], 555;)",
                                                  before),
                                           {out.address(), out.address()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const auto v = out.values();
  CHECK_SAME(std::vector(v.begin(), v.begin() + 13), {2, 0x30, 8, 7, 0x40200000, 0xbf800000, 3, 0,
                                                      0, 0xfffffffd, 0xfffffffc, 8, 0x3ff80000});
  std::uint64_t address = 0, size = 0;
  CHECK(gpu.module().variable("a", address, size));
  CHECK(size == 16);
  CHECK(gpu.machine.memory().translate(address, 16) == gpu.module().variable_bytes("a", size));
  std::uint32_t second = 0;
  std::memcpy(&second, gpu.module().variable_bytes("a", size) + 4, 4);
  CHECK(second == 555);
  CHECK(std::string(reinterpret_cast<char*>(gpu.module().variable_bytes("text", size))) == "Hello");
  CHECK(gpu.module().variable("unsized", address, size));
  CHECK(size == 6);
  CHECK(!gpu.module().variable("nothing", address, size));
}

TEST_CASE(
    "memory: parameters of a kernel: each size, arrays, and offsets as the ABI lays them out") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(16, 0);
  struct Inner {
    std::uint8_t a;
    std::uint16_t b;
    std::uint64_t c;
    std::uint32_t d[3];
  } inner{1, 2, 3, {4, 5, 6}};
  const std::string text =
      kHead +
      R"(.visible .entry k(.param .u8 x, .param .u64 .ptr .global .align 4 out, .param .f32 y, .param .align 8 .b8 s[32], .param .u16 z, .param .u32 w)
{ .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f1;
  ld.param.u64 %rd1, [out];
  ld.param.u8 %r1, [x]; st.global.u32 [%rd1], %r1;
  ld.param.f32 %f1, [y]; st.global.f32 [%rd1+4], %f1;
  ld.param.u16 %r1, [s+2]; st.global.u32 [%rd1+8], %r1; ld.param.v2.u32 {%r1, %r2}, [s+16]; st.global.u32 [%rd1+12], %r1; st.global.u32 [%rd1+16], %r2;
  mov.b64 %rd2, s; cvta.param.u64 %rd3, %rd2; ld.u32 %r1, [%rd3+24]; st.global.u32 [%rd1+20], %r1;
  ld.param.s16 %r1, [z]; st.global.u32 [%rd1+24], %r1; ld.param.u32 %r1, [w]; st.global.u32 [%rd1+28], %r1; ret; })";
  const LaunchOutcome outcome = gpu.launch(
      text, {std::uint8_t{200}, out.address(), 1.5f, inner, std::uint16_t{0xfffe}, 99u}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const auto v = out.values();
  CHECK_SAME(std::vector(v.begin(), v.begin() + 8), {200, 0x3fc00000, 2, 4, 5, 6, 0xfffffffe, 99});
}

TEST_CASE("memory: the parameters of a call, in every spelling") {
  Gpu gpu;
  for (const char* how : {"", ".volatile", ".relaxed.cta"})
    for (const char* space : {".param", ".param::func"}) {
      const std::string ld = std::string("ld") + how + space, st = std::string("st") + how + space;
      const std::string before = ".func (.param .b32 y) f(.param .b32 x) { .reg .b32 %r1; " + ld +
                                 ".b32 %r1, [x]; add.u32 %r1, %r1, 9; " + st +
                                 ".b32 [y], %r1; ret; }\n";
      CHECK_SAME(
          gpu.run("{ .param .b32 x; .param .b32 y; " + st + ".b32 [x], %lane; call (y), f, (x); " +
                      ld + ".b32 %r1, [y]; } st.global.u32 [%mine], %r1;",
                  32, {0}, {32, 1, 1}, {1, 1, 1}, before),
          expected(32, [](auto i) { return i + 9; }));
    }
}

TEST_CASE("memory: .alias names a function") {
  Gpu gpu;
  const std::string before =
      ".func (.param .b32 y) real(.param .b32 x) { .reg .b32 %r1; ld.param.b32 %r1, [x]; add.u32 "
      "%r1, %r1, 9; st.param.b32 [y], %r1; ret; }\n"
      ".func (.param .b32 y) other(.param .b32 x);\n.alias other, real;\n";
  CHECK_SAME(gpu.run("{ .param .b32 x; .param .b32 y; st.param.b32 [x], %lane; call (y), other, "
                     "(x); ld.param.b32 %r1, [y]; } st.global.u32 [%mine], %r1;",
                     32, {0}, {32, 1, 1}, {1, 1, 1}, before),
             expected(32, [](auto i) { return i + 9; }));
}

TEST_CASE("memory: the system's part of shared memory lies behind the kernel's own") {
  // Cooperative groups keep the scratch of tiles of more than a warp there, at least 288 bytes.
  const std::string body = R"(
mov.u32 %r1, %reserved_smem_offset_1; mov.u32 %r2, own; shl.b32 %r3, %lane, 2; add.u32 %r4, %r1, %r3;
st.shared.u32 [%r2], 7; st.shared.u32 [%r4], %lane; bar.sync 0;
ld.shared.u32 %r5, [%r4]; ld.shared.u32 %r6, [%r2]; mov.u32 %r7, %total_smem_size;
mov.u32 %r8, %reserved_smem_offset_end; mov.u32 %r9, %reserved_smem_offset_begin; sub.u32 %r8, %r8, %r9;
mov.u32 %r10, %reserved_smem_offset_cap; setp.eq.u32 %p1, %r8, %r10; setp.gt.and.u32 %p1, %r8, 287, %p1;
selp.u32 %r5, %r5, 99, %p1; mad.lo.u32 %r5, %r6, 100, %r5; mad.lo.u32 %r5, %r7, 10000, %r5;
st.global.u32 [%mine], %r5;)";
  Gpu gpu;
  const std::string own = ".shared .align 4 .b8 own[40];\n";
  CHECK_SAME(gpu.run(body, 32, {0}, {32, 1, 1}, {1, 1, 1}, own),
             expected(32, [](auto lane) { return 48 * 10000 + 700 + lane; }));
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const std::string past = body + "st.shared.u32 [%r1+1024], 1;";
  CHECK(gpu.launch(kernel(past, own), {out.address(), out.address()})
            .fault.message.find("out-of-bounds write of 4 bytes") != std::string::npos);
}

TEST_CASE("memory: an error names what was meant rather than a nearer neighbour") {
  Gpu gpu;
  const auto first = gpu.array<std::uint32_t>(1024, 0), second = gpu.array<std::uint32_t>(16, 0);
  REQUIRE(second.address() > first.address());
  const std::uint64_t gap = second.address() - first.address() - 4096;
  REQUIRE(gap >= 16);
  const auto message = [&](const std::string& access, std::uint64_t in) {
    return gpu.launch(kernel(access), {first.address(), in}, {1, 1, 1}).fault.message;
  };
  const std::string at = "st.global.u32 [%out+" + std::to_string(4096 + gap - 8) + "], 1;";
  const std::string past = std::to_string(gap - 8) + " bytes past an allocation of 4096 bytes";
  CHECK(message(at, 0).find(past) != std::string::npos);
  // Both are the kernel's: the nearer one.
  CHECK(
      message(at, second.address()).find("8 bytes before an allocation of 64 bytes (argument 2)") !=
      std::string::npos);
}

TEST_CASE("memory: local memory is each thread's own, in every warp and block") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    .local .align 4 .b32 own[4];
    st.local.u32 [own], %number; add.u32 %r1, %number, 1000; st.local.u32 [own+12], %r1;
    bar.sync 0;
    ld.local.u32 %r2, [own]; ld.local.u32 %r3, [own+12]; mad.lo.u32 %r2, %r3, 10000, %r2; st.global.u32 [%mine], %r2;)",
                     192, {0}, {96, 1, 1}, {2, 1, 1}),
             expected(192, [](auto i) { return (i + 1000) * 10000 + i; }));
}

TEST_CASE("memory: constants lie where their alignment says") {
  Gpu gpu;
  CHECK_SAME(gpu.run("ld.const.u8 %r1, [a]; ld.const.u64 %rd1, [b]; ld.const.u8 %r2, [c]; "
                     "ld.const.v4.u32 {%r3, %r4, %r5, %r6}, [d];\n"
                     "cvt.u32.u64 %r7, %rd1; add.u32 %r1, %r1, %r7; add.u32 %r1, %r1, %r2; add.u32 "
                     "%r1, %r1, %r6; st.global.u32 [%mine], %r1;",
                     1, {0}, {1, 1, 1}, {1, 1, 1},
                     ".const .align 1 .b8 a = 1;\n.const .align 8 .u64 b = 20;\n.const .align 1 "
                     ".b8 c = 3;\n.const .align 16 .b32 d[4] = {5, 6, 7, 400};\n"),
             std::vector<std::uint32_t>{424});
}

TEST_CASE("memory: cp.async writes zeros where it does not read") {
  Gpu gpu;
  std::vector<std::uint32_t> in(128);
  for (std::uint32_t i = 0; i < in.size(); ++i) in[i] = 0x01020304u * (i + 1);
  const auto got = gpu.run(R"(
    .shared .align 16 .b8 s[512];
    mov.u32 %r1, s; mad.lo.u32 %r2, %lane, 16, %r1; mov.u32 %r3, -1; st.shared.v4.u32 [%r2], {%r3, %r3, %r3, %r3};
    mul.wide.u32 %rd1, %lane, 16; add.u64 %rd2, %rd1, %in; add.u64 %rd3, %rd1, %out; rem.u32 %r4, %lane, 17;
    cp.async.ca.shared.global [%r2], [%rd2], 16, %r4;
    cp.async.wait_all;
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r2]; st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};)",
                           128, in);
  CHECK_SAME(got, expected(128, [&](std::uint32_t i) {
               const std::uint32_t size = i / 4 % 17, at = i % 4 * 4;
               const std::uint32_t bytes = size <= at ? 0 : std::min(4u, size - at);
               return bytes == 4 ? in[i] : in[i] & ((1u << 8 * bytes) - 1);
             }));
}

TEST_CASE("memory: an allocation ends with its last byte, and pinned memory is not the device's") {
  Gpu gpu;
  Memory& memory = gpu.machine.memory();
  const auto a = memory.allocate(100, MemoryKind::device);
  CHECK(memory.find(a->base + 99) == a);
  CHECK(memory.find(a->base + 100) == nullptr);
  std::vector<std::byte> host(256);
  CHECK(memory.adopt(host.data(), 128, MemoryKind::pinned) != nullptr);
  CHECK(memory.adopt(host.data() + 127, 1, MemoryKind::pinned) == nullptr);
  CHECK(memory.adopt(host.data() + 128, 128, MemoryKind::pinned) != nullptr);
  CHECK(memory.used() == 100);
}

TEST_CASE("memory: a block finds nothing of those that ran before it on the same host thread") {
  Gpu gpu;
  // Each block reads a register and a shared word that it has not written, then writes both, and leaves a
  // copy and a group without waiting for them. What lands at its wait are its own copies: none so far.
  const auto got = gpu.run(R"(
mov.u32 %r1, tile; shl.b32 %r2, %lane, 4; add.u32 %r1, %r1, %r2;
mov.u32 %r3, %r50;
ld.shared.u32 %r4, [%r1];
cp.async.wait_all;
ld.shared.u32 %r5, [%r1];
mad.lo.u32 %r4, %r4, 10, %r3; mad.lo.u32 %r4, %r5, 100, %r4;
st.global.u32 [%mine], %r4;
mov.u32 %r50, 5; st.shared.u32 [%r1], 6;
mul.wide.u32 %rd1, %lane, 16; add.u64 %rd1, %rd1, %in;
cp.async.cg.shared.global [%r1], [%rd1], 16;
cp.async.commit_group;
cp.async.cg.shared.global [%r1], [%rd1], 16;)",
                           4 * 32, std::vector<std::uint32_t>(128, 9), {32, 1, 1}, {4, 1, 1},
                           ".shared .align 16 .b8 tile[512];\n");
  CHECK_SAME(got, std::vector<std::uint32_t>(128, 0));
}
