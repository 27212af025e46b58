// Products of a warpgroup (wgmma) against plain loops on the host, and setmaxnreg. Where an element of an
// operand lies in shared memory is stated here element by element, as the canonical layouts of the PTX
// ISA have it ("Asynchronous Warpgroup Level Matrix Shared Memory Layout"), and not core matrix by core
// matrix as in ops/descriptor.h. Values are small integers, so that results are exact, but where sums of
// any numbers are compared bit for bit.
// Long, since PTX stands one instruction a line.
#include <cmath>
#include <random>

#include "../ops/half.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

constexpr int kProductRows = 64, kThreads = 128;
constexpr std::size_t kSharedBytes = 98304;
const std::string kOperands = ".shared .align 1024 .b8 s[98304];\n";

std::string for_warpgroups(std::string text) {
  const std::string target = ".target sm_90\n";
  return text.replace(text.find(target), target.size(), ".target sm_90a\n");
}

// ---- numbers --------------------------------------------------------------------------------

int bits_of(const std::string& type) {
  if (type == "b1") return 1;
  if (type == "f16" || type == "bf16") return 16;
  return type == "tf32" || type == "f32" || type == "s32" ? 32 : 8;
}
std::uint64_t encode(const std::string& type, int v) {
  const auto f = static_cast<float>(v);
  if (type == "f16") return half_from_float(f);
  if (type == "bf16") return std::bit_cast<std::uint32_t>(f) >> 16;
  if (type == "tf32" || type == "f32") return std::bit_cast<std::uint32_t>(f);
  constexpr int e4m3[] = {0x00, 0x38, 0x40, 0x44, 0x48}, e5m2[] = {0x00, 0x3c, 0x40, 0x42, 0x44};
  if (type == "e4m3") return static_cast<std::uint64_t>(e4m3[std::abs(v)] | (v < 0 ? 0x80 : 0));
  if (type == "e5m2") return static_cast<std::uint64_t>(e5m2[std::abs(v)] | (v < 0 ? 0x80 : 0));
  return static_cast<std::uint32_t>(v) & (type == "s32" ? ~0u : type == "b1" ? 1u : 0xffu);
}
double number(const std::string& type, std::uint64_t code) {
  const auto word = static_cast<std::uint32_t>(code);
  if (type == "f16") return float_from_half(static_cast<std::uint16_t>(code));
  if (type == "bf16") return std::bit_cast<float>(word << 16);
  if (type == "tf32") return std::bit_cast<float>(word & ~0x1fffu);
  if (type == "f32") return std::bit_cast<float>(word);
  if (type == "e4m3") return float_from_e4m3(static_cast<std::uint8_t>(word));
  if (type == "e5m2") return float_from_e5m2(static_cast<std::uint8_t>(word));
  if (type == "s8") return static_cast<std::int8_t>(word);
  if (type == "s32") return static_cast<std::int32_t>(word);
  return word;
}
int small_value(const std::string& type, std::mt19937& random) {
  if (type == "b1") return static_cast<int>(random() & 1);
  if (type == "u8") return static_cast<int>(random() % 8);
  return static_cast<int>(random() % 9) - 4;
}
// Any number of the type that is not huge; a few of them are NaN or infinite.
std::uint64_t any_code(const std::string& type, std::mt19937& random) {
  const std::uint32_t bits = random();
  if (bits % 256 == 0 && type != "s8" && type != "u8") return bits >> (32 - bits_of(type));
  if (type == "f16") return (bits & 0x83ff) | (10 + (bits >> 16) % 10) << 10;
  if (type == "bf16") return (bits & 0x807f) | (120 + (bits >> 16) % 12) << 7;
  if (type == "f32" || type == "tf32") return (bits & 0x807fffff) | (120 + random() % 12) << 23;
  if (type == "e4m3") return (bits & 0x87) | (bits >> 8) % 15 << 3;
  if (type == "e5m2") return (bits & 0x83) | (8 + (bits >> 8) % 12) << 2;
  return bits & (~0ull >> (64 - bits_of(type)));
}

