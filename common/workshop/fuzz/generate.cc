// Random kernels from the table of forms: every instruction that the virtual GPU knows, with
// operands that are mostly of the right kind and values that are mostly wild.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "../../vgpu/core/machine.h"
#include "../../vgpu/ops/forms.h"
#include "fuzz.h"

namespace vgpu::fuzz {
namespace {

constexpr int kRegisters = 6;    // of each width
constexpr int kFirstResult = 2;  // those before it hold good addresses, which results should spare

std::string reg(int bits, Random& random, std::uint64_t first = 0) {
  if (random.chance(60)) bits = std::array{1, 16, 32, 64, 128}[random.below(5)];  // a wrong one
  const char* names = bits == 1    ? "p"
                      : bits <= 16 ? "h"
                      : bits == 32 ? "r"
                      : bits == 64 ? "d"
                                   : "q";
  return std::string("%") + names + std::to_string(first + random.below(kRegisters - first));
}

int width(Type type) {
  const int bits = type_bits(type);
  return type == Type::none ? 32 : bits == 1 ? 1 : std::max(16, bits);
}

std::string number(Random& random) {
  constexpr std::int64_t values[] = {0,
                                     1,
                                     -1,
                                     2,
                                     3,
                                     4,
                                     8,
                                     15,
                                     16,
                                     17,
                                     31,
                                     32,
                                     33,
                                     64,
                                     128,
                                     255,
                                     4096,
                                     0x7fffffff,
                                     -0x80000000ll,
                                     0xffffffff,
                                     INT64_MIN,
                                     INT64_MAX};
  return std::to_string(random.pick(values));
}

std::string source(Type type, Random& random) {
  switch (random.below(12)) {
    case 0:
      return number(random);
    case 1:
      return is_float(type) ? "0f7FC00000" : number(random);
    case 2:
      return random.chance(3) ? "_" : random.chance(2) ? "%laneid" : "%tid.x";
    default:
      return (width(type) == 1 && random.chance(4) ? "!" : "") + reg(width(type), random);
  }
}

// Addresses: good ones in %d0 (global), %d1 (generic shared), %r0 (shared), and anything else.
std::string memory(std::string_view name, Random& random) {
  const bool shared = name.find("shared") != name.npos || name.find("matrix") != name.npos;
  std::string base;
  switch (random.below(10)) {
    case 0:
      base = reg(random.chance(2) ? 32 : 64, random);
      break;
    case 1:
      base = number(random);
      break;
    case 2:
      base = random.pick(
          std::array{"tile", "table", "constants", "stack", "p0", "area", "dynamic", "helper"});
      break;
    default:
      base = shared                            ? "%r0"
             : name.find("local") != name.npos ? "stack"
             : name.find("const") != name.npos ? "constants"
             : name.find("param") != name.npos ? (random.chance(2) ? "p0" : "area")
             : random.chance(4)                ? "%d1"
                                               : "%d0";
  }
  std::string offset;
  if (random.chance(3))
    offset = "+" + (random.chance(3) ? number(random) : std::to_string(16 * random.below(40)));
  return "[" + base + offset + "]";
}

std::string vector(int count, int bits, Random& random, std::uint64_t first = 0) {
  std::string text = "{";
  for (int i = 0; i < count; ++i)
    text += (i ? ", " : "") + (random.chance(20) ? "_" : reg(bits, random, first));
  return text + "}";
}

// The registers of one operand of a matrix product or of a wmma load.
int fragment(int elements, Type type, bool always8) {
  const int bits = std::max(4, type_bits(type));
  return always8 ? 8 : std::max(1, elements * std::min(bits, 64) / 32 / (bits == 64 ? 64 : 32));
}

std::string fragments(std::string_view name, const std::vector<Type>& types, Random& random) {
  int m = 16, n = 8, k = 8;
  const std::size_t at = name.find(".m");
  if (at != name.npos)
    std::sscanf(std::string(name.substr(at + 1)).c_str(), "m%dn%dk%d", &m, &n, &k);
  const bool wmma = name.substr(0, 4) == "wmma";
  const Type d = types.empty() ? Type::f32 : types.front(), c = types.empty() ? d : types.back();
  const Type a = types.size() == 4 ? types[1] : Type::f16,
             b = types.size() == 4 ? types[2] : Type::f16;
  std::string text;
  const int elements[] = {m * n, m * k, k * n, m * n};
  const Type kinds[] = {d, a, b, c};
  for (int i = 0; i < 4; ++i) {
    int count =
        fragment(elements[i], kinds[i], wmma && kinds[i] == Type::f16 && (i == 1 || i == 2));
    if (random.chance(40)) count = 1 + static_cast<int>(random.below(9));
    text += (i ? ", " : " ") +
            vector(count, kinds[i] == Type::f64 ? 64 : 32, random, i ? 0 : kFirstResult);
  }
  return text;
}

// Operands of wgmma.mma_async: now and then one too few, of another number, or a descriptor of anything.
std::string warpgroup_product(std::string_view name, const std::vector<Type>& types,
                              Random& random) {
  int m = 64, n = 8, k = 16;
  std::sscanf(std::string(name.substr(name.find(".m64") + 1)).c_str(), "m%dn%dk%d", &m, &n, &k);
  const Type d = types.empty() ? Type::f32 : types.front(),
             a = types.size() > 1 ? types[1] : Type::f16;
  const auto descriptor = [&] { return random.chance(8) ? std::string("%d0") : reg(64, random); };
  const int registers =
      random.chance(30) ? static_cast<int>(random.below(9)) : n / (d == Type::f16 ? 4 : 2);
  const bool in_registers = random.chance(3);
  std::string text = " " + vector(registers, 32, random, kFirstResult) + ", " +
                     (in_registers ? vector(4, 32, random) : descriptor()) + ", " + descriptor() +
                     ", " + source(Type::pred, random);
  int numbers = is_float(a) ? 2 : 0;
  if (a == Type::f16 || a == Type::bf16) numbers += in_registers ? 1 : 2;
  if (random.chance(30)) --numbers;
  for (int i = 0; i < numbers; ++i)
    text += random.chance(30) ? ", 2" : i < 2 ? (random.chance(2) ? ", 1" : ", -1") : ", 1";
  return text;
}

std::string instruction(Random& random) {
  const Form& form = random.pick(forms());
  std::string name = form.opcode;
  std::vector<Type> types;
  int elements = 1;
  for (const PatternItem& item : parse_pattern(form.pattern)) {
    if (item.optional && random.chance(2)) continue;
    const std::string word = random.pick(item.choices);
    name += "." + word;
    if (const Type type = type_from_name(word); type != Type::none) types.push_back(type);
    if (word == "v2" || word == "v4" || word == "v8") elements = word[1] - '0';
    if (word == "x1" || word == "x2" || word == "x4") elements = word[1] - '0';
  }
  const Type last = types.empty() ? Type::none : types.back(),
             first = types.empty() ? Type::none : types.front();
  std::string text = random.chance(5) ? (random.chance(2) ? "@%p0 " : "@!%p1 ") : "";
  text += name;
  const std::string_view opcode = form.opcode, operands = form.operands;
  if (operands == "fragments") return text + fragments(name, types, random) + ";";
  if (operands == "warpgroup") return text + warpgroup_product(name, types, random) + ";";
  const std::string label = "L" + std::to_string(random.below(4));
  if (opcode == "mov") {
    if (random.chance(4))
      return text + " " +
             vector(1 << random.below(3), std::max(16, width(last) >> random.below(3)), random) +
             ", " + source(last, random) + ";";
    if (random.chance(4))
      return text + " " + reg(width(last), random) + ", " +
             vector(1 << random.below(3), std::max(16, width(last) >> random.below(3)), random) +
             ";";
    if (random.chance(3))
      return text + " " + reg(width(last), random) + ", " +
             random.pick(std::array{"%clock64", "%tid.y", "tile", "table", "stack", "helper", "k",
                                    "p0", "area", "%envreg2", "%lanemask_lt"}) +
             ";";
    return text + " " + reg(width(last), random) + ", " + source(last, random) + ";";
  }
  if (opcode == "brx")
    return text + " " + (random.chance(3) ? number(random) : reg(32, random)) + ", targets;";
  if (opcode == "call") {
    if (random.chance(4))
      return text + " (area), " + (random.chance(2) ? "%d2" : "%d3") + ", (area), prototype;";
    if (random.chance(4)) return text + " (result), malloc, (area);";
    if (random.chance(4)) return text + " free, (result);";
    if (random.chance(4)) return text + " (small), vprintf, (result, area);";
    return text + (random.chance(6)   ? " k, (area, area);"
                   : random.chance(6) ? " helper;"
                                      : " (area), helper, (area);");
  }
  int count = 0;
  for (std::size_t p = 0; p < operands.size();) {
    std::size_t end = std::min(operands.find(' ', p), operands.size());
    std::string_view word = operands.substr(p, end - p);
    p = end + 1;
    if (word.back() == '?') {
      if (random.chance(2)) continue;
      word.remove_suffix(1);
    }
    Type type = last;
    if (const std::size_t colon = word.find(':'); colon != word.npos) {
      const std::string_view of = word.substr(colon + 1);
      type = of == "dtype"  ? first
             : of == "wide" ? (type_bits(last) == 16 ? Type::u32 : Type::u64)
                            : type_from_name(of);
    }
    const bool many = word.size() > 1 && word[1] == '*';
    text += count++ ? ", " : " ";
    switch (word[0]) {
      case 'm':
      case 'o':
        text += memory(name, random);
        break;
      case 'n': {
        const bool between =
            name.find("shared::cluster") != name.npos && name.find("shared::cta") != name.npos;
        text += memory(between ? ".shared" : ".global", random);
        break;
      }
      case 't':
        text += label;
        break;
      case 'i':
        text += std::to_string(random.below(300));
        break;
      case 'k':
        text += random.chance(6) ? number(random) : std::to_string(4 << random.below(3));
        break;
      case 'd':
      case 'p':
        if (many && opcode == "wmma")
          text += vector(random.chance(2) ? 8 : 4, width(type), random);
        else if (many && (elements > 1 || opcode == "ldmatrix"))
          text += vector(elements, width(type), random, kFirstResult);
        else
          text += reg(width(type), random, random.chance(12) ? 0 : kFirstResult) +
                  (random.chance(8) ? "|" + reg(1, random) : "");
        break;
      default:
        if (many && opcode == "wmma")
          text += vector(random.chance(2) ? 8 : 4, width(type), random);
        else if (many && (elements > 1 || opcode == "stmatrix"))
          text += vector(elements, width(type), random);
        else
          text += source(type, random);
    }
  }
  return text + ";";
}

}  // namespace

namespace {

const std::string kHead = R"(.version 8.8
.target sm_100a
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .shared .align 16 .b8 dynamic[];
.global .align 16 .b8 table[256] = {37, 100, 32, 37, 115, 32, 37, 55, 108, 108, 117, 37};
.const .align 16 .b8 constants[64] = {1, 2, 3, 4};
)";
const std::string kDeclare =
    ".reg .pred %p<6>; .reg .b16 %h<6>; .reg .b32 %r<6>; .reg .b64 %d<6>; .reg .b128 %q<6>;\n"
    ".local .align 16 .b8 stack[64]; .param .align 16 .b8 area[32]; .param .b64 result; .param "
    ".b32 small;\n"
    "targets: .branchtargets L0, L1, L2, L3;\nprototype: .callprototype (.param .align 16 .b8 "
    "_[32]) _ (.param .align 16 .b8 _[32]);\n";
const std::string kHelper =
    ".func (.param .align 16 .b8 out[32]) helper(.param .align 16 .b8 in[32])\n{\n.shared .align "
    "16 .b8 tile[96];\n.param .b32 p0;\n";
const std::string kKernel =
    ".visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n.shared .align 16 .b8 tile[512];\n";

// Products of a warpgroup are for sm_90a, what came later for sm_100a.
std::string head(bool warpgroups) {
  std::string text = kHead;
  const std::string target = "sm_100a";
  return warpgroups ? text.replace(text.find(target), target.size(), "sm_90a") : text;
}

bool decodes(const std::string& instruction, bool warpgroups) {
  static Machine machine({}, {.threads = 1});
  try {
    const auto module = machine.load(head(warpgroups) + kHelper + "ret;\n}\n" + kKernel + kDeclare +
                                     "L0: L1: L2: L3:\n" + instruction + "\n}\n");
    const bool good = machine.refusals(*module).empty();
    for (const auto& variable : module->variables) machine.memory().release(variable->base);
    return good;
  } catch (const PtxError&) {
    return false;
  }
}

}  // namespace

