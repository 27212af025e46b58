// Data movement: ld and st of every space, type, width and vector; mov; addresses.
#include <algorithm>
#include <random>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

struct MemoryType {
  const char* name;
  int bytes;
  bool is_signed;
};
constexpr MemoryType kTypes[] = {
    {"b8", 1, false},  {"u8", 1, false}, {"s8", 1, true},   {"b16", 2, false},
    {"u16", 2, false}, {"s16", 2, true}, {"f16", 2, false}, {"b32", 4, false},
    {"u32", 4, false}, {"s32", 4, true}, {"f32", 4, false}, {"b64", 8, false},
    {"u64", 8, false}, {"s64", 8, true}, {"f64", 8, false}, {"b128", 16, false}};
constexpr int kLaneBytes = 32;

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> values(bytes);
  for (auto& v : values) v = static_cast<std::uint8_t>(random());
  return values;
}
std::string reg_at(int width, int index) {
  const char* prefix = width == 16 ? "%h" : width == 32 ? "%r" : width == 64 ? "%rd" : "%q";
  return prefix + std::to_string(index + 20 - (width == 128 ? 18 : 0));
}
std::string vector(int width, int elements) {
  if (elements == 1) return reg_at(width, 0);
  std::string text = "{";
  for (int k = 0; k < elements; ++k) text += (k ? ", " : "") + reg_at(width, k);
  return text + "}";
}

// Where the tests of a state space put each lane's 32 bytes, and what prepares them: %rd10 becomes
// the lane's address in that space. `copy_in` fills them from the lane's 32 bytes at [%in].
struct SpaceText {
  std::string before, declare, address;
  bool writable;
};
std::string bytes_text(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  for (std::uint8_t b : bytes) text += (text.empty() ? "" : ",") + std::to_string(b);
  return text;
}
SpaceText space_text(const std::string& space, const std::vector<std::uint8_t>& blob) {
  const std::string scaled = "mul.wide.u32 %rd11, %lane, 32;";
  if (space == "global" || space == "")
    return {"", "", scaled + "add.u64 %rd10, %rd11, %in;", true};
  if (space == "const")
    return {".const .align 32 .b8 blob[1024] = {" + bytes_text(blob) + "};\n", "",
            scaled + "mov.u64 %rd10, blob; add.u64 %rd10, %rd10, %rd11;", false};
  if (space == "shared" || space == "shared::cta")
    return {"", ".shared .align 32 .b8 blob[1024];",
            scaled + "mov.u64 %rd10, blob; add.u64 %rd10, %rd10, %rd11;", true};
  if (space == "local")
    return {"", ".local .align 32 .b8 blob[64];", "mov.u64 %rd10, blob; add.u64 %rd10, %rd10, 32;",
            true};
  return {"", "", scaled + "mov.u64 %rd10, p_blob; add.u64 %rd10, %rd10, %rd11;", false};  // param
}
std::string copy_lane(const std::string& to_space, const std::string& to,
                      const std::string& from_space, const std::string& from) {
  std::string text;
  for (int k = 0; k < 4; ++k)
    text += "ld." + from_space + ".b64 %rd12, [" + from + "+" + std::to_string(8 * k) + "]; st." +
            to_space + ".b64 [" + to + "+" + std::to_string(8 * k) + "], %rd12;\n";
  return text;
}

// A kernel with a 1024-byte parameter besides out and in.
std::string blob_kernel(const std::string& before, const std::string& body) {
  std::string text = kernel(body, before);
  const std::string head = ".param .u64 p_in)";
  text.insert(text.find(head) + head.size() - 1, ", .param .align 32 .b8 p_blob[1024]");
  return text;
}

struct Blob {
  std::uint8_t bytes[1024];
};

// Vectors of 256 bits are for sm_100 and later.
std::string for_vector(std::string text, int bytes) {
  if (bytes > 16) text.replace(text.find("sm_90"), 5, "sm_100");
  return text;
}

}  // namespace