// ---- operands in shared memory --------------------------------------------------------------

struct Layout {
  int swizzle = 0;  // bytes of a line: 0, 32, 64 or 128
  bool mn_major = false;
  int start = 0, leading = 16, stride = 16, base = 0;

  std::string text() const {
    return std::string(mn_major ? "MN" : "K") + "-major, swizzle " + std::to_string(swizzle) +
           ", base " + std::to_string(base);
  }
  std::uint64_t descriptor() const {
    const std::uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return static_cast<std::uint64_t>(start) >> 4 | static_cast<std::uint64_t>(leading) >> 4 << 16 |
           static_cast<std::uint64_t>(stride) >> 4 << 32 | static_cast<std::uint64_t>(base) << 49 |
           mode << 62;
  }
  // Bit number of element (mn, k) in shared memory.
  std::size_t at(const std::string& type, int mn, int k) const {
    const int bits = bits_of(type), in_piece = 128 / bits;  // elements of 16 bytes
    int byte = start, bit = 0;
    if (!mn_major) {
      bit = k % in_piece * bits;
      byte += mn / 8 * stride;
      if (swizzle)
        byte += mn % 8 * swizzle + k / in_piece * 16;
      else
        byte += mn % 8 * 16 + k / in_piece * leading;
    } else {
      bit = mn % in_piece * bits;
      if (swizzle) {
        const int in_line = swizzle * 8 / bits;
        byte += mn / in_line * leading + mn % in_line / in_piece * 16 + k % 8 * swizzle +
                k / 8 * stride;
      } else {
        byte += mn / in_piece * stride + k % 8 * 16 + k / 8 * leading;
      }
    }
    // Bit 4 + i of the address is inverted where bit 7 + i is set, counted from the pattern's start.
    const int pattern = byte - base * 128;
    for (int i = 0; 16 << i < swizzle; ++i)
      if (pattern >> (7 + i) & 1) byte ^= 16 << i;
    return static_cast<std::size_t>(byte) * 8 + static_cast<std::size_t>(bit);
  }
};

// A layout for `count` rows of M or N and `depth` times 16 bytes of K, with random gaps between its parts.
// Returns the byte behind it.
int choose_layout(Layout& l, int count, int depth, int from, std::mt19937& random) {
  const int line = l.swizzle ? l.swizzle : 16, pattern = std::max(16, l.swizzle * 8);
  const auto gaps = [&](int unit) { return static_cast<int>(random() % 2) * unit; };
  l.start = (from + pattern - 1) / pattern * pattern;
  const int group = 8 * line;  // bytes of 8 lines
  if (!l.mn_major) {
    if (l.swizzle) {
      const int wide = 16 * depth;  // bytes of K
      l.start += static_cast<int>(random() % static_cast<unsigned>(line / wide)) * wide;
      l.stride = group + gaps(group), l.leading = 16 * static_cast<int>(random() % 9);
    } else if (random() % 2) {
      l.leading = group + gaps(16), l.stride = depth * l.leading + gaps(16);
    } else {
      l.stride = group + gaps(16), l.leading = count / 8 * l.stride + gaps(16);
    }
    return l.start + count / 8 * l.stride + 2 * group + (l.swizzle ? 0 : (depth - 1) * l.leading);
  }
  if (!l.swizzle) {
    l.stride = group + gaps(16), l.leading = count / 8 * l.stride + gaps(16);
    return l.start + depth * l.leading + group;
  }
  const int lines = (count * 2 + line - 1) / line;
  l.stride = group + gaps(group), l.leading = depth * l.stride + gaps(group);
  return l.start + lines * l.leading + group;
}

struct Matrix {  // codes of elements
  int rows, columns;
  std::vector<std::uint64_t> v;
  template <class F>
  Matrix(int r, int c, F code) : rows(r), columns(c) {
    for (int i = 0; i < r * c; ++i) v.push_back(code());
  }
  std::uint64_t at(int r, int c) const { return v[static_cast<std::size_t>(r) * columns + c]; }
};

