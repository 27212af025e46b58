// PTX text that is wrong, cut off, nested, huge or scrambled gives a PtxError, never a crash.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "../ptx/ast.h"
#include "../ptx/paths.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

// A module with something of everything.
const std::string kEverything = kHead + R"(
.file 1 "/nowhere/a.cu"
.file 2 "/nowhere/b.h", 1700000000, 123
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.visible .global .align 4 .u32 table[3] = {1, 0x2, -3};
.global .align 8 .u64 pointer = generic(table)+4;
.const .align 4 .f32 weights[2] = {0f3F800000, 2.5};
.extern .shared .align 16 .b8 dynamic[];
.shared .align 4 .b32 module_shared[4];
.weak .func (.param .align 8 .b8 r[16]) pair(.param .b32 x, .param .b64 y)
{
	.reg .b32 %r<3>; .reg .b64 %rd<2>;
	ld.param.b32 %r1, [x]; ld.param.b64 %rd1, [y];
	st.param.b32 [r], %r1; st.param.b64 [r+8], %rd1;
	ret;
}
.alias same, pair;
.visible .entry k(
	.param .u64 .ptr .global .align 4 p_out,
	.param .u64 p_in
)
.maxntid 256, 1, 1
.minnctapersm 2
{
	.reg .pred 	%p<4>;
	.reg .b16 	%h<3>;
	.reg .b32 	%r<20>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<9>;
	.local .align 16 .b8 	depot[32];
	.shared .align 4 .b32 tile[32];
	.loc	1 7 3, function_name $L__info, inlined_at 2 3 4
	ld.param.u64 	%rd1, [p_out];
	mov.u32 	%r1, %tid.x;
	setp.lt.u32 	%p1, %r1, 20;
	@!%p1 bra 	$L__BB0_2;
	mul.wide.u32 	%rd2, %r1, 4;
	add.s64 	%rd3, %rd1, %rd2;
	mov.b64 	%rd4, {%r1, %r1};
	{
	.reg .b32 temp;
	mov.b32 	{%h1, %h2}, %r1;
	mov.b32 	temp, {%h2, %h1};
	}
	st.global.v2.u32 	[%rd1], {%r1, _};
	{ // callseq 0, 0
	.param .b32 a0; .param .b64 a1; .param .align 8 .b8 r0[16];
	st.param.b32 	[a0], %r1; st.param.b64 [a1+0], %rd3;
	call.uni (r0), pair, (a0, a1);
	ld.param.b32 	%r2, [r0];
	mov.u64 %rd7, pair;
	call (r0), %rd7, (a0, a1), proto;
	proto: .callprototype (.param .align 8 .b8 _[16]) _ (.param .b32 _, .param .b64 _);
	}
	shfl.sync.bfly.b32 	%r3|%p2, %r2, 1, 31, -1;
	rem.u32 %r4, %r3, 2;
	brx.idx 	%r4, $targets;
	$targets: .branchtargets $L__BB0_2, $L__BB0_3;
$L__BB0_2:
	bar.sync 	0;
	fma.rn.f32 	%f1, %f2, 0f3F800000, %f3;
	ld.const.f32 %f1, [weights+4];
$L__BB0_3: /* the end */
	ret;
}
.section .debug_str { $L__info: .b8 97, 0 }
)";

// Parses, loads and decodes all of it. Anything but a PtxError fails the test.
struct Loading {
  std::string error;  // "": it loads
  std::vector<std::string> refusals;
};
Loading loading(const std::string& text, Bodies bodies) {
  static Machine machine({}, {.threads = 1});
  try {
    const auto module = machine.load(text, bodies);
    const Loading loading{"", machine.refusals(*module)};
    for (const auto& variable : module->variables) machine.memory().release(variable->base);
    return loading;
  } catch (const PtxError& error) {
    return {error.what(), {}};
  }
}
// The error of loading. Where bodies are read at their first use, it is the same at the latest then.
std::string trouble(const std::string& text) {
  const Loading now = loading(text, Bodies::now), later = loading(text, Bodies::at_first_use);
  CAPTURE(text);
  const bool refused =
      std::find(later.refusals.begin(), later.refusals.end(), now.error) != later.refusals.end();
  if (now.error.empty() || !refused) CHECK(later.error == now.error);
  if (now.error.empty()) CHECK(later.refusals == now.refusals);
  return now.error;
}
std::string in_kernel(const std::string& body) { return trouble(kernel(body)); }