TEST_CASE("memory: loads of every type, register width and vector from every space") {
  Gpu gpu;
  const auto bytes = pattern(1024);
  Blob blob;
  std::copy(bytes.begin(), bytes.end(), blob.bytes);
  const auto in = gpu.array(bytes);
  for (const auto& [head, space] :
       std::vector<std::pair<std::string, std::string>>{{"ld", "global"},
                                                        {"ld", ""},
                                                        {"ld", "const"},
                                                        {"ld", "shared"},
                                                        {"ld", "shared::cta"},
                                                        {"ld", "local"},
                                                        {"ld", "param"},
                                                        {"ld", "param::entry"},
                                                        {"ldu", "global"},
                                                        {"ldu", ""},
                                                        {"ld.mmio.relaxed.sys", "global"},
                                                        {"ld.mmio.relaxed.sys", ""},
                                                        {"ld.volatile", "global"},
                                                        {"ld.volatile", ""},
                                                        {"ld.volatile", "const"},
                                                        {"ld.volatile", "shared"},
                                                        {"ld.volatile", "shared::cta"},
                                                        {"ld.volatile", "local"},
                                                        {"ld.volatile", "param"},
                                                        {"ld.volatile", "param::entry"},
                                                        {"ld.relaxed.gpu", "global"},
                                                        {"ld.acquire.sys", ""},
                                                        {"ld.relaxed.cta", "const"},
                                                        {"ld.acquire.cta", "shared"},
                                                        {"ld.relaxed.cluster", "shared::cta"},
                                                        {"ld.acquire.gpu", "local"},
                                                        {"ld.relaxed.sys", "param"},
                                                        {"ld.acquire.gpu", "param::entry"}}) {
    const SpaceText where = space_text(space, bytes);
    for (const MemoryType& type : kTypes)
      for (int width : {16, 32, 64, 128}) {
        if (width < 8 * type.bytes || (width == 128 && type.bytes != 16)) continue;
        for (int elements : {1, 2, 4, 8}) {
          if (elements * type.bytes > 32 || (elements == 8 && type.bytes != 4)) continue;
          if ((elements > 4 && (head == "ldu" || head == "ld.volatile")) ||
              (elements > 1 && head == "ld.mmio.relaxed.sys"))
            continue;
          const std::string dotted = head + (space.empty() ? "" : "." + space) +
                                     (elements > 1 ? ".v" + std::to_string(elements) : "") + "." +
                                     type.name;
          const int bytes_each = width / 8, offset = elements * type.bytes <= 16 ? 32 - 16 : 0;
          std::string body = where.declare + where.address;
          if (where.writable && space != "global" && space != "")
            body += "mul.wide.u32 %rd13, %lane, 32; add.u64 %rd13, %rd13, %in;" +
                    copy_lane(space, "%rd10", "global", "%rd13");
          body += dotted + " " + vector(width, elements) + ", [%rd10+" + std::to_string(offset) +
                  "];\n";
          body += "mul.wide.u32 %rd14, %lane, 64; add.u64 %rd14, %rd14, %out;\n";
          for (int k = 0; k < elements; ++k)
            body += "st.global.b" + std::to_string(width) + " [%rd14+" +
                    std::to_string(k * bytes_each) + "], " + reg_at(width, k) + ";";
          const auto out = gpu.array<std::uint8_t>(32 * 64, 0xEE);
          const LaunchOutcome outcome =
              gpu.launch(for_vector(blob_kernel(where.before, body), elements * type.bytes),
                         {out.address(), in.address(), blob});
          INFO(dotted << " into " << width << " bits");
          REQUIRE(outcome.fault.message == "");
          std::vector<std::uint8_t> want(32 * 64, 0xEE);
          for (int lane = 0; lane < 32; ++lane)
            for (int k = 0; k < elements; ++k) {
              const std::uint8_t* from = &bytes[lane * kLaneBytes + offset + k * type.bytes];
              std::uint8_t* to = &want[lane * 64 + k * bytes_each];
              std::memset(to, type.is_signed && from[type.bytes - 1] >= 128 ? 0xFF : 0, bytes_each);
              std::memcpy(to, from, type.bytes);
            }
          CHECK_SAME(out.values(), want);
          gpu.machine.memory().release(out.address());
        }
      }
  }
}