// The same as numbers: what a type is called is compared once an element, not once a product.
struct Numbers {
  int columns;
  std::vector<double> v;
  Numbers(const std::string& type, const Matrix& codes) : columns(codes.columns) {
    for (const std::uint64_t code : codes.v) v.push_back(number(type, code));
  }
  double at(int r, int c) const { return v[static_cast<std::size_t>(r) * columns + c]; }
};

void put(std::vector<std::uint32_t>& memory, std::size_t bit, int bits, std::uint64_t code) {
  if ((bit + static_cast<std::size_t>(bits)) / 8 > kSharedBytes) FAIL("layout too large");
  for (int i = 0; i < bits; ++i, ++bit) {
    if (code >> i & 1) memory[bit / 32] |= 1u << bit % 32;
  }
}

// ---- one product ----------------------------------------------------------------------------

struct Product {
  std::string d = "f32", a = "f16", b = "f16";
  int n = 8;
  Layout of_a, of_b;
  bool a_in_registers = false, accumulates = true, saturate = false;
  int scale_a = 1, scale_b = 1;
  bool sparse = false;
  int selector = 0;

  int kept() const { return 256 / bits_of(a); }  // elements of a row of A that are there
  int k() const { return sparse ? 2 * kept() : kept(); }
  bool floating() const { return d != "s32"; }
  std::string name() const {
    std::string text = std::string("wgmma.mma_async") + (sparse ? ".sp" : "") +
                       ".sync.aligned.m64n" + std::to_string(n) + "k" + std::to_string(k()) +
                       (saturate ? ".satfinite." : ".") + d + "." + a + "." + b;
    return a == "b1" ? text + ".and.popc" : text;
  }
  int registers() const { return d == "f16" ? n / 4 : n / 2; }
  std::string numbers() const {
    std::string text;
    if (floating()) text += ", " + std::to_string(scale_a) + ", " + std::to_string(scale_b);
    if (bits_of(a) == 16 && !a_in_registers) text += of_a.mn_major ? ", 1" : ", 0";
    if (bits_of(a) == 16) text += of_b.mn_major ? ", 1" : ", 0";
    return text;
  }
};

Product types(const std::string& d, const std::string& a, const std::string& b) {
  Product p;
  p.d = d, p.a = a, p.b = b;
  return p;
}

std::string list(const std::string& prefix, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + prefix + std::to_string(i);
  return text + "}";
}
std::string constant(std::uint64_t bits) { return std::to_string(bits); }

// Copies the first 96 KiB behind %in to shared memory.
const std::string kFill =
    "mov.u32 %r1, s; mad.lo.u32 %r2, %thread, 16, %r1; mul.wide.u32 %rd10, %thread, 16; add.u64 "
    "%rd10, %rd10, %in;\nmov.u32 %r3, 0;\nFILL:\nld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd10];\n"
    "st.shared.v4.u32 [%r2], {%r4, %r5, %r6, %r7};\nadd.u64 %rd10, %rd10, 2048; add.u32 %r2, %r2, "
    "2048; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 48;\n@%p1 bra FILL;\n"
    "fence.proxy.async.shared::cta;\nbar.sync 0;\n";