// What launching the text says.
std::string refusal(const std::string& body, const std::string& before = "") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const LaunchOutcome outcome = gpu.launch(kernel(body, before), {out.address(), out.address()});
  if (outcome.fault.kind != FaultKind::none)
    CHECK(outcome.fault.kind == FaultKind::illegal_instruction);
  return outcome.fault.message;
}

}  // namespace

TEST_CASE("parser: source files are named without the way to them through other folders") {
  CHECK(normal_path("/nowhere/a.cu") == "/nowhere/a.cu");
  CHECK(normal_path("/nowhere/03/../02/./b.cuh") == "/nowhere/02/b.cuh");
  CHECK(normal_path("./03/../../common/c.h") == "../common/c.h");
  CHECK(normal_path("/nowhere/.hidden/d.cu") == "/nowhere/.hidden/d.cu");
  CHECK(normal_path("") == "");
  CHECK(display_path("chapters/03/../02/b.cuh") == "chapters/02/b.cuh");
  CHECK(display_path(std::filesystem::current_path().string() + "/03/../02/./b.cuh") == "02/b.cuh");

  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(1, 0);
  const LaunchOutcome outcome = gpu.launch(kHead + R"(.file 1 "/nowhere/\303\234/03/../02/./b.cuh"
.visible .entry k(.param .u64 out) {
.reg .b64 %rd<2>;
.loc 1 9 1
ld.global.u64 %rd1, [16];
ret;
})",
                                           {out.address()});
  CHECK(outcome.fault.message.find("/nowhere/\303\234/02/b.cuh:9: error: ") == 0);

  // A link on the way: what lies behind it is not beside it.
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("normal_path." + std::to_string(getpid()));
  std::filesystem::create_directories(root / "far/away/inside");
  std::filesystem::create_directory_symlink(root / "far/away/inside", root / "link");
  std::ofstream(root / "far/away/b.cuh") << "x";
  const std::string linked = (root / "link/../b.cuh").string();
  CHECK(normal_path(linked) == linked);
  std::ofstream(root / "b.cuh") << "x";  // another file
  CHECK(normal_path(linked) == linked);
  CHECK(normal_path((root / "far/../b.cuh").string()) == (root / "b.cuh").string());
  std::filesystem::remove_all(root);
}

TEST_CASE("parser: an inlined place belongs to the call before it, in its own function") {
  // As nvcc writes it: a header's function calls another, and kernels call the first.
  const std::string call = R"(
.loc 2 10 5, function_name $L__outer, inlined_at 1 LINE 3
.loc 2 20 7, function_name $L__inner, inlined_at 2 10 5
mov.u32 %r1, LINE;
.loc 2 21 7, function_name $L__inner, inlined_at 2 10 5
mov.u32 %r2, LINE;
)";
  const auto at = [&](int line) {
    std::string text = call;
    for (std::size_t i; (i = text.find("LINE")) != text.npos;)
      text.replace(i, 4, std::to_string(line));
    return text;
  };
  const auto kernel = [](const std::string& name, const std::string& body) {
    return ".visible .entry " + name + "() {\n.reg .b32 %r<4>;\n" + body + "ret;\n}\n";
  };
  // The last kernel is part of another file of the same module, where 1 is another file.
  const std::string files =
      ".file 1 \"/home/user/a.cu\"\n.file 2 \"/cuda/include/cuda_pipeline.h\"\n";
  const std::string nowhere =
      ".loc 2 20 7, function_name $L__inner, inlined_at 2 99 1\nmov.u32 %r1, 2099;\n";
  const std::string text =
      kHead + kernel("one", at(5) + at(6)) + kernel("two", at(15) + at(14)) +
      kernel("itself",
             ".loc 2 10 5\n.loc 2 20 7, function_name $L__inner, inlined_at 2 10 5\n"
             "mov.u32 %r1, 2010;\n") +
      kernel("stranger", nowhere) + files + kHead + kernel("three", at(7)) +
      ".file 1 \"/home/user/b.cu\"\n.file 2 \"/cuda/include/cuda_pipeline.h\"\n";
  for (const Bodies bodies : {Bodies::now, Bodies::at_first_use}) {
    const auto parsed = parse_ptx(text, bodies);
    const std::size_t locations = parsed->module.locations.size();
    parse_body(*parsed, "three");
    CHECK(parsed->module.locations.size() == locations);
    int moves = 0;
    for (const auto& [name, body] : parsed->bodies)
      for (const ast::Statement& s : body.statements) {
        if (s.name != "mov.u32") continue;
        const Location& where = parsed->module.locations[s.location];
        const int want = static_cast<int>(s.operands[1].value);
        CAPTURE(name);
        CHECK(where.line == want % 2000);
        CHECK(where.file == (want > 2000       ? "/cuda/include/cuda_pipeline.h"
                             : name == "three" ? "/home/user/b.cu"
                                               : "/home/user/a.cu"));
        ++moves;
      }
    CHECK(moves == 12);
  }
}

