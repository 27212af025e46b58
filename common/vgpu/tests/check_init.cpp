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
      "add.u32 %r1, %r1, 1; st.global.u32 [%mine], %r1;\n";
  CHECK(launch(read) == Texts{"s.cu:5: error: init: read of 4 bytes that nobody wrote, at byte 0 "
                              "of 'x' (256 bytes, argument 2), "
                              "by thread (0,0,0) of block (0,0,0) in k (and 31 more)"});
  // All but the third byte of word 7.
  c.gpu.machine.memory().mark_written(a->base, 30);
  c.gpu.machine.memory().mark_written(a->base + 31, 97);
  CHECK(launch(read) == Texts{"s.cu:5: error: init: read of 4 bytes that nobody wrote, at byte 30 "
                              "of 'x' (256 bytes, argument 2), "
                              "by thread (7,0,0) of block (0,0,0) in k"});
  c.gpu.machine.memory().mark_written(a->base + 255, std::uint64_t{1} << 40);  // cut at its end
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
#11: st.global.u32 [%mine], %r5;
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

// ---- what was read and where it matters ---------------------------------------------------------

namespace {
// %rd1: the lane's word of `in`, which nobody wrote; %r1 its value.
const std::string kRead =
    "mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in;\n#5: ld.global.u32 %r1, [%rd1];\n";
const Texts kFound = {
    "s.cu:5: error: init: read of 4 bytes that nobody wrote, at byte 0 of 'x' (256 bytes, argument "
    "2), by thread (0,0,0) of block (0,0,0) in k (and 31 more)"};

// Findings of a body whose `in` has 256 bytes; the bytes in `written` were, of each 4.
struct Unwritten {
  explicit Unwritten(std::uint32_t written_of_each = 0) {
    in = c.gpu.machine.memory().allocate(256, MemoryKind::device);
    out = c.gpu.machine.memory().allocate(1024, MemoryKind::device);
    in->name = "x";
    c.gpu.machine.memory().mark_written(out->base, 4);
    for (std::uint64_t i = 0; i < 256; ++i)
      if (written_of_each >> i % 4 & 1) c.gpu.machine.memory().mark_written(in->base + i, 1);
  }
  Texts run(const std::string& body) {
    const LaunchOutcome o =
        c.gpu.launch(kernel(with_lines(body), ".file 1 \"s.cu\"\n.shared .align 16 .b8 s[4096];\n"),
                     {out->base, in->base});
    REQUIRE(o.fault.message == "");
    return o.findings;
  }
  Checked c{init_only()};
  std::shared_ptr<Allocation> in, out;
};
Texts found(const std::string& body, std::uint32_t written_of_each = 0) {
  return Unwritten(written_of_each).run(kRead + body);
}
}  // namespace

TEST_CASE("init: what was read and is not used is no finding") {
  const std::string store = "st.global.u32 [%mine], %r9;\n";
  for (const std::string body :
       {"", "add.u32 %r2, %r1, 1; mul.lo.u32 %r3, %r2, %r1; cvt.rn.f32.u32 %f1, %r3;\n",
        // The other operand is chosen.
        "setp.lt.u32 %p1, %lane, 32; selp.u32 %r9, 7, %r1, %p1;\n",
        "setp.ge.u32 %p1, %lane, 32; add.u32 %r1, %r1, 1; selp.u32 %r9, %r1, 7, %p1;\n",
        // Both give the same.
        "setp.eq.u32 %p1, %r1, 5; selp.u32 %r9, %lane, %lane, %p1;\n",
        // A comparison whose outcome does not matter: `i >= n || x < y`.
        "setp.lt.u32 %p1, %lane, 32; setp.lt.u32 %p2, %r1, 9; or.pred %p3, %p1, %p2; "
        "selp.u32 %r9, 1, 2, %p3;\n",
        "setp.ge.u32 %p1, %lane, 32; setp.lt.u32 %p2, %r1, 9; and.pred %p3, %p2, %p1; "
        "selp.u32 %r9, 1, 2, %p3;\n",
        "setp.ge.u32 %p1, %lane, 32; setp.lt.and.u32 %p2, %r1, 9, %p1; @%p2 bra END;\nEND:\n",
        "setp.eq.u32 %p1, %r1, 5; setp.ge.and.u32 %p2, %lane, 32, %p1; @%p2 bra END;\nEND:\n",
        // All of its bits are dropped.
        "and.b32 %r9, %r1, 0;\n", "or.b32 %r2, %r1, -1; mov.u32 %r9, %r2;\n",
        "cvt.u64.u32 %rd2, %r1; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r9, %rd2;\n",
        "mov.b64 %rd2, {%r1, %lane}; mov.b64 {%r2, %r9}, %rd2;\n",
        "prmt.b32 %r9, %r1, %lane, 0x7654;\n",
        "mov.u32 %r2, %r1; mov.u32 %r2, 1; add.u32 %r9, %r2, 1;\n",
        // Each lane takes the value of lane 0, and that is another one's.
        "setp.eq.u32 %p1, %lane, 0; selp.u32 %r1, 3, %r1, %p1; shfl.sync.idx.b32 %r9, %r1, 0, "
        "31, -1;\n"}) {
    CAPTURE(body);
    CHECK(found("mov.u32 %r9, 0;\n" + body + store) == Texts{});
  }
}