// Behind the image of shared memory come A's registers, D's and the metadata, [register][thread].
std::string body_of(const Product& p) {
  std::string text = ".reg .b32 %d<128>, %a<4>, %chosen; .reg .pred %scale;\n" + kFill;
  text +=
      "mul.wide.u32 %rd11, %thread, 4; add.u64 %rd12, %in, 98304; add.u64 %rd12, %rd12, %rd11;\n";
  for (int i = 0; i < 4; ++i)
    text += "ld.global.u32 %a" + std::to_string(i) + ", [%rd12+" + std::to_string(512 * i) + "];\n";
  for (int i = 0; i < p.registers(); ++i)
    text += "ld.global.u32 %d" + std::to_string(i) + ", [%rd12+" + std::to_string(512 * (i + 4)) +
            "];\n";
  text += "ld.global.u32 %chosen, [%rd12+" + std::to_string(512 * 132) + "];\n";
  text += "mov.u64 %rd1, " + constant(p.of_a.descriptor()) + "; mov.u64 %rd2, " +
          constant(p.of_b.descriptor()) + ";\nsetp.eq.u32 %scale, 0, " +
          (p.accumulates ? "0" : "1") + ";\nwgmma.fence.sync.aligned;\n";
  text += p.name() + " " + list("%d", p.registers()) + ", " +
          (p.a_in_registers ? list("%a", 4) : "%rd1") + ", %rd2, " +
          (p.sparse ? "%chosen, " + std::to_string(p.selector) + ", " : "") + "%scale" +
          p.numbers() + ";\n";
  text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  text += "add.u64 %rd13, %out, %rd11;\n";
  for (int i = 0; i < p.registers(); ++i)
    text += "st.global.u32 [%rd13+" + std::to_string(512 * i) + "], %d" + std::to_string(i) + ";\n";
  return text;
}

// Where element i of register r of a thread belongs in D, and in A.
struct At {
  int row, column;
};
At place_d(bool halves, int thread, int r, int i) {
  const int g = thread % 32 / 4, t = thread % 4, first = thread / 32 * 16;
  if (halves) return {first + g + (r % 2 ? 8 : 0), r / 2 * 8 + t * 2 + i};
  return {first + g + (r % 4 >= 2 ? 8 : 0), r / 4 * 8 + t * 2 + r % 2};
}
At place_a(int bits, int thread, int r, int i) {
  const int g = thread % 32 / 4, t = thread % 4, each = 32 / bits;
  return {thread / 32 * 16 + g + (r % 2 ? 8 : 0), (r >= 2 ? 4 * each : 0) + t * each + i};
}

// Which column of a sparse A each of its kept elements stands in, by row.
using Columns = std::vector<std::vector<int>>;
Columns choose_columns(const Product& p, std::mt19937& random) {
  Columns all(kProductRows);
  const int chunk = bits_of(p.a) == 32 ? 2 : 4;
  for (std::vector<int>& row : all) {
    for (int k = 0; k < p.k(); ++k) {  // keeps half of the elements in each chunk
      if (!p.sparse) row.push_back(k);
      const int had = static_cast<int>(row.size()) - k / chunk * chunk / 2,
                left = chunk - k % chunk;
      const int want = chunk / 2 - had;
      if (p.sparse && static_cast<int>(random() % static_cast<unsigned>(left)) < want)
        row.push_back(k);
    }
  }
  return all;
}
// The metadata, as the figures of the ISA have them: in two threads of four, or in all four for types of
// 8 bits. The registers of the other threads hold anything.
void put_metadata(const Product& p, const Columns& columns, std::uint32_t* by_thread) {
  const int bits = bits_of(p.a);
  for (int thread = 0; thread < kThreads; ++thread)
    by_thread[thread] = bits == 8 || thread % 4 / 2 == p.selector ? 0 : 0x12345678u * (thread + 1u);
  const auto add = [&](int row, int in_quad, int bit, int value) {
    by_thread[row / 16 * 32 + row % 8 * 4 + in_quad] |= static_cast<std::uint32_t>(value) << bit;
  };
  for (int row = 0; row < kProductRows; ++row)
    for (int i = 0; i < p.kept(); ++i) {
      const int k = columns[row][i], lower = row % 16 < 8 ? 0 : 1;
      if (bits == 16) add(row, 2 * p.selector + k / 16, 16 * lower + i % 8 * 2, k % 4);
      if (bits == 8) add(row, k / 32 * 2 + lower, i % 16 * 2, k % 4);
      if (bits == 32) add(row, 2 * p.selector + k / 8, 16 * lower + i % 4 * 4, k % 2 ? 14 : 4);
    }
}