TEST_CASE("memory: stores of every type, register width and vector to every space") {
  Gpu gpu;
  const auto bytes = pattern(32 * 64, 2), background = pattern(1024, 3);
  const auto in = gpu.array(bytes);
  for (const auto& [head, space] :
       std::vector<std::pair<std::string, std::string>>{{"st", "global"},
                                                        {"st", ""},
                                                        {"st", "shared"},
                                                        {"st", "shared::cta"},
                                                        {"st", "local"},
                                                        {"st.mmio.relaxed.sys", "global"},
                                                        {"st.mmio.relaxed.sys", ""},
                                                        {"st.volatile", "global"},
                                                        {"st.volatile", ""},
                                                        {"st.volatile", "shared"},
                                                        {"st.volatile", "shared::cta"},
                                                        {"st.volatile", "local"},
                                                        {"st.relaxed.gpu", "global"},
                                                        {"st.release.sys", ""},
                                                        {"st.relaxed.cta", "shared"},
                                                        {"st.release.cluster", "shared::cta"},
                                                        {"st.release.gpu", "local"}}) {
    const SpaceText where = space_text(space, {});
    for (const MemoryType& type : kTypes)
      for (int width : {16, 32, 64, 128}) {
        if (width < 8 * type.bytes || (width == 128 && type.bytes != 16)) continue;
        for (int elements : {1, 2, 4, 8}) {
          if (elements * type.bytes > 32 || (elements == 8 && type.bytes != 4)) continue;
          if ((elements > 4 && head == "st.volatile") ||
              (elements > 1 && head == "st.mmio.relaxed.sys"))
            continue;
          const std::string dotted = head + (space.empty() ? "" : "." + space) +
                                     (elements > 1 ? ".v" + std::to_string(elements) : "") + "." +
                                     type.name;
          const int bytes_each = width / 8, offset = elements * type.bytes <= 16 ? 32 - 16 : 0;
          // %rd14: the lane's 32 bytes of `out`, which hold the background.
          std::string body =
              where.declare + "mul.wide.u32 %rd14, %lane, 32; add.u64 %rd14, %rd14, %out;";
          const bool direct = space == "global" || space == "";
          body += direct ? "mov.u64 %rd10, %rd14;"
                         : where.address + copy_lane(space, "%rd10", "global", "%rd14");
          body += "mul.wide.u32 %rd13, %lane, 64; add.u64 %rd13, %rd13, %in;\n";
          for (int k = 0; k < elements; ++k)
            body += "ld.global.b" + std::to_string(width) + " " + reg_at(width, k) + ", [%rd13+" +
                    std::to_string(k * bytes_each) + "];";
          body += "\n" + dotted + " [%rd10+" + std::to_string(offset) + "], " +
                  vector(width, elements) + ";\n";
          if (!direct) body += copy_lane("global", "%rd14", space, "%rd10");
          const auto out = gpu.array(background);
          const LaunchOutcome outcome = gpu.launch(for_vector(kernel(body), elements * type.bytes),
                                                   {out.address(), in.address()});
          INFO(dotted << " from " << width << " bits");
          REQUIRE(outcome.fault.message == "");
          std::vector<std::uint8_t> want = background;
          for (int lane = 0; lane < 32; ++lane)
            for (int k = 0; k < elements; ++k)
              std::memcpy(&want[lane * 32 + offset + k * type.bytes],
                          &bytes[lane * 64 + k * bytes_each], type.bytes);
          CHECK_SAME(out.values(), want);
          gpu.machine.memory().release(out.address());
        }
      }
  }
}

