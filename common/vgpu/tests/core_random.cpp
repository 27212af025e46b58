// Random kernels: structured control flow, gotos, calls, integer arithmetic, shared memory. The same
// program is run by a plain interpreter on the host, one thread after the other.
#include <array>
#include <random>

#include "core_support.h"

using namespace vgpu;
using namespace vgpu::test;

namespace {

constexpr int kVariables = 8;  // 32-bit registers of a thread

// A statement of the little language that is written as PTX and run on the host.
struct Node {
  enum class Kind {
    assign,
    if_else,
    loop,
    exit_loop,
    next_turn,
    leave,
    store,
    load,
    table,
    call,
    ballot
  } kind;
  int op = 0, d = 0, a = 0, b = 0;
  std::uint32_t constant = 0;
  bool immediate = false, skip_else = false;
  std::vector<std::vector<Node>> bodies;
};

constexpr const char* kOps[] = {"add.u32", "sub.u32", "mul.lo.u32", "and.b32", "or.b32",
                                "xor.b32", "min.u32", "max.s32",    "shl.b32", "shr.u32"};
constexpr const char* kCompares[] = {"eq.u32", "ne.u32", "lt.u32", "ge.u32", "lt.s32", "gt.s32"};

std::uint32_t compute(int op, std::uint32_t a, std::uint32_t b) {
  switch (op) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return a & b;
    case 4:
      return a | b;
    case 5:
      return a ^ b;
    case 6:
      return std::min(a, b);
    case 7:
      return static_cast<std::uint32_t>(
          std::max(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b)));
    case 8:
      return b > 31 ? 0 : a << b;
    default:
      return b > 31 ? 0 : a >> b;
  }
}
bool compare(int op, std::uint32_t a, std::uint32_t b) {
  const auto sa = static_cast<std::int32_t>(a), sb = static_cast<std::int32_t>(b);
  switch (op) {
    case 0:
      return a == b;
    case 1:
      return a != b;
    case 2:
      return a < b;
    case 3:
      return a >= b;
    case 4:
      return sa < sb;
    default:
      return sa > sb;
  }
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}
  std::vector<Node> block(int depth, bool in_loop, int size) {
    std::vector<Node> nodes;
    for (int i = 0; i < size; ++i) nodes.push_back(node(depth, in_loop));
    return nodes;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  Node node(int depth, bool in_loop) {
    Node n;
    n.op = pick(10);
    n.d = pick(kVariables);
    n.a = pick(kVariables);
    n.b = pick(kVariables);
    n.constant =
        pick(3) ? static_cast<std::uint32_t>(pick(40)) : static_cast<std::uint32_t>(random_());
    n.immediate = pick(2);
    const int choice = pick(depth > 0 ? 20 : 12);
    if (choice < 8) {
      n.kind = Node::Kind::assign;
    } else if (choice == 8) {
      n.kind = Node::Kind::store;
    } else if (choice == 9) {
      n.kind = Node::Kind::load;
    } else if (choice == 10) {
      n.kind = Node::Kind::call;
    } else if (choice == 11) {
      // Leaves the loop or the kernel, rarely, under a condition.
      n.kind = in_loop   ? (pick(2) ? Node::Kind::exit_loop : Node::Kind::next_turn)
               : pick(4) ? Node::Kind::assign
                         : Node::Kind::leave;
      n.op = n.kind == Node::Kind::assign ? n.op : pick(6);
    } else if (choice < 16) {
      n.kind = Node::Kind::if_else;
      n.op = pick(6);
      n.skip_else = pick(2);
      n.bodies = {block(depth - 1, in_loop, 1 + pick(4)),
                  n.skip_else ? std::vector<Node>{} : block(depth - 1, in_loop, 1 + pick(4))};
    } else if (choice < 19) {
      n.kind = Node::Kind::loop;
      n.bodies = {block(depth - 1, true, 1 + pick(5))};
    } else {
      n.kind = Node::Kind::table;
      const int ways = 2 + pick(3);
      for (int i = 0; i < ways; ++i) n.bodies.push_back(block(depth - 1, in_loop, 1 + pick(3)));
      n.skip_else = pick(2);  // ways fall through
    }
    return n;
  }
  std::mt19937_64 random_;
};

// PTX of a program. Variables are %r0.., the turn counters of loops %r40.. by depth.
class Writer {
 public:
  std::string text;
  void write(const std::vector<Node>& nodes, int loop_depth, const std::string& next,
             const std::string& leave) {
    for (const Node& n : nodes) write(n, loop_depth, next, leave);
  }