std::vector<std::uint32_t> image_of(const Product& p, const Matrix& a, const Matrix& b,
                                    const Matrix& c, const Columns& columns) {
  std::vector<std::uint32_t> in(kSharedBytes / 4 + std::size_t{kThreads} * (4 + 128 + 1));
  const int bits = bits_of(p.a);
  if (p.sparse)
    put_metadata(p, columns, in.data() + kSharedBytes / 4 + std::size_t{kThreads} * 132);
  for (int k = 0; k < p.k(); ++k) {
    for (int m = 0; m < kProductRows && !p.a_in_registers && k < p.kept(); ++m)
      put(in, p.of_a.at(p.a, m, k), bits, a.at(m, k));
    for (int n = 0; n < p.n; ++n) put(in, p.of_b.at(p.b, n, k), bits, b.at(k, n));
  }
  std::uint32_t* registers = in.data() + kSharedBytes / 4;
  for (int thread = 0; thread < kThreads; ++thread) {
    for (int r = 0; r < 4; ++r)
      for (int i = 0; i < 32 / bits; ++i) {
        const At at = place_a(bits, thread, r, i);
        registers[r * kThreads + thread] |= static_cast<std::uint32_t>(a.at(at.row, at.column))
                                            << bits * i;
      }
    const bool halves = p.d == "f16";
    for (int r = 0; r < p.registers(); ++r)
      for (int i = 0; i < (halves ? 2 : 1); ++i) {
        const At at = place_d(halves, thread, r, i);
        registers[(4 + r) * kThreads + thread] |=
            static_cast<std::uint32_t>(c.at(at.row, at.column)) << 16 * i;
      }
  }
  return in;
}

// The bits that an element of D must have: one fused multiply-add after the other, k rising.
std::uint64_t wanted(const Product& p, const Numbers& a, const Numbers& b, const Numbers& c,
                     int row, const Columns& columns, int column) {
  const std::vector<int>& ks = columns[row];
  if (p.floating()) {
    const float sign = p.scale_a * p.scale_b < 0 ? -1.f : 1.f;
    float sum = p.accumulates ? static_cast<float>(c.at(row, column)) : 0.f;
    for (int i = 0; i < p.kept(); ++i)
      sum = std::fma(sign * static_cast<float>(a.at(row, i)),
                     static_cast<float>(b.at(ks[i], column)), sum);
    return p.d == "f16" ? half_from_float(sum) : std::bit_cast<std::uint32_t>(canonical(sum));
  }
  double sum = p.accumulates ? c.at(row, column) : 0;
  for (int i = 0; i < p.kept(); ++i) sum += a.at(row, i) * b.at(ks[i], column);
  if (p.saturate) sum = std::min(std::max(sum, -0x1p31), 0x1p31 - 1);
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(sum));
}

int wrong_elements(Gpu& gpu, const Product& p, const Matrix& a, const Matrix& b, const Matrix& c,
                   const Columns& columns) {
  const auto out = gpu.array<std::uint32_t>(std::size_t{128} * kThreads);
  const auto in = gpu.array<std::uint32_t>(image_of(p, a, b, c, columns));
  const LaunchOutcome outcome = gpu.launch(for_warpgroups(kernel(body_of(p), kOperands)),
                                           {out.address(), in.address()}, {kThreads, 1, 1});
  REQUIRE(outcome.fault.message == "");
  const Numbers of_a(p.a, a), of_b(p.b, b), of_c(p.d, c);
  int wrong = 0;
  const bool halves = p.d == "f16";
  for (int thread = 0; thread < kThreads; ++thread)
    for (int r = 0; r < p.registers(); ++r)
      for (int i = 0; i < (halves ? 2 : 1); ++i) {
        const At at = place_d(halves, thread, r, i);
        const std::uint32_t word = out[static_cast<std::size_t>(r) * kThreads + thread];
        wrong += (halves ? word >> 16 * i & 0xffff : word) !=
                 wanted(p, of_a, of_b, of_c, at.row, columns, at.column);
      }
  gpu.machine.memory().release(out.address());
  gpu.machine.memory().release(in.address());
  return wrong;
}