TEST_CASE("memory: every modifier of ld and st means the same load and store") {
  Gpu gpu;
  std::vector<std::uint32_t> in(32);
  std::iota(in.begin(), in.end(), 100u);
  const std::string evict[] = {".L1::evict_normal", ".L1::evict_unchanged", ".L1::evict_first",
                               ".L1::evict_last",   ".L1::no_allocate",     ".evict_normal",
                               ".evict_first",      ".evict_last",          ".evict_unchanged",
                               ".no_allocate"};
  const std::string prefetch[] = {".L2::64B", ".L2::128B", ".L2::256B"},
                    scopes[] = {".cta", ".cluster", ".gpu", ".sys"};
  const std::string l2[] = {".L2::evict_normal", ".L2::evict_first", ".L2::evict_last"};
  std::vector<std::string> loads = {"ld.weak.global.u32",
                                    "ld.global.nc.u32",
                                    "ld.weak.u32",
                                    "ldu.global.u32",
                                    "ldu.u32",
                                    "ldu.global.v2.u32",
                                    "ldu.v4.u32",
                                    "ld.mmio.relaxed.sys.global.u32",
                                    "ld.mmio.relaxed.sys.u32",
                                    "ld.volatile.u32"};
  std::vector<std::string> stores = {"st.weak.global.u32", "st.weak.u32",
                                     "st.mmio.relaxed.sys.global.u32", "st.mmio.relaxed.sys.u32",
                                     "st.volatile.u32"};
  for (const char* cop : {".ca", ".cg", ".cs", ".lu", ".cv", ".wb", ".wt"}) {
    loads.push_back(std::string("ld.global") + cop + ".u32");
    stores.push_back(std::string("st.global") + cop + ".u32");
  }
  for (const auto& e : evict) {
    loads.push_back("ld.global" + e + ".u32");
    loads.push_back("ld.global.nc" + e + ".L2::128B.u32");
    stores.push_back("st.global" + e + ".u32");
    for (const char* order : {".relaxed", ".acquire"})
      loads.push_back("ld" + std::string(order) + ".gpu.global" + e + ".u32");
    for (const char* order : {".relaxed", ".release"})
      stores.push_back("st" + std::string(order) + ".gpu.global" + e + ".u32");
  }
  for (const auto& e : l2) {
    loads.push_back("ld.global.L1::evict_last" + e + ".u32");
    loads.push_back("ld.relaxed.sys.global" + e + ".u32");
    stores.push_back("st.global" + e + ".u32");
    stores.push_back("st.release.sys.global" + e + ".u32");
  }
  for (const auto& p : prefetch) {
    loads.push_back("ld.global" + p + ".u32");
    loads.push_back("ld.volatile.global" + p + ".u32");
    loads.push_back("ld.acquire.gpu.global" + p + ".u32");
  }
  for (const auto& scope : scopes)
    for (const char* space : {".global", ""}) {
      for (const char* order : {".relaxed", ".acquire"})
        loads.push_back("ld" + std::string(order) + scope + space + ".u32");
      for (const char* order : {".relaxed", ".release"})
        stores.push_back("st" + std::string(order) + scope + space + ".u32");
    }
  for (const auto& dotted : loads) {
    INFO(dotted);
    const int elements = dotted.find(".v2") != dotted.npos   ? 2
                         : dotted.find(".v4") != dotted.npos ? 4
                                                             : 1;
    const std::string to = elements == 1 ? "%r1" : elements == 2 ? "{_, %r1}" : "{_, _, _, %r1}";
    const std::string lane = elements == 1 ? "%lane" : "%r9";
    const auto out =
        gpu.run("and.b32 %r9, %lane, " + std::to_string(32 - elements) + "; mul.wide.u32 %rd1, " +
                    lane + ", 4; add.u64 %rd1, %rd1, %in;\n" + dotted + " " + to +
                    ", [%rd1];\nst.global.u32 [%mine], %r1;",
                32, in);
    CHECK_SAME(out, expected(32, [&](auto i) {
                 return 100 + (elements == 1 ? i : (i & (32 - elements)) + elements - 1);
               }));
  }
  for (const auto& dotted : stores) {
    INFO(dotted);
    CHECK_SAME(gpu.run("add.u32 %r1, %lane, 3;\n" + dotted + " [%mine], %r1;", 32, in),
               expected(32, [](auto i) { return i + 3; }));
  }
  // With a cache policy.
  const auto hinted = gpu.run(R"(
    createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd5, 0.5;
    createpolicy.fractional.L2::evict_first.b64 %rd6;
    mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in;
    ld.global.L2::cache_hint.u32 %r1, [%rd1], %rd5;
    ld.relaxed.gpu.global.L2::cache_hint.u32 %r2, [%rd1], %rd5;
    add.u32 %r1, %r1, %r2;
    st.global.L2::cache_hint.u32 [%mine], %r1, %rd6;
    ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.u32 %r3, [%mine], %rd6;
    add.u32 %r3, %r3, 1;
    st.release.gpu.global.L2::cache_hint.u32 [%mine], %r3, %rd5;)",
                              32, in);
  CHECK_SAME(hinted, expected(32, [](auto i) { return 2 * (100 + i) + 1; }));
}