TEST_CASE("init: what was read and decides something is a finding, at the read") {
  for (const std::string body :
       {"st.global.u32 [%mine], %r1;\n", "add.u32 %r2, %r1, 1; st.global.u32 [%mine], %r2;\n",
        "mov.b64 %rd2, {%lane, %r1}; mov.b64 {%r2, %r3}, %rd2; st.global.u32 [%mine], %r3;\n",
        "setp.lt.u32 %p1, %r1, 9; @%p1 bra END;\nst.global.u32 [%mine], 1;\nEND:\n",
        "setp.lt.u32 %p1, %r1, 9; @%p1 st.global.u32 [%mine], 1;\n",
        "setp.lt.u32 %p1, %r1, 9; selp.u32 %r2, 1, 2, %p1; st.global.u32 [%mine], %r2;\n",
        "setp.ge.u32 %p1, %lane, 32; setp.lt.or.u32 %p2, %r1, 9, %p1; @%p2 bra END;\nEND:\n",
        "setp.eq.u32 %p1, %r1, 5; setp.lt.and.u32 %p2, %lane, 32, %p1; @%p2 bra END;\nEND:\n",
        "setp.lt.u32 %p1, %lane, 32; setp.lt.u32 %p2, %r1, 9; and.pred %p3, %p1, %p2; "
        "@%p3 bra END;\nEND:\n",
        "mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd2, %out; ld.global.u32 %r2, [%rd2];\n",
        "red.global.add.u32 [%out], %r1;\n",
        "shfl.sync.idx.b32 %r2, %r1, %lane, 31, -1; st.global.u32 [%mine], %r2;\n",
        "setp.lt.u32 %p1, %r1, 9; vote.sync.ballot.b32 %r2, %p1, -1;\n",
        "and.b32 %r2, %r1, 255; shl.b32 %r2, %r2, 4; setp.eq.u32 %p1, %r2, 16; @%p1 bra "
        "END;\nEND:\n",
        "cvt.rn.f32.u32 %f1, %r1; ex2.approx.f32 %f1, %f1; st.global.f32 [%mine], %f1;\n"}) {
    CAPTURE(body);
    CHECK(found(body) == kFound);
  }
}

TEST_CASE("init: bit by bit, as masks and shifts take them") {
  // The first byte of each word was written.
  const std::string store = "st.global.u32 [%mine], %r9;\n";
  for (const std::string body :
       {"and.b32 %r2, %r1, 255; add.u32 %r9, %r2, 1;\n",
        "bfe.u32 %r2, %r1, 3, 5; add.u32 %r9, %r2, 1;\n",
        "shl.b32 %r2, %r1, 24; shr.s32 %r2, %r2, 24; add.u32 %r9, %r2, 1;\n",
        "cvt.u16.u32 %h1, %r1; cvt.u32.u8 %r2, %h1; add.u32 %r9, %r2, 1;\n",
        "prmt.b32 %r2, %r1, 0, 0x4440; add.u32 %r9, %r2, 1;\n",
        "mov.b32 {%h1, %h2}, %r1; cvt.rn.f32.u8 %f1, %h1; mov.b32 %r9, %f1;\n"}) {
    CAPTURE(body);
    CHECK(found(body + store, 1) == Texts{});
    CHECK(found(body + store, 14).size() == 1);
  }
}