void check(Gpu& gpu, const Product& p, std::mt19937& random, bool any_numbers = false) {
  CAPTURE(p.name());
  INFO("A: " << p.of_a.text() << std::string(p.a_in_registers ? ", in registers" : "")
             << "; B: " << p.of_b.text());
  const auto code = [&](const std::string& type) {
    return [&, type] {
      return any_numbers ? any_code(type, random)
                         : encode(type, small_value(type == "s32" ? "s8" : type, random));
    };
  };
  const Matrix a(kProductRows, p.kept(), code(p.a)), b(p.k(), p.n, code(p.b)),
      c(kProductRows, p.n, code(p.d));
  CHECK(wrong_elements(gpu, p, a, b, c, choose_columns(p, random)) == 0);
}

// Fills in what the test does not care about.
void choose(Product& p, std::mt19937& random) {
  constexpr int kSwizzles[] = {0, 32, 64, 128};
  for (Layout* l : {&p.of_a, &p.of_b}) {
    l->swizzle = kSwizzles[random() % 4];
    l->mn_major = bits_of(p.a) == 16 && random() % 2;
  }
  p.a_in_registers = random() % 3 == 0;
  p.accumulates = random() % 4 != 0;
  if (p.floating()) {
    p.scale_a = random() % 3 ? 1 : -1;
    p.scale_b = random() % 3 ? 1 : -1;
  }
}
void choose_sparse(Product& p, std::mt19937& random) {
  choose(p, random);
  p.sparse = true;
  p.selector = bits_of(p.a) == 8 ? 0 : static_cast<int>(random() % 2);
  if (p.of_b.swizzle == 32 && !p.of_b.mn_major) p.of_b.swizzle = 64;  // see the last test
}
void place(Product& p, std::mt19937& random) {
  const int end = choose_layout(p.of_a, kProductRows, 2, 0, random);
  choose_layout(p.of_b, p.n, p.sparse ? 4 : 2, end, random);
}

}  // namespace

TEST_CASE("forms: wgmma of every n and type gives the products of plain matrices") {
  Gpu gpu;
  std::mt19937 random(7);
  const char* const f8[] = {"e4m3", "e5m2"};
  const char* const i8[] = {"s8", "u8"};
  for (int n = 8, i = 0; n <= 256; n += 8, ++i) {
    std::vector<Product> all = {types("f32", "f16", "f16"), types("f16", "f16", "f16"),
                                types("f32", "bf16", "bf16"), types("f32", "tf32", "tf32"),
                                types(i / 4 % 2 ? "f16" : "f32", f8[i % 2], f8[i / 2 % 2])};
    if (n <= 32 || n % 16 == 0) {
      all.push_back(types("s32", i8[i % 2], i8[i / 2 % 2]));
      all.back().saturate = random() % 2;
      all.push_back(types("s32", "b1", "b1"));
    }
    for (Product& p : all) {
      p.n = n;
      choose(p, random);
      place(p, random);
      check(gpu, p, random);
    }
  }
}

TEST_CASE("forms: wgmma reads operands of every swizzle, K-major and MN-major, at any place") {
  Gpu gpu;
  std::mt19937 random(8);
  for (const int swizzle_a : {0, 32, 64, 128})
    for (const int swizzle_b : {0, 32, 64, 128})
      for (int major = 0; major < 4; ++major) {
        Product p;
        p.n = 8 * static_cast<int>(1 + random() % 16);
        p.of_a.swizzle = swizzle_a, p.of_a.mn_major = major & 1;
        p.of_b.swizzle = swizzle_b, p.of_b.mn_major = major & 2;
        place(p, random);
        check(gpu, p, random);
      }
  // Patterns that do not begin where the address is a multiple of their size.
  for (const int swizzle : {32, 64, 128})
    for (int base = 0; base < 8; ++base) {
      Product p;
      p.n = 40;
      p.of_a.swizzle = p.of_b.swizzle = swizzle;
      place(p, random);
      p.of_b.start = (p.of_b.start + 1023) / 1024 * 1024 + 128 * base;
      p.of_b.base = base;
      check(gpu, p, random);
    }
}