TEST_CASE("memory: hints do nothing, not even to wild addresses") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    mov.u64 %rd1, 0x123456789;
    prefetch.global.L1 [%out]; prefetch.global.L2 [%out+64]; prefetch.local.L1 [%rd1]; prefetch.L2 [%rd1];
    prefetch.global.L2::evict_last [%out]; prefetch.global.L2::evict_normal [%out]; prefetchu.L1 [%out];
    applypriority.global.L2::evict_normal [%out], 128; applypriority.L2::evict_normal [%out], 128;
    discard.global.L2 [%rd1], 128; discard.L2 [%rd1], 128;
    createpolicy.fractional.L2::evict_normal.b64 %rd3, 1.0; createpolicy.fractional.L2::evict_unchanged.L2::evict_first.b64 %rd3;
    createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %rd3;
    st.global.u32 [%mine], 6;)");
  CHECK_SAME(out, std::vector<std::uint32_t>(32, 6));
}

TEST_CASE(
    "memory: a destination that is its own base, sinks, absolute addresses, overlapping stores") {
  Gpu gpu;
  const std::vector<std::uint32_t> in = {10, 11, 12, 13};
  CHECK_SAME(gpu.run(R"(
    mov.u64 %rd1, %in;
    ld.global.v2.b64 {%rd1, %rd2}, [%rd1];
    st.global.v2.b64 [%out], {%rd1, %rd2};)",
                     4, in),
             in);
  CHECK_SAME(gpu.run(R"(
    ld.global.v4.u32 {_, %r1, _, %r2}, [%in];
    st.global.v4.u32 [%out], {%r1, 0, %r2, 7};)",
                     4, in),
             {11, 0, 13, 7});
  // All lanes write one place: the last lane wins, here, always.
  CHECK_SAME(gpu.run("st.global.u32 [%out], %lane;", 1), {31});
  CHECK_SAME(gpu.run("setp.lt.u32 %p1, %lane, 9; @%p1 st.global.u32 [%out], %lane;", 1), {8});
  // A 32-bit register as shared address, with a negative offset.
  CHECK_SAME(gpu.run(R"(
    .shared .align 4 .b32 s[40];
    mov.u32 %r1, s; mad.lo.u32 %r1, %lane, 4, %r1; add.u32 %r1, %r1, 16;
    st.shared.u32 [%r1+-16], %lane; ld.shared.u32 %r2, [%r1-16]; st.global.u32 [%mine], %r2;)"),
             expected(32, [](auto i) { return i; }));
}

