// Matrix instructions against products of plain matrices on the host. Which lane holds which element
// is stated here shape by shape, as the PTX ISA lists it ("Matrix Fragments for mma"), and not by the
// one formula of ops/tiles.h. Values are small integers, so that results are exact, but where sums of any
// numbers are compared bit for bit.
// Longer than 600 lines: PTX stands one instruction a line.
#include <algorithm>
#include <cmath>
#include <random>

#include "../ops/half.h"
#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

struct At {
  int row, column;
};

// ---- numbers --------------------------------------------------------------------------------

std::uint64_t encode(const std::string& type, int v) {
  const auto f = static_cast<float>(v);
  if (type == "f16") return half_from_float(f);
  if (type == "bf16") return std::bit_cast<std::uint32_t>(f) >> 16;
  if (type == "f32" || type == "tf32") return std::bit_cast<std::uint32_t>(f);
  if (type == "f64") return std::bit_cast<std::uint64_t>(static_cast<double>(v));
  // 0, 1, 2, 3, 4 in OCP fp8.
  constexpr int e4m3[] = {0x00, 0x38, 0x40, 0x44, 0x48}, e5m2[] = {0x00, 0x3c, 0x40, 0x42, 0x44};
  if (type == "e4m3") return static_cast<std::uint64_t>(e4m3[std::abs(v)] | (v < 0 ? 0x80 : 0));
  if (type == "e5m2") return static_cast<std::uint64_t>(e5m2[std::abs(v)] | (v < 0 ? 0x80 : 0));
  return static_cast<std::uint32_t>(v);
}
double decode(const std::string& type, std::uint64_t bits) {
  if (type == "f16") return float_from_half(static_cast<std::uint16_t>(bits));
  if (type == "f32") return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  if (type == "f64") return std::bit_cast<double>(bits);
  return static_cast<std::int32_t>(bits);
}
int bits_of(const std::string& type) {
  if (type == "f64") return 64;
  if (type == "f16" || type == "bf16") return 16;
  if (type == "s8" || type == "u8" || type == "e4m3" || type == "e5m2") return 8;
  if (type == "s4" || type == "u4") return 4;
  return 32;
}
// A small number that the type holds.
int value(const std::string& type, unsigned seed) {
  const int v = static_cast<int>(seed * 2654435761u >> 20 & 7);  // 0..7
  if (type[0] == 'u') return v;
  return v % 5 - (v > 4 ? 4 : 0);  // -4..4
}

struct Matrix {
  int rows, columns;
  std::vector<int> v;
  Matrix(int r, int c, const std::string& type, unsigned seed)
      : rows(r), columns(c), v(static_cast<std::size_t>(r) * c) {
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = value(type, seed + static_cast<unsigned>(i) * 7 + 1);
  }
  int at(int r, int c) const { return v[static_cast<std::size_t>(r) * columns + c]; }
};

// ---- fragments of mma, as the ISA lists them ------------------------------------------------

At place_a(const std::string& type, int m, int k, int g, int t, int i) {
  switch (bits_of(type)) {
    case 64:
      if (m == 8) return {g, t};
      if (k == 4) return {i == 0 ? g : g + 8, t};
      if (k == 8) return {i == 0 || i == 2 ? g : g + 8, i < 2 ? t : t + 4};
      return {i % 2 == 0 ? g : g + 8, i % 2 == 0 ? i * 2 + t : i * 2 - 2 + t};
    case 32:
      if (k == 4) return {i == 0 ? g : g + 8, t};
      return {i == 0 || i == 2 ? g : g + 8, i < 2 ? t : t + 4};
    case 16:
      if (k == 8) return {i < 2 ? g : g + 8, t * 2 + (i & 1)};
      return {i < 2 || (i >= 4 && i < 6) ? g : g + 8,
              i < 4 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8};
    case 8:
      if (m == 8) return {g, t * 4 + i};
      if (k == 16) return {i < 4 ? g : g + 8, t * 4 + (i & 3)};
      return {i < 4 || (i >= 8 && i < 12) ? g : g + 8,
              i < 8 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16};
    default:
      if (m == 8) return {g, t * 8 + i};
      if (k == 32) return {i < 8 ? g : g + 8, t * 8 + (i & 7)};
      return {i < 8 || (i >= 16 && i < 24) ? g : g + 8,
              i < 16 ? t * 8 + (i & 7) : t * 8 + (i & 7) + 32};
  }
}
At place_b(const std::string& type, int k, int g, int t, int i) {
  switch (bits_of(type)) {
    case 64:
      return {k == 4 ? t : k == 8 ? (i == 0 ? t : t + 4) : t + i * 4, g};
    case 32:
      return {i == 0 ? t : t + 4, g};
    case 16:
      return {i < 2 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8, g};
    case 8:
      return {i < 4 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16, g};
    default:
      return {i < 8 ? t * 8 + (i & 7) : t * 8 + (i & 7) + 32, g};
  }
}
At place_c(int m, int g, int t, int i) {
  if (m == 8) return {g, t * 2 + (i & 1)};
  return {i < 2 ? g : g + 8, t * 2 + (i & 1)};
}

