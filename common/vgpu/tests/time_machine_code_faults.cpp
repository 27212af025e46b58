// Machine code where something is missing, damaged or slow: a sentence, never a crash.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "../time/annotate.h"
#include "../time/assembler.h"
#include "../time/code_cache.h"
#include "../time/cubin_code.h"
#include "../time/debug_line.h"
#include "../time/machine_code.h"
#include "time_support.h"

using namespace vgpu::time;
using namespace vgpu_tests;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPtx = R"(// a module
.version 7.0
.target sm_75
.address_size 64
.file 1 "a.cu", 12, 34
.global .align 4 .b8 unused[64] = {1, 2};
.const .align 4 .b32 table[2] = {1, 2};
.global .u32 other;
.global .u64 pointers[1] = {other};
.func (.param .b32 r) twice(.param .b32 x) /* a } in a comment */
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x]; add.s32 %r2, %r1, %r1;
  st.param.b32 [r], %r2; ret;
}
.visible .entry first(.param .u64 p) { ret; }
.visible .entry second(
  .param .u64 p
)
.maxntid 64
{
  .pragma "used .loc 1 "; .reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .pred %p1;
  .loc 1 2 3, function_name $L, inlined_at 1 9 9
  ld.param.u64 %rd1, [p]; { .reg .b32 %q; mov.u32 %q, %tid.x;
  mov.b32 %r1, %q; }
  ld.const.u32 %r2, [table];  // table of 2 {
LOOP: { .param .b32 a; .param .b32 b;
  st.param.b32 [a], %r1;
  call.uni
    (b),
    twice,
    (a);
  ld.param.b32 %r3, [b];
  }
  ld.global.u64 %rd2, [pointers];
  setp.lt.s32 %p1, %r3, 9;
  @%p1 bra LOOP;
  st.global.u32 [%rd1], %r3;
  ret;
}
.section .debug_str { .b8 1, 2 }
)";

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> all;
  for (const int value : values) all.push_back(static_cast<std::byte>(value));
  return all;
}

// A unit of version 2 around a program: least bytes 16, line base -5, range 14, opcode base 10.
std::vector<std::byte> unit(std::initializer_list<int> program) {
  std::vector<std::byte> all = bytes(
      {0, 0, 0, 0, 2, 0, 17, 0, 0, 0, 16, 1, 0xfb, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 'a', 0});
  all.resize(27);
  const auto rest = bytes(program);
  all.insert(all.end(), rest.begin(), rest.end());
  all[0] = static_cast<std::byte>(all.size() - 4);
  return all;
}

