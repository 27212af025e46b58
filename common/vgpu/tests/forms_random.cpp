// Random straight-line functions, compiled by nvcc for the device and by the host's compiler, must
// give the same bits: integers of all widths, IEEE arithmetic in f16, f32 and f64, conversions,
// comparisons. VGPU_SEED=N tries other functions than the usual ones.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "../core/machine.h"
#include "../ops/forms.h"
#include "forms_account.h"
#include "toolkit.h"

using namespace vgpu;

namespace {

constexpr int kFunctions = 16, kStatements = 90, kThreads = 256;
using u64 = std::uint64_t;

// What both compilers see first. A thread has four variables of each type.
constexpr const char* kHead = R"(
typedef unsigned int uint; typedef long long ll; typedef unsigned long long ull;
#ifdef __CUDACC__
#include <cuda_fp16.h>
#define FUNCTION(name) extern "C" __global__ void name(const ull* input, ull* output) { \
  const uint thread = blockIdx.x * blockDim.x + threadIdx.x; \
  const ull* in = input + 28 * thread; ull* out = output + 28 * thread;
typedef __half half_t;
static __device__ half_t HALF(ull b) { return __ushort_as_half((unsigned short)b); }
static __device__ ull BITS(half_t h) { return __hisnan(h) ? 0x7fff : __half_as_ushort(h); }
static __device__ float FLOAT(ull b) { return __uint_as_float((uint)b); }
static __device__ ull BITS(float f) { return f != f ? 0x7fffffff : __float_as_uint(f); }
static __device__ double DOUBLE(ull b) { return __longlong_as_double((ll)b); }
static __device__ ull BITS(double d) {
  return d != d ? 0x7ff8000000000000ull : (ull)__double_as_longlong(d);
}
#define HADD(a, b) __hadd(a, b)
#define HSUB(a, b) __hsub(a, b)
#define HMUL(a, b) __hmul(a, b)
#define HLT(a, b) __hlt(a, b)
#define F2H(a) __float2half_rn(a)
#define H2F(a) __half2float(a)
#define POPC(a) __popc(a)
#define CLZ(a) __clz((int)(a))
#define POPCLL(a) __popcll(a)
#define CLZLL(a) __clzll((ll)(a))
#define MULHI(a, b) __mulhi(a, b)
#define UMULHI(a, b) __umulhi(a, b)
#define MULHILL(a, b) __mul64hi(a, b)
#define UMULHILL(a, b) __umul64hi(a, b)
#else
#include <cmath>
#include <cstring>
#define FUNCTION(name) extern "C" void name(const ull* input, ull* output, uint thread) { \
  const ull* in = input + 28 * thread; ull* out = output + 28 * thread;
#if defined(__aarch64__)
typedef __fp16 half_t;  // GCC 12 has no _Float16 in C++ there
#else
typedef _Float16 half_t;
#endif
template <class T> static T from(ull b) { T t; std::memcpy(&t, &b, sizeof t); return t; }
template <class T> static ull to(T t) { ull b = 0; std::memcpy(&b, &t, sizeof t); return b; }
static half_t HALF(ull b) { return from<half_t>(b); }
static ull BITS(half_t h) { return h != h ? 0x7fff : to(h); }
static float FLOAT(ull b) { return from<float>(b); }
static ull BITS(float f) { return f != f ? 0x7fffffff : to(f); }
static double DOUBLE(ull b) { return from<double>(b); }
static ull BITS(double d) { return d != d ? 0x7ff8000000000000ull : to(d); }
#define HADD(a, b) (half_t)((float)(a) + (float)(b))
#define HSUB(a, b) (half_t)((float)(a) - (float)(b))
#define HMUL(a, b) (half_t)((float)(a) * (float)(b))
#define HLT(a, b) ((float)(a) < (float)(b))
#define F2H(a) (half_t)(float)(a)
#define H2F(a) (float)(a)
#define POPC(a) __builtin_popcount(a)
#define CLZ(a) ((a) ? __builtin_clz(a) : 32)
#define POPCLL(a) __builtin_popcountll(a)
#define CLZLL(a) ((a) ? __builtin_clzll(a) : 64)
#define MULHI(a, b) (int)((ll)(a) * (b) >> 32)
#define UMULHI(a, b) (uint)((ull)(a) * (b) >> 32)
#define MULHILL(a, b) (ll)((__int128)(a) * (b) >> 64)
#define UMULHILL(a, b) (ull)((unsigned __int128)(a) * (b) >> 64)
using std::fabs; using std::floor; using std::ceil; using std::trunc;
#endif
)";