TEST_CASE("init: packed halves are two values") {
  // The first two bytes of each word were written.
  for (const std::string body :
       {"fma.rn.f16x2 %r2, %r1, %r1, %r1;\n", "add.f16x2 %r2, %r1, %r1;\n",
        "mov.b32 {%h1, %h2}, %r1; cvt.f32.f16 %f1, %h1; cvt.f32.f16 %f2, %h2; "
        "cvt.rn.f16x2.f32 %r2, %f2, %f1;\n"}) {
    CAPTURE(body);
    CHECK(found(body + "mov.b32 {%h3, %h4}, %r2; st.global.u16 [%mine], %h3;\n", 3) == Texts{});
    CHECK(found(body + "mov.b32 {%h3, %h4}, %r2; st.global.u16 [%mine], %h4;\n", 3).size() == 1);
    CHECK(found(body + "mov.b32 {%h3, %h4}, %r2; st.global.u16 [%mine], %h3;\n", 12).size() == 1);
  }
}

TEST_CASE("init: padding is copied without a finding, and not used without one") {
  // nvcc copies a struct as words of which it says what it uses, and padding as 8-bit elements.
  const std::string words =
      "shl.b32 %r2, %lane, 3; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd2, %in; add.u64 %rd4, %rd2, "
      "%out;\n.pragma \"used_bytes_mask 1\";\n#5: ld.global.u32 %r3, [%rd3];\n#6: "
      "st.global.u32 [%rd4], %r3;\n#7: ld.global.v4.u8 {%h1,%h2,%h3,%h4}, [%rd3+4];\n#8: "
      "st.global.v4.u8 [%rd4+4], {%h1,%h2,%h3,%h4};\n";
  Unwritten c;
  for (std::uint64_t i = 0; i < 256; i += 8)
    c.c.gpu.machine.memory().mark_written(c.in->base + i, 1);
  CHECK(c.run(words) == Texts{});
  // What was copied is as it was, for later launches, too.
  const std::string use =
      "#21: ld.global.u8 %r1, [%out]; @%p1 bra END; add.u32 %r1, %r1, 1;\n"
      "st.global.u32 [%mine+512], %r1;\nEND:\n";
  CHECK(c.run("setp.ne.u32 %p1, %lane, 0;\n" + use) == Texts{});
  std::string padding = use;
  padding.replace(padding.find("[%out]"), 6, "[%out+7]");
  CHECK(
      c.run("setp.ne.u32 %p1, %lane, 0;\n" + padding) ==
      Texts{"s.cu:21: error: init: read of 1 byte copied from memory that nobody wrote, at byte 7 "
            "of an allocation of 1024 bytes (argument 1), by thread (0,0,0) of block (0,0,0) in "
            "k"});
  // Once it is written it is written.
  CHECK(c.run("st.global.u8 [%out+7], 1;\nsetp.ne.u32 %p1, %lane, 0;\n" + padding) == Texts{});
}