// Words of one operand, [lane][register] of 32 bits (f64: two words each), from the bits of elements.
template <class F>
std::vector<std::uint32_t> coded_fragment(const std::string& type, int elements, F code_at) {
  const int bits = bits_of(type), words = elements * bits / 32;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(32) * words);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < elements; ++i) {
      const std::uint64_t code = code_at(lane / 4, lane % 4, i);
      const std::size_t base = static_cast<std::size_t>(lane) * words;
      if (bits == 64) {
        out[base + 2 * i] = static_cast<std::uint32_t>(code);
        out[base + 2 * i + 1] = static_cast<std::uint32_t>(code >> 32);
      } else {
        const int per = 32 / bits;
        const std::uint64_t part = bits == 32 ? code : code & ((1ull << bits) - 1);
        out[base + i / per] |= static_cast<std::uint32_t>(part << (bits * (i % per)));
      }
    }
  return out;
}

// The same from small integers.
template <class F>
std::vector<std::uint32_t> fragment(const std::string& type, int elements, F value_at) {
  return coded_fragment(type, elements,
                        [&](int g, int t, int i) { return encode(type, value_at(g, t, i)); });
}

std::string text(const char* format, int a, int b = 0) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, format, a, b);
  return buffer;
}

// Loads `words` per lane from `from` + offset into registers starting at `first`; braces for the operand.
struct Operand {
  std::string load, list;
};
Operand operand(const std::string& type, int words, int first, int byte_offset) {
  Operand o;
  o.load += text(
      "mad.lo.u32 %%r98, %%lane, %d, %d; cvt.u64.u32 %%rd50, %%r98; add.u64 %%rd50, %%rd50, "
      "%%in;\n",
      words * 4, byte_offset);
  const bool wide = type == "f64";
  for (int i = 0; i < (wide ? words / 2 : words); ++i) {
    o.load += wide ? text("ld.global.f64 %%fd%d, [%%rd50+%d];\n", first + i, 8 * i)
                   : text("ld.global.u32 %%r%d, [%%rd50+%d];\n", first + i, 4 * i);
    o.list += (i ? ", " : "") + text(wide ? "%%fd%d" : "%%r%d", first + i);
  }
  // Fragments of fp32 numbers are .f32 registers.
  o.list = "{" + o.list + "}";
  return o;
}

// D's words, [lane][register], of one mma of these fragments.
std::vector<std::uint32_t> run_mma(Gpu& gpu, const std::string& name, const std::string& d,
                                   const std::string& a, const std::string& b, const std::string& c,
                                   int nc, const std::vector<std::uint32_t>& fa,
                                   const std::vector<std::uint32_t>& fb,
                                   const std::vector<std::uint32_t>& fc) {
  std::vector<std::uint32_t> in = fa;
  in.insert(in.end(), fb.begin(), fb.end());
  in.insert(in.end(), fc.begin(), fc.end());
  const int wa = static_cast<int>(fa.size()) / 32, wb = static_cast<int>(fb.size()) / 32,
            wc = static_cast<int>(fc.size()) / 32;
  const int wd = nc * bits_of(d) / 32;
  const Operand oa = operand(a, wa, 0, 0), ob = operand(b, wb, 8, static_cast<int>(fa.size()) * 4),
                oc = operand(c, wc, a == "f64" ? 12 : 16,
                             static_cast<int>(fa.size() + fb.size()) * 4);
  std::string body = oa.load + ob.load + oc.load, list;
  const bool wide = d == "f64";
  for (int i = 0; i < (wide ? wd / 2 : wd); ++i)
    list += (i ? ", " : "") + text(wide ? "%%fd%d" : "%%r%d", (wide ? 16 : 40) + i);
  body += name + " {" + list + "}, " + oa.list + ", " + ob.list + ", " + oc.list + ";\n";
  body += text(
      "mul.lo.u32 %%r98, %%lane, %d; cvt.u64.u32 %%rd50, %%r98; add.u64 %%rd50, %%rd50, %%out;\n",
      wd * 4);
  for (int i = 0; i < (wide ? wd / 2 : wd); ++i)
    body += wide ? text("st.global.f64 [%%rd50+%d], %%fd%d;\n", 8 * i, 16 + i)
                 : text("st.global.u32 [%%rd50+%d], %%r%d;\n", 4 * i, 40 + i);
  return gpu.run(body, static_cast<std::size_t>(32) * wd, in);
}
// Element i of a lane's part of D.
std::uint64_t code_of(const std::vector<std::uint32_t>& out, const std::string& d, int lane,
                      int i) {
  const std::size_t base = out.size() / 32 * static_cast<std::size_t>(lane);
  if (d == "f64")
    return out[base + 2 * i] | static_cast<std::uint64_t>(out[base + 2 * i + 1]) << 32;
  if (d == "f16") return out[base + i / 2] >> (16 * (i % 2)) & 0xffff;
  return out[base + i];
}