// Patterns of statements, by the type of the variable that they set. A letter is a variable of that type:
// I int, U uint, L ll, W ull, F float, D double, H half. Letters of other names stand for one variable
// that is named twice because one use guards the other: J K, M N (quotients), X, Y (divisors), G G2 E
// (converted numbers), Z (a sign).
//
// Signed overflow, shifts by the width, division by zero and conversions out of range mean nothing in
// C++: sums are formed unsigned, amounts masked, divisors and ranges looked at. The sign of a NaN is
// nobody's business, so copysign must not see it.
constexpr const char* kPatterns[] = {
    "I = (int)((uint)I + (uint)I);",
    "I = (int)((uint)I - (uint)I);",
    "I = (int)((uint)I * (uint)I);",
    "I = (int)((uint)I * 7u + (uint)I);",
    "I = I & I;",
    "I = I ^ ~I;",
    "I = (int)((uint)I << (U & 31));",
    "I = I >> (U & 31);",
    "I = I < I ? I : I;",
    "I = I > I ? I : I;",
    "I = (I != 0 && I != -1) ? J / K : I;",
    "I = (signed char)I;",
    "I = (short)I + (unsigned char)I;",
    "I = MULHI(I, I);",
    "I = (int)L;",
    "I = fabs(F) < 2e9f ? (int)G : I;",
    "I = fabs(D) < 2e9 ? (int)E : I;",
    "I = F < F ? I : I;",
    "I = D >= D ? I : (int)U;",
    "I = I == I ? 1 : -I / 2;",
    "U = U + U;",
    "U = U - U;",
    "U = U * U;",
    "U = U * U + U;",
    "U = U | U;",
    "U = (U & U) ^ (U & ~U);",
    "U = U << (U & 31);",
    "U = U >> (U & 31);",
    "U = U < U ? U : U;",
    "U = X ? U / X : U;",
    "U = X ? U % X : U;",
    "U = (U << 13) | (U >> 19);",
    "U = POPC(U) + CLZ(U);",
    "U = UMULHI(U, U);",
    "U = (U >> 8) & 255u;",
    "U = F >= 0.0f && F < 4e9f ? (uint)G2 : U;",
    "U = (uint)(W >> 32);",
    "U = H2F(H) < 1.0f ? U : 5u;",
    "U = F == F ? U : U + 1;",
    "L = (ll)((ull)L + (ull)L);",
    "L = (ll)((ull)L - (ull)L);",
    "L = (ll)((ull)L * (ull)L);",
    "L = (ll)I * I;",
    "L = (ll)((ull)((ll)I * I) + (ull)L);",
    "L = L >> (U & 63);",
    "L = L < L ? L : L;",
    "L = (L != 0 && L != -1) ? M / N : L;",
    "L = (ll)I;",
    "L = MULHILL(L, L);",
    "L = fabs(D) < 9e18 ? (ll)E : L;",
    "L = fabs(F) < 9e18f ? (ll)G : L;",
    "L = L & ~L;",
    "W = W + W;",
    "W = W - W;",
    "W = W * W;",
    "W = (ull)U * U;",
    "W = (ull)U * U + W;",
    "W = W << (U & 63);",
    "W = W >> (U & 63);",
    "W = W < W ? W : W;",
    "W = Y ? W % Y : W;",
    "W = ((ull)U << 32) | U;",
    "W = UMULHILL(W, W);",
    "W = (ull)(POPCLL(W) + CLZLL(W));",
    "W = W ^ (ull)L;",
    "F = F + F;",
    "F = F - F;",
    "F = F * F;",
    "F = F / F;",
    "F = fmaf(F, F, F);",
    "F = F * F + F;",
    "F = sqrtf(fabs(F));",
    "F = (float)I;",
    "F = (float)U;",
    "F = (float)L;",
    "F = (float)W;",
    "F = (float)D;",
    "F = H2F(H);",
    "F = F < F ? F : F;",
    "F = F > F ? F : -F;",
    "F = fabs(F);",
    "F = floorf(F);",
    "F = ceilf(F);",
    "F = truncf(F);",
    "F = rintf(F);",
    "F = copysignf(F, Z == Z ? Z : 1.0f);",
    "F = F != F ? 1.5f : F;",
    "F = (float)(I & 255) * 0.125f;",
    "F = F * 0.001f + 1.0f;",
    "D = D + D;",
    "D = D - D;",
    "D = D * D;",
    "D = D / D;",
    "D = fma(D, D, D);",
    "D = sqrt(fabs(D));",
    "D = (double)F;",
    "D = (double)I;",
    "D = (double)U;",
    "D = (double)L;",
    "D = (double)W;",
    "D = D < D ? D : D;",
    "D = floor(D);",
    "D = rint(D);",
    "D = D == D ? D * 0.01 : 1.0;",
    "H = HADD(H, H);",
    "H = HSUB(H, H);",
    "H = HMUL(H, H);",
    "H = F2H(F);",
    "H = HLT(H, H) ? H : H;",
    "H = F2H((float)(I & 1023));",
};