TEST_CASE("init: what is computed from such bytes is no padding, even stored as a byte") {
  // No byte of any word was written; as a blur stores the mean of pixels.
  const std::string byte = "st.global.u8 [%mine], ";
  for (const std::string& body : Texts{
           "add.u32 %r2, %r1, 1;\n" + byte + "%r2;\n",
           "and.b32 %r2, %r1, 255; add.u32 %r2, %r2, %r2; shr.u32 %r2, %r2, 1;\n" + byte + "%r2;\n",
           "cvt.rn.f32.u32 %f1, %r1; cvt.rzi.u32.f32 %r2, %f1;\n" + byte + "%r2;\n",
           "add.u32 %r2, %r1, 1; shfl.sync.idx.b32 %r2, %r2, %lane, 31, -1;\n" + byte + "%r2;\n",
           "add.u32 %r2, %r1, 1; cvt.u16.u32 %h1, %r2;\nst.global.v2.u8 [%mine], {%h1, %h1};\n",
           // Through shared memory, before and behind the sum.
           "mov.u32 %r2, s; mad.lo.u32 %r2, %lane, 4, %r2; st.shared.u32 [%r2], %r1; bar.sync 0;\n"
           "ld.shared.u32 %r3, [%r2]; add.u32 %r3, %r3, 1; st.shared.u32 [%r2], %r3; bar.sync 0;\n"
           "ld.shared.u32 %r4, [%r2];\n" +
               byte + "%r4;\n"}) {
    CAPTURE(body);
    CHECK(found(body) == kFound);
  }
  for (const std::string& body : Texts{
           byte + "%r1;\n", "shr.u32 %r2, %r1, 8;\n" + byte + "%r2;\n",
           "bfi.b32 %r2, %r1, 0, 0, 8;\n" + byte + "%r2;\n",
           "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n" + byte + "%r2;\n",
           "add.u32 %r2, %r1, 1; mov.u32 %r2, %r1;\n" + byte + "%r2;\n",
           "add.u32 %r2, %r1, 1; mov.u32 %r2, 7;\n" + byte + "%r2;\n",
           // The sum in shared memory is written over with what was loaded.
           "mov.u32 %r2, s; mad.lo.u32 %r2, %lane, 4, %r2; add.u32 %r3, %r1, 1;\n"
           "st.shared.u32 [%r2], %r3; st.shared.u32 [%r2], %r1; ld.shared.u32 %r4, [%r2];\n" +
               byte + "%r4;\n",
           // A byte beside written ones: a row's last vector, of which a part lies behind its end.
           "cvt.u16.u32 %h1, %r1; add.u16 %h1, %h1, 1; mov.u16 %h2, 3;\n"
           "st.global.v2.u8 [%mine], {%h2, %h1};\n"}) {
    CAPTURE(body);
    CHECK(found(body) == Texts{});
  }
}

TEST_CASE(
    "init: what is computed from such bytes is used beside written ones, a vector's rest is not") {
  const std::string out = "mul.wide.u32 %rd4, %lane, 8; add.u64 %rd4, %rd4, %out;\n";
  CHECK(found(out + "cvt.rn.f32.u32 %f1, %r1; mov.f32 %f2, 0f3F800000;\n"
                    "st.global.v2.f32 [%rd4], {%f2, %f1};\n") == kFound);
  CHECK(
      found(out +
            "mov.f32 %f2, 0f3F800000; mov.b32 %f1, %r1;\nst.global.v2.f32 [%rd4], {%f2, %f1};\n") ==
      Texts{});
  // A load of 8 bytes, of which the first four are written.
  CHECK(found(out +
              "mul.wide.u32 %rd3, %lane, 8; add.u64 %rd3, %rd3, %in; st.global.u32 [%rd3], 5;\n"
              "ld.global.v2.u32 {%r2, %r3}, [%rd3]; cvt.rn.f32.u32 %f1, %r2;\n"
              "cvt.rn.f32.u32 %f2, %r3; st.global.v2.f32 [%rd4], {%f1, %f2};\n") == Texts{});
  CHECK(found("not.b32 %r2, %r1;\nst.global.u8 [%mine], %r2;\n") == kFound);
  CHECK(found("xor.b32 %r2, %r1, 255;\nst.global.u8 [%mine], %r2;\n") == kFound);
}

TEST_CASE("init: through shared memory the first read is named") {
  const std::string through =
      "mov.u32 %r2, s; mad.lo.u32 %r2, %lane, 4, %r2; st.shared.u32 [%r2], %r1; bar.sync 0;\n"
      "#9: ld.shared.u32 %r3, [%r2];\n";
  CHECK(found(through) == Texts{});
  CHECK(found(through + "st.global.u32 [%mine], %r3;\n") == kFound);
  CHECK(found(through + "mov.u32 %r4, s; mad.lo.u32 %r4, %lane, 4, %r4; st.shared.u32 [%r4+512], "
                        "%r3; ld.shared.u32 %r5, [%r4+512]; st.global.u32 [%mine], %r5;\n") ==
        kFound);
  // Written over in between.
  CHECK(found("mov.u32 %r2, s; mad.lo.u32 %r2, %lane, 4, %r2; st.shared.u32 [%r2], %r1; "
              "st.shared.u32 [%r2], 5;\nld.shared.u32 %r3, [%r2]; st.global.u32 [%mine], %r3;\n") ==
        Texts{});
}

