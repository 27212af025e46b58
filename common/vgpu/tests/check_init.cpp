// Reads of what nobody wrote.
#include "check_support.h"

using namespace vgpu;
using namespace vgpu::test;

TEST_CASE("init: device memory is written by kernels, copies and fills, byte by byte") {
  Checked c(init_only());
  const auto a = c.gpu.machine.memory().allocate(256, MemoryKind::device);
  const auto out = c.gpu.machine.memory().allocate(256, MemoryKind::device);
  a->name = "x";
  const std::string head = ".file 1 \"s.cu\"\n";
  auto launch = [&](const std::string& body) {
    const LaunchOutcome o = c.gpu.launch(kernel(with_lines(body), head), {out->base, a->base});
    REQUIRE(o.fault.message == "");
    return o.findings;
  };
  const std::string read =
      "mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in;\n#5: ld.global.u32 %r1, [%rd1];\n#6: "
      "st.global.u32 [%mine], %r1;\n";
  CHECK(launch(read) == Texts{"s.cu:5: error: init: read of 4 bytes that nobody wrote, at byte 0 "
                              "of 'x' (256 bytes, argument 2), "
                              "by thread (0,0,0) of block (0,0,0) in k (and 31 more)"});
  // All but the third byte of word 7.
  c.gpu.machine.memory().mark_written(a->base, 30);
  c.gpu.machine.memory().mark_written(a->base + 31, 97);
  CHECK(launch(read) == Texts{"s.cu:5: error: init: read of 4 bytes that nobody wrote, at byte 30 "
                              "of 'x' (256 bytes, argument 2), "
                              "by thread (7,0,0) of block (0,0,0) in k"});
  CHECK(launch("setp.ne.u32 %p1, %lane, 7; @%p1 bra END;\nst.global.u8 [%in+30], %lane;\nEND:\n") ==
        Texts{});
  CHECK(launch(read) == Texts{});  // what one launch wrote another may read
  CHECK(launch("setp.ne.u32 %p1, %lane, 7; @%p1 bra END;\n#8: red.global.add.u32 [%in+132], "
               "1;\nEND:\n") == Texts{"s.cu:8: error: init: atomic access of 4 bytes that nobody "
                                      "wrote, at byte 132 of 'x' (256 bytes, argument 2), "
                                      "by thread (7,0,0) of block (0,0,0) in k"});
}

TEST_CASE("init: shared memory starts unwritten in each block") {
  const std::string body = R"(mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 4, %r1;
setp.ne.u32 %p1, %block, 0;
#9: @!%p1 st.shared.u32 [%r4], %thread;
#10: ld.shared.u32 %r5, [%r4];
)";
  CHECK(Checked(init_only()).run(body, {64, 1, 1}, {2, 1, 1}) ==
        Texts{"s.cu:10: error: init: read of 4 bytes that nobody wrote, at offset 0 of the block's "
              "shared memory, by thread "
              "(0,0,0) of block (1,0,0) in k (and 63 more)"});
  check_silent(
      "mov.u32 %r1, s; mad.lo.u32 %r4, %thread, 4, %r1;\n#9: st.shared.u32 [%r4], %thread;\n#10: "
      "ld.shared.u32 %r5, [%r4];\n",
      {64, 1, 1}, {2, 1, 1});
}

TEST_CASE("init: module variables, managed and pinned memory count as written") {
  Checked c(init_only());
  for (MemoryKind kind : {MemoryKind::managed, MemoryKind::pinned}) {
    const auto a = c.gpu.machine.memory().allocate(256, kind);
    const auto o = c.gpu.launch(
        kernel("ld.global.u32 %r1, [%in]; ld.global.u32 %r1, [zeros];", ".global .b32 zeros[4];\n"),
        {a->base, a->base});
    CHECK(o.fault.message == "");
    CHECK(o.findings == Texts{});
    // Such memory must go before the machine does: it is the host's.
    CHECK(c.gpu.machine.memory().release(a->base));
  }
}