void check_mma(Gpu& gpu, const std::string& name, int m, int n, int k, const std::string& d,
               const std::string& a, const std::string& b, const std::string& c) {
  CAPTURE(name);
  const Matrix A(m, k, a, 3), B(k, n, b, 1000), C(m, n, c == "s32" ? "s8" : "f16", 5000);
  const int na = m * k / 32, nb = k * n / 32, nc = m * n / 32;
  const auto fa = fragment(a, na, [&](int g, int t, int i) {
    const At p = place_a(a, m, k, g, t, i);
    return A.at(p.row, p.column);
  });
  const auto fb = fragment(b, nb, [&](int g, int t, int i) {
    const At p = place_b(b, k, g, t, i);
    return B.at(p.row, p.column);
  });
  const auto fc = fragment(c, nc, [&](int g, int t, int i) {
    const At p = place_c(m, g, t, i);
    return C.at(p.row, p.column);
  });
  const auto out = run_mma(gpu, name, d, a, b, c, nc, fa, fb, fc);
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < nc; ++i) {
      const At p = place_c(m, lane / 4, lane % 4, i);
      long want = C.at(p.row, p.column);
      for (int q = 0; q < k; ++q) want += static_cast<long>(A.at(p.row, q)) * B.at(q, p.column);
      wrong += decode(d, code_of(out, d, lane, i)) != static_cast<double>(want);
    }
  CHECK(wrong == 0);
}

// ---- sums, bit for bit ------------------------------------------------------------------------

// Bits of any number of the type, most of them of a size that leaves its mark in a sum.
std::uint64_t any_code(const std::string& type, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if (bits >> 57 == 0) return bits & (~0ull >> (64 - bits_of(type)));
  if (type == "f16") return (bits & 0x83ff) | (10 + (bits >> 16) % 10) << 10;
  if (type == "bf16") return (bits & 0x807f) | (120 + (bits >> 16) % 12) << 7;
  if (type == "f32" || type == "tf32") return (bits & 0x807fffff) | (120 + (bits >> 32) % 12) << 23;
  if (type == "f64") return (bits & 0x800fffffffffffff) | (1020 + (bits >> 52) % 12) << 52;
  if (type == "e4m3") return (bits & 0x87) | (bits >> 8) % 15 << 3;
  if (type == "e5m2") return (bits & 0x83) | (8 + (bits >> 8) % 12) << 2;
  if (type == "s32") return bits >> 32;
  return bits & (~0ull >> (64 - bits_of(type)));
}
double number(const std::string& type, std::uint64_t code) {
  const auto word = static_cast<std::uint32_t>(code);
  if (type == "bf16") return std::bit_cast<float>(word << 16);
  if (type == "tf32") return std::bit_cast<float>(word & ~0x1fffu);
  if (type == "e4m3") return float_from_e4m3(static_cast<std::uint8_t>(word));
  if (type == "e5m2") return float_from_e5m2(static_cast<std::uint8_t>(word));
  if (type == "s8") return static_cast<std::int8_t>(word);
  if (type == "s4") return static_cast<std::int32_t>(word << 28) >> 28;
  if (type == "u8" || type == "u4") return word;
  return decode(type, code);
}