void make_program(const std::string& path, const std::string& script) {
  write(path, "#!/bin/sh\n" + script);
  chmod(path.c_str(), 0755);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("time, annotated PTX: the kernel, what it needs, a number before each instruction") {
  const Annotated made = annotate(kPtx, "second");
  REQUIRE(made.why == "");
  CHECK(has(made.text, ".func (.param .b32 r) twice"));
  CHECK(has(made.text, ".const .align 4 .b32 table"));
  CHECK(has(made.text, ".global .u32 other"));  // through an initializer
  CHECK_FALSE(has(made.text, "unused"));
  CHECK_FALSE(has(made.text, "first"));
  CHECK_FALSE(has(made.text, "a.cu"));
  CHECK_FALSE(has(made.text, "inlined_at"));
  CHECK_FALSE(has(made.text, "debug_str"));
  CHECK_FALSE(made.several_files);
  // Lines of the text above; the second number counts those that stand before on the same line.
  const std::vector<std::pair<int, int>> expected = {
      {13, 0}, {13, 1}, {14, 0}, {14, 1}, {24, 0}, {24, 1}, {25, 0}, {26, 0},
      {28, 0}, {29, 0}, {33, 0}, {35, 0}, {36, 0}, {37, 0}, {38, 0}, {39, 0}};
  REQUIRE(made.places.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO(i);
    CHECK(made.places[i].line == expected[i].first);
    CHECK(made.places[i].on_line == expected[i].second);
    CHECK(has(made.text, ".loc 1 " + std::to_string(i + 1) + " 0\n"));
  }
  CHECK_FALSE(has(made.text, ".loc 1 " + std::to_string(expected.size() + 1) + " "));
  CHECK(annotate(kPtx, "third").why == "the module's PTX has no kernel 'third'");
  CHECK(annotate("", "third").why != "");
}

TEST_CASE("time, annotated PTX: every beginning of a text ends") {
  const std::string text = kPtx;
  for (std::size_t size = 0; size < text.size(); ++size) annotate(text.substr(0, size), "second");
  for (std::size_t at = 0; at < text.size(); at += 3)
    for (const char c : {'{', '}', '"', '/', ';', '.', '\0'}) {
      std::string changed = text;
      changed[at] = c;
      annotate(changed, "second");
    }
}

TEST_CASE("time, annotated PTX: of several files, the one that has the kernel") {
  const std::string text = std::string(kPtx) +
                           ".version 7.0\n.target sm_75\n.address_size 64\n"
                           ".extern .func twice;\n.visible .entry far() { ret; }\n";
  const Annotated made = annotate(text, "far");
  CHECK(made.several_files);
  CHECK_FALSE(has(made.text, "twice"));
  REQUIRE(made.places.size() == 1);
  CHECK(made.text.find(".version") == made.text.rfind(".version"));
}

TEST_CASE("time, lines: each kind of opcode") {
  std::string why;
  const auto program = unit({
      0,
      9,
      2,
      0,
      1,
      0,
      0,
      0,
      0,
      0,
      0,  // set_address 0x100
      3,
      0xe4,
      0,                    // advance_line 100: 101
      1,                    // copy: 0x100 101
      10 + 14 * 2 + 5 + 3,  // special: + 2 x 16 bytes, + 3 lines: 0x120 104
      2,
      3,  // advance_pc 3: 0x150
      3,
      0x7b,  // advance_line -5: 99
      1,     // copy
      8,     // const_add_pc: + 17 x 16 = 0x260
      9,
      8,
      0,  // fixed_advance_pc: 0x268
      4,
      1,
      5,
      7,
      6,
      7,  // file, column, negate_stmt, basic_block
      0,
      3,
      0x80,
      1,
      2,  // an extended opcode of a vendor
      1,  // copy
      2,
      1,
      0,
      1,
      1,  // advance_pc 1, end_sequence: 0x278
      0,
      9,
      2,
      0,
      2,
      0,
      0,
      0,
      0,
      0,
      0,
      1,
      0,
      1,
      1,  // another sequence from line 1
  });
  const auto found = read_debug_line(program, why);
  CHECK(why == "");
  REQUIRE(found.size() == 2);
  CHECK(found[0].address_at == 27 + 3);
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> rows = {
      {0x100, 101}, {0x120, 104}, {0x150, 99}, {0x268, 99}, {0x278, 99}};
  REQUIRE(found[0].rows.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(found[0].rows[i].address == rows[i].first);
    CHECK(found[0].rows[i].line == rows[i].second);
    CHECK(found[0].rows[i].end == (i + 1 == rows.size()));
  }
  REQUIRE(found[1].rows.size() == 2);
  CHECK(found[1].rows[0].address == 0x200);
  CHECK(found[1].rows[0].line == 1);
  CHECK(read_debug_line({}, why).empty());
  CHECK(why == "");
}

TEST_CASE("time, lines: what is cut off or changed is said") {
  const auto whole = unit({0, 9, 2, 0, 1, 0, 0, 0, 0, 0, 0, 3, 0xe4, 0, 1, 2, 3, 0, 1, 1});
  std::string why;
  for (std::size_t size = 1; size < whole.size(); ++size) {
    read_debug_line(std::span(whole).first(size), why);
    CHECK(has(why, ".debug_line is damaged at byte "));
  }
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int value : {0, 1, 0x7f, 0x80, 0xff}) {
      auto changed = whole;
      changed[at] = static_cast<std::byte>(value);
      read_debug_line(changed, why);
    }
  auto newer = whole;
  newer[4] = std::byte{5};
  read_debug_line(newer, why);
  CHECK(has(why, "its version is not 2, 3 or 4"));
  auto no_range = whole;
  no_range[13] = std::byte{0};
  read_debug_line(no_range, why);
  CHECK(has(why, "without line range"));
}