TEST_CASE("memory: inactive lanes ask for nothing, whatever their addresses") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    setp.gt.u32 %p1, %lane, 28;
    mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in;
    @!%p1 mov.u64 %rd1, 0xfffffffffffffffd;
    mov.u32 %r1, 5;
    @%p1 ld.global.u32 %r1, [%rd1];
    st.global.u32 [%mine], %r1;)",
                           32, expected(32, [](auto i) { return i + 50; }));
  CHECK_SAME(out, expected(32, [](auto i) { return i > 28 ? i + 50 : 5; }));
  CHECK(counters_of(gpu.outcome, "ld.global.u32 %r1").global.bytes_asked == 12);
}

TEST_CASE("memory: generic addresses of all windows in one warp") {
  Gpu gpu;
  Blob blob{};
  const std::uint32_t five = 55;
  std::memcpy(blob.bytes + 8, &five, 4);
  const std::string before =
      ".const .align 4 .u32 c[2] = {1, 44};\n.global .align 4 .u32 g[2] = {2, 33};\n";
  const auto out = gpu.array<std::uint32_t>(64, 0);
  // lane % 5 chooses global, shared, local, const, param; then the first three are written.
  const LaunchOutcome outcome = gpu.launch(blob_kernel(before, R"(
    .shared .align 4 .b32 s[3]; .local .align 4 .b32 l[3];
    st.shared.u32 [s+8], 66; add.u32 %r1, %lane, 700; st.local.u32 [l+4], %r1;
    rem.u32 %r2, %lane, 5;
    mov.u64 %rd1, g; cvta.global.u64 %rd1, %rd1; add.u64 %rd9, %rd1, 4;
    setp.eq.u32 %p1, %r2, 1; mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2; @%p1 add.u64 %rd9, %rd2, 8;
    setp.eq.u32 %p2, %r2, 2; mov.u64 %rd3, l; cvta.local.u64 %rd3, %rd3; @%p2 add.u64 %rd9, %rd3, 4;
    setp.eq.u32 %p3, %r2, 3; mov.u64 %rd4, c; cvta.const.u64 %rd4, %rd4; @%p3 add.u64 %rd9, %rd4, 4;
    setp.eq.u32 %p4, %r2, 4; mov.b64 %rd5, p_blob; cvta.param.u64 %rd5, %rd5; @%p4 add.u64 %rd9, %rd5, 8;
    ld.u32 %r3, [%rd9];
    st.global.u32 [%mine], %r3;
    setp.lt.u32 %p5, %r2, 3;
    add.u32 %r4, %r3, 1000;
    @%p5 st.u32 [%rd9], %r4;
    mov.u32 %r5, 0;
    @%p5 ld.u32 %r5, [%rd9];
    st.global.u32 [%mine+128], %r5;)"),
                                           {out.address(), out.address(), blob});
  REQUIRE(outcome.fault.message == "");
  CHECK_SAME(out.values(), expected(64, [](std::uint32_t i) {
               const std::uint32_t l = i % 32, value[] = {33, 66, l + 700, 44, 55};
               if (i < 32) return value[l % 5];
               return l % 5 < 3 ? value[l % 5] + 1000 : 0;
             }));
}