class Generator {
 public:
  explicit Generator(u64 seed) : random_(seed) {}

  std::string function(int number) {
    std::string text = "FUNCTION(k" + std::to_string(number) + ")\n";
    const char* const declare[7][3] = {
        {"int", "i", "(int)in[%]"},     {"uint", "u", "(uint)in[%]"},
        {"ll", "l", "(ll)in[%]"},       {"ull", "w", "in[%]"},
        {"float", "f", "FLOAT(in[%])"}, {"double", "d", "DOUBLE(in[%])"},
        {"half_t", "h", "HALF(in[%])"}};
    int word = 0;
    for (const auto& [type, name, value] : declare)
      for (int k = 0; k < 4; ++k, ++word)
        text += std::string(type) + " " + name + std::to_string(k) + " = " +
                filled(value, "%", std::to_string(word)) + ";\n";
    for (int s = 0; s < kStatements; ++s) text += statement() + "\n";
    word = 0;
    for (const auto& [type, name, value] : declare)
      for (int k = 0; k < 4; ++k, ++word) {
        const std::string v = name + std::to_string(k);
        const bool floating = name[0] == 'f' || name[0] == 'd' || name[0] == 'h';
        text += "out[" + std::to_string(word) +
                "] = " + (floating ? "BITS(" + v + ")" : "(ull)" + v) + ";\n";
      }
    return text + "}\n";
  }