// A product of arbitrary numbers is one fused multiply-add after the other, k rising; NaN is NaN.
void check_sums(Gpu& gpu, const std::string& rest, int m, int n, int k, const std::string& d,
                const std::string& a, const std::string& b, unsigned seed) {
  const std::string name = "mma.sync.aligned" + text(".m%dn%d", m, n) + text("k%d", k) +
                           ".row.col." + rest + d + "." + a + "." + b + "." + d;
  CAPTURE(name);
  std::mt19937_64 random(seed);
  const auto codes = [&](const std::string& type, int count) {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(count));
    for (auto& code : all) code = any_code(type, random);
    return all;
  };
  const auto A = codes(a, m * k), B = codes(b, k * n), C = codes(d, m * n);
  const int nc = m * n / 32;
  const auto out = run_mma(gpu, name, d, a, b, d, nc,
                           coded_fragment(a, m * k / 32,
                                          [&](int g, int t, int i) {
                                            const At p = place_a(a, m, k, g, t, i);
                                            return A[p.row * k + p.column];
                                          }),
                           coded_fragment(b, k * n / 32,
                                          [&](int g, int t, int i) {
                                            const At p = place_b(b, k, g, t, i);
                                            return B[p.row * n + p.column];
                                          }),
                           coded_fragment(d, nc, [&](int g, int t, int i) {
                             const At p = place_c(m, g, t, i);
                             return C[p.row * n + p.column];
                           }));
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < nc; ++i) {
      const At p = place_c(m, lane / 4, lane % 4, i);
      const std::uint64_t got = code_of(out, d, lane, i), c = C[p.row * n + p.column];
      const auto sum_of = [&](auto sum) {
        for (int q = 0; q < k; ++q)
          sum = static_cast<decltype(sum)>(
              std::fma(static_cast<decltype(sum)>(number(a, A[p.row * k + q])),
                       static_cast<decltype(sum)>(number(b, B[q * n + p.column])), sum));
        return sum;
      };
      if (d == "f64") {
        const double want = sum_of(number(d, c)), found = std::bit_cast<double>(got);
        wrong += std::isnan(want) ? !std::isnan(found) : std::bit_cast<std::uint64_t>(want) != got;
      } else if (d == "s32") {
        double want = sum_of(number(d, c));
        if (!rest.empty()) want = std::clamp(want, -0x1p31, 0x1p31 - 1);
        wrong += static_cast<std::uint32_t>(static_cast<std::int64_t>(want)) != got;
      } else {
        const float want = sum_of(static_cast<float>(number(d, c)));
        wrong += d == "f16" ? half_from_float(want) != got
                            : std::bit_cast<std::uint32_t>(canonical(want)) != got;
      }
    }
  CHECK(wrong == 0);
}

// ---- wmma -----------------------------------------------------------------------------------

struct Wmma {
  int m, n, k;
  std::string a, b, c, d;  // types
  std::string name;        // what follows "wmma.mma.sync.aligned.LAYOUT.LAYOUT."
};

std::vector<std::uint32_t> packed(const Matrix& x, const std::string& type, bool row_major) {
  const int bits = bits_of(type);
  std::vector<std::uint32_t> out((x.v.size() * bits + 31) / 32);
  for (int r = 0; r < x.rows; ++r)
    for (int c = 0; c < x.columns; ++c) {
      const std::size_t i = row_major ? static_cast<std::size_t>(r) * x.columns + c
                                      : static_cast<std::size_t>(c) * x.rows + r;
      const std::uint64_t code = encode(type, x.at(r, c));
      if (bits == 64)
        out[2 * i] = static_cast<std::uint32_t>(code),
                out[2 * i + 1] = static_cast<std::uint32_t>(code >> 32);
      else
        out[i * bits / 32] |= static_cast<std::uint32_t>(
            (bits == 32 ? code : code & ((1ull << bits) - 1)) << (i * bits % 32));
    }
  return out;
}

std::string registers(const std::string& type, int count, int first) {
  std::string list;
  for (int i = 0; i < count; ++i)
    list += (i ? ", " : "") + text(type == "f64" ? "%%fd%d" : "%%r%d", first + i);
  return "{" + list + "}";
}
int fragment_registers(const std::string& type, int elements, bool operand) {
  if (operand && type == "f16") return 8;
  return std::max(1, type == "f64" ? elements / 32 : elements * bits_of(type) / 32 / 32);
}