TEST_CASE("memory: cvta and isspacep of each space") {
  Gpu gpu;
  const std::string before = ".const .align 4 .u32 c[2];\n.global .align 4 .u32 g[2];\n";
  std::string body = R"(
    .shared .align 4 .b32 s[3]; .local .align 4 .b32 l[3];
    mov.u64 %rd1, g; cvta.global.u64 %rd1, %rd1;
    mov.u64 %rd2, s; cvta.shared.u64 %rd2, %rd2;
    mov.u64 %rd3, l; cvta.local.u64 %rd3, %rd3;
    mov.u64 %rd4, c; cvta.const.u64 %rd4, %rd4;
    mov.u64 %rd5, p_in; cvta.param::entry.u64 %rd5, %rd5;
    mov.u32 %r9, 0;
)";
  const char* spaces[] = {"global", "shared",       "local",      "const",
                          "param",  "param::entry", "shared::cta"};
  int bit = 0;
  for (int address = 1; address <= 5; ++address)
    for (const char* space : spaces) {
      body += std::string("isspacep.") + space + " %p1, %rd" + std::to_string(address) +
              "; selp.u32 %r1, " + std::to_string(1 << bit % 32) + ", 0, %p1; " +
              (bit < 32 ? "or.b32 %r9, %r9, %r1;\n" : "or.b32 %r10, %r10, %r1;\n");
      ++bit;
    }
  body += "st.global.u32 [%out], %r9; st.global.u32 [%out+4], %r10;\n";
  // There and back again.
  int at = 8;
  for (auto [reg, space] : {std::pair{"%rd1", "global"},
                            {"%rd2", "shared"},
                            {"%rd2", "shared::cta"},
                            {"%rd3", "local"},
                            {"%rd4", "const"},
                            {"%rd5", "param"},
                            {"%rd5", "param::entry"}}) {
    body += std::string("cvta.to.") + space + ".u64 %rd6, " + reg + "; cvta." + space +
            ".u64 %rd7, %rd6; setp.eq.u64 %p2, %rd7, " + reg +
            "; selp.u32 %r2, 1, 2, %p2; st.global.u32 [%out+" + std::to_string(at) + "], %r2;\n";
    at += 4;
  }
  const auto out = gpu.run(body, 9, {0}, {32, 1, 1}, {1, 1, 1}, before);
  std::uint64_t bits = 0;
  const int mine[] = {0b0000001, 0b1000010, 0b0000100, 0b0001000, 0b0110000};
  for (int a = 0; a < 5; ++a) bits |= static_cast<std::uint64_t>(mine[a]) << 7 * a;
  CHECK_SAME(out, {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), 1, 1,
                   1, 1, 1, 1, 1});
}