TEST_CASE("parser: bodies of kernels are read at their first use, and once") {
  const std::string right =
      ".visible .entry right() {\n.reg .b32 %r<2>;\n.pragma \"a } {\";\n"
      "{ // }\nmov.u32 %r1, 1;\n}\nret;\n}\n";
  const std::string wrong = ".visible .entry wrong() {\n@%nothing ret;\nret;\n}\n";
  // What the whole module has to know is known at once: a function's variables, a body's constants.
  const std::string known =
      ".func f() {\n.shared .b32 s;\nret;\n}\n"
      ".visible .entry variables() {\n.global .b32 inside[2] = {1, 2};\nret;\n}\n";
  const auto parsed = parse_ptx(kHead + right + known, Bodies::at_first_use);
  const auto& bodies = parsed->bodies;
  CHECK(bodies.at("right").has_body);
  CHECK(bodies.at("right").statements.empty());
  CHECK(bodies.at("f").variables.size() == 1);
  CHECK(bodies.at("variables").statements.size() == 1);
  CHECK(parsed->module.globals.count("variables$inside") == 1);
  for (int times = 0; times < 2; ++times) {
    parse_body(*parsed, "right");
    CHECK(bodies.at("right").statements.size() == 2);
    CHECK(bodies.at("right").statements[0].line == 8);
  }
  parse_body(*parsed, "f");
  parse_body(*parsed, "nothing");

  // A mistake is its own kernel's, and comes back whenever that is asked for.
  const auto later = parse_ptx(kHead + wrong + right, Bodies::at_first_use);
  for (int times = 0; times < 2; ++times)
    CHECK_THROWS_WITH_AS(parse_body(*later, "wrong"), trouble(kHead + wrong).c_str(), PtxError);
  parse_body(*later, "right");
  CHECK(later->bodies.at("right").statements.size() == 2);
  CHECK(later->bodies.at("right").statements[0].line == 12);
  // Unless loading finds another one behind it: then the first is reported.
  CHECK_THROWS_WITH_AS(parse_ptx(kHead + wrong + ".nothing", Bodies::at_first_use),
                       trouble(kHead + wrong).c_str(), PtxError);
  CHECK(later->module.text.size() > 0);
}

TEST_CASE("parser: a module with something of everything is understood") {
  CHECK(trouble(kEverything) == "");
  const auto parsed = parse_ptx(kEverything);
  const Module& m = parsed->module;
  CHECK(m.target == "sm_90");
  CHECK(m.sm == 90);
  const Function* k = m.find("k");
  REQUIRE(k != nullptr);
  CHECK(k->entry);
  CHECK(k->max_threads == 256);
  CHECK(k->min_blocks == 2);
  CHECK(k->params.size() == 2);
  CHECK(k->param_bytes == 16);
  CHECK(m.globals.at("table")->size == 12);
  CHECK(m.globals.at("dynamic")->external);
}