TEST_CASE("time, machine code: a damaged cubin") {
  const TemporaryCache cache;
  std::string why;
  const std::string ptxas = find_ptxas(why);
  REQUIRE(why == "");
  const Annotated annotated = annotate(kPtx, "second");
  const Assembled made = assemble(ptxas, "V", annotated.text, "sm_75", {}, 60);
  REQUIRE(made.why == "");
  const CubinCode whole = read_cubin_code(made.cubin, "second", false, why);
  REQUIRE(why == "");
  CHECK(whole.kernel_words > 0);
  CHECK(same_code(whole, whole));
  read_cubin_code(made.cubin, "third", false, why);
  CHECK(has(why, "has no code of 'third'"));
  read_cubin_code("", "second", false, why);
  CHECK(has(why, "no ELF file"));
  int refused = 0;
  for (std::size_t size = 0; size < made.cubin.size(); size += 37) {
    const CubinCode cut =
        read_cubin_code(std::string_view(made.cubin).substr(0, size), "second", false, why);
    refused += !why.empty();
    CHECK(why.empty() == !cut.words.empty());
  }
  CHECK(refused > 10);
  for (std::size_t at = 0; at < made.cubin.size(); ++at)
    for (const int value : {0, 0xff}) {
      std::string changed = made.cubin;
      changed[at] = static_cast<char>(value);
      read_cubin_code(changed, "second", false, why);
      cubin_origin(changed);
    }
}

TEST_CASE("time, machine code: another program's code, and another's version") {
  const TemporaryCache cache;
  std::string why;
  const std::string ptxas = find_ptxas(why);
  REQUIRE(why == "");
  const Assembled made = assemble(ptxas, "V", annotate(kPtx, "second").text, "sm_75", {}, 60);
  REQUIRE(made.why == "");
  CHECK(machine_code(kPtx, "second", "sm_75", made.cubin).why == "");
  std::string own = made.cubin;
  const CubinCode code = read_cubin_code(own, "second", true, why);
  std::string first(reinterpret_cast<const char*>(code.words.data()), 64);
  const std::size_t at = own.find(first);
  REQUIRE(at != own.npos);
  own[at + 16 + 13] ^= 0x10;  // a stall count
  const auto differs = machine_code(kPtx, "second", "sm_75", own);
  CHECK(has(differs.why, "makes other machine code than the program has"));
  CHECK(differs.code.code.empty());
  for (std::size_t v = 0; (v = own.find(", V1", v)) != own.npos; ++v) own.replace(v, 5, ", V9.");
  if (!cubin_origin(own).version.empty())
    CHECK(has(machine_code(kPtx, "second", "sm_75", own).why, "machine code is of ptxas V9."));
}