TEST_CASE("memory: mov of each type, packed and unpacked") {
  Gpu gpu;
  // Every plain type there and back.
  for (const char* type : {"b16", "u16", "s16", "f16"})
    CHECK_SAME(gpu.run(std::string("cvt.u16.u32 %h1, %lane; mov.") + type +
                       " %h2, %h1; cvt.u32.u16 %r1, %h2; st.global.u32 [%mine], %r1;"),
               expected(32, [](auto i) { return i; }));
  for (const char* type : {"b32", "u32", "s32", "f32", "f16x2"})
    CHECK_SAME(gpu.run(std::string("mov.") + type + " %r1, %lane; st.global.u32 [%mine], %r1;"),
               expected(32, [](auto i) { return i; }));
  for (const char* type : {"b64", "u64", "s64", "f64"})
    CHECK_SAME(gpu.run(std::string("mul.wide.u32 %rd1, %lane, 77; mov.") + type +
                       " %rd2, %rd1; cvt.u32.u64 %r1, %rd2; st.global.u32 [%mine], %r1;"),
               expected(32, [](auto i) { return 77 * i; }));
  // Constants: -1, hexadecimal floats, decimal floats, predicates, WARP_SZ.
  CHECK_SAME(gpu.run(R"(
    mov.u16 %h1, -1; cvt.u32.u16 %r1, %h1; st.global.u32 [%out], %r1;
    mov.f32 %f1, 0f3FC00000; st.global.f32 [%out+4], %f1;
    mov.f32 %f2, 0d3FF8000000000000; st.global.f32 [%out+8], %f2;
    mov.f32 %f3, -2.5; st.global.f32 [%out+12], %f3;
    mov.f64 %fd1, 0dC004000000000000; st.global.f64 [%out+16], %fd1;
    mov.pred %p1, 1; mov.pred %p2, !%p1; selp.u32 %r2, 3, 4, %p1; selp.u32 %r3, 3, 4, %p2; st.global.v2.u32 [%out+24], {%r2, %r3};
    mov.u32 %r4, WARP_SZ; st.global.u32 [%out+32], %r4;
    mov.u32 %r5, 0b101; mov.u32 %r6, 017; mov.u32 %r7, 0xfU; st.global.u32 [%out+36], %r5; st.global.u32 [%out+40], %r6; st.global.u32 [%out+44], %r7;)",
                     12),
             {0xffff, 0x3fc00000, 0x3fc00000, 0xc0200000, 0, 0xc0040000, 3, 4, 32, 5, 15, 15});
  // Packs and unpacks: all shapes.
  CHECK_SAME(gpu.run(R"(
    mov.u32 %r1, 0x44332211; mov.b32 {%h1, %h2}, %r1; mov.b32 %r2, {%h2, %h1}; st.global.u32 [%out], %r2;
    .reg .b8 %c<7>; mov.u16 %h3, 0x11; mov.u16 %h4, 0x22;
    mov.b32 {%c1, %c2, %c3, %c4}, %r1; mov.b32 %r3, {%c4, %c3, %c2, %c1}; st.global.u32 [%out+4], %r3;
    mov.b16 {%c5, %c6}, %h1; mov.b16 %h9, {%c6, %c5}; cvt.u32.u16 %r4, %h9; st.global.u32 [%out+8], %r4;
    mov.b64 %rd1, {%r1, %r2}; mov.b64 {%r5, %r6}, %rd1; st.global.v2.u32 [%out+12+4], {%r6, %r5};
    mov.b64 %rd2, {%h1, %h2, %h3, %h4}; st.global.u64 [%out+24], %rd2;
    mov.b64 {%h11, %h12, _, %h14}, %rd1; mov.b32 %r7, {%h11, %h14}; st.global.u32 [%out+32], %r7;
    mov.b128 %q1, {%rd1, %rd2}; mov.b128 %q2, %q1; mov.b128 {%rd3, %rd4}, %q2; st.global.v2.u64 [%out+48], {%rd4, %rd3};
    mov.b128 {%r11, %r12, %r13, %r14}, %q1; mov.b128 %q3, {%r14, %r13, %r12, %r11}; st.global.b128 [%out+64], %q3;
    mov.b64 {%r15, _}, %rd2; st.global.u32 [%out+40], %r15;)",
                     20),
             {0x22114433, 0x11223344, 0x1122,     0,          0x22114433, 0x44332211, 0x44332211,
              0x00220011, 0x22112211, 0,          0x44332211, 0,          0x44332211, 0x00220011,
              0x44332211, 0x22114433, 0x00220011, 0x44332211, 0x22114433, 0x44332211});
}

TEST_CASE("memory: mov under a guard leaves the other lanes alone, in every width") {
  Gpu gpu;
  CHECK_SAME(gpu.run(R"(
    and.b32 %r1, %lane, 1; setp.eq.u32 %p1, %r1, 1;
    mov.u32 %r2, 1; mov.u64 %rd1, 10; mov.u16 %h1, 100; mov.b128 %q1, {%rd1, %rd1}; mov.u64 %rd2, 1000; mov.b128 %q2, {%rd2, %rd2}; setp.eq.u32 %p2, 1, 1;
    @%p1 mov.u32 %r2, 2; @%p1 mov.u64 %rd1, 20; @!%p1 mov.u16 %h1, 200; @!%p1 mov.b128 %q1, %q2; @%p1 mov.pred %p2, 0;
    @%p1 mov.u32 %r9, %laneid; @%p1 mov.b32 {%h5, %h6}, %r9; @!%p1 mov.b32 %r9, {%h1, %h1};
    mov.b128 {%rd3, %rd4}, %q1; cvt.u32.u64 %r3, %rd1; cvt.u32.u64 %r4, %rd4; cvt.u32.u16 %r5, %h1; selp.u32 %r6, 5000, 7000, %p2;
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4; add.u32 %r2, %r2, %r5; add.u32 %r2, %r2, %r6; add.u32 %r2, %r2, %r9;
    st.global.u32 [%mine], %r2;)"),
             expected(32, [](auto i) {
               return i & 1 ? 2 + 20 + 10 + 100 + 7000 + i
                            : 1 + 10 + 1000 + 200 + 5000 + 0x00c800c8;
             }));
}