 private:
  std::string statement() {
    std::string pattern = kPatterns[random_() % std::size(kPatterns)], text;
    const auto variable = [&](char type) {
      return std::string(1, static_cast<char>(std::tolower(type))) + std::to_string(random_() % 4);
    };
    if (pattern.find("J / K") != pattern.npos) {
      const std::string k = variable('I');
      pattern = variable('I') + " = (" + k + " != 0 && " + k + " != -1) ? " + variable('I') +
                " / " + k + " : " + variable('I') + ";";
      return pattern;
    }
    if (pattern.find("M / N") != pattern.npos) {
      const std::string n = variable('L'), m = variable('L');
      return variable('L') + " = (" + n + " != 0 && " + n + " != -1) ? " + m + " / " + n + " + " +
             m + " % " + n + " : " + m + ";";
    }
    const std::string x = variable('U'), y = variable('W'), g = variable('F'), z = variable('F'),
                      e = variable('D');
    for (std::size_t at = 0; at < pattern.size(); ++at) {
      const char c = pattern[at];
      const bool alone =
          (at == 0 || !std::isalnum(static_cast<unsigned char>(pattern[at - 1]))) &&
          (at + 1 == pattern.size() || !std::isalnum(static_cast<unsigned char>(pattern[at + 1])));
      if (pattern.compare(at, 2, "G2") == 0) {
        text += g;
        ++at;
      } else if (!alone) {
        text += c;
      } else if (c == 'X') {
        text += x;
      } else if (c == 'Y') {
        text += y;
      } else if (c == 'G') {
        text += g;
      } else if (c == 'Z') {
        text += z;
      } else if (c == 'E') {
        text += e;
      } else if (std::strchr("IULWFDH", c)) {
        // The guards of conversions look at what is converted.
        const bool guard = pattern.find('G') != pattern.npos && c == 'F';
        const bool wide_guard = pattern.find('E') != pattern.npos && c == 'D';
        text += guard ? g : wide_guard ? e : variable(c);
      } else {
        text += c;
      }
    }
    return text;
  }
  static std::string filled(std::string text, const std::string& what, const std::string& with) {
    const std::size_t at = text.find(what);
    if (at != text.npos) text.replace(at, what.size(), with);
    return text;
  }
  std::mt19937_64 random_;
};