TEST_CASE("time, ptxas: none, one that fails, hangs, writes nothing, is another program") {
  const TemporaryFolder folder;
  const Variable cache("VGPU_CACHE_DIR", folder.path() + "/cache");
  const std::string fake = folder.path() + "/ptxas";
  const auto answer = [&](const std::string& script) {
    fs::remove_all(folder.path() + "/cache");
    make_program(fake, script);
    const Variable own("VGPU_PTXAS", fake);
    return machine_code(kPtx, "second", "sm_75", "");
  };
  const std::string version =
      "[ \"$1\" = --version ] && { echo 'tools, release 9.9, V9.9.1'; exit 0; }\n";
  {
    const Variable none("VGPU_PTXAS", folder.path() + "/nothing");
    CHECK(has(machine_code(kPtx, "second", "sm_75", "").why,
              "is no program; give the path of ptxas"));
  }
  const auto failed = answer(version + "echo \"kernel.ptx: error: such\"; exit 255");
  CHECK(has(failed.why, "ptxas V9.9.1"));
  CHECK(has(failed.why, "fails for sm_75: kernel.ptx: error: such"));
  CHECK(failed.code.code.empty());
  CHECK(has(answer(version + "exit 0").why, "has written nothing"));
  CHECK(has(answer(version + "while [ \"$1\" != -o ]; do shift; done; echo x >$2").why,
            "no ELF file"));
  CHECK(has(answer(version + "kill -9 $$").why, "fails for sm_75"));
  CHECK(has(answer("echo hello").why, "is not ptxas: its --version says 'hello'"));
  CHECK(has(answer("exit 3").why, "fails"));
  CHECK(has(machine_code(kPtx, "second", "sm_70", "").why, "another format"));
  // It is ended, and what it has started with it.
  make_program(fake, "sleep 300 & echo $! >'" + folder.path() + "/child'; wait");
  const auto begin = std::chrono::steady_clock::now();
  const Assembled hung = assemble(fake, "V9", "", "sm_75", {}, 1);
  CHECK(has(hung.why, "did not end within 1 s"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
  const std::string child = contents(folder.path() + "/child");
  REQUIRE(child.size() > 1);
  // (Whoever inherits it may not have waited for it yet: then it is a zombie.)
  bool ended = false;
  for (int i = 0; i < 100 && !ended; ++i, usleep(20000)) {
    const std::string stat = contents("/proc/" + child.substr(0, child.size() - 1) + "/stat");
    ended = stat.empty() || has(stat, ") Z");
  }
  CHECK(ended);
  // Much output does not block it.
  make_program(fake,
               "i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789; "
               "i=$((i+1)); done; exit 7");
  const Ran ran = run_program(fake, {}, 60);
  CHECK(ran.status == 7);
  CHECK(ran.output.size() == 64 << 10);
  CHECK(run_program(folder.path() + "/nothing", {}, 1).error != "");
}

TEST_CASE("time, ptxas: found in PATH and beside nvcc") {
  const TemporaryFolder folder;
  const Variable own("VGPU_PTXAS", "");
  fs::create_directories(folder.path() + "/a/bin");
  fs::create_directories(folder.path() + "/b");
  make_program(folder.path() + "/a/bin/nvcc", "");
  make_program(folder.path() + "/a/bin/ptxas", "");
  fs::create_symlink(folder.path() + "/a/bin/nvcc", folder.path() + "/b/nvcc");
  std::string why;
  {
    const Variable path("PATH", "/nowhere::" + folder.path() + "/b");
    CHECK(fs::equivalent(find_ptxas(why), folder.path() + "/a/bin/ptxas"));
  }
  make_program(folder.path() + "/b/ptxas", "");
  const Variable path("PATH", folder.path() + "/b");
  CHECK(find_ptxas(why) == folder.path() + "/b/ptxas");
}

TEST_CASE("time, cache: entries are whole or not there, and the oldest go") {
  const TemporaryFolder folder;
  const Variable variable("VGPU_CACHE_DIR", folder.path() + "/new/cache");
  CHECK(cache_folder() == folder.path() + "/new/cache");
  const Hash name = hash_of("a");
  std::string content;
  CHECK_FALSE(read_cached(name, "code", content));
  const std::string text(5000, 'x');
  write_cached(name, "code", text);
  REQUIRE(read_cached(name, "code", content));
  CHECK(content == text);
  CHECK_FALSE(read_cached(name, "version", content));
  const std::string path = cache_folder() + "/" + name.hex() + ".code";
  const std::string whole = contents(path);
  for (std::size_t size = 0; size < whole.size(); size += 11) {
    write(path, whole.substr(0, size));
    CHECK_FALSE(read_cached(name, "code", content));
  }
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string changed = whole;
    changed[at] ^= 4;
    write(path, changed);
    CHECK_FALSE(read_cached(name, "code", content));
  }
  // Another's entry in its place does not count either.
  write_cached(hash_of("b"), "code", text);
  fs::copy_file(cache_folder() + "/" + hash_of("b").hex() + ".code", path,
                fs::copy_options::overwrite_existing);
  CHECK_FALSE(read_cached(name, "code", content));
  write(cache_folder() + "/a stranger's file", std::string(50000, 'y'));
  for (int i = 0; i < 10; ++i) {
    const Hash entry = hash_of(std::to_string(i));
    write_cached(entry, "code", text, 30000);
    const auto ago = fs::file_time_type::clock::now() - std::chrono::seconds(100 - i);
    fs::last_write_time(cache_folder() + "/" + entry.hex() + ".code", ago);
    if (i > 0) CHECK(read_cached(hash_of("0"), "code", content));  // used: it stays
  }
  CHECK(read_cached(hash_of("9"), "code", content));
  CHECK_FALSE(read_cached(hash_of("1"), "code", content));
  std::uint64_t sum = 0;
  for (const auto& entry : fs::directory_iterator(cache_folder()))
    if (entry.path().extension() == ".code") sum += entry.file_size();
  CHECK(sum <= 30000);
  CHECK(fs::exists(cache_folder() + "/a stranger's file"));
}

TEST_CASE("time, cache: where nothing can be written nothing is kept") {
  const TemporaryFolder folder;
  write(folder.path() + "/file", "");
  const Variable variable("VGPU_CACHE_DIR", folder.path() + "/file/cache");
  std::string content;
  write_cached(hash_of("a"), "code", "text");
  CHECK_FALSE(read_cached(hash_of("a"), "code", content));
  const Variable ptxas("VGPU_PTXAS", TemporaryCache::ptxas_of_toolkit());
  CHECK(machine_code(kPtx, "second", "sm_75", "").why == "");
}

TEST_CASE("time, cache: a damaged answer is made again, and ptxas is called once" *
          doctest::test_suite("toolkit")) {
  const TemporaryCache cache;
  const std::string real = std::getenv("VGPU_PTXAS") ? std::getenv("VGPU_PTXAS") : "";
  std::string why;
  const std::string counted = cache.folder.path() + "/ptxas",
                    calls = cache.folder.path() + "/calls";
  const std::string assembler = real.empty() ? find_ptxas(why) : real;
  make_program(counted, "echo x >>'" + calls + "'; exec '" + assembler + "' \"$@\"");
  const Variable own("VGPU_PTXAS", counted);
  const auto first = machine_code(kPtx, "second", "sm_75", "");
  REQUIRE(first.why == "");
  CHECK(contents(calls) == "x\nx\n");  // its version, and the kernel
  const auto second = machine_code(kPtx, "second", "sm_75", "");
  CHECK(contents(calls) == "x\nx\n");
  CHECK(second.code.code.size() == first.code.code.size());
  // The same kernel on other lines is the same machine code.
  const auto moved = machine_code("\n\n" + std::string(kPtx), "second", "sm_75", "");
  CHECK(contents(calls) == "x\nx\n");
  REQUIRE(moved.code.code.size() == first.code.code.size());
  CHECK(moved.code.code[0].ptx_line == first.code.code[0].ptx_line + 2);
  for (const auto& entry : fs::directory_iterator(cache_folder()))
    if (entry.path().extension() == ".code") fs::resize_file(entry.path(), entry.file_size() - 9);
  CHECK(machine_code(kPtx, "second", "sm_75", "").why == "");
  CHECK(contents(calls) == "x\nx\nx\n");
  CHECK(machine_code(kPtx, "second", "sm_80", "").why == "");  // another target
  CHECK(contents(calls) == "x\nx\nx\nx\n");
}

TEST_CASE("time, cache: several programs fill it together") {
  const TemporaryCache cache;
  const auto alone = machine_code(kPtx, "second", "sm_75", "");
  REQUIRE(alone.why == "");
  fs::remove_all(cache_folder());
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool right = true;
      for (int n = 0; n < 20; ++n) {
        const auto made = machine_code(kPtx, n % 2 ? "first" : "second", "sm_75", "");
        right &= made.why.empty() && !made.code.code.empty();
        if (n % 2 == 0) right &= made.code.code.size() == alone.code.code.size();
        std::error_code error;
        if (i == 0 && n % 5 == 4) fs::remove_all(cache_folder(), error);
      }
      _exit(right ? 0 : 1);
    }
    REQUIRE(child > 0);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  if (fs::exists(cache_folder()))
    for (const auto& entry : fs::directory_iterator(cache_folder()))
      CHECK(entry.path().extension() != ".part");
}
