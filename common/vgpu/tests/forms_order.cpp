// Modifiers in another order than the manual's: the table of forms takes what ptxas takes.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "../ops/forms.h"
#include "../runtime/watched_machine.h"

using namespace vgpu;

namespace {

struct Statement {
  std::string target, text;
  std::string name() const { return text.substr(0, text.find_first_of(" ;")); }
};
const Statement kStatements[] = {
#define STATEMENT(target, text) {#target, text},
#define ORDER(spelling, other, taken)
#include "forms_order.inc"
#undef STATEMENT
#undef ORDER
};
struct OtherOrder {
  const char *spelling, *other;
  bool taken;
};
constexpr OtherOrder kOrders[] = {
#define STATEMENT(target, text)
#define ORDER(spelling, other, taken) {spelling, other, taken},
#include "forms_order.inc"
#undef STATEMENT
#undef ORDER
};

struct WithOperands {
  const char* text;
  bool taken;
};
constexpr WithOperands kOperands[] = {
#define OPERANDS(text, taken) {text, taken},
#include "forms_operands.inc"
#undef OPERANDS
};

enum class Reading { same, other, none };
// What the table makes of `dotted`, beside `spelling`.
Reading reading(std::string_view dotted, std::string_view spelling) {
  Mods mods, want;
  const Form* form = match_form(dotted, mods);
  if (!form) return Reading::none;
  return form == match_form(spelling, want) && mods.words == want.words ? Reading::same
                                                                        : Reading::other;
}

std::vector<std::string> words_of(const std::string& dotted) {
  std::vector<std::string> words(1);
  for (char c : dotted)
    if (c == '.')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}
std::string dotted(const std::vector<std::string>& words) {
  std::string text = words[0];
  for (std::size_t i = 1; i < words.size(); ++i) text += "." + words[i];
  return text;
}
std::vector<std::string> types_of(const std::string& dotted) {
  std::vector<std::string> types = words_of(dotted);
  std::erase_if(types, [](const std::string& w) { return type_from_name(w) == Type::none; });
  return types;
}

std::string begin_kernel(const std::string& target) {
  return ".version 8.8\n.target " + target + "\n.address_size 64\n" +
         R"(.shared .align 128 .b8 s[1024];
.extern .shared .align 128 .b8 dyn[];
.global .align 128 .b8 gl[1024];
.visible .entry k(.param .u64 p)
{
.reg .pred %p<40>; .reg .b16 %h<60>; .reg .b32 %r<120>; .reg .b64 %rd<60>;
.reg .b128 %q<8>; .reg .f32 %f<40>; .reg .f64 %fd<20>; .reg .b64 %out, %in, %mine;
.reg .b32 %thread, %lane, %number, %block;
)";
}

// The numbers of the statements that ptxas refuses. `works` turns false when it does not know the
// version or the target, or is not there.
class Ptxas {
 public:
  Ptxas() {
    const char* nvcc = std::getenv("NVCC");
    if (nvcc) program_ = std::filesystem::path(nvcc).parent_path() / "ptxas";
    const char* folder = std::getenv("TEST_TMP");
    file_ =
        std::filesystem::path(folder ? folder : std::filesystem::temp_directory_path().c_str()) /
        ("order" + std::to_string(getpid()) + ".ptx");
  }
  ~Ptxas() { std::filesystem::remove(file_); }

  bool knows(const std::string& target) {
    return std::filesystem::exists(program_) && refused(target, {}).empty() && status_ == 0;
  }
  std::set<std::size_t> refused(const std::string& target,
                                const std::vector<std::string>& statements) {
    std::set<std::size_t> bad;
    do {  // it may stop at the first that it cannot read
      status_ = 0;
      const std::size_t before = bad.size();
      assemble(target, statements, bad);
      if (bad.size() == before) break;
    } while (status_ != 0);
    return bad;
  }
  bool failed() const { return status_ != 0; }  // without naming a statement

 private:
  void assemble(const std::string& target, const std::vector<std::string>& statements,
                std::set<std::size_t>& bad) {
    std::vector<std::size_t> lines;
    std::ofstream out(file_);
    const std::string head = begin_kernel(target);
    out << head;
    const auto first = static_cast<std::size_t>(std::count(head.begin(), head.end(), '\n')) + 1;
    for (std::size_t i = 0; i < statements.size(); ++i) {
      if (bad.count(i)) continue;
      out << statements[i] << "\n";
      lines.push_back(i);
    }
    out << "ret;\n}\n";
    out.close();
    const std::string command = "'" + program_.string() + "' -O0 -arch=" + target + " '" +
                                file_.string() + "' -o /dev/null 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char text[4096];
    while (std::fgets(text, sizeof text, pipe)) {
      const std::string_view line(text);
      const std::size_t at = line.find(", line ");
      // (What it cannot even parse is fatal.)
      if (at == line.npos ||
          (line.find("; error") == line.npos && line.find("; fatal") == line.npos))
        continue;
      const std::size_t number = std::strtoul(text + at + 7, nullptr, 10);
      if (number >= first && number - first < lines.size()) bad.insert(lines[number - first]);
    }
    status_ = pclose(pipe);
  }