std::string generate_ptx(Random& random) {
  const bool any = random.chance(6);  // also what does not decode, which then nobody runs
  const bool warpgroups = random.chance(3);
  std::string text = head(warpgroups);
  const auto body = [&](int length) {
    std::string code = kDeclare;
    for (int i = 0; i < kRegisters; ++i) {
      const std::string n = std::to_string(i);
      code += "mov.u32 %r" + n + ", " +
              std::to_string(static_cast<std::uint32_t>(random.chance(2) ? random.below(64)
                                                                         : random.engine())) +
              "; mov.b64 %d" + n + ", " +
              std::to_string(random.chance(2) ? random.below(64) : random.engine()) +
              "; mov.b16 %h" + n + ", " + std::to_string(random.below(65536)) + "; setp.lt.u32 %p" +
              n + ", %r" + n + ", 99; mov.b128 %q" + n + ", {%d" + n + ", %d0};\n";
    }
    code +=
        "mov.u32 %r0, %laneid; mul.lo.u32 %r0, %r0, 16;\nmov.u64 %d1, tile; cvta.shared.u64 %d1, "
        "%d1;\nmov.u64 %d2, helper;\n";
    if (random.chance(3)) {  // addresses of another block's shared memory
      const std::string rank = std::to_string(random.below(random.chance(6) ? 300 : 3));
      code +=
          "mapa.shared::cluster.u32 %r0, %r0, " + rank + ";\nmapa.u64 %d1, %d1, " + rank + ";\n";
    }
    code += "L0:\n";
    for (int i = 0; i < length; ++i) {
      if (i == length / 3) code += "L1:\n";
      if (i == length / 2) code += "L2:\n";
      std::string one = instruction(random);
      for (int tries = 0; !any && tries < 20 && !decodes(one, warpgroups); ++tries)
        one = instruction(random);
      code += one + "\n";
    }
    return code + "L3:\n";
  };
  text += kHelper + body(static_cast<int>(random.below(6))) + "ret;\n}\n";
  text += kKernel;
  std::string main = body(1 + static_cast<int>(random.below(24)));
  main.insert(main.find("L0:"),
              "ld.param.u64 %d0, [p0]; cvta.to.global.u64 %d0, %d0; cvt.u64.u32 %d3, %r0; add.u64 "
              "%d0, %d0, %d3; ld.param.u64 %d3, [p1];\n");
  return text + main + (random.chance(8) ? "" : "ret;\n") + "}\n";
}

}  // namespace vgpu::fuzz