 private:
  int labels_ = 0;
  static std::string variable(int i) { return "%r" + std::to_string(i); }
  std::string second(const Node& n) const {
    return n.immediate ? std::to_string(n.constant) : variable(n.b);
  }
  void line(const std::string& s) { text += "  " + s + ";\n"; }
  std::string condition(const Node& n) {
    line(std::string("setp.") + kCompares[n.op] + " %p1, " + variable(n.a) + ", " + second(n));
    return "%p1";
  }
  void write(const Node& n, int loop_depth, const std::string& next, const std::string& leave) {
    const std::string id = std::to_string(labels_++),
                      counter = "%r" + std::to_string(40 + loop_depth);
    switch (n.kind) {
      case Node::Kind::assign:
        line(std::string(kOps[n.op]) + " " + variable(n.d) + ", " + variable(n.a) + ", " +
             second(n));
        break;
      case Node::Kind::store:
      case Node::Kind::load:  // 16 words of the thread's own
        line("and.b32 %r60, " + variable(n.a) + ", 15");
        line("mad.lo.u32 %r60, %r60, 4, %r61");
        line(n.kind == Node::Kind::store ? "st.shared.u32 [%r60], " + variable(n.d)
                                         : "ld.shared.u32 " + variable(n.d) + ", [%r60]");
        break;
      case Node::Kind::call:
        text += "  { .param .b32 x; .param .b32 y; .param .b32 z; st.param.b32 [x], " +
                variable(n.a) + "; st.param.b32 [y], " + variable(n.b) +
                "; call (z), mix, (x, y); ld.param.b32 " + variable(n.d) + ", [z]; }\n";
        break;
      case Node::Kind::leave:
        line("@" + condition(n) + " bra LEAVE");
        break;
      case Node::Kind::exit_loop:
        line("@" + condition(n) + " bra " + leave);
        break;
      case Node::Kind::next_turn:
        line("@" + condition(n) + " bra " + next);
        break;
      case Node::Kind::if_else:
        line("@!" + condition(n) + " bra " + (n.skip_else ? "END" : "ELSE") + id);
        write(n.bodies[0], loop_depth, next, leave);
        if (!n.skip_else) {
          line("bra END" + id);
          text += "ELSE" + id + ":\n";
          write(n.bodies[1], loop_depth, next, leave);
        }
        text += "END" + id + ":\n";
        break;
      case Node::Kind::loop:  // at most 1 + (a & 7) turns
        line("and.b32 " + counter + ", " + variable(n.a) + ", 7");
        text += "TOP" + id + ":\n";
        write(n.bodies[0], loop_depth + 1, "NEXT" + id, "OUT" + id);
        text += "NEXT" + id + ":\n";
        line("setp.eq.u32 %p1, " + counter + ", 0");
        line("sub.u32 " + counter + ", " + counter + ", 1");
        line("@!%p1 bra TOP" + id);
        text += "OUT" + id + ":\n";
        break;
      case Node::Kind::table: {
        line("rem.u32 %r62, " + variable(n.a) + ", " + std::to_string(n.bodies.size()));
        line("brx.idx %r62, TABLE" + id);
        text += "TABLE" + id + ": .branchtargets ";
        for (std::size_t i = 0; i < n.bodies.size(); ++i)
          text += (i ? ", WAY" : "WAY") + id + "_" + std::to_string(i);
        text += ";\n";
        for (std::size_t i = 0; i < n.bodies.size(); ++i) {
          text += "WAY" + id + "_" + std::to_string(i) + ":\n";
          write(n.bodies[i], loop_depth, next, leave);
          if (!n.skip_else) line("bra END" + id);
        }
        text += "END" + id + ":\n";
        break;
      }
      default:
        break;
    }
  }
};

// One thread of the program, statement by statement.
struct Thread {
  std::array<std::uint32_t, kVariables> v{};
  std::array<std::uint32_t, 16> memory{};
  enum class Way { on, next, out, left };

  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {  // the function `mix` below
    for (std::uint32_t i = 0; i < (x & 3); ++i) {
      y = y * 5 + i;
      if (y & 8) return y ^ x;
    }
    return y + 1;
  }
  Way run(const std::vector<Node>& nodes) {
    for (const Node& n : nodes)
      if (const Way way = run(n); way != Way::on) return way;
    return Way::on;
  }
  Way run(const Node& n) {
    const std::uint32_t second = n.immediate ? n.constant : v[n.b];
    switch (n.kind) {
      case Node::Kind::assign:
        v[n.d] = compute(n.op, v[n.a], second);
        return Way::on;
      case Node::Kind::store:
        memory[v[n.a] & 15] = v[n.d];
        return Way::on;
      case Node::Kind::load:
        v[n.d] = memory[v[n.a] & 15];
        return Way::on;
      case Node::Kind::call:
        v[n.d] = mix(v[n.a], v[n.b]);
        return Way::on;
      case Node::Kind::leave:
        return compare(n.op, v[n.a], second) ? Way::left : Way::on;
      case Node::Kind::exit_loop:
        return compare(n.op, v[n.a], second) ? Way::out : Way::on;
      case Node::Kind::next_turn:
        return compare(n.op, v[n.a], second) ? Way::next : Way::on;
      case Node::Kind::if_else:
        return run(n.bodies[compare(n.op, v[n.a], second) ? 0 : 1]);
      case Node::Kind::loop:
        for (std::uint32_t left = v[n.a] & 7;; --left) {
          const Way way = run(n.bodies[0]);
          if (way == Way::out) break;
          if (way == Way::left) return way;
          if (left == 0) break;
        }
        return Way::on;
      case Node::Kind::table:
        for (std::size_t i = v[n.a] % n.bodies.size(); i < n.bodies.size(); ++i) {
          if (const Way way = run(n.bodies[i]); way != Way::on) return way;
          if (!n.skip_else) break;
        }
        return Way::on;
      default:
        return Way::on;
    }
  }
};