TEST_CASE("init: lanes that went different ways have their own values") {
  // The odd lanes read what nobody wrote, the even ones put a number into the same register.
  const std::string body =
      "and.b32 %r2, %lane, 1; setp.eq.u32 %p1, %r2, 1;\nmul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, "
      "%rd1, %in;\n@%p1 bra ODD;\nmov.u32 %r1, 4;\nbra MEET;\nODD:\n#5: ld.global.u32 %r1, "
      "[%rd1];\nMEET:\nadd.u32 %r3, %r1, 1;\n";
  CHECK(Unwritten().run(body + "@!%p1 st.global.u32 [%mine], %r3;\n") == Texts{});
  CHECK(
      Unwritten().run(body + "st.global.u32 [%mine], %r3;\n") ==
      Texts{"s.cu:5: error: init: read of 4 bytes that nobody wrote, at byte 4 of 'x' (256 bytes, "
            "argument 2), by thread (1,0,0) of block (0,0,0) in k (and 15 more)"});
}

// ---- variables that nothing was assigned to -----------------------------------------------------

TEST_CASE("init: a variable is read before anything was assigned to it") {
  const Texts at_7 = {
      "s.cu:7: error: init: read of a variable that nothing was assigned to, by "
      "thread (0,0,0) of block (0,0,0) in k (and 63 more)"};
  const auto found = [](const std::string& body) { return Checked(init_only()).run(body); };
  const std::string store = "st.global.u32 [%mine], %r1;\n";
  CHECK(found("#7: add.u32 %r1, %r1, 1;\n" + store) == at_7);
  // float sum; for (int i = 0; i < 4; ++i) sum += i;
  const std::string loop =
      "mov.u32 %r2, 0;\nLOOP:\n#7: add.u32 %r1, %r1, %r2;\nadd.u32 %r2, %r2, 1; setp.lt.u32 %p1, "
      "%r2, 4; @%p1 bra LOOP;\n";
  CHECK(found(loop + store) == at_7);
  CHECK(found("mov.u32 %r1, 0;\n" + loop + store) == Texts{});
  CHECK(found(loop) == Texts{});  // computed, and not used
  // A guard that nothing was assigned to; a factor of a matrix product.
  CHECK(found("#7: @%p2 st.global.u32 [%mine], 1;\n") == at_7);
  const std::string product =
      "mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0;\n#7: "
      "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r6,%r7}, {%r2,%r3}, {%r4}, {%r5,%r9};\n"
      "st.global.u32 [%mine], %r6;\n";
  CHECK(found(product) == at_7);
  // The product's own results are assigned by it, and its operands by the first line.
  std::string whole = product;
  whole.replace(whole.find("%r9"), 3, "%r5");
  CHECK(found(whole) == Texts{});
  // Part of a vector, and the two halves of a word.
  CHECK(found("mov.u32 %r2, 1;\n#7: mov.b64 %rd2, {%r2, %r1}; mov.b64 {%r3, %r1}, %rd2;\n" +
              store) == at_7);
  CHECK(found("mov.u32 %r2, 1;\n#7: mov.b64 %rd2, {%r2, %r1}; mov.b64 {%r1, %r3}, %rd2;\n" +
              store) == Texts{});
}

TEST_CASE("init: a variable assigned on some ways counts on these") {
  // if (lane >= 16) v = 1; the lanes of the upper half may use it.
  const std::string branch =
      "setp.lt.u32 %p1, %lane, 16; @%p1 bra MEET;\nmov.u32 %r1, 1;\nMEET:\n#7: add.u32 %r2, %r1, "
      "1;\n";
  const std::string guard =
      "setp.lt.u32 %p1, %lane, 16; @!%p1 mov.u32 %r1, 1;\n#7: add.u32 %r2, %r1, 1;\n";
  for (const std::string& body : {branch, guard}) {
    CAPTURE(body);
    CHECK(Checked(init_only()).run(body + "@!%p1 st.global.u32 [%mine], %r2;\n") == Texts{});
    CHECK(Checked(init_only()).run(body + "st.global.u32 [%mine], %r2;\n") ==
          Texts{"s.cu:7: error: init: read of a variable that nothing was assigned to, by thread "
                "(0,0,0) of block (0,0,0) in k (and 31 more)"});
  }
}
