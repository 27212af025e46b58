// Data movement: ld and st of every space, type, width and vector; mov; addresses; special registers.
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
constexpr MemoryType kTypes[] = {{"b8", 1, false},  {"u8", 1, false},  {"s8", 1, true},   {"b16", 2, false}, {"u16", 2, false}, {"s16", 2, true},
                                 {"f16", 2, false}, {"b32", 4, false}, {"u32", 4, false}, {"s32", 4, true},  {"f32", 4, false}, {"b64", 8, false},
                                 {"u64", 8, false}, {"s64", 8, true},  {"f64", 8, false}, {"b128", 16, false}};
constexpr int kLaneBytes = 32;

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> values(bytes);
  for (auto& v : values) v = static_cast<std::uint8_t>(random());
  return values;
}
std::string reg(int width, int index) {
  const char* prefix = width == 16 ? "%h" : width == 32 ? "%r" : width == 64 ? "%rd" : "%q";
  return prefix + std::to_string(index + 20 - (width == 128 ? 18 : 0));
}
std::string vector(int width, int elements) {
  if (elements == 1) return reg(width, 0);
  std::string text = "{";
  for (int k = 0; k < elements; ++k) text += (k ? ", " : "") + reg(width, k);
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
  if (space == "global" || space == "") return {"", "", scaled + "add.u64 %rd10, %rd11, %in;", true};
  if (space == "const") return {".const .align 32 .b8 blob[1024] = {" + bytes_text(blob) + "};\n", "", scaled + "mov.u64 %rd10, blob; add.u64 %rd10, %rd10, %rd11;", false};
  if (space == "shared" || space == "shared::cta") return {"", ".shared .align 32 .b8 blob[1024];", scaled + "mov.u64 %rd10, blob; add.u64 %rd10, %rd10, %rd11;", true};
  if (space == "local") return {"", ".local .align 32 .b8 blob[64];", "mov.u64 %rd10, blob; add.u64 %rd10, %rd10, 32;", true};
  return {"", "", scaled + "mov.u64 %rd10, p_blob; add.u64 %rd10, %rd10, %rd11;", false};   // param
}
std::string copy_lane(const std::string& to_space, const std::string& to, const std::string& from_space, const std::string& from) {
  std::string text;
  for (int k = 0; k < 4; ++k)
    text += "ld." + from_space + ".b64 %rd12, [" + from + "+" + std::to_string(8 * k) + "]; st." + to_space + ".b64 [" + to + "+" +
            std::to_string(8 * k) + "], %rd12;\n";
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
  for (const auto& [head, space] : std::vector<std::pair<std::string, std::string>>{
           {"ld", "global"}, {"ld", ""}, {"ld", "const"}, {"ld", "shared"}, {"ld", "shared::cta"}, {"ld", "local"}, {"ld", "param"}, {"ld", "param::entry"},
           {"ldu", "global"}, {"ldu", ""}, {"ld.mmio.relaxed.sys", "global"}, {"ld.mmio.relaxed.sys", ""},
           {"ld.volatile", "global"}, {"ld.volatile", ""}, {"ld.volatile", "const"}, {"ld.volatile", "shared"}, {"ld.volatile", "shared::cta"}, {"ld.volatile", "local"}, {"ld.volatile", "param"}, {"ld.volatile", "param::entry"},
           {"ld.relaxed.gpu", "global"}, {"ld.acquire.sys", ""}, {"ld.relaxed.cta", "const"}, {"ld.acquire.cta", "shared"}, {"ld.relaxed.cluster", "shared::cta"}, {"ld.acquire.gpu", "local"}, {"ld.relaxed.sys", "param"}, {"ld.acquire.gpu", "param::entry"}}) {
    const SpaceText where = space_text(space, bytes);
    for (const MemoryType& type : kTypes)
      for (int width : {16, 32, 64, 128}) {
        if (width < 8 * type.bytes || (width == 128 && type.bytes != 16)) continue;
        for (int elements : {1, 2, 4, 8}) {
          if (elements * type.bytes > 32 || (elements == 8 && type.bytes != 4)) continue;
          if ((elements > 4 && (head == "ldu" || head == "ld.volatile")) || (elements > 1 && head == "ld.mmio.relaxed.sys")) continue;
          const std::string dotted = head + (space.empty() ? "" : "." + space) + (elements > 1 ? ".v" + std::to_string(elements) : "") + "." + type.name;
          const int bytes_each = width / 8, offset = elements * type.bytes <= 16 ? 32 - 16 : 0;
          std::string body = where.declare + where.address;
          if (where.writable && space != "global" && space != "")
            body += "mul.wide.u32 %rd13, %lane, 32; add.u64 %rd13, %rd13, %in;" + copy_lane(space, "%rd10", "global", "%rd13");
          body += dotted + " " + vector(width, elements) + ", [%rd10+" + std::to_string(offset) + "];\n";
          body += "mul.wide.u32 %rd14, %lane, 64; add.u64 %rd14, %rd14, %out;\n";
          for (int k = 0; k < elements; ++k)
            body += "st.global.b" + std::to_string(width) + " [%rd14+" + std::to_string(k * bytes_each) + "], " + reg(width, k) + ";";
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
  for (const auto& [head, space] : std::vector<std::pair<std::string, std::string>>{
           {"st", "global"}, {"st", ""}, {"st", "shared"}, {"st", "shared::cta"}, {"st", "local"}, {"st.mmio.relaxed.sys", "global"}, {"st.mmio.relaxed.sys", ""},
           {"st.volatile", "global"}, {"st.volatile", ""}, {"st.volatile", "shared"}, {"st.volatile", "shared::cta"}, {"st.volatile", "local"},
           {"st.relaxed.gpu", "global"}, {"st.release.sys", ""}, {"st.relaxed.cta", "shared"}, {"st.release.cluster", "shared::cta"}, {"st.release.gpu", "local"}}) {
    const SpaceText where = space_text(space, {});
    for (const MemoryType& type : kTypes)
      for (int width : {16, 32, 64, 128}) {
        if (width < 8 * type.bytes || (width == 128 && type.bytes != 16)) continue;
        for (int elements : {1, 2, 4, 8}) {
          if (elements * type.bytes > 32 || (elements == 8 && type.bytes != 4)) continue;
          if ((elements > 4 && head == "st.volatile") || (elements > 1 && head == "st.mmio.relaxed.sys")) continue;
          const std::string dotted = head + (space.empty() ? "" : "." + space) + (elements > 1 ? ".v" + std::to_string(elements) : "") + "." + type.name;
          const int bytes_each = width / 8, offset = elements * type.bytes <= 16 ? 32 - 16 : 0;
          // %rd14: the lane's 32 bytes of `out`, which hold the background.
          std::string body = where.declare + "mul.wide.u32 %rd14, %lane, 32; add.u64 %rd14, %rd14, %out;";
          const bool direct = space == "global" || space == "";
          body += direct ? "mov.u64 %rd10, %rd14;" : where.address + copy_lane(space, "%rd10", "global", "%rd14");
          body += "mul.wide.u32 %rd13, %lane, 64; add.u64 %rd13, %rd13, %in;\n";
          for (int k = 0; k < elements; ++k)
            body += "ld.global.b" + std::to_string(width) + " " + reg(width, k) + ", [%rd13+" + std::to_string(k * bytes_each) + "];";
          body += "\n" + dotted + " [%rd10+" + std::to_string(offset) + "], " + vector(width, elements) + ";\n";
          if (!direct) body += copy_lane("global", "%rd14", space, "%rd10");
          const auto out = gpu.array(background);
          const LaunchOutcome outcome = gpu.launch(for_vector(kernel(body), elements * type.bytes),
                                                   {out.address(), in.address()});
          INFO(dotted << " from " << width << " bits");
          REQUIRE(outcome.fault.message == "");
          std::vector<std::uint8_t> want = background;
          for (int lane = 0; lane < 32; ++lane)
            for (int k = 0; k < elements; ++k)
              std::memcpy(&want[lane * 32 + offset + k * type.bytes], &bytes[lane * 64 + k * bytes_each], type.bytes);
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
  const std::string evict[] = {".L1::evict_normal", ".L1::evict_unchanged", ".L1::evict_first", ".L1::evict_last", ".L1::no_allocate",
                               ".evict_normal", ".evict_first", ".evict_last", ".evict_unchanged", ".no_allocate"};
  const std::string prefetch[] = {".L2::64B", ".L2::128B", ".L2::256B"}, scopes[] = {".cta", ".cluster", ".gpu", ".sys"};
  const std::string l2[] = {".L2::evict_normal", ".L2::evict_first", ".L2::evict_last"};
  std::vector<std::string> loads = {"ld.weak.global.u32", "ld.global.nc.u32", "ld.weak.u32", "ldu.global.u32", "ldu.u32", "ldu.global.v2.u32", "ldu.v4.u32", "ld.mmio.relaxed.sys.global.u32",
                                    "ld.mmio.relaxed.sys.u32", "ld.volatile.u32"};
  std::vector<std::string> stores = {"st.weak.global.u32", "st.weak.u32", "st.mmio.relaxed.sys.global.u32", "st.mmio.relaxed.sys.u32", "st.volatile.u32"};
  for (const char* cop : {".ca", ".cg", ".cs", ".lu", ".cv", ".wb", ".wt"}) {
    loads.push_back(std::string("ld.global") + cop + ".u32");
    stores.push_back(std::string("st.global") + cop + ".u32");
  }
  for (const auto& e : evict) {
    loads.push_back("ld.global" + e + ".u32");
    loads.push_back("ld.global.nc" + e + ".L2::128B.u32");
    stores.push_back("st.global" + e + ".u32");
    for (const char* order : {".relaxed", ".acquire"}) loads.push_back("ld" + std::string(order) + ".gpu.global" + e + ".u32");
    for (const char* order : {".relaxed", ".release"}) stores.push_back("st" + std::string(order) + ".gpu.global" + e + ".u32");
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
      for (const char* order : {".relaxed", ".acquire"}) loads.push_back("ld" + std::string(order) + scope + space + ".u32");
      for (const char* order : {".relaxed", ".release"}) stores.push_back("st" + std::string(order) + scope + space + ".u32");
    }
  for (const auto& dotted : loads) {
    INFO(dotted);
    const int elements = dotted.find(".v2") != dotted.npos ? 2 : dotted.find(".v4") != dotted.npos ? 4 : 1;
    const std::string to = elements == 1 ? "%r1" : elements == 2 ? "{_, %r1}" : "{_, _, _, %r1}";
    const std::string lane = elements == 1 ? "%lane" : "%r9";
    const auto out = gpu.run("and.b32 %r9, %lane, " + std::to_string(32 - elements) + "; mul.wide.u32 %rd1, " + lane + ", 4; add.u64 %rd1, %rd1, %in;\n" + dotted + " " + to + ", [%rd1];\nst.global.u32 [%mine], %r1;", 32, in);
    CHECK_SAME(out, expected(32, [&](auto i) { return 100 + (elements == 1 ? i : (i & (32 - elements)) + elements - 1); }));
  }
  for (const auto& dotted : stores) {
    INFO(dotted);
    CHECK_SAME(gpu.run("add.u32 %r1, %lane, 3;\n" + dotted + " [%mine], %r1;", 32, in), expected(32, [](auto i) { return i + 3; }));
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
    st.release.gpu.global.L2::cache_hint.u32 [%mine], %r3, %rd5;)", 32, in);
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

TEST_CASE("memory: a destination that is its own base, sinks, absolute addresses, overlapping stores") {
  Gpu gpu;
  const std::vector<std::uint32_t> in = {10, 11, 12, 13};
  CHECK_SAME(gpu.run(R"(
    mov.u64 %rd1, %in;
    ld.global.v2.b64 {%rd1, %rd2}, [%rd1];
    st.global.v2.b64 [%out], {%rd1, %rd2};)", 4, in), in);
  CHECK_SAME(gpu.run(R"(
    ld.global.v4.u32 {_, %r1, _, %r2}, [%in];
    st.global.v4.u32 [%out], {%r1, 0, %r2, 7};)", 4, in), {11, 0, 13, 7});
  // All lanes write one place: the last lane wins, here, always.
  CHECK_SAME(gpu.run("st.global.u32 [%out], %lane;", 1), {31});
  CHECK_SAME(gpu.run("setp.lt.u32 %p1, %lane, 9; @%p1 st.global.u32 [%out], %lane;", 1), {8});
  // A 32-bit register as shared address, with a negative offset.
  CHECK_SAME(gpu.run(R"(
    .shared .align 4 .b32 s[40];
    mov.u32 %r1, s; mad.lo.u32 %r1, %lane, 4, %r1; add.u32 %r1, %r1, 16;
    st.shared.u32 [%r1+-16], %lane; ld.shared.u32 %r2, [%r1-16]; st.global.u32 [%mine], %r2;)"), expected(32, [](auto i) { return i; }));
}

TEST_CASE("memory: inactive lanes ask for nothing, whatever their addresses") {
  Gpu gpu;
  const auto out = gpu.run(R"(
    setp.gt.u32 %p1, %lane, 28;
    mul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %in;
    @!%p1 mov.u64 %rd1, 0xfffffffffffffffd;
    mov.u32 %r1, 5;
    @%p1 ld.global.u32 %r1, [%rd1];
    st.global.u32 [%mine], %r1;)", 32, expected(32, [](auto i) { return i + 50; }));
  CHECK_SAME(out, expected(32, [](auto i) { return i > 28 ? i + 50 : 5; }));
  CHECK(counters_of(gpu.outcome, "ld.global.u32 %r1").global.bytes_asked == 12);
}

TEST_CASE("memory: generic addresses of all windows in one warp") {
  Gpu gpu;
  Blob blob{};
  const std::uint32_t five = 55;
  std::memcpy(blob.bytes + 8, &five, 4);
  const std::string before = ".const .align 4 .u32 c[2] = {1, 44};\n.global .align 4 .u32 g[2] = {2, 33};\n";
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
    st.global.u32 [%mine+128], %r5;)"), {out.address(), out.address(), blob});
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
  const char* spaces[] = {"global", "shared", "local", "const", "param", "param::entry", "shared::cta"};
  int bit = 0;
  for (int address = 1; address <= 5; ++address)
    for (const char* space : spaces) {
      body += std::string("isspacep.") + space + " %p1, %rd" + std::to_string(address) + "; selp.u32 %r1, " + std::to_string(1 << bit % 32) +
              ", 0, %p1; " + (bit < 32 ? "or.b32 %r9, %r9, %r1;\n" : "or.b32 %r10, %r10, %r1;\n");
      ++bit;
    }
  body += "st.global.u32 [%out], %r9; st.global.u32 [%out+4], %r10;\n";
  // There and back again.
  int at = 8;
  for (auto [reg, space] : {std::pair{"%rd1", "global"}, {"%rd2", "shared"}, {"%rd2", "shared::cta"}, {"%rd3", "local"}, {"%rd4", "const"}, {"%rd5", "param"}, {"%rd5", "param::entry"}}) {
    body += std::string("cvta.to.") + space + ".u64 %rd6, " + reg + "; cvta." + space + ".u64 %rd7, %rd6; setp.eq.u64 %p2, %rd7, " + reg +
            "; selp.u32 %r2, 1, 2, %p2; st.global.u32 [%out+" + std::to_string(at) + "], %r2;\n";
    at += 4;
  }
  const auto out = gpu.run(body, 9, {0}, {32, 1, 1}, {1, 1, 1}, before);
  std::uint64_t bits = 0;
  const int mine[] = {0b0000001, 0b1000010, 0b0000100, 0b0001000, 0b0110000};
  for (int a = 0; a < 5; ++a) bits |= static_cast<std::uint64_t>(mine[a]) << 7 * a;
  CHECK_SAME(out, {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), 1, 1, 1, 1, 1, 1, 1});
}

TEST_CASE("memory: mov of each type, packed and unpacked") {
  Gpu gpu;
  // Every plain type there and back.
  for (const char* type : {"b16", "u16", "s16", "f16"})
    CHECK_SAME(gpu.run(std::string("cvt.u16.u32 %h1, %lane; mov.") + type + " %h2, %h1; cvt.u32.u16 %r1, %h2; st.global.u32 [%mine], %r1;"), expected(32, [](auto i) { return i; }));
  for (const char* type : {"b32", "u32", "s32", "f32", "f16x2"})
    CHECK_SAME(gpu.run(std::string("mov.") + type + " %r1, %lane; st.global.u32 [%mine], %r1;"), expected(32, [](auto i) { return i; }));
  for (const char* type : {"b64", "u64", "s64", "f64"})
    CHECK_SAME(gpu.run(std::string("mul.wide.u32 %rd1, %lane, 77; mov.") + type + " %rd2, %rd1; cvt.u32.u64 %r1, %rd2; st.global.u32 [%mine], %r1;"), expected(32, [](auto i) { return 77 * i; }));
  // Constants: -1, hexadecimal floats, decimal floats, predicates, WARP_SZ.
  CHECK_SAME(gpu.run(R"(
    mov.u16 %h1, -1; cvt.u32.u16 %r1, %h1; st.global.u32 [%out], %r1;
    mov.f32 %f1, 0f3FC00000; st.global.f32 [%out+4], %f1;
    mov.f32 %f2, 0d3FF8000000000000; st.global.f32 [%out+8], %f2;
    mov.f32 %f3, -2.5; st.global.f32 [%out+12], %f3;
    mov.f64 %fd1, 0dC004000000000000; st.global.f64 [%out+16], %fd1;
    mov.pred %p1, 1; mov.pred %p2, !%p1; selp.u32 %r2, 3, 4, %p1; selp.u32 %r3, 3, 4, %p2; st.global.v2.u32 [%out+24], {%r2, %r3};
    mov.u32 %r4, WARP_SZ; st.global.u32 [%out+32], %r4;
    mov.u32 %r5, 0b101; mov.u32 %r6, 017; mov.u32 %r7, 0xfU; st.global.u32 [%out+36], %r5; st.global.u32 [%out+40], %r6; st.global.u32 [%out+44], %r7;)", 12),
             {0xffff, 0x3fc00000, 0x3fc00000, 0xc0200000, 0, 0xc0040000, 3, 4, 32, 5, 15, 15});
  // Packs and unpacks: all shapes.
  CHECK_SAME(gpu.run(R"(
    mov.u32 %r1, 0x44332211; mov.b32 {%h1, %h2}, %r1; mov.b32 %r2, {%h2, %h1}; st.global.u32 [%out], %r2;
    mov.b32 {%h3, %h4, %h5, %h6}, %r1; mov.b32 %r3, {%h6, %h5, %h4, %h3}; st.global.u32 [%out+4], %r3;
    mov.b16 {%h7, %h8}, %h1; mov.b16 %h9, {%h8, %h7}; cvt.u32.u16 %r4, %h9; st.global.u32 [%out+8], %r4;
    mov.b64 %rd1, {%r1, %r2}; mov.b64 {%r5, %r6}, %rd1; st.global.v2.u32 [%out+12+4], {%r6, %r5};
    mov.b64 %rd2, {%h1, %h2, %h3, %h4}; st.global.u64 [%out+24], %rd2;
    mov.b64 {%h11, %h12, _, %h14}, %rd1; mov.b32 %r7, {%h11, %h14}; st.global.u32 [%out+32], %r7;
    mov.b128 %q1, {%rd1, %rd2}; mov.b128 %q2, %q1; mov.b128 {%rd3, %rd4}, %q2; st.global.v2.u64 [%out+48], {%rd4, %rd3};
    mov.b128 {%r11, %r12, %r13, %r14}, %q1; mov.b128 %q3, {%r14, %r13, %r12, %r11}; st.global.b128 [%out+64], %q3;
    mov.b64 {%r15, _}, %rd2; st.global.u32 [%out+40], %r15;)", 20),
             {0x22114433, 0x11223344, 0x1122, 0, 0x22114433, 0x44332211, 0x44332211, 0x00220011, 0x22112211, 0, 0x44332211, 0,
              0x44332211, 0x00220011, 0x44332211, 0x22114433, 0x00220011, 0x44332211, 0x22114433, 0x44332211});
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
             expected(32, [](auto i) { return i & 1 ? 2 + 20 + 10 + 100 + 7000 + i : 1 + 10 + 1000 + 200 + 5000 + 0x00c800c8; }));
}

TEST_CASE("memory: special registers of blocks in one, two and three dimensions") {
  Gpu gpu;
  for (const Dim3 block : {Dim3{70, 1, 1}, Dim3{5, 9, 1}, Dim3{3, 4, 5}, Dim3{1, 1, 7}, Dim3{32, 2, 1}}) {
    const Dim3 grid{2, 3, 2};
    const std::uint64_t threads = block.count() * grid.count();
    const char* names[] = {"tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z",
                           "laneid", "warpid", "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge", "clusterid.x", "nclusterid.y",
                           "cluster_ctaid.x", "cluster_nctaid.z", "cluster_ctarank", "cluster_nctarank", "smid", "nsmid"};
    constexpr int kNames = std::size(names);
    // The thread's number in the grid, from the registers themselves.
    std::string body = R"(
      mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %ntid.z; mov.u32 %r3, %tid.z; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r1, %r1, %r2, %r3;
      mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r1, %r1, %r2, %r3;
      mul.wide.u32 %rd1, %r1, )" + std::to_string(4 * kNames) + "; add.u64 %rd1, %rd1, %out;\n";
    for (int i = 0; i < kNames; ++i)
      body += std::string("mov.u32 %r9, %") + names[i] + "; st.global.u32 [%rd1+" + std::to_string(4 * i) + "], %r9;\n";
    const auto out = gpu.run(body, threads * kNames, {0}, block, grid);
    CHECK_SAME(out, expected(threads * kNames, [&](std::uint32_t at) -> std::uint32_t {
                 const std::uint32_t thread = at / kNames % block.count(), b = at / kNames / block.count(), lane = thread % 32, bit = 1u << lane;
                 const std::uint32_t bx = b % 2, by = b / 2 % 3, bz = b / 6;
                 const std::uint32_t want[] = {thread % block.x, thread / block.x % block.y, thread / block.x / block.y, block.x, block.y, block.z,
                                               bx, by, bz, 2, 3, 2, lane, thread / 32, bit, bit - 1, bit | (bit - 1), ~(bit | (bit - 1)), ~(bit - 1),
                                               bx, 3, 0, 1, 0, 1, b % 132, 132};
                 return want[at % kNames];
               }));
  }
}

TEST_CASE("memory: special registers as operands, in 64 bits, and those of shared memory") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(32, 0);
  const LaunchOutcome outcome = gpu.launch(kernel(R"(
    .shared .align 4 .b32 s[5];
    add.u32 %r1, %laneid, %ntid.x; st.global.u32 [%out], %r1;
    mov.u64 %rd1, %gridid; cvt.u32.u64 %r2, %rd1; st.global.u32 [%out+4], %r2;
    mov.u32 %r3, %dynamic_smem_size; st.global.u32 [%out+8], %r3;
    mov.u32 %r4, %total_smem_size; st.global.u32 [%out+12], %r4;
    mov.u64 %rd2, %clock64; mov.u64 %rd3, %clock64; setp.lt.u64 %p1, %rd2, %rd3; selp.u32 %r5, 1, 0, %p1; st.global.u32 [%out+16], %r5;
    mov.u32 %r6, %clock; mov.u32 %r7, %clock_hi; mov.u32 %r8, %globaltimer_lo; mov.u32 %r9, %globaltimer_hi; mov.u64 %rd4, %globaltimer;
    mov.pred %p2, %is_explicit_cluster; selp.u32 %r10, 1, 0, %p2; st.global.u32 [%out+20], %r10;
    mov.u32 %r11, %nwarpid; st.global.u32 [%out+24], %r11;
    mov.u32 %r12, %aggr_smem_size; mov.u32 %r13, %reserved_smem_offset_begin; mov.u64 %rd5, %current_graph_exec;)"), {out.address(), out.address()}, {1, 1, 1}, {1, 1, 1}, 100);
  REQUIRE(outcome.fault.message == "");
  CHECK(out[0] == 1);
  CHECK(out[1] == 1);
  CHECK(out[2] == 100);
  CHECK(out[3] == 32 + 100);   // 20 bytes, up to the alignment of dynamic shared memory
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
    mov.u64 %rd1, dynamic; cvta.shared.u64 %rd1, %rd1; ld.u32 %r5, [%rd1+4]; ld.u32 %r6, [dynamic+4]; st.global.u32 [%out+16], %r5; st.global.u32 [%out+20], %r6;)", before),
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
    st.global.u32 [a+4], 555;)", before), {out.address(), out.address()}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const auto v = out.values();
  CHECK_SAME(std::vector(v.begin(), v.begin() + 13), {2, 0x30, 8, 7, 0x40200000, 0xbf800000, 3, 0, 0, 0xfffffffd, 0xfffffffc, 8, 0x3ff80000});
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

TEST_CASE("memory: parameters of a kernel: each size, arrays, and offsets as the ABI lays them out") {
  Gpu gpu;
  const auto out = gpu.array<std::uint32_t>(16, 0);
  struct Inner {
    std::uint8_t a;
    std::uint16_t b;
    std::uint64_t c;
    std::uint32_t d[3];
  } inner{1, 2, 3, {4, 5, 6}};
  const std::string text = kHead + R"(.visible .entry k(.param .u8 x, .param .u64 .ptr .global .align 4 out, .param .f32 y, .param .align 8 .b8 s[32], .param .u16 z, .param .u32 w)
{ .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f1;
  ld.param.u64 %rd1, [out];
  ld.param.u8 %r1, [x]; st.global.u32 [%rd1], %r1;
  ld.param.f32 %f1, [y]; st.global.f32 [%rd1+4], %f1;
  ld.param.u16 %r1, [s+2]; st.global.u32 [%rd1+8], %r1; ld.param.v2.u32 {%r1, %r2}, [s+16]; st.global.u32 [%rd1+12], %r1; st.global.u32 [%rd1+16], %r2;
  mov.b64 %rd2, s; cvta.param.u64 %rd3, %rd2; ld.u32 %r1, [%rd3+24]; st.global.u32 [%rd1+20], %r1;
  ld.param.s16 %r1, [z]; st.global.u32 [%rd1+24], %r1; ld.param.u32 %r1, [w]; st.global.u32 [%rd1+28], %r1; ret; })";
  const LaunchOutcome outcome = gpu.launch(text, {std::uint8_t{200}, out.address(), 1.5f, inner, std::uint16_t{0xfffe}, 99u}, {1, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const auto v = out.values();
  CHECK_SAME(std::vector(v.begin(), v.begin() + 8), {200, 0x3fc00000, 2, 4, 5, 6, 0xfffffffe, 99});
}

TEST_CASE("memory: the parameters of a call, in every spelling") {
  Gpu gpu;
  for (const char* how : {"", ".volatile", ".relaxed.cta"})
    for (const char* space : {".param", ".param::func"}) {
      const std::string ld = std::string("ld") + how + space, st = std::string("st") + how + space;
      const std::string before = ".func (.param .b32 y) f(.param .b32 x) { .reg .b32 %r1; " + ld + ".b32 %r1, [x]; add.u32 %r1, %r1, 9; " + st + ".b32 [y], %r1; ret; }\n";
      CHECK_SAME(gpu.run("{ .param .b32 x; .param .b32 y; " + st + ".b32 [x], %lane; call (y), f, (x); " + ld + ".b32 %r1, [y]; } st.global.u32 [%mine], %r1;", 32, {0}, {32, 1, 1}, {1, 1, 1}, before),
                 expected(32, [](auto i) { return i + 9; }));
    }
}

TEST_CASE("memory: .alias names a function") {
  Gpu gpu;
  const std::string before = ".func (.param .b32 y) real(.param .b32 x) { .reg .b32 %r1; ld.param.b32 %r1, [x]; add.u32 %r1, %r1, 9; st.param.b32 [y], %r1; ret; }\n"
                             ".func (.param .b32 y) other(.param .b32 x);\n.alias other, real;\n";
  CHECK_SAME(gpu.run("{ .param .b32 x; .param .b32 y; st.param.b32 [x], %lane; call (y), other, (x); ld.param.b32 %r1, [y]; } st.global.u32 [%mine], %r1;", 32, {0},
                     {32, 1, 1}, {1, 1, 1}, before), expected(32, [](auto i) { return i + 9; }));
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
  CHECK(gpu.launch(kernel(past, own), {out.address(), out.address()}).fault.message.find(
            "out-of-bounds write of 4 bytes") != std::string::npos);
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
  CHECK(message(at, second.address()).find("8 bytes before an allocation of 64 bytes (argument 2)") !=
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
  CHECK_SAME(gpu.run("ld.const.u8 %r1, [a]; ld.const.u64 %rd1, [b]; ld.const.u8 %r2, [c]; ld.const.v4.u32 {%r3, %r4, %r5, %r6}, [d];\n"
                     "cvt.u32.u64 %r7, %rd1; add.u32 %r1, %r1, %r7; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r6; st.global.u32 [%mine], %r1;",
                     1, {0}, {1, 1, 1}, {1, 1, 1},
                     ".const .align 1 .b8 a = 1;\n.const .align 8 .u64 b = 20;\n.const .align 1 .b8 c = 3;\n.const .align 16 .b32 d[4] = {5, 6, 7, 400};\n"),
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
    ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r2]; st.global.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};)", 128, in);
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
cp.async.cg.shared.global [%r1], [%rd1], 16;)", 4 * 32, std::vector<std::uint32_t>(128, 9), {32, 1, 1}, {4, 1, 1},
                           ".shared .align 16 .b8 tile[512];\n");
  CHECK_SAME(got, std::vector<std::uint32_t>(128, 0));
}