  std::filesystem::path program_, file_;
  int status_ = 0;
};

}  // namespace

TEST_CASE(
    "order: spellings that ptxas takes are the same instruction, those that it refuses none") {
  int taken = 0, refused = 0;
  for (const OtherOrder& o : kOrders) {
    INFO(std::string(o.other) << " for " << std::string(o.spelling));
    CHECK(reading(o.other, o.spelling) == (o.taken ? Reading::same : Reading::none));
    ++(o.taken ? taken : refused);
  }
  CHECK(taken > 250);
  CHECK(refused > 150);
}

TEST_CASE("order: every row's modifiers, shuffled, are taken or refused as ptxas does it" *
          doctest::test_suite("toolkit")) {
  std::set<const Form*> rows;
  for (const Statement& s : kStatements) {
    Mods mods;
    rows.insert(match_form(s.name(), mods));
  }
  // Rows without an instruction of their own here: what needs labels, or no longer exists.
  for (const char* name : {"bra.uni", "brx.idx", "call.uni", "shfl.up.b32"}) {
    Mods mods;
    rows.insert(match_form(name, mods));
  }
  for (const Form& form : forms()) {
    INFO(form.opcode << " " << form.pattern << ": no statement in forms_order.inc");
    CHECK(rows.count(&form) == 1);
  }

  Ptxas ptxas;
  std::mt19937 random(1);
  for (const char* target : {"sm_90", "sm_90a", "sm_100a"}) {
    if (!ptxas.knows(target)) {
      MESSAGE("not compared for " << std::string(target)
                                  << ": no ptxas beside $NVCC that knows it");
      continue;
    }
    std::vector<std::string> same, none, given;
    for (const Statement& s : kStatements) {
      if (s.target != target) continue;
      given.push_back(s.text);
      const std::string name = s.name();
      for (int turn = 0; turn < 12; ++turn) {
        std::vector<std::string> words = words_of(name);
        if (words.size() < 3) break;
        if (turn % 2) {
          std::shuffle(words.begin() + 1, words.end(), random);
        } else {  // one of them elsewhere
          const std::size_t from = 1 + random() % (words.size() - 1);
          const std::string word = words[from];
          words.erase(words.begin() + static_cast<std::ptrdiff_t>(from));
          words.insert(words.begin() + 1 + static_cast<std::ptrdiff_t>(random() % words.size()),
                       word);
        }
        const std::string other = dotted(words), text = other + s.text.substr(name.size());
        const Reading r = reading(other, name);
        if (r == Reading::same) same.push_back(text);
        // (With its types exchanged it may be an instruction that the table does not have.)
        if (r == Reading::none && types_of(other) == types_of(name)) none.push_back(text);
      }
    }
    CHECK(ptxas.refused(target, given).empty());
    CHECK(!ptxas.failed());
    for (std::size_t i : ptxas.refused(target, same)) FAIL_CHECK("ptxas refuses " << same[i]);
    CHECK(!ptxas.failed());
    const std::set<std::size_t> refused = ptxas.refused(target, none);
    for (std::size_t i = 0; i < none.size(); ++i)
      if (!refused.count(i)) FAIL_CHECK("ptxas takes " << none[i]);
    if (std::string_view(target) == "sm_90") {
      CHECK(same.size() > 1500);
      CHECK(none.size() > 400);
    }
  }
}

TEST_CASE("operands: vectors, sums and '_' are taken where ptxas takes them" *
          doctest::test_suite("toolkit")) {
  WatchedMachine machine({}, {});
  int taken = 0, refused = 0;
  std::vector<std::string> texts;
  for (const WithOperands& o : kOperands) {
    INFO(std::string(o.text));
    bool loads = true;
    try {
      const auto module = machine.load(begin_kernel("sm_90") + o.text + "\nret;\n}\n");
      loads = machine.refusals(*module).empty();
    } catch (const PtxError&) {
      loads = false;
    }
    CHECK(loads == o.taken);
    ++(o.taken ? taken : refused);
    texts.push_back(o.text);
  }
  CHECK(taken > 70);
  CHECK(refused > 60);

  Ptxas ptxas;
  if (!ptxas.knows("sm_90")) {
    MESSAGE("not compared with ptxas: none beside $NVCC that knows sm_90");
    return;
  }
  const std::set<std::size_t> none = ptxas.refused("sm_90", texts);
  CHECK(!ptxas.failed());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    INFO(texts[i]);
    CHECK(none.count(i) == (kOperands[i].taken ? 0 : 1));
  }
}