// A, B and C from memory in the given orders and space, D back: whatever the fragments look like.
void check_wmma(Gpu& gpu, const Wmma& w, bool a_row, bool b_row, bool c_row,
                const std::string& space) {
  const auto order = [](bool row) { return std::string(row ? ".row" : ".col"); };
  const std::string shape = text(".m%dn%d", w.m, w.n) + text("k%d", w.k);
  const std::string mma = "wmma.mma.sync.aligned" + order(a_row) + order(b_row) + "." + w.name;
  CAPTURE(mma);
  CAPTURE(space);
  const Matrix A(w.m, w.k, w.a, 11), B(w.k, w.n, w.b, 2000),
      C(w.m, w.n, w.c == "s32" ? "s8" : "f16", 9000);
  const auto pa = packed(A, w.a, a_row), pb = packed(B, w.b, b_row), pc = packed(C, w.c, c_row);
  std::vector<std::uint32_t> in = pa;
  in.insert(in.end(), pb.begin(), pb.end());
  in.insert(in.end(), pc.begin(), pc.end());
  std::string body, base = "%rd40";
  if (space.find("shared") != space.npos) {
    for (std::size_t i = 0; i < (in.size() + 31) / 32; ++i)
      body += text(
                  "mad.lo.u32 %%r98, %%lane, 4, %d; cvt.u64.u32 %%rd50, %%r98; add.u64 %%rd51, "
                  "%%rd50, %%in;\n",
                  static_cast<int>(i) * 128) +
              "ld.global.u32 %r97, [%rd51]; mov.u64 %rd52, tile; add.u64 %rd52, %rd52, %rd50; "
              "st.shared.u32 [%rd52], %r97;\n";
    body += "bar.warp.sync 0xffffffff; mov.u64 %rd40, tile;\n";
    in.resize((in.size() + 31) / 32 * 32);
  } else if (space.empty()) {
    body += "cvta.global.u64 %rd40, %in;\n";
  } else {
    body += "mov.u64 %rd40, %in;\n";
  }
  const auto lead = [](const Matrix& x, bool row) { return row ? x.columns : x.rows; };
  const auto load = [&](const char* role, bool row, const std::string& type,
                        const std::string& list, int offset, int stride) {
    return "wmma.load." + std::string(role) + ".sync.aligned" + order(row) + shape + space + "." +
           type + " " + list + ", [" + base + text("+%d], %d;\n", offset, stride);
  };
  const int ra = fragment_registers(w.a, w.m * w.k, true),
            rb = fragment_registers(w.b, w.k * w.n, true),
            rc = fragment_registers(w.c, w.m * w.n, false),
            rd = fragment_registers(w.d, w.m * w.n, false);
  const std::string la = registers(w.a, ra, 0), lb = registers(w.b, rb, w.b == "f64" ? 4 : 16),
                    lc = registers(w.c, rc, w.c == "f64" ? 8 : 32),
                    ld = registers(w.d, rd, w.d == "f64" ? 12 : 50);
  body += load("a", a_row, w.a, la, 0, lead(A, a_row)) +
          load("b", b_row, w.b, lb, static_cast<int>(pa.size()) * 4, lead(B, b_row)) +
          load("c", c_row, w.c, lc, static_cast<int>(pa.size() + pb.size()) * 4, lead(C, c_row)) +
          mma + " " + ld + ", " + la + ", " + lb + ", " + lc + ";\n";
  std::string target = "%out", store_space = space;
  if (space.find("shared") != space.npos) target = "%rd40";
  if (space.empty()) body += "cvta.global.u64 %rd41, %out;\n", target = "%rd41";
  body += "wmma.store.d.sync.aligned" + order(c_row) + shape + store_space + "." + w.d + " [" +
          target + "], " + ld + ", " + std::to_string(c_row ? w.n : w.m) + ";\n";
  const std::size_t out_words = static_cast<std::size_t>(w.m) * w.n * bits_of(w.d) / 32;
  if (space.find("shared") != space.npos) {
    body += "bar.warp.sync 0xffffffff;\n";
    for (std::size_t i = 0; i < out_words / 32; ++i)
      body += text(
                  "mad.lo.u32 %%r98, %%lane, 4, %d; cvt.u64.u32 %%rd50, %%r98; add.u64 %%rd51, "
                  "%%rd50, %%out;\n",
                  static_cast<int>(i) * 128) +
              "mov.u64 %rd52, tile; add.u64 %rd52, %rd52, %rd50; ld.shared.u32 %r97, [%rd52]; "
              "st.global.u32 [%rd51], %r97;\n";
  }
  const auto out =
      gpu.run(body, out_words, in, {32, 1, 1}, {1, 1, 1}, ".shared .align 32 .b8 tile[8192];\n");
  int wrong = 0;
  for (int r = 0; r < w.m; ++r)
    for (int c = 0; c < w.n; ++c) {
      long want = C.at(r, c);
      for (int q = 0; q < w.k; ++q) want += static_cast<long>(A.at(r, q)) * B.at(q, c);
      const std::size_t i =
          c_row ? static_cast<std::size_t>(r) * w.n + c : static_cast<std::size_t>(c) * w.m + r;
      const int bits = bits_of(w.d);
      const std::uint64_t code = bits == 64
                                     ? out[2 * i] | static_cast<std::uint64_t>(out[2 * i + 1]) << 32
                                 : bits == 16 ? out[i / 2] >> (16 * (i % 2)) & 0xffff
                                              : out[i];
      wrong += decode(w.d, code) != static_cast<double>(want);
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("matrices: mma.sync, every shape and type") {
  Gpu gpu;
  const auto run = [&](int m, int n, int k, const std::string& rest, const std::string& d,
                       const std::string& a, const std::string& b, const std::string& c) {
    check_mma(gpu,
              "mma.sync.aligned" + text(".m%dn%d", m, n) + text("k%d", k) + ".row.col." + rest + d +
                  "." + a + "." + b + "." + c,
              m, n, k, d, a, b, c);
  };
  for (int k : {8, 16}) {
    for (const char* d : {"f16", "f32"}) run(16, 8, k, "", d, "f16", "f16", d);
    run(16, 8, k, "", "f32", "bf16", "bf16", "f32");
  }
  for (int k : {4, 8}) run(16, 8, k, "", "f32", "tf32", "tf32", "f32");
  for (const char* a : {"s8", "u8"})
    for (const char* b : {"s8", "u8"})
      for (const char* rest : {"", "satfinite."}) {
        run(8, 8, 16, rest, "s32", a, b, "s32");
        run(16, 8, 16, rest, "s32", a, b, "s32");
        run(16, 8, 32, rest, "s32", a, b, "s32");
      }
  for (const char* a : {"s4", "u4"})
    for (const char* b : {"s4", "u4"})
      for (const char* rest : {"", "satfinite."}) {
        run(8, 8, 32, rest, "s32", a, b, "s32");
        run(16, 8, 32, rest, "s32", a, b, "s32");
        run(16, 8, 64, rest, "s32", a, b, "s32");
      }
  for (const char* a : {"e4m3", "e5m2"})
    for (const char* b : {"e4m3", "e5m2"})
      for (int k : {16, 32}) run(16, 8, k, "", "f32", a, b, "f32");
  run(8, 8, 4, "", "f64", "f64", "f64", "f64");
  for (int k : {4, 8, 16}) run(16, 8, k, k == 8 ? "rn." : "", "f64", "f64", "f64", "f64");
}

TEST_CASE("matrices: sums are made of fused multiply-adds in the order of k, to the last bit") {
  Gpu gpu;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    for (int k : {8, 16}) {
      for (const char* d : {"f16", "f32"}) check_sums(gpu, "", 16, 8, k, d, "f16", "f16", seed);
      check_sums(gpu, "", 16, 8, k, "f32", "bf16", "bf16", seed);
      check_sums(gpu, "", 16, 8, k / 2, "f32", "tf32", "tf32", seed);
      for (const char* a : {"e4m3", "e5m2"})
        for (const char* b : {"e4m3", "e5m2"}) check_sums(gpu, "", 16, 8, 2 * k, "f32", a, b, seed);
    }
    check_sums(gpu, "", 8, 8, 4, "f64", "f64", "f64", seed);
    for (int k : {4, 8, 16}) check_sums(gpu, "", 16, 8, k, "f64", "f64", "f64", seed);
    for (const char* rest : {"", "satfinite."})
      for (const char* sign : {"s", "u"})
        for (int bits : {8, 4}) {
          const std::string type = sign + std::to_string(bits);
          check_sums(gpu, rest, 16, 8, 256 / bits, "s32", type, "s" + std::to_string(bits), seed);
        }
  }
}

// fp32 numbers as operands of tf32: the 10 upper bits of the mantissa count, the others do not; the
// accumulators keep all of theirs.
TEST_CASE("matrices: tf32 operands have 10 bits of mantissa") {
  Gpu gpu;
  const std::uint32_t one = 0x3f800000, uneven = 0x3f803fff,
                      sum_of_eight = 0x41002000;  // 8 (1 + 2^-10)
  for (const bool in_a : {true, false}) {
    const std::uint32_t a = in_a ? uneven : one, b = in_a ? one : uneven;
    const std::string set = "mov.b32 %r1, " + std::to_string(a) + "; mov.b32 %r2, " +
                            std::to_string(b) + "; mov.f32 %f9, 0f00000000; ";
    CHECK_SAME(
        gpu.run(
            set + "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4}, "
                  "{%r1,%r1,%r1,%r1}, {%r2,%r2}, "
                  "{%f9,%f9,%f9,%f9}; st.global.f32 [%mine], %f1; st.global.f32 [%mine+128], %f4;",
            64),
        std::vector<std::uint32_t>(64, sum_of_eight));
    CHECK_SAME(gpu.run(set + "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32 "
                             "{%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, "
                             "{%r1,%r1,%r1,%r1}, {%r2,%r2,%r2,%r2}, "
                             "{%f9,%f9,%f9,%f9,%f9,%f9,%f9,%f9}; st.global.f32 [%mine], %f1; "
                             "st.global.f32 [%mine+128], %f8;",
                       64),
               std::vector<std::uint32_t>(64, sum_of_eight));
  }
  CHECK_SAME(
      gpu.run(
          "mov.b32 %f9, " + std::to_string(uneven) +
          "; mov.b32 %r1, 0; mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 "
          "{%f1,%f2,%f3,%f4}, {%r1,%r1}, {%r1}, {%f9,%f9,%f9,%f9}; st.global.f32 [%mine], %f1;"),
      std::vector<std::uint32_t>(32, uneven));
}

TEST_CASE("matrices: wmma, every shape, type, order and space") {
  Gpu gpu;
  std::vector<Wmma> all;
  for (auto [m, n] : {std::pair{16, 16}, {32, 8}, {8, 32}}) {
    const std::string shape = text("m%dn%d", m, n) + "k16.";
    for (const char* d : {"f16", "f32"})
      for (const char* c : {"f16", "f32"}) {
        all.push_back({m, n, 16, "f16", "f16", c, d, shape + d + "." + c});
        all.push_back({m, n, 16, "f16", "f16", c, d, shape + d + "." + c + ".satfinite"});
      }
    all.push_back({m, n, 16, "bf16", "bf16", "f32", "f32", shape + "f32.bf16.bf16.f32"});
    for (const char* t : {"s8", "u8"})
      for (const char* sat : {"", ".satfinite"})
        all.push_back({m, n, 16, t, t, "s32", "s32", shape + "s32." + t + "." + t + ".s32" + sat});
  }
  all.push_back({16, 16, 8, "tf32", "tf32", "f32", "f32", "m16n16k8.f32.tf32.tf32.f32"});
  all.push_back({8, 8, 4, "f64", "f64", "f64", "f64", "m8n8k4.f64.f64.f64.f64"});
  all.push_back({8, 8, 4, "f64", "f64", "f64", "f64", "m8n8k4.rn.f64.f64.f64.f64"});
  all.push_back({8, 8, 4, "f64", "f64", "f64", "f64", "m8n8k4.f64.f64.f64.f64.rn"});
  int turn = 0;
  const char* spaces[] = {".global", ".shared", "", ".shared::cta"};
  for (const Wmma& w : all) {
    Mods mods;
    if (!match_form("wmma.mma.sync.aligned.row.col." + w.name, mods))
      continue;  // one spelling of .rn
    for (int orders = 0; orders < 8; ++orders)
      check_wmma(gpu, w, orders & 1, orders & 2, orders & 4, spaces[turn++ % 4]);
  }
  for (const char* a : {"s4", "u4"})
    for (const char* sat : {"", ".satfinite"})
      for (const char* space : spaces)
        check_wmma(gpu,
                   {8, 8, 32, a, a, "s32", "s32",
                    std::string("m8n8k32.s32.") + a + "." + a + ".s32" + sat},
                   true, false, true, space);
}

TEST_CASE("matrices: an accumulator's elements lie where sm_80's machine code puts them") {
  // From the stores that ptxas makes of wmma.store.d for m16n16k16.f32: element i of a lane goes to row
  // lane / 4 for i = 0 1 4 5 and 8 below for 2 3 6 7, to column 2 (lane % 4) + i % 2, 8 further from i = 4 on.
  Gpu gpu;
  std::vector<std::uint32_t> in(256);
  for (int i = 0; i < 256; ++i)
    in[static_cast<std::size_t>(i)] = std::bit_cast<std::uint32_t>(static_cast<float>(i));
  std::string body =
      "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 " + registers("f32", 8, 0) +
      ", [%in], 16;\n"
      "mul.lo.u32 %r98, %lane, 32; cvt.u64.u32 %rd50, %r98; add.u64 %rd50, %rd50, %out;\n";
  for (int i = 0; i < 8; ++i) body += text("st.global.u32 [%%rd50+%d], %%r%d;\n", 4 * i, i);
  const auto out = gpu.run(body, 256, in);
  constexpr int down[] = {0, 0, 8, 8, 0, 0, 8, 8}, right[] = {0, 1, 0, 1, 8, 9, 8, 9};
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i)
      CHECK(std::bit_cast<float>(out[static_cast<std::size_t>(lane) * 8 + i]) ==
            static_cast<float>((lane / 4 + down[i]) * 16 + 2 * (lane % 4) + right[i]));
}