TEST_CASE("forms: wgmma's sums are exact products added in fp32, k rising, bit for bit") {
  Gpu gpu;
  std::mt19937 random(9);
  for (int turn = 0; turn < 4; ++turn)
    for (Product p :
         {types("f32", "f16", "f16"), types("f16", "f16", "f16"), types("f32", "bf16", "bf16"),
          types("f32", "tf32", "tf32"), types("f32", "e4m3", "e5m2"), types("f16", "e5m2", "e4m3"),
          types("s32", "s8", "u8"), types("s32", "u8", "s8")}) {
      p.n = 24;
      p.saturate = p.d == "s32" && turn % 2;
      choose(p, random);
      place(p, random);
      check(gpu, p, random, true);
    }
}

TEST_CASE("forms: wgmma with a sparse A multiplies what the metadata say is there") {
  Gpu gpu;
  std::mt19937 random(10);
  const char* const f8[] = {"e4m3", "e5m2"};
  const char* const i8[] = {"s8", "u8"};
  for (int n = 8, i = 0; n <= 256; n += 8, ++i) {
    std::vector<Product> all = {types("f32", "f16", "f16"), types("f16", "f16", "f16"),
                                types("f32", "bf16", "bf16"), types("f32", "tf32", "tf32"),
                                types(i / 4 % 2 ? "f16" : "f32", f8[i % 2], f8[i / 2 % 2])};
    if (n <= 32 || n % 16 == 0) {
      all.push_back(types("s32", i8[i % 2], i8[i / 2 % 2]));
      all.back().saturate = random() % 2;
    }
    for (Product& p : all) {
      p.n = n;
      choose_sparse(p, random);
      place(p, random);
      check(gpu, p, random, n % 3 == 0);  // an infinite B that meets no element is left out
    }
  }
}

TEST_CASE("forms: wgmma with a sparse A that has no meaning is refused") {
  Gpu gpu;
  std::mt19937 random(11);
  // `row`: both kept elements of its chunk 2 stand in one column.
  const auto fault = [&](Product p, int row = -1, int value = 1) {
    p.sparse = true;
    if (!p.of_a.start) place(p, random);
    Columns columns = choose_columns(p, random);
    if (row >= 0) columns[row][4] = columns[row][5] = 9;
    const Matrix a(kProductRows, p.kept(), [&] { return encode(p.a, value); });
    const Matrix b(p.k(), p.n, [&] { return encode(p.b, 1); }),
        c(kProductRows, p.n, [&] { return std::uint64_t{0}; });
    const auto in = gpu.array<std::uint32_t>(image_of(p, a, b, c, columns));
    const auto out = gpu.array<std::uint32_t>(std::size_t{128} * kThreads);
    return gpu
        .launch(for_warpgroups(kernel(body_of(p), kOperands)), {out.address(), in.address()},
                {kThreads, 1, 1})
        .fault.message;
  };
  Product p = types("f32", "f16", "f16");
  p.of_b.swizzle = 128;
  CHECK(fault(p) == "");
  const std::string same = fault(p, 21);
  CHECK(
      same.find("the metadata of a sparse A are 5 for chunk 2 of row 21, where the two places must "
                "differ, executed by thread (52,0,0)") != same.npos);
  CHECK(fault(p, 21, 0) == "");  // zeros there are what fills up the edge of a matrix
  // K-major B with lines of 32 bytes, of which it needs 64.
  p.of_b.swizzle = 32;
  p.of_b.stride = 256;
  p.of_a.start = 4096;
  const std::string narrow = fault(p);
  CHECK(narrow.find("K-major B of a sparse product, 64 bytes along K, with a swizzle of 32 bytes "
                    "(descriptor 0xc0") != narrow.npos);
  p = types("f32", "e4m3", "e4m3");
  p.selector = 1;
  CHECK(fault(p).find("the sparsity selector is 1 and must be 0 for types of 8 bits") !=
        std::string::npos);
}