const char* const kMix = R"(
.func (.param .b32 z) mix(.param .b32 x, .param .b32 y) {
  .reg .b32 %r<9>; .reg .pred %p<3>;
  ld.param.b32 %r1, [x]; ld.param.b32 %r2, [y]; and.b32 %r3, %r1, 3; mov.u32 %r4, 0;
LOOP: setp.ge.u32 %p1, %r4, %r3; @%p1 bra OUT;
  mad.lo.u32 %r2, %r2, 5, %r4;
  and.b32 %r5, %r2, 8; setp.eq.u32 %p2, %r5, 0; @%p2 bra ON;
  xor.b32 %r2, %r2, %r1; st.param.b32 [z], %r2; ret;
ON: add.u32 %r4, %r4, 1; bra LOOP;
OUT: add.u32 %r2, %r2, 1; st.param.b32 [z], %r2; ret;
}
)";

}  // namespace

TEST_CASE("random: programs with divergent control flow give what single threads give") {
  constexpr std::uint32_t kThreads = 80;  // two warps and a half
  int executed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const std::vector<Node> program = Generator(seed).block(4, false, 6);
    Writer writer;
    writer.write(program, 0, "LEAVE", "LEAVE");
    std::string body =
        ".shared .align 4 .b8 memory[" + std::to_string(kThreads * 64) +
        "];\n mul.lo.u32 %r61, %thread, 64; mov.u32 %r60, memory; add.u32 %r61, %r61, %r60;\n";
    for (int i = 0; i < 16; ++i)
      body += "st.shared.u32 [%r61+" + std::to_string(4 * i) + "], " + std::to_string(i * 3) + "; ";
    for (int i = 0; i < kVariables; ++i)
      body += "\nmul.lo.u32 %r" + std::to_string(i) + ", %number, " +
              std::to_string(0x9E3779B9u * (i + 1) >> (i % 3 * 9)) + "; shr.u32 %r" +
              std::to_string(i) + ", %r" + std::to_string(i) + ", " + std::to_string(i % 5 * 6) +
              ";";
    body += "\n" + writer.text + "LEAVE:\nmul.wide.u32 %rd1, %number, " +
            std::to_string(4 * kVariables) + "; // the end\nadd.u64 %rd1, %rd1, %out;\n";
    for (int i = 0; i < kVariables; ++i)
      body += "st.global.u32 [%rd1+" + std::to_string(4 * i) + "], %r" + std::to_string(i) + ";\n";
    const auto want = expected(2 * kThreads * kVariables, [&](std::uint32_t at) {
      Thread t;
      const std::uint32_t number = at / kVariables;
      for (int i = 0; i < 16; ++i) t.memory[i] = i * 3;
      for (int i = 0; i < kVariables; ++i)
        t.v[i] = number * (0x9E3779B9u * (i + 1) >> (i % 3 * 9)) >> (i % 5 * 6);
      t.run(program);
      return t.v[at % kVariables];
    });
    for (const std::uint64_t schedule : {std::uint64_t{0}, seed}) {
      Gpu gpu({.threads = 1, .schedule_seed = schedule});
      const auto out = gpu.array<std::uint32_t>(2 * kThreads * kVariables, 0);
      const LaunchOutcome outcome =
          gpu.launch(kernel(body, kMix), {out.address(), 0ull}, {kThreads, 1, 1}, {2, 1, 1});
      REQUIRE(outcome.fault.message == "");
      CHECK_SAME(out.values(), want);
      // Whoever does not leave early comes to the end together: it is issued once a warp.
      if (schedule == 0) {
        CHECK(counters_of(outcome, "// the end").count.issued == 2 * 3);
        CHECK(counters_of(outcome, "// the end").count.lanes == 2 * kThreads);
      }
      ++executed;
    }
  }
  CHECK(executed == 600);
}