using vgpu_tests::environment;
void run(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

// Operands of a thread: bits that are often small, often special.
std::vector<u64> operands(u64 seed) {
  std::mt19937_64 random(seed);
  std::vector<u64> words(28 * kThreads);
  for (std::size_t i = 0; i < words.size(); ++i) {
    u64 v = random() >> random() % 64;
    const std::size_t kind = i % 28 / 4;
    if (random() % 4) {
      if (kind == 4) v = (random() & 0x807fffff) | (117 + random() % 20) << 23;
      if (kind == 5) v = (random() & 0x800fffffffffffff) | (1013 + random() % 20) << 52;
      if (kind == 6) v = (random() & 0x83ff) | (10 + random() % 10) << 10;
    } else if (random() % 2) {
      const u64 special[] = {0,          0x7f800000, 0xff800000, 0x80000000,
                             0x7fffffff, 0x00000001, 0x7f7fffff, 0x3f800000};
      v = special[random() % 8];
      if (kind == 5) v <<= 32;
      if (kind == 6) v >>= 16;
    }
    words[i] = v;
  }
  return words;
}

// The functions, compiled once.
struct Programs {
  std::filesystem::path folder;
  std::string text, ptx;
  void* library = nullptr;
  u64 seed = 0;

  Programs() {
    seed = std::strtoull(environment("VGPU_SEED", "20240229").c_str(), nullptr, 0);
    folder = vgpu_tests::temporary("forms_random." + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    Generator generator(seed);
    text = kHead;
    for (int i = 0; i < kFunctions; ++i) text += generator.function(i);
    const std::string base = (folder / "functions").string();
    std::ofstream(base + ".cu") << text;
    std::ofstream(base + ".cpp") << text;
    // The host's program must round as it is told to: no contraction, no excess precision.
    run(vgpu_tests::nvcc() + " " + environment("NVCC_FLAGS", "-std=c++20 -O3") +
        " -fmad=false -arch=compute_90 -ptx '" + base + ".cu' -o '" + base + ".ptx' >'" + base +
        ".log' 2>&1 & n=$!; " + environment("CXX", "g++") +
        " -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off -fno-fast-math '" + base +
        ".cpp' -o '" + base + ".so' && wait $n || { cat '" + base + ".log'; exit 1; }");
    std::ostringstream all;
    all << std::ifstream(base + ".ptx").rdbuf();
    ptx = all.str();
    library = dlopen((base + ".so").c_str(), RTLD_NOW);
    REQUIRE(library != nullptr);
  }
  ~Programs() {
    if (library) dlclose(library);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};
Programs& programs() {
  static Programs all;
  return all;
}

// Runs every function both ways; what differs, one line a function.
std::string differences(const std::function<void(LoadedModule&)>& sabotage = {}) {
  Programs& p = programs();
  Machine machine({}, {.threads = 1});
  const auto module = machine.load(p.ptx);
  for (const std::string& refusal : machine.refusals(*module)) return refusal;
  if (sabotage) sabotage(*module);
  const auto in = machine.memory().allocate(28 * kThreads * 8, MemoryKind::device);
  const auto out = machine.memory().allocate(28 * kThreads * 8, MemoryKind::device);
  std::string result;
  for (int f = 0; f < kFunctions; ++f) {
    const std::string name = "k" + std::to_string(f);
    const auto words = operands(p.seed + static_cast<u64>(f));
    std::memcpy(in->host, words.data(), words.size() * 8);
    const Function* function = module->module->find(name);
    const u64 addresses[2] = {in->base, out->base};
    std::vector<std::byte> params(function->param_bytes);
    std::memcpy(params.data(), addresses, sizeof addresses);
    LaunchRequest request;
    request.module = module.get();
    request.function = function;
    request.block = {64, 1, 1};
    request.grid = {kThreads / 64, 1, 1};
    request.params = params;
    request.count = false;
    const LaunchOutcome outcome = machine.launch(request);
    if (!outcome.fault.message.empty()) return name + ": " + outcome.fault.message;
    const auto host =
        reinterpret_cast<void (*)(const u64*, u64*, unsigned)>(dlsym(p.library, name.c_str()));
    std::vector<u64> want(words.size());
    const auto* got = reinterpret_cast<const u64*>(out->host);
    for (unsigned t = 0; t < kThreads; ++t) host(words.data(), want.data(), t);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (got[i] == want[i]) continue;
      char line[160];
      std::snprintf(
          line, sizeof line, "%s: thread %zu, variable %c%zu is 0x%llx, not 0x%llx (seed %llu)\n",
          name.c_str(), i / 28, "iulwfdh"[i % 28 / 4], i % 4,
          static_cast<unsigned long long>(got[i]), static_cast<unsigned long long>(want[i]),
          static_cast<unsigned long long>(p.seed));
      result += line;
      break;
    }
  }
  return result;
}

}  // namespace

TEST_CASE("forms: random functions give the same bits on the virtual GPU and on the host" *
          doctest::test_suite("toolkit")) {
  MESSAGE("seed " << programs().seed);
  CHECK(differences() == "");
  test::touch_all(programs().ptx);
}

namespace {
Handler replaced;
// Puts `wrong` in the place of the instructions of that name; false when there are none.
bool plant(LoadedModule& module, const std::string& dotted, Handler wrong) {
  Mods mods;
  const Form* form = match_form(dotted, mods);
  bool any = false;
  for (const auto& [name, function] : module.module->functions)
    for (Instr& instr : function->code)
      if (instr.run && instr.ptx_line && instr.form == form - forms().data() &&
          module.module->lines[instr.ptx_line - 1].find(dotted) != std::string_view::npos) {
        replaced = instr.run;
        instr.run = wrong;
        any = true;
      }
  return any;
}
}  // namespace

TEST_CASE("forms: planted: random functions find wrong handlers") {
  for (const std::string name : {"mul.lo.s32", "fma.rn.f32", "cvt.rn.f32.s32", "shr.u64", "add.f16",
                                 "div.rn.f64", "selp.f32", "sub.rn.f32"}) {
    INFO(name);
    bool planted = false;
    const std::string found = differences([&](LoadedModule& module) {
      planted = plant(module, name, [](Warp& warp, const Instr& instr, std::uint32_t mask) {
        replaced(warp, instr, mask & ~0x400u);  // lane 10 keeps what it had
      });
    });
    CHECK(planted);
    CHECK(found != "");
  }
}