TEST_CASE("parser: what is wrong is said with the line") {
  auto says = [](const std::string& text, const std::string& words) {
    const std::string message = trouble(text);
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  says("", "no .target directive");
  says("hello", "PTX line 1: expected a directive, found 'hello'");
  says("\n\n.version 8.0\n.garbage", "PTX line 4: unknown directive '.garbage'");
  says(".target sm_90\n.address_size 32", "PTX line 2: only 64-bit PTX");
  says(".target gpu", "unknown target 'gpu'");
  says(kHead + "/* never", "comment without end");
  says(kHead + ".entry k() {", "function 'k' without end");
  says(kHead + ".entry k() { ret", "expected an operand, found ''");
  says(kHead + ".entry k() { ret %r1", "expected ';'");
  says(kHead + ".global .u32 x[99999999999999];", "array too large");
  says(kHead + ".global .u32 x[4000000][4000000];", "array too large");
  says(kHead + ".global .u32 x[2] = {1, 2, 3};", "more values than 'x' holds");
  says(kHead + ".global .u32 x[];", "without a size");
  says(kHead + ".global .align 3 .u32 x;", "bad alignment");
  says(kHead + ".global .u64 x = nothing;", "names unknown 'nothing'");
  says(kHead + ".const .b8 x[65537];", "more than 64 KiB of constant memory");
  says(kHead + ".entry k(.param .u128 x) { ret; }", "unknown type");
  says(kHead + ".file 1 \"never", "string without end");
  says(kernel("A: A: ret;"), "label 'A' stands twice");
  says(kernel("@%r1 bra A; A:"), "guard '%r1' is not a predicate");
  says(kernel("@%nothing ret;"), "unknown guard predicate");
  says(kernel(".reg .b32 %x<99999999>;"), "bad register count");
}

TEST_CASE("parser: vector registers, tight directives, variables of a body, constant expressions") {
  Gpu gpu;
  const std::vector<std::uint32_t> in = {10, 20, 30, 40, 50, 60, 70, 80};
  // Parts by both kinds of letters, as a whole in memory, in braces, in moves and in a call's place.
  CHECK_SAME(
      gpu.run(".reg .v4 .b32 v, w; .reg.v2.b32 %pair<3>; .reg .v2 .f32 f;\n"
              "ld.global.v4.u32 v, [%in]; ld.global.v2.u32 %pair2, [%in+16];\n"
              "add.u32 v.x, v.y, v.w; mov.v4.u32 w, v; add.u32 v.g, w.a, %pair2.y;\n"
              "mov.b64 %rd1, %pair2; mov.b64 %pair1, %rd1; mov.b64 f, %rd1;\n"
              "mov.b32 w.w, f.y; st.global.v4.u32 [%out], v; st.global.v4.u32 [%out+16], w;\n"
              "st.global.v2.u32 [%out+32], {%pair1.y, %pair1.x};",
              10, in, {1, 1, 1}),
      {60, 100, 30, 40, 60, 20, 30, 60, 60, 50});
  CHECK_SAME(gpu.run("ld.global.u32 %r1, [%in + -1+5]; ld.global.u32 %r2, [%in+2*(3+1)];\n"
                     "ld.global.u32 %r3, [%in + - 4 + 0x10]; ld.global.u32 %r4, [%in+ -(-16)];\n"
                     "add.u32 %r4, %r4, 3+4*2; st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};\n"
                     "st.shared.u32 [s + 8 + -4], 7 % 4; ld.shared.u32 %r5, [s+ 16/4];\n"
                     "st.global.u32 [%out+16], %r5;",
                     5, in, {1, 1, 1}, {1, 1, 1}, ".shared.align 4 .b32 s[4];\n"),
             {20, 30, 40, 61, 3});
  // Each body, and each block of it, has its own variable; it keeps its value between launches.
  const std::string count =
      ".global.align 4 .u32 count = 5; .const .u32 step[2] = {100, 3};\n"
      "{ .global .u32 count; st.global.u32 [count], 1000; ld.global.u32 %r5, [count]; }\n"
      "ld.global.u32 %r1, [count]; ld.const.u32 %r2, [step+4]; add.u32 %r1, %r1, %r2;\n"
      "st.global.u32 [count], %r1; st.global.u32 [%out], %r1; st.global.u32 [%out+4], %r5;";
  CHECK_SAME(gpu.run(count, 2, in, {1, 1, 1}), {8, 1000});
  CHECK_SAME(gpu.run(count, 2, in, {1, 1, 1}), {11, 1000});
  const std::string other =
      ".visible.entry other(.param.u64 p, .param.align 8 .b8 q[16]) {\n"
      ".global .u32 count; .reg.b32 %r1; ld.global.u32 %r1, [count]; ret; }\n";
  CHECK_SAME(gpu.run(count, 2, in, {1, 1, 1}, {1, 1, 1}, other), {8, 1000});

  // One element in braces, and sums of a register and a number.
  CHECK_SAME(gpu.run("ld.global.b32 {%r1}, [%in]; ld.relaxed.gpu.global.u8 {%h1}, [%in+4];\n"
                     "mov.b32 {%r2}, %r1; mov.b32 %r3, {%r2}; st.global.b32 [%out], {%r3};\n"
                     "cvt.u32.u16 %r4, %h1 + 5; st.global.b32 [%out+4], %r4 + 2*3;\n"
                     "setp.eq.u32 %p1, %r1 + -1, 9; @!%p1 bra END; @%p1 mov.u32 %r5, %r1 + 1;\n"
                     "mul.lo.u32 %r6, %r5 + 1, %r5 + 2; st.global.b32 [%out+8], %r6; END:",
                     3, in, {1, 1, 1}),
             {10, 31, 156});
  CHECK_SAME(gpu.run("mov.v4.u32 {%r1,%r2,%r3,%r4}, {1,2,3,4};\n"
                     "mov.v4.b32 {%r1,%r2,%r3,%r4}, {%r2,%r3,%r4,%r1};\n"
                     "st.global.v4.u32 [%out], {%r1,%r2,%r3,%r4};\n"
                     "mov.v2.b32 {%r1,%r2}, {%r2,%r1}; mov.v2.u32 {_,%r3}, {%r1,%r4};\n"
                     "mov.v4.u32 {%r4,%r5,%r6,%r7}, %ntid; add.u32 %r7, %r7, %r5;\n"
                     "st.global.v4.u32 [%out+16], {%r1,%r2,%r3,%r4}; st.global.u32 [%out+32], %r7;",
                     9, in, {3, 1, 1}),
             {2, 3, 4, 1, 3, 2, 1, 3, 1});

  CHECK(in_kernel(".reg .v4 .b64 v;").find("more than 128 bits") != std::string::npos);
  CHECK(in_kernel(".reg .v2 .pred v;").find("vector register of predicates") != std::string::npos);
  CHECK(in_kernel(".reg .v2 .f32 v; mov.f32 v.z, %f1;").find("has no part '.z") !=
        std::string::npos);
  CHECK(refusal(".reg .v2 .f32 v; mov.f32 v, %f1;") != "");
  CHECK(in_kernel(".reg .v2 .f32 v; .reg .v4 .f32 w; mov.v2.f32 v, w;") != "");
  CHECK(in_kernel("add.u32 %r1, %r2, 4/0;").find("division by 0") != std::string::npos);
  std::string deep = "add.u32 %r1, %r2, 1";
  for (int i = 0; i < 100000; ++i) deep += "+(1";
  CHECK(in_kernel(deep + ";").find("nested too deep") != std::string::npos);
}

TEST_CASE("parser: what an instruction lacks is said when its kernel is run, with its text") {
  auto says = [](const std::string& body, const std::string& words) {
    const std::string message = refusal(body);
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  says("frobnicate.u32 %r1, %r2;", "the virtual GPU does not know the instruction 'frobnicate'");
  says("ld.global.u33 %r1, [%in];", "the virtual GPU does not know '.u33' in 'ld.global.u33'");
  says("ld.global %r1, [%in];", "a modifier is missing");
  says("ld.global.x4.u32 %r1, [%in];", "does not know '.x4' in 'ld.global.x4.u32'");
  says("ldmatrix.sync.aligned.x4.m8n9.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];",
       "does not know '.m8n9'");
  says("ldmatrix.sync.aligned.x4.m8n8.shared.v2.b16 {%r1, %r2, %r3, %r4}, [%r5];",
       "does not know '.v2'");
  says("add.satfinite.s32 %r1, %r2, %r3;", "does not know '.satfinite'");
  says("add.rn.s32 %r1, %r2, %r3;", "does not know '.rn'");
  says("mul.u32.lo %r1, %r2, %r3;", "'mul.u32.lo' (its modifiers stand in another order)");
  says("ld.global.v8.u32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%in];",
       "'ld.global.v8.u32' with these operands needs .target sm_100 or higher");
  for (const char* newer :
       {"st.v4.b64 [%in], {%rd1, %rd1, %rd1, %rd1};", "add.rn.f32x2 %rd1, %rd2, %rd3;",
        "min.f32 %f1, %f2, %f3, %f4;", "cvt.rn.satfinite.tf32.f32 %r1, %f1;",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [%r1], 32, %h1;"})
    says(newer, "needs .target sm_100 or higher");
  says("bra NOWHERE;", "unknown label 'NOWHERE'");
  says("{ INNER: } bra INNER;", "unknown label 'INNER'");
  says("mov.u32 %r1, nothing;", "unknown name 'nothing'");
  says("mov.u32 %r1, %nothing;", "special register '%nothing' is not known");
  says("add.u32 %r1, %r2;", "an operand is missing");
  says("add.u32 %r1, %r2, %r3, %r4;", "too many operands");
  says("add.u32 %r1, %rd2, %r3;", "64 bits where .u32 needs 32");
  says("add.u32 5, %r2, %r3;", "expected a register as destination");
  says("ld.global.u32 %r1, %in;", "expected a memory operand in brackets");
  says("ld.global.u64 %r1, [%in];", "register '%r1' of 32 bits where .u64 needs 64");
  says("ld.global.v2.u32 {%r1}, [%in];", "does not support");
  says("ld.global.v2.u32 {%r1, %rd1}, [%in];", "registers of different width");
  says("ld.global.v2.u32 {}, [%in];", "a vector without elements");
  says("st.global.v2.u32 [%in], {};", "a vector without elements");
  says("mov.b64 {}, %rd1;", "a vector without elements");
  says("mov.b64 %rd1, {};", "a vector without elements");
  says("mov.b64 %rd1, {%r1, %r2, %r3};", "does not support");
  says("mov.b64 {%r1, %r2}, %r3;", "mov from a register of another width");
  says("mov.u32 %rd1, %r1;", "mov to a register of another width");
  says("atom.global.add.u32 %rd1, [%in], 1;", "64 bits where .u32 needs 32");
  says("ld.global.u32 %r1, [%h1];", "an address needs a register of 32 or 64 bits");
  says("ld.global.u32 %r1, [%q1];", "an address needs a register of 32 or 64 bits");
  says("brx.idx %r1, NOTHING;", "unknown list of branch targets");
  says("call nothing;", "unknown function 'nothing'");
  says("call %r1;", "");
  says(".shared .b32 s; ld.global.u32 %r1, [s];", "'s' lies in .shared, not in .global");
  says("call f, (%r1);", "");
  says(".loc 1 77 1\nfrobnicate;", "(PTX line 14: 'frobnicate;') in k");
}

TEST_CASE("parser: nested, long and huge input ends with an error or a module, quickly") {
  const auto start = std::chrono::steady_clock::now();
  auto repeat = [](const std::string& s, int n) {
    std::string r;
    r.reserve(s.size() * n);
    for (int i = 0; i < n; ++i) r += s;
    return r;
  };
  CHECK(in_kernel(repeat("{", 100000)).find("nested too deep") != std::string::npos);
  CHECK(in_kernel("mov.b64 %rd1, " + repeat("{", 100000)).find("nested too deep") !=
        std::string::npos);
  CHECK(in_kernel("mov.b64 %rd1, " + repeat("[", 100000)).find("nested too deep") !=
        std::string::npos);
  CHECK(in_kernel("mov.b64 %rd1, " + repeat("!", 100000)).find("nested too deep") !=
        std::string::npos);
  CHECK(in_kernel("mov.b64 %rd1, " + repeat("%r1|", 100000)).find("nested too deep") !=
        std::string::npos);
  CHECK(trouble(kHead + ".global .u32 x = " + repeat("{", 100000)).find("nested too deep") !=
        std::string::npos);
  CHECK(trouble(kHead + ".global .u32 x" + repeat("[2]", 100000)).find("array too large") !=
        std::string::npos);
  CHECK(trouble(kHead + ".global .b8 x[1000000000000] = {1};") != "bad_alloc");
  CHECK(trouble(kHead + ".entry k(" + repeat(".param .b8 x[1000000],", 10) + ") { ret; }")
            .find("larger than 1 MiB") != std::string::npos);
  CHECK(in_kernel(repeat(".local .b8 l[1000000000];", 3)) ==
        "");  // its kernel is refused, the module is not
  CHECK(in_kernel(".reg .b128 %big<4000000>; mov.b128 %big7, %big3999999;") == "");
  CHECK(in_kernel(repeat("mov.u32 %r1, %r2;\n", 100000)) == "");
  CHECK(in_kernel("mov.u32 %r1, 1" + repeat("0", 100000) + ";") == "");
  CHECK(in_kernel("mov" + repeat(".u32", 100000) + " %r1, %r2;") == "");
  CHECK(in_kernel(repeat("@%p1 bra END;\n", 20000) + "END:") == "");
  std::string labels;
  for (int i = 0; i < 20000; ++i)
    labels += "L" + std::to_string(i) + ": @%p1 bra L" + std::to_string((i * 7919) % 20000) + ";\n";
  CHECK(in_kernel(labels) == "");
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(seconds < 20);
}

TEST_CASE("parser: a kernel with thousands of unused registers runs") {
  Gpu gpu;
  CHECK_SAME(gpu.run(".reg .b64 %wide<1000000>; mov.u64 %wide999999, 7; cvt.u32.u64 %r1, "
                     "%wide999999; st.global.u32 [%mine], %r1;"),
             std::vector<std::uint32_t>(32, 7));
}

TEST_CASE("parser: cut off at every byte") {
  for (std::size_t length = 0; length < kEverything.size(); ++length)
    trouble(kEverything.substr(0, length));
  CHECK(trouble(kEverything) == "");
}

TEST_CASE("parser: scrambled text, loaded, decoded and run") {
  // Bytes changed, pieces removed, doubled and moved. What still loads is run: it may do anything but
  // hurt the host or wait for ever.
  std::mt19937_64 random(2024);
  Gpu gpu;
  gpu.machine.patience = 10000;
  gpu.machine.instruction_limit = 100000;
  gpu.machine.print = [](std::string_view) {};
  const auto out = gpu.array<std::uint32_t>(256, 0);
  const std::string tokens[] = {
      "%r1", "%rd1", "%p1",       ".global",     ".shared", "{",          "}",
      "[",   "]",    ";",         ",",           "-1",      "0x7fffffff", "99999999999",
      "bra", "@%p1", "$L__BB0_2", "$L__BB0_3",   ".v4",     ".u64",       ".b128",
      "_",   "call", "ret;",      "(",           ")",       "|",          "!",
      "\"",  "//",   "/*",        ":",           ".reg",    ".align",     "<",
      ">",   "=",    "+",         "bar.sync 0;", "%tid.x",  "pair"};
  int loaded = 0, ran = 0;
  const auto start = std::chrono::steady_clock::now();
  int rounds = 0;
  for (; rounds < 20000; ++rounds) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > 4) break;
    std::string text = kEverything;
    for (int edits = 1 + static_cast<int>(random() % 3); edits-- > 0;) {
      const std::size_t at = random() % text.size(), length = random() % 12;
      switch (random() % 6) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        case 3:
          text.insert(at, tokens[random() % std::size(tokens)] + " ");
          break;
        case 4: {
          const std::string& token = tokens[random() % std::size(tokens)];
          text.replace(at, std::min(token.size(), text.size() - at), token);
          break;
        }
        default: {  // a digit becomes another
          const std::size_t digit = text.find_first_of("0123456789", at);
          if (digit != text.npos) text[digit] = static_cast<char>('0' + random() % 10);
        }
      }
      if (text.empty()) text = " ";
    }
    CAPTURE(rounds);
    try {
      const auto module = gpu.machine.load(text);
      ++loaded;
      if (const Function* k = module->module->find("k"); k && k->entry) {
        LaunchRequest request;
        request.module = module.get();
        request.function = k;
        request.block = {40, 1, 1};
        std::uint64_t params[2] = {out.address(), out.address()};
        request.params = std::as_bytes(std::span(params));
        ran += gpu.machine.launch(request).fault.kind == FaultKind::none;
      }
      for (const auto& variable : module->variables) gpu.machine.memory().release(variable->base);
    } catch (const PtxError&) {
    }
  }
  CHECK(loaded > rounds / 20);
  CHECK(ran > 0);
  CHECK(rounds > 100);
}

TEST_CASE("parser: several files in one text are linked by name") {
  Gpu gpu;
  const std::string head = "\n.version 8.4\n.target sm_80\n.address_size 64\n";
  // Both files have a `local` variable and function and a weak function; each uses what the other has.
  const std::string text = kernel(R"(
.loc 1 5 0
{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %lane; call.uni (r0), twice, (p0); ld.param.b32 %r1, [r0]; }
{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1; call.uni (r0), local, (p0); ld.param.b32 %r1, [r0]; }
{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1; call.uni (r0), weak, (p0); ld.param.b32 %r1, [r0]; }
ld.global.u32 %r2, [there]; add.u32 %r1, %r1, %r2; ld.const.u32 %r2, [constant+4]; add.u32 %r1, %r1, %r2;
st.global.u32 [%mine], %r1;)",
                                  R"(.file 1 "first.cu"
.extern .func (.param .b32 r) twice (.param .b32 p);
.func (.param .b32 r) local (.param .b32 p) { .reg .b32 %r<3>; ld.param.b32 %r1, [p]; ld.global.u32 %r2, [hidden]; add.u32 %r1, %r1, %r2; st.param.b32 [r], %r1; ret; }
.weak .func (.param .b32 r) weak (.param .b32 p) { .reg .b32 %r<3>; ld.param.b32 %r1, [p]; add.u32 %r1, %r1, 10000; st.param.b32 [r], %r1; ret; }
.extern .global .u32 there; .extern .const .align 4 .b8 constant[8];
.global .u32 hidden = 100;
.visible .global .u64 pointer = there;
)") + head + R"(.file 1 "second.cu"
.global .u32 hidden = 1000;
.visible .global .u32 there = 100000; .visible .const .align 4 .b8 constant[8] = {0, 0, 0, 0, 64, 66, 15, 0};
.func (.param .b32 r) local (.param .b32 p) { .reg .b32 %r<3>; ld.param.b32 %r1, [p]; ld.global.u32 %r2, [hidden]; mad.lo.u32 %r1, %r1, 2, %r2; st.param.b32 [r], %r1; ret; }
.visible .func (.param .b32 r) twice (.param .b32 p) {
.loc 1 7 0
{ .reg .b32 %r<3>; .param .b32 p0; .param .b32 r0; ld.param.b32 %r1, [p]; st.param.b32 [p0], %r1; call.uni (r0), local, (p0); ld.param.b32 %r1, [r0]; st.param.b32 [r], %r1; }
ret; }
.weak .func (.param .b32 r) weak (.param .b32 p) { trap; ret; }
.visible .entry other(.param .u64 p_out) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [p_out]; ld.global.u32 %r1, [hidden]; st.global.u32 [%rd1], %r1; ld.global.u64 %rd2, [pointer]; ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1+4], %r1; ret; }
.extern .global .u64 pointer;
)";
  const auto out = gpu.array<std::uint32_t>(32), more = gpu.array<std::uint32_t>(2);
  REQUIRE(gpu.launch(text, {out.address(), out.address()}).fault.message == "");
  // 2 lane + 1000, + 100, + 10000, + 100000, + 1000000.
  CHECK_SAME(out.values(), expected(32, [](std::uint32_t i) { return 2 * i + 1111100; }));
  REQUIRE(gpu.launch(text, {more.address()}, {1, 1, 1}, {1, 1, 1}, 0, "other").fault.message == "");
  CHECK_SAME(more.values(), {1000, 100000});
  std::string places;
  for (const Location& l : gpu.module().module->locations)
    if (l.line) places += l.file + ":" + std::to_string(l.line) + " ";
  CHECK(places == "first.cu:5 second.cu:7 ");
  // The newest target counts, wherever it stands.
  CHECK(gpu.module().module->target == "sm_90");
  Machine machine({}, {.threads = 1});
  CHECK_THROWS_WITH_AS(
      machine.load(head + ".global .u32 x;" + head + ".visible .global .u32 x;"),
      doctest::Contains("'x' is seen by other files here and by its own file only in one before"),
      PtxError);
}