TEST_CASE("matrices: ldmatrix, stmatrix, movmatrix") {
  Gpu gpu;
  // 32 rows of 8 halves; half e of row r is 8 r + e. Lane l points at row l.
  std::vector<std::uint32_t> in(128);
  for (unsigned i = 0; i < 128; ++i) in[i] = (2 * i + 1) << 16 | 2 * i;
  const std::string fill =
      "mul.lo.u32 %r90, %lane, 16; cvt.u64.u32 %rd0, %r90; add.u64 %rd1, %rd0, %in; mov.u64 %rd2, "
      "tile; add.u64 %rd2, %rd2, %rd0;\n"
      "ld.global.v4.u32 {%r91, %r92, %r93, %r94}, [%rd1]; st.shared.v4.u32 [%rd2], {%r91, %r92, "
      "%r93, %r94}; bar.warp.sync 0xffffffff;\n";
  const std::string before = ".shared .align 16 .b8 tile[1024];\n";
  for (int count : {1, 2, 4})
    for (const char* trans : {"", ".trans"})
      for (const char* space : {".shared", ".shared::cta"}) {
        const std::string name =
            ".sync.aligned.m8n8" + text(".x%d", count) + trans + space + ".b16";
        CAPTURE(name);
        std::string list;
        for (int i = 0; i < count; ++i) list += (i ? ", " : "") + text("%%r%d", i);
        std::string store = text(
            "mul.lo.u32 %%r90, %%lane, %d; cvt.u64.u32 %%rd5, %%r90; add.u64 %%rd5, %%rd5, "
            "%%out;\n",
            4 * count);
        for (int i = 0; i < count; ++i)
          store += text("st.global.u32 [%%rd5+%d], %%r%d;\n", 4 * i, i);
        const auto out =
            gpu.run(fill + "ldmatrix" + name + " {" + list + "}, [%rd2];\n" + store,
                    static_cast<std::size_t>(32) * count, in, {32, 1, 1}, {1, 1, 1}, before);
        for (int lane = 0; lane < 32; ++lane)
          for (int i = 0; i < count; ++i)
            for (int j = 0; j < 2; ++j) {
              const int wide = 2 * (lane % 4) + j, tall = lane / 4;
              const int row = 8 * i + (*trans ? wide : tall), column = *trans ? tall : wide;
              CHECK((out[static_cast<std::size_t>(lane) * count + i] >> (16 * j) & 0xffff) ==
                    static_cast<unsigned>(8 * row + column));
            }
        // Stored again by stmatrix in the same order, the rows are what they were.
        std::string again =
            fill + "ldmatrix" + name + " {" + list +
            "}, [%rd2];\nadd.u64 %rd3, %rd2, 512;\nbar.warp.sync 0xffffffff;\nstmatrix" + name +
            " [%rd3], {" + list +
            "};\nbar.warp.sync 0xffffffff;\nld.shared.v4.u32 {%r91, %r92, %r93, %r94}, "
            "[%rd3];\nadd.u64 %rd6, %rd0, %out;\n"
            "st.global.v4.u32 [%rd6], {%r91, %r92, %r93, %r94};\n";
        const auto same = gpu.run(again, 128, in, {32, 1, 1}, {1, 1, 1}, before);
        for (int i = 0; i < 32 * count; ++i)
          CHECK(same[static_cast<std::size_t>(i)] == in[static_cast<std::size_t>(i)]);
      }
  // movmatrix: lane l holds elements (l / 4, 2 (l % 4) + j) before, and those of the transpose after.
  const auto turned = gpu.run(
      "shl.b32 %r0, %lane, 1; add.u32 %r1, %r0, 1; shl.b32 %r1, %r1, 16; or.b32 %r0, %r0, %r1;\n"
      "movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0; st.global.u32 [%mine], %r2;\n");
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned j = 0; j < 2; ++j)
      CHECK((turned[lane] >> (16 * j) & 0xffff) == (2 * (lane % 4) + j) * 8 + lane / 4);
}

TEST_CASE("matrices: cp.async takes its hints") {
  Gpu gpu;
  std::vector<std::uint32_t> in(128);
  std::iota(in.begin(), in.end(), 100u);
  for (const std::string hints :
       {"", ".L2::64B", ".L2::128B", ".L2::256B", ".L2::cache_hint", ".L2::cache_hint.L2::128B"})
    for (const char* space : {".shared", ".shared::cta"}) {
      const std::string policy = hints.find("hint") != hints.npos ? ", %rd9" : "";
      const auto out = gpu.run(
          "createpolicy.fractional.L2::evict_first.b64 %rd9, 0f3F800000;\nmul.lo.u32 %r90, %lane, "
          "16; cvt.u64.u32 %rd0, %r90; add.u64 %rd1, %rd0, %in;\n"
          "mov.u64 %rd2, tile; add.u64 %rd2, %rd2, %rd0;\ncp.async.cg" +
              std::string(space) + ".global" + hints + " [%rd2], [%rd1], 16" + policy +
              ";\ncp.async.wait_all;\nld.shared.u32 %r1, [%rd2+4]; st.global.u32 [%mine], %r1;\n",
          32, in, {32, 1, 1}, {1, 1, 1}, ".shared .align 16 .b8 tile[512];\n");
      CHECK(out ==
            expected(32, [](auto lane) { return 101 + 4 * static_cast<std::uint32_t>(lane); }));
    }
}
